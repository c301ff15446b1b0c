"""The kinds of cases. A kind is a module of this folder that is named here; it is imported by who runs it."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from fuzz.outcomes import Outcome, Settings


@dataclass(frozen=True, slots=True)
class Kind:
    """`run` answers a seed. `seconds`: without an answer within that long it hangs."""

    run: Callable[[int, Settings], Outcome]
    seconds: float


KINDS: dict[str, str] = {
    "modules": "random modules: machine code for every target, results on the simulator (and a GPU) against float64 and IREE",
    "reductions": "random reductions of all combiners: results on the simulator against float64 and IREE, machine code for one target each",
    "shapes": "random contractions of all sizes and layouts: proven, audited machine code for one target each",
    "emulated": "random ragged contractions, pipelined or not, and random modules: AMD machine code in an emulator against float64",
    "contractions": "random contractions with the schedules of the compiler's choice: AMD machine code in an emulator against float64",
    "texts": "mutated texts through `treadle compile` and `treadle verify`: exit status 0 or 2 within 5 s",
}


def load(name: str) -> Kind:
    """The kind of a name."""
    kind: Kind = import_module(f"fuzz.{name}").KIND
    return kind
