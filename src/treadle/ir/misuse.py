"""The exception by which an operation's verifier refuses what its text asks for, with advice of its own.

Other `VerifyException`s are about types and shapes (TR201); this one becomes TR416 at the line of the operation (`verify_module`).
"""

from treadle.ir.core import VerifyException


class Misuse(VerifyException):
    """An operation that stands where it cannot, or names a number that no machine has. `reason` ends no sentence; `fix`: what to do."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.reason, self.fix = reason, fix


def misuse_in(error: BaseException | None) -> Misuse | None:
    """The `Misuse` that an exception is, or came of."""
    while error is not None and not isinstance(error, Misuse):
        error = error.__cause__ or error.__context__
    return error
