"""What a device is, which there are, and how one is chosen.

A device loads an artifact (`Manifest` and files) and gives a `LoadedProgram`: a callable on arrays. Devices are reached by kind through a
table of module names, so that no vendor's binding is imported before it is wanted.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol

from treadle import errors
from treadle.artifact import Manifest
from treadle.errors import TreadleError
from treadle.records import Record

if TYPE_CHECKING:
    from treadle.runtime.arrays import ArrayView
    from treadle.runtime.call_form import CallForm
    from treadle.runtime.invocation import InvocationPlan


class LoadedProgram(Protocol):
    """A program on its device."""

    @property
    def device_name(self) -> str:
        """The device in words."""
        ...

    @property
    def plan(self) -> "InvocationPlan":
        """What a call's shapes and strides determine."""
        ...

    @property
    def place(self) -> tuple[str, int]:
        """Kind (`cpu` for the simulator) and number: arrays that are there are used where they are, by their own strides."""
        ...

    def run(self, views: "Sequence[ArrayView]", out: "Sequence[Any] | None" = None) -> tuple[Any, ...]:
        """The same as calling it, for views of the arrays; `out`: arrays to fill."""
        ...

    def form(self, views: "Sequence[ArrayView]", out: "Sequence[Any] | None" = None) -> "CallForm | None":
        """What calls on such arrays have in common; None where that saves nothing: on the simulator, for arrays of the host."""
        ...

    def bind(self, views: "Sequence[ArrayView]", out: "Sequence[Any] | None" = None) -> "Callable[[], tuple[Any, ...]]":
        """The call on these arrays, to be repeated on the same memory. Raises TR726 for arrays that lie elsewhere."""
        ...

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Run; one array (shape, dtype, DLPack, `numpy()`) for each output. Raises TR721..TR729 for wrong arguments."""
        ...


class Device(Protocol):
    """A place that runs programs."""

    @property
    def kind(self) -> str:
        """`cuda`, `hip`, `sim` or a registered one."""
        ...

    @property
    def name(self) -> str:
        """In words, such as the product's name."""
        ...

    @property
    def target(self) -> str:
        """The architecture whose programs it runs: `sm_90a`, `gfx942`, `sim`."""
        ...

    @property
    def machine(self) -> str:
        """What to compile for: the architecture, and its product where that is known and not the default one: `sm_90a:h100-pcie`."""
        ...

    def load(self, manifest: Manifest, files: Mapping[str, bytes]) -> LoadedProgram:
        """Bring a program to the device. Raises TR602 for another target, TR604, TR605, TR607 for what the device cannot take."""
        ...

    def synchronize(self) -> None:
        """Wait for all work on the device. Raises TR603 for a fault of earlier work."""
        ...


class DeviceInfo(Record):
    """One line of a survey: `description` is what the device is, or why it is not there."""

    kind: str
    target: str
    available: bool
    description: str


# Each module has `open_device() -> Device`, which raises TR601 where there is none.
_MODULES: Final = {"cuda": "treadle.runtime.cuda", "hip": "treadle.runtime.hip", "sim": "treadle.runtime.simulated"}
_openers: Final[dict[str, Callable[[], Device]]] = {}
"""Of the kinds that have been registered."""


def register_device(kind: str, opener: Callable[[], Device]) -> None:
    """Add a kind of device, or replace one: `opener` gives the device, or raises TR601 where there is none. It is opened once a process."""
    _openers[kind] = opener
    open_device.cache_clear()


def _kinds() -> tuple[str, ...]:
    """Registered kinds, then the runtime's own, the simulator last."""
    return tuple(dict.fromkeys((*_openers, *_MODULES)))


@lru_cache(maxsize=8)
def open_device(kind: str) -> Device:
    """The device of a kind (`cuda`, `hip`, `sim`, or a registered one), opened once a process. Raises TR601 with the reason where there is
    none.
    """
    if kind in _openers:
        return _openers[kind]()
    if kind not in _MODULES:
        known = ", ".join(_kinds())
        raise TreadleError(errors.NO_DEVICE, device=kind, reason="there is no such kind", hint=f"choose one of {known}")
    return import_module(_MODULES[kind]).open_device()


def default_device(target: str | None = None) -> Device:
    """The GPU of this machine, else the simulator. With a target: the device that runs its programs; raises TR602 if there is none.

    A program for one product runs on every product of its architecture.
    """
    if target == "sim":
        return open_device("sim")
    reasons: list[str] = []
    for kind in (kind for kind in _kinds() if kind != "sim"):
        try:
            device = open_device(kind)
        except TreadleError as absent:
            reasons.append(absent.message)
            continue
        if target is None or device.target == target.partition(":")[0]:
            return device
        reasons.append(f"{device.name} runs programs for {device.target}")
    if target is None:
        return open_device("sim")
    raise TreadleError(errors.NO_DEVICE_FOR_TARGET, target=target, reason="; ".join(reasons))


def survey() -> list[DeviceInfo]:
    """Every kind of device, there or not."""
    found: list[DeviceInfo] = []
    for kind in _kinds():
        try:
            device = open_device(kind)
            found.append(DeviceInfo(kind, device.machine, True, device.name))
        except TreadleError as absent:
            found.append(DeviceInfo(kind, "", False, absent.message))
    return found
