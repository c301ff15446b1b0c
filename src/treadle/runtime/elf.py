"""A look at ELF files before a driver sees them: drivers are given an address without a size, and crash on a file that is cut off."""

import struct

_HEADER_BYTES = 64
_SECTION_BYTES = 64
_NO_BITS = 8


def defect(data: bytes) -> str | None:
    """What is wrong with a 64-bit little-endian ELF file as far as its tables tell; None if it is whole."""
    if data[:6] != b"\x7fELF\x02\x01":
        return "it is no 64-bit ELF file"
    if len(data) < _HEADER_BYTES:
        return "it is cut off"
    segments, sections = struct.unpack_from("<QQ", data, 0x20)
    segment_bytes, segment_count, section_bytes, section_count = struct.unpack_from("<HHHH", data, 0x36)
    if max(segments + segment_bytes * segment_count, sections + section_bytes * section_count) > len(data):
        return "it is cut off"
    if section_count and section_bytes != _SECTION_BYTES:
        return "its section table is damaged"
    for i in range(section_count):
        at = sections + i * _SECTION_BYTES
        (kind,), (offset, size) = struct.unpack_from("<I", data, at + 4), struct.unpack_from("<QQ", data, at + 0x18)
        if kind != _NO_BITS and offset + size > len(data):
            return "it is cut off"
    return None
