"""Choose how each kernel is tiled: tile extents, warps, matrix instruction.

Level: dispatch. Reads: the kernel's loop nest, its `candidate` (see set-candidate), the TargetSpec, the options below. Writes: the
attribute `config` on `dispatch.kernel`.
Leaves alone: kernels that have a `config` already.
"""

from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from treadle import machine, remarks
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.indexing import Contraction, Reduction
from treadle.analysis.loop_nest import Access, Axis, LoopNest, loop_nest
from treadle.dialects import dispatch
from treadle.ir.builtin import element_of
from treadle.ir.core import Attribute, BlockArgument, Operation
from treadle.ir.dialects import builtin
from treadle.ir.locations import location_of
from treadle.ir.passes import Context, Pass, register_pass
from treadle.machine.spec import BulkTensorCopy, MatrixInstruction, TargetSpec
from treadle.plan.expr import Expr, constant
from treadle.plan.role_tiles import ResultShape, RoleProblem, RoleTile, may_cluster, mixed_tiles
from treadle.plan.tile_candidates import TileProblem, nth_candidate
from treadle.plan.tile_config import (
    AxisShape,
    ContractionShape,
    ContractionTile,
    ContractionTypes,
    contraction_tile,
    contraction_types,
    halved,
    pointwise_tile,
    promotes,
    reduction_tile,
    resident_workgroups,
)
from treadle.transforms.kernel.set_candidate import candidate_of
from treadle.transforms.kernel.set_size_bounds import ANY_SIZE

NAME = "set-tile-config"


def static(size: Expr) -> int | None:
    """The size as a number, None where only the runtime knows it."""
    return size.as_int()


FILLS_A_TILE = 128
"""An axis as long as this is as good as any longer one; the innermost has the shortest strides."""


def main_axis(nest: LoopNest, role: str) -> int:
    """The axis of a role along which tiles lie: the innermost of those that fill one, else the largest; -1 where there is none.

    Unknown sizes count as large. Along k it is one that no scale depends on.
    """
    found = [i for i, axis in enumerate(nest.axes) if axis.role == role]
    kind = nest.computation
    if role == "k" and isinstance(kind, Contraction) and kind.scales:
        found = [i for i in found if nest.axes[i].dims[-1] in kind.inner]
    return max(found, key=lambda i: (min(static(nest.axes[i].size) or 1 << 30, FILLS_A_TILE), i), default=-1)


def is_one_step(nest: LoopNest, operand_bytes: int, spec: TargetSpec) -> bool:
    """Whether all of the main axis of k goes into one slot of a ring, so that the loop is along the other reduced axis."""
    reduced = [i for i, axis in enumerate(nest.axes) if axis.is_reduction]
    return len(reduced) == 2 and static(nest.axes[main_axis(nest, "k")].size) == spec.slot_row_bytes // operand_bytes


def axis_shape(nest: LoopNest, axis: Axis) -> AxisShape:
    """What the pointwise and reduction tilings need to know of an axis."""

    def total(accesses: list[Access]) -> int:
        return sum(_bytes_touched(nest, a) for a in accesses if nest.stride_along(a, axis) == constant(1))

    reads = [a for a in nest.accesses if not a.is_result]
    writes = [a for a in nest.accesses if a.is_result]
    return AxisShape(static(axis.size), axis.is_reduction, total(reads), total(writes))


def _bytes_touched(nest: LoopNest, access: Access) -> int:
    """Size of the array along the axes it depends on; unknown extents count as 4096."""
    extents = [static(axis.size) or 4096 for axis in nest.axes if nest.stride_along(access, axis) != constant(0)]
    return element_bytes(access.element) * prod(extents)


def _int(value: int) -> builtin.IntegerAttr[builtin.IntegerType]:
    return builtin.IntegerAttr(value, builtin.i64)


