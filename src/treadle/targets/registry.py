"""Vendor -> backend: the one door to `targets/<vendor>` for the rest of the compiler, and for backends from outside.

Importing this loads no backend: a start from the cache asks it what keys must cover.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from treadle.errors import Entry, TreadleError
from treadle.records import Record

if TYPE_CHECKING:
    from treadle.machine import TargetSpec
    from treadle.targets.interface import TargetBackend

NO_BACKEND = Entry(
    "TR503",
    "nothing makes code for {target}: its vendor '{vendor}' has no backend (there are: {known})",
    "register one with `treadle.targets.registry.register_backend`, or correct the vendor of the row",
)


class Vendor(Record):
    """What the compiler asks of the maker of backends for one vendor's machines.

    `make`: the backend of an architecture. `start`: gets tools ready, at once and beside the caller, for a compilation that will want
    them. `packages`: beginnings of the names of installed packages that shape its code. `version`: changes whenever its code does; None
    where nobody says so, and then its programs are not cached. Treadle's own backends need none: cache keys cover Treadle's files.
    """

    make: "Callable[[TargetSpec], TargetBackend]"
    start: "Callable[[], None] | None" = None
    packages: tuple[str, ...] = ()
    version: str | None = None


def _nvidia(spec: "TargetSpec") -> "TargetBackend":
    from treadle.targets.nvidia.backend import NvidiaBackend

    return NvidiaBackend(spec)


def _amd(spec: "TargetSpec") -> "TargetBackend":
    from treadle.targets.amd.backend import AmdBackend

    return AmdBackend(spec)


def _start_nvidia() -> None:
    from treadle.codegen.worker import warm_up

    warm_up()


def _start_amd() -> None:
    from treadle.codegen.worker import warm_up
    from treadle.targets.amd import LLVM_OPTIONS, LLVM_PROCESSES

    warm_up(LLVM_OPTIONS, LLVM_PROCESSES)


_OWN: Final = {
    "nvidia": Vendor(_nvidia, _start_nvidia, ("nvidia_cuda_nvcc-",), version=""),
    "amd": Vendor(_amd, _start_amd, ("ziglang-",), version=""),
}
_vendors: dict[str, Vendor] = dict(_OWN)


def register_backend(
    vendor: str,
    make: "Callable[[TargetSpec], TargetBackend]",
    *,
    start: "Callable[[], None] | None" = None,
    packages: tuple[str, ...] = (),
    version: str | None = None,
) -> None:
    """Add what makes code for the rows of a vendor, or replace it. See `Vendor` for the arguments."""
    _vendors[vendor] = Vendor(make, start, packages, version)
    _backend.cache_clear()


def _vendor_of(spec: "TargetSpec") -> Vendor:
    found = _vendors.get(spec.vendor)
    if found is None:
        raise TreadleError(NO_BACKEND, target=spec.name, vendor=spec.vendor, known=", ".join(_vendors))
    return found


@lru_cache(maxsize=32)
def _backend(spec: "TargetSpec") -> "TargetBackend":
    return _vendor_of(spec).make(spec)


def backend(target: str) -> "TargetBackend":
    """The backend of a target. Raises TreadleError TR501 or TR502 for an unknown one, TR503 where its vendor has no backend."""
    from treadle.machine import target_spec

    return _backend(target_spec(target))


def start_tools(target: str) -> None:
    """Start what compiling for a target will wait for. Raises what `backend` does."""
    from treadle.machine import target_spec

    start = _vendor_of(target_spec(target)).start
    if start is not None:
        start()


def packages() -> tuple[str, ...]:
    """Beginnings of the names of installed packages that shape code for some target."""
    return tuple(name for vendor in _vendors.values() for name in vendor.packages)


def code_version(target: str) -> str | None:
    """What a cache key must hold about a target's backend ("" for Treadle's own); None where its programs cannot be cached."""
    if target == "sim" or _vendors == _OWN:
        return ""
    from treadle.machine import target_spec

    return _vendor_of(target_spec(target)).version
