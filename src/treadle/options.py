"""What a user may choose about a compilation. Plain frozen values: equal options hash alike, and the cache key is made of them."""

from dataclasses import asdict, dataclass, fields
from typing import Literal

Precision = Literal["ieee", "tf32"]


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Choices that change the generated code.

    `allow_tf32`: f32 contractions may round their operands to tf32 and use matrix instructions (off, as in PyTorch).
    `verify`: check the module after every pass, and the schedule before emission.
    `tile`: m, n, k of a contraction's tile, empty for the compiler's choice.
    `warps`: warps along m and n of a contraction's tile, empty for the compiler's choice.
    `stages`: stages of pipelined loops (see set-pipeline): 1 for none, 0 for the compiler's choice.
    `roles`: contractions may give copying and computing to different warps where the machine's rules allow.
    `ring`: slots of the ring between warps that copy and warps that compute, 0 for no such roles; `groups`: how many groups compute.
    """

    allow_tf32: bool = False
    verify: bool = True
    tile: tuple[int, ...] = ()
    warps: tuple[int, ...] = ()
    stages: int = 1
    roles: bool = True
    ring: int = 0
    groups: int = 1

    @property
    def f32_precision(self) -> Precision:
        """How f32 contractions treat their operands."""
        return "tf32" if self.allow_tf32 else "ieee"

    def key(self) -> str:
        """The options as stable text: `name=value` in declaration order, for cache keys and records."""
        values = asdict(self)
        return ",".join(f"{field.name}={values[field.name]!r}" for field in fields(self))
