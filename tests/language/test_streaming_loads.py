"""`tl.load(.., streaming=True)`: results as without, marked in every text, and loads that caches need not keep on NVIDIA."""

from typing import Any

import numpy as np
import pytest

import treadle
import treadle.language as tl
from treadle.errors import TreadleError


@treadle.kernel(target="sim")
def scaled(x: Any, weight: Any, y: Any, rows: Any, BLOCK: tl.constexpr, STREAMING: tl.constexpr) -> None:
    row = tl.program_id(0)
    held = tl.arange(BLOCK) < rows[row]
    values = tl.load(x[row, 0:BLOCK], held, -1, streaming=STREAMING).to(tl.float32)
    y[row, 0:BLOCK] = values * weight[0:BLOCK]


SQUARES = """func.func @squares(%x: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %e = tensor.empty() : tensor<64x128xf32>
  %y = linalg.square ins(%x : tensor<64x128xf32>) outs(%e : tensor<64x128xf32>) -> tensor<64x128xf32>
  return %y : tensor<64x128xf32>
}"""


def arrays(rows: int, columns: int, dtype: type) -> dict[str, Any]:
    rng = np.random.default_rng(rows + columns)
    x, weight = (rng.integers(-9, 9, shape).astype(dtype) for shape in ((rows, columns), (columns,)))
    return {"x": x, "weight": weight, "y": np.zeros_like(x), "rows": rng.integers(0, columns + 1, rows).astype(np.int32)}


def compiled(target: str, dtype: type, *, streaming: bool) -> treadle.Program:
    return scaled[3].compile(**arrays(3, 781, dtype), BLOCK=1024, STREAMING=streaming, target=target)


def loads(program: treadle.Program) -> list[str]:
    """Of PTX, how values are loaded from global memory."""
    return [word for line in program.stages["asm"].splitlines() for word in line.split() if word.startswith("ld.global")]


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.float64])
def test_results_do_not_depend_on_it(dtype: type) -> None:
    given = arrays(3, 781, dtype)
    found = []
    for streaming in (False, True):
        scaled[3](**given | {"y": (y := np.zeros_like(given["y"]))}, BLOCK=1024, STREAMING=streaming)
        found.append(y)
    want = np.where(np.arange(781) < given["rows"][:, None], given["x"], -1) * given["weight"]
    assert np.array_equal(found[0], want.astype(dtype)) and np.array_equal(found[1], found[0])


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.float64])
def test_the_loads_of_one_array_are_streaming(dtype: type) -> None:
    program, plain = compiled("sm_90a", dtype, streaming=True), compiled("sm_90a", dtype, streaming=False)
    marked = [line for line in program.stages["schedule"].splitlines() if " streaming " in line]
    assert len(marked) == 1 and "tile.load" in marked[0]
    through = [name for name in loads(program) if ".cs" in name]
    assert through and not any(".nc" in name for name in through)
    assert [name.replace(".cs", ".nc") for name in loads(program)] == loads(plain)
    assert " streaming " not in plain.stages["schedule"]


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_other_machines_load_as_ever(target: str) -> None:
    with_it, without = (compiled(target, np.float16, streaming=streaming).stages["asm"] for streaming in (True, False))
    assert with_it == without


def test_whole_tiles_need_no_predicate() -> None:
    plain = treadle.compile(SQUARES, target="sm_90a")
    text = plain.stages["tile"].replace(" : i64 : memref", " : i64 streaming : memref", 1)
    program = treadle.compile(text, target="sm_90a")
    assert set(loads(plain)) == {"ld.global.nc.v4.b32"} and set(loads(program)) == {"ld.global.cs.v4.b32"}
    assert "setp.ne.b32" not in program.stages["asm"]


def unsaid(x: Any, n: int) -> None:
    x[0, 0:8] = tl.load(x[1, 0:8], streaming=n)


def gathered(x: Any) -> None:
    x[0, 0:8] = tl.load(x[1, tl.arange(8)], streaming=True)


@pytest.mark.parametrize(
    ("function", "arguments", "hint"),
    [(unsaid, (1,), "give True or False, or a tl.constexpr that is one of them"), (gathered, (), "leave `streaming` out")],
)
def test_refusals(function: Any, arguments: tuple[int, ...], hint: str) -> None:
    with pytest.raises(TreadleError) as caught:
        treadle.kernel(target="sim")(function)[1](np.zeros((8, 8), np.float32), *arguments)
    assert caught.value.code == "TR109" and hint in str(caught.value)
