"""How Inductor's code calls a region: a function of its own, as it calls its kernels, and not through PyTorch's dispatcher.

The dispatcher costs several microseconds a call: it boxes the list of tensors, looks the operator up by their keys, and unboxes. Where this
PyTorch lacks what is used here, or makes C++ of its graphs, regions are called through it. A place whose tensors have numbers for sizes and
strides has a function of its own, which looks at addresses alone: what else Inductor's kernels rely on is checked where a graph begins.
"""

from collections.abc import Sequence
from contextlib import suppress
from math import prod
from typing import Any

from torch._inductor import ir, lowering
from torch._inductor.virtualized import V
from torch.utils import _pytree as pytree

from treadle.torch.region_calls import REGION

_IMPORT = "from treadle.torch.region_calls import caller as treadle_region"


class RegionKernel(ir.FallbackKernel):
    """A call of a region in Inductor's graph: its arguments are the tensors alone, the function knows its name."""

    def codegen(self, wrapper: Any) -> None:
        """Write the function into the head of the module, and the call."""
        if not _makes_cpp():
            wrapper.add_import_once(_IMPORT)
            fixed = f", is_fixed=True, views={self._views!r}" if self._is_fixed else ""
            wrapper.add_import_once(f"{self._function} = treadle_region({self._region!r}{fixed})")
        super().codegen(wrapper)

    def get_kernel_name(self) -> str:
        """What is called."""
        return super().get_kernel_name() if _makes_cpp() else self._function

    def codegen_args(self) -> list[str]:
        """The tensors, as Python names them."""
        if _makes_cpp():
            return super().codegen_args()
        views = self._views if self._is_fixed else {}
        return [given.get_name() if number in views else given.codegen_reference() for number, given in enumerate(self.inputs)]

    @property
    def _region(self) -> str:
        return str(self.constant_args[-1])

    @property
    def _is_fixed(self) -> bool:
        return all(_is_number(size) for given in self.inputs for size in (*given.get_size(), *given.get_stride()))

    @property
    def _views(self) -> dict[int, tuple[tuple[int, ...], tuple[int, ...]]]:
        """The sizes and strides of tensors that begin where a buffer does, by their places. The buffer is passed instead: such a tensor of
        it costs half as much as the call.
        """
        return {
            number: (tuple(map(int, given.get_size())), tuple(map(int, given.get_stride())))
            for number, given in enumerate(self.inputs)
            if isinstance(given, ir.ReinterpretView) and given.layout.offset == 0 and given.data.get_dtype() == given.get_dtype()
        }

    @property
    def _function(self) -> str:
        return "_".join(["treadle_region", *self._region.split("."), *([self.get_name()] if self._is_fixed else [])])


def _makes_cpp() -> bool:
    return bool(V.graph.cpp_wrapper or getattr(V.graph, "fx_wrapper", False))


def _is_number(size: Any) -> bool:
    return isinstance(size, int) or bool(size.is_Integer)


def _lowered(tensors: list[Any], name: str) -> Any:
    """The results of a call, as Inductor has them: on a GPU they are aligned as PyTorch's memory is, whatever the arguments are.

    The tensors are laid out as PyTorch has them: programs are compiled for that, and Inductor may put rows of its own arrays further apart.
    """
    nodes: Any = V.graph.current_node.args[0]
    exact = [_laid_out(tensor, node.meta["val"].stride()) for tensor, node in zip(tensors, nodes, strict=True)]
    results = RegionKernel.create(REGION, exact, name)
    if all(result.get_device().type == "cuda" for result in results):
        V.graph.unaligned_buffers.difference_update(result.get_name() for result in results)
    for result in results:  # a program's results are what it was compiled for, and asking takes as long as a guard of its arguments
        result.skip_size_stride_alignment_checks = True
    return pytree.tree_map(_wrapped, results)


def _laid_out(tensor: Any, strides: Sequence[Any]) -> Any:
    """A tensor with these strides. PyTorch 2.11 views an array whose layout is open as if its rows were put further apart, and keeps the
    view where they are not: such an array is laid out densely, and viewed again.
    """
    view = tensor.data
    if not isinstance(view, ir.ReinterpretView) or not _reaches_beyond(view):
        return ir.ExternKernel.require_exact_strides(tensor, strides)
    dense = ir.FlexibleLayout.contiguous_strides
    if isinstance(view.data.get_layout(), ir.FlexibleLayout):
        view.data.data.freeze_layout_with_exact_strides(dense(view.data.get_size()))
    layout = ir.FixedLayout(view.get_device(), view.get_dtype(), view.get_size(), dense(view.get_size()))
    return ir.ExternKernel.require_exact_strides(ir.TensorBox(ir.ReinterpretView(data=view.data, layout=layout)), strides)


def _reaches_beyond(view: Any) -> bool:
    """Whether a view of a whole array, row by row, takes more than the array does where that is dense, as it is or may become."""
    array = view.data.get_layout()
    sizes, own = list(view.get_size()), list(array.size)
    if not all(map(_is_number, (*sizes, *own, *view.get_stride(), view.layout.offset))) or prod(sizes) != prod(own):
        return False
    is_dense = isinstance(array, ir.FlexibleLayout) or list(array.stride) == list(ir.FlexibleLayout.contiguous_strides(own))
    return is_dense and 1 + sum((size - 1) * stride for size, stride in zip(sizes, view.get_stride(), strict=True)) > prod(own)


def _wrapped(value: Any) -> Any:
    return ir.TensorBox.create(value) if isinstance(value, ir.IRNode) else value


def register() -> None:
    """Let Inductor lower regions so."""
    with suppress(AttributeError, TypeError):
        lowering.make_fallback(REGION, warn=False)
        lowering.lowerings[REGION] = _lowered
