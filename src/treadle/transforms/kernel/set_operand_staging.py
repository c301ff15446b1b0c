"""set-operand-staging: by which path and in which shared layout the operands of a contraction reach it.

Level: tile. Reads: tile.contract with register operands, the loads behind them, the kernel's form, the machine's copies and instructions.
Writes: attribute `staging` of tile.contract: `{a = {path, layout}, b = {path, layout}}` with path "bulk_tensor", in forms with roles that
of the machine's copies by all threads, elsewhere that of copies whose lanes fill neighbouring places, or "threads", and layout a
`#tile.shared_layout`, or path "registers", "slot" or "fragments" alone: operands that are loaded from a shared buffer are read there by the
instruction, or loaded as fragments where it reads registers. Leaves alone: contractions whose operands are in shared memory already; paths
that `staging` names already.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from treadle.analysis.operand_sources import chained_contraction, source_load
from treadle.analysis.view_access import access_facts, is_zero, view_op
from treadle.dialects import tile
from treadle.dialects.tile_attributes import SharedLayoutAttr, is_shared
from treadle.errors import InternalError
from treadle.ir.core import Attribute
from treadle.ir.dialects import builtin, scf
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.layout.shared_layout import SharedLayout
from treadle.layout.tile_layout import TileLayout
from treadle.machine import MatrixInstruction, TargetSpec
from treadle.plan.f32_split import ROUNDED
from treadle.plan.folded_copies import folded_refusal
from treadle.plan.layout_choice import GlobalAccess, shared_cost
from treadle.plan.staging import bulk_refusal, descriptor_layout, fits_swizzle, linear_buffer, linear_refusal, piece_width, register_buffer
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.kernel.forms import roles, split_operands
from treadle.transforms.kernel.forms.registry import config_of
from treadle.transforms.kernel.free_layouts import filled_by, is_kept_until, settle_layout
from treadle.transforms.kernel.kernel_ir import KernelPass, num_warps
from treadle.transforms.kernel.operand_copies import Operand, in_pieces
from treadle.transforms.kernel.operand_layouts import SOURCE, STAGING, THREADS, contract_layouts, staging_of


def _bulk_refusal(operand: Operand, row: MatrixInstruction | None, spec: TargetSpec) -> str | None:
    load = operand.load
    if spec.bulk_tensor is None:
        return f"{spec.name} has no descriptor copies"
    if row is None or not row.may_read(1 - operand.k_dim, "shared"):
        return "the operands are read as register fragments"
    if load is None or load.result is not operand.value:
        return "the operand is computed, not loaded"
    if not is_zero(load.other):
        return "elements outside the array are not zero"
    along = operand.contiguous
    dims = tile.ints(load.dims)
    if along is not None and along != operand.k_dim and row.k_major_only:
        return f"{row.name} reads operands that are contiguous along k only"
    if along is not None and not fits_swizzle(operand.shape[along], operand.bytes, spec.bulk_tensor.swizzle_bytes):
        return f"rows of {operand.shape[along] * operand.bytes} bytes fill no swizzle"
    facts = access_facts(load.view, tuple(load.offsets), dims, operand.shape)
    if (windows := view_op(load.view).folding) is not None:
        if along is None:
            return "no dimension of the tile has unit stride"
        return folded_refusal(windows, facts, (dims[1 - along], dims[along]), operand.shape[1 - along], spec.bulk_tensor)
    return bulk_refusal(facts, None if along is None else dims[along], spec.bulk_tensor)


def _piece_path(operand: Operand, row: MatrixInstruction | None, kernel: tile.KernelOp, spec: TargetSpec) -> tuple[str, int]:
    """The path of copies by all threads and the bytes of their pieces, where a role can fill its ring so with an operand that no
    descriptor copy brings; ("", 0) where it cannot.
    """
    queue, load = spec.queue_for("copy_in"), operand.load
    if queue is None or row is None or not isinstance(config_of(kernel), roles.Config) or not row.may_read(1 - operand.k_dim, "shared"):
        return "", 0
    if load is None or load.result is not operand.value or not is_zero(load.other) or operand.contiguous is None:
        return "", 0
    if view_op(load.view).folding is not None:
        return "", 0
    turned = operand.contiguous != operand.k_dim and row.k_major_only
    along = operand.k_dim if turned else operand.contiguous
    if spec.bulk_tensor is None or not fits_swizzle(operand.shape[along], operand.bytes, spec.bulk_tensor.swizzle_bytes):
        return "", 0
    if turned:  # each element goes to its place
        return (queue.path, operand.bytes) if operand.bytes in queue.piece_bytes else ("", 0)
    dims = tile.ints(load.dims)
    facts = access_facts(load.view, tuple(load.offsets), dims, operand.shape)
    width = piece_width(facts, dims[operand.contiguous], queue)
    return (queue.path, width) if width else ("", 0)


def _pieces_text(width: int, spec: TargetSpec) -> str:
    queue = spec.queue_for("copy_in")
    return f"copied in pieces of {width} bytes" if queue is not None and width in queue.piece_bytes else "loaded and shifted into place"


def _layout(
    operand: Operand, row: MatrixInstruction | None, fragment: TileLayout | None, k_step: int, kernel: tile.KernelOp, spec: TargetSpec
) -> SharedLayout:
    if row is not None and row.may_read(1 - operand.k_dim, "shared"):
        swizzles = spec.bulk_tensor.swizzle_bytes if spec.bulk_tensor is not None else (128, 64, 32)
        fastest = operand.contiguous
        if fastest is None or row.k_major_only or not fits_swizzle(operand.shape[fastest], operand.bytes, swizzles):
            fastest = operand.k_dim
        return descriptor_layout(operand.shape, (fastest, 1 - fastest), operand.bytes, swizzles)
    if fragment is None:
        raise InternalError("a register instruction without fragment layouts")
    vector = operand.load.vector.value.data if operand.load is not None else 1
    access = GlobalAccess(operand.contiguous, vector, operand.bytes)
    steps = operand.shape[operand.k_dim] // k_step
    layout, _ = register_buffer(operand.shape, access, fragment, steps, spec.subgroup_size, num_warps(kernel), spec.banks)
    return layout


def _in_order(
    operand: Operand, fragment: TileLayout | None, threads: SharedLayout, kernel: tile.KernelOp, spec: TargetSpec, *, asked: bool
) -> SharedLayout | str:
    """The layout in which lanes that fill neighbouring places bring an operand, or why they do not. `threads`: where threads put it.

    A piece takes two instructions of a lane, its place and the copy, as a vector that goes through registers does: a load and a store.
    """
    queue, load = spec.queue_for("copy_in"), operand.load
    if queue is None or not queue.lane_bytes:
        return f"{spec.name} has no such copies"
    if load is None or load.result is not operand.value or fragment is None:
        return "the operand is computed, not loaded"
    if not is_zero(load.other):
        return "elements outside the array are not zero"
    along, dims, size = operand.contiguous, tile.ints(load.dims), operand.bytes
    vector_bytes = load.vector.value.data * size
    facts = access_facts(load.view, tuple(load.offsets), dims, operand.shape)
    refusal = linear_refusal(facts, None if along is None else dims[along], vector_bytes, queue.lane_bytes)
    if refusal is not None or along is None:
        return refusal or ""
    piece = max(width for width in queue.lane_bytes if width <= vector_bytes)
    if piece < vector_bytes and not asked:
        return f"copies move {piece} bytes at once, loads {vector_bytes}"
    layout = linear_buffer(operand.shape, along, size, fragment, piece // size, spec.subgroup_size, num_warps(kernel), spec.banks)
    if layout is None:
        return f"{num_warps(kernel)} warps cannot fill the tile in order"
    if shared_cost(fragment, layout, size, spec.banks) > shared_cost(fragment, threads, size, spec.banks) and not asked:
        return "its fragments would be read in narrower pieces"
    return layout


def _other_load(contracts: Collection[tile.ContractOp]) -> tile.LoadOp | None:
    """A load in a loop of a contraction that is more than the operand of one."""
    loops = {op.parent_op() for op in contracts}
    return next(
        (
            load
            for loop in loops
            if isinstance(loop, scf.ForOp)
            for load in loop.body.walk()
            if isinstance(load, tile.LoadOp) and any(use.operation not in contracts for use in load.result.uses)
        ),
        None,
    )


def _stays(operand: Operand, row: MatrixInstruction | None, fragment: TileLayout | None, kernel: tile.KernelOp, spec: TargetSpec) -> bool:
    """Whether an operand that may come from registers is computed from another contraction's result whose threads hold what they read."""
    if row is None or fragment is None or not row.reads_shared or not row.may_read(1 - operand.k_dim, "registers"):
        return False
    source = chained_contraction(operand.value)
    if source is None or source.instruction.data in ("", "fma"):
        return False
    held = contract_layouts(source, kernel, spec).accumulator
    return (held.lane, held.warp) == (fragment.lane, fragment.warp)


