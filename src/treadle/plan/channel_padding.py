"""Whether a convolution whose channels are no whole 16 bytes had better read copies of its operands with zeros behind the channels."""

from typing import Final

from treadle.machine.spec import TargetSpec
from treadle.plan.f32_split import contraction_seconds
from treadle.plan.padded_copies import copy_seconds
from treadle.records import dataclass

ELEMENTS_PER_CLOCK: Final = 4
"""Elements a compute unit and clock that threads bring to shared memory one at a time: 3.0 to 4.6 on H200 where the kernel is long."""
WIDTH_GAIN: Final = 0.6
"""What several elements at a time gain, as a power of their number: 6.1 to 7.2 of two, 9.1 to 10 of four."""
TILE_SIDE: Final = 128
"""Rows and columns of the tiles for which they are brought: each element of an operand once for each tile of the other's. Instructions of
fewer columns take as long as those of so many, for they read rows from shared memory.
"""


@dataclass(frozen=True, slots=True)
class PaddedConvolution:
    """Sizes of a convolution as a contraction: `pixels`, `filters`, and `k` elements of a window, of each of so many `groups`. `operands`:
    elements of image and filters. `channels` become `padded`.
    """

    groups: int
    pixels: int
    filters: int
    k: int
    operands: int
    channels: int
    padded: int
    element_bytes: int

    def seconds_as_is(self, spec: TargetSpec) -> float:
        """Modelled time of the kernel whose threads load element by element."""
        width = self.channels & -self.channels
        tiles = -(-self.filters // TILE_SIDE), -(-self.pixels // TILE_SIDE)
        brought = self.groups * self.k * (self.pixels * tiles[0] + self.filters * tiles[1])
        rate = ELEMENTS_PER_CLOCK * width**WIDTH_GAIN * spec.compute_units * spec.clock_mhz * 1e6
        return brought / rate + spec.rates.general.launch_seconds

    def seconds_padded(self, spec: TargetSpec, input_type: str, result_type: str) -> float:
        """Modelled time of both copies and the convolution of what they made."""
        operands, growth = self.operands * self.element_bytes, self.padded / self.channels
        copying = copy_seconds(operands * (1 + growth), 2, spec)
        row = next(iter(spec.instructions_for(input_type, input_type, result_type)), None)
        macs = float(self.groups * self.pixels * max(self.filters, TILE_SIDE)) * self.k * growth
        return copying + contraction_seconds(macs, operands * growth, spec, row)
