"""What a user may choose about a compilation. Plain frozen values: equal options hash alike, and the cache key is made of them."""

from typing import Final, Literal, get_args

from treadle.records import Record

Precision = Literal["ieee", "tf32", "3xtf32", "bf16x3", "bf16x6"]
Fp8Accumulation = Literal["fast", "promoted"]
Persistence = Literal["auto", "always", "never"]
Form = Literal["auto", "tiles", "streaming", "swapped"]

CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "f32_precision": get_args(Precision),
    "fp8_accumulation": get_args(Fp8Accumulation),
    "persistent": get_args(Persistence),
    "form": get_args(Form),
}
"""The values of the options that are one of a few words."""


class CompileOptions(Record):
    """Choices that change the generated code.

    `f32_precision`: how contractions of f32 operands multiply. "ieee": as written. "tf32": operands rounded to tf32 for matrix
    instructions. "3xtf32", "bf16x6", "bf16x3": operands split into two tf32 or three or two bf16 parts, sums of products of parts
    (docs/precision.md).
    `fp8_accumulation`: "fast" sums of 8-bit floats stay in the matrix unit; "promoted" ones are added to f32 sums every 128 along k
    where the unit keeps fewer bits than f32.
    `verify`: check the module at every level, and prove the schedule. `allow_unproven`: accept kernels in whose schedules no fault is found
    but not everything is proven; a remark says what is open.
    `form`: how contractions with one side of at most 64 are computed. "tiles" as all others, "streaming" (`ring`: loads under way) or
    "swapped" (docs/architecture.md); "auto" is the compiler's choice.
    `tile`: m, n, k of a contraction's tile, empty for the compiler's choice.
    `warps`: warps along m and n of a contraction's tile, empty for the compiler's choice.
    `stages`: stages of pipelined loops (see set-pipeline): 1 for none, 0 for the compiler's choice.
    `roles`: contractions may give copying and computing to different warps where the machine's rules allow.
    `ring`: slots of the ring between warps that copy and warps that compute, 0 for no such roles; `groups`: how many groups compute a
    tile; `turns`: how many sets of them take tiles in turn; `pending`: groups of matrix instructions left in flight (0 or 1);
    `late`: a tile's results leave under the next one's first steps.
    `cluster`: so many workgroups, neighbours along m, fetch what they share once (1: none), where sizes allow.
    `narrow`: columns of narrower tiles beside those of `tile` that fill the last round, 0 for none (see docs/architecture.md).
    `raster`: rows of tiles walked together for reuse in the cache, 0 for the compiler's choice.
    `persistent`: whether as many workgroups as the machine holds take a contraction's tiles in turn ("always"), or each workgroup has one
    tile ("never"). "auto": kernels with roles are persistent.
    `index_bits`: 32: sizes and strides that only the runtime knows are checked to fit 32-bit indices; 64: they may have any value, and what
    depends on them indexes with 64 bits, without descriptor copies. Static sizes need no choice. A `Program` called on sizes beyond 32 bits
    compiles and runs its own variant with 64.
    `overlap_launches`: kernels of one program start while the one before them ends, where the machine can (sm_90a).

    `tuned`: where all of these choices are the compiler's, use those that `treadle tune` measured for the same program and numerics on the
    product that is in this machine.

    Raises ValueError for an unknown word.
    """

    f32_precision: Precision = "ieee"
    fp8_accumulation: Fp8Accumulation = "fast"
    verify: bool = True
    allow_unproven: bool = False
    form: Form = "auto"
    tile: tuple[int, ...] = ()
    warps: tuple[int, ...] = ()
    stages: int = 1
    roles: bool = True
    ring: int = 0
    groups: int = 1
    turns: int = 1
    pending: int = 0
    raster: int = 0
    late: bool = False
    cluster: int = 1
    narrow: int = 0
    persistent: Persistence = "auto"
    overlap_launches: bool = False
    index_bits: int = 32

    tuned: bool = True

    def __post_init__(self) -> None:
        for name, words in CHOICES.items():
            if (value := getattr(self, name)) not in words:
                raise ValueError(f"{name} is {value!r}, not one of {', '.join(words)}")
        if self.index_bits not in (32, 64):
            raise ValueError(f"index_bits is {self.index_bits}, neither 32 nor 64")

    def key(self) -> str:
        """The options as stable text: `name=value` in declaration order, for cache keys and records.

        Without `tuned`: what it brings are values of the others.
        """
        return ",".join(f"{name}={getattr(self, name)!r}" for name in self.record_names if name != "tuned")
