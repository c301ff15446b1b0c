"""Equal and opposite conditions by their normal forms, and what the verifier makes of them."""

from hazards.kernels import kernel_of
from hazards.schedules import ACC_LAYOUT, ROWS_LAYOUT, alloc, array, constants, kernel, load, local_load, local_store, store, view
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.ir.core import Operation, SSAValue
from treadle.verify.check import verify_kernel
from treadle.verify.conditions import Conditions
from treadle.verify.scalars import scalar_function

ARGS = "%a: !tile.ptr<f16>, %c: !tile.ptr<f16>, %n: index"
TILE = array(64, 64)
PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge")
SIDE = st.sampled_from(["%p", "%n", "%c3", "%p1", "%n1", "%pn", "%p2"])


def program(*lines: str) -> str:
    return kernel(
        ARGS,
        view("%va", "%a", 64, 64),
        view("%vc", "%c", 64, 64),
        constants(0, 1, 2, 3),
        "  %p = tile.program_id 0 : i64",
        "  %p1 = arith.addi %p, %c1 : index\n  %n1 = arith.subi %n, %c1 : index",
        "  %pn = arith.addi %n, %p : index\n  %p2 = arith.muli %p, %c2 : index",
        *lines,
        pointers=2,
        symbols=("n",),
    )


def value_of(value: SSAValue, known: dict[SSAValue, int]) -> int:
    """A value of the program for its id and size."""
    if value in known:
        return known[value]
    op = value.owner
    assert isinstance(op, Operation)
    if op.name == "tile.program_id":
        return next(v for k, v in known.items() if isinstance(k.owner, Operation))
    if op.name == "arith.constant":
        return int(op.properties["value"].value.data)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
    function = scalar_function(op)
    assert function is not None
    return function(*(value_of(v, known) for v in op.operands))


COMPARISON = st.tuples(st.sampled_from(PREDICATES), SIDE, SIDE)


@settings(deadline=None)
@given(COMPARISON, COMPARISON)
def test_equal_keys_mean_equal_values(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    made = kernel_of(program(*(f"  %x{i} = arith.cmpi {c[0]}, {c[1]}, {c[2]} : index" for i, c in enumerate((one, other)))))
    first, second = (op.results[0] for op in made.walk() if op.name == "arith.cmpi")
    (block_id,) = (op.results[0] for op in made.walk() if op.name == "tile.program_id")
    conditions = Conditions()
    a, b = conditions.of(first), conditions.of(second)
    if a.key == b.key:
        for p in range(-3, 9):
            for n in range(-3, 9):
                known: dict[SSAValue, int] = {block_id: p, made.body.block.args[2]: n}
                assert (value_of(first, known) ^ int(a.is_negated)) == (value_of(second, known) ^ int(b.is_negated))


def same(one: str, other: str) -> tuple[bool, bool]:
    """Whether two conditions have one key, and whether they are opposite."""
    made = kernel_of(program(f"  %x = {one}", f"  %y = {other}"))
    *_, first, second = (op.results[0] for op in made.walk() if op.results and str(op.results[0].type) == "i1")
    conditions = Conditions()
    a, b = conditions.of(first), conditions.of(second)
    return a.key == b.key, a.is_negated != b.is_negated


def test_normal_forms() -> None:
    assert same("arith.cmpi slt, %p, %n : index", "arith.cmpi sge, %p, %n : index") == (True, True)
    assert same("arith.cmpi slt, %p, %n : index", "arith.cmpi sgt, %n, %p : index") == (True, False)
    assert same("arith.cmpi slt, %p, %n : index", "arith.cmpi sle, %p1, %n : index") == (True, False)
    assert same("arith.cmpi sle, %p, %n1 : index", "arith.cmpi sge, %p, %n : index") == (True, True)
    assert same("arith.cmpi eq, %p, %n1 : index", "arith.cmpi ne, %p1, %n : index") == (True, True)
    assert same("arith.cmpi slt, %p, %n : index", "arith.cmpi sle, %p, %n : index")[0] is False


def twice(one: str, other: str) -> str:
    """A tile written under one condition and read under another, behind a barrier that only the first one's way meets."""
    return program(
        alloc("%s"),
        f"  %x = {one}\n  %y = {other}",
        load("%t", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
        "  scf.if %x {",
        local_store("%t", "%s", ROWS_LAYOUT),
        "  sync.barrier\n  }",
        "  scf.if %y {",
        local_load("%u", "%s", ACC_LAYOUT),
        store("%u", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
        "  }",
    )


def test_equal_conditions_go_equal_ways() -> None:
    """The tile is read only where it was written; a condition that is not the same reads what is not there."""

    def found(one: str, other: str) -> set[str]:
        return {f.rule for f in verify_kernel(kernel_of(twice(one, other)))}

    rare = "arith.cmpi eq, %p, %n : index"
    assert found(rare, rare) == set()
    assert found(rare, "arith.cmpi eq, %n, %p : index") == set()
    assert found("arith.cmpi sgt, %pn, %n1 : index", "arith.cmpi sge, %p1, %c1 : index") == set()
    assert found(rare, "arith.cmpi ne, %n, %p : index") == {"V8"}
    assert found(rare, "arith.cmpi eq, %p1, %n : index") == {"V8"}


def test_conditions_that_nothing_decides() -> None:
    """Truth values that are loaded, so to say: both ways, the same at both places."""
    unknown = "arith.cmpf olt, %f, %g : f32"
    text = twice(unknown, "arith.cmpi eq, %p, %n : index").replace(
        "%x = arith", "%f = arith.constant 1.0 : f32\n  %g = arith.constant 2.0 : f32\n  %x = arith"
    )
    assert {f.rule for f in verify_kernel(kernel_of(text))} == {"V8"}
    assert verify_kernel(kernel_of(text.replace("scf.if %y", "scf.if %x"))) == ()
