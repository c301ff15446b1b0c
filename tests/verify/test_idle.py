"""Loops and branches in which nothing has to be ordered are not followed; those on which something depends are."""

import pytest
from hazards.kernels import kernel_of
from hazards.schedules import ACC_LAYOUT, ROWS_LAYOUT, alloc, load, local_load, local_store, slot, store
from verify.class_programs import TILE, binary, compared, passed, text

from treadle import pipelines
from treadle.frontends import mlir
from treadle.ir.dialects import scf
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.verify.check import Proof, prove
from treadle.verify.program import Program
from treadle.verify.verify_schedule import COMPILED, schedule_kernels

PLAIN = (load("%x0", "%va", TILE, "%c0, %c0", ROWS_LAYOUT), store("%x0", "%vc", TILE, "%c0, %c0", ROWS_LAYOUT, "f16"))
RESIDUES = (
    binary("%n16", "remui", "%n", "%c16"),
    binary("%i16", "remui", "%i", "%c16"),
    binary("%first", "muli", "%n16", "%i16"),
)
SKIP = ("  %skip = arith.constant false",)
SUM_OF_ALL = """
func.func @f(%a: tensor<?x?x5x?xi8>) -> tensor<5xi32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %d0 = tensor.dim %a, %c0 : tensor<?x?x5x?xi8>
  %d1 = tensor.dim %a, %c1 : tensor<?x?x5x?xi8>
  %d3 = tensor.dim %a, %c3 : tensor<?x?x5x?xi8>
  %e = tensor.empty(%d3, %d1, %d0) : tensor<?x?x5x?xi8>
  %t = linalg.transpose ins(%a : tensor<?x?x5x?xi8>) outs(%e : tensor<?x?x5x?xi8>) permutation = [3, 1, 2, 0]
  %z = arith.constant 0 : i32
  %o = tensor.empty() : tensor<5xi32>
  %f = linalg.fill ins(%z : i32) outs(%o : tensor<5xi32>) -> tensor<5xi32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d2)>],
      iterator_types = ["reduction", "reduction", "parallel", "reduction"]} ins(%t : tensor<?x?x5x?xi8>) outs(%f : tensor<5xi32>) {
  ^bb0(%x: i8, %y: i32):
    %w = arith.extsi %x : i8 to i32
    %s = arith.addi %y, %w : i32
    linalg.yield %s : i32
  } -> tensor<5xi32>
  return %r : tensor<5xi32>
}
"""


def looped(*body: str, step: str = "%c1", behind: tuple[str, ...] = ()) -> str:
    """Loops to a size whose inner one begins at a residue of products; a tile goes through shared memory behind them."""
    lines = (
        f"  scf.for %i = %c0 to %n step {step} {{",
        *(f"  {line}" for line in RESIDUES),
        "  scf.for %j = %first to %m step %c1 {",
        *body,
        "  }\n  }",
    )
    return text(*lines, *(behind or (*SKIP, *passed())), symbols=("n", "m"), numbers=(16,))


def nested(*body: str) -> str:
    """Three loops, of which the innermost begins at a residue of sums of products of residues of sizes."""
    lines = (
        "  scf.for %i = %c0 to %n step %c1 {\n  scf.for %k = %c0 to %o step %c1 {",
        *RESIDUES[:2],
        binary("%f0", "muli", "%i16", "%n16"),
        binary("%k16", "remui", "%k", "%c16"),
        binary("%m16", "remui", "%m", "%c16"),
        binary("%f1", "muli", "%k16", "%m16"),
        binary("%f2", "addi", "%f0", "%f1"),
        binary("%first", "remui", "%f2", "%c16"),
        "  scf.for %j = %first to %m step %c1 {",
        *body,
        "  }\n  }\n  }",
    )
    return text(*SKIP, *lines, symbols=("n", "m", "o"), numbers=(16,))


def proof_of(source: str) -> Proof:
    return Proof(Program(kernel_of(source)), 1)


def test_loops_on_which_nothing_depends_are_no_classes() -> None:
    proof = proof_of(looped(*PLAIN))
    assert proof.program.idle == set(proof.program.all(scf.ForOp)) | {op for op in proof.program.all(scf.IfOp) if op in proof.program.idle}
    assert not proof.program.loops
    assert proof.verdict().is_proven and proof.classes == 1
    assert not proof.program.unknowns


