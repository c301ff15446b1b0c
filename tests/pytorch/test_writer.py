# pyright: reportUnknownLambdaType=false, reportMissingParameterType=false
"""The writer: every operator against float64 on the simulator, on random odd shapes, static and symbolic."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import treadle  # noqa: E402
from treadle.torch.decompositions import everything  # noqa: E402
from treadle.torch.unsupported import Unsupported  # noqa: E402
from treadle.torch.writer import write  # noqa: E402

F = torch.nn.functional
Case = tuple[Callable[..., Any], Callable[[Any], list[Any]]]


class Shapes:
    """Random tensors: sizes come from `d`, which gives the same for the same name."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._torch = torch.Generator().manual_seed(seed)
        self._sizes: dict[str, int] = {}

    def d(self, name: str) -> int:
        """A size, odd more often than not, never 1."""
        return self._sizes.setdefault(name, int(self._rng.choice([2, 3, 5, 7, 8, 13, 17, 21, 33])))

    def f(self, names: str, dtype: Any = torch.float32) -> Any:
        """A tensor of N(0, 1) with an axis for each letter; a digit is a size itself."""
        return torch.randn([int(n) if n.isdigit() else self.d(n) for n in names], generator=self._torch).to(dtype)

    def i(self, names: str, bound: str, low: int = 0) -> Any:
        """Integers below the size `bound`."""
        shape = [int(n) if n.isdigit() else self.d(n) for n in names]
        return torch.randint(low, self.d(bound), shape, generator=self._torch)


