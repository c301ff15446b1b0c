"""Turn each dispatched kernel into one workgroup's program on tiles.

Level: dispatch -> tile. Reads: `dispatch.kernel` with its `config` and `index_bits`. Writes: a `tile.kernel` of the same name in its
place: loads, elementwise arithmetic, contractions, reductions and stores on register tiles without layouts, sequential.
Leaves alone: `dispatch.program` and everything that is no `dispatch.kernel`.
"""

from collections.abc import Sequence

from treadle.analysis.loop_nest import loop_nest
from treadle.dialects import dispatch, tile
from treadle.ir.builtin import array_ints, attr_number
from treadle.ir.core import SSAValue
from treadle.ir.dialects import builtin
from treadle.ir.locations import give_location
from treadle.ir.passes import Context, Pass, register_pass
from treadle.plan.expr import Expr, constant
from treadle.records import dataclass
from treadle.transforms.kernel.forms.registry import BY_NAME, decided
from treadle.transforms.kernel.tiling.builder import KernelBuilder


def convert_kernel(kernel: dispatch.KernelOp, target: str, launches: Sequence[dispatch.LaunchOp] = ()) -> tile.KernelOp:
    """The tile kernel of a dispatched kernel whose `config` is set. `launches`: whose counters are as many as the kernel takes then, and
    whose workspace is none where it takes none.
    """
    config = decided(kernel)
    bits = attr_number(kernel.attributes["index_bits"]) if "index_bits" in kernel.attributes else 32
    builder = KernelBuilder(config.nest_of(loop_nest(kernel)), builtin.i64 if bits == 64 else builtin.i32)
    grid = BY_NAME[config.form].build(builder, config)
    builder.block.add_op(tile.ReturnOp())
    if builder.counters is not None:
        number = int(attr_number(kernel.attributes[dispatch.MERGE]) or 0)
        _resize([launch.inputs[number] for launch in launches], builder.counters)
    elif dispatch.MERGE in kernel.attributes:  # parts that a cluster merges never leave it
        _resize([launch.outputs[0] for launch in launches], constant(1))
    result = tile.KernelOp(
        kernel.sym_name.data,
        builder.block,
        symbols=dispatch.texts(kernel.symbols),
        grid=[str(g) for g in grid],
        num_warps=config.num_warps,
        target=target,
        arg_align=[*array_ints(kernel.arg_align), *array_ints(kernel.result_align)],
        output_count=len(kernel.function_type.outputs),
        groups=config.groups,
        cluster=config.cluster_size,
        index_bits=int(bits or 32),
        config=config.attribute(),
    )
    give_location(result, builder.location)
    return result


def _resize(buffers: Sequence[SSAValue], count: Expr) -> None:
    """Give memory of the program's own that many elements."""
    for buffer in buffers:
        if isinstance(buffer.owner, dispatch.AllocOp):
            buffer.owner.properties["shape"] = dispatch.strings([count])


@register_pass
@dataclass(frozen=True)
class ConvertDispatchToTilePass(Pass):
    """`target`: the machine the kernels are for."""

    name = "convert-dispatch-to-tile"
    target: str

    def apply(self, ctx: Context, module: builtin.ModuleOp) -> None:
        block = module.body.block
        launches = [op for op in module.walk() if isinstance(op, dispatch.LaunchOp)]
        for op in list(block.ops):
            if isinstance(op, dispatch.KernelOp):
                own = [launch for launch in launches if launch.kernel.string_value() == op.sym_name.data]
                block.insert_op_before(convert_kernel(op, self.target, own), op)
                block.detach_op(op)
                op.erase(drop_references=True)
