"""Operations that several threads make at one time, each with a builder of its own."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from treadle.ir.core import Block, ImplicitBuilder
from treadle.ir.dialects import arith, builtin


def constant() -> arith.ConstantOp:
    return arith.ConstantOp(builtin.IntegerAttr.from_index_int_value(1))


def test_builders_of_two_threads_overlap() -> None:
    """One begins while the other's stands, and ends first or last: every operation is where its own thread's builder is, once."""
    for ends_first in (True, False):
        first, second = Block(), Block()
        stands, ends = Event(), Event()

        def outer(block: Block = first, stands: Event = stands, ends: Event = ends) -> None:
            with ImplicitBuilder(block):
                constant()
                stands.set()
                ends.wait(10)
                constant()

        def inner(block: Block = second, stands: Event = stands, ends: Event = ends, ends_first: bool = ends_first) -> None:
            stands.wait(10)
            with ImplicitBuilder(block):
                constant()
                if not ends_first:
                    ends.set()
            ends.set()

        with ThreadPoolExecutor(2) as pool:
            for done in (pool.submit(outer), pool.submit(inner)):
                done.result()
        assert (len(first.ops), len(second.ops)) == (2, 1)
        assert constant().parent is None
