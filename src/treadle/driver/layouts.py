"""A program for other layouts of its arguments than the declared ones: the function's argument attributes, replaced."""

from treadle.analysis.shapes import ALIGN, SIZE_DIVISOR, STRIDE_DIVISOR, STRIDES
from treadle.errors import FIXED_LAYOUT, TreadleError
from treadle.ir.core import DYNAMIC_INDEX, Attribute
from treadle.ir.dialects import builtin, func
from treadle.plan.argument_layout import AlignedRows, ArgumentLayout, Layouts


def _attributes(layout: ArgumentLayout | AlignedRows) -> dict[str, Attribute]:
    if isinstance(layout, AlignedRows):
        return {SIZE_DIVISOR: builtin.IntegerAttr(layout.size_divisor, builtin.i64)}
    strides = [DYNAMIC_INDEX if stride is None else stride for stride in layout.strides]
    return {
        STRIDES: builtin.DenseArrayBase.from_list(builtin.i64, strides),
        STRIDE_DIVISOR: builtin.IntegerAttr(layout.stride_divisor, builtin.i64),
        ALIGN: builtin.IntegerAttr(layout.align, builtin.i64),
    }


def fixed_layout(layouts: Layouts) -> TreadleError:
    """TR736: the kernels of a program that is written at a lower level are written for the layouts that it declares."""
    index, layout = next((index, layout) for index, layout in enumerate(layouts) if layout is not None)
    return TreadleError(FIXED_LAYOUT, index=index, given=layout)


def declare_layouts(function: func.FuncOp, layouts: Layouts) -> None:
    """Set the attributes of the arguments whose layout is given; those of the others stay as the user wrote them."""
    given = function.arg_attrs.data if function.arg_attrs is not None else [builtin.DictionaryAttr({})] * len(layouts)
    changed = [
        declared if layout is None else builtin.DictionaryAttr({**declared.data, **_attributes(layout)})
        for declared, layout in zip(given, layouts, strict=True)
    ]
    function.arg_attrs = builtin.ArrayAttr(changed)