def role_refusal(nest: LoopNest, kind: Contraction, types: ContractionTypes, spec: TargetSpec) -> str | None:
    """Why a contraction cannot be computed by copying and computing warps, None where it can: the rules of bulk copies, known this
    early.
    """
    rules = spec.bulk_tensor
    if rules is None or types.instruction == "fma" or not spec.instruction(types.instruction).reads_shared:
        return "the machine has no bulk copies into buffers that its matrix instructions read"
    if sum(axis.is_reduction for axis in nest.axes) != 1 and not is_one_step(nest, operand_bytes(types), spec):
        return "not exactly one axis is reduced, nor one in steps of a whole slot"
    if any(static(size) == 0 for size in nest.dim_sizes):
        return "it is empty"
    row = spec.instruction(types.instruction)
    operands = ((kind.lhs, types.a, "m"), (kind.rhs, types.b, "n"))
    for which, root, (number, wanted, own) in ((w, r, o) for w, r in enumerate(nest.roots) for o in operands):
        value = root.inputs[number]
        found = [a for a in nest.accesses if (a.root, a.input_number) == (which, number)]
        if not isinstance(value, BlockArgument) or len(found) != 1:
            return f"operand {own} is computed inside the kernel"
        element = element_of(value.type)
        if str(element) != ("f32" if wanted == "tf32" else wanted):
            return f"operand {own} is converted from {element} to {wanted}"
        reason = _bulk_refusal(nest, found[0], own, rules, k_major_only=row.k_major_only)
        if reason is not None:
            return f"operand {own}: {reason}"
    return None


def _bulk_refusal(nest: LoopNest, access: Access, own: str, rules: BulkTensorCopy, *, k_major_only: bool) -> str | None:
    size = element_bytes(access.element)
    if access.align % rules.base_align_bytes or access.offset.divisor() * size % rules.base_align_bytes:
        return f"its base is not aligned to {rules.base_align_bytes} bytes"
    unit: set[str] = set()
    if (reason := beyond_descriptors(nest, access, rules)) is not None:
        return reason
    for number, axis in enumerate(nest.axes):
        stride = nest.stride_along(access, axis)
        if stride == constant(0):
            if axis.role in (own, "k"):
                return "it is broadcast"
        elif stride == constant(1):
            unit.add(axis.role if number in (main_axis(nest, own), main_axis(nest, "k")) else "other")
        elif stride.divisor() * size % rules.pitch_align_bytes:
            return f"a pitch of {stride} elements is not known to be a multiple of {rules.pitch_align_bytes} bytes"
    if unit != {"k"} and (k_major_only or unit != {own}):
        return "its unit-stride axis is not one that the instruction reads along"
    return None


def beyond_descriptors(nest: LoopNest, access: Access, rules: BulkTensorCopy) -> str | None:
    """Which size or pitch of an array no descriptor holds, None where all fit: runtime ones do where they are checked to fit 32 bits."""
    size = element_bytes(access.element)
    for axis in nest.axes:
        stride, extent = nest.stride_along(access, axis), static(axis.size)
        if stride == constant(0):
            continue
        if (extent is None and ANY_SIZE in nest.kernel.attributes) or (extent or 0) > rules.max_extent:
            return f"an extent of {axis.size} may be beyond {rules.max_extent}"
        if stride.as_int() is None and ANY_SIZE in nest.kernel.attributes:
            return f"a pitch of {stride} elements may be beyond {rules.max_pitch_bytes} bytes"
        if (stride.as_int() or 0) * size > rules.max_pitch_bytes:
            return f"a pitch of {stride} elements is beyond {rules.max_pitch_bytes} bytes"
    return None


def result_shape(nest: LoopNest, access: Access, spec: TargetSpec) -> ResultShape:
    """How a result can leave: in bulk where its rows lie along n and every row and pitch keeps the rules of descriptor copies."""
    size = element_bytes(access.element)
    rules, row_axis = spec.bulk_tensor, main_axis(nest, "n")
    if rules is None or row_axis < 0 or access.align % rules.base_align_bytes or access.offset.divisor() * size % rules.base_align_bytes:
        return ResultShape(size, False)
    if beyond_descriptors(nest, access, rules) is not None:
        return ResultShape(size, False)
    for number, axis in enumerate(nest.axes):
        stride = nest.stride_along(access, axis)
        if number == row_axis:
            fits = stride == constant(1) and axis.size.divisor() * size % rules.base_align_bytes == 0
        else:
            fits = stride.divisor() * size % rules.pitch_align_bytes == 0
        if not fits:
            return ResultShape(size, False)
    return ResultShape(size, True)


def reads_whole_tile(nest: LoopNest, access: Access) -> bool:
    """Whether something beside the operands is read in tiles as large as the result's (an initial value, a residual)."""
    rows, columns = main_axis(nest, "m"), main_axis(nest, "n")
    if access.is_result or access.input_number >= 0 or rows < 0 or columns < 0:
        return False
    return all(nest.stride_along(access, nest.axes[i]) != constant(0) for i in (rows, columns))


