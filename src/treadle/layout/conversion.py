"""What it takes to turn one register layout of a tile into another, derived from the two maps.

Both maps are linear over the bits of (register, lane, warp), so "which source register of which source thread holds what this register
of this thread needs" is linear too. Where it stays within a warp it becomes a plan of lane permutations with selections before and after
them (Zhou et al., "Linear Layouts", 2025, section on warp shuffles, with the choice of the registers that travel together made here by
elimination); everything else goes through shared memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal

from treadle.errors import InternalError
from treadle.layout.access import address_plan, global_vector_width, plan_conflicts
from treadle.layout.bits import Coordinates, Span, combine, log2_exact, pack, parity, power_of_two_part
from treadle.layout.shared_layout import SharedLayout, row_major, xor_swizzled
from treadle.layout.tile_layout import TileLayout
from treadle.records import dataclass

MAX_ACCESS_BYTES = 16
ConversionKind = Literal["identity", "register", "shuffle", "shared"]


@dataclass(frozen=True, slots=True)
class RegisterChoice:
    """A register chosen by the thread: `registers[i]`, bit b of i being the parity of `thread & masks[b]`.

    `thread` is lane + warp * lanes. An entry of -1 means none (only where a choice says what is written).
    """

    registers: tuple[int, ...]
    masks: tuple[int, ...] = ()

    def of(self, thread: int) -> int:
        """The register that `thread` chooses."""
        return self.registers[sum(parity(thread & mask) << bit for bit, mask in enumerate(self.masks))]


@dataclass(frozen=True, slots=True)
class ShuffleRound:
    """One value sent by every lane and one received: `send` chooses a source register, `receive` a destination register.

    A lane reads from lane `lane_constant` XOR the `lane_bits[i]` of the set bits i of its thread number (lane + warp * lanes).
    """

    send: RegisterChoice
    receive: RegisterChoice
    lane_constant: int
    lane_bits: tuple[int, ...]

    def source_lane(self, thread: int) -> int:
        """The lane of the same warp from which `thread` reads."""
        return self.lane_constant ^ combine(self.lane_bits, thread)

    def xor_mask(self, lanes: int) -> int | None:
        """The mask m where each lane reads from lane ^ m (0: no shuffle is needed); None for any other pattern."""
        count = log2_exact(lanes)
        straight = tuple(1 << bit for bit in range(count)) + (0,) * (len(self.lane_bits) - count)
        return self.lane_constant if self.lane_bits == straight else None


@dataclass(frozen=True, slots=True)
class Conversion:
    """How `source` becomes `result`.

    `registers` (kinds identity and register): the source register of each result register, in every thread. `rounds` (shuffle): to be
    executed in order; they write every result register of every thread exactly once. Shared: neither; see `choose_scratch`.
    """

    kind: ConversionKind
    registers: tuple[int, ...] = ()
    rounds: tuple[ShuffleRound, ...] = ()


class _Source:
    """Finds in which register and thread of a layout an element lies."""

    def __init__(self, layout: TileLayout) -> None:
        self.threads = len(layout.lane) + len(layout.warp)
        self.within = pack([side - 1 for side in layout.base_shape])
        self.span = Span(map(pack, (*layout.lane, *layout.warp, *layout.register)))
        self.bases = [pack(basis) for basis in layout.register]
        self.register_of = {key: register for register, key in reversed(list(enumerate(layout.register_keys())))}

    def locate(self, key: int) -> tuple[int, int]:
        """`(thread, register key)`; linear in `key`. Thread bits that hold copies are 0."""
        mask, _ = self.span.split(key & self.within)
        return mask & ((1 << self.threads) - 1), combine(self.bases, mask >> self.threads) | (key & ~self.within)


def convert(source: TileLayout, result: TileLayout) -> Conversion:
    """The cheapest kind of conversion between two layouts of one tile, with its plan."""
    if source.shape != result.shape or source.num_lanes != result.num_lanes or source.num_warps != result.num_warps:
        raise InternalError(f"conversion of {source.to_lists()} to {result.to_lists()}")
    where = _Source(source)
    count = where.threads
    copies = sum(1 << bit for bit, basis in enumerate((*source.lane, *source.warp)) if not any(basis))
    # From which thread, and which register there, does each bit of a thread of the result take its part?
    thread_to: list[int] = []
    thread_key: list[int] = []
    for bit, basis in enumerate((*result.lane, *result.warp)):
        thread, key = where.locate(pack(basis))
        thread_to.append(thread | (copies & 1 << bit))  # where there are copies, one's own is nearest
        thread_key.append(key)
    register_to: list[int] = []
    register_key: list[int] = []
    for key in result.register_keys():
        thread, found = where.locate(key)
        register_to.append(thread)
        register_key.append(found)
    own = [1 << bit for bit in range(count)]
    if thread_to == own and not any(thread_key) and not any(register_to):
        registers = tuple(where.register_of[key] for key in register_key)
        same = registers == tuple(range(source.num_registers))
        return Conversion("identity" if same else "register", registers=registers)
    warps = ~(source.num_lanes - 1)
    if any((to ^ self_) & warps for to, self_ in zip(thread_to, own, strict=True)) or any(to & warps for to in register_to):
        return Conversion("shared")
    threads = _LinearMap(thread_to, thread_key)
    registers = list(zip(register_to, register_key, strict=True))
    return Conversion("shuffle", rounds=_rounds(source.num_lanes, len(result.register), threads, registers, where.register_of))


@dataclass(slots=True)
class _LinearMap:
    """Where threads of the result read, by bit of the thread: sending thread, and source register (as a key)."""

    sender: list[int]
    key: list[int]

    def unsettled(self) -> list[tuple[int, int]]:
        """`(thread bit, key)` where two readers of one sender, apart in that bit, want registers whose keys differ by `key`.

        Reader t wants what its sender offers, XOR the keys of its bits. The keys are independent, for no two threads of the result
        read one register of one sender unless they hold copies.
        """
        image = Span()
        found: list[tuple[int, int]] = []
        for bit, (sender, key) in enumerate(zip(self.sender, self.key, strict=True)):
            mates, rest = image.split(sender)
            image.add(sender)
            wish = key ^ combine(self.key, mates)
            if not rest and wish:
                found.append((bit, wish))
        return found

    def offers(self) -> list[int]:
        """The key that a sender offers, by bit of the sending thread: the linear map that takes each sender to its readers' wish."""
        image, first = Span(), list[int]()
        for sender, key in zip(self.sender, self.key, strict=True):
            if image.split(sender)[1]:
                first.append(key)
                image.add(sender)
        return [combine(first, image.split(1 << bit)[0]) for bit in range(len(self.sender))]


