"""set-small-tile-config: how contractions with one side of at most 64 are computed, which are bound by reading the large operand once.

Level: dispatch. Reads: the kernel's loop nest, its `candidate` (see set-candidate), the TargetSpec, the options. Writes: the attribute
`config` on `dispatch.kernel`, with `form` "streaming", "swapped" (operands exchanged) or "narrow"; where none of these is left, the
`candidate` of set-tile-config. Leaves alone: kernels with a config, all others (set-tile-config decides).

The choice itself is `plan/small_m.py`.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from math import prod
from typing import Literal

from treadle import machine, remarks
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.indexing import Contraction
from treadle.analysis.loop_nest import Access, LoopNest, loop_nest
from treadle.dialects import dispatch
from treadle.ir.builtin import element_of
from treadle.ir.core import Attribute
from treadle.ir.dialects import builtin
from treadle.ir.locations import location_of
from treadle.ir.passes import Context, Pass, register_pass
from treadle.machine.spec import TargetSpec
from treadle.options import Form
from treadle.plan.expr import constant
from treadle.plan.small_m import (
    MOST_ROWS,
    SmallShape,
    StreamTile,
    SwappedTile,
    stream_clocks,
    stream_refusal,
    stream_tiles,
    swapped_clocks,
    swapped_tile,
)
from treadle.plan.tile_config import ContractionTypes, contraction_types, promotes
from treadle.transforms.kernel.set_candidate import ask_for_candidate, candidate_of
from treadle.transforms.kernel.set_tile_config import main_axis, role_refusal, static

NAME = "set-small-tile-config"

LEAST_BYTES = 1 << 18
"""Smaller operands are there before a launch is: tiles serve."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the options ask for: the form, tile extents along m, n and k (0: choose), warps, steps or slots under way, and how many
    workgroups fetch the small operand together.
    """

    form: Form = "auto"
    tile: tuple[int, int, int] = (0, 0, 0)
    warps: int = 0
    ahead: int = 0
    cluster: int = 1


@dataclass(frozen=True, slots=True)
class Choice:
    """One form's entries of `config`, the words for it, and its modelled time."""

    config: dict[str, Attribute]
    text: str
    clocks: float


@dataclass(frozen=True, slots=True)
class Sides:
    """A contraction's small and large side: roles of their axes, input numbers of their operands."""

    few_role: Literal["m", "n"]
    few_axis: int
    many_axis: int
    k_axis: int
    small: int
    large: int


def sides_of(kind: Contraction, axes: Mapping[str, int], sizes: Mapping[str, int | None]) -> Sides | None:
    """Which side is small; None where none is known to be."""
    known = {role: size for role in ("m", "n") if (size := sizes[role]) is not None and size <= MOST_ROWS}
    if not known or axes["k"] < 0:
        return None
    if min(known, key=lambda role: known[role]) == "m":
        return Sides("m", axes["m"], axes["n"], axes["k"], kind.lhs, kind.rhs)
    return Sides("n", axes["n"], axes["m"], axes["k"], kind.rhs, kind.lhs)


def _read(nest: LoopNest, number: int) -> Access | None:
    """How the first root reads an input; None where that is computed from several arrays, or roots read it in other ways."""
    found = [[a for a in nest.accesses if a.input_number == number and a.root == root] for root in range(len(nest.roots))]
    first = found[0][0] if found[0] else None
    alike = all(len(f) == 1 and (f[0].strides, f[0].element) == (found[0][0].strides, found[0][0].element) for f in found)
    return first if alike else None


def _vector(nest: LoopNest, access: Access, along: int, spec: TargetSpec) -> int:
    """Elements of an operand that may be loaded at once along an axis: no address leaves their alignment."""
    size = element_bytes(access.element)
    limit = min(spec.max_vector_bytes, access.align) // size
    limit = min(limit, access.offset.divisor())
    for number, axis in enumerate(nest.axes):
        stride = nest.stride_along(access, axis)
        if number != along and stride != constant(0):
            limit = min(limit, stride.divisor())
    return max(1, min(limit, nest.axes[along].size.divisor()))


def small_shape(
    nest: LoopNest, sides: Sides, types: ContractionTypes, sizes: Mapping[str, int | None], spec: TargetSpec
) -> SmallShape | None:
    """The contraction as the model sees it; None where an operand is not one array, or the large one has no large axis."""
    large, small = _read(nest, sides.large), _read(nest, sides.small)
    if large is None or small is None or sides.many_axis < 0:
        return None
    if len({root.inputs[sides.small] for root in nest.roots}) > 1:
        return None
    axes = {sides.many_axis: "many", sides.k_axis: "k"}
    unit = next((a for a in axes if nest.stride_along(large, nest.axes[a]) == constant(1)), None)
    others = [a.size.as_int() for i, a in enumerate(nest.axes) if not a.is_reduction and i not in (sides.few_axis, sides.many_axis)]
    many_role = "n" if sides.few_role == "m" else "m"
    sums = 8 if types.accumulator in ("f64", "i64") else 4
    return SmallShape(
        sizes[sides.few_role] or 1,
        sizes[many_role],
        sizes["k"],
        element_bytes(large.element),
        element_bytes(small.element),
        sums,
        unit != sides.many_axis,
        1 if unit is None else _vector(nest, large, unit, spec),
        prod(size or 1 for size in others),
        len(nest.roots),
    )