def _split_source(
    operand: Operand, row: MatrixInstruction | None, kernel: tile.KernelOp, spec: TargetSpec
) -> builtin.DictionaryAttr | None:
    """How hardware copies bring what an operand's parts are computed from, or what is rounded; None where they cannot. The instruction
    does not read it there.
    """
    if row is None or operand.load is None or (operand.load.result is operand.value) != (row.a_type == ROUNDED):
        return None
    whole, row = replace(operand, value=operand.load.result), replace(row, k_major_only=False)
    path = tile.BULK_TENSOR if _bulk_refusal(whole, row, spec) is None else _piece_path(whole, row, kernel, spec)[0]
    layout = SharedLayoutAttr(_layout(whole, row, None, 0, kernel, spec))
    return builtin.DictionaryAttr({"path": builtin.StringAttr(path), "layout": layout}) if path else None


def _split_staging(
    operand: Operand,
    source: builtin.DictionaryAttr,
    row: MatrixInstruction | None,
    fragment: TileLayout | None,
    k_step: int,
    kernel: tile.KernelOp,
    spec: TargetSpec,
) -> builtin.DictionaryAttr:
    """A's parts stay in registers, B's are stored by the threads."""
    if operand.name == "a":
        return builtin.DictionaryAttr({"path": builtin.StringAttr("registers"), SOURCE: source})
    layout = SharedLayoutAttr(_layout(operand, row, fragment, k_step, kernel, spec))
    return builtin.DictionaryAttr({"path": builtin.StringAttr(THREADS), "layout": layout, SOURCE: source})


