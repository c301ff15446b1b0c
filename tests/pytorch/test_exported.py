"""Exported programs: parameters bound, dynamic dimensions as declared, buffers written back."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it")

from pytorch.blocks import BertBlock, LlamaBlock  # noqa: E402

import treadle  # noqa: E402
from treadle.errors import TreadleError  # noqa: E402
from treadle.torch import compile_exported  # noqa: E402

nn = torch.nn


def close(found: Any, right: Any) -> None:
    assert (found - right).abs().max() <= 1e-5 * right.abs().max()


@pytest.mark.parametrize(("make", "width"), [(BertBlock, 15), (LlamaBlock, 24)], ids=["bert", "llama"])
def test_blocks_are_one_program(make: Any, width: int) -> None:
    torch.manual_seed(0)
    block = make().eval()
    x = torch.randn(2, 7, width)
    with torch.no_grad():
        model = compile_exported(torch.export.export(block, (x,)), "sim")
        close(model(x), block(x))
        block.load_state_dict({name: value * 2 for name, value in block.state_dict().items()})
        close(model(x), block(x))  # the parameters are the model's own


def test_dynamic_dimensions_are_those_declared() -> None:
    block = BertBlock().eval()
    batch, length = (torch.export.Dim(name, min=2, max=50) for name in ("batch", "length"))
    exported = torch.export.export(block, (torch.randn(2, 7, 15),), dynamic_shapes=({0: batch, 1: length},))
    model = treadle.compile(exported, "sim")
    with torch.no_grad():
        for shape in ((2, 7, 15), (5, 3, 15), (3, 11, 15)):
            x = torch.randn(shape)
            close(model(x), block(x))
        with pytest.raises(TreadleError):
            model(torch.randn(2, 7, 16))


class Counter(nn.Module):
    """Keeps the running sum of what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.total: Any
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Any, scale: Any) -> dict[str, Any]:
        self.total.add_(x.sum(0))
        return {"scaled": x * scale, "mean": self.total / 2}


def test_buffers_are_written_back_and_structures_kept() -> None:
    counter, mine = Counter(), Counter()
    x, scale = torch.randn(5, 3), torch.randn(3)
    model = compile_exported(torch.export.export(mine, (x,), {"scale": scale}), "sim")
    for _ in range(3):
        found, right = model(x, scale=scale), counter(x, scale)
        assert list(found) == list(right)
        for name, value in found.items():
            close(value, right[name])
    close(model.bound["total"], counter.total)
    assert model.names == ("total", "x", "scale")
    with pytest.raises(ValueError, match="exported with"):
        model(x, scale)


def test_what_is_no_loop_nest_is_refused() -> None:
    class Sorted(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.sort(-1)[0]

    with pytest.raises(TreadleError, match=r"TR123.*sort"):
        compile_exported(torch.export.export(Sorted(), (torch.randn(3, 5),)), "sim")
