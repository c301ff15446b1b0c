"""Gradients of `treadle.op`'s operators from the joint graph of a definition, compiled, beside autograd's."""

from collections.abc import Callable
from typing import Any

import pytest

import treadle
import treadle.language as tl
from treadle.errors import TreadleError

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

from treadle.torch import compiled_function  # noqa: E402


def annotated(function: Callable[..., Any], result: Any = torch.Tensor, **kinds: Any) -> Callable[..., Any]:
    """A function with annotations: PyTorch may be missing where types are checked."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    function.__annotations__ = {**dict.fromkeys(names, torch.Tensor), **kinds, "return": result}
    return function


@treadle.kernel(target="sim")
def softmax_kernel(x: Any, y: Any, BLOCK: tl.constexpr) -> None:
    row = tl.program_id(0)
    values = tl.load(x[row, 0:BLOCK], other=-float("inf"))
    e = tl.exp(values - tl.max(values, axis=0))
    y[row, 0:BLOCK] = e / tl.sum(e, axis=0)


def softmax(x: Any) -> Any:
    y = torch.empty_like(x)
    softmax_kernel[x.shape[0]](x.detach(), y, BLOCK=128)
    return y


def softmax_of_pytorch(x: Any) -> Any:
    return torch.softmax(x, 1)


def layer(x: Any, w: Any, b: Any, scale: Any = 1.0) -> Any:
    return torch.nn.functional.gelu(x @ w + b) * scale


def same_gradients(ours: Callable[..., Any], theirs: Callable[..., Any], *arguments: Any) -> None:
    """Results and gradients, in PyTorch's own precision of f32."""
    wanted = [argument for argument in arguments if isinstance(argument, torch.Tensor) and argument.requires_grad]
    results, expected = ours(*arguments), theirs(*arguments)
    torch.testing.assert_close(results, expected, rtol=1e-4, atol=1e-5)
    weight = torch.randn_like(expected)
    found = torch.autograd.grad(results, wanted, weight)
    torch.testing.assert_close(found, torch.autograd.grad(expected, wanted, weight), rtol=1e-4, atol=1e-5)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is compiled."""
    names: list[str] = []
    write = compiled_function.write

    def noted(graph: Any, name: str) -> Any:
        names.append(name)
        return write(graph, name)

    monkeypatch.setattr(compiled_function, "write", noted)
    return names


def test_a_kernel_with_a_definition(compiled: list[str]) -> None:
    operator = treadle.op(annotated(softmax), "treadle_tests::defined_softmax", definition=softmax_of_pytorch)
    x = torch.randn(5, 77, requires_grad=True)
    for _ in range(2):
        same_gradients(operator, softmax_of_pytorch, x)
    assert compiled == ["softmax_backward"]
    torch.library.opcheck(operator, (x,))


def test_a_program_with_a_definition() -> None:
    program = treadle.compile(
        """
        func.func @scaled(%x: tensor<?x8xf32>, %y: tensor<?x8xf32>) -> tensor<?x8xf32> {
          %z = arith.mulf %x, %y : tensor<?x8xf32>
          return %z : tensor<?x8xf32>
        }""",
        target="sim",
    )
    operator = treadle.op(program, "treadle_tests::defined_program", definition=torch.mul)
    x, y = torch.randn(3, 8, requires_grad=True), torch.randn(3, 8)
    same_gradients(operator, torch.mul, x, y)
    same_gradients(operator, torch.mul, y, x)
    torch.library.opcheck(operator, (x, y))


def test_a_function_that_is_its_own_definition(compiled: list[str]) -> None:
    operator = treadle.op(annotated(layer, scale=float), "treadle_tests::layer", definition=True)
    w, b = torch.randn(13, 17, requires_grad=True), torch.randn(17)
    for rows in (5, 5, 7, 9, 1):
        same_gradients(operator, layer, torch.randn(rows, 13, requires_grad=True), w, b)
    # 5 rows, rows that are a symbol (of 7 and 9), and one row.
    assert compiled.count("layer") == compiled.count("layer_backward") == 3
    torch.testing.assert_close(operator(torch.ones(9, 13), w.detach(), b, 2.5), layer(torch.ones(9, 13), w, b, 2.5).detach())
    same_gradients(operator, layer, torch.randn(5, 13), w, b, 0.5)
    x = torch.randn(5, 13, requires_grad=True)
    torch.library.opcheck(operator, (x, w, b))


def test_backward_reads_what_is_cheap_to_keep() -> None:
    """The product is kept, not computed again; operands are kept as they are, not as the views that backward takes of them."""
    operator = treadle.op(annotated(layer, scale=float), "treadle_tests::kept_layer", definition=True)
    x, w, b = torch.randn(5, 13, requires_grad=True), torch.randn(13, 17, requires_grad=True), torch.randn(17)
    result = operator(x, w, b)
    places = {tensor.data_ptr(): tuple(tensor.shape) for tensor in result.grad_fn.saved_tensors}
    arguments = {tensor.data_ptr(): tuple(tensor.shape) for tensor in (x, w, b)}
    assert {place: places[place] for place in arguments} == arguments
    assert {shape for place, shape in places.items() if place not in arguments} == {(5, 17)}


def test_it_is_one_call_to_pytorchs_compiler() -> None:
    operator = treadle.op(annotated(layer, scale=float), "treadle_tests::traced_layer", definition=True)

    def model(x: Any, w: Any, b: Any) -> Any:
        return operator(x * 2, w, b, 0.5) + 1

    def plain(x: Any, w: Any, b: Any) -> Any:
        return layer(x * 2, w, b, 0.5) + 1

    arguments = [torch.randn(shape, requires_grad=True) for shape in ((5, 13), (13, 17), (17,))]
    same_gradients(torch.compile(model, backend="aot_eager", fullgraph=True), plain, *arguments)


def two(x: Any, y: Any) -> Any:
    return x.sum(), (x * y).argmax(1)


def test_results_without_gradients() -> None:
    operator = treadle.op(annotated(two, tuple[torch.Tensor, torch.Tensor]), "treadle_tests::two", definition=True)
    x, y = torch.randn(5, 7, requires_grad=True), torch.randn(5, 7)
    total, places = operator(x, y)
    assert total.requires_grad
    assert not places.requires_grad
    torch.testing.assert_close(places, two(x, y)[1])
    (found,) = torch.autograd.grad(total, x)
    torch.testing.assert_close(found, torch.ones(5, 7))


def places_first(x: Any, y: Any) -> Any:
    return (x * y).argmax(1), (x * x).sum()


@pytest.mark.parametrize("is_own", [True, False], ids=["compiled", "by hand"])
def test_results_without_gradients_come_first(is_own: bool) -> None:
    name, function = f"treadle_tests::places_first_{is_own}", annotated(places_first, tuple[torch.Tensor, torch.Tensor])
    operator = treadle.op(function, name, definition=is_own or function)
    x, y = torch.randn(5, 7, requires_grad=True), torch.randn(5, 7)

    def both(x: Any, y: Any) -> Any:
        return operator(x, y)

    for call in (operator, torch.compile(both, backend="aot_eager", fullgraph=True)):
        (found,) = torch.autograd.grad(call(x, y)[1], x)
        torch.testing.assert_close(found, 2 * x.detach())


def sums(xs: Any, scale: Any) -> Any:
    return [x.exp() * scale for x in xs]


def test_lists_of_tensors() -> None:
    operator = treadle.op(annotated(sums, list[torch.Tensor], xs=list[torch.Tensor], scale=int), "treadle_tests::sums", definition=True)
    xs = [torch.randn(4, requires_grad=True), torch.randn(2, 3), torch.randn(5, requires_grad=True)]
    torch.testing.assert_close(operator(xs, 2), sums(xs, 2))
    found = torch.autograd.grad(operator(xs, 2)[2].sum(), xs[2])
    torch.testing.assert_close(found, torch.autograd.grad(sums(xs, 2)[2].sum(), xs[2]))

    def total(xs: Any) -> Any:
        return sum(result.sum() for result in operator(xs, 3))

    given = [xs[0], xs[2]]
    found = torch.autograd.grad(torch.compile(total, backend="aot_eager", fullgraph=True)(xs), given)
    torch.testing.assert_close(found, tuple(3 * x.exp() for x in given))


def ordered(x: Any) -> Any:
    return torch.sort(x)[0]


def flat(x: Any) -> Any:
    return x.view(-1)


def doubled_(x: Any) -> None:
    x *= 2


def test_what_has_no_definition() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    operator = treadle.op(annotated(ordered), "treadle_tests::ordered", definition=True)
    for given in (x, x.detach()):
        with pytest.raises(TreadleError, match="TR125: operator 'ordered' cannot be compiled from its definition: aten"):
            operator(given)
    with pytest.raises(TreadleError, match=r"TR125: operator 'flat'.*outputs that alias inputs"):
        treadle.op(annotated(flat), "treadle_tests::flat", definition=True)(x)
    with pytest.raises(TreadleError, match="TR738: kernel 'softmax': its operator has gradients either of backward= or of definition="):
        treadle.op(annotated(softmax), "treadle_tests::both", definition=torch.exp, backward=softmax)
    with pytest.raises(TreadleError, match="TR738: kernel 'doubled_': it changes its arguments, so that it has no gradients"):
        treadle.op(annotated(doubled_, None), "treadle_tests::doubled_", mutates=("x",), definition=torch.mul)
    operator = treadle.op(annotated(softmax), "treadle_tests::other_softmax", definition=two_of)
    with pytest.raises(TreadleError, match=r"TR738: kernel 'other_softmax': its definition gives a torch.float32 of 1 dimensions"):
        operator(x).sum().backward()


def two_of(x: Any) -> Any:
    return x.sum(1)
