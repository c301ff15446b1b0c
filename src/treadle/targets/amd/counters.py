"""The in-order counters of AMD machines, replayed over a kernel's control flow: what may be, or must still be, pending where.

A counter goes up with each access it counts and down as they retire, in the order of their issue; a wait for n leaves at most the newest n.

| counter | counts | GFX9 | GFX11 | GFX12 |
|---|---|---|---|---|
| "vector" | loads from global memory (on GFX9 stores too) and copies from there to shared memory | vmcnt | vmcnt | loadcnt |
| "vector_store" | stores to global memory | vmcnt | vscnt | storecnt |
| "local" | accesses to shared memory | lgkmcnt | lgkmcnt | dscnt |

`lgkmcnt` also counts scalar loads, which retire in any order: a wait for n then still leaves at most the newest n of the others.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Literal

from treadle.records import dataclass
from treadle.targets.amd.assembly import Instruction, Listing
from treadle.targets.amd.flow import Ages, natural_loops, replay

Kind = Literal["load", "store", "copy", "local_load", "local_store", "lane", "matrix", "barrier"]
Counter = Literal["vector", "vector_store", "local"]
Flight = Literal["in flight", "used", "not", "unknown"]
"""What the schedule says of an access at an instruction: in flight; used there; neither; nothing."""

RETIRED = 64
"""An age that no counter reaches: the wait for it is over."""

_MATRIX = re.compile(r"v_(mfma|smfmac|wmma|swmmac)_")
_FIELDS: dict[str, tuple[Counter, ...]] = {
    "s_waitcnt_vmcnt": ("vector",),
    "s_waitcnt_vscnt": ("vector_store",),
    "s_waitcnt_lgkmcnt": ("local",),
    "s_wait_loadcnt": ("vector",),
    "s_wait_storecnt": ("vector_store",),
    "s_wait_dscnt": ("local",),
    "s_wait_loadcnt_dscnt": ("vector", "local"),
    "s_wait_storecnt_dscnt": ("vector_store", "local"),
    "s_wait_idle": ("vector", "vector_store", "local"),
}
_NAMED: dict[str, Counter] = {"vmcnt": "vector", "lgkmcnt": "local"}
_WIDTHS = {"byte": 1, "short": 2, "dword": 4}


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule broken by the instruction on a line of the assembly."""

    rule: str
    line: int
    text: str


def kind_of(one: Instruction) -> Kind | None:
    """What an instruction is to the counters and to the schedule; atomics are stores, exchanges between lanes "lane". None: nothing."""
    name = one.mnemonic
    if name.startswith("ds_"):
        if re.match(r"ds_(b?permute|swizzle)", name):
            return "lane"
        return "local_load" if re.match(r"ds_(read|load)", name) else "local_store"
    if re.match(r"(global|buffer|flat)_", name):
        if "_lds" in name or re.search(r"\blds\b", one.operands):
            return "copy"
        rest = name.split("_", 1)[1]
        return "load" if rest.startswith("load") else "store" if rest.startswith(("store", "atomic")) else None
    if _MATRIX.match(name):
        return "matrix"
    return "barrier" if name in ("s_barrier", "s_barrier_signal") else None


def access_bytes(one: Instruction) -> int:
    """Bytes that an access moves for each lane."""
    name = re.sub(r"_d16(_hi)?", "", one.mnemonic)
    double = 2 if re.search(r"(read|write)2|2addr", name) else 1
    if bits := re.search(r"_[bifu](\d+)$", name):
        return double * int(bits.group(1)) // 8
    words = re.search(r"_[us]?(byte|short|dword)(?:x(\d))?$", name)
    return double * _WIDTHS[words.group(1)] * int(words.group(2) or 1) if words else 0


def counter_of(kind: Kind | None, *, own_store_counter: bool) -> Counter | None:
    """The counter that an instruction of a kind raises. `own_store_counter`: the machine has one for stores."""
    match kind:
        case "load" | "copy":
            return "vector"
        case "store":
            return "vector_store" if own_store_counter else "vector"
        case "local_load" | "local_store" | "lane":
            return "local"
        case _:
            return None


