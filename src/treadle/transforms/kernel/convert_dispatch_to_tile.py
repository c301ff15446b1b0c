"""Turn each dispatched kernel into one workgroup's program on tiles.

Level: dispatch -> tile. Reads: `dispatch.kernel` with its `config` and `index_bits`. Writes: a `tile.kernel` of the same name in its
place: loads, elementwise arithmetic, contractions, reductions and stores on register tiles without layouts, sequential.
Leaves alone: `dispatch.program` and everything that is no `dispatch.kernel`.
"""

from dataclasses import dataclass

from treadle.analysis.indexing import Contraction
from treadle.dialects import dispatch, tile
from treadle.errors import InternalError
from treadle.ir.builtin import array_ints, attr_number, is_tensor
from treadle.ir.core import Attribute
from treadle.ir.dialects import builtin
from treadle.ir.locations import give_location
from treadle.ir.passes import Context, Pass, register_pass
from treadle.plan.mixed_widths import MixedWidths
from treadle.transforms.kernel.tiling.builder import KernelBuilder
from treadle.transforms.kernel.tiling.configured_nest import config_number, config_of, configured_nest
from treadle.transforms.kernel.tiling.contraction import ContractionPlan, build_contraction
from treadle.transforms.kernel.tiling.elementwise import build_elementwise
from treadle.transforms.kernel.tiling.reduction import build_reduction
from treadle.transforms.kernel.tiling.streaming import StreamPlan, build_streaming

_TYPES: dict[str, Attribute] = {
    "f16": builtin.f16,
    "bf16": builtin.bf16,
    "f32": builtin.f32,
    "tf32": builtin.f32,
    "f64": builtin.f64,
    **{f"i{w}": builtin.IntegerType(w) for w in (1, 8, 16, 32, 64)},
}


def _text(config: builtin.DictionaryAttr, key: str) -> str:
    value = config.data[key]
    return value.data if isinstance(value, builtin.StringAttr) else ""


def _type(name: str, kernel: dispatch.KernelOp) -> Attribute:
    if name in _TYPES:
        return _TYPES[name]
    for arg in kernel.body.block.args:
        if is_tensor(arg.type) and str(arg.type.element_type) == name:
            return arg.type.element_type
    raise InternalError(f"no argument has the element type {name} that the config names")


def _stream_plan(config: builtin.DictionaryAttr, kernel: dispatch.KernelOp) -> StreamPlan:
    return StreamPlan(
        (config_number(config, "m_axis"), config_number(config, "n_axis"), config_number(config, "k_axis")),
        (config_number(config, "tile_m"), config_number(config, "tile_n"), config_number(config, "tile_k")),
        config_number(config, "ahead"),
        _type(_text(config, "accumulator_type"), kernel),
        config_number(config, "large"),
        config_number(config, "small"),
    )


def convert_kernel(kernel: dispatch.KernelOp, target: str) -> tile.KernelOp:
    """The tile kernel of a dispatched kernel whose `config` is set."""
    config, nest = config_of(kernel), configured_nest(kernel)
    bits = attr_number(kernel.attributes["index_bits"]) if "index_bits" in kernel.attributes else 32
    builder = KernelBuilder(nest, builtin.i64 if bits == 64 else builtin.i32)
    form = _text(config, "form") if "form" in config.data else ""
    groups = config_number(config, "groups") if "groups" in config.data else 1
    if isinstance(nest.computation, Contraction) and form == "streaming":
        grid = build_streaming(builder, nest.computation, _stream_plan(config, kernel))
    elif isinstance(nest.computation, Contraction):
        kind = nest.computation.swapped() if form == "swapped" else nest.computation
        plan = ContractionPlan(
            (config_number(config, "m_axis"), config_number(config, "n_axis"), config_number(config, "k_axis")),
            (config_number(config, "tile_m"), config_number(config, "tile_n"), config_number(config, "tile_k")),
            _type(_text(config, "a_type"), kernel),
            _type(_text(config, "b_type"), kernel),
            _type(_text(config, "accumulator_type"), kernel),
            _text(config, "instruction"),
            config_number(config, "group"),
            groups,
            "stages" in config.data,
            "promoted" in config.data,
            0 if "stages" in config.data else config_number(config, "workgroups") if "workgroups" in config.data else 0,
            MixedWidths.of(array_ints(config.data["blocks"])) if "blocks" in config.data else None,
        )
        grid = build_contraction(builder, kind, plan)
    else:
        build = build_elementwise if nest.kind == "elementwise" else build_reduction
        grid = build(builder, array_ints(config.data["tile"]))
    builder.block.add_op(tile.ReturnOp())
    result = tile.KernelOp(
        kernel.sym_name.data,
        builder.block,
        symbols=dispatch.texts(kernel.symbols),
        grid=[str(g) for g in grid],
        num_warps=config_number(config, "num_warps"),
        target=target,
        arg_align=[*array_ints(kernel.arg_align), *array_ints(kernel.result_align)],
        output_count=len(kernel.function_type.outputs),
        groups=groups,
        index_bits=int(bits or 32),
        config=config,
    )
    give_location(result, builder.location)
    return result


@register_pass
@dataclass(frozen=True)
class ConvertDispatchToTilePass(Pass):
    """`target`: the machine the kernels are for."""

    name = "convert-dispatch-to-tile"
    target: str

    def apply(self, ctx: Context, module: builtin.ModuleOp) -> None:
        block = module.body.block
        for op in list(block.ops):
            if isinstance(op, dispatch.KernelOp):
                block.insert_op_before(convert_kernel(op, self.target), op)
                block.detach_op(op)
                op.erase(drop_references=True)
