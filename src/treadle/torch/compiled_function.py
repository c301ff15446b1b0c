"""Functions of PyTorch's operators as programs: compiled at the first call with each class of arguments, with their gradients.

Sizes are numbers for the first arguments of a class, its ranks, element types, devices and constants; where later ones differ in a size,
that size becomes a symbol.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import torch
import torch.utils._pytree as pytree
from torch import fx

from treadle import driver
from treadle.errors import TORCH_DEFINITION, TreadleError
from treadle.records import Record
from treadle.torch.joint_graphs import Backward, Traced, partition, placeholders, recomputed, stand_for, trace
from treadle.torch.region_calls import tensor_of
from treadle.torch.settings import Settings
from treadle.torch.unsupported import Unsupported
from treadle.torch.writer import write

if TYPE_CHECKING:
    from treadle.driver import Program
    from treadle.runtime.call_cache import Expected

Made = TypeVar("Made")
_lock: Final = threading.RLock()
"""PyTorch traces, and operations are made, by one thread at a time."""
_MOST_SIZES: Final = 1024
"""That are looked up."""


class Arguments:
    """The arguments of a call, taken apart: `tensors`, and `kind`, what is compiled in of them besides their sizes."""

    __slots__ = ("_leaves", "_spec", "kind", "sizes", "tensors")

    def __init__(self, arguments: Sequence[Any], named: dict[str, Any]) -> None:
        self._leaves, self._spec = list(arguments), None
        if named or any(isinstance(argument, list | tuple | dict) for argument in arguments):
            self._leaves, self._spec = pytree.tree_flatten((tuple(arguments), named))
        self.tensors = tuple(leaf for leaf in self._leaves if isinstance(leaf, torch.Tensor))
        self.sizes = tuple(tuple(tensor.shape) for tensor in self.tensors)
        leaves = tuple((leaf.dim(), leaf.dtype, leaf.device) if isinstance(leaf, torch.Tensor) else leaf for leaf in self._leaves)
        self.kind: Any = (None if self._spec is None else str(self._spec), leaves)

    def of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of these arguments as one of the tensors alone."""
        places = [place for place, leaf in enumerate(self._leaves) if isinstance(leaf, torch.Tensor)]
        leaves = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in self._leaves]
        spec = self._spec

        def call(*tensors: Any) -> Any:
            filled = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                filled[place] = tensor
            if spec is None:
                return function(*filled)
            arguments, named = pytree.tree_unflatten(filled, spec)
            return function(*arguments, **named)

        return call


class Piece:
    """A program of some of the values that a graph reads."""

    def __init__(self, graph: fx.Graph, name: str, target: str) -> None:
        written = write(graph, name)
        self._arguments = written.arguments
        self._is_whole = written.arguments == tuple(range(len(placeholders(graph))))
        self.program: Program = driver.compile(written.module, target, Settings().compile_options())

    @property
    def takes_all(self) -> bool:
        """Whether the program takes each value, in order."""
        return self._is_whole

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        """Run it on tensors, one a placeholder; sizes may be anything."""
        given = values if self._is_whole else [values[number] for number in self._arguments]
        results = self.program(*[value.detach() if value.requires_grad else value for value in given])
        return [result if isinstance(result, torch.Tensor) else tensor_of(result) for result in results]


