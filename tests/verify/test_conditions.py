"""Equal and opposite conditions by their normal forms, and what the verifier makes of them."""

from hazards.kernels import kernel_of
from hazards.schedules import ACC_LAYOUT, ROWS_LAYOUT, alloc, array, constants, kernel, load, local_load, local_store, store, view
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.ir.core import Operation, SSAValue
from treadle.verify.check import prove
from treadle.verify.scalars import LinearForms, add, scalar_function

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


@settings(deadline=None)
@given(st.tuples(st.sampled_from(PREDICATES), SIDE, SIDE))
def test_linear_forms_are_the_values(one: tuple[str, str, str]) -> None:
    made = kernel_of(program(f"  %x = arith.cmpi {one[0]}, {one[1]}, {one[2]} : index"))
    (comparison,) = (op for op in made.walk() if op.name == "arith.cmpi")
    (block_id,) = (op.results[0] for op in made.walk() if op.name == "tile.program_id")
    forms = LinearForms()
    terms, constant = add(forms.of(comparison.operands[0]), forms.of(comparison.operands[1]), -1)
    for p in range(-3, 9):
        for n in range(-3, 9):
            known: dict[SSAValue, int] = {block_id: p, made.body.block.args[2]: n}
            difference = sum(count * value_of(forms.value_of(atom), known) for atom, count in terms) + constant
            assert difference == value_of(comparison.operands[0], known) - value_of(comparison.operands[1], known)


def same(one: str, other: str) -> bool:
    """Whether two values are one expression."""
    made = kernel_of(program(f"  %x = {one}", f"  %y = {other}"))
    *_, first, second = (op.results[0] for op in made.walk() if op.results and str(op.results[0].type) == "index")
    forms = LinearForms(structural=True)
    return forms.of(first) == forms.of(second)


def test_equal_expressions_are_one() -> None:
    assert same("arith.muli %p, %n : index", "arith.muli %p, %n : index")
    assert not same("arith.muli %p, %n : index", "arith.muli %p, %n1 : index")
    assert same("affine.apply affine_map<(d0)[s0] -> (d0 + 2 * s0)>(%n)[%p]", "arith.addi %n, %p2 : index")


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


def verdict(one: str, other: str) -> str:
    found = prove(kernel_of(twice(one, other)))
    return found.status + "".join(sorted({f" {f.rule}" for f in found.findings}))


def test_equal_conditions_go_equal_ways() -> None:
    """The tile is read only where it was written; a condition that is not the same reads what is not there."""
    rare = "arith.cmpi eq, %p, %n : index"
    assert verdict(rare, rare) == "proven"
    assert verdict(rare, "arith.cmpi eq, %n, %p : index") == "proven"
    assert verdict("arith.cmpi sgt, %pn, %n1 : index", "arith.cmpi sge, %p1, %c1 : index") == "proven"
    assert verdict(rare, "arith.cmpi ne, %n, %p : index") == "refuted V8"
    assert verdict(rare, "arith.cmpi eq, %p1, %n : index") == "refuted V8"


def test_conditions_that_nothing_decides() -> None:
    """Truth values that are loaded, so to say: both ways, the same at both places."""
    unknown = "arith.cmpf olt, %f, %g : f32"
    text = twice(unknown, "arith.cmpi eq, %p, %n : index").replace(
        "%x = arith", "%f = arith.constant 1.0 : f32\n  %g = arith.constant 2.0 : f32\n  %x = arith"
    )
    assert {f.rule for f in prove(kernel_of(text)).findings} == {"V8"}
    assert prove(kernel_of(text.replace("scf.if %y", "scf.if %x"))).is_proven