OPERATORS_OF_MODELS = """
add.Tensor sub.Tensor mul.Tensor mul.Scalar div.Tensor div.Scalar neg exp erf tanh sigmoid gelu rsqrt cos sin pow.Tensor_Scalar clamp
where.self le.Tensor eq.Tensor eq.Scalar ne.Scalar ge.Scalar lt.Scalar logical_not bitwise_and.Tensor bitwise_not _to_copy
view permute unsqueeze squeeze.dims expand slice.Tensor select.int split_with_sizes cat slice_scatter clone alias
full full_like scalar_tensor arange.start_step mean.dim sum.dim_IntList any.dim mm addmm bmm convolution convolution_backward
_softmax native_layer_norm native_group_norm embedding index.Tensor gather index_put cumsum native_dropout
"""
CASES: dict[str, Case] = {
    "add.Tensor": (lambda a, b: torch.add(a, b, alpha=2), lambda s: [s.f("xyz"), s.f("z")]),
    "sub.Tensor": (lambda a, b: a - b, lambda s: [s.f("xyz"), s.f("y1")]),
    "mul.Tensor": (lambda a, b: a * b, lambda s: [s.f("xy"), s.f("xy")]),
    "mul.Scalar": (lambda a: a * 2.5, lambda s: [s.f("xy")]),
    "div.Tensor": (lambda a, b: a / (b.abs() + 1), lambda s: [s.f("xy"), s.f("xy")]),
    "div.Scalar": (lambda a: a / 3, lambda s: [s.i("xy", "x")]),
    "neg": (lambda a: -a, lambda s: [s.f("xy")]),
    "exp": (torch.exp, lambda s: [s.f("xy")]),
    "erf": (torch.erf, lambda s: [s.f("xy")]),
    "tanh": (torch.tanh, lambda s: [s.f("xy")]),
    "sigmoid": (torch.sigmoid, lambda s: [s.f("xy")]),
    "gelu": (F.gelu, lambda s: [s.f("xy")]),
    "rsqrt": (lambda a: torch.rsqrt(a.abs() + 1), lambda s: [s.f("xy")]),
    "cos": (torch.cos, lambda s: [s.f("xy")]),
    "sin": (torch.sin, lambda s: [s.f("xy")]),
    "pow.Tensor_Scalar": (lambda a: a.pow(2) + a.abs().pow(1.5) + a.pow(3), lambda s: [s.f("xy")]),
    "clamp": (lambda a: a.clamp(-0.5, 0.25) + a.clamp(min=0.1), lambda s: [s.f("xy")]),
    "where.self": (lambda a, b: torch.where(a > b, a, float("-inf")).exp(), lambda s: [s.f("xy"), s.f("xy")]),
    "le.Tensor": (lambda a, b: a <= b, lambda s: [s.i("xy", "x"), s.i("xy", "x")]),
    "eq.Tensor": (lambda a, b: a == b, lambda s: [s.i("xy", "x"), s.i("xy", "x")]),
    "eq.Scalar": (lambda a: a == 1, lambda s: [s.i("xy", "x")]),
    "ne.Scalar": (lambda a: a != 1, lambda s: [s.i("xy", "x")]),
    "ge.Scalar": (lambda a: a >= 0, lambda s: [s.f("xy")]),
    "lt.Scalar": (lambda a: a < 0, lambda s: [s.f("xy")]),
    "logical_not": (lambda a: torch.logical_not(a), lambda s: [s.i("xy", "x")]),
    "bitwise_and.Tensor": (lambda a, b: (a > 0) & (b > 0), lambda s: [s.f("xy"), s.f("xy")]),
    "bitwise_not": (lambda a: ~a, lambda s: [s.i("xy", "x")]),
    "_to_copy": (lambda a: a.to(torch.int32).to(torch.float32) + (a > 0).to(torch.float32), lambda s: [s.f("xy")]),
    "view": (lambda a: a.view(a.shape[0] * a.shape[1], a.shape[2]) * 2, lambda s: [s.f("xyz")]),
    "permute": (lambda a: a.permute(2, 0, 1) + 1, lambda s: [s.f("xyz")]),
    "unsqueeze": (lambda a: a.unsqueeze(1) * a.unsqueeze(0), lambda s: [s.f("xy")]),
    "squeeze.dims": (lambda a: a.squeeze(1) + 1, lambda s: [s.f("x1y")]),
    "expand": (lambda a: a.expand(4, a.shape[0], 3) + 1, lambda s: [s.f("x1")]),
    "slice.Tensor": (lambda a: a[:, 1:4:2] * 2, lambda s: [s.f("x7")]),
    "select.int": (lambda a: a.select(1, 2) + 1, lambda s: [s.f("x5y")]),
    "split_with_sizes": (lambda a: [p * 2 for p in a.split([2, 3], 1)], lambda s: [s.f("x5y")]),
    "cat": (lambda a, b: torch.cat([a, b, a], 1), lambda s: [s.f("xyz"), s.f("x3z")]),
    "slice_scatter": (lambda a, b: a.slice_scatter(b, 1, 2, 4), lambda s: [s.f("x5"), s.f("x2")]),
    "clone": (lambda a: a.clone() + 1, lambda s: [s.f("xy")]),
    "alias": (lambda a: torch.ops.aten.alias(a) + 1, lambda s: [s.f("xy")]),
    "full": (lambda a: torch.full((3, 5), 2.5) + a, lambda s: [s.f("5")]),
    "full_like": (lambda a: torch.full_like(a, 2) * a, lambda s: [s.f("xy")]),
    "scalar_tensor": (lambda a: a * torch.ops.aten.scalar_tensor(3.0), lambda s: [s.f("xy")]),
    "arange.start_step": (lambda a: a + torch.arange(3, 3 + 2 * a.shape[-1], 2), lambda s: [s.f("xy")]),
    "mean.dim": (lambda a: a.mean((0, 2)), lambda s: [s.f("xyz")]),
    "sum.dim_IntList": (lambda a: a.sum(1, keepdim=True) + a.sum(), lambda s: [s.f("xyz")]),
    "any.dim": (lambda a: (a > 1).any(1), lambda s: [s.f("xy")]),
    "mm": (lambda a, b: a @ b, lambda s: [s.f("mk"), s.f("kn")]),
    "mm of one row": (lambda a, b: a @ b.t(), lambda s: [s.f("1k"), s.f("nk")]),
    "mm of one term": (lambda a, b: a @ b, lambda s: [s.f("m1"), s.f("1n")]),
    "mm of one element": (lambda a, b: a @ b, lambda s: [s.f("1k"), s.f("k1")]),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, alpha=2, beta=0.5), lambda s: [s.f("n"), s.f("mk"), s.f("kn")]),
    "bmm": (lambda a, b: torch.bmm(a, b.transpose(1, 2)), lambda s: [s.f("bmk"), s.f("bnk")]),
    "a linear layer of three dimensions": (F.linear, lambda s: [s.f("bmk"), s.f("nk"), s.f("n")]),
    "_softmax": (lambda a: F.softmax(a, -1), lambda s: [s.f("xyz")]),
    "_log_softmax": (lambda a: F.log_softmax(a, 1), lambda s: [s.f("xyz")]),
    "native_layer_norm": (lambda a, w, b: F.layer_norm(a, w.shape, w, b), lambda s: [s.f("xyz"), s.f("z"), s.f("z")]),
    "embedding": (lambda t, i: F.embedding(i, t), lambda s: [s.f("nk"), s.i("xy", "n")]),
    "index.Tensor": (lambda t, i, j: t[i, j], lambda s: [s.f("nmk"), s.i("x", "n"), s.i("x", "m")]),
    "gather": (lambda t, i: t.gather(1, i), lambda s: [s.f("xn"), s.i("x5", "n")]),
    "index_select": (lambda a, i: a.index_select(1, i), lambda s: [s.f("xyz"), s.i("5", "y")]),
    "addcmul": (lambda a, b, c: torch.addcmul(a, b, c, value=0.5), lambda s: [s.f("xy"), s.f("xy"), s.f("y")]),
    "amax": (lambda a: a.amax(0) - a.amin(), lambda s: [s.f("xy")]),
    "var": (lambda a: a.var(1), lambda s: [s.f("xyz")]),
    "remainder": (lambda a: a % 3 + (a - 5) // 4, lambda s: [s.i("xy", "x", -9)]),
    "maximum": (lambda a, b: torch.maximum(a, b) - torch.minimum(a, b).relu(), lambda s: [s.f("xy"), s.f("y")]),
    "index_put": (lambda t, i, v: t.index_put((i,), v), lambda s: [s.f("nx"), s.i("5", "n", -2).unique(), s.f("x")]),
    "index_put with sums": (
        lambda t, i, v: torch.ops.aten.index_put(t, [None, i], v, True),
        lambda s: [s.f("xny"), s.i("43", "n"), s.f("x43y")],
    ),
    "index_put of pairs": (
        lambda t, i, j, v: t.index_put((i, j), v, True),
        lambda s: [s.f("nmx"), s.i("7", "n"), s.i("7", "m"), s.f("7x")],
    ),
    "cumsum": (lambda a: a.cumsum(1) + a.cumsum(-1), lambda s: [s.f("xyz")]),
    "cumsum of integers": (lambda a: (a != 0).cumsum(-1), lambda s: [s.i("xy", "x")]),
    "native_dropout": (lambda a: F.dropout(a, 0.5, training=False) * 2, lambda s: [s.f("xy")]),
    "embedding_dense_backward": (
        lambda y, i: torch.ops.aten.embedding_dense_backward(y, i, 7, -1, False),
        lambda s: [s.f("xyz"), s.i("xy", "x").clamp(max=6)],
    ),
    "argmax": (lambda a: [a.argmax(1), a.argmin(0, keepdim=True), a.argmax()], lambda s: [s.f("xy")]),
    "constant_pad_nd": (lambda a: F.pad(a, (1, 2, -1, 3), value=0.5) * 2, lambda s: [s.f("x5y")]),
    "flip": (lambda a: a.flip(0, 2) + 1, lambda s: [s.f("xyz")]),
    "max_pool2d": (lambda a: F.max_pool2d(a, 3, 2, 1) + 1, lambda s: [s.f("x375")]),
    "max_pool2d of dilated windows": (lambda a: F.max_pool2d(a, (2, 3), 1, (0, 1), 2), lambda s: [s.f("x395")]),
    "avg_pool2d": (lambda a: F.avg_pool2d(a, (2, 1), 2) + F.avg_pool2d(a, 1, 2)[:, :, :3], lambda s: [s.f("x375")]),
    "slice_scatter with a step": (lambda a, b: a.slice_scatter(b, 1, 1, 6, 2), lambda s: [s.f("x7"), s.f("x3")]),
    "lerp": (lambda a, b: torch.lerp(a, b, 0.25), lambda s: [s.f("xy"), s.f("xy")]),
}


