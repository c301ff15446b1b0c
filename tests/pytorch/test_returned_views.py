"""Results that a graph returns as views come out of the region's operator so, and mean what they meant."""

import random
from math import prod
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import treadle.torch  # noqa: E402
from treadle.torch.region_calls import REGION, caller  # noqa: E402
from treadle.torch.settings import Settings  # noqa: E402
from treadle.torch.shown_results import of_text, text_of  # noqa: E402
from treadle.torch.taking import take  # noqa: E402

F = torch.nn.functional
GETITEM = "getitem"
LAST = torch.channels_last


def taken(function: Any, *tensors: Any) -> Any:
    """The function's graph with its regions taken."""
    module = make_fx(function)(*tensors)
    records = take(module.graph, Settings(target="sim"))
    assert all(record.taken for record in records), [record.reason for record in records]
    module.recompile()
    return module


def returns_results_alone(module: Any) -> bool:
    """Whether all that the graph returns comes out of an operator of a region, with nothing between."""
    (output,) = [node for node in module.graph.nodes if node.op == "output"]
    return all(node.name.startswith(GETITEM) and node.args[0].target is REGION for node in output.all_input_nodes)


def same(found: Any, right: Any) -> bool:
    return found.shape == right.shape and found.stride() == right.stride() and torch.allclose(found, right, atol=1e-4, rtol=1e-4)


def linear(x: Any, w: Any, b: Any) -> Any:
    return F.relu(F.linear(x, w, b))


def heads(x: Any, w: Any, b: Any) -> Any:
    return F.linear(x, w, b).view(2, 7, 3, 4).permute(0, 2, 1, 3)


def convolution(x: Any, w: Any) -> Any:
    return F.relu(F.conv2d(x, w, padding=1))


@pytest.mark.parametrize("function", [linear, heads])
def test_products_of_three_dimensions(function: Any) -> None:
    x, w, b = torch.randn(2, 7, 5), torch.randn(12, 5), torch.randn(12)
    module = taken(function, x, w, b)
    assert returns_results_alone(module)
    assert same(module(x, w, b), function(x, w, b))


def test_images_with_channels_last() -> None:
    x, w = torch.randn(2, 5, 6, 7).to(memory_format=LAST), torch.randn(9, 5, 3, 3).to(memory_format=LAST)
    module = taken(convolution, x, w)
    found = module(x, w)
    assert returns_results_alone(module) and found.is_contiguous(memory_format=LAST)
    assert same(found, convolution(x, w))


