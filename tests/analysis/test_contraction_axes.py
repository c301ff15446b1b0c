"""What happens to a contraction's results: which of it is computed some columns at a time."""

from collections.abc import Sequence

import pytest

from treadle import pipelines
from treadle.analysis.contraction_axes import is_light, is_plain
from treadle.analysis.loop_nest import loop_nest
from treadle.bench.texts import Body, Function
from treadle.dialects import dispatch
from treadle.frontends import mlir
from treadle.machine import target_spec
from treadle.options import CompileOptions

SIZES = {"m": 384, "n": 640}


def nest_kinds(reads: str, math: str = "", results: int = 1) -> tuple[bool, bool]:
    """Whether a product with an epilogue is plain, and light. `reads`: what is added, by its axes ("m,n"), `math`: behind that."""
    f = Function("f")
    a, b = f.argument("a", (384, 256), "bf16"), f.argument("b", (640, 256), "bf16")
    axes = [each for each in reads.split(",") if each]
    read = [f.argument(f"r{i}", [SIZES[axis] for axis in each], "f32") for i, each in enumerate(axes)]

    def compute(body: Body, taken: list[str]) -> Sequence[str]:
        value = taken[0]
        for other in taken[1:]:
            value = body.binary("arith.addf", value, other)
        return [body.unary(math, value) if math else value] * results

    maps = ",".join(["mn", *axes])
    y = f.contract("mk,nk->mn", a, b)
    module = mlir.load(f.text(*f.elementwise(f"{maps}->mn", [y, *read], ["bf16", "f16"][:results], compute)), "test.mlir")
    pipelines.lower(module, target_spec("sm_90a"), CompileOptions(), until="dispatch")
    nest = loop_nest(next(op for op in module.body.block.ops if isinstance(op, dispatch.KernelOp)))
    return is_plain(nest), is_light(nest)


@pytest.mark.parametrize(
    ("reads", "math", "plain", "light"),
    [
        ("", "", True, True),
        ("n", "", False, True),
        ("m", "", False, True),
        ("m,n", "", False, True),
        ("n", "math.erf", False, True),
        ("m,n,n", "math.tanh", False, True),
        ("", "math.erf", False, False),
        ("m", "math.erf", False, False),
        ("mn", "", False, False),
        ("n,mn", "", False, False),
    ],
)
def test_what_is_read_and_computed_beside_a_sum(reads: str, math: str, plain: bool, light: bool) -> None:
    assert nest_kinds(reads, math) == (plain, light)


def test_two_results_are_not_light() -> None:
    assert nest_kinds("n", results=2) == (False, False)