def written(fn: Callable[..., Any], arguments: list[Any], mode: str) -> tuple[Any, Any]:
    """The program of a function's graph, and the arguments that it takes."""
    with torch.fx.traceback.preserve_node_meta():  # as torch.compile does: it tells what decompositions made
        graph = make_fx(fn, tracing_mode=mode, decomposition_table=everything())(*arguments).graph
    found = write(graph)
    return treadle.compile(found.module, target="sim"), [arguments[number] for number in found.arguments]


def results(fn: Callable[..., Any], arguments: list[Any]) -> list[Any]:
    """What the function is in PyTorch."""
    made = fn(*arguments)
    return list(made) if isinstance(made, list | tuple) else [made]


def in_float64(fn: Callable[..., Any], arguments: list[Any]) -> list[Any]:
    """What the function is of the same numbers in float64."""
    return results(fn, [a.double() if a.is_floating_point() else a for a in arguments])


def array(result: Any) -> Any:
    """A result as float64."""
    return torch.from_numpy(np.asarray(result).astype(np.float64))


def check(fn: Callable[..., Any], arguments: list[Any], mode: str, tolerance: float = 3e-6) -> None:
    """The program computes what PyTorch does in float64, up to `tolerance` of the largest value; where numbers make f32 worse than that, as
    the norm of a row of almost equal ones does, up to four times what PyTorch's own result is off.
    """
    program, given = written(fn, arguments, mode)
    for got, right, eager in zip(program(*given), in_float64(fn, arguments), results(fn, arguments), strict=True):
        found = array(got)
        assert found.shape == right.shape
        right = right.double()
        off = (eager.double() - right).abs().nan_to_num(0, 0, 0)
        allowed = tolerance * max(1, right.abs().max()) + 4 * (off.max() if off.numel() else 0)
        assert ((found == right) | ((found - right).abs() <= allowed)).all()


