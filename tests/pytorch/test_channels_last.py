"""Operands of convolutions in graphs for a GPU that is not there, and results on the simulator."""

import random
from importlib import import_module
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from treadle.torch.channels_last import lay_back, lay_out  # noqa: E402
from treadle.torch.memory import has_channels_last  # noqa: E402
from treadle.torch.region_calls import REGION  # noqa: E402
from treadle.torch.settings import Settings  # noqa: E402
from treadle.torch.taking import take  # noqa: E402

F = torch.nn.functional
FakeTensorMode = import_module("torch._subclasses.fake_tensor").FakeTensorMode
select_decomp_table = import_module("torch._inductor.decomposition").select_decomp_table
CONVOLUTION = torch.ops.aten.convolution.default
CLONE = torch.ops.aten.clone.default
LAST = torch.channels_last


def normed(x: Any, w: Any) -> Any:
    return F.relu(F.conv2d(F.silu(F.group_norm(x, 4)), w, padding=1))


def graph_of(function: Any, *shapes: tuple[int, ...], layout: Any = LAST, filters: Any = LAST) -> Any:
    """A function of an image and filters on a GPU, in Inductor's operators."""
    with FakeTensorMode():
        image, *rest = (torch.empty(shape, device="cuda", dtype=torch.float16) for shape in shapes)
        given = [image.to(memory_format=layout), *(w.to(memory_format=filters) for w in rest)]
        graph = make_fx(function, decomposition_table=select_decomp_table())(*given).graph
    graph.eliminate_dead_code()
    return graph


def read(graph: Any) -> list[list[bool]]:
    """Of each convolution, whether its operands have channels last."""
    return [[has_channels_last(given.meta["val"]) for given in n.args[:2]] for n in graph.nodes if n.target is CONVOLUTION]


def targets(graph: Any) -> list[Any]:
    return [node.target for node in graph.nodes]


def test_what_a_norm_lays_out_with_channels_first() -> None:
    """GroupNorm on a GPU does, whatever the image's layout is."""
    rng = random.Random(seed := int(np.random.SeedSequence().generate_state(1)[0]))
    n, c, f, height, width = rng.randint(1, 5), 4 * rng.randint(2, 40), rng.randint(2, 90), rng.randint(2, 40), rng.randint(2, 40)
    print(f"seed {seed}: {n}x{c}x{height}x{width}, {f} filters")
    graph = graph_of(normed, (n, c, height, width), (f, c, 3, 3))
    before = targets(graph)
    assert read(graph) == [[False, True]]
    laid = lay_out(graph, as_inductor=False)
    assert read(graph) == [[True, True]]
    lay_back(laid, [each.convolution for each in laid])
    assert read(graph) == [[True, True]]
    lay_back(laid, ())
    assert read(graph) == [[False, True]]
    graph.eliminate_dead_code()
    assert targets(graph) == before


def test_programs_are_compiled_for_what_they_are_called_with() -> None:
    graph = graph_of(normed, (2, 64, 9, 11), (72, 64, 3, 3))
    copies = targets(graph).count(CLONE)
    (record,) = take(graph, Settings(target="sm_90a", choice="all"))
    assert record.taken, record.reason
    (call,) = [node for node in graph.nodes if node.target is REGION]
    assert all(has_channels_last(given.meta["val"]) for given in call.args[0])
    assert targets(graph).count(CLONE) == copies + 1


def test_convolutions_that_are_left_read_what_they_read() -> None:
    """Regions of a GPU's tensors have no program for the simulator."""
    graph = graph_of(normed, (2, 64, 9, 11), (72, 64, 3, 3))
    before = targets(graph)
    (record,) = take(graph, Settings(target="sim"))
    assert not record.taken
    assert targets(graph) == before
    assert read(graph) == [[False, True]]


def test_a_copy_that_two_convolutions_read_is_made_once() -> None:
    def two(x: Any, first: Any, second: Any) -> Any:
        return F.conv2d(x, first, padding=1) + F.conv2d(x, second)

    graph = graph_of(two, (2, 16, 9, 11), (24, 16, 3, 3), (24, 16, 1, 1), layout=torch.contiguous_format)
    lay_out(graph, as_inductor=False)
    assert read(graph) == [[True, True]] * 2
    assert targets(graph).count(CLONE) == 1


@pytest.mark.parametrize(("groups", "is_laid_out"), [(1, True), (2, False)])
def test_graphs_are_laid_out_where_inductor_lays_them_out(groups: int, is_laid_out: bool) -> None:
    """It does not where groups of several channels are in a graph."""

    def both(x: Any, first: Any, second: Any) -> Any:
        return F.conv2d(F.conv2d(x, first, padding=1), second, groups=groups)

    shapes = ((2, 128, 9, 11), (192, 128, 3, 3), (256, 192 // groups, 1, 1))
    graph = graph_of(both, *shapes, layout=torch.contiguous_format, filters=torch.contiguous_format)
    lay_out(graph, as_inductor=False)
    assert read(graph)[0] == [False, False]
    lay_out(graph, as_inductor=True)
    assert read(graph)[0] == [is_laid_out, is_laid_out]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_results(rank: int) -> None:
    """Filters with channels last, an image without: in float64 terms as right as eager's."""
    torch.manual_seed(seed := int(np.random.SeedSequence().generate_state(1)[0]) % 2**31)
    sides = [random.Random(seed).randint(3, 9) for _ in range(rank)]
    print(f"seed {seed}: {sides}")
    make = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)[rank - 1]
    model: Any = torch.nn.Sequential(make(5, 7, 3, padding=1), torch.nn.SiLU(), make(7, 3, 2))
    image = torch.randn(2, 5, *sides)
    if rank > 1:
        model = model.to(memory_format=LAST if rank == 2 else torch.channels_last_3d)
    options = {"treadle.rest": "eager", "treadle.target": "sim", "treadle.strict": True}
    with torch.no_grad():
        found = torch.compile(model, backend="treadle", options=options)(image)
        eager = model(image)
        right = model.double()(image.double())
    assert found.stride() == eager.stride()
    assert float((found.double() - right).abs().max()) <= 1e-5 * float(right.abs().max())
