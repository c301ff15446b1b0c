"""Random kernels that update an array in place, with affine places: the simulator, which runs all workgroups, is the judge."""

from dataclasses import dataclass

import numpy as np
from hazards.kernels import kernel_of
from hazards.programs_global import on_grid, one
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.sim.schedule import simulate
from treadle.verify.check import prove

LAYOUTS = (
    "#tile.layout<register = [], lane = [[0, 1], [0, 2], [0, 4], [1, 0], [2, 0]], warp = [[4, 0], [8, 0]], repeat = [1, 1]>",
    "#tile.layout<register = [], lane = [[1, 0], [2, 0], [4, 0], [8, 0], [0, 1]], warp = [[0, 2], [0, 4]], repeat = [1, 1]>",
    "#tile.layout<register = [[0, 4]], lane = [[0, 1], [0, 2], [1, 0], [2, 0], [4, 0]], warp = [[8, 0], [0, 0]], repeat = [1, 1]>",
)
"""16x8 elements over four warps: by rows, by columns, by rows with pairs of warps that hold the same."""
TRIPS = (0, 1, 2, 4)
LARGEST = 4096


@dataclass(frozen=True)
class Place:
    """A row or column: `factors` of the workgroup ids and the iteration, a constant; of its value the quotient or remainder by `by`."""

    factors: tuple[int, int, int]
    constant: int
    by: int = 1
    is_remainder: bool = False
    unit: int = 1

    def text(self, name: str) -> str:
        """It as operations."""
        terms = [f"  %{name}f{at} = arith.constant {f} : index" for at, f in enumerate((*self.factors, self.constant, self.by, self.unit))]
        terms += [f"  %{name}t{at} = arith.muli {value}, %{name}f{at} : index" for at, value in enumerate(("%w", "%x", "%i"))]
        terms.append(f"  %{name}s = arith.addi %{name}t0, %{name}t1 : index\n  %{name}u = arith.addi %{name}s, %{name}t2 : index")
        terms.append(f"  %{name}v = arith.addi %{name}u, %{name}f3 : index")
        operation = "arith.remui" if self.is_remainder else "arith.divui"
        terms.append(f"  %{name}q = {operation} %{name}v, %{name}f4 : index\n  %{name} = arith.muli %{name}q, %{name}f5 : index")
        return "\n".join(terms)


PLACE = st.builds(
    Place,
    st.tuples(*(st.sampled_from([0, 1, 1, 2]) for _ in range(3))),
    st.sampled_from([0, 0, 0, 1, 3]),
    st.sampled_from([1, 1, 1, 2, 3]),
    st.booleans(),
    st.sampled_from([16, 16, 8, 1]),
)


@dataclass(frozen=True)
class Update:
    """A kernel: where it loads and stores, by which views and layouts; `barriers`: after the load, after the store."""

    grid: tuple[int, int]
    trips: int | None
    load: tuple[Place, Place]
    store: tuple[Place, Place]
    strides: tuple[tuple[int, int], tuple[int, int]]
    offset: int
    layouts: tuple[str, str]
    barriers: tuple[bool, bool]

    def text(self) -> str:
        """The kernel. A tile whose layout differs is loaded from another array: conversions are not the matter here."""
        kinds = [f"memref<40x24xf16, strided<[{a}, {b}]>>" for a, b in self.strides]
        offsets = (0, self.offset)
        views = [
            f"  %{name} = tile.view %a offset {offset} : i64 align 2 : i64 sizes [] strides [] : !tile.ptr<f16> -> {kind}"
            for name, offset, kind in zip("vu", offsets, kinds, strict=True)
        ]
        tiles = [f"tensor<16x8xf16, {layout}>" for layout in self.layouts]
        trips = "%n" if self.trips is None else f"%trips\n  %unused = arith.constant {self.trips} : index"
        stored = "%y" if tiles[0] == tiles[1] else "%z"
        body = [
            f"  %y = tile.load %v[%lr, %lc] dims array<i64: 0, 1> vector 1 : i64 : {kinds[0]} -> {tiles[0]}",
            "  sync.barrier" if self.barriers[0] else "",
            f"  tile.store {stored}, %u[%sr, %sc] dims array<i64: 0, 1> vector 1 : i64 : {tiles[1]}, {kinds[1]}",
            "  sync.barrier" if self.barriers[1] else "",
        ]
        places = [p.text(name) for p, name in zip((*self.load, *self.store), ("lr", "lc", "sr", "sc"), strict=True)]
        lines = [
            "  %w = tile.program_id 0 : i64\n  %x = tile.program_id 1 : i64",
            *views,
            f"  %z = arith.constant dense<0.0> : {tiles[1]}",
            f"  %trips = arith.constant {self.trips or 0} : index",
            f"  scf.for %i = %c0 to {trips.splitlines()[0]} step %c1 {{",
            *places,
            *body,
            "  }",
        ]
        return on_grid(one(*lines, symbols=("n",) if self.trips is None else ()), *self.grid)


STRIDES = st.sampled_from([(24, 1), (24, 1), (24, 1), (32, 1), (20, 1), (1, 40), (1, 24), (2, 80)])


@st.composite
def updates(draw: st.DrawFn) -> Update:
    """Kernels, half of them with one place, one view and one layout for load and store."""
    load, strides, layout = (draw(PLACE), draw(PLACE)), draw(STRIDES), draw(st.sampled_from(LAYOUTS))
    is_same = draw(st.booleans())
    return Update(
        (draw(st.integers(1, 3)), draw(st.integers(1, 2))),
        draw(st.sampled_from([None, *TRIPS])),
        load,
        load if is_same else (draw(PLACE), draw(PLACE)),
        (strides, strides if is_same else draw(STRIDES)),
        0 if is_same else draw(st.sampled_from([0, 0, 8, 960, 2000])),
        (layout, layout if is_same else draw(st.sampled_from(LAYOUTS))),
        (draw(st.booleans()), draw(st.booleans())),
    )


def is_wrong(update: Update, trips: int) -> bool:
    """Whether the simulator objects."""
    array = np.zeros(LARGEST, dtype=np.float16)
    symbols = (trips,) if update.trips is None else ()
    return not simulate(kernel_of(update.text()), [array], symbols).ok


def check(update: Update) -> str:
    """The verdict; it agrees with the simulator."""
    verdict = prove(kernel_of(update.text()))
    wrong = [trips for trips in (TRIPS if update.trips is None else (update.trips,)) if is_wrong(update, trips)]
    assert not (wrong and verdict.is_proven), update.text()
    # What is known when the kernel is written is decided exactly; a size may be wrong for values that were not tried.
    assert wrong or verdict.is_proven or update.trips is None, (verdict, update.text())
    return verdict.status


@settings(max_examples=25, deadline=None)
@given(updates())
def test_verdicts_agree_with_the_simulator(update: Update) -> None:
    check(update)