def _rounds(
    lanes: int, bits: int, threads: _LinearMap, registers: Sequence[tuple[int, int]], register_of: Mapping[int, int]
) -> tuple[ShuffleRound, ...]:
    """Rounds for a conversion within warps: `threads` and `registers` (thread and key of each result register) are the linear map.

    A lane sends one value a round, so lanes that read from one lane in one round must want the same register. Where one result register
    makes them want different ones, lanes take different result registers in the same round: thread t handles result register i ^ T t.
    T is chosen so that the readers of a lane part. What no T can settle (more readers than senders) takes a round for each wish.
    `bits` is the number of index bits of a base tile's registers, over which the map is linear.
    """
    turns = [0] * len(threads.sender)
    for _ in range(bits):
        image = Span(threads.sender)
        turn = next((1 << bit for bit in range(bits) if registers[1 << bit][0] not in image), None)
        unsettled = threads.unsettled()
        if turn is None or not unsettled:
            break
        at = unsettled[0][0]
        turns[at] ^= turn
        threads.sender[at] ^= registers[turn][0]
        threads.key[at] ^= registers[turn][1]
    unsettled = threads.unsettled()
    masks, wishes = [1 << at for at, _ in unsettled], [key for _, key in unsettled]
    offers = threads.offers()
    lane_bits = tuple(sender & (lanes - 1) for sender in threads.sender)
    rounds: list[ShuffleRound] = []
    for register, (sender, key) in enumerate(registers):
        for choice in range(1 << len(wishes)):
            constant = key ^ combine(offers, sender) ^ combine(wishes, choice)
            table, send_masks = _by_thread(constant, offers)
            targets, receive_masks = _by_thread(register, turns)
            written = tuple(target if wish == choice else -1 for wish in range(1 << len(wishes)) for target in targets)
            rounds.append(
                ShuffleRound(
                    RegisterChoice(tuple(register_of[key] for key in table), send_masks),
                    RegisterChoice(written, (*receive_masks, *masks)),
                    sender & (lanes - 1),
                    lane_bits,
                )
            )
    return tuple(rounds)