@register_pass
@dataclass(frozen=True)
class SetOperandStagingPass(KernelPass):
    """Decides path and shared layout of contraction operands."""

    name = "set-operand-staging"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Write `staging` on every contraction with register operands."""
        contracts = [
            op
            for op in kernel.body.walk()
            if isinstance(op, tile.ContractOp) and not is_shared(op.a.type) and not is_shared(op.b.type) and op.instruction.data
        ]
        asked = {op: tuple(staging_of(op, name)[0] for name in "ab") for op in contracts}
        for op in contracts:
            self._decide(op, kernel, spec)
        queue = spec.queue_for("copy_in")
        if queue is not None and queue.lane_bytes and contracts:
            self._fill_in_order(kernel, spec, asked, queue.path)
        if queue is not None and queue.piece_bytes and contracts:
            self._fill_by_pieces(kernel, spec, asked, queue.path)

    def _fill_by_pieces(self, kernel: tile.KernelOp, spec: TargetSpec, asked: Mapping[tile.ContractOp, tuple[str, ...]], path: str) -> None:
        """Let copies of the threads bring what multiply-adds read, where they can bring it all."""
        found: dict[tile.ContractOp, builtin.DictionaryAttr] = {}
        if _other_load(asked) is not None:
            return
        for op, paths in asked.items():
            layouts = contract_layouts(op, kernel, spec)
            entries: dict[str, Attribute] = {}
            for (name, value, k_dim, fragment), one in zip((("a", op.a, 1, layouts.a), ("b", op.b, 0, layouts.b)), paths, strict=True):
                operand = Operand(name, value, k_dim, source_load(value))
                if op.instruction.data != "fma" or staging_of(op, name)[0] != THREADS or one == THREADS or fragment is None:
                    return
                layout = in_pieces(operand, fragment, layouts.k_step, num_warps(kernel), spec)
                if isinstance(layout, str):
                    subject = f"{kernel.sym_name.data}: operand {name}"
                    emit("note", self.name, subject, f"not brought by copies: {layout}", location_of(op))
                    return
                entries[name] = builtin.DictionaryAttr({"path": builtin.StringAttr(path), "layout": SharedLayoutAttr(layout)})
            found[op] = builtin.DictionaryAttr(entries)
        for op, staging in found.items():
            op.attributes[STAGING] = staging
            emit("decision", self.name, f"{kernel.sym_name.data}: operands", f"brought by copies ('{path}')", location_of(op))

    def _fill_in_order(self, kernel: tile.KernelOp, spec: TargetSpec, asked: Mapping[tile.ContractOp, tuple[str, ...]], path: str) -> None:
        """Let copies bring what threads would, where they can bring it all: a loop overlaps by the ones or by the others."""
        found: dict[tile.ContractOp, builtin.DictionaryAttr] = {}
        if (other := _other_load(asked)) is not None:
            text = "operands not brought by copies: they would overlap, and this load would not"
            emit("note", self.name, kernel.sym_name.data, text, location_of(other))
            return
        for op, paths in asked.items():
            if op.instruction.data == "fma":
                return
            layouts = contract_layouts(op, kernel, spec)
            entries: dict[str, Attribute] = {}
            for (name, value, k_dim, fragment), one in zip((("a", op.a, 1, layouts.a), ("b", op.b, 0, layouts.b)), paths, strict=True):
                chosen, threads = staging_of(op, name)
                operand = Operand(name, value, k_dim, source_load(value))
                if chosen != THREADS or threads is None or one == THREADS:
                    return
                layout = _in_order(operand, fragment, threads, kernel, spec, asked=one == path)
                if isinstance(layout, str):
                    subject = f"{kernel.sym_name.data}: operand {name}"
                    emit("note", self.name, subject, f"not brought by copies: {layout}", location_of(op))
                    return
                entries[name] = builtin.DictionaryAttr({"path": builtin.StringAttr(path), "layout": SharedLayoutAttr(layout)})
            found[op] = builtin.DictionaryAttr(entries)
        for op, staging in found.items():
            op.attributes[STAGING] = staging
            emit("decision", self.name, f"{kernel.sym_name.data}: operands", f"brought by copies ('{path}')", location_of(op))

    def _lies_in_slot(
        self, operand: Operand, row: MatrixInstruction | None, k_step: int, op: tile.ContractOp, kernel: tile.KernelOp, spec: TargetSpec
    ) -> bool:
        """Whether an operand is loaded from a shared buffer that the instruction can read by itself, where that changes nothing."""
        load = operand.value.owner
        if row is None or not row.may_read(1 - operand.k_dim, "shared") or not isinstance(load, tile.LocalLoadOp) or load.peer is not None:
            return False
        wanted: list[SharedLayout] = []

        def choose(source: tile.LoadOp | None) -> SharedLayout:
            wanted.append(_layout(replace(operand, load=source), row, None, k_step, kernel, spec))
            return wanted[0]

        if any(tile.ints(load.offsets)) or not is_kept_until(load, op):
            return False
        settle_layout(operand.value, choose)
        found = tile.shared_layout_of(load.source)
        return bool(wanted) or found == _layout(replace(operand, load=filled_by(operand.value)), row, None, k_step, kernel, spec)

    def _decide(self, op: tile.ContractOp, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        row = None if op.instruction.data == "fma" else spec.instruction(op.instruction.data)
        layouts = contract_layouts(op, kernel, spec)
        staging: dict[str, Attribute] = {}
        for name, value, k_dim, fragment in (("a", op.a, 1, layouts.a), ("b", op.b, 0, layouts.b)):
            operand = Operand(name, value, k_dim, source_load(value))
            subject = f"{kernel.sym_name.data}: operand {name}"
            asked, _ = staging_of(op, name)
            if isinstance(value.owner, tile.LocalLoadOp) and (row is None or not row.may_read(1 - k_dim, "shared")) and not asked:
                staging[name] = builtin.DictionaryAttr({"path": builtin.StringAttr("fragments")})
                k_step = layouts.k_step

                def choose(
                    load: tile.LoadOp | None, operand: Operand = operand, fragment: TileLayout | None = fragment, k_step: int = k_step
                ) -> SharedLayout:
                    return _layout(replace(operand, load=load), row, fragment, k_step, kernel, spec)

                settle_layout(value, choose)
                emit("decision", self.name, subject, "loaded as fragments from the shared buffer that it lies in", location_of(op))
                continue
            if not asked and self._lies_in_slot(operand, row, layouts.k_step, op, kernel, spec):
                staging[name] = builtin.DictionaryAttr({"path": builtin.StringAttr("slot")})
                emit("decision", self.name, subject, "read where it lies in shared memory", location_of(op))
                continue
            if isinstance(config_of(kernel), split_operands.Config) and (source := _split_source(operand, row, kernel, spec)) is not None:
                staging[name] = _split_staging(operand, source, row, fragment, layouts.k_step, kernel, spec)
                continue
            stays = _stays(operand, row, fragment, kernel, spec)
            if stays and asked in ("", "registers"):
                staging[name] = builtin.DictionaryAttr({"path": builtin.StringAttr("registers")})
                emit("decision", self.name, subject, "read from registers, where another contraction left it", location_of(op))
                continue
            if asked == "registers":
                emit(
                    "refusal", self.name, subject, "not read from registers: the threads do not hold what they would read", location_of(op)
                )
            refusal = "the threads are asked for" if asked == THREADS else _bulk_refusal(operand, row, spec)
            piece_path, width = _piece_path(operand, row, kernel, spec) if refusal and asked != THREADS else ("", 0)
            path = piece_path or (THREADS if refusal else "bulk_tensor")
            how = f"{_pieces_text(width, spec)} by the producer's threads" if width else "staged by the threads"
            layout = _layout(operand, row, fragment, layouts.k_step, kernel, spec)
            staging[name] = builtin.DictionaryAttr({"path": builtin.StringAttr(path), "layout": SharedLayoutAttr(layout)})
            if refusal and spec.bulk_tensor is not None:
                emit("refusal", self.name, subject, f"descriptor copy refused: {refusal}; {how}", location_of(op))
            else:
                emit(
                    "decision",
                    self.name,
                    subject,
                    f"staged by {'descriptor copy' if path == 'bulk_tensor' else 'the threads'}",
                    location_of(op),
                )
        op.attributes[STAGING] = builtin.DictionaryAttr(staging)
