"""Tiles that many matrix instructions compute: an operand's layout from that of one instruction (machine/fragments.py)."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product

from treadle.errors import InternalError
from treadle.layout.bits import Coordinates, log2_exact, odd_part, pack, power_of_two_part
from treadle.layout.tile_layout import Bases, TileLayout


@lru_cache(maxsize=256)
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


@lru_cache(maxsize=256)
def _register_of(tile: TileLayout) -> Mapping[int, int]:
    """The register of thread 0 that holds what is at packed coordinates."""
    return {key: register for register, key in enumerate(tile.register_keys())}


@lru_cache(maxsize=4096)
def instruction_registers(tile: TileLayout, instruction: TileLayout, position: Coordinates) -> tuple[int, ...]:
    """Registers of `tile` that are the operand of the instruction at `position` of `instruction_grid`, in the operand's order."""
    where = _register_of(tile)
    start = pack([at * step for at, step in zip(position, instruction_step(tile, instruction), strict=True)])
    return tuple(where[start + key] for key in instruction.register_keys())


def instruction_positions(tile: TileLayout, instruction: TileLayout) -> tuple[Coordinates, ...]:
    """All positions of `instruction_grid`, row-major."""
    return tuple(product(*(range(count) for count in instruction_grid(tile, instruction))))
