"""What a tensor copy is: its tensor maps, and the boxes that are the shared buffer."""

from treadle.plan.folded_copies import FoldedCopy
from treadle.records import dataclass
from treadle.targets.interface import TensorMapParam


@dataclass(frozen=True, slots=True)
class Box:
    """One hardware copy: where it lands (bytes from the buffer's start) and its start within the tile, per tensor map dimension. `map`:
    the number of its map.
    """

    byte_offset: int
    start: tuple[int, ...]
    map: int = 0


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The maps of `params` cover the view dimensions `view_dims` (innermost first); `boxes` are the buffer. `folded`: of a folded view,
    whose tile dimensions `view_dims` are: the array's axes instead, and `view_dims` its columns and rows. Of several maps each has the rows
    of one remainder, which are every `apart`-th one.
    """

    params: tuple[TensorMapParam, ...]
    view_dims: tuple[int, ...]
    boxes: tuple[Box, ...]
    folded: FoldedCopy | None = None
    apart: int = 1

    @property
    def param(self) -> TensorMapParam:
        """The first map: swizzle and box are those of all."""
        return self.params[0]
