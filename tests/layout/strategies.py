"""Random layouts for property tests."""

from hypothesis import strategies as st

from treadle.layout.bits import log2_exact, power_of_two_part
from treadle.layout.tile_layout import TileLayout

SHAPES = [(1,), (24,), (64,), (8, 8), (4, 48), (7, 5), (16, 12), (2, 4, 6), (32, 16)]


@st.composite
def tile_layouts(draw: st.DrawFn, shape: tuple[int, ...], lane_bits: int = 3, warp_bits: int = 1, mixed: bool = True) -> TileLayout:
    """A layout of `shape`: base tile sides, owners of the bits, replicas and (with `mixed`) bases that mix coordinates are all random."""
    sides = [1 << draw(st.integers(0, log2_exact(power_of_two_part(side)))) for side in shape]
    units = [
        tuple(1 << bit if axis == dim else 0 for axis in range(len(shape)))
        for dim, side in enumerate(sides)
        for bit in range(log2_exact(side))
    ]
    units = list(draw(st.permutations(units)))
    if mixed and len(units) > 1:
        for _ in range(draw(st.integers(0, 3))):  # elementary steps keep the bases independent
            a, b = draw(st.integers(0, len(units) - 1)), draw(st.integers(0, len(units) - 1))
            if a != b:
                units[a] = tuple(x ^ y for x, y in zip(units[a], units[b], strict=True))
    zero = (0,) * len(shape)
    threads: list[tuple[int, ...]] = []
    for _ in range(lane_bits + warp_bits):
        threads.append(units.pop() if units and draw(st.integers(0, 3)) else zero)
    repeat = tuple(whole // side for whole, side in zip(shape, sides, strict=True))
    return TileLayout(tuple(units), tuple(threads[:lane_bits]), tuple(threads[lane_bits:]), repeat)
