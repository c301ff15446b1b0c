"""Convolutions of images with channels last, as workloads that their name says: `conv-f16-2x64x64x640-640-k3`,
`conv-f16-2x64x64x320-320-k3-s2`.

`conv-TYPE-NxHxWxC-F-kK[-sS][-dD][-pP][-EPILOGUE]`: N images of H by W pixels of C channels, F filters of K by K pixels stored (F, K, K,
C), a step of S pixels (1), windows spread by D (1), P zeros on each side (as many as keep the size where S is 1). EPILOGUE: `bias`, `silu`.
"""

import re
from collections.abc import Callable

from treadle.bench.workload import TensorSpec, Window, Workload

GROUP = "convolution"
EPILOGUES = ("", "bias", "silu")
DTYPES = ("f16", "bf16")
_NAME = re.compile(r"conv-([a-z0-9]+)-(\d+)x(\d+)x(\d+)x(\d+)-(\d+)-k(\d+)(?:-s(\d+))?(?:-d(\d+))?(?:-p(\d+))?(?:-([a-z]+))?")
_TAILS = {
    "": ["%v = arith.truncf %a : f32 to {0}"],
    "bias": ["%t = arith.addf %a, %b : f32", "%v = arith.truncf %t : f32 to {0}"],
    "silu": [
        "%one = arith.constant 1.000000e+00 : f32",
        "%m = arith.negf %a : f32",
        "%q = math.exp %m : f32",
        "%d = arith.addf %q, %one : f32",
        "%t = arith.divf %a, %d : f32",
        "%v = arith.truncf %t : f32 to {0}",
    ],
}


def named_convolution(name: str) -> Workload | None:
    """The workload of a name; None where the name says none."""
    if (found := _NAME.fullmatch(name)) is None:
        return None
    dtype, *numbers, tail = found.groups()
    batch, height, width, channels, filters, kernel = (int(number) for number in numbers[:6])
    step, spread = (int(number or 1) for number in numbers[6:8])
    reach = (kernel - 1) * spread
    pad = reach // 2 if numbers[8] is None else int(numbers[8])
    sides = [(side + 2 * pad - reach - 1) // step + 1 for side in (height, width) if step]
    if dtype not in DTYPES or (tail or "") not in EPILOGUES or min(batch, channels, filters, kernel, step, spread) < 1 or min(sides) < 1:
        return None
    return _convolution(name, dtype, (batch, height, width, channels), filters, (kernel, step, spread, pad), sides, tail or "")


def _text(
    dtype: str, image: tuple[int, int, int], window: tuple[int, int, int, int], sides: tuple[int, int], tail: str
) -> Callable[[int, int], str]:
    """What writes the text for so many images of `image` (lines, columns, channels) and so many filters."""
    height, width, channels = image
    kernel, step, spread, pad = window

    def write(rows: int, columns: int) -> str:
        x, p = (f"tensor<{rows}x{height + 2 * at}x{width + 2 * at}x{channels}x{dtype}>" for at in (0, pad))
        w, bias = f"tensor<{columns}x{kernel}x{kernel}x{channels}x{dtype}>", f"tensor<{columns}xf32>"
        sums, y = (f"tensor<{rows}x{sides[0]}x{sides[1]}x{columns}x{kind}>" for kind in ("f32", dtype))
        padded = [
            f"%p = tensor.pad %x low[0, {pad}, {pad}, 0] high[0, {pad}, {pad}, 0] {{",
            "^bb0(%i0: index, %i1: index, %i2: index, %i3: index):",
            f"tensor.yield %z : {dtype}",
            f"}} : {x} to {p}",
        ]
        dims = "(n, h, w, f) -> (n, h, w, f)"
        has_bias, parallel = tail == "bias", ", ".join(['"parallel"'] * 4)
        maps = [f"affine_map<{dims}>", *(["affine_map<(n, h, w, f) -> (f)>"] if has_bias else []), f"affine_map<{dims}>"]
        attributes = ", ".join(f"{a} = dense<{v}> : tensor<2xi64>" for a, v in (("dilations", spread), ("strides", step)))
        lines = [
            f"func.func @convolution(%x: {x}, %w: {w}{f', %bias: {bias}' if has_bias else ''}) -> {y} {{",
            f"%z = arith.constant 0.000000e+00 : {dtype}",
            "%zero = arith.constant 0.000000e+00 : f32",
            *(padded if pad else []),
            f"%e = tensor.empty() : {sums}",
            f"%s = linalg.fill ins(%zero : f32) outs(%e : {sums}) -> {sums}",
            f"%c = linalg.conv_2d_nhwc_fhwc {{{attributes}}} ins({'%p' if pad else '%x'}, %w : {p if pad else x}, {w}) "
            f"outs(%s : {sums}) -> {sums}",
            f"%o = tensor.empty() : {y}",
            f"%y = linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{parallel}]}} "
            f"ins(%c{', %bias' if has_bias else ''} : {sums}{f', {bias}' if has_bias else ''}) outs(%o : {y}) {{",
            f"^bb0(%a: f32{', %b: f32' if has_bias else ''}, %u: {dtype}):",
            *(line.format(dtype) for line in _TAILS[tail]),
            f"linalg.yield %v : {dtype}",
            f"}} -> {y}",
            f"return %y : {y}",
            "}",
        ]
        return "\n".join(lines) + "\n"

    return write


def _convolution(
    name: str, dtype: str, image: tuple[int, int, int, int], filters: int, window: tuple[int, int, int, int], sides: list[int], tail: str
) -> Workload:
    batch, height, width, channels = image
    kernel, step, spread, pad = window
    side, out = (kernel - 1) * spread + 1, (sides[0], sides[1])
    one = _text(dtype, (side, side, channels), (kernel, step, spread, 0), (1, 1), tail)
    sample, write = Window(side, step, pad, out, one), _text(dtype, image[1:], window, out, tail)
    inputs = [TensorSpec("x", image, dtype, rows=0), TensorSpec("w", (filters, kernel, kernel, channels), dtype, columns=0)]
    if tail == "bias":
        inputs.append(TensorSpec("bias", (filters,), "f32", columns=0))
    made = TensorSpec("y", (batch, *sides, filters), dtype, rows=0, columns=3)
    how = "".join(f", {word} {value}" for word, value in (("stride", step), ("spread", spread)) if value > 1)
    title = f"{batch}x{height}x{width}x{channels} -> {filters}, {kernel}x{kernel}{how} {dtype}{' ' + tail if tail else ''}"
    flop = 2 * batch * sides[0] * sides[1] * filters * channels * kernel * kernel
    peer = "_".join(["convolution", str(step), str(spread), str(pad), *([tail] if tail else [])])
    return Workload(name, GROUP, title, tuple(inputs), (made,), batch, filters, flop, peer, write, window=sample)
