"""PyTorch tensors of any strides and bases on a real GPU: no copy, right results, few variants."""

from collections.abc import Callable
from typing import Any

import pytest
from driver.layout_programs import K, M, N, elementwise, matmul, reduction

import treadle
from treadle.runtime.cuda import open_device

torch: Any = pytest.importorskip("torch")
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
RELATIVE = {"f32": 1e-5, "f16": 1e-5, "bf16": 1e-5}  # sums of exact products in f32
Tensor = Any


pytestmark = pytest.mark.usefixtures("target")


def normal(shape: tuple[int, ...], dtype: str) -> Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.float32).to(TYPES[dtype])


def placed(shape: tuple[int, int], dtype: str, base: int, pitch: int) -> Tensor:
    """A matrix that starts `base` elements behind an aligned address, rows `pitch` apart, NaN around it."""
    rows, columns = shape
    room = torch.full((rows * pitch + base + 16,), float("nan"), device="cuda", dtype=TYPES[dtype])
    assert room.data_ptr() % 256 == 0
    made = room.as_strided(shape, (pitch, 1), base)
    made.copy_(normal((rows, columns), dtype))
    return made


def close(program: treadle.Program, x: Tensor, y: Tensor) -> None:
    (result,) = program(x, y)
    got, want = torch.from_dlpack(result).double(), x.double() @ y.double()
    scale = (x.double().abs() @ y.double().abs()).max()
    assert not got.isnan().any()
    assert ((got - want).abs().max() / scale).item() < RELATIVE["f32"]


LAYOUTS: dict[str, Callable[[tuple[int, int], str], Tensor]] = {
    "transposed": lambda s, t: normal(s[::-1], t).T,
    "sliced": lambda s, t: normal((2 * s[0], s[1] + 3), t)[::2, 3:],
    "columns apart": lambda s, t: normal((s[0], 3 * s[1]), t)[:, 1::3],
    "padded": lambda s, t: placed(s, t, 0, (s[1] + 15) // 8 * 8),
    "padded transposed": lambda s, t: placed((s[1], s[0]), t, 0, (s[0] + 15) // 8 * 8).T,
    "one row": lambda s, t: normal((1, s[1]), t).expand(s),
    "one column": lambda s, t: normal((s[0], 1), t).expand(s),
    "windows": lambda s, t: normal((s[0] + s[1] - 1,), t).unfold(0, s[1], 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TYPES)
def test_any_layout(dtype: str, layout: str) -> None:
    make = LAYOUTS[layout]
    product = treadle.compile(matmul(dtype))
    x, y = make((M, K), dtype), make((K, N), dtype)
    close(product, x, y)
    close(product, x, normal((K, N), dtype))
    close(product, normal((M, K), dtype), y)
    for axis in (0, 1):
        (got,) = treadle.compile(reduction(dtype, axis))(x)
        bound = {"f32": 1e-5, "f16": 2e-3, "bf16": 1.6e-2}[dtype] * x.double().abs().sum(axis).max()
        assert ((torch.from_dlpack(got).double() - x.double().sum(axis)).abs().max() < bound).item()
    other = normal((M, K), dtype)
    (got,) = treadle.compile(elementwise(dtype))(x, other)
    assert torch.equal(torch.from_dlpack(got), x + other)


@pytest.mark.parametrize("dtype", TYPES)
def test_every_base_and_pitch(dtype: str) -> None:
    """Both operands at every base up to 8 elements off and every pitch up to 8 beyond dense."""
    product = treadle.compile(matmul(dtype))
    dense_x, dense_y = placed((M, K), dtype, 0, K), placed((K, N), dtype, 0, N)
    variants: set[int] = set()
    for base in range(9):
        for more in range(9):
            x, y = placed((M, K), dtype, base, K + more), placed((K, N), dtype, base, N + more)
            close(product, x, dense_y)
            close(product, dense_x, y)
            variants |= {id(product.variant_for(x, dense_y)), id(product.variant_for(dense_x, y))}
    assert 2 < len(variants) <= 16


def test_no_copy() -> None:
    """A variant reads the caller's memory: allocations are the result's only."""
    product = treadle.compile(matmul("bf16"))
    x, y = placed((M, K), "bf16", 3, K + 5), normal((N, K), "bf16").T
    product(x, y)
    torch.cuda.synchronize()
    before = open_device().pool.allocations
    (first,) = product(x, y)
    x.mul_(2)
    (second,) = product(x, y)
    assert torch.equal(2 * torch.from_dlpack(first), torch.from_dlpack(second))
    assert open_device().pool.allocations - before <= 2


def test_host_arrays_are_copied() -> None:
    product = treadle.compile(matmul("f32"))
    x, y = normal((K, M), "f32"), normal((K, 2 * N), "f32")
    (want,) = product(x.T, y[:, ::2])
    (got,) = product(x.cpu().numpy().T, y.cpu().numpy()[:, ::2])
    close(product, x.T.cpu().cuda(), y[:, ::2])
    assert torch.allclose(torch.from_dlpack(got), torch.from_dlpack(want), rtol=1e-5, atol=1e-5)
