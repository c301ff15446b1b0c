"""What a user may choose about a compilation. Plain frozen values: equal options hash alike, and the cache key is made of them."""

from typing import Final, Literal, get_args

from treadle.records import Record

Precision = Literal["ieee", "tf32", "3xtf32", "bf16x3", "bf16x6"]
Fp8Accumulation = Literal["fast", "promoted"]
Persistence = Literal["auto", "always", "never"]
Overlap = Literal["auto", "always", "never"]
AttentionChoice = Literal["auto", "off", "always"]
RowPadding = Literal["auto", "off", "always"]
TurnedOperands = Literal["auto", "off", "always"]
IssueTurns = Literal["off", "always"]
WindowOrder = Literal["auto", "channels", "places"]
Form = Literal["auto", "tiles", "roles", "streaming", "swapped", "exchanged", "split_operands"]

CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "f32_precision": get_args(Precision),
    "fp8_accumulation": get_args(Fp8Accumulation),
    "persistent": get_args(Persistence),
    "form": get_args(Form),
    "window_order": get_args(WindowOrder),
    "attention": get_args(AttentionChoice),
    "row_padding": get_args(RowPadding),
    "turned_operands": get_args(TurnedOperands),
    "issue_turns": get_args(IssueTurns),
    "overlap_launches": get_args(Overlap),
}
"""The values of the options that are one of a few words."""


class ContractionOverrides(Record):
    """What is asked of contractions instead of the compiler's choice. Each default leaves the choice open.

    `form`: the form by name: "tiles" (all warps alike), "roles" (copying and computing go to different warps), "exchanged" (the same with A
    and B exchanged: `tile` and `cluster` are of the transposed result), for one side of at most 64 "streaming" or "swapped", and
    "split_operands" where f32 operands are to be split or rounded in the kernel; where it refuses, another is taken.
    "auto": the fastest by the models (docs/architecture.md).
    `tile`: m, n, k of a tile. `warps`: warps along m and n of a tile. With a tile, the form is "roles" where `num_stages` is given, else
    "tiles".
    `roles`: forms with roles may be taken.
    `num_stages`: stages of the ring between warps that copy and warps that compute; for "streaming" the loads in flight.
    `consumer_warpgroups`: how many compute a tile, each `tile` of it. `ping_pong`: sets of them that take tiles in turn, one's epilogue
    under another's main loop. `steps_in_flight`: groups of matrix instructions left in flight (0 or 1). `deferred_store`: a tile's results
    leave under the next one's main loop.
    `cluster`: so many workgroups fetch what they share once (1: none), where sizes allow: neighbours along m where `group_m` is a multiple
    of it, else along n. `cluster_n`: of these so many neighbours along n, the others along m, which fetch both operands once (0: as said).
    `tail_tile_n`: columns of narrower tiles that fill the last round, 0 for none.
    `group_m`: rows of tiles walked together for reuse in the cache.
    `window_order`: of convolutions with roles, what the loop takes first: all "channels" of one place of a window, or all "places" for one
    step of channels. "auto": places where the cache does not keep what tiles at work read of the image.
    `persistent`: whether as many workgroups as the machine holds take the tiles in turn ("always"), or each workgroup has one tile
    ("never"). "auto": forms with roles are persistent. Parts of reductions whose length the runtime knows have one tile always.
    """

    form: Form = "auto"
    tile: tuple[int, ...] = ()
    warps: tuple[int, ...] = ()
    roles: bool = True
    num_stages: int = 0
    consumer_warpgroups: int = 1
    ping_pong: int = 1
    steps_in_flight: int = 0
    deferred_store: bool = False
    cluster: int = 1
    cluster_n: int = 0
    tail_tile_n: int = 0
    group_m: int = 0
    window_order: WindowOrder = "auto"
    persistent: Persistence = "auto"


