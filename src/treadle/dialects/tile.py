"""The `tile` dialect: one workgroup's program on register tiles and shared buffers, sequential.

Register tiles are builtin tensors of static shape; their encoding, once assigned, is `#tile.layout`. Shared buffers are memrefs with a
`#tile.shared_layout` in the space `#tile.shared`. Global arrays are seen through `tile.view`. See docs/architecture.md, "Tile level".
"""

from collections.abc import Sequence
from typing import cast

from treadle.dialects.dispatch_attributes import Strings
from treadle.dialects.effects import Effect, HasEffects
from treadle.dialects.kernel_form import KernelFormAttr
from treadle.dialects.kernel_text import check_signature, parse_kernel
from treadle.dialects.limits import check_number
from treadle.dialects.tile_arrivals import (
    ArriveLastOp,
    AwaitTurnOp,
    CounterOp,
    CountInOp,
    LocalFlagOp,
    OrderedCounterOp,
    PassTurnOp,
)
from treadle.dialects.tile_atomics import ATOMIC_KINDS, AtomicOp
from treadle.dialects.tile_attributes import PointerType, SharedLayoutAttr, SharedSpaceAttr, TileLayoutAttr, WindowsAttr
from treadle.dialects.tile_compute import (
    BroadcastOp,
    ContractOp,
    ConvertLayoutOp,
    IotaOp,
    PermuteOp,
    ReduceOp,
    ReshapeOp,
    SliceOp,
    SplatOp,
    YieldOp,
)
from treadle.dialects.tile_copies import CopyOp, CopyOutOp
from treadle.dialects.tile_debug import PrintOp
from treadle.dialects.tile_memory import (
    AllocOp,
    GatherOp,
    LoadOp,
    LocalLoadOp,
    LocalStoreOp,
    StoreOp,
    ViewOp,
)
from treadle.dialects.tile_scalars import ExtractOp, LookupOp, OpaqueOp
from treadle.dialects.tile_types import (
    BULK_TENSOR,
    DYNAMIC,
    INDEX,
    i64_array,
    ints,
    layout_of,
    memref_type,
    shared_buffer_type,
    shared_layout_of,
    tile_of,
    tile_type,
    view_strides,
)
from treadle.ir.core import (
    Block,
    BlockArgument,
    Dialect,
    IRDLOperation,
    IsolatedFromAbove,
    IsTerminator,
    NoTerminator,
    Parser,
    Pure,
    Region,
    SymbolOpInterface,
    VerifyException,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
)
from treadle.ir.dialects import builtin

__all__ = [
    "ATOMIC_KINDS",
    "BULK_TENSOR",
    "DYNAMIC",
    "INDEX",
    "TILE",
    "AllocOp",
    "ArriveLastOp",
    "AtomicOp",
    "AwaitTurnOp",
    "BroadcastOp",
    "ContractOp",
    "ConvertLayoutOp",
    "CopyOp",
    "CopyOutOp",
    "CountInOp",
    "CounterOp",
    "ExtractOp",
    "GatherOp",
    "IotaOp",
    "KernelOp",
    "LoadOp",
    "LocalFlagOp",
    "LocalLoadOp",
    "LocalStoreOp",
    "LookupOp",
    "OpaqueOp",
    "OrderedCounterOp",
    "PassTurnOp",
    "PermuteOp",
    "PrintOp",
    "ProgramIdOp",
    "ReduceOp",
    "ReshapeOp",
    "ReturnOp",
    "SliceOp",
    "SplatOp",
    "StoreOp",
    "ViewOp",
    "YieldOp",
    "i64_array",
    "ints",
    "layout_of",
    "memref_type",
    "shared_buffer_type",
    "shared_layout_of",
    "tile_of",
    "tile_type",
    "view_strides",
]


