"""Orders across groups: what the formulas say is what happens, phase by phase, in random pipelines."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.plan.leap_frog import Order, Ring, flushing_slots, smallest_ring, widest_gap

SIZES = st.tuples(st.integers(2, 6), st.integers(2, 4), st.integers(1, 3))


def is_ordered(first: int, second: int, doer: int, other: int, stages: int, gap: int, flushing: frozenset[int]) -> bool:
    """Whether stage `first` of one group is over and complete before stage `second` of another one begins, by playing all phases.

    In phase t group q runs stage t - q * gap, counted through the iterations, and then meets the others at the slot behind it.
    """
    is_complete = False
    for phase in range(2 * stages * 8):
        if phase - other * gap == second:
            return is_complete
        done = phase - doer * gap
        is_complete = is_complete or (done >= first and done % stages in flushing)
    return False


@settings(max_examples=150, deadline=None)
@given(SIZES, st.data())
def test_an_order_is_what_the_phases_say(sizes: tuple[int, int, int], data: st.DataObject) -> None:
    stages, groups, gap = sizes
    first, distance = data.draw(st.integers(0, stages - 1)), data.draw(st.integers(0, 3 * stages))
    doer, other = data.draw(st.integers(0, groups - 1)), data.draw(st.integers(0, groups - 1))
    order = Order(first, distance, (doer - other) * gap)
    later = first + stages * 2
    everything = frozenset(range(stages))
    assert order.is_kept == is_ordered(later, later + distance, doer, other, stages, gap, everything)
    if order.is_kept:
        for slot in range(stages):
            alone = is_ordered(later, later + distance, doer, other, stages, gap, frozenset({slot}))
            assert alone == (slot in order.slots(stages))


@settings(max_examples=150, deadline=None)
@given(st.integers(2, 6), st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), max_size=6))
def test_no_fewer_slots_would_do(stages: int, given_orders: list[tuple[int, int]]) -> None:
    orders = [Order(first % stages, distance, 0) for first, distance in given_orders]
    chosen = flushing_slots(orders, stages)
    assert all(order.slots(stages) & set(chosen) for order in orders)
    for fewer in combinations(range(stages), max(0, len(chosen) - 1)):
        assert not chosen or not all(order.slots(stages) & set(fewer) for order in orders)


@settings(max_examples=200, deadline=None)
@given(SIZES, st.data())
def test_the_smallest_ring_that_groups_may_share(sizes: tuple[int, int, int], data: st.DataObject) -> None:
    stages, groups, gap = sizes
    lag = (groups - 1) * gap
    ring = Ring(data.draw(st.integers(0, stages - 1)), data.draw(st.integers(0, stages - 1)), 0, 1)

    def fits(ahead: int, slots: int) -> bool:
        return min(Ring(ring.fill, ring.read, ahead, slots).distances(stages)) > lag

    found = smallest_ring(ring, stages, lag)
    assert fits(found.ahead, found.slots)
    assert not any(fits(ahead, slots) for ahead in range(found.ahead) for slots in range(1, 4 * lag + 8))
    assert not any(fits(found.ahead, slots) for slots in range(1, found.slots))
    widest = widest_gap(found, stages, groups)
    assert widest >= gap
    assert min(found.distances(stages)) <= (groups - 1) * (widest + 1)