def role_problem(
    nest: LoopNest,
    kind: Contraction,
    row: MatrixInstruction,
    shape: ContractionShape,
    operand_bytes: int,
    spec: TargetSpec,
    promoted: bool,
) -> RoleProblem:
    """What a tile of a role kernel is chosen for; the kernel is one that `role_refusal` lets pass."""
    results = tuple(result_shape(nest, a, spec) for a in nest.accesses if a.is_result) + tuple(
        ResultShape(element_bytes(a.element), in_bulk=False, may_stay=True) for a in nest.accesses if reads_whole_tile(nest, a)
    )
    # An operand that is contiguous along n is copied and read in whole rows of a swizzle.
    along_n = any(nest.stride_along(a, nest.axes[main_axis(nest, "n")]) == constant(1) for a in nest.accesses if a.input_number == kind.rhs)
    n_step = spec.slot_row_bytes // operand_bytes if along_n else row.n_step
    # Bounds and addresses of runtime sizes take registers.
    fixed = not dispatch.texts(nest.kernel.symbols)
    plain = is_plain(nest)
    # Before the first tile a late one's place is behind the end of an array, along columns.
    late = shape.n is not None and shape.k is not None and (fixed or plain) and all(result.in_bulk for result in results)
    return RoleProblem(row, shape, operand_bytes, results, n_step, promoted, fixed and plain, may_be_late=late)


CASTS = frozenset({"arith.truncf", "arith.extf", "arith.extsi", "arith.trunci", "linalg.yield"})


def is_plain(nest: LoopNest) -> bool:
    """Whether nothing happens to the sums but casts."""
    return all(op.name in CASTS for consumer in nest.consumer_dims for region in consumer.regions for op in region.block.ops)


def _workgroups(
    persistent: str, tile: ContractionTile, shape: ContractionShape, spec: TargetSpec, *, has_roles: bool
) -> dict[str, Attribute]:
    """How many workgroups take the tiles in turn (0: one each), where the options say."""
    if persistent == "auto":
        return {}
    resident = 1 if has_roles else resident_workgroups(tile, shape, spec)
    return {"workgroups": _int(resident * spec.compute_units if persistent == "always" else 0)}


def _roles_text(roles: RoleTile) -> str:
    turns = " in turn" if roles.turns > 1 else " that store late" if roles.late else ""
    return f"; {roles.groups * roles.turns} computing groups{turns} fed through {roles.slots} slots by a copying one"


def _f32_parts(root: Operation) -> str:
    """The type of the parts of f32 operands that a contraction multiplies (see expand-f32-precision); "" for any other."""
    parts = root.attributes.get("treadle.f32_parts")
    return parts.data if isinstance(parts, builtin.StringAttr) else ""


def operand_bytes(types: ContractionTypes) -> int:
    """Bytes of an element of A as it is multiplied."""
    return {"tf32": 4, "f64": 8, "f32": 4, "i32": 4, "i64": 8, "f16": 2, "bf16": 2}.get(types.a, 1)


def reduced_size(nest: LoopNest) -> int | None:
    """Terms of each sum, None where only the runtime knows."""
    total = 1
    for axis in nest.axes:
        if axis.is_reduction:
            size = static(axis.size)
            if size is None:
                return None
            total *= size
    return total


def shared_operand(nest: LoopNest, kind: Contraction) -> Literal["a", "b"]:
    """The operand that all roots read."""
    return "b" if len({root.inputs[kind.lhs] for root in nest.roots}) > 1 else "a"