def test_what_stands_behind_them_is_followed() -> None:
    wrong = tuple(line for line in passed() if "sync.barrier" not in line)
    assert proof_of(looped(*PLAIN, behind=wrong)).verdict().status == "refuted"


def test_a_compiled_reduction_over_sizes() -> None:
    """Where each row begins is a residue of products of sizes: hundreds of residues together, on which nothing depends."""
    module = mlir.load(SUM_OF_ALL, "sum.mlir")
    pipelines.lower(module, target_spec("gfx950"), CompileOptions(tuned=False), until="schedule")
    for kernel in schedule_kernels(module):
        proof = Proof(Program(kernel), 1, COMPILED)
        assert proof.verdict().is_proven and proof.classes <= 2


def test_such_loops_with_something_to_order_are_right_whatever_way_they_go() -> None:
    """Hundreds of residues of sizes make a class: too many to take it from the sizes that are left, but not to look at all states."""
    assert proof_of(nested(*passed())).verdict().is_proven
    for at, line in enumerate(passed()):
        if line == "  sync.barrier":
            assert not proof_of(nested(*passed()[:at], *passed()[at + 1 :])).verdict().is_proven


@pytest.mark.parametrize("step", ["%n", "%m"])
def test_a_loop_that_may_never_end_is_not_idle(step: str) -> None:
    proof = proof_of(looped(*PLAIN, step=step))
    assert [loop.step.name_hint for loop in proof.program.loops] == [step[1:]]
    verdict = proof.verdict()
    assert not verdict.is_proven, "a step of 0"


@pytest.mark.parametrize("barrier", ["  sync.barrier", ""])
def test_what_decides_about_a_branch_is_followed(barrier: str) -> None:
    """A loop that computes whether there is a barrier."""
    lines = (
        "  %end = scf.for %i = %c0 to %n step %c1 iter_args(%k = %c0) -> (index) {",
        binary("  %next", "addi", "%k", "%c2"),
        "  scf.yield %next : index\n  }",
        binary("  %rest", "remui", "%end", "%c2"),
        compared("  %skip", "ne" if barrier else "eq", "%rest", "%c0"),
    )
    proof = proof_of(text(*lines, *passed(), symbols=("n",)))
    assert proof.program.loops
    assert proof.verdict().status == ("proven" if barrier else "refuted")


@pytest.mark.parametrize("where", ["loop", "branch"])
def test_accesses_to_an_array_that_is_read_and_written(where: str) -> None:
    """Warps that read what others wrote, in a loop or a branch without anything else in it."""
    around = {"loop": "  scf.for %i = %c0 to %n step %c1 {", "branch": "  %is = arith.cmpi sgt, %n, %c0 : index\n  scf.if %is {"}[where]
    write = (load("%x0", "%va", TILE, "%c0, %c0", ROWS_LAYOUT), store("%x0", "%vc", TILE, "%c0, %c0", ROWS_LAYOUT, "f16"))
    read = (load("%x1", "%vc", TILE, "%c0, %c0", ACC_LAYOUT), store("%x1", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"))
    proof = proof_of(
        text(
            around,
            *write,
            "  }",
            *SKIP,
            *passed()[:-1],
            around.replace("%is = ", "%is2 = ").replace("%is {", "%is2 {"),
            *read,
            "  }",
            symbols=("n",),
        )
    )
    assert not proof.program.idle.intersection(proof.program.all(scf.ForOp))
    assert proof.verdict().is_proven, "a barrier between them"
    proof = proof_of(text(around, *write, *read, "  }", symbols=("n",)))
    assert not proof.verdict().is_proven


@pytest.mark.parametrize("read", ["%w", "%c1"])
def test_a_branch_that_picks_a_slot(read: str) -> None:
    lines = (
        compared("  %odd", "sgt", "%n", "%c3"),
        "  %w = scf.if %odd -> (index) {\n  scf.yield %c1 : index\n  } else {\n  scf.yield %c0 : index\n  }",
        alloc("%ring", 2),
        slot("%to", "%ring", (2,), "%w"),
        slot("%from", "%ring", (2,), read),
        load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
        local_store("%x", "%to", ROWS_LAYOUT),
        "  sync.barrier",
        local_load("%y", "%from", ACC_LAYOUT),
        store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
    )
    verdict = prove(kernel_of(text(*lines, symbols=("n",))))
    assert verdict.status == ("proven" if read == "%w" else "refuted")
