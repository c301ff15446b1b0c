"""Passes: their text form, their options, the loop that verifies after each, and the clean-up passes."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest

import treadle.dialects  # pyright: ignore[reportUnusedImport]
import treadle.ir.simplify  # pyright: ignore[reportUnusedImport]
from treadle.errors import InternalError, TreadleError
from treadle.ir.builtin import ModuleOp, TensorType, f32
from treadle.ir.context import Context
from treadle.ir.core import Operation
from treadle.ir.passes import Pass, format_pass, parse_passes, registered_passes, run_passes
from treadle.ir.text import parse_module, print_module

TEXT = """func.func @f(%x: tensor<7x3xf32>, %o: tensor<7x3xf32>) -> tensor<?x3xf32> {
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %n = arith.muli %c2, %c3 : index
  %m = affine.min affine_map<(d0)[s0] -> (d0 + s0, 7)>(%n)[%c2]
  %dead = linalg.exp ins(%x : tensor<7x3xf32>) outs(%o : tensor<7x3xf32>) -> tensor<7x3xf32>
  %a = linalg.add ins(%x, %x : tensor<7x3xf32>, tensor<7x3xf32>) outs(%o : tensor<7x3xf32>) -> tensor<7x3xf32>
  %b = linalg.add ins(%x, %x : tensor<7x3xf32>, tensor<7x3xf32>) outs(%o : tensor<7x3xf32>) -> tensor<7x3xf32>
  %c = linalg.add ins(%a, %b : tensor<7x3xf32>, tensor<7x3xf32>) outs(%o : tensor<7x3xf32>) -> tensor<7x3xf32>
  %s = tensor.extract_slice %c[0, 0] [%m, 3] [1, 1] : tensor<7x3xf32> to tensor<?x3xf32>
  return %s : tensor<?x3xf32>
}"""


@dataclass(frozen=True)
class SetThings(Pass):
    """A pass with an option of every kind."""

    name: ClassVar[str] = "set-things"
    count: int
    scale: float = 1.5
    on: bool = False
    kind: Literal["row", "column"] = "row"
    target: str | None = None
    tile_sizes: tuple[int, ...] = ()

    def apply(self, ctx: Context, module: ModuleOp) -> None:
        pass


@dataclass(frozen=True)
class Spoil(Pass):
    """Gives a slice a type that is wrong."""

    name: ClassVar[str] = "spoil"

    def apply(self, ctx: Context, module: ModuleOp) -> None:
        for op in module.walk():
            if op.name == "tensor.extract_slice":
                object.__setattr__(op.results[0], "_type", TensorType(f32, [9, 9]))


@dataclass(frozen=True)
class Crash(Pass):
    """Fails as no pass should."""

    name: ClassVar[str] = "crash"

    def apply(self, ctx: Context, module: ModuleOp) -> None:
        raise KeyError("lost")


KNOWN: dict[str, type[Pass]] = {"set-things": SetThings, "spoil": Spoil, "crash": Crash}


def test_options_of_every_kind_are_read_and_spelled() -> None:
    text = "set-things{count=3,scale=0.25,on,kind=column,target=sm_90a,tile-sizes=16:8:4}, set-things{count=-1,target=none}"
    first, second = parse_passes(text, KNOWN)
    assert first == SetThings(3, 0.25, True, "column", "sm_90a", (16, 8, 4))
    assert second == SetThings(-1)
    assert [parse_passes(format_pass(item), KNOWN) for item in (first, second)] == [(first,), (second,)]


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("no-such", "TR811", "there is no pass 'no-such'"),
        ("set-things", "TR812", "it has no default"),
        ("set-things{count=3,colour=red}", "TR812", "no such option"),
        ("set-things{count=many}", "TR812", "'many'"),
        ("set-things{count=1,on=perhaps}", "TR812", "expected true or false"),
        ("set-things{count=1,kind=diagonal}", "TR812", "expected one of row, column"),
        ("set-things{count=1", "TR813", "cannot read"),
        ("set-things{count=1}spoil", "TR813", "cannot read"),
        ("set-things{=1}", "TR813", "cannot read '=1'"),
        ("crash,,spoil", "TR813", "cannot read"),
    ],
)
def test_bad_pass_texts(text: str, code: str, words: str) -> None:
    with pytest.raises(TreadleError) as caught:
        parse_passes(text, KNOWN)
    assert caught.value.code == code
    assert words in caught.value.message


def test_the_observer_sees_every_pass() -> None:
    seen: list[tuple[str, int]] = []

    def observe(name: str, module: Operation) -> None:
        seen.append((name, len(list(module.walk()))))

    run_passes(parse_module(TEXT, "user.mlir"), parse_passes("cse,dce"), after=observe)
    assert [name for name, _ in seen] == ["cse", "dce"]
    assert seen[0][1] > 0


def test_a_module_that_a_pass_breaks_names_pass_and_line() -> None:
    with pytest.raises(
        InternalError, match=r"after pass spoil, 'tensor.extract_slice' at user.mlir:10:8 does not verify: the result has shape 9x9"
    ):
        run_passes(parse_module(TEXT, "user.mlir"), [Spoil()])


def test_a_crash_names_the_pass() -> None:
    with pytest.raises(InternalError, match="pass crash failed: KeyError: 'lost'"):
        run_passes(parse_module(TEXT, "user.mlir"), [Crash()])


def test_clean_up() -> None:
    module = parse_module(TEXT, "user.mlir")
    run_passes(module, parse_passes("cse,canonicalize,dce"))
    text = print_module(module)
    assert text.count("linalg.generic") == 2  # the dead one and the second of the equal ones are gone
    assert "math.exp" not in text
    assert "affine.min" not in text
    assert "arith.constant 7 : index" in text
    assert "arith.constant 6" not in text


def test_clean_up_leaves_memory_and_loops_with_effects_alone() -> None:
    text = """func.func @f(%m: memref<3xf32>, %x: f32) {
  linalg.fill ins(%x : f32) outs(%m : memref<3xf32>)
  linalg.fill ins(%x : f32) outs(%m : memref<3xf32>)
  return
}"""
    module = parse_module(text, "user.mlir")
    run_passes(module, parse_passes("cse,canonicalize,dce"))
    assert print_module(module).count("linalg.fill") == 2


def test_the_clean_up_passes_are_registered() -> None:
    assert {"cse", "dce", "canonicalize"} <= set(registered_passes())


def test_the_dialects_of_lower_levels_are_known() -> None:
    context = treadle.dialects.all_dialects_context()
    for name in ("tile.load", "dispatch.kernel", "sync.barrier", "scf.forall"):
        assert context.get_optional_op(name) is not None, name
