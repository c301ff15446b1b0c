"""Layouts that matrix instructions prescribe for their register operands.

Dimensions: A is (m, k), B is (k, n), the accumulator C is (m, n). Registers count elements, in the order of the instruction's operands
(two 16-bit elements of one 32-bit register are neighbours, low half first). Sources: PTX ISA, sections on the asynchronous warpgroup
matrix instructions; AMD's matrix instruction calculator and the CDNA3, CDNA4, RDNA3 and RDNA4 instruction set documents.
"""

from treadle.errors import InternalError
from treadle.layout.bits import log2_exact, odd_part, power_of_two_part
from treadle.layout.tile_layout import Bases, TileLayout


def _run(axis: int, start: int, end: int) -> Bases:
    """Bases `start`, `2 start`, .. below `end` along `axis` of a matrix."""
    values = [start << bit for bit in range(log2_exact(end // start))]
    return tuple((value, 0) if axis == 0 else (0, value) for value in values)


def _transposed(layout: TileLayout) -> TileLayout:
    """A B fragment (k, n) from the A fragment (m, k) of the mirrored instruction, and the other way round."""
    return layout.permute((1, 0))


# --- NVIDIA Hopper: one warpgroup, four warps of 16 rows each


def wgmma_accumulator(n: int) -> TileLayout:
    """C of m64n`n`: 32-bit elements, `n` a multiple of 8 up to 256.

    d[4j + {0, 1}] is row lane / 4, columns 8j + 2 (lane % 4) + {0, 1}; d[4j + {2, 3}] is 8 rows below; warp w adds 16 w rows.
    """
    if n % 8 or not 8 <= n <= 256:
        raise InternalError(f"wgmma with n = {n}")
    blocks = n // 8
    register = ((0, 1), (8, 0), *_run(1, 8, 8 * power_of_two_part(blocks)))
    return TileLayout(register, _run(1, 2, 8) + _run(0, 1, 8), _run(0, 16, 64), (1, odd_part(blocks)))


def wgmma_a(element_bytes: int) -> TileLayout:
    """A of m64k(32 / `element_bytes`) from registers: 1-byte, 2-byte and tf32 (4-byte) elements."""
    packed = 4 // element_bytes  # elements of one 32-bit register
    register = (*_run(1, 1, packed), (8, 0), (0, 4 * packed))
    return TileLayout(register, _run(1, packed, 4 * packed) + _run(0, 1, 8), _run(0, 16, 64), (1, 1))


# --- AMD CDNA: 64 lanes


def mfma_a(m: int, k: int) -> TileLayout:
    """A of `m` x `m` x `k` (one block): lane l holds row l % m and k = (l / m) * k_per_lane + r, k_per_lane = k * m / 64."""
    if m not in (16, 32) or log2_exact(k) < 0 or k * m < 64:
        raise InternalError(f"MFMA {m}x{m}x{k}")
    per_lane = k * m // 64
    return TileLayout(_run(1, 1, per_lane), _run(0, 1, m) + _run(1, per_lane, k), (), (1, 1))


def mfma_b(n: int, k: int) -> TileLayout:
    """B of `n` x `n` x `k`: lane l holds column l % n, k as in `mfma_a`."""
    return _transposed(mfma_a(n, k))


def mfma_c(m: int) -> TileLayout:
    """C of 16 x 16 (column l % 16, row 4 (l / 16) + r) or 32 x 32 (column l % 32, row 8 (r / 4) + 4 (l / 32) + r % 4)."""
    if m not in (16, 32):
        raise InternalError(f"MFMA {m}x{m}")
    if m == 16:
        return TileLayout(_run(0, 1, 4), _run(1, 1, 16) + _run(0, 4, 16), (), (1, 1))
    return TileLayout(_run(0, 1, 4) + _run(0, 8, 32), _run(1, 1, 32) + _run(0, 4, 8), (), (1, 1))


# --- AMD RDNA: 32 lanes, 16 x 16 x 16


def wmma_rdna3_a() -> TileLayout:
    """A: lane l holds row l % 16 and all 16 k; lanes 16-31 hold copies."""
    return TileLayout(_run(1, 1, 16), (*_run(0, 1, 16), (0, 0)), (), (1, 1))


def wmma_rdna3_b() -> TileLayout:
    """B: lane l holds column l % 16 and all 16 k; lanes 16-31 hold copies."""
    return _transposed(wmma_rdna3_a())


def wmma_rdna3_c() -> TileLayout:
    """C, 32-bit: column l % 16, row 2 r + l / 16."""
    return TileLayout(_run(0, 2, 16), (*_run(1, 1, 16), (1, 0)), (), (1, 1))


def wmma_rdna4_a() -> TileLayout:
    """A: lane l holds row l % 16 and k = 8 (l / 16) + r."""
    return TileLayout(_run(1, 1, 8), (*_run(0, 1, 16), (0, 8)), (), (1, 1))


def wmma_rdna4_b() -> TileLayout:
    """B: lane l holds column l % 16 and k = 8 (l / 16) + r."""
    return _transposed(wmma_rdna4_a())


def wmma_rdna4_c() -> TileLayout:
    """C, 32-bit: column l % 16, row 8 (l / 16) + r."""
    return TileLayout(_run(0, 1, 8), (*_run(1, 1, 16), (8, 0)), (), (1, 1))