class Gradients:
    """The gradients of some tensors, from what their graph reads. `tensors`: which have any."""

    def __init__(self, traced: Traced, backward: Backward, name: str, target: str) -> None:
        self.tensors = backward.tensors
        self._origins = backward.origins
        self._piece = Piece(backward.graph, name, target) if backward.tensors else None
        self._results = [(value.dtype, value.dim()) for value in traced.values]

    def objection(self, results: Sequence[Any]) -> str | None:
        """How results differ from those whose gradients these are; None where they may be the same."""
        if [(result.dtype, result.dim()) for result in results] == self._results:
            return None
        return " and ".join(f"a {dtype} of {rank} dimensions" for dtype, rank in self._results)

    def saved(self, arguments: Sequence[Any], results: Sequence[Any], kept: Sequence[Any]) -> list[Any]:
        """Of these values those that are read."""
        values = {"argument": arguments, "result": results, "kept": kept}
        return [values[kind][number] for kind, number in self._origins if kind in values]

    def __call__(self, saved: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
        """The gradients of `tensors`, from the values that were read and the results' gradients."""
        if self._piece is None:
            return []
        rest = iter(saved)
        return self._piece([gradients[n] if kind == "gradient" else None if kind == "size" else next(rest) for kind, n in self._origins])


class Differentiable(Record):
    """Forward, which gives the results and what it keeps, and backward."""

    forward: Piece
    backward: Gradients
    results: int
    graded: tuple[int, ...]
    structure: Any


class Plain(Record):
    """Results without gradients."""

    piece: Piece
    structure: Any

    @property
    def gives(self) -> str:
        """What the function gives: "one" tensor, a tuple of "several", or something else, ""."""
        if self.structure.is_leaf():
            return "one"
        return "several" if self.structure.type is tuple and all(child.is_leaf() for child in self.structure.children()) else ""

    def __call__(self, tensors: Sequence[Any]) -> Any:
        """The results, as the function puts them together."""
        return pytree.tree_unflatten(self.piece(tensors), self.structure)


class Forms(Generic[Made]):
    """What `build` makes of the traces of a function, by classes of arguments."""

    def __init__(self, function: Callable[..., Any], build: Callable[[Traced, str], Made], name: str, target: str) -> None:
        self._function, self._build, self._name, self._target = function, build, name, target
        self._exact: dict[Any, Made] = {}
        self._traced: dict[Any, list[tuple[Any, Any, Made]]] = {}

    def find(self, given: Arguments, wanted: tuple[int, ...] = ()) -> Made:
        """What is made for such arguments, and the gradients of some tensors. Raises TR125."""
        key = (given.kind, wanted, given.sizes)
        found = self._exact.get(key)
        if found is None:
            with _lock:
                if len(self._exact) >= _MOST_SIZES:
                    self._exact.clear()
                found = self._exact[key] = self._fitting(given, wanted)
        return found

    def _fitting(self, given: Arguments, wanted: tuple[int, ...]) -> Made:
        known = self._traced.setdefault((given.kind, wanted), [])
        for sizes, stand, made in known:
            if sizes == given.sizes or (stand is not None and stand.fits(given.tensors)):
                return made
        others = [sizes for sizes, _, _ in known]
        free = [
            tuple(_differs(size, [sizes[number][axis] for sizes in others]) for axis, size in enumerate(shape))
            for number, shape in enumerate(given.sizes)
        ]
        if any(map(any, free)):
            with suppress(Unsupported):  # a size that no tensor tells, for one
                return self._made(given, wanted, free, known)
        try:
            return self._made(given, wanted, [(False,) * len(shape) for shape in given.sizes], known)
        except Unsupported as refused:
            raise TreadleError(TORCH_DEFINITION, name=self._name, reason=str(refused)) from None

    def _made(self, given: Arguments, wanted: tuple[int, ...], free: Sequence[Sequence[bool]], known: list[Any]) -> Made:
        stand = stand_for(given.tensors, free, wanted)
        traced = trace(given.of(self._function), stand, wanted)
        target = "sim" if all(tensor.device.type == "cpu" for tensor in given.tensors) else self._target
        made = self._build(traced, target)
        known.append((given.sizes, stand if any(map(any, free)) else None, made))
        return made


def _differs(size: int, others: Sequence[int]) -> bool:
    """Whether a size is to be a symbol: PyTorch traces sizes of 0 and 1 apart."""
    return size > 1 and any(other != size and other > 1 for other in others)


class CompiledFunction:
    """A function of PyTorch's operators, compiled. `target`: for tensors of a GPU; those of the processor run on the simulator."""

    def __init__(self, function: Callable[..., Any], name: str, target: str) -> None:
        self._name = name
        self._plain = Forms(function, self._of_results, name, target)
        self._joint = Forms(function, self._of_both, name, target)
        self._gradients = Forms(function, self._of_gradients, name, target)
        self._last: tuple[Expected, bool] | None = None

    def _of_results(self, traced: Traced, target: str) -> Plain:
        return Plain(Piece(traced.module.graph, self._name, target), traced.structure)

    def _of_both(self, traced: Traced, target: str) -> Differentiable:
        forward, backward = partition(traced)
        gradients = Gradients(traced, backward, f"{self._name}_backward", target)
        return Differentiable(Piece(forward, self._name, target), gradients, traced.results, traced.graded, traced.structure)

    def _of_gradients(self, traced: Traced, target: str) -> Gradients:
        return Gradients(traced, recomputed(traced), f"{self._name}_backward", target)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The results, without gradients. Raises TR125 for a function that cannot be one program."""
        if (last := self._last) is not None and not named and (results := last[0].last(arguments, ())) is not None:
            return results[0] if last[1] else results
        given = Arguments(arguments, named)
        plain = self._plain.find(given)
        # Calls like this one need no look at what they are where the program takes what the function does, and gives it so.
        if plain.piece.takes_all and len(given.tensors) == len(arguments) and not named and plain.gives in ("one", "several"):
            self._last = (plain.piece.program.expected, plain.gives == "one")
        return plain(given.tensors)

    def differentiable(self, given: Arguments, wanted: tuple[int, ...]) -> Differentiable:
        """Forward and backward for such arguments. `wanted`: which of the tensors have gradients."""
        return self._joint.find(given, wanted)

    def gradients(self, given: Arguments, wanted: tuple[int, ...]) -> Gradients:
        """Backward alone, from arguments, results and their gradients."""
        return self._gradients.find(given, wanted)
