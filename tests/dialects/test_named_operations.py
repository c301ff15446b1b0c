"""Every named operation against MLIR's own definition: what iree-opt makes of it as a `linalg.generic`, read back and run on numbers."""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from generators.named_operations import FLOATS, INTEGERS, NamedCase, random_case

from treadle.dialects.mlir_ext.dialects import LINALG
from treadle.dialects.mlir_ext.named_table import NAMED
from treadle.dialects.mlir_ext.scalar_bodies import same_body
from treadle.errors import TreadleError
from treadle.ir.core import Operation
from treadle.ir.dialects import linalg
from treadle.ir.text import parse_module, print_module
from treadle.sim.reference import evaluate_module

SEEDS = 12
STRUCTURED = linalg.abstract_ops.LinalgStructuredOperation


def iree_opt(text: str, *flags: str) -> str:
    """The module that iree-opt prints; skips the test where it is not installed."""
    tool = shutil.which("iree-opt", path=str(Path(sys.executable).parent)) or shutil.which("iree-opt")
    if tool is None:
        pytest.skip("iree-opt is not installed")
    result = subprocess.run([tool, *flags, "-"], input=text, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[:2000]
    return result.stdout


def generalized(text: str) -> str:
    """`text` with its named operations as `linalg.generic`, in operations that this compiler has."""
    found = iree_opt(text, "--linalg-generalize-named-ops")
    # A conversion between 16-bit floats is one operation in newer MLIR, two here.
    pattern = r"%(\S+) = arith\.convertf (%\S+) : (\w+) to (\w+)"
    return re.sub(pattern, r"%wide_\1 = arith.extf \2 : \3 to f32\n%\1 = arith.truncf %wide_\1 : f32 to \4", found)


def structured_in(module: Operation, symbol: str) -> Operation:
    function = next(op for op in module.walk() if op.name == "func.func" and symbol in str(op.properties["sym_name"]))
    return next(op for op in function.walk() if isinstance(op, STRUCTURED))


def differences(cases: Sequence[NamedCase], names: Mapping[str, str] | None = None) -> list[str]:
    """The cases whose maps, iterators or numbers differ from those of iree-opt's generic operation.

    `names`: what iree-opt knows an operation by, where that is not its name here.
    """
    text = other = functions_of(cases)
    for name, newer in (names or {}).items():
        other = other.replace(f"linalg.{name} ", f"linalg.{newer} ")
    ours, theirs = parse_module(text, "named.mlir"), parse_module(generalized(other), "generic.mlir")
    wrong: list[str] = []
    for number, case in enumerate(cases):
        symbol = f"case_{number}_"
        mine, other = structured_in(ours, symbol), structured_in(theirs, symbol)
        assert isinstance(mine, STRUCTURED)
        assert isinstance(other, STRUCTURED)
        if mine.get_indexing_maps() != other.get_indexing_maps() or mine.get_iterator_types() != other.get_iterator_types():
            wrong.append(f"{case}: maps or iterators {mine.get_indexing_maps()}, expected {other.get_indexing_maps()}")
            continue
        arrays = case.arrays(number)
        (got,), (want,) = (evaluate_module(module, arrays, symbol) for module in (ours, theirs))
        if not np.array_equal(got.value, want.value, equal_nan=True):
            wrong.append(f"{case}: {int((got.value != want.value).sum())} of {got.value.size} elements differ")
    return wrong


@pytest.mark.parametrize("seed", range(SEEDS))
def test_bodies_and_maps_are_those_of_mlir(seed: int) -> None:
    assert differences([random_case(name, seed) for name in NAMED]) == []


def without_conversions(text: str) -> str:
    """As `generalized`, in the generic form."""
    pattern = r'%(\S+) = "arith\.convertf"\((%\S+)\).*: \((\w+)\) -> (\w+)'
    return re.sub(pattern, r"%wide_\1 = arith.extf \2 : \3 to f32\n%\1 = arith.truncf %wide_\1 : f32 to \4", text)


def functions_of(cases: Sequence[NamedCase]) -> str:
    return "".join(case.function(f"case_{number}_") for number, case in enumerate(cases))


def read_back(text: str, cases: Sequence[NamedCase]) -> list[str]:
    """The cases that another text of their functions does not give the same operation for."""
    ours, theirs = parse_module(functions_of(cases), "a.mlir"), parse_module(text, "b.mlir")
    wrong: list[str] = []
    for number, case in enumerate(cases):
        mine, other = structured_in(ours, f"case_{number}_"), structured_in(theirs, f"case_{number}_")
        assert isinstance(mine, STRUCTURED)
        assert isinstance(other, STRUCTURED)
        alike = mine.name == other.name == f"linalg.{case.name}" and same_body(mine.body, other.body)
        if not alike or mine.get_indexing_maps() != other.get_indexing_maps():
            wrong.append(f"{case}: {other}")
    return wrong


PRINTED = {"custom": (), "generic": ("--mlir-print-op-generic",)}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("form", PRINTED)
def test_every_form_that_mlir_prints_parses(form: str, seed: int) -> None:
    cases = [random_case(name, seed) for name in NAMED]
    assert read_back(without_conversions(iree_opt(functions_of(cases), *PRINTED[form])), cases) == []


@pytest.mark.parametrize("seed", range(3))
def test_what_is_printed_reads_back_here_and_in_mlir(seed: int) -> None:
    cases = [random_case(name, seed) for name in NAMED]
    printed = print_module(parse_module(functions_of(cases), "a.mlir"))
    assert read_back(printed, cases) == []
    assert read_back(iree_opt(printed), cases) == []


CASE = NamedCase("conv_2d_nhwc_hwcf", ((1, 9, 9, 3), (3, 3, 3, 5), (1, 4, 3, 5)), ("i8", "i8", "i32"))
OWN = "strides = dense<[2, 3]> : tensor<2xi64>"


def placed(front: str = "", behind: str = "") -> str:
    """The case with text in front of and behind its operands."""
    head, line, *rest = CASE.function("case_0_").split("\n")
    return "\n".join([head, line.replace(" ins", f" {front}ins").replace(") ->", f"){behind} ->"), *rest])


@pytest.mark.parametrize(
    ("front", "behind"),
    [
        (f"{{{OWN}}} ", ""),
        (f"<{{{OWN}}}> ", ""),
        (f"<{{{OWN}, operandSegmentSizes = array<i32: 2, 1>}}> ", ""),
        ("", f" {{{OWN}}}"),
        ("{dilations = dense<1> : vector<2xi64>} ", f" {{{OWN.replace('tensor', 'vector')}}}"),
        ("", f" attrs = {{{OWN}}}"),
        (f"<{{{OWN}}}> {{keep = 1 : i32}} ", ""),
    ],
)
def test_attributes_stand_anywhere(front: str, behind: str) -> None:
    op = structured_in(parse_module(placed(front, behind), "a.mlir"), "case_0_")
    assert isinstance(op, STRUCTURED)
    assert str(op.get_indexing_maps().data[0].data) == "(d0, d1, d2, d3, d4, d5, d6) -> (d0, ((d1 * 2) + d4), ((d2 * 3) + d5), d6)"
    assert ("keep" in op.attributes) == ("keep" in front)


REFUSED = [
    ("{strides = dense<1> : tensor<3xi64>} ", "TR201", "strides must be two positive integers"),
    ("{strides = dense<0> : tensor<2xi64>} ", "TR201", "strides must be two positive integers"),
    ("{dilations = array<i64: 1, 1>} ", "TR201", "dilations must be two positive integers"),
    ("{strides = dense<4> : tensor<2xi64>} ", "TR201", "dimension"),
    ("{strides = } ", "TR101", ""),
    ("indexing_maps = [affine_map<(d0) -> (d0)>] ", "TR101", "has no indexing_maps"),
]


@pytest.mark.parametrize(("front", "code", "words"), REFUSED)
def test_wrong_attributes_are_refused(front: str, code: str, words: str) -> None:
    with pytest.raises(TreadleError) as caught:
        parse_module(placed(front), "a.mlir")
    assert caught.value.code == code
    assert words in caught.value.message
    assert caught.value.location is not None
    assert caught.value.location.line == 2


MATMUL = NamedCase("matmul", ((3, 5), (5, 7), (3, 7)), ("i8", "i8", "i32"))


@pytest.mark.parametrize(
    ("cast", "code"),
    [("#linalg.type_fn<cast_sideways>", "TR101"), ("1 : i32", "TR101"), ("#linalg.type_fn<cast_unsigned>", "")],
)
def test_ways_to_cast(cast: str, code: str) -> None:
    text = MATMUL.function("case_0_").replace("matmul ins", f"matmul {{cast = {cast}}} ins")
    if code:
        with pytest.raises(TreadleError) as caught:
            parse_module(text, "a.mlir")
        assert caught.value.code == code
        return
    body = structured_in(parse_module(text, "a.mlir"), "case_0_").regions[0].block
    assert [op.name for op in body.ops][:2] == ["arith.extui"] * 2


def test_a_body_that_is_not_the_operations_own_is_refused() -> None:
    """The generic form has the body in the text."""
    printed = iree_opt(MATMUL.function("case_0_"), "--mlir-print-op-generic")
    with pytest.raises(TreadleError, match="not the operation's own") as caught:
        parse_module(printed.replace("arith.extsi", "arith.extui", 1), "a.mlir")
    assert caught.value.code == "TR201"


def test_no_body_is_upstreams() -> None:
    """Every structured operation with a hidden body is one of ours."""
    hidden = [kind for kind in LINALG.operations if issubclass(kind, linalg.abstract_ops.NamedOperation)]
    assert len(hidden) > len(NAMED)
    assert [kind.name for kind in hidden if not kind.get_hidden_region.__func__.__module__.startswith("treadle.")] == []


ELEMENTWISE: dict[str, tuple[str, int, str]] = {
    "add": ("add", 2, "fi"),
    "sub": ("sub", 2, "fi"),
    "mul": ("mul", 2, "fi"),
    "div": ("div", 2, "fi"),
    "div_unsigned": ("div_unsigned", 2, "i"),
    "max": ("max_signed", 2, "fi"),
    "min": ("min_signed", 2, "fi"),
    "powf": ("powf", 2, "f"),
    "exp": ("exp", 1, "f"),
    "log": ("log", 1, "f"),
    "abs": ("abs", 1, "f"),
    "ceil": ("ceil", 1, "f"),
    "floor": ("floor", 1, "f"),
    "negf": ("negf", 1, "f"),
    "reciprocal": ("reciprocal", 1, "f"),
    "round": ("round", 1, "f"),
    "sqrt": ("sqrt", 1, "f"),
    "rsqrt": ("rsqrt", 1, "f"),
    "square": ("square", 1, "f"),
    "tanh": ("tanh", 1, "f"),
    "erf": ("erf", 1, "f"),
    "select": ("select", 3, "fi"),
}
"""Each name: the kind of `linalg.elementwise` in newer MLIR, its number of inputs, and the elements it takes (floats, integers)."""


def elementwise_cases() -> list[NamedCase]:
    """Every elementwise name on every element type that it is defined on."""
    found: list[NamedCase] = []
    for number, (name, (_, arity, kinds)) in enumerate(ELEMENTWISE.items()):
        shape = ((3, 5), (7,), (2, 1, 9), ())[number % 4]
        for element in (*(FLOATS if "f" in kinds else ()), *(INTEGERS if "i" in kinds else ())):
            elements = ("i1", element, element, element) if name == "select" else (element,) * (arity + 1)
            found.append(NamedCase(name, (shape,) * (arity + 1), elements, tensors=True))
    return found


def test_elementwise_names_compute_what_mlir_defines() -> None:
    newer = "elementwise <{}>"
    assert differences(elementwise_cases(), {name: newer.format(kind) for name, (kind, _, _) in ELEMENTWISE.items()}) == []


def converting_cases(name: str) -> list[NamedCase]:
    """`linalg.copy` between all element types in all ways to widen; `linalg.fill`, which converts nothing in newer MLIR."""
    kinds = (*FLOATS, *INTEGERS)
    if name == "fill":
        return [NamedCase(name, ((), shape), (kind, kind)) for shape in ((3, 5), (), (1,)) for kind in kinds]
    ways = ("", "{cast = #linalg.type_fn<cast_signed>}", "{cast = #linalg.type_fn<cast_unsigned>}")
    return [NamedCase(name, ((3, 5), (3, 5)), (a, b), way) for way in ways for a in kinds for b in kinds]


@pytest.mark.parametrize("name", ["copy", "fill"])
def test_copies_and_fills_are_those_of_mlir(name: str) -> None:
    assert differences(converting_cases(name)) == []


def transposed_cases(batch: tuple[int, ...], cast: str) -> list[NamedCase]:
    """The names of products with a transposed operand."""
    elements = ("i8", "i16", "i32") if cast else ("f16", "bf16", "f32")
    sides = {"a": ((5, 3), (5, 7), (3, 7)), "b": ((3, 5), (7, 5), (3, 7))}
    name = "batch_matmul" if batch else "matmul"
    return [NamedCase(f"{name}_transpose_{s}", tuple((*batch, *n) for n in shapes), elements, cast) for s, shapes in sides.items()]


@pytest.mark.parametrize("cast", ["", "{cast = #linalg.type_fn<cast_unsigned>}"])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_products_with_a_transposed_operand(batch: tuple[int, ...], cast: str) -> None:
    first, loops = ("d0, ", "d0, d1, d2, d3") if batch else ("", "d0, d1, d2")
    m, n, k = ("d1", "d2", "d3") if batch else ("d0", "d1", "d2")
    texts: dict[str, str] = {}
    for case, (left, right) in zip(transposed_cases(batch, cast), (((k, m), (k, n)), ((m, k), (n, k))), strict=True):
        maps = [f"affine_map<({loops}) -> ({first}{x}, {y})>" for x, y in (left, right, (m, n))]
        texts[case.name] = f"{case.name.split('_transpose')[0]} indexing_maps = [{', '.join(maps)}]"
    assert differences(transposed_cases(batch, cast), texts) == []