def _by_thread(constant: int, bits: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`(values, masks)` of `constant` XOR the `bits` of the set bits of a thread, as `RegisterChoice` selects them."""
    span, basis, masks = Span(), list[int](), list[int]()
    for bit, value in enumerate(bits):
        used, rest = span.split(value)
        if rest:
            span.add(value)
            basis.append(value)
            masks.append(1 << bit)
        else:
            masks = [mask | (1 << bit if used >> at & 1 else 0) for at, mask in enumerate(masks)]
    return tuple(constant ^ combine(basis, index) for index in range(1 << len(basis))), tuple(masks)


@lru_cache(maxsize=512)
def choose_scratch(source: TileLayout, result: TileLayout, element_bytes: int, banks: int = 32, bank_bytes: int = 4) -> SharedLayout:
    """The scratch buffer through which `source` becomes `result` with the fewest wavefronts, both sides taken together.

    Searches XOR swizzles over both orders of the two innermost dimensions that have an extent; ties go to fewer accesses.
    """
    if source.shape != result.shape:
        raise InternalError(f"scratch between {source.shape} and {result.shape}")
    sides = (source, result)
    best: tuple[tuple[int, int], SharedLayout] | None = None
    for order in _orders(source.shape):
        # With these rows no access is wider than the registers along a row: nothing can be cheaper than that without a conflict.
        widths = [global_vector_width(tile, order[0], MAX_ACCESS_BYTES // element_bytes) for tile in sides]
        accesses = [tile.num_registers // width for tile, width in zip(sides, widths, strict=True)]
        phases = [_phases(tile, width * element_bytes, banks, bank_bytes) for tile, width in zip(sides, widths, strict=True)]
        bound = (sum(count * each for count, each in zip(accesses, phases, strict=True)), sum(accesses))
        for shared in _candidates(source.shape, order, element_bytes, banks * bank_bytes):
            if best is not None and best[0] <= bound:
                break
            total = (0, 0)
            for tile in sides:
                wavefronts, count = _traffic(tile, shared, element_bytes, banks, bank_bytes)
                total = (total[0] + wavefronts, total[1] + count)
                if best is not None and total >= best[0]:
                    break
            else:
                best = (total, shared)
    if best is None:
        raise InternalError(f"no scratch layout for {source.shape}")
    return best[1]


def _phases(tile: TileLayout, access_bytes: int, banks: int, bank_bytes: int) -> int:
    """Wavefronts of one access of a warp without conflicts."""
    return max(1, tile.num_lanes * max(access_bytes, bank_bytes) // (banks * bank_bytes))


def _traffic(tile: TileLayout, shared: SharedLayout, element_bytes: int, banks: int, bank_bytes: int) -> tuple[int, int]:
    """Wavefronts and accesses of one warp for moving `tile` to or from `shared`."""
    plan = address_plan(tile, shared, element_bytes)
    phases = _phases(tile, plan.vector * element_bytes, banks, bank_bytes)
    return len(plan.groups) * phases + plan_conflicts(plan, element_bytes, banks, bank_bytes), len(plan.groups)


def _orders(shape: Coordinates) -> list[tuple[int, ...]]:
    """Orders of the dimensions to try, fastest first: the two innermost that have an extent, either way round."""
    inner = sorted(range(len(shape)), key=lambda dim: (shape[dim] == 1, -dim))
    return [tuple(inner)] if len(inner) == 1 else [tuple(inner), (inner[1], inner[0], *inner[2:])]


def _candidates(shape: Coordinates, order: tuple[int, ...], element_bytes: int, row_bytes: int) -> Iterator[SharedLayout]:
    """Scratch layouts to try, the plain one first."""
    if len(order) == 1:
        yield row_major(shape, order)
        return
    yield xor_swizzled(shape, order, 1, 1, 1)
    column, row = power_of_two_part(shape[order[0]]), power_of_two_part(shape[order[1]])
    # A row of banks holds this many rows of the tile: only rows further apart can meet in a bank.
    per_row = max(1, row_bytes // (column * element_bytes))
    for vector in sorted({max(1, size // element_bytes) for size in (16, 32, 64, 8, 4, 2, 1)}, reverse=True):
        for per_phase in sorted({1, per_row, 2, 4, 8}):
            phases = min(column // vector, row // per_phase, row_bytes // (vector * element_bytes))
            for bit in range(1, phases.bit_length()):
                yield xor_swizzled(shape, order, vector, per_phase, 1 << bit)
