"""A generic under change, taken apart into operands, maps and body."""

from dataclasses import dataclass

from treadle.analysis.indexing import StructuredOp
from treadle.ir.core import AffineMap, Attribute, Block, BlockArgument, Region, SSAValue
from treadle.ir.dialects import linalg
from treadle.transforms.tensor.generics import build_generic, clone_body, replace


@dataclass(slots=True)
class Draft:
    """A generic under change: inputs with their maps and the body's arguments for them."""

    op: linalg.ops.GenericOp
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

    def finish(self, iterators: tuple[str, ...]) -> None:
        """Put the changed generic in place of the old one."""
        new = build_generic(self.inputs, self.outputs, (*self.maps, *self.output_maps), iterators, self.body, self.op)
        replace(self.op, new)


def draft_of(view: StructuredOp, op: linalg.ops.GenericOp) -> Draft:
    """The draft of a generic as it is."""
    body = clone_body(view)
    return Draft(op, list(view.inputs), list(view.input_maps), list(view.outputs), list(view.output_maps), body)
