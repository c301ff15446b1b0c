"""Regions of graphs for a GPU that is not there: tensors without contents stand for its tensors."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from treadle.torch.padded import pad_before_permutations  # noqa: E402
from treadle.torch.region_calls import REGION  # noqa: E402
from treadle.torch.regions import Region, find, operands  # noqa: E402
from treadle.torch.settings import Settings  # noqa: E402
from treadle.torch.taking import take  # noqa: E402

select_decomp_table: Callable[[], Any] = import_module("torch._inductor.decomposition").select_decomp_table
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


def test_what_is_left_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views that a region would have moved, too: PyTorch's compilers make of them what they would without us."""

    def block(x: Any, w: Any, v: Any, y: Any) -> Any:
        return torch.relu(x @ w) + y, torch.relu(x @ v) * y

    def graph() -> Any:
        return make_fx(block)(torch.randn(3, 5, 16), torch.randn(16, 7), torch.randn(16, 7), torch.randn(3, 5, 7)).graph

    taking = import_module("treadle.torch.taking")
    whole = taking._judge

    def leave(candidate: Any, settings: Any) -> None:
        whole(candidate, settings)
        if candidate.region.anchor.name in left:
            candidate.reason = "left"

    monkeypatch.setattr(taking, "_judge", leave)
    before, left = graph(), {"mm", "mm_1"}
    take(found := graph(), Settings(target="sim"))
    assert str(found) == str(before)
    left = {"mm"}
    take(found := graph(), Settings(target="sim"))
    assert sum(node.target is REGION for node in found.nodes) == 1
    text = str(found)
    assert all(
        line in text for line in str(before).splitlines() if line.strip().startswith(("%mm :", "%_unsafe_view :", "%relu :", "%add :"))
    )


def test_products_that_are_written_as_sums_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Inductor writes those with one row or column where it tunes most; what is left is a sum again."""

    def row(x: Any, w: Any) -> Any:
        return torch.relu((x.float().unsqueeze(2) * w.t().float().unsqueeze(0)).sum(1).to(x.dtype)) * 2

    def column(x: Any, w: Any) -> Any:
        return (x.unsqueeze(-1) * w.unsqueeze(1)).sum(2)

    def wide(x: Any, w: Any) -> Any:  # more rows than one, and no product: a sum along another dimension
        return (x.unsqueeze(2) * w.unsqueeze(0)).sum(1), (x.unsqueeze(2) * x.t().unsqueeze(0)).sum(2)

    def leave(candidate: Any, _: Any) -> None:
        candidate.reason = "left"

    narrow = (torch.randn(1, 24).half(), torch.randn(7, 24).half())
    batches = (torch.randn(3, 5, 24), torch.randn(3, 24, 1))
    taking = import_module("treadle.torch.taking")
    for function, given, operators in ((row, narrow, ("mm", "relu", "mul.Tensor")), (column, batches, ("bmm",))):
        traced = make_fx(function, select_decomp_table())(*given)
        before = sorted(str(node.target) for node in traced.graph.nodes)
        with monkeypatch.context() as patch:
            patch.setattr(taking, "_judge", leave)
            take(traced.graph, Settings(target="sim"))
        traced.recompile()
        assert sorted(str(node.target) for node in traced.graph.nodes) == before
        (right, found) = function(*given), traced(*given)
        assert (found - right).abs().max() <= 2e-3 * right.abs().max()
        (record,) = take(traced.graph, Settings(target="sim"))
        assert record.operators == operators
        traced.recompile()
        assert (traced(*given) - right).abs().max() <= 2e-3 * right.abs().max()
    assert not take(make_fx(wide)(torch.randn(5, 24), torch.randn(24, 7)).graph, Settings(target="sim"))


def test_what_norms_read_is_computed_in_their_kernels() -> None:
    """A sum that a norm reads costs PyTorch no kernel behind the product; one that another product reads does."""
    library = import_module("treadle.torch.library")

    def normed(x: Any, w: Any, y: Any) -> Any:
        z = (x @ w).view(3, 5, 32) + y
        return z - z.mean(-1, keepdim=True)

    def multiplied(x: Any, w: Any, y: Any) -> Any:
        return ((x @ w).view(3, 5, 32) + y).view(15, 32) @ w.t()

    def kept(x: Any, w: Any, y: Any) -> Any:
        z = (x @ w).view(3, 5, 32) + y
        return z, z - z.mean(-1, keepdim=True)

    given = ((15, 16), "cuda"), ((16, 32), "cuda"), ((3, 5, 32), "cuda")
    matrix = 4 * 15 * 32
    for function, runs_anyway, moved in ((normed, True, matrix), (multiplied, False, 3 * matrix), (kept, True, 2 * matrix)):
        found = library.replaced(regions(function, *given)[0])
        assert (found.runs_anyway, found.following_bytes) == (runs_anyway, moved)
    spec = import_module("treadle.machine").target_spec("sm_90a")
    alone = library.replaced(regions(relu_of_product, *given[:2])[0])
    assert alone.following_seconds(spec) > 1e-6 * library.BEHIND_US
    assert library.replaced(regions(normed, *given)[0]).following_seconds(spec) < 1e-7


def silu_slope(x: Any) -> Any:
    share = torch.sigmoid(x.float())
    return share * (1 + x.float() * (1 - share))


def test_what_is_computed_for_a_region_alone_joins_it() -> None:
    """The slope of an activation, in f32 from 16 bits, is not stored for the product of gradients that it scales."""

    def function(gradient: Any, weights: Any, before: Any) -> Any:
        slope = silu_slope(before)
        return ((gradient @ weights).view(2, 4, 32).float() * slope).bfloat16()

    with FakeTensorMode():
        given = [torch.empty(shape, dtype=torch.bfloat16) for shape in ((8, 16), (16, 32), (2, 4, 32))]
        (region,) = find(make_fx(function, decomposition_table=select_decomp_table())(*given).graph)
    assert {node.meta["val"].dtype for node in operands(region)} == {torch.bfloat16}


def test_what_others_read_or_has_wide_sources_stays_outside() -> None:
    """What is stored for others in any case is read; and one narrow array is less to read than all that it was computed from."""

    def shared(x: Any, w: Any, y: Any) -> Any:
        slope = silu_slope(y)
        return (x @ w).float() * slope, slope + 1

    def wide(x: Any, w: Any, *sources: Any) -> Any:
        return (x @ w) + (sources[0] + sources[1] * sources[2]).bfloat16()

    def square(x: Any, y: Any) -> Any:
        return torch.relu((x + y) @ x.t())

    for function, shapes in ((shared, [(8, 16), (16, 32), (8, 32)]), (square, [(16, 16), (16, 16)])):
        with FakeTensorMode():
            graph = make_fx(function)(*(torch.empty(shape, dtype=torch.bfloat16) for shape in shapes)).graph
        (region,) = find(graph)
        assert not {"sigmoid", "add"} & {node.name for node in region.nodes}
    with FakeTensorMode():
        given = [torch.empty(8, 16), torch.empty(16, 32), *(torch.empty(8, 32) for _ in range(3))]
        (region,) = find(make_fx(wide)(given[0].bfloat16(), given[1].bfloat16(), *given[2:]).graph)
    assert "mul" not in {node.name for node in region.nodes}


@pytest.mark.parametrize("activation", ["silu", "gelu"])
def test_gradients_through_activations_are_right(activation: str) -> None:
    """With the slope computed in the region, behind a view of the product, against float64."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Linear(24, 40), getattr(torch.nn, {"silu": "SiLU", "gelu": "GELU"}[activation])(), torch.nn.Linear(40, 8)
    )
    compiled = torch.compile(layers, backend="treadle", options={"treadle.target": "sim", "treadle.rest": "eager"})
    x = torch.randn(3, 5, 24)
    compiled(x).square().sum().backward()
    found = [parameter.grad.clone() for parameter in layers.parameters()]
    exact = layers.double()
    exact.zero_grad()
    exact(x.double()).square().sum().backward()
    for got, parameter in zip(found, exact.parameters(), strict=True):
        torch.testing.assert_close(got.double(), parameter.grad, rtol=1e-5, atol=1e-5)


