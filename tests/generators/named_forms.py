"""Convolutions, pooling, packed products and elementwise operations with open sizes, strides and dilations, onto an argument."""

from generators.form import Form, type_of


def _onto(name: str, operation: str, *arguments: str) -> Form:
    """`operation` on all arguments but the last, onto the last."""
    numbered = [f"%a{number}" for number in range(len(arguments))]
    types = [type_of(kind) for kind in arguments]
    ins = f"ins({', '.join(numbered[:-1])} : {', '.join(types[:-1])})"
    body = f"  %r = {operation} {ins} outs({numbered[-1]} : {types[-1]}) -> {types[-1]}\n  return %r : {types[-1]}"
    return Form(name, arguments, arguments[-1], body)


def _windows(count: int, strides: str, dilations: str) -> str:
    return f"{{dilations = dense<{dilations}> : tensor<{count}xi64>, strides = dense<{strides}> : tensor<{count}xi64>}}"


_PLANE, _ROW, _COLUMN, _TURNED = (f"affine_map<(d0, d1) -> ({dims})>" for dims in ("d0, d1", "d0", "d1", "d1, d0"))

NAMED_FORMS: tuple[Form, ...] = (
    _onto("conv_1d", f"linalg.conv_1d_nwc_wcf {_windows(1, '2', '1')}", "?2x?21x3xf32", "3x3x5xf32", "?2x?10x5xf32"),
    _onto("conv_2d", f"linalg.conv_2d_nhwc_hwcf {_windows(2, '[1, 2]', '[2, 1]')}", "?2x11x?13x3xf32", "3x2x3x7xf32", "?2x7x?6x7xf32"),
    _onto("conv_2d_f16", f"linalg.conv_2d_nchw_fchw {_windows(2, '1', '1')}", "1x5x?9x9xf16", "3x5x3x3xf16", "1x3x?7x7xf32"),
    _onto("conv_3d", f"linalg.conv_3d_ndhwc_dhwcf {_windows(3, '1', '1')}", "1x5x?6x7x2xf32", "2x3x2x2x3xf32", "1x4x?4x6x3xf32"),
    _onto("depthwise", f"linalg.depthwise_conv_2d_nhwc_hwc {_windows(2, '1', '1')}", "?2x11x13x?5xf32", "3x2x?5xf32", "?2x9x12x?5xf32"),
    _onto("pool_sum", f"linalg.pooling_nhwc_sum {_windows(2, '2', '1')}", "?2x11x?13x3xf32", "3x3xf32", "?2x5x?6x3xf32"),
    _onto("pool_max", f"linalg.pooling_nchw_max {_windows(2, '[2, 3]', '1')}", "2x?3x11x13xf32", "3x2xf32", "2x?3x5x4xf32"),
    _onto("pool_min", f"linalg.pooling_ndhwc_min {_windows(3, '1', '1')}", "1x5x6x?7x2xf32", "2x3x2xf32", "1x4x4x?6x2xf32"),
    _onto("pool_1d", f"linalg.pooling_nwc_max {_windows(1, '3', '2')}", "3x?20x5xf32", "3xf32", "3x?6x5xf32"),
    _onto("mmt4d", "linalg.mmt4d", "?2x?3x4x5xf32", "7x?3x6x5xf32", "?2x7x4x6xf32"),
    _onto("batch_mmt4d", "linalg.batch_mmt4d", "3x2x?3x4x5xi8", "3x7x?3x6x5xi8", "3x2x7x4x6xi32"),
    _onto("quantized_matmul", "linalg.quantized_matmul", "?9x17xi8", "17x?13xi8", ":i32=5", ":i32=-3", "?9x?13xi32"),
    _onto("elementwise_sum", f"linalg.elementwise <add> indexing_maps = [{_TURNED}, {_ROW}, {_PLANE}]", "?13x7xf32", "7xf32", "7x?13xf32"),
    _onto("elementwise_tanh", "linalg.elementwise <tanh>", "?5x33xf32", "?5x33xf32"),
    _onto(
        "elementwise_select",
        f"linalg.elementwise <select> indexing_maps = [{_ROW}, {_COLUMN}, {_PLANE}, {_PLANE}]",
        *("5xi1", "?9xf16", "5x?9xf16", "5x?9xf16"),
    ),
)
