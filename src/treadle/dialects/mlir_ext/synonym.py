"""The base of operations that exist in text only."""

from treadle.ir.core import Operation, VerifyException


class Synonym(Operation):
    """An operation that exists in text only; `parse` returns what stands for it."""

    def verify_(self) -> None:
        raise VerifyException(f"the generic form of {self.name} is not read; write its custom form")
