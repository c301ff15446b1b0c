"""Layouts that matrix instructions prescribe for their register operands, and tiles made of many instructions.

Dimensions: A is (m, k), B is (k, n), the accumulator C is (m, n). Registers count elements, in the order of the instruction's operands
(two 16-bit elements of one 32-bit register are neighbours, low half first). Sources: PTX ISA, sections on the asynchronous warpgroup
matrix instructions; AMD's matrix instruction calculator and the CDNA3, CDNA4, RDNA3 and RDNA4 instruction set documents.
"""

from collections.abc import Sequence
from itertools import product

from treadle.errors import InternalError
from treadle.layout.bits import Coordinates, log2_exact, odd_part, pack, power_of_two_part
from treadle.layout.tile_layout import Bases, TileLayout


def _run(axis: int, start: int, end: int) -> Bases:
    """Bases `start`, `2 start`, .. below `end` along `axis` of a matrix."""
    values = [start << bit for bit in range(log2_exact(end // start))]
    return tuple((value, 0) if axis == 0 else (0, value) for value in values)


def transposed(layout: TileLayout) -> TileLayout:
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
    return transposed(mfma_a(n, k))


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
    return transposed(wmma_rdna3_a())


def wmma_rdna3_c() -> TileLayout:
    """C, 32-bit: column l % 16, row 2 r + l / 16."""
    return TileLayout(_run(0, 2, 16), (*_run(1, 1, 16), (1, 0)), (), (1, 1))


def wmma_rdna4_a() -> TileLayout:
    """A: lane l holds row l % 16 and k = 8 (l / 16) + r."""
    return TileLayout(_run(1, 1, 8), (*_run(0, 1, 16), (0, 8)), (), (1, 1))


def wmma_rdna4_b() -> TileLayout:
    """B: lane l holds column l % 16 and k = 8 (l / 16) + r."""
    return transposed(wmma_rdna4_a())


def wmma_rdna4_c() -> TileLayout:
    """C, 32-bit: column l % 16, row 8 (l / 16) + r."""
    return TileLayout(_run(0, 1, 8), (*_run(1, 1, 16), (8, 0)), (), (1, 1))


# --- tiles of many instructions


def packed(fragment: TileLayout, k_dim: int, steps: int) -> TileLayout:
    """An operand of `steps` instructions (a power of two) along k, of which each lane holds neighbours along k, which a whole instruction's
    k would lie between otherwise. Instruction i takes registers i * r to (i + 1) * r - 1 of each lane, r as in `fragment`: it sums over
    other k than the i-th run, and all together over all of them.
    """
    held = 1 + sum(basis[k_dim] for basis in fragment.register)
    more = tuple(tuple(held << bit if dim == k_dim else 0 for dim in range(fragment.rank)) for bit in range(log2_exact(steps)))

    def moved(bases: Bases) -> Bases:
        return tuple(tuple(at * steps if dim == k_dim and at >= held else at for dim, at in enumerate(basis)) for basis in bases)

    return TileLayout((*fragment.register, *more), moved(fragment.lane), moved(fragment.warp), fragment.repeat)


def tile_fragment(
    instruction: TileLayout, shape: Sequence[int], warp_grid: Sequence[int] = (), warp_dims: Sequence[int | None] | None = None
) -> TileLayout:
    """The layout of an operand of `shape` computed by many `instruction`s.

    `warp_grid[i]` groups of the instruction's warps (each a power of two, the first varies fastest with the warp index) are laid along
    dimension `warp_dims[i]` of this operand, or hold copies where that is None; the default is dimension i. For a grid (wm, wn): the
    accumulator has `warp_dims` (0, 1), A has (0, None), B has (None, 1). Neighbouring instructions go to neighbouring warps; what is
    left along a dimension is repeated in registers, the last dimension fastest. Raises `InternalError` where `shape` is no multiple
    of what the warps cover, or where several warps would share a dimension whose instruction extent is no power of two.
    """
    dims = tuple(range(len(warp_grid))) if warp_dims is None else tuple(warp_dims)
    rank = instruction.rank
    if len(dims) != len(warp_grid) or len(shape) != rank or any(log2_exact(count) < 0 for count in warp_grid):
        raise InternalError(f"warp grid {tuple(warp_grid)} along {dims} over {tuple(shape)}")
    reach = list(instruction.base_shape)
    warp: list[Coordinates] = list(instruction.warp)
    register: list[Coordinates] = list(instruction.register)

    def extend(bases: list[Coordinates], dim: int, bits: int) -> None:
        for _ in range(bits):
            bases.append(tuple(reach[dim] if axis == dim else 0 for axis in range(rank)))
            reach[dim] *= 2

    for count, dim in zip(warp_grid, dims, strict=True):
        if dim is None:
            warp.extend([(0,) * rank] * log2_exact(count))
        elif count > 1 and instruction.repeat[dim] > 1:
            raise InternalError(f"{count} warp groups share dimension {dim}, of which one instruction covers {instruction.shape[dim]}")
        else:
            extend(warp, dim, log2_exact(count))
    repeat = [1] * rank
    for dim in reversed(range(rank)):
        covered = reach[dim] * instruction.repeat[dim]
        if shape[dim] % covered:
            raise InternalError(f"extent {shape[dim]} along dimension {dim} is no multiple of the {covered} that the warps cover")
        count = shape[dim] // covered
        if instruction.repeat[dim] > 1:
            repeat[dim] = instruction.repeat[dim] * count
        else:
            extend(register, dim, log2_exact(power_of_two_part(count)))
            repeat[dim] = odd_part(count)
    return TileLayout(tuple(register), instruction.lane, tuple(warp), tuple(repeat))


def instruction_step(tile: TileLayout, instruction: TileLayout) -> Coordinates:
    """Distance between consecutive instructions of one warp along each dimension, for `tile` from `tile_fragment`."""
    step = list(instruction.shape)
    for basis in tile.warp[len(instruction.warp) :]:
        for dim, value in enumerate(basis):
            step[dim] *= 2 if value else 1
    return tuple(step)


def instruction_grid(tile: TileLayout, instruction: TileLayout) -> Coordinates:
    """How many instructions each warp issues along each dimension."""
    return tuple(side // step for side, step in zip(tile.shape, instruction_step(tile, instruction), strict=True))


def instruction_registers(tile: TileLayout, instruction: TileLayout, position: Sequence[int]) -> tuple[int, ...]:
    """Registers of `tile` that are the operand of the instruction at `position` of `instruction_grid`, in the operand's order."""
    where = {key: register for register, key in enumerate(tile.register_keys())}
    start = pack([at * step for at, step in zip(position, instruction_step(tile, instruction), strict=True)])
    return tuple(where[start + key] for key in instruction.register_keys())


def instruction_positions(tile: TileLayout, instruction: TileLayout) -> tuple[Coordinates, ...]:
    """All positions of `instruction_grid`, row-major."""
    return tuple(product(*(range(count) for count in instruction_grid(tile, instruction))))
