"""The bytes of a launch's arguments: a template for each launch of certain shapes, filled in for each set of addresses."""

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from treadle.runtime.invocation import PointerArg, ResolvedLaunch, ScalarArg, TensorMapArg

_FORMATS: Final = {"i32": "<i", "i64": "<q", "f32": "<f"}
_POINTER: Final = struct.Struct("<Q")
_BLOCK_ALIGN: Final = 64
"""Tensor maps are read by hardware from 64-byte aligned places."""

TensorMapEncoder = Callable[[int, int], None]
"""Writes the 128 bytes of the tensor map of an array: from the array's address, to an address that is a multiple of 64."""


class MapDriver(Protocol):
    """The part of a device that makes tensor maps."""

    def tensor_map_encoder(self, arg: TensorMapArg) -> TensorMapEncoder:
        """The encoder for maps that differ in the address only."""
        ...


class BlockTemplate:
    """A launch's arguments but for the addresses."""

    __slots__ = ("_contents", "_maps", "_offsets", "_pack", "_pointers", "_room", "configurations", "launch")

    def __init__(self, driver: MapDriver, launch: ResolvedLaunch) -> None:
        self.launch = launch
        self.configurations: dict[Any, Any] = {}
        """What a driver keeps of its launches, whatever the addresses; its blocks refer to it too."""
        self._contents = bytearray(launch.kernel.kernarg_bytes)
        self._pointers: list[tuple[int, int, int]] = []
        self._maps: list[tuple[int, int, int, TensorMapEncoder]] = []
        for arg in launch.args:
            match arg:
                case PointerArg():
                    self._pointers.append((arg.offset, arg.buffer, arg.byte_offset))
                case ScalarArg():
                    struct.pack_into(_FORMATS[arg.kind], self._contents, arg.offset, arg.value)
                case TensorMapArg() if 0 in arg.global_dim:
                    pass  # the encoder refuses empty arrays, and no kernel reads one
                case TensorMapArg():
                    self._maps.append((arg.offset, arg.buffer, arg.byte_offset, driver.tensor_map_encoder(arg)))
        # The arguments, then the pointers to them.
        self._room = -(-len(self._contents) // _BLOCK_ALIGN) * _BLOCK_ALIGN
        self._contents += bytes(self._room - len(self._contents))
        self._offsets = [arg.offset for arg in launch.args]
        self._pack = struct.Struct(f"<{len(self._offsets)}Q").pack

    def filled(self, addresses: Sequence[int]) -> "ArgumentBlock":
        """The block for buffers at these addresses."""
        contents = self._contents[:]
        for offset, buffer, start in self._pointers:
            _POINTER.pack_into(contents, offset, addresses[buffer] + start)
        block = ArgumentBlock(self, self._room, 8 * len(self._offsets))
        place = block.address
        contents += self._pack(*[place + offset for offset in self._offsets])
        block.write(bytes(contents))
        for offset, buffer, start, encode in self._maps:
            encode(addresses[buffer] + start, place + offset)
        return block


class ArgumentBlock:
    """The bytes of a launch's arguments at their offsets, aligned, and behind them a pointer to each for APIs that take those."""

    __slots__ = ("_start", "address", "configurations", "launch", "pointers", "storage")

    def __init__(self, template: BlockTemplate, room: int, more: int) -> None:
        self.launch, self.configurations = template.launch, template.configurations
        self.storage = ctypes.create_string_buffer(_BLOCK_ALIGN + room + more)
        start = ctypes.addressof(self.storage)
        self.address = (start + _BLOCK_ALIGN - 1) // _BLOCK_ALIGN * _BLOCK_ALIGN
        self.pointers = self.address + room
        self._start = start

    def write(self, contents: bytes) -> None:
        """Fill the block and the pointers."""
        ctypes.memmove(self.address, contents, len(contents))

    def pointers_argument(self) -> Any:
        """The array of pointers as an argument of a ctypes call, which keeps the block's memory alive."""
        return ctypes.byref(self.storage, self.pointers - self._start)

    def contents(self) -> bytes:
        """The bytes of the arguments."""
        return ctypes.string_at(self.address, self.launch.kernel.kernarg_bytes)
