"""Exported programs of PyTorch as one program, with the parameters bound."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree

from treadle import driver
from treadle.errors import TORCH_GRAPH, TreadleError
from treadle.torch.decompositions import everything
from treadle.torch.region_calls import tensor_of
from treadle.torch.settings import Settings
from treadle.torch.unsupported import Unsupported
from treadle.torch.writer import Written, write

if TYPE_CHECKING:
    from treadle.driver import Program
    from treadle.options import CompileOptions


class ExportedModel:
    """A compiled `torch.export.ExportedProgram`: call it like the model.

    `program`: the compiled function, which takes the tensors `names` (parameters and buffers, then inputs) and returns what the exported
    graph does. `bound`: the parameters and buffers by name. What the model writes to its buffers or inputs is written there after a call.
    """

    def __init__(self, exported: Any, written: Written, program: "Program") -> None:
        self.program = program
        self._inputs = [exported.graph_signature.input_specs[number] for number in written.arguments]
        self._outputs = list(exported.graph_signature.output_specs)
        self._spec = exported.call_spec
        self._user = [spec.arg.name for spec in exported.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
        tensors = {**exported.state_dict, **exported.constants}
        self.bound: dict[str, Any] = {spec.target: tensors[spec.target].detach() for spec in self._inputs if spec.kind.name != "USER_INPUT"}
        for spec in self._outputs:
            if spec.kind.name == "BUFFER_MUTATION":
                self.bound.setdefault(spec.target, tensors[spec.target].detach())

    @property
    def names(self) -> tuple[str, ...]:
        """What the program's arguments are: a parameter's or buffer's name, or the input's."""
        return tuple(spec.arg.name if spec.kind.name == "USER_INPUT" else spec.target for spec in self._inputs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model. Raises TreadleError for arguments of other shapes than were exported, ValueError for another structure."""
        given, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._spec.in_spec:
            raise ValueError(f"called with {spec}, exported with {self._spec.in_spec}")
        inputs = dict(zip(self._user, given, strict=True))
        arguments = [inputs[s.arg.name] if s.kind.name == "USER_INPUT" else self.bound[s.target] for s in self._inputs]
        results = self.program(*(argument.detach() for argument in arguments))
        return self._taken_apart([r if isinstance(r, torch.Tensor) else tensor_of(r) for r in results], inputs)

    def _taken_apart(self, results: Sequence[Any], inputs: dict[str, Any]) -> Any:
        """Write back what is written to, and put the rest together as the model returns it."""
        returned: list[Any] = []
        for spec, result in zip(self._outputs, results, strict=True):
            if spec.kind.name == "BUFFER_MUTATION":
                self.bound[spec.target].copy_(result)
            elif spec.kind.name == "USER_INPUT_MUTATION":
                inputs[spec.target].copy_(result)
            else:
                returned.append(result)
        return pytree.tree_unflatten(returned, self._spec.out_spec)


def compile_exported(exported: Any, target: str = "auto", options: "CompileOptions | None" = None) -> ExportedModel:
    """The model of a `torch.export.ExportedProgram` as one program; dimensions are dynamic where they were exported so.

    `target` and `options` as for `treadle.compile`; products of f32 follow PyTorch's setting where no options are given. Raises TR123 for a
    graph with an operator that is no loop nest, and what `treadle.compile` raises.
    """
    whole = exported.run_decompositions(everything())
    known = {"USER_OUTPUT", "BUFFER_MUTATION", "USER_INPUT_MUTATION"}
    if other := [spec.kind.name for spec in whole.graph_signature.output_specs if spec.kind.name not in known]:
        raise TreadleError(TORCH_GRAPH, reason=f"it returns a {other[0]}")
    try:
        written = write(whole.graph_module.graph, "model")
    except Unsupported as refused:
        raise TreadleError(TORCH_GRAPH, reason=str(refused)) from None
    return ExportedModel(whole, written, driver.compile(written.module, target, options or Settings().compile_options()))
