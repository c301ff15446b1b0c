"""What machines are: `TargetSpec` rows, looked up by name."""

from treadle.errors import Entry, TreadleError
from treadle.machine.queues import Queue, QueueRole
from treadle.machine.rows import ROWS
from treadle.machine.spec import BulkTensorCopy, FragmentLayouts, MatrixInstruction, OperandSpace, RegisterMoves, SharedBanks, TargetSpec

UNKNOWN_TARGET = Entry("TR501", "target '{name}' is not supported", "use one of: {known}")

_by_name: dict[str, TargetSpec] = {row.name: row for row in ROWS}


def target_spec(name: str) -> TargetSpec:
    """The row of an architecture; raises TreadleError TR501 for an unknown one."""
    try:
        return _by_name[name]
    except KeyError:
        raise TreadleError(UNKNOWN_TARGET, name=name, known=", ".join(_by_name)) from None


def known_spec(name: str) -> TargetSpec | None:
    """The row of an architecture, None for an unknown one."""
    return _by_name.get(name)


def register_target(spec: TargetSpec) -> None:
    """Add a row (third parties and tests); replaces one of the same name."""
    _by_name[spec.name] = spec


def known_targets() -> tuple[str, ...]:
    """Names of all rows."""
    return tuple(_by_name)


__all__ = [
    "BulkTensorCopy",
    "FragmentLayouts",
    "MatrixInstruction",
    "OperandSpace",
    "Queue",
    "QueueRole",
    "RegisterMoves",
    "SharedBanks",
    "TargetSpec",
    "known_spec",
    "known_targets",
    "register_target",
    "target_spec",
]
