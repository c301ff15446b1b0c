"""What tensor passes that work on one function at a time share."""

from abc import abstractmethod
from typing import ClassVar

from treadle.ir.dialects import builtin, func
from treadle.ir.passes import Context, Pass
from treadle.records import dataclass
from treadle.transforms.tensor.generics import functions


@dataclass(frozen=True)
class FunctionPass(Pass):
    """A pass that works on one function with a body at a time."""

    name: ClassVar[str]

    def apply(self, ctx: Context, module: builtin.ModuleOp, /) -> None:
        """Run on every function of the module."""
        for function in functions(module):
            self.run(function)

    @abstractmethod
    def run(self, function: func.FuncOp) -> None:
        """Rewrite one function in place."""