class Called(torch.nn.Module):
    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *arguments: Any) -> Any:
        return self.fn(*arguments)


def dynamic(fn: Callable[..., Any], arguments: list[Any], shapes: Any) -> Callable[..., list[Any]]:
    """The program of a function with the dimensions dynamic that `shapes` says."""
    written = write(torch.export.export(Called(fn), tuple(arguments), dynamic_shapes=(shapes,)).run_decompositions(everything()).graph)
    program = treadle.compile(written.module, target="sim")
    return lambda *given: [array(result) for result in program(*(given[number] for number in written.arguments))]


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("name", CASES)
def test_operators(name: str, mode: str) -> None:
    fn, make = CASES[name]
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {seed}")
    check(fn, make(Shapes(seed)), mode)


def test_a_batch_as_large_as_its_rows_are_many() -> None:
    """Axes of one size have one symbol: views of the linear layer's rows divide its square by it."""
    arguments = [torch.randn(5, 5, 7), torch.randn(3, 7), torch.randn(3)]
    check(F.linear, arguments, "symbolic")


def test_each_operator_of_the_models_is_tested() -> None:
    """What is left of Llama, Qwen3, BERT, ViT, CLIP and Stable Diffusion's UNet and decoder, forward and backward, after decomposition."""
    names = {name.split(" ")[0] for name in CASES} | {"convolution", "convolution_backward", "native_group_norm"}  # these in tests below
    assert set(OPERATORS_OF_MODELS.split()) <= names


def test_group_norm_of_any_batch_and_size() -> None:
    def norm(x: Any, w: Any, b: Any) -> Any:
        return F.group_norm(x, 3, w, b)

    weights = [torch.randn(6), torch.randn(6)]
    axes = ({0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC}, {}, {})
    program = dynamic(norm, [torch.randn(2, 6, 5, 3), *weights], axes)
    for shape in ((2, 6, 5, 3), (3, 6, 4, 7)):
        arguments = [torch.randn(shape), *weights]
        assert (program(*arguments)[0] - in_float64(norm, arguments)[0]).abs().max() <= 1e-5