def _int(value: int) -> builtin.IntegerAttr[builtin.IntegerType]:
    return builtin.IntegerAttr(value, builtin.i64)


def _streaming(sides: Sides, shape: SmallShape, types: ContractionTypes, wish: Wish, spec: TargetSpec) -> Choice | None:
    """None where no workgroup's side fits the large operand."""
    asked = wish.tile if sides.few_role == "m" else (wish.tile[1], wish.tile[0], wish.tile[2])
    tile = next(iter(stream_tiles(shape, spec)), None)
    if tile is None:
        return None
    if any(asked) or wish.warps or wish.ahead:
        tile = StreamTile(shape.few, asked[1] or tile.many, asked[2] or tile.k, wish.ahead or tile.ahead, wish.warps or tile.warps)
    m, n = (tile.few, tile.many) if sides.few_role == "m" else (tile.many, tile.few)
    config: dict[str, Attribute] = {
        "kind": builtin.StringAttr("contraction"),
        "form": builtin.StringAttr("streaming"),
        "instruction": builtin.StringAttr("fma"),
        "accumulator_type": builtin.StringAttr(types.accumulator),
        "num_warps": _int(tile.warps),
        "tile_m": _int(m),
        "tile_n": _int(n),
        "tile_k": _int(tile.k),
        "ahead": _int(tile.ahead),
        "large": _int(sides.large),
        "small": _int(sides.small),
    }
    text = (
        f"streamed: the operand of {shape.many or 'many'} rows passes once through registers, tile {m}x{n}x{tile.k}, {tile.ahead} steps of "
        f"{shape.vector * shape.large_bytes} bytes a load under way, {tile.warps} warps"
    )
    return Choice(config, text, stream_clocks(tile, shape, spec))


