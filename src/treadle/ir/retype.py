"""Giving a value another type in place: what passes that refine types (layouts, encodings) need."""

from xdsl.rewriter import Rewriter

from treadle.ir.core import Attribute, SSAValue


def retype(value: SSAValue, new_type: Attribute) -> SSAValue:
    """Replace `value` by one of `new_type` in its operation or block and in all uses; returns the new value."""
    if value.type == new_type:
        return value
    return Rewriter.replace_value_with_new_type(value, new_type)
