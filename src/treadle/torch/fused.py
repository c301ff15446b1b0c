"""Operators of PyTorch that are several matrix products in one: no region begins inside them, and the report says so."""

from typing import Final

from torch import fx

from treadle.torch.pointwise import name_of

_FAST_PATH: Final = (
    "PyTorch's fused inference path, several products in one operator; "
    "torch.backends.mha.set_fastpath_enabled(False) before the model is compiled makes products of it"
)
_RECURRENT: Final = "a recurrent layer is one operator, which PyTorch's library computes"
REASONS: Final = {
    "aten::_transformer_encoder_layer_fwd": _FAST_PATH,
    "aten::_native_multi_head_attention": _FAST_PATH,
    "aten::_cudnn_rnn": _RECURRENT,
    "aten::lstm": _RECURRENT,
    "aten::gru": _RECURRENT,
    "aten::rnn_tanh": _RECURRENT,
    "aten::rnn_relu": _RECURRENT,
    "aten::mkldnn_rnn_layer": _RECURRENT,
}
"""By operator, why its products are left."""


def fused_nodes(graph: fx.Graph) -> list[tuple[fx.Node, str]]:
    """The graph's operators that have products inside, each with the reason why they are left."""
    found = [(node, REASONS.get(name_of(node.target), "")) for node in graph.nodes if node.op == "call_function"]
    return [(node, reason) for node, reason in found if reason]
