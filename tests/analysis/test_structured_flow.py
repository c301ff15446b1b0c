"""The walk over structured control flow: what a flow sees at joins, back edges, the edges of loops, and when it may change something."""

from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.analysis.structured_flow import StructuredFlow, is_inside, yielded
from treadle.ir.core import Block, Operation, Region
from treadle.ir.dialects import arith, builtin, scf

State = frozenset[Operation]


class Reached(StructuredFlow[State]):
    """Which operations may have been made before; `seen` says what was known where the flow may emit."""

    def __init__(self, *, run: bool = False) -> None:
        self.run = run
        self.seen: dict[Operation, list[State]] = {}

    def plain(self, op: Operation, state: State, *, emit: bool) -> State:
        if emit:
            self.seen.setdefault(op, []).append(state)
        return state | {op}

    def join(self, one: State, other: State) -> State:
        return one | other

    def surely_runs(self, loop: scf.ForOp) -> bool:
        return self.run


def constant() -> arith.ConstantOp:
    return arith.ConstantOp(builtin.IntegerAttr(1, builtin.IndexType()))


def test_a_loop_body_sees_what_came_around() -> None:
    bound, first, second, behind = constant(), constant(), constant(), constant()
    loop = scf.ForOp(bound.result, bound.result, bound.result, [], Block([first, second, scf.YieldOp()], arg_types=[builtin.IndexType()]))
    flow = Reached()
    flow.block(Block([bound, loop, behind]), frozenset(), emit=True)
    assert flow.seen[first] == [frozenset({bound, first, second})]
    assert flow.seen[behind] == [frozenset({bound, first, second})]
    assert is_inside(first.result, loop)
    assert not is_inside(bound.result, loop)
    assert yielded(loop.body.block) == ()


def test_a_loop_that_may_not_run_leaves_what_was() -> None:
    class Surely(Reached):
        """What has been made on every path."""

        def join(self, one: State, other: State) -> State:
            return one & other

    for run in (False, True):
        bound, inner, behind = constant(), constant(), constant()
        loop = scf.ForOp(bound.result, bound.result, bound.result, [], Block([inner, scf.YieldOp()], arg_types=[builtin.IndexType()]))
        flow = Surely(run=run)
        flow.block(Block([bound, loop, behind]), frozenset(), emit=True)
        assert flow.seen[behind] == [frozenset({bound, inner} if run else {bound})]


def _nest(shape: list[object]) -> tuple[list[Operation], list[Operation]]:
    """Operations of a nest of loops and branches, and all plain ones in it."""
    made: list[Operation] = []
    plain: list[Operation] = []
    for part in shape:
        condition = constant()
        made.append(condition)
        plain.append(condition)
        if isinstance(part, tuple):
            kind, inner = part
            ops, found = _nest(inner)
            plain += found
            if kind == "for":
                block = Block([*ops, scf.YieldOp()], arg_types=[builtin.IndexType()])
                made.append(scf.ForOp(condition.result, condition.result, condition.result, [], block))
            else:
                flag = arith.CmpiOp(condition.result, condition.result, "eq")
                plain.append(flag)
                made += [flag, scf.IfOp(flag.result, [], Region(Block([*ops, scf.YieldOp()])), Region())]
    return made, plain


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.lists(st.just("op"), max_size=3),
        lambda inner: st.lists(st.one_of(st.just("op"), st.tuples(st.sampled_from(["for", "if"]), inner)), max_size=3),
        max_leaves=12,
    )
)
def test_every_operation_is_emitted_once_from_its_fix_point(shape: list[object]) -> None:
    ops, plain = _nest(shape)
    flow = Reached()
    flow.block(Block(ops), frozenset(), emit=True)
    for op in plain:
        (state,) = flow.seen[op]
        loops = [parent for parent in _parents(op) if isinstance(parent, scf.ForOp)]
        around = {other for loop in loops for other in loop.walk() if other in flow.seen}
        assert around <= state, "what any iteration of a loop around it made comes around"


def _parents(op: Operation) -> list[Operation]:
    found: list[Operation] = []
    parent = op.parent_op()
    while parent is not None:
        found.append(parent)
        parent = parent.parent_op()
    return found