def waits_of(one: Instruction) -> Mapping[Counter, int]:
    """How many accesses of each counter a wait leaves pending; empty for other instructions."""
    if one.mnemonic == "s_waitcnt":
        return {counter: int(n.group(1)) for name, counter in _NAMED.items() if (n := re.search(rf"{name}\((\d+)\)", one.operands))}
    fields = _FIELDS.get(one.mnemonic)
    if fields is None:
        return {}
    number = int(one.operands.split(",")[-1], 0) if one.operands else 0
    if len(fields) == 2:
        return {fields[0]: number >> 8 & 0x3F, fields[1]: number & 0x3F}
    return dict.fromkeys(fields, number)


class Counters:
    """The counters of one listing, and its `loops` (instructions by index). `own_store_counter` as for `counter_of`."""

    def __init__(self, listing: Listing, *, own_store_counter: bool) -> None:
        self.listing = listing
        self.loops = natural_loops(listing)
        self.kinds: list[Kind | None] = [kind_of(one) for one in listing.instructions]
        self._counter: list[Counter | None] = [counter_of(kind, own_store_counter=own_store_counter) for kind in self.kinds]
        self._waits = [waits_of(one) for one in listing.instructions]

    def at(self, *kinds: Kind) -> list[int]:
        """The indices of the instructions of some kinds."""
        return [at for at, kind in enumerate(self.kinds) if kind in kinds]

    def may_be_pending(self, observe: Callable[[int, Ages], None]) -> None:
        """Tell `observe`, before each instruction with a kind, which accesses some path leaves pending there (by index)."""

        def step(at: int, ages: Ages) -> None:
            counter = self._counter[at]
            for old in list(ages):
                if (left := self._waits[at].get(self.counter_at(old))) is not None and ages[old] >= left:
                    del ages[old]
                elif counter is not None and counter == self._counter[old]:
                    ages[old] = min(ages[old] + 1, RETIRED - 1)
            if counter is not None:
                ages[at] = 0

        replay(self.listing, self._matters, step, min, observe)

    def surely_pending(
        self,
        accesses: Collection[int],
        flight: Callable[[int, int], Flight],
        observe: Callable[[int, Ages], None],
    ) -> None:
        """Tell `observe` which of some accesses were issued before an instruction: their age, `RETIRED` where some path has waited for
        them.

        `flight(at, access)`: what instruction `at` says of an access. It is told from its issue to where it is used, or no longer in flight
        after it was: code may issue it long before the schedule does, where nothing is said of it yet. Skipped masked code counts as
        executed.
        """
        known = len(self.kinds)  # keys from here on: accesses that some instruction has said to be in flight

        def step(at: int, ages: Ages) -> None:
            counter = self._counter[at]
            for key in list(ages):
                old = key % known
                age = ages.pop(key)
                if (left := self._waits[at].get(self.counter_at(old))) is not None and age >= left:
                    age = RETIRED
                elif counter is not None and counter == self._counter[old]:
                    age = min(age + 1, RETIRED)
                said = flight(at, old)
                if said == "used" or (said == "not" and key >= known):
                    continue
                key = old + known if said == "in flight" else key
                ages[key] = max(age, ages.get(key, 0))
            if at in accesses:
                ages.pop(at + known, None)
                ages[at] = 0

        def told(at: int, ages: Ages) -> None:
            found: Ages = {}
            for key, age in ages.items():
                found[key % known] = max(age, found.get(key % known, 0))
            observe(at, found)

        replay(self.listing, self._matters, step, max, told, skips=False)

    def waits_at(self, at: int) -> Mapping[Counter, int]:
        """How many accesses of each counter instruction `at` leaves pending; empty where it is no wait."""
        return self._waits[at]

    def counter_at(self, at: int) -> Counter:
        """The counter that an access raises."""
        counter = self._counter[at]
        return counter if counter is not None else "vector"

    def _matters(self, at: int) -> bool:
        return self.kinds[at] is not None or bool(self._waits[at])
