"""set-size-bounds: kernels with sizes that only the runtime knows are marked, others are left alone."""

import pytest
from targets.simt.test_wide_indices_on_host import MATMUL, elementwise

from treadle.dialects import dispatch
from treadle.frontends import mlir
from treadle.ir.passes import run_passes
from treadle.ir.text import print_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import lower
from treadle.transforms.kernel.set_size_bounds import SetSizeBoundsPass


@pytest.mark.parametrize("dynamic", [False, True])
def test_runtime_sizes_are_marked_and_static_ones_left_alone(dynamic: bool) -> None:
    text = elementwise((5, 7), "f32", [(0, 1)], [None], dynamic=True) if dynamic else MATMUL.format(m=5, n=7, k=9)
    module = mlir.load(text + "\n")
    lower(module, target_spec("gfx942"), CompileOptions(), until="dispatch")
    before = print_module(module)
    run_passes(module, [SetSizeBoundsPass()])
    kernels = [op for op in module.body.block.ops if isinstance(op, dispatch.KernelOp)]
    assert [dispatch.ANY_SIZE in kernel.attributes for kernel in kernels] == [dynamic]
    assert dynamic or print_module(module) == before


def test_the_option_asks_for_it() -> None:
    """Without 64-bit indices the pass is no part of the pipeline: the sizes are checked instead."""
    marked: dict[int, int] = {}
    for bits in (32, 64):
        module = mlir.load(elementwise((5, 7), "f32", [(0, 1)], [None], dynamic=True) + "\n")
        lower(module, target_spec("sm_90a"), CompileOptions(index_bits=bits))
        marked[bits] = len([op for op in module.walk() if isinstance(op, dispatch.CheckOp) and op.index_range])
    assert marked[32] and not marked[64]
