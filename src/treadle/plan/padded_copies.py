"""What copies of operands take that are made for their kernels, with zeros or nothing behind each row. No IR."""

from treadle.machine.spec import TargetSpec


def whole_pieces(elements: int, element_bytes: int, piece_bytes: int) -> int:
    """As many elements or a few more, so that they are whole pieces of so many bytes."""
    step = max(1, piece_bytes // element_bytes)
    return -(-elements // step) * step


def whole_rows(elements: int, element_bytes: int, spec: TargetSpec) -> int:
    """How far rows of so many elements are apart in a copy: whole lines of the cache, or a half, a quarter or an eighth of one where that
    holds a row. A store of neighbouring rows asks for each of their lines: rows of 13 elements of 2 bytes took 25 us at whole lines, 198
    thousand of them on an H200.
    """
    pitch = spec.line_bytes
    while pitch > spec.max_vector_bytes and elements * element_bytes <= pitch // 2:
        pitch //= 2
    return whole_pieces(elements, element_bytes, pitch)


def copy_seconds(moved: float, copies: int, spec: TargetSpec) -> float:
    """Modelled time of so many kernels that copy, one after the other, and read and write so many bytes of memory together."""
    rates = spec.rates.general
    return moved / (spec.memory_gbps * 1e9 * rates.efficiency) + copies * rates.launch_seconds
