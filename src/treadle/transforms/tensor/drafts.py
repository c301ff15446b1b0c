"""A generic under change, taken apart into operands, maps and body."""

from treadle.analysis.indexing import StructuredOp
from treadle.ir.core import AffineMap, Attribute, Block, BlockArgument, Operation, Region, SSAValue
from treadle.records import dataclass
from treadle.transforms.tensor.generics import build_generic, clone_body, replace, sized_loops


@dataclass(slots=True)
class Draft:
    """A generic under change: inputs with their maps and the body's arguments for them."""

    op: Operation
    inputs: list[SSAValue]
    maps: list[AffineMap]
    outputs: list[SSAValue]
    output_maps: list[AffineMap]
    body: Region
    changed: bool = False

    @property
    def block(self) -> Block:
        """The body."""
        return self.body.block

    def drop_input(self, index: int, value: SSAValue) -> None:
        """Let `value` stand for input `index` in the body and remove the input."""
        argument = self.block.args[index]
        argument.replace_all_uses_with(value)
        self.block.erase_arg(argument)
        del self.inputs[index], self.maps[index]
        self.changed = True

    def add_input(self, value: SSAValue, map_: AffineMap, element: Attribute) -> BlockArgument:
        """Append an input; returns the body's argument for it."""
        argument = self.block.insert_arg(element, len(self.inputs))
        self.inputs.append(value)
        self.maps.append(map_)
        self.changed = True
        return argument

    def sizes_loops_without(self, index: int, instead: AffineMap | None = None) -> bool:
        """Whether every loop still gets its size where input `index` is gone, or is read through another map."""
        changed = [map_ if number != index else instead for number, map_ in enumerate(self.maps)]
        kept = [map_ for map_ in changed if map_ is not None]
        return sized_loops((*kept, *self.output_maps)) == sized_loops((*self.maps, *self.output_maps))

    def finish(self, iterators: tuple[str, ...]) -> None:
        """Put the generic in place of the old one where it has changed."""
        if self.changed:
            new = build_generic(self.inputs, self.outputs, (*self.maps, *self.output_maps), iterators, self.body, self.op)
            replace(self.op, new)


def draft_of(view: StructuredOp) -> Draft:
    """The draft of a generic as it is."""
    return Draft(view.op, list(view.inputs), list(view.input_maps), list(view.outputs), list(view.output_maps), clone_body(view))
