"""What scheduling fences do to layers of models on AMD: static figures of their main loops, without fences and with. Nothing is run.

    python benchmarks/model_layers.py --output benchmarks/results/NAME.json
    python benchmarks/model_layers.py llama-3-8b-decode sdxl-vae --targets gfx942

Models: Llama-3-8B (f16; prefill of 2048 tokens, decode of 1 and 16), SDXL's text encoders, UNet and VAE (f16, images of 1024 x 1024), and
its UNet quantised to int8 and to 8-bit floats (the formats that each target multiplies). Matrix products have the weight as (N, K),
convolutions channels last. Figures are those of `treadle audit` (docs/audits.md): counts, and a model that predicts no times. The exit
status is 1 where a layer does not compile.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from treadle.bench.suite import LLAMA_3_8B, SDXL, SDXL_CONVOLUTIONS, find
from treadle.errors import TreadleError
from treadle.options import CompileOptions
from treadle.targets import registry
from treadle.targets.loop_report import ReportsLoops
from treadle.tools.audit import Row, as_plain, own_rows
from treadle.tools.report import console, table

TARGETS = ("gfx942", "gfx950")
FLOAT8 = {"gfx942": "f8E4M3FNUZ", "gfx950": "f8E4M3FN"}
TEXT_ENCODERS = [(77, width, width) for width in (768, 1280)] + [
    shape for width in (768, 1280) for shape in ((77, 4 * width, width), (77, width, 4 * width))
]
VAE_CONVOLUTIONS = (
    "1x128x128x512-512-k3",
    "1x256x256x512-512-k3",
    "1x512x512x512-256-k3",
    "1x512x512x512-256-k1",
    "1x512x512x256-256-k3",
    "1x1024x1024x256-128-k3",
    "1x1024x1024x128-128-k3",
    "1x1024x1024x128-3-k3",
)
QUANTISED_CONVOLUTIONS = ((2, 64, 640, 640, 3), (2, 32, 1280, 1280, 3), (2, 128, 320, 320, 3), (2, 64, 320, 640, 1))
"""Images, side, channels, filters, window."""


def models() -> dict[str, list[str]]:
    """The layers of each model, by names that `layer_text` knows."""
    decode = [f"llama3-8b-decode-{tokens}-{layer}" for tokens in (1, 16) for layer in LLAMA_3_8B]
    products = [f"{m}x{n}x{k}" for m, n, k in [*SDXL.values(), (8192, 640, 640)]]
    windows = [f"{n}x{side}x{side}x{c}-{f}-k{k}" for n, side, c, f, k in QUANTISED_CONVOLUTIONS]
    quantised = {
        kind: [f"product-{kind}-{shape}" for shape in products] + [f"window-{kind}-{shape}" for shape in windows] for kind in ("i8", "f8")
    }
    return {
        "llama-3-8b-prefill": [f"llama3-8b-prefill-2048-{layer}" for layer in LLAMA_3_8B],
        "llama-3-8b-decode": decode,
        "sdxl-text-encoders": [f"gemm-f16-nt-{m}x{n}x{k}" for m, n, k in TEXT_ENCODERS],
        "sdxl-unet": [*(f"sdxl-{layer}" for layer in SDXL), *SDXL_CONVOLUTIONS],
        "sdxl-vae": ["gemm-f16-nt-16384x512x512", *(f"conv-f16-{shape}" for shape in VAE_CONVOLUTIONS)],
        "punet-int8": quantised["i8"],
        "punet-fp8": quantised["f8"],
    }


def layer_text(name: str, target: str) -> tuple[str, CompileOptions]:
    """The MLIR of a layer, and the options of its compilation."""
    form, _, rest = name.partition("-")
    if form in ("product", "window"):
        kind, _, shape = rest.partition("-")
        write = _product if form == "product" else _window
        return write(shape, FLOAT8[target] if kind == "f8" else kind, "i32" if kind == "i8" else "f32"), CompileOptions()
    workload = find(name)
    if workload is None:
        raise SystemExit(f"no layer is called {name}")
    return workload.text, workload.options


def _zero(kind: str) -> str:
    return f"arith.constant {'0' if kind.startswith('i') else '0.0'} : {kind}"


def _product(shape: str, kind: str, sums: str) -> str:
    m, n, k = shape.split("x")
    a, b, c = f"tensor<{m}x{k}x{kind}>", f"tensor<{n}x{k}x{kind}>", f"tensor<{m}x{n}x{sums}>"
    maps = ", ".join(f"affine_map<(m, n, k) -> ({dims})>" for dims in ("m, k", "n, k", "m, n"))
    widen, mul, add = ("arith.extsi", "arith.muli", "arith.addi") if sums == "i32" else ("arith.extf", "arith.mulf", "arith.addf")
    return f"""func.func @product(%a: {a}, %b: {b}) -> {c} {{
      %z = {_zero(sums)}
      %e = tensor.empty() : {c}
      %s = linalg.fill ins(%z : {sums}) outs(%e : {c}) -> {c}
      %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel", "reduction"]}}
          ins(%a, %b : {a}, {b}) outs(%s : {c}) {{
        ^bb0(%x: {kind}, %y: {kind}, %t: {sums}):
        %xw = {widen} %x : {kind} to {sums}
        %yw = {widen} %y : {kind} to {sums}
        %p = {mul} %xw, %yw : {sums}
        %u = {add} %t, %p : {sums}
        linalg.yield %u : {sums}
      }} -> {c}
      return %r : {c}
    }}"""


def _window(shape: str, kind: str, sums: str) -> str:
    image, filters, window = shape.split("-")
    batch, height, width, channels = (int(size) for size in image.split("x"))
    side = int(window[1:])
    pad = side // 2
    x, p = (f"tensor<{batch}x{height + 2 * at}x{width + 2 * at}x{channels}x{kind}>" for at in (0, pad))
    w, y = f"tensor<{filters}x{side}x{side}x{channels}x{kind}>", f"tensor<{batch}x{height}x{width}x{filters}x{sums}>"
    padded = f"""%p = tensor.pad %x low[0, {pad}, {pad}, 0] high[0, {pad}, {pad}, 0] {{
      ^bb0(%i0: index, %i1: index, %i2: index, %i3: index):
        tensor.yield %nothing : {kind}
      }} : {x} to {p}"""
    return f"""func.func @convolution(%x: {x}, %w: {w}) -> {y} {{
      %nothing = {_zero(kind)}
      %z = {_zero(sums)}
      {padded if pad else ""}
      %e = tensor.empty() : {y}
      %s = linalg.fill ins(%z : {sums}) outs(%e : {y}) -> {y}
      %r = linalg.conv_2d_nhwc_fhwc {{dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}}
          ins({"%p" if pad else "%x"}, %w : {p}, {w}) outs(%s : {y}) -> {y}
      return %r : {y}
    }}"""


def loops(name: str, target: str) -> tuple[list[Row], str]:
    """The loops of a layer's kernels, with fences and (behind each that has any) without; why it does not compile, or empty text."""
    backend = registry.backend(target)
    if not isinstance(backend, ReportsLoops):
        raise SystemExit(f"{target} has no loop reports")
    text, options = layer_text(name, target)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "module.mlir")
        file.write_text(text)
        try:
            return own_rows(file, target, backend, options, None), ""
        except TreadleError as error:
            return [], str(error)


