"""The writer's loop nests against torch-mlir's, operator by operator, static and with dynamic dimensions: both run on the simulator.

Skipped without torch-mlir. The operators and their inputs are those of `test_writer.py`.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it")
torch_mlir_fx: Any = pytest.importorskip("torch_mlir.fx", reason="torch-mlir is not installed")

from pytorch.test_writer import CASES, Called, Shapes, array, in_float64  # noqa: E402

import treadle  # noqa: E402
from treadle.errors import TreadleError  # noqa: E402
from treadle.torch.decompositions import everything  # noqa: E402
from treadle.torch.writer import write  # noqa: E402

TorchMlirCompilerError = import_module("torch_mlir.compiler_utils").TorchMlirCompilerError
AUTO = torch.export.Dim.AUTO


class Named(Shapes):
    """Remembers which axes have a name: these are dynamic."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.axes: list[dict[int, Any]] = []

    def f(self, names: str, dtype: Any = torch.float32) -> Any:
        self._remember(names)
        return super().f(names, dtype)

    def i(self, names: str, bound: str, low: int = 0) -> Any:
        self._remember(names)
        return super().i(names, bound, low)

    def _remember(self, names: str) -> None:
        self.axes.append({axis: AUTO for axis, name in enumerate(names) if not name.isdigit()})


def exported(fn: Callable[..., Any], arguments: list[Any], axes: list[dict[int, Any]] | None) -> Any:
    shapes = None if axes is None else (tuple(axes),)
    return torch.export.export(Called(fn), tuple(arguments), dynamic_shapes=shapes)


def ours(program: Any, arguments: list[Any]) -> list[Any]:
    written = write(program.run_decompositions(everything()).graph)
    run = treadle.compile(written.module, target="sim")
    return [array(result) for result in run(*(arguments[number] for number in written.arguments))]


def theirs(program: Any, arguments: list[Any]) -> list[Any]:
    """What torch-mlir's loop nests give. Skips what it does not lower, and forms of it that are refused."""
    try:
        whole = str(torch_mlir_fx.export_and_import(program, output_type="linalg-on-tensors"))
    except TorchMlirCompilerError as refused:
        pytest.skip(f"torch-mlir does not lower it: {str(refused).splitlines()[0]}")
    text = "\n".join(line for line in whole.splitlines() if "cf.assert" not in line)  # sizes agree: inputs are right
    try:
        compiled = treadle.compile(text, target="sim")
    except TreadleError as refused:
        pytest.skip(f"torch-mlir's form of it is refused: {refused.code}: {refused.message}")
    return [array(result) for result in compiled(*arguments)]


def agrees(found: list[Any], right: list[Any]) -> bool:
    """Up to what sums in f32 may differ by."""
    return len(found) == len(right) and all(
        f.shape == r.shape and bool(((f == r.double()) | ((f - r.double()).abs() <= 3e-6 * max(1, r.double().abs().max()))).all())
        for f, r in zip(found, right, strict=True)
    )


@pytest.mark.parametrize("mode", ["static", "dynamic"])
@pytest.mark.parametrize("name", CASES)
def test_operators(name: str, mode: str) -> None:
    fn, make = CASES[name]
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {seed}")
    shapes = Named(seed)
    arguments = make(shapes)
    program = exported(fn, arguments, shapes.axes if mode == "dynamic" else None)
    right = in_float64(fn, arguments)
    assert agrees(ours(program, arguments), right)
    assert agrees(theirs(program, arguments), right)
