"""The pieces of an MLP (forward, bias, SiLU with two results, gated with three and with one, batch) as kernels of each of four forms."""

from typing import Any

import pytest

from treadle import pipelines
from treadle.bench.suite import find
from treadle.dialects import pipe, tile
from treadle.ir.core import Operation
from treadle.ir.dialects import scf
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.targets import registry

PIECES = ("mlp-forward", "mlp-bias", "mlp-silu", "mlp-horizontal-3", "mlp-horizontal-1", "mlp-batch")
FORMS: dict[str, dict[str, Any]] = {
    "one tile a workgroup": {"roles": False, "pipeline_stages": 0, "persistent": "never"},
    "persistent": {"roles": False, "pipeline_stages": 0, "persistent": "always"},
    "one tile a workgroup, roles": {"persistent": "never"},
    "persistent, roles": {"persistent": "always"},
}


def kernel_of(name: str, form: str) -> tile.KernelOp:
    """The one kernel of a workload, its schedule proven."""
    workload = find(name)
    assert workload is not None
    module = parse_module(workload.text, name)
    pipelines.lower(module, target_spec("sm_90a"), CompileOptions(**FORMS[form]))
    (kernel,) = [op for op in module.walk() if isinstance(op, tile.KernelOp)]
    return kernel


def is_loop_over_tiles(op: Operation) -> bool:
    """Whether a loop starts at the workgroup's number."""
    return isinstance(op, scf.ForOp) and isinstance(op.lb.owner, tile.ProgramIdOp)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", PIECES)
def test_every_piece_has_every_form(name: str, form: str) -> None:
    kernel = kernel_of(name, form)
    roles = [op for op in kernel.walk() if isinstance(op, pipe.RolesOp)]
    assert bool(roles) == ("roles" in form)
    loops = [op for op in kernel.walk() if is_loop_over_tiles(op)]
    assert bool(loops) == form.startswith("persistent")
    (workgroups, *_) = (int(text) for text in kernel.grid_text())
    units = target_spec("sm_90a").compute_units
    assert workgroups % units == 0 if loops else workgroups > units


@pytest.mark.parametrize("form", FORMS)
def test_three_results_of_two_products_fit_the_registers(form: str) -> None:
    backend = registry.backend("sm_90a")
    facts = backend.assemble(backend.emit(kernel_of("mlp-horizontal-3", form))).facts
    assert facts.spill_bytes == 0 and facts.stack_bytes == 0
    assert facts.instructions["HGMMA"] >= 8
    assert facts.instructions.get("UTMASTG", 0) > 0 or "roles" not in form