class CompileOptions(ContractionOverrides):
    """Choices that change the generated code: those about contractions, and

    `f32_precision`: how contractions of f32 operands multiply. "ieee": as written. "tf32": operands rounded to tf32 for matrix
    instructions. "3xtf32", "bf16x6", "bf16x3": operands split into two tf32 or three or two bf16 parts, sums of products of parts
    (docs/precision.md).
    `fp8_accumulation`: "fast" sums of 8-bit floats stay in the matrix unit; "promoted" ones are added to f32 sums every 128 along k
    where the unit keeps fewer bits than f32.
    `verify`: check the module at every level, and prove the schedule. `allow_unproven`: accept kernels in whose schedules no fault is found
    but not everything is proven; a remark says what is open.
    `pipeline_stages`: stages of pipelined loops (see set-pipeline): 1 for none, 0 for the compiler's choice. -1: the compiler's choice for
    contractions where the machine's row says so (AMD), or in the vector units of what copies bring, else none.
    `index_bits`: 32: sizes and strides that only the runtime knows are checked to fit 32-bit indices; 64: they may have any value, and what
    depends on them indexes with 64 bits, without descriptor copies. Static sizes need no choice. A `Program` called on sizes beyond 32 bits
    compiles and runs its own variant with 64.
    `split_reduction`: "auto": contractions and reductions whose results are too few to fill the machine are split into parts where that is
    modelled to be clearly faster; "off": only those that an attribute of the program asks for; a number: all, into so many parts.
    `reassociate`: sums and products of floats may be joined in another order (docs/numerics.md); where they may not, no reduction that has
    one is split unless its attribute asks for it.
    `attention`: "auto": two contractions with a softmax between them are one kernel where that is modelled to be faster; "always": wherever
    there is such a kernel; "off": only where `dispatch.group` attributes of the program say so.
    `row_padding`: "auto": contractions read copies of operands whose rows are no whole 16 bytes apart, with rows at whole lines of the
    cache (short ones at parts of lines), where that is modelled to be faster; "always": of all operands whose rows begin inside lines,
    without a model; "off": only where `treadle.padded_rows` of the program asks for it.
    `turned_operands`: "auto": contractions in the vector units read copies of operands that lie along k, with rows along m or n, where that
    is modelled to be faster; "always": of all operands that lie along k, without a model; "off": only where `treadle.turned_operands` of
    the program asks for it.
    `issue_turns`: "always": two groups of warps that compute rows of one attention issue their matrix instructions in turn, where they can
    be told apart; "off": they run as they come, which was as fast or faster wherever it was measured.
    `overlap_launches`: kernels of one program start while the one before them ends, where the machine can (sm_90a): "always", "never",
    "auto": reductions of what the launch ahead of them has computed, as those that merge parts.

    `tuned`: where all of these choices are the compiler's, use those that `treadle tune` measured for the same program and numerics on the
    product that is in this machine.

    Raises ValueError for an unknown word.
    """

    f32_precision: Precision = "ieee"
    fp8_accumulation: Fp8Accumulation = "fast"
    verify: bool = True
    allow_unproven: bool = False
    pipeline_stages: int = -1
    overlap_launches: Overlap = "auto"
    index_bits: int = 32
    split_reduction: str = "auto"
    reassociate: bool = True
    attention: AttentionChoice = "auto"
    issue_turns: IssueTurns = "off"
    row_padding: RowPadding = "auto"
    turned_operands: TurnedOperands = "auto"

    tuned: bool = True

    @property
    def overrides(self) -> ContractionOverrides:
        """The choices about contractions alone."""
        return ContractionOverrides(*(getattr(self, name) for name in ContractionOverrides.record_names))

    def __post_init__(self) -> None:
        for name, words in CHOICES.items():
            if (value := getattr(self, name)) not in words:
                raise ValueError(f"{name} is {value!r}, not one of {', '.join(words)}")
        if self.index_bits not in (32, 64):
            raise ValueError(f"index_bits is {self.index_bits}, neither 32 nor 64")
        if self.split_reduction not in ("auto", "off") and not (self.split_reduction.isdecimal() and int(self.split_reduction) > 0):
            raise ValueError(f"split_reduction is {self.split_reduction!r}, neither auto nor off nor a number of parts")

    def key(self) -> str:
        """The options as stable text: `name=value` in declaration order, for cache keys and records.

        Without `tuned`: what it brings are values of the others.
        """
        return ",".join(f"{name}={getattr(self, name)!r}" for name in self.record_names if name != "tuned")
