"""Calls of `treadle.op`'s operators that pass the dispatcher by, and whatever makes a call one for the dispatcher."""

from collections.abc import Callable
from typing import Any

import pytest

import treadle

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402


def double(x: Any, y: Any) -> Any:
    return x.detach() * 2 + y.detach()


double.__annotations__ = {"x": torch.Tensor, "y": torch.Tensor, "return": torch.Tensor}  # PyTorch may be missing where types are checked


def gradient(ctx: Any, grad: Any) -> Any:
    return grad * 2, grad


class Counted:
    """An operator, and how many of its calls went to the dispatcher."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, operator: Any) -> None:
        self.operator, self.dispatched = operator, 0
        call = torch._ops.OpOverload.__call__

        def counted(overload: Any, /, *arguments: Any, **named: Any) -> Any:
            self.dispatched += overload is operator
            return call(overload, *arguments, **named)

        monkeypatch.setattr(torch._ops.OpOverload, "__call__", counted)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.operator(*arguments, **named)

    def takes(self, dispatched: int, *arguments: Any) -> Any:
        """A call's results, which are right. `dispatched`: 1 for one that goes to the dispatcher."""
        before = self.dispatched
        results = self(*arguments)
        assert self.dispatched - before == dispatched
        torch.testing.assert_close(results.detach(), double(*arguments))
        return results


_names = iter(range(100))


@pytest.fixture(params=[False, True], ids=["bare", "gradients"])
def has_gradients(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, has_gradients: bool) -> Counted:
    operator = treadle.op(double, f"treadle_tests::double{next(_names)}", backward=gradient if has_gradients else None)
    found = Counted(monkeypatch, operator)
    found.takes(1, torch.randn(3, 4), torch.randn(3, 4))
    found.takes(0, torch.randn(3, 4), torch.randn(3, 4))
    return found


@pytest.mark.parametrize("kind", ["strides", "type", "negated", "size"])
def test_tensors_of_other_kinds(counted: Counted, kind: str) -> None:
    x = torch.randn(3, 4)
    others = {"strides": torch.randn(4, 3).t(), "type": x.to(torch.float64), "negated": torch._neg_view(x), "size": torch.randn(1, 4)}
    counted.operator._misses = 2  # the next miss makes no guard
    counted.takes(1, others[kind], torch.zeros(3, 4))


def scaled(x: Any, by: Any, shift: Any = 1) -> Any:
    assert type(by) is float
    return x * by + shift


scaled.__annotations__ = {"x": torch.Tensor, "by": float, "shift": int, "return": torch.Tensor}


def test_tensors_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values may differ; those that the dispatcher converts are left to it."""
    counted = Counted(monkeypatch, treadle.op(scaled, f"treadle_tests::scaled{next(_names)}"))
    x = torch.ones(3)
    for by, shift, dispatched in ((2.0, 1, 1), (3.0, 5, 0), (2, 5, 1), (2.5, 0, 0), (2.5, True, 1)):
        counted.dispatched, counted.operator._misses = 0, 0
        torch.testing.assert_close(counted(x, by, shift), x * by + shift)
        assert counted.dispatched == dispatched
    torch.testing.assert_close(counted(x, 2.0), x * 2 + 1)


def test_a_call_by_name(counted: Counted) -> None:
    x = torch.randn(3, 4)
    torch.testing.assert_close(counted(x=x, y=x), x * 3)
    with pytest.raises(RuntimeError):
        counted(x)
    with pytest.raises(RuntimeError):
        counted(x, 1)


def test_modes_see_calls(counted: Counted) -> None:
    seen: list[Any] = []

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class Function(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    for mode in (Dispatch, Function):
        seen.clear()
        x = torch.randn(3, 4)
        with mode():
            counted(x, x)
        assert counted.operator in seen


def test_the_profiler_sees_calls(counted: Counted) -> None:
    x = torch.randn(3, 4)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        counted(x, x)
    assert counted.operator._schema.name in {event.key for event in profile.key_averages()}


def test_graphs_have_calls(counted: Counted) -> None:
    x = torch.randn(3, 4)
    made = torch.fx.experimental.proxy_tensor.make_fx(counted.operator)(x, x)
    assert counted.operator in {node.target for node in made.graph.nodes}

    def body(x: Any, y: Any) -> Any:
        return counted.operator(x, y) + 1

    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Callable[..., Any]:
        graphs.append(gm.graph)
        return gm.forward

    torch.testing.assert_close(torch.compile(body, backend=backend, fullgraph=True)(x, x), x * 3 + 1)
    assert counted.operator in {node.target for node in graphs[0].nodes}


@pytest.mark.parametrize("has_gradients", [True], ids=["gradients"])
def test_gradients_that_are_wanted(counted: Counted) -> None:
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    with torch.no_grad():
        assert not counted.takes(1, x, y).requires_grad
        assert not counted.takes(0, x, y).requires_grad
    for _ in range(3):
        (found,) = torch.autograd.grad(counted.takes(1, x, y).sum(), x)
        torch.testing.assert_close(found, torch.full((3, 4), 2.0))


def test_what_a_function_computes_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(4, requires_grad=True)

    def weighted(x: Any) -> Any:
        return x * weight

    weighted.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}
    counted = Counted(monkeypatch, treadle.op(weighted, f"treadle_tests::weighted{next(_names)}", backward=gradient))
    assert not counted(torch.randn(3, 4)).requires_grad
    assert not counted(torch.randn(3, 4)).requires_grad
    assert counted.dispatched == 1