def _contraction_config(
    nest: LoopNest, kind: Contraction, spec: TargetSpec, options: "SetTileConfigPass", candidate: int
) -> tuple[dict[str, Attribute], str]:
    root = nest.root
    names = [str(element_of(v.type)) for v in (*root.inputs, root.op.results[0])]
    casts, parts = (kind.lhs_cast, kind.rhs_cast), _f32_parts(root.op)
    types = contraction_types(spec, names[kind.lhs], names[kind.rhs], names[-1], casts, parts == "tf32" or options.f32_precision == "tf32")
    wanted = parts != "" or (options.fp8_accumulation == "promoted" and types.a.startswith("f8"))
    promoted = bool(kind.scales) or promotes(spec, types.instruction, wanted)
    axes = {role: main_axis(nest, role) for role in ("m", "n", "k")}
    sizes = {role: static(nest.axes[i].size) if i >= 0 else 1 for role, i in axes.items()}
    batch: int | None = 1
    for i, axis in enumerate(nest.axes):
        if not axis.is_reduction and i not in (axes["m"], axes["n"]):
            size = static(axis.size)
            batch = None if size is None or batch is None else batch * size
    size_of_operand = operand_bytes(types)
    shape = ContractionShape(batch, sizes["m"], sizes["n"], reduced_size(nest), len(nest.roots), shared_operand(nest, kind))
    refused = role_refusal(nest, kind, types, spec)
    # Runtime sizes cost registers as threads' copies do: the same bounds and addresses. So do further results, held beside the first.
    crowded = refused is not None or bool(dispatch.texts(nest.kernel.symbols)) or sum(a.is_result for a in nest.accesses) > 1
    roles, why = options.asked_roles(), ""
    if options.tile_m:
        tile = contraction_tile(types, shape, spec, size_of_operand, through_registers=crowded, promoted=promoted)
        warps_m, warps_n = options.warps_m or tile.warps_m, options.warps_n or tile.warps_n
        tile = ContractionTile(options.tile_m, options.tile_n or tile.n, options.tile_k or tile.k, warps_m, warps_n, options.raster or 8)
        is_sequential = candidate > 0 and options.pipelined
    else:
        why, problem = (refused or "") if options.roles else "", None
        if options.roles and refused is None:
            problem = role_problem(nest, kind, spec.instruction(types.instruction), shape, size_of_operand, spec, promoted)
        tiles = TileProblem(
            types, shape, size_of_operand, problem, crowded, promoted, any(reads_whole_tile(nest, a) for a in nest.accesses)
        )
        found, is_sequential = nth_candidate(tiles, spec, candidate, pipelined=options.pipelined)
        tile, types = found.tile, found.types
        promoted = promoted and (bool(kind.scales) or types.instruction != "fma")
        if found.roles is not None:
            # The model saw the columns of one block of them only.
            several = sum(axis.role == "n" for axis in nest.axes) > 1
            tile = replace(tile, group=options.raster or (8 if several else tile.group))
            roles = replace(found.roles, late=options.late or found.roles.late, cluster=max(options.cluster, found.roles.cluster))
    mixed, why_mixed = None, ""
    if roles.narrow:
        row = None if refused else spec.instruction(types.instruction)
        problem = None if row is None else role_problem(nest, kind, row, shape, size_of_operand, spec, promoted)
        if problem is None or not problem.may_be_late or not roles.slots or options.persistent == "never" or min(axes["m"], axes["n"]) < 0:
            why_mixed = "workgroups do not take tiles in turn whose results leave in boxes"
        else:
            mixed = mixed_tiles(replace(roles, m=tile.m, n=tile.n), problem, spec)
            if mixed is None:
                why_mixed = "results do not leave late, their boxes are wider, or such tiles do not fill the last round"
    config: dict[str, Attribute] = {
        "kind": builtin.StringAttr("contraction"),
        "instruction": builtin.StringAttr(types.instruction),
        "a_type": builtin.StringAttr(types.a),
        "b_type": builtin.StringAttr(types.b),
        "accumulator_type": builtin.StringAttr(types.accumulator),
        "num_warps": _int(tile.num_warps),
        "warps_m": _int(tile.warps_m),
        "warps_n": _int(tile.warps_n),
        "tile_m": _int(tile.m),
        "tile_n": _int(tile.n),
        "tile_k": _int(tile.k),
        "group": _int(tile.group),
        **{f"{role}_axis": _int(i) for role, i in axes.items()},
        **({"groups": _int(roles.groups)} if roles.groups > 1 else {}),
        **({"stages": _int(roles.slots)} if roles.slots else {}),
        **({"turns": _int(roles.turns)} if roles.slots and roles.turns > 1 else {}),
        **({"pending": _int(roles.pending)} if roles.slots and roles.pending else {}),
        **({"late": _int(1)} if roles.slots and roles.late else {}),
        **({"cluster": _int(roles.cluster)} if roles.slots and may_cluster(roles, tile.group, shape) else {}),
        **({"blocks": builtin.DenseArrayBase.from_list(builtin.i64, mixed.numbers())} if mixed is not None else {}),
        **({"promoted": _int(1)} if promoted else {}),
        **({"sequential": _int(1)} if is_sequential else {}),
        **({"drained": _int(1)} if candidate and not roles.slots and spec.async_matrix else {}),
        **_workgroups(options.persistent, tile, shape, spec, has_roles=roles.slots > 0),
    }
    extents = "x".join(str(nest.axes[i].size) if i >= 0 else "1" for i in axes.values())
    what_roles = _roles_text(roles) if roles.slots else f"; no roles: {why}" if why else ""
    if mixed is not None:
        count = mixed.tiles - mixed.first_narrow
        what_roles += f"; {count} of {mixed.tiles} tiles have {mixed.narrow} columns, which fills the last round"
    elif why_mixed:
        what_roles += f"; no tiles of {roles.narrow} columns: {why_mixed}"
    sums = f"{types.accumulator}, promoted every {tile.k} along k" if promoted else types.accumulator
    what = f"{shape.sums} contractions" if shape.sums > 1 else "contraction"
    return config, (
        f"{what} {extents}, operands {types.a} and {types.b}, sums in {sums}: tile {tile.m}x{tile.n}x{tile.k}, "
        f"{tile.warps_m}x{tile.warps_n} warps, instruction {types.instruction}{what_roles}"
    )


