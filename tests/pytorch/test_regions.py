"""Regions of graphs for a GPU that is not there: tensors without contents stand for its tensors."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from treadle.torch.region_calls import REGION  # noqa: E402
from treadle.torch.regions import Region, find, operands  # noqa: E402
from treadle.torch.settings import Settings  # noqa: E402
from treadle.torch.taking import take  # noqa: E402

FakeTensorMode = import_module("torch._subclasses.fake_tensor").FakeTensorMode


def relu_of_product(x: Any, w: Any) -> Any:
    return torch.relu(x @ w)


def regions(function: Callable[..., Any], *shapes: tuple[tuple[int, ...], str]) -> list[Region]:
    """Of a function of tensors on these devices."""
    with FakeTensorMode():
        return find(make_fx(function)(*(torch.empty(shape, device=device) for shape, device in shapes)).graph)


def test_numbers_of_the_host_stay_outside() -> None:
    """PyTorch computes with tensors of a GPU and one number that is a tensor of the host's; programs do not."""

    def function(x: Any, w: Any, factor: Any) -> Any:
        return torch.relu(torch.relu(x @ w) * factor)

    (mixed,) = regions(function, ((8, 16), "cuda"), ((16, 32), "cuda"), ((), "cpu"))
    assert [node.name for node in mixed.nodes] == ["mm", "relu"]
    assert {node.meta["val"].device.type for node in operands(mixed)} == {"cuda"}
    (whole,) = regions(function, ((8, 16), "cuda"), ((16, 32), "cuda"), ((), "cuda"))
    assert [node.name for node in whole.nodes] == ["mm", "relu", "mul", "relu_1"]


def test_graphs_with_regions_go_into_cuda_graphs() -> None:
    """What Inductor asks of a graph that it captures: no operator that waits, allocates on the host or changes its inputs."""
    (tensor, *_) = REGION._schema.arguments
    assert not REGION._schema.is_mutable
    assert tensor.alias_info is None
    assert torch.Tag.cudagraph_unsafe not in REGION.tags
    assert torch.Tag.needs_exact_strides in REGION.tags
    with FakeTensorMode():
        graph = make_fx(relu_of_product)(torch.empty(8, 16), torch.empty(16, 32)).graph
    take(graph, Settings(target="sim"))
    (call,) = [node for node in graph.nodes if node.target is REGION]
    assert not import_module("torch._inductor.utils").is_cudagraph_unsafe_fx_node(call)
    assert all(isinstance(value, torch.Tensor) for value in call.meta["val"])


def test_the_operator_is_what_it_declares() -> None:
    """PyTorch's own checks: the schema, tensors without contents, and gradients that it has not."""
    graph = make_fx(relu_of_product)(torch.randn(5, 16), torch.randn(16, 7)).graph
    take(graph, Settings(target="sim"))
    (call,) = [node for node in graph.nodes if node.target is REGION]
    torch.library.opcheck(REGION, ([torch.randn(5, 16), torch.randn(16, 7)], call.args[1]))