def test_arrays_whose_rows_are_put_further_apart() -> None:
    """As Inductor does on GPUs where rows are long and odd: two regions read one such array through views."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    norm, gate, up = torch.nn.LayerNorm(54), torch.nn.Linear(54, 30, bias=False), torch.nn.Linear(54, 30, bias=False)
    x = torch.randn(1, 5, 54)

    def function(x: Any) -> Any:
        normed = norm(x)
        return torch.nn.functional.silu(gate(normed)) * up(normed)

    patches = {"disable_padding_cpu": False, "padding_stride_threshold": 16, "force_disable_caches": True}
    with torch.no_grad(), import_module("torch._inductor.config").patch(patches):
        found = torch.compile(function, backend="treadle", options={"treadle.target": "sim"}, dynamic=False)(x)
        torch.testing.assert_close(found, function(x))


def test_padded_weights_lie_as_the_weights_do() -> None:
    """Inductor pads what is permuted: the other way round the padded array is no copy in another order."""

    def function(x: Any, weight: Any) -> Any:
        pad = torch.nn.functional.pad
        return pad(x, (0, 3)) @ pad(weight.t(), (0, 5, 0, 3))

    given = torch.randn(8, 61), torch.randn(187, 61)
    graph = make_fx(function)(*given)
    pad_before_permutations(graph.graph)
    graph.recompile()
    torch.testing.assert_close(graph(*given), function(*given))
    (region,) = find(graph.graph)
    assert [tuple(node.meta["val"].shape) for node in operands(region)] == [(8, 64), (192, 64)]


@pytest.mark.parametrize("order", [(1, 2, 0), (2, 0, 1), (0, 2, 1)])
def test_padded_permutations_of_three_dimensions(order: tuple[int, int, int]) -> None:
    """Amounts of the last dimensions alone, before and behind, and two permutations."""

    def function(x: Any, y: Any) -> Any:
        return torch.bmm(x, torch.nn.functional.pad(y.permute(order).transpose(0, 2), (1, 2, 0, 3)))

    y = torch.randn(4, 4, 4)
    graph = make_fx(function)(torch.randn(4, 5, 7), y)
    pad_before_permutations(graph.graph)
    graph.recompile()
    x = torch.randn(4, 5, 7)
    torch.testing.assert_close(graph(x, y), function(x, y))
    assert all(node.target is not torch.ops.aten.constant_pad_nd.default or node.args[0].op == "placeholder" for node in graph.graph.nodes)