def _may_cluster(cluster: int, tile: SwappedTile, shape: SmallShape) -> bool:
    """Whether consecutive tiles always have one set of columns, and whole clusters cover them."""
    return shape.many is not None and shape.few <= tile.few and (-(-shape.many // tile.step)) % cluster == 0


def _swapped(sides: Sides, shape: SmallShape, types: ContractionTypes, wish: Wish, spec: TargetSpec, *, promoted: bool) -> Choice | None:
    many_wish = wish.tile[1] if sides.few_role == "m" else wish.tile[0]
    # Promoted sums are added up once a slot: it stays short.
    k = wish.tile[2] or (spec.slot_row_bytes // shape.large_bytes if promoted else 0)
    tile = swapped_tile(spec.instruction(types.instruction), shape, spec, many_wish, k)
    if tile is None:
        return None
    if wish.ahead:
        tile = replace(tile, slots=wish.ahead)
    is_swapped = sides.few_role == "m"
    config: dict[str, Attribute] = {
        "kind": builtin.StringAttr("contraction"),
        "form": builtin.StringAttr("swapped" if is_swapped else "narrow"),
        "instruction": builtin.StringAttr(types.instruction),
        "a_type": builtin.StringAttr(types.b if is_swapped else types.a),
        "b_type": builtin.StringAttr(types.a if is_swapped else types.b),
        "accumulator_type": builtin.StringAttr(types.accumulator),
        "num_warps": _int(tile.warps),
        "warps_m": _int(tile.warps),
        "warps_n": _int(1),
        "tile_m": _int(tile.rows),
        "tile_n": _int(tile.few),
        "tile_k": _int(tile.k),
        "group": _int(1),
        "stages": _int(tile.slots),
        **({"cluster": _int(wish.cluster)} if wish.cluster > 1 and _may_cluster(wish.cluster, tile, shape) else {}),
        **({"promoted": _int(1)} if promoted else {}),
        **({"split_axis": _int(sides.many_axis), "split_step": _int(tile.step)} if tile.step < tile.rows else {}),
    }
    tiles = "" if shape.many is None else f", {-(-shape.batch * shape.many // tile.step)} tiles for {spec.compute_units} units"
    kilobytes = shape.roots * tile.slots * tile.step * tile.k * shape.large_bytes // 1024
    text = (
        f"{'swapped operands' if is_swapped else 'narrow tiles'}: the large one on the instruction's side of {tile.rows}, {tile.step} "
        f"rows a tile{tiles}; tile {tile.rows}x{tile.few}x{tile.k}, a ring of {tile.slots} slots keeps {kilobytes} KiB of it under way"
    )
    return Choice(config, text, swapped_clocks(tile, shape, spec))


def _with_axes(
    form: Choice,
    nest: LoopNest,
    sides: Sides,
    shape: SmallShape,
    types: ContractionTypes,
    axes: Mapping[str, int],
    names: tuple[str, str],
    spec: TargetSpec,
) -> tuple[dict[str, Attribute], str]:
    """A form's whole config, and the words for it. `names`: element types of the operands."""
    is_swapped = form.config["form"] == builtin.StringAttr("swapped")
    placed = {**axes, "m": axes["n"], "n": axes["m"]} if is_swapped else axes
    config = {
        **form.config,
        **{f"{role}_axis": _int(axis) for role, axis in placed.items()},
        "small_shape": builtin.DenseArrayBase.from_list(builtin.i64, [-1 if v is None else int(v) for v in astuple(shape)]),
    }
    extents = "x".join(str(nest.axes[i].size) if i >= 0 else "1" for i in axes.values())
    return config, (
        f"contraction {extents}, operands {names[0]} and {names[1]}, sums in {types.accumulator}: {form.text}; "
        f"{form.clocks / spec.clock_mhz:.1f} us modelled"
    )


@register_pass
@dataclass(frozen=True)
class SetSmallTileConfigPass(Pass):
    """`target` names the machine; the rest is as in `CompileOptions`: `form`, tile extents, warps, slots or steps under way (`ring`),
    `cluster`; `fp8_accumulation` and `f32_precision` decide about types, `roles` allows swapped kernels.
    """

    name = NAME
    target: str
    f32_precision: str = "ieee"
    fp8_accumulation: str = "fast"
    form: Form = "auto"
    tile_m: int = 0
    tile_n: int = 0
    tile_k: int = 0
    warps: int = 0
    ring: int = 0
    roles: bool = True
    cluster: int = 1

    def apply(self, ctx: Context, module: builtin.ModuleOp) -> None:
        spec = machine.target_spec(self.target)
        wish = Wish(self.form, (self.tile_m, self.tile_n, self.tile_k), self.warps, self.ring, self.cluster)
        if self.form == "tiles" or (self.form == "auto" and any(wish.tile)):
            return
        for op in module.body.block.ops:
            if not isinstance(op, dispatch.KernelOp) or "config" in op.attributes:
                continue
            nest = loop_nest(op)
            if not isinstance(nest.computation, Contraction):
                continue
            number, found = candidate_of(op), self._decide(nest, nest.computation, wish, spec)
            if found and (number < len(found) or wish.form != "auto"):
                config, text = found[min(number, len(found) - 1)]
                op.attributes["config"] = builtin.DictionaryAttr(config)
                remarks.emit("decision", self.name, op.sym_name.data, text, location_of(nest.root.op))
            elif number and found:
                ask_for_candidate(op, number - len(found))

    def _decide(self, nest: LoopNest, kind: Contraction, wish: Wish, spec: TargetSpec) -> list[tuple[dict[str, Attribute], str]]:
        """The configs of a contraction with a small side, and why, the best first; none where ordinary tiles serve."""
        axes = {role: main_axis(nest, role) for role in ("m", "n", "k")}
        sizes = {role: static(nest.axes[i].size) if i >= 0 else 1 for role, i in axes.items()}
        sides = sides_of(kind, axes, sizes)
        if sides is None or kind.scales or "treadle.f32_parts" in nest.root.op.attributes:
            return []
        names = [str(element_of(v.type)) for v in (*nest.root.inputs, nest.root.op.results[0])]
        casts = (kind.lhs_cast, kind.rhs_cast)
        types = contraction_types(spec, names[kind.lhs], names[kind.rhs], names[-1], casts, self.f32_precision == "tf32")
        shape = small_shape(nest, sides, types, sizes, spec)
        if shape is None:
            return []
        if wish.form == "auto" and (shape.many or LEAST_BYTES) * (shape.k or 1) * shape.large_bytes * shape.batch < LEAST_BYTES:
            return []
        forms = self._forms(nest, kind, sides, shape, types, wish, spec)
        return [_with_axes(form, nest, sides, shape, types, axes, (names[kind.lhs], names[kind.rhs]), spec) for form in forms]

    def _forms(
        self, nest: LoopNest, kind: Contraction, sides: Sides, shape: SmallShape, types: ContractionTypes, wish: Wish, spec: TargetSpec
    ) -> list[Choice]:
        """The forms that are possible, the faster first (or the one that is asked for)."""
        swapped: Choice | None = None
        if wish.form != "streaming" and self.roles and sides.few_axis >= 0 and role_refusal(nest, kind, types, spec) is None:
            promoted = promotes(spec, types.instruction, self.fp8_accumulation == "promoted" and types.a.startswith("f8"))
            swapped = _swapped(sides, shape, types, wish, spec, promoted=promoted)
        if wish.form == "swapped" or (wish.form == "auto" and stream_refusal(shape, spec) is not None):
            return [] if swapped is None else [swapped]
        streamed = _streaming(sides, shape, types, wish, spec)
        return sorted((form for form in (streamed, swapped) if form is not None), key=lambda form: form.clocks)