def _axis_config(nest: LoopNest, spec: TargetSpec, candidate: int) -> tuple[dict[str, Attribute], str]:
    shapes = tuple(axis_shape(nest, axis) for axis in nest.axes)
    if nest.kind == "elementwise":
        largest = max((element_bytes(a.element) for a in nest.accesses), default=4)
        tile, num_warps = pointwise_tile(shapes, largest, spec)
    else:
        kind = nest.computation
        separable = (isinstance(kind, Reduction) and all(kind.combiners)) or isinstance(kind, Contraction)
        tile, num_warps = reduction_tile(shapes, spec, separable) if shapes else ((), 1)
    tile = halved(tile, candidate)
    config: dict[str, Attribute] = {
        "kind": builtin.StringAttr(nest.kind),
        "tile": builtin.DenseArrayBase.from_list(builtin.i64, list(tile)),
        "num_warps": _int(num_warps),
    }
    extents = "x".join(str(axis.size) for axis in nest.axes) or "scalar"
    return config, f"{nest.kind} over {extents}: tile {'x'.join(map(str, tile)) or '1'}, {num_warps} warps"


@register_pass
@dataclass(frozen=True)
class SetTileConfigPass(Pass):
    """`target` names the machine; `tile_m` and so on override the choice for contractions (0: choose).

    `groups`: groups of warps in a workgroup, each with a tile of its own; `ring`: slots between copying and computing roles (0: no
    roles); `turns`, `pending`, `late`, `cluster`, `narrow`: see `RoleTile`. `roles`: form roles wherever the rules allow. `raster`: rows
    of tiles walked together.
    `pipelined`: set-pipeline will decide about the kernel's loops; candidates behind the best then go without (`sequential`).
    `persistent`: whether workgroups take tiles in turn ("always", "never"; "auto": those with roles do).
    """

    name = "set-tile-config"
    target: str
    f32_precision: str = "ieee"
    fp8_accumulation: str = "fast"
    tile_m: int = 0
    tile_n: int = 0
    tile_k: int = 0
    warps_m: int = 0
    warps_n: int = 0
    groups: int = 1
    ring: int = 0
    roles: bool = True
    turns: int = 1
    pending: int = 0
    raster: int = 0
    persistent: str = "auto"
    late: bool = False
    cluster: int = 1
    narrow: int = 0
    pipelined: bool = False

    def asked_roles(self) -> RoleTile:
        """The roles that the options ask for where they name a tile; no slots: none."""
        extents = (self.tile_m, self.tile_n, self.tile_k)
        how = (self.groups, self.ring, self.turns, self.pending)
        return RoleTile(*extents, 0, *how, late=self.late, cluster=self.cluster, narrow=self.narrow)

    def apply(self, ctx: Context, module: builtin.ModuleOp) -> None:
        spec = machine.target_spec(self.target)
        for op in module.body.block.ops:
            if not isinstance(op, dispatch.KernelOp) or "config" in op.attributes:
                continue
            nest = loop_nest(op)
            if isinstance(nest.computation, Contraction):
                config, text = _contraction_config(nest, nest.computation, spec, self, candidate_of(op))
            else:
                config, text = _axis_config(nest, spec, candidate_of(op))
            op.attributes["config"] = builtin.DictionaryAttr(config)
            remarks.emit("decision", self.name, op.sym_name.data, text, location_of(nest.root.op))