@irdl_op_definition
class KernelOp(IRDLOperation):
    """One workgroup's program. Block arguments: input pointers, output pointers, then one index for each of `symbols`.

    `grid`: three size expressions over the symbols. `arg_align`: bytes each pointer is aligned to. `output_count`: how many pointers are
    outputs. `cluster`: so many neighbours along the grid's first axis (which is a multiple of it) run together as a cluster.
    `overlaps`: it may start before the launch ahead of it has ended, and waits for that end before its body.

    `target`: the architecture that it is written for, or "any" until it is compiled for one. A kernel that a user calls by itself has a
    signature, from which its host program is derived: `arg_shapes`, for each pointer the sizes of its array over the symbols, `arg_strides`
    (elements; row-major where not given), `arg_names`, and `in_place`, the numbers of the output pointers that are arguments of the call;
    `workspace`, the numbers of those that are memory of the program's own, and no results (zero before and behind each call where
    workgroups arrive there);
    `requires`: what must hold of the sizes, such as "columns <= 1024".
    """

    name = "tile.kernel"
    sym_name = prop_def(builtin.StringAttr)
    symbols = prop_def(builtin.ArrayAttr)
    grid = prop_def(builtin.ArrayAttr)
    num_warps = prop_def(builtin.IntegerAttr)
    target = prop_def(builtin.StringAttr)
    arg_align = prop_def(builtin.DenseArrayBase)
    output_count = prop_def(builtin.IntegerAttr)
    groups = opt_prop_def(builtin.IntegerAttr)
    cluster = opt_prop_def(builtin.IntegerAttr)
    overlaps = opt_prop_def(builtin.UnitAttr)
    index_bits = opt_prop_def(builtin.IntegerAttr)
    config = opt_prop_def(KernelFormAttr)
    arg_shapes = opt_prop_def(builtin.ArrayAttr[Strings])
    arg_strides = opt_prop_def(builtin.ArrayAttr[Strings])
    arg_names = opt_prop_def(Strings)
    in_place = opt_prop_def(builtin.DenseArrayBase)
    workspace = opt_prop_def(builtin.DenseArrayBase)
    requires = opt_prop_def(Strings)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), SymbolOpInterface(), NoTerminator())

    def __init__(
        self,
        name: str,
        body: Region | Block,
        *,
        symbols: Sequence[str],
        grid: Sequence[str],
        num_warps: int,
        target: str,
        arg_align: Sequence[int],
        output_count: int,
        groups: int = 1,
        cluster: int = 1,
        index_bits: int = 32,
        config: KernelFormAttr | None = None,
    ) -> None:
        super().__init__(
            properties={
                "sym_name": builtin.StringAttr(name),
                "symbols": builtin.ArrayAttr([builtin.StringAttr(s) for s in symbols]),
                "grid": builtin.ArrayAttr([builtin.StringAttr(g) for g in grid]),
                "num_warps": builtin.IntegerAttr(num_warps, builtin.i64),
                "target": builtin.StringAttr(target),
                "arg_align": i64_array(arg_align),
                "output_count": builtin.IntegerAttr(output_count, builtin.i64),
                "groups": builtin.IntegerAttr(groups, builtin.i64) if groups != 1 else None,
                "cluster": builtin.IntegerAttr(cluster, builtin.i64) if cluster != 1 else None,
                "index_bits": builtin.IntegerAttr(index_bits, builtin.i64) if index_bits != 32 else None,
                "config": config,
            },
            regions=[Region(body) if isinstance(body, Block) else body],
        )

    def group_count(self) -> int:
        """How many groups of `num_warps` warps execute the whole body, each with its own `pipe.group_id`; one unless roles will be
        formed.
        """
        return 1 if self.groups is None else self.groups.value.data

    def cluster_size(self) -> int:
        """Workgroups of a cluster; one where there are none."""
        return 1 if self.cluster is None else self.cluster.value.data

    def index_width(self) -> int:
        """Bits of the kernel's `index` values: 32, or 64 where set-index-width found that these may not be enough."""
        return 32 if self.index_bits is None else self.index_bits.value.data

    def symbol_names(self) -> tuple[str, ...]:
        """Names of the trailing index arguments."""
        return tuple(cast(builtin.StringAttr, s).data for s in self.symbols)

    def grid_text(self) -> tuple[str, str, str]:
        """The three grid expressions as text."""
        x, y, z = (cast(builtin.StringAttr, g).data for g in self.grid)
        return x, y, z

    def set_grid(self, grid: Sequence[str]) -> None:
        """Replace the grid expressions."""
        self.properties["grid"] = builtin.ArrayAttr([builtin.StringAttr(g) for g in grid])

    def pointers(self) -> tuple[BlockArgument, ...]:
        """The block arguments that are pointers."""
        return tuple(a for a in self.body.block.args if isinstance(a.type, PointerType))

    @classmethod
    def parse(cls, parser: Parser) -> "KernelOp":
        """`tile.kernel @name(%x: !tile.ptr<f32>, .., %rows: index) attributes {..} { .. }`; see `kernel_text` for what may be left out."""
        name, properties, attributes, body = parse_kernel(parser, set(cls.get_irdl_definition().properties))
        return cls.create(regions=[body], properties={"sym_name": name, **properties}, attributes=attributes)

    def verify_(self) -> None:
        pointers = self.pointers()
        indices = [a for a in self.body.block.args if isinstance(a.type, builtin.IndexType)]
        if len(pointers) + len(indices) != len(self.body.block.args):
            raise VerifyException("tile.kernel takes pointers and index arguments only")
        if len(indices) != len(self.symbols):
            raise VerifyException(f"tile.kernel names {len(self.symbols)} symbols for {len(indices)} index arguments")
        if len(ints(self.arg_align)) != len(pointers):
            raise VerifyException("tile.kernel needs one arg_align entry for each pointer")
        if len(self.grid) != 3:
            raise VerifyException("tile.kernel needs three grid expressions")
        if self.index_width() not in (32, 64):
            raise VerifyException(f"tile.kernel has indices of 32 or 64 bits, not {self.index_width()}")
        for op in self.body.walk():
            if op.name.split(".")[0] in ("tile", "pipe", "sync") and not isinstance(op, HasEffects):
                raise VerifyException(f"{op.name} does not state its effects")
        for name, value, low in (("num_warps", self.num_warps, 1), ("groups", self.groups, 1), ("cluster", self.cluster, 1)):
            if value is not None and value.value.data < low:
                raise VerifyException(f"tile.kernel: {name} = {value.value.data}")
        if not 0 <= self.output_count.value.data <= len(pointers):
            raise VerifyException(f"tile.kernel: {self.output_count.value.data} outputs among {len(pointers)} pointers")
        check_signature(self, len(pointers))


