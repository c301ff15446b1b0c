"""Operands as they are, for who reads those of thousands of operations: `Operation.operands` makes a view of them, which may be written."""

from collections.abc import Callable
from operator import attrgetter

from treadle.ir.core import Operation, SSAValue

operands_of: Callable[[Operation], tuple[SSAValue, ...]] = attrgetter("_operands")
"""The operands of an operation, in order."""
