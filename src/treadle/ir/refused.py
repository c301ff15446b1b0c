"""Operations of MLIR that texts may well hold and that are not compiled: what to write instead."""

_LAYOUT = "write tensor.pad, tensor.expand_shape and linalg.transpose; layouts for tiling are the compiler's choice"
_COMPLEX = "keep real and imaginary parts in tensors of their own: no machine computes with pairs"
_WINOGRAD = "write the convolution; how it is computed is the compiler's choice"

REFUSED: dict[str, str] = {
    "linalg.pack": _LAYOUT,
    "linalg.unpack": _LAYOUT,
    "tensor.pack": _LAYOUT,
    "tensor.unpack": _LAYOUT,
    "tensor.gather": "extract the elements with tensor.extract inside linalg.generic",
    "tensor.scatter": "write the result with linalg.generic, each element from what reaches it: updates could meet in one place",
    "tensor.generate": "write it as linalg.generic with linalg.index",
    "linalg.winograd_filter_transform": _WINOGRAD,
    "linalg.winograd_input_transform": _WINOGRAD,
    "linalg.winograd_output_transform": _WINOGRAD,
}


def advice_on(name: str) -> str | None:
    """What to write instead of an operation; None for one that nothing is known of."""
    return _COMPLEX if name.startswith("complex.") else REFUSED.get(name)