@irdl_op_definition
class ReturnOp(IRDLOperation, HasEffects):
    """Ends a kernel."""

    name = "tile.return"
    traits = traits_def(IsTerminator())
    assembly_format = "attr-dict"

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class ProgramIdOp(IRDLOperation, HasEffects):
    """The workgroup's id along grid axis 0, 1 or 2."""

    name = "tile.program_id"
    axis = prop_def(builtin.IntegerAttr)
    result = result_def(builtin.IndexType)
    traits = traits_def(Pure())
    assembly_format = "$axis attr-dict"

    def __init__(self, axis: int) -> None:
        super().__init__(properties={"axis": builtin.IntegerAttr(axis, builtin.i64)}, result_types=[INDEX])

    def verify_(self) -> None:
        check_number("the grid's axis", self.axis.value.data, 0, 2, "0 is x, 1 is y, 2 is z")

    def effects(self) -> tuple[Effect, ...]:
        return ()


TILE = Dialect(
    "tile",
    [
        KernelOp,
        ReturnOp,
        ProgramIdOp,
        ViewOp,
        GatherOp,
        AtomicOp,
        LoadOp,
        StoreOp,
        AllocOp,
        CopyOp,
        CopyOutOp,
        LocalLoadOp,
        LocalStoreOp,
        ArriveLastOp,
        CountInOp,
        LocalFlagOp,
        AwaitTurnOp,
        PassTurnOp,
        ContractOp,
        ReduceOp,
        YieldOp,
        BroadcastOp,
        ConvertLayoutOp,
        PermuteOp,
        ReshapeOp,
        ExtractOp,
        LookupOp,
        OpaqueOp,
        SliceOp,
        SplatOp,
        IotaOp,
        PrintOp,
    ],
    [PointerType, TileLayoutAttr, SharedLayoutAttr, SharedSpaceAttr, KernelFormAttr, WindowsAttr],
)
