"""The operator by which PyTorch runs a region: `treadle::region(Tensor[] inputs, str name) -> Tensor[]`.

A name is "program.graph" or "program.graph.views": the digest of the program, the graph whose report it is in, and as what results are
shown (`shown_results.py`). Others are dense arrays in the order of their dimensions. Inductor may lay an input out otherwise than
PyTorch's graph did: the first call with such strides compiles a variant.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from treadle.records import Record
from treadle.torch.kept_reports import found_again
from treadle.torch.memory import shape_of
from treadle.torch.programs import program
from treadle.torch.shown_results import NONE, Shown, of_text
from treadle.torch.sizes import Size, in_terms_of

if TYPE_CHECKING:
    from treadle.driver import Program

_LIBRARY: Final = torch.library.Library("treadle", "FRAGMENT")
_LIBRARY.define("region(Tensor[] inputs, str name) -> Tensor[]", tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides))
_results: "dict[str, Results]" = {}
_called: "dict[str, Program]" = {}
_reinterpreted: Callable[..., torch.Tensor] = getattr(torch._C._dynamo.guards, "_reinterpret_tensor", torch.as_strided)
"""What Inductor's code makes tensors of other shapes with, where this PyTorch has it."""
_NARROW: Final = {"bfloat16": torch.bfloat16, "float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
"""NumPy types that PyTorch does not take from NumPy."""


class Results(Record):
    """The shapes and types of a program's results. `places`: the input and axis that have a size."""

    places: dict[Any, tuple[int, int]]
    shapes: tuple[tuple[Size, ...], ...]
    dtypes: tuple[torch.dtype, ...]

    def size(self, size: Size, inputs: Sequence[torch.Tensor]) -> Any:
        """A size for inputs of other sizes than those that it was declared with."""
        if isinstance(size, int):
            return size
        if size in self.places:
            place, axis = self.places[size]
            return inputs[place].shape[axis]
        known = {symbol: inputs[place].shape[axis] for symbol, (place, axis) in self.places.items() if symbol.is_Symbol}
        if not size.free_symbols <= known.keys():
            size, stand_ins = in_terms_of(size, self.places)
            known |= {symbol: self.size(found, inputs) for symbol, found in stand_ins.items()}
        return sympy_interp(PythonReferenceAnalysis, known, size)


def declare(digest: str, inputs: Sequence[Any], results: Sequence[Any]) -> None:
    """Say what a program's results are like, by one graph's tensors."""
    places: dict[Any, tuple[int, int]] = {}
    for place, given in enumerate(inputs):
        for axis, size in enumerate(shape_of(given)):
            if not isinstance(size, int):
                places.setdefault(size, (place, axis))
    _results[digest] = Results(places, tuple(map(shape_of, results)), tuple(result.dtype for result in results))


def _run(inputs: Sequence[torch.Tensor], name: str) -> list[torch.Tensor]:
    results = (_called.get(name) or _first(name))(*inputs)
    return _shown([result if isinstance(result, torch.Tensor) else tensor_of(result) for result in results], _views_of(name))


@lru_cache
def _views_of(name: str) -> Shown:
    _, _, *views = name.split(".")
    return of_text(views[0]) if views else NONE


def _shown(results: Sequence[torch.Tensor], views: Shown) -> list[torch.Tensor]:
    """The results, some as tensors of other shapes of the same memory, which are no views: what changes them in place need not know."""
    return [_reinterpreted(result, *views[number]) if number in views else result for number, result in enumerate(results)]


Views = Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]]
"""Sizes and strides of tensors that are passed as the memory that they begin with, by their places."""


def caller(name: str, is_fixed: bool = False, views: Views = MappingProxyType({})) -> Callable[..., tuple[torch.Tensor, ...]]:
    """The operator of one name as a function of its tensors: Inductor's code calls it. The program is looked for at the first call.

    `is_fixed`: the function has one place in the code, whose tensors differ from call to call in nothing but their addresses.
    `views`: which of them are passed as other tensors that begin at the same address.
    """
    run: Callable[..., tuple[torch.Tensor, ...]] | None = None

    def call(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return first(inputs) if run is None else run(*inputs)

    def first(inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        nonlocal run
        seen = _seen(inputs, views)
        results = _run(seen, name)
        program = _called[name]
        if program.target != "sim":  # whose results are no tensors
            whole = _of_views(program, views) if views else program
            run = _showing((program.settled(seen, whole) if is_fixed else None) or whole, _views_of(name))
        return tuple(results)

    return call


def _seen(inputs: Sequence[torch.Tensor], views: Views) -> Sequence[torch.Tensor]:
    return [x.as_strided(*views[place]) if place in views else x for place, x in enumerate(inputs)] if views else inputs


def _showing(run: Callable[..., tuple[torch.Tensor, ...]], views: Shown) -> Callable[..., tuple[torch.Tensor, ...]]:
    def whole(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(_shown(run(*inputs), views))

    return whole if views else run


def _of_views(program: "Program", views: Views) -> Callable[..., tuple[torch.Tensor, ...]]:
    def whole(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return program(*_seen(inputs, views))

    return whole


def _first(name: str) -> "Program":
    """The program of a name that is called for the first time, perhaps by a graph out of PyTorch's cache."""
    digest, graph, *_ = name.split(".")
    _called[name] = found = program(digest)
    found_again(graph)
    return found


def tensor_of(array: Any) -> torch.Tensor:
    """A result of the simulator as a tensor."""
    found = np.asarray(array)
    narrow = _NARROW.get(found.dtype.name)
    if narrow is None:
        return torch.from_numpy(found)
    return torch.from_numpy(found.view(f"i{found.itemsize}")).view(narrow)


def _fake(inputs: list[torch.Tensor], name: str) -> list[torch.Tensor]:
    found = _results[name.partition(".")[0]]
    shapes = [[found.size(size, inputs) for size in shape] for shape in found.shapes]
    made = [torch.empty(shape, dtype=dtype, device=inputs[0].device) for shape, dtype in zip(shapes, found.dtypes, strict=True)]
    views = _views_of(name)
    return [torch.empty_strided(*views[n], dtype=x.dtype, device=x.device) if n in views else x for n, x in enumerate(made)]


_LIBRARY.impl("region", _run, "CompositeExplicitAutograd")
torch.library.register_fake("treadle::region", _fake, lib=_LIBRARY)
REGION: Final = torch.ops.treadle.region.default
