"""What flows between the structured operations of one block, as the forming of kernels asks it."""

from collections.abc import Sequence
from dataclasses import field

from treadle.analysis.indexing import is_permutation, tensor_of, view_of
from treadle.analysis.kernel_structure import consumer_loops, result_axes
from treadle.analysis.shapes import infer_shapes
from treadle.dialects import dispatch
from treadle.ir.ancestry import captured, in_block, maker
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import func, linalg
from treadle.records import dataclass


@dataclass(eq=False, slots=True)
class DataFlow:
    """`nodes`: the generics of the block in program order. What was found out is kept: every question about cycles asks again."""

    block: Block
    nodes: list[linalg.ops.GenericOp] = field(init=False)
    _blocks: dict[Operation, frozenset[Operation]] = field(default_factory=dict[Operation, "frozenset[Operation]"])
    _sources: dict[Operation, list[Operation]] = field(default_factory=dict[Operation, "list[Operation]"])

    def __post_init__(self) -> None:
        self.nodes = [op for op in self.block.ops if isinstance(op, linalg.ops.GenericOp)]

    def position(self, op: Operation) -> int:
        """Place of a generic in program order."""
        return self.nodes.index(op) if isinstance(op, linalg.ops.GenericOp) else -1

    def sources(self, op: Operation) -> list[Operation]:
        """The operations outside `op` whose results it reads."""
        if op not in self._sources:
            self._sources[op] = [owner for value in captured(op) if (owner := maker(value)) is not None]
        return self._sources[op]

    def readers(self, results: Sequence[SSAValue]) -> list[Operation]:
        """The operations of the block that use results, in themselves or in what they hold."""
        users = [in_block(use.operation, self.block) for result in results for use in result.uses]
        return [user for user in users if user is not None]

    def blocks_of(self, op: Operation) -> frozenset[Operation]:
        """The block indices that an operation is computed from: none of what was no loop of blocks, and none behind its insertions."""
        # Chains of insertions are as long as a list of groups: no recursion.
        blocks = self._blocks
        waiting = [] if op in blocks else [op]
        while waiting:
            each = waiting[-1]
            sources = [] if dispatch.ALL_BLOCKS in each.attributes else self.sources(each)
            if left := [source for source in sources if source not in blocks]:
                waiting += left
                continue
            is_block = isinstance(each, dispatch.BlockIndexOp) and dispatch.ALL_BLOCKS not in each.attributes
            blocks[each] = frozenset((each,)) if is_block else frozenset[Operation]().union(*(blocks[source] for source in sources))
            waiting.pop()
        return blocks[op]

    def _reach(self, root: Operation) -> dict[Operation, tuple[int, ...]]:
        """Elementwise operations that are computed from a root's result at the place of their own, with the root's loops they walk."""
        view = view_of(root)
        axes = result_axes(view, tuple(range(view.rank)))
        found: dict[Operation, tuple[int, ...]] = {}
        for op in self.nodes[self.position(root) + 1 :]:
            user = view_of(op)
            reads = [map_ for value, map_ in user.operands() if value in axes]
            if not user.is_parallel or not reads or not all(is_permutation(map_) for map_ in reads):
                continue
            if (loops := consumer_loops(user, axes)) is not None:
                found[op] = loops
                axes.update(result_axes(user, loops))
        return found

    def meet(self, first: Operation, second: Operation) -> bool:
        """Whether some elementwise operation reads the same element of both results, through other such operations or directly."""
        left, right = self._reach(first), self._reach(second)
        return any(right.get(op) == loops for op, loops in left.items())

    def equal_sizes(self, first: Operation, second: Operation) -> bool:
        """Whether the results of two contractions, whose static sizes agree, are known to be of one size."""
        shape = tensor_of(first.results[0])
        if shape is not None and shape.has_static_shape():
            return True
        function = self.block.parent_op()
        if not isinstance(function, func.FuncOp):
            return False
        shapes = infer_shapes(function)
        return shapes.shape(first.results[0]) == shapes.shape(second.results[0])