def show(found: Iterable[dict[str, Any]]) -> None:
    """One line a kernel: before and after fences."""
    columns = ("model", "layer", "target", "schedule", "waits on loads", "waits", "density", "share")
    out = table("static, nothing was run: without fences, with", *columns)
    rows = list(found)
    for at, one in enumerate(rows):
        if not one["fences"] and at and rows[at - 1]["fences"]:
            continue
        before = rows[at + 1] if one["fences"] and at + 1 < len(rows) else one
        pairs = [
            f"{before['load_waits']}, {one['load_waits']}",
            f"{len(before['inner_waits'])}, {len(one['inner_waits'])}",
            f"{before['density']:.2f}, {one['density']:.2f}",
            f"{before['matrix_share']:.2f}, {one['matrix_share']:.2f}",
        ]
        out.add_row(one["model"], one["layer"], one["target"], one["schedule"], *pairs)
    console().print(out)


def main() -> int:
    """Compile, read, show and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(models())}; all without")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    found: list[dict[str, Any]] = []
    refused: list[dict[str, str]] = []
    for model in asked.models or models():
        for layer in models()[model]:
            for target in asked.targets.split(","):
                rows, problem = loops(layer, target)
                place = {"model": model, "layer": layer, "target": target}
                found += [{**place, **as_plain(row)} for row in rows]
                if problem or not rows:
                    refused.append({**place, "reason": problem or "no kernel has a loop with matrix instructions"})
                print(layer, target, problem, file=sys.stderr, flush=True)
    show(found)
    for one in refused:
        print(f"{one['layer']} {one['target']}: {one['reason']}")
    if asked.output is not None:
        about = "read off machine code by benchmarks/model_layers.py, behind each loop with fences the same without; nothing was run"
        asked.output.write_text(json.dumps({"kind": "static", "about": about, "loops": found, "without": refused}, indent=1) + "\n")
    return 1 if any(not one["reason"].startswith("no kernel") for one in refused) else 0


if __name__ == "__main__":
    sys.exit(main())
