"""Guards of real PyTorch tensors (on the processor): what they tell apart."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from treadle.runtime.torch_tensors import guard_of

torch: Any = pytest.importorskip("torch")


def tensor(*shape: int) -> Any:
    return torch.zeros(shape, dtype=torch.float16)


@pytest.fixture
def check() -> Callable[..., bool]:
    found = guard_of((tensor(3, 5), tensor(7)))
    assert found is not None
    return found


def test_tensors_of_the_kind(check: Callable[..., bool]) -> None:
    assert check(tensor(3, 5), tensor(7))
    assert check(tensor(6, 5)[3:], tensor(9)[2:])  # another start
    with torch.no_grad():
        assert check(tensor(3, 5), tensor(7))


def in_place(change: Callable[[Any], Any]) -> Any:
    made = tensor(3, 5)
    change(made)
    return made


def set_data(to: Any) -> Callable[[Any], Any]:
    def change(made: Any) -> None:
        made.data = to

    return change


@pytest.mark.parametrize(
    "make",
    [
        lambda: tensor(5, 3),
        lambda: tensor(3, 5, 1),
        lambda: tensor(15),
        lambda: tensor(5, 3).t(),
        lambda: tensor(3, 10)[:, ::2],
        lambda: tensor(3, 5).float(),
        lambda: tensor(3, 5).bfloat16(),
        lambda: tensor(3, 5).to("meta"),
        lambda: torch._neg_view(tensor(3, 5)),
        lambda: torch.zeros(3, 5, dtype=torch.complex64).conj().imag,
        lambda: torch.nn.Parameter(tensor(3, 5), requires_grad=False),
        lambda: tensor(3, 5).to_sparse(),
        lambda: in_place(lambda t: t.resize_(3, 4)),
        lambda: in_place(lambda t: t.t_()),
        lambda: in_place(lambda t: t.as_strided_((3, 5), (0, 1))),
        lambda: in_place(set_data(torch._neg_view(tensor(3, 5)))),
        lambda: in_place(set_data(tensor(3, 6))),
        lambda: None,
        lambda: tensor(3, 5).numpy(),
    ],
)
def test_tensors_of_other_kinds(check: Callable[..., bool], make: Callable[[], Any]) -> None:
    assert not check(make(), tensor(7))


def test_lazily_conjugated_tensors() -> None:
    made = torch.zeros(3, dtype=torch.complex64)
    found = guard_of((made,))
    assert found is not None
    assert found(made.clone())
    assert not found(made.conj())


def test_one_tensor_twice() -> None:
    made = tensor(3)
    assert guard_of((made, made)) is None


def test_nothing_is_kept_alive() -> None:
    made = tensor(3)
    found, gone = guard_of((made,)), weakref.ref(made)
    del made
    gc.collect()
    assert gone() is None
    assert found is not None
