"""Target name -> backend: the one door to `targets/<vendor>` for the rest of the compiler."""

from functools import lru_cache

from treadle.machine import target_spec
from treadle.targets.interface import TargetBackend


@lru_cache(maxsize=32)
def backend(name: str) -> TargetBackend:
    """The backend of a target; raises TreadleError TR501 for an unknown name."""
    spec = target_spec(name)
    if spec.vendor == "nvidia":
        from treadle.targets.nvidia.backend import NvidiaBackend

        return NvidiaBackend(spec)
    from treadle.targets.amd.backend import AmdBackend

    return AmdBackend(spec)