def test_images_of_any_size_are_made_larger() -> None:
    def larger(x: Any) -> Any:
        return F.interpolate(x, scale_factor=2.0) + 1

    check(lambda x: F.interpolate(x, size=(7, 4)) + 1, [torch.randn(2, 3, 5, 7)], "fake")
    program = dynamic(
        larger, [torch.randn(2, 3, 5, 7)], ({0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC},)
    )
    for shape in ((2, 3, 5, 7), (3, 3, 2, 4)):
        x = torch.randn(shape)
        assert (program(x)[0] - larger(x.double())).abs().max() <= 1e-6


def test_windows_that_reach_beyond_the_image() -> None:
    check(lambda a: F.max_pool2d(a, 2, 2, ceil_mode=True), [torch.randn(2, 3, 7, 5)], "fake")


def test_group_norm() -> None:
    check(lambda x, w, b: F.group_norm(x, 3, w, b), [torch.randn(2, 6, 5, 3), torch.randn(6), torch.randn(6)], "fake")


def test_products_of_integers_are_sums_of_their_result() -> None:
    a, b = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((17, 33), (33, 8)))
    graph = make_fx(torch._int_mm, tracing_mode="fake")(a, b).graph
    found = write(graph)
    assert "xi32>" in str(found.module) and "i64" not in str(found.module)
    (result,) = treadle.compile(found.module, target="sim")(a, b)
    assert (array(result) == a.double() @ b.double()).all()


def test_scaled_products_of_eight_bits() -> None:
    def product(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
        return torch._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=torch.bfloat16)

    a, b = (torch.randn(shape).to(torch.float8_e4m3fn) for shape in ((16, 32), (48, 32)))
    scales = [torch.rand(16, 1), torch.rand(1, 48)]
    graph = make_fx(product, tracing_mode="fake")(a, b, *scales).graph
    (result,) = treadle.compile(write(graph).module, target="sim")(a, b, *scales)
    right = (a.double() @ b.double().t()) * scales[0] * scales[1]
    assert ((array(result) - right).abs() <= 2.0**-8 * right.abs() + 1e-5).all()


def test_a_symbolic_program_takes_other_sizes() -> None:
    def block(x: Any, w: Any, b: Any, residual: Any) -> Any:
        return F.gelu(F.linear(x, w, b)) + residual

    program, _ = written(block, [torch.randn(3, 5, 17), torch.randn(21, 17), torch.randn(21), torch.randn(3, 5, 21)], "symbolic")
    for batch, rows in ((2, 9), (7, 3)):
        arguments = [torch.randn(batch, rows, 17), torch.randn(21, 17), torch.randn(21), torch.randn(batch, rows, 21)]
        (right,) = in_float64(block, arguments)
        assert (array(program(*arguments)[0]) - right).abs().max() <= 1e-5


def test_narrow_sums_are_rounded_once() -> None:
    """A bf16 sum of many terms is as good as one rounding of the right one."""
    x, w = torch.randn(5, 333).bfloat16(), torch.randn(333, 7).bfloat16()
    bias = torch.randn(7).bfloat16()
    program, given = written(lambda x, w, b: F.gelu(torch.addmm(b, x, w)) * 3 + 1, [x, w, bias], "fake")
    (right,) = in_float64(lambda x, w, b: F.gelu(torch.addmm(b, x, w)) * 3 + 1, [x, w, bias])
    found = array(program(*given)[0])
    assert ((found - right).abs() <= 2.0**-8 * right.abs() + 1e-5).all()


def test_what_a_graph_converts_is_rounded() -> None:
    program, given = written(lambda a: a.to(torch.bfloat16).to(torch.float32) - a, [torch.full((3,), 1.001)], "fake")
    assert (array(program(*given)[0]) == array(torch.full((3,), 1.0) - torch.full((3,), 1.001))).all()


@pytest.mark.parametrize(
    ("fn", "what"),
    [
        (lambda a: torch.bernoulli(a.abs().clamp(max=1)), "rand"),
        (lambda a: a.sort(1)[0], "sort"),
        (lambda a: a.view(torch.int32), "view.dtype"),
    ],
)
def test_what_is_no_loop_nest_is_refused_by_name(fn: Any, what: str) -> None:
    graph = make_fx(fn, tracing_mode="fake", decomposition_table=everything())(torch.randn(3, 5)).graph
    with pytest.raises(Unsupported, match=what):
        write(graph)