def chain(sides: list[int], steps: list[str], draws: list[int]) -> Any:
    """A product of two matrices, and views of it one behind the other."""

    def function(x: Any, w: Any) -> Any:
        y = F.relu(x @ w.t()).reshape(sides)
        for step, draw in zip(steps, draws, strict=True):
            own = random.Random(draw)
            if step == "permute":
                y = y.permute(own.sample(range(y.dim()), y.dim()))
            elif step == "split":
                dim = own.randrange(y.dim())
                part = own.choice([p for p in (1, 2, 3, 4, 6) if y.shape[dim] % p == 0])
                y = y.reshape(*y.shape[:dim], part, y.shape[dim] // part, *y.shape[dim + 1 :])
            else:
                y = y.reshape(-1, y.shape[-1])
        return y

    return function


def test_random_views() -> None:
    rng = random.Random(seed := int(np.random.SeedSequence().generate_state(1)[0]))
    alone = 0
    for _ in range(40):
        sides = [rng.choice((1, 2, 3, 4, 6)) for _ in range(rng.randint(1, 3))]
        steps = [rng.choice(("split", "permute", "flatten")) for _ in range(rng.randint(0, 4))]
        function = chain(sides, steps, draws := [rng.randrange(1 << 30) for _ in steps])
        x, w = torch.randn(sides[0], 5), torch.randn(prod(sides[1:]), 5)
        module = taken(function, x, w)
        assert same(module(x, w), function(x, w)), f"seed {seed}: {sides} {steps} {draws}"
        alone += returns_results_alone(module)
    assert alone > 5


def test_what_is_read_otherwise_too_keeps_its_view() -> None:
    def twice(x: Any, w: Any) -> Any:
        y = F.relu(x @ w).view(2, 3, 4)
        return y, y.sum(0)

    x, w = torch.randn(6, 5), torch.randn(5, 4)
    module = taken(twice, x, w)
    assert not returns_results_alone(module)
    assert all(same(*pair) for pair in zip(module(x, w), twice(x, w), strict=True))


def test_what_a_reshape_copies_is_no_view() -> None:
    """PyTorch's graphs have a copy and a view instead; graphs of passes need not."""

    def turned(x: Any, w: Any) -> Any:
        return F.relu(x @ w).t().contiguous().view(24)

    x, w = torch.randn(6, 5), torch.randn(5, 4)
    module = make_fx(turned)(x, w)
    (copy,) = [node for node in module.graph.nodes if node.name.startswith("clone")]
    (view,) = copy.users
    view.target, view.args = torch.ops.aten.reshape.default, (copy.args[0], [24])
    module.graph.erase_node(copy)
    take(module.graph, Settings(target="sim"))
    module.recompile()
    assert not returns_results_alone(module)
    assert same(module(x, w), turned(x, w))


def test_two_calls_of_one_program_are_shown_in_two_ways() -> None:
    def two(x: Any, w: Any) -> Any:
        return F.relu(x @ w).view(2, 3, 4), F.relu((x + 1) @ w).view(3, 2, 4)

    x, w = torch.randn(6, 5), torch.randn(5, 4)
    module = taken(two, x, w)
    calls = [node.args[1].split(".") for node in module.graph.nodes if node.target is REGION]
    assert len({digest for digest, *_ in calls}) == 1 and len({views for *_, views in calls}) == 2
    assert all(same(*pair) for pair in zip(module(x, w), two(x, w), strict=True))


def test_sizes_that_change_keep_their_views() -> None:
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(5, 12), torch.nn.ReLU())
    options = {"treadle.rest": "eager", "treadle.target": "sim", "treadle.strict": True}
    compiled = torch.compile(model, backend=treadle.torch.backend, dynamic=True, options=options)
    with torch.no_grad():
        for batch, length in ((2, 7), (3, 4), (5, 2)):
            x = torch.randn(batch, length, 5)
            assert same(compiled(x), model(x))


def test_training() -> None:
    """Results are returned and kept for the backward pass; gradients are returned as views."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 12), torch.nn.SiLU(), torch.nn.Linear(12, 7))
    options = {"treadle.rest": "eager", "treadle.target": "sim", "treadle.strict": True}
    compiled = torch.compile(model, backend=treadle.torch.backend, dynamic=False, options=options)
    x, back = torch.randn(2, 3, 5, requires_grad=True), torch.randn(2, 3, 7)
    tensors = [x, *model.parameters()]
    found = torch.autograd.grad(compiled(x), tensors, back)
    right = torch.autograd.grad(model(x), tensors, back)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(found, right, strict=True))


def test_results_are_no_views_that_may_not_be_changed() -> None:
    """PyTorch refuses to change views that were made where gradients are off. Inductor's code calls regions without its dispatcher."""
    given = torch.randn(2, 7, 5), torch.randn(12, 5), torch.randn(12)
    name, tensors = call_of(taken(heads, *given), *given)
    with torch.no_grad():
        (y,) = caller(name)(*tensors)
    right = heads(*given) + 1
    y.add_(torch.ones(4, requires_grad=True))
    assert y.requires_grad and torch.allclose(y, right, atol=1e-4)


def test_names_say_what_is_shown() -> None:
    shown = {0: ((2, 3, 4), (12, 4, 1)), 2: ((7,), (1,))}
    assert of_text(text_of(shown)) == shown and f"f_{text_of(shown)}".isidentifier()
    assert of_text(text_of({})) == {}


def call_of(module: Any, x: Any, w: Any, b: Any) -> tuple[str, list[Any]]:
    """The name and the tensors by which a graph of a linear layer calls its region."""
    (call,) = [node for node in module.graph.nodes if node.target is REGION]
    known = {(x.shape[0] * x.shape[1], x.shape[2]): x.flatten(0, 1), tuple(w.shape): w, tuple(w.t().shape): w.t(), tuple(b.shape): b}
    return call.args[1], [known[tuple(node.meta["val"].shape)] for node in call.args[0]]


def test_the_operator_is_what_it_declares() -> None:
    given = torch.randn(2, 7, 5), torch.randn(12, 5), torch.randn(12)
    name, tensors = call_of(taken(heads, *given), *given)
    torch.library.opcheck(REGION, (tensors, name))
