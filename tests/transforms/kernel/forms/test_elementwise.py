"""The form elementwise: tiles of powers of two, halved where tools reject them."""

import pytest
from transforms.form_programs import lowered, problem_of

from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.transforms.kernel.forms import elementwise

EXP = """
func.func @f(%x: tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32> {{
  %e = tensor.empty() : tensor<{m}x{n}xf32>
  %y = linalg.exp ins(%x : tensor<{m}x{n}xf32>) outs(%e : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %y : tensor<{m}x{n}xf32>
}}
"""


@pytest.mark.parametrize("target", ["sm_90a", "gfx1201"])
@pytest.mark.parametrize(("m", "n"), [(77, 1001), (1, 3), (4096, 4096)])
def test_choices(m: int, n: int, target: str) -> None:
    problem = problem_of(EXP.format(m=m, n=n), target)
    assert elementwise.refusal(problem) is None
    found = elementwise.decide(problem)
    extents = [choice.config.extents(1)[0] for choice in found]  # one axis: nothing tells rows and columns apart
    assert extents == [extents[0] >> times for times in range(len(extents))] and extents[-1] == 1
    assert found[0].text.startswith(f"elementwise over {m * n}: tile ")
    assert found[0].config.num_warps * target_spec(target).subgroup_size <= 256


def test_more_to_move_takes_no_less_time() -> None:
    times = [elementwise.decide(problem_of(EXP.format(m=m, n=1000)))[0].seconds for m in (1, 7, 100, 5000, 100_000)]
    assert times == sorted(times) and len(set(times)) == len(times)


def test_what_is_built_covers_the_array() -> None:
    module, said = lowered(EXP.format(m=77, n=1001), "gfx942", CompileOptions())
    assert said.startswith("elementwise over 77077")
    stores = [op for op in module.walk() if op.name == "tile.store"]
    assert len(stores) == 1
