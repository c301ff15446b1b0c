"""The loop nest of a contraction with its operands exchanged: what is m is n, and the result's tiles are computed transposed."""

from dataclasses import replace

from treadle.analysis.contraction_axes import main_axis, reads_whole_tile
from treadle.analysis.indexing import Contraction
from treadle.analysis.loop_nest import LoopNest

OTHER = {"m": "n", "n": "m"}


def exchanged(nest: LoopNest) -> LoopNest:
    """The same nest, of which A is B and B is A. Anything but a contraction is returned as it is."""
    kind = nest.computation
    if not isinstance(kind, Contraction):
        return nest
    axes = tuple(replace(axis, role=OTHER.get(axis.role, axis.role)) for axis in nest.axes)
    return replace(nest, computation=kind.swapped(), axes=axes)


def exchange_refusal(nest: LoopNest) -> str | None:
    """Why a contraction is not computed with its operands exchanged, None where it may be."""
    kind = nest.computation
    if not isinstance(kind, Contraction) or kind.scales or len(nest.roots) > 1:
        return "it is no single contraction without scales"
    if nest.share is not None:
        return "a block sums a share of the terms"
    if min(main_axis(nest, "m"), main_axis(nest, "n")) < 0:
        return "one side is no axis"
    if any(reads_whole_tile(nest, access) for access in nest.accesses):
        return "a matrix is read besides the operands, and lies as the result does"
    return None
