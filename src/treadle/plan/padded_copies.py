"""What copies of operands take that are made for their kernels, with zeros or nothing behind each row. No IR."""

from treadle.machine.spec import TargetSpec


def whole_pieces(elements: int, element_bytes: int, piece_bytes: int) -> int:
    """As many elements or a few more, so that they are whole pieces of so many bytes."""
    step = max(1, piece_bytes // element_bytes)
    return -(-elements // step) * step


def copy_seconds(moved: float, copies: int, spec: TargetSpec) -> float:
    """Modelled time of so many kernels that copy, one after the other, and read and write so many bytes of memory together."""
    rates = spec.rates.general
    return moved / (spec.memory_gbps * 1e9 * rates.efficiency) + copies * rates.launch_seconds
