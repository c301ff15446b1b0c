"""The generator of random modules: determined by the seed, all different, all legal."""

from generators.module_text import DTYPES, Extent
from generators.modules import FAMILIES, random_module

import treadle.dialects  # noqa: F401 # pyright: ignore[reportUnusedImport] - makes them known to the parser
from treadle.ir.text import parse_module, print_module


def test_seeds_determine_modules() -> None:
    first, again = ([random_module(seed) for seed in range(200)] for _ in range(2))
    assert first == again
    assert len({m.text.replace(m.name, "") for m in first}) == 200
    assert {m.family for m in first} == {name for name, _ in FAMILIES}


def test_modules_are_legal_and_round_trip() -> None:
    for seed in range(0, 200, 3):
        module = random_module(seed)
        text = print_module(parse_module(module.text, module.name))
        assert print_module(parse_module(text, module.name)) == text


def test_variety() -> None:
    """What the families promise does occur: types, ranks, sizes of 1, inputs of rank 0, batches, named and generic forms."""
    modules = [random_module(seed) for seed in range(200)]
    texts = "\n".join(m.text for m in modules)
    for word in (
        "linalg.matmul",
        "linalg.batch_matmul",
        "linalg.reduce",
        "linalg.transpose",
        "arith.maximumf",
        "math.tanh",
        "arith.truncf",
        "i8",
        "tensor<?x",
        "linalg.conv_2d_nhwc_hwcf",
        "linalg.broadcast",
        "linalg.index",
        "tensor.pad",
        "tensor.concat",
        "tensor.extract_slice",
        "tensor.insert_slice",
        "tensor.collapse_shape",
        "tensor.expand_shape",
        "arith.select",
        "d1 + d2",
    ):
        assert word in texts, word
    shapes = [spec.shape for m in modules for spec in m.inputs]
    assert any(shape == () for shape in shapes)
    assert sum(1 in shape for shape in shapes) > 20
    assert sum(any(n > 1 and n % 2 for n in shape) for shape in shapes) > 100
    assert {spec.element for m in modules for spec in m.inputs} == set(DTYPES)
    assert any(0 in shape for shape in shapes)
    assert sum(isinstance(n, Extent) for shape in shapes for n in shape) > 20
