"""Operators of PyTorch with products inside are in the report, with what to do about it."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it")

import treadle.torch  # noqa: E402

OPTIONS = {"treadle.rest": "eager", "treadle.target": "sim"}


def encoder_layer() -> Any:
    torch._dynamo.reset()
    treadle.torch.clear_report()
    torch.manual_seed(0)
    return torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()


def test_the_fused_encoder_layer_is_left_and_said_to_be() -> None:
    model, x = encoder_layer(), torch.randn(2, 3, 16)
    with torch.no_grad():
        torch.compile(model, backend=treadle.torch.backend, options=OPTIONS)(x)
    (row,) = treadle.torch.report().regions
    assert not row.taken and row.operators == ("_transformer_encoder_layer_fwd",)
    assert "torch.backends.mha.set_fastpath_enabled(False)" in str(treadle.torch.report())


def test_what_the_report_advises_makes_products_of_it() -> None:
    model, x = encoder_layer(), torch.randn(2, 3, 16)
    was = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            right = model(x)
            found = torch.compile(model, backend=treadle.torch.backend, options=OPTIONS)(x)
    finally:
        torch.backends.mha.set_fastpath_enabled(was)
    assert torch.allclose(found, right, atol=1e-5)
    report = treadle.torch.report()
    assert report.regions and report.taken == len(report.regions)


def test_where_all_must_be_taken_it_is_an_error() -> None:
    model, x = encoder_layer(), torch.randn(2, 3, 16)
    with torch.no_grad(), pytest.raises(Exception, match="TR121"):
        torch.compile(model, backend=treadle.torch.backend, options=OPTIONS | {"treadle.strict": True})(x)
