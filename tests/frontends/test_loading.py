"""One loader for texts, files and modules, and the level that each is at."""

from pathlib import Path
from typing import Any

import pytest

from treadle.errors import TreadleError
from treadle.frontends.levels import LEVELS, Level, level_of
from treadle.frontends.loading import load_module, load_path, load_text
from treadle.ir.text import parse_module, print_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import Door, lower

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "linear_bias_gelu.mlir"
KERNEL = (ROOT / "examples" / "row_softmax.mlir").read_text(encoding="utf-8")


def test_a_path_is_read_and_named() -> None:
    loaded = load_path(EXAMPLE)
    place = loaded.module.body.block.first_op
    assert place is not None and str(EXAMPLE) in str(place.location)
    assert loaded.level == "tensor"
    assert str(load_path(str(EXAMPLE)).module) == str(loaded.module)


@pytest.mark.parametrize(("name", "words"), [("missing.mlir", "No such file"), (".", "directory"), ("latin.mlir", "not UTF-8")])
def test_an_unreadable_file(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "latin.mlir").write_bytes(b"// caf\xe9")
    with pytest.raises(TreadleError, match=words) as caught:
        load_path(tmp_path / name)
    assert caught.value.code == "TR901"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_every_level_is_told_from_the_operations(level: Level, target: str) -> None:
    """What the compiler itself prints at a level is taken for a program at that level, and is the same again as text and as module."""
    loaded = load_path(EXAMPLE)
    lower(loaded.module, target_spec(target), CompileOptions(), until=level)
    text = print_module(loaded.module)
    again = load_text(text)
    assert again.level == level == level_of(loaded.module)
    assert print_module(again.module) == text == print_module(load_module(parse_module(text, "t.mlir")).module)


@pytest.mark.parametrize("level", LEVELS[1:])
def test_a_program_goes_on_from_its_own_level(level: Level) -> None:
    """Lowering from any level gives the schedule that lowering in one go gives."""
    whole = load_path(EXAMPLE).module
    lower(whole, target_spec("gfx942"), CompileOptions())
    part = load_path(EXAMPLE).module
    lower(part, target_spec("gfx942"), CompileOptions(), until=level)
    loaded = load_text(print_module(part))
    lower(loaded.module, target_spec("gfx942"), CompileOptions(), door=Door(loaded.level))
    assert print_module(loaded.module) == print_module(whole)


def test_a_level_may_be_given() -> None:
    """A kernel whose tiles all have layouts is taken for a finished schedule, unless it is said not to be one."""
    loaded = load_text(KERNEL)
    assert loaded.level == "tile"
    assert load_text(KERNEL, level="schedule").level == "schedule"


def case(text: str, code: str, words: str, **more: Any) -> Any:
    return pytest.param(text, code, words, more, id=words)


PROGRAM = """
dispatch.program @f attributes {{dims = {{n = array<i64: 0, 0>, m = array<i64: 0, 1>}}}} {{
  %x = dispatch.input {index} "x" shape ["n", "m"] strides ["m", "1"] align 16 : !dispatch.buffer<{element}>
  %y = dispatch.alloc ["n", "{size}"] : !dispatch.buffer<f32>
  dispatch.launch @{kernel}(%x : !dispatch.buffer<{element}>) -> (%y : !dispatch.buffer<f32>) symbols {symbols}
  dispatch.return {result} : !dispatch.buffer<f32>
}}
"""
FIELDS = {"index": 0, "element": "f32", "size": "m", "kernel": "row_softmax", "symbols": '{rows = "n", columns = "m"}', "result": "%y"}


def program(**fields: Any) -> str:
    return KERNEL + PROGRAM.format(**FIELDS | fields)


def test_a_program_by_hand_is_taken_before_a_derived_one() -> None:
    module = load_text(program()).module
    assert [op.name for op in module.body.block.ops] == ["tile.kernel", "dispatch.program"]
    assert print_module(load_text(program(), function="f").module) == print_module(module)
    assert 'symbols {rows = "n", columns = "m"}' in print_module(module)
    derived = print_module(load_text(program(), function="row_softmax").module)
    assert 'symbols {rows = "rows", columns = "columns"}' in derived and "@f" not in derived


def edited(old: str, new: str) -> str:
    assert KERNEL.count(old) == 1, old
    return KERNEL.replace(old, new)


SHAPES = 'arg_shapes = [["rows", "columns"], ["rows", "columns"]]'


@pytest.mark.parametrize(
    ("text", "code", "words", "more"),
    [
        case(edited(SHAPES + ", ", ""), "TR107", "its arguments have no shapes"),
        case(edited(SHAPES, 'arg_shapes = [["rows", "k"], ["rows", "columns"]]'), "TR107", "'k' uses k, which is no symbol"),
        case(edited(SHAPES, 'arg_shapes = [["rows", "columns"]]'), "TR201", "arg_shapes has 1 entries for 2 pointers"),
        case(edited(SHAPES, 'arg_shapes = [["rows +", "columns"], ["rows"]]'), "TR103", "is not a size expression"),
        case(edited("output_count = 1", "output_count = 0"), "TR107", "it writes to 'y', which is an input"),
        case(edited("output_count = 1", "output_count = 1, in_place = array<i64: 0>"), "TR201", "in_place names outputs"),
        case(edited("<= 1024", "< 1024"), "TR107", "is no comparison"),
        case(edited('grid = ["rows"]', 'grid = ["lines"]'), "TR107", "'lines' uses lines"),
        case(edited(SHAPES, SHAPES + ', arg_strides = [["columns", "1"], ["2*columns", "1"]]'), "TR107", "are not row-major"),
        case(edited(SHAPES, SHAPES + ', arg_names = ["a", "a"]'), "TR107", "two arguments have one name"),
        case(edited(SHAPES, SHAPES + ", arg_align = array<i64: 0, 16>"), "TR201", "arg_align holds powers of two"),
        case(edited(SHAPES, SHAPES + ", arg_align = array<i64: 16, 512>"), "TR107", "asks for 512 bytes"),
        case(KERNEL + KERNEL.replace("@row_softmax", "@other"), "TR104", "2 kernels and no program (functions: row_softmax, other)"),
        case(KERNEL, "TR104", "there is no program or kernel 'softmax'", function="softmax"),
        case(KERNEL + "func.func @f() {\n  return\n}\n", "TR301", "operation 'func.func' beside kernels"),
        case(program(index=1), "TR108", "inputs are numbered in order"),
        case(program(element="f16"), "TR108", "takes arrays of f32, the launch gives f16"),
        case(program(size="k"), "TR108", "'k' uses k"),
        case(program(kernel="softmax"), "TR108", "there is no kernel 'softmax'"),
        case(program(symbols='{rows = "n"}'), "TR108", "columns is not in both"),
        case(program(symbols='{rows = "n", columns = "o"}'), "TR108", "'o' uses o"),
        case(program(result="%x"), "TR108", "a result is neither memory of dispatch.alloc"),
    ],
)
def test_kernels_and_programs_that_do_not_fit(text: str, code: str, words: str, more: dict[str, Any]) -> None:
    with pytest.raises(TreadleError) as caught:
        load_text(text, "user.mlir", **more)
    assert caught.value.code == code, caught.value
    assert words in str(caught.value)
