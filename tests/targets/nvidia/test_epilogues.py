"""Epilogues of role kernels in machine code: instructions for each element, and none that wait for a called function."""

import re
from collections import Counter
from collections.abc import Callable

import pytest

import treadle
from treadle import machine, pipelines
from treadle.artifact import TensorMapValue
from treadle.bench.families import beside, epilogue, gated, matmul, row_scaled
from treadle.bench.workload import Workload
from treadle.dialects import tile
from treadle.ir.text import parse_module
from treadle.options import CompileOptions, Form
from treadle.plan.role_tiles import box_widths
from treadle.targets import registry

ARITHMETIC = ("FADD", "FMUL", "FFMA", "FMNMX", "FSETP", "FSEL", "SEL", "MUFU", "F2FP", "PRMT", "SHF", "IMAD", "LOP3", "STSM", "LDG")
CASES: list[tuple[Callable[[], Workload], CompileOptions, int, float]] = [
    (
        lambda: epilogue("a", "t", "linear_bias_gelu", 1024, 1024, 256, "bf16"),
        CompileOptions(tile=(64, 256, 64), consumer_warpgroups=2, num_stages=4),
        128,
        12,
    ),
    (
        lambda: epilogue("b", "t", "linear_silu_two", 1024, 1024, 256, "bf16"),
        CompileOptions(tile=(64, 256, 64), consumer_warpgroups=2, num_stages=4),
        128,
        8,
    ),
    (lambda: gated("c", "t", 1024, 1024, 256, "bf16"), CompileOptions(tile=(64, 128, 64), consumer_warpgroups=2, num_stages=4), 64, 9),
]


@pytest.mark.parametrize("width", [88, 120, 168])
@pytest.mark.parametrize("form", ["roles", "exchanged"])
def test_results_of_tiles_an_odd_multiple_of_8_wide(form: Form, width: int) -> None:
    """They leave in boxes as wide as can be, four matrices a store, the last of 16 bytes by a store of two; nothing is spilled."""
    m, n = (4096, 2 * width) if form == "roles" else (2 * width, 4096)
    options = CompileOptions(form=form, tile=(64, width, 64), warps=(4, 1), consumer_warpgroups=2, num_stages=4, split_reduction="off")
    program = treadle.compile(matmul("e", "t", m, n, 256, "f16", transposed=True).text, target="sm_90a", options=options)
    (kernel,) = program.manifest.kernels
    assert kernel.facts["spill_bytes"] == 0
    assembly = program.stages["asm"]
    stored = Counter(re.findall(r"stmatrix\.sync\.aligned\.m8n8\.(x\d(?:\.trans)?)", assembly))
    maps = [arg.map for arg in program.manifest.launches[0].args if isinstance(arg, TensorMapValue)]
    if form == "exchanged":
        assert stored.keys() <= {"x4.trans", "x2.trans"} and len(maps) == 2
        return
    assert stored == {"x4": width // 16, "x2": 1}
    boxes = box_widths(width, 2, (128, 64, 32, 16))
    assert boxes is not None and boxes[-1] == 8
    out = {(each.box_dim, each.swizzle) for each in maps if each.global_dim[0] == n}
    assert out == {((columns, 64), "none" if columns == 8 else f"{2 * columns}B") for columns in boxes}
    assert len(re.findall(r"cp\.async\.bulk\.tensor\.2d\.global\.shared", assembly)) == len(boxes)


@pytest.mark.parametrize(("kind", "columns"), [("gelu", 64), ("gelu", 192), ("scaled", 128), ("scaled", 192)])
def test_rows_of_numbers_beside_many_accumulators(kind: str, columns: int) -> None:
    """They are read box by box, by loads that no compiler moves ahead of barriers; nothing is spilled."""
    sizes = (8192, 8192, 4096, "bf16")
    work = epilogue("f", "t", "linear_bias_gelu", *sizes) if kind == "gelu" else row_scaled("g", "t", *sizes)
    options = CompileOptions(tile=(128, columns, 64), warps=(4, 1), consumer_warpgroups=1, ping_pong=2, num_stages=4, steps_in_flight=1)
    program = treadle.compile(work.text, target="sm_90a", options=options)
    (kernel,) = program.manifest.kernels
    assert kernel.facts["spill_bytes"] == 0
    loads = re.findall(r"ld\.global\.(?:nc\.)?", program.stages["asm"])
    movable = loads.count("ld.global.nc.")
    assert len(loads) >= columns // 8 and (movable < columns // 8 if columns == 192 else movable == len(loads))


@pytest.mark.parametrize("kind", ["linear_residual", "linear_gate"])
@pytest.mark.parametrize(
    "options",
    [
        CompileOptions(tile=(64, 256, 64), consumer_warpgroups=2, num_stages=3),
        CompileOptions(tile=(64, 224, 64), consumer_warpgroups=2, num_stages=3, deferred_store=True),
        CompileOptions(tile=(128, 128, 64), ping_pong=2, num_stages=4, steps_in_flight=1),
    ],
    ids=["wide", "deferred", "ping-pong"],
)
def test_matrices_beside_a_product_are_brought_by_the_producer(kind: str, options: CompileOptions) -> None:
    """A copy of each box and group ahead of the consumers' code; no load from global memory, nothing spilled."""
    module = parse_module(beside("d", "t", kind, 4096, 4096, 4096, "bf16").text, "test.mlir")
    pipelines.lower(module, machine.target_spec("sm_90a"), options)
    (kernel,) = [op for op in module.body.block.ops if isinstance(op, tile.KernelOp)]
    backend = registry.backend("sm_90a")
    compiled = backend.assemble(backend.emit(kernel))
    facts, groups = compiled.facts, options.consumer_warpgroups
    assert facts.spill_bytes == 0
    boxes = -(-options.tile[1] // 64)
    brought = (
        facts.instructions["UTMALDG"]
        if "UTMALDG" in facts.instructions
        else sum(count for name, count in facts.instructions.items() if name.startswith("UTMALDG"))
    )
    assert brought == groups + 1 + groups * boxes
    assert not any(name.split(".")[0] in ("LDG", "LDS") for name in facts.instructions)
    producer = compiled.assembly.split("wgmma.mma_async")[0]
    assert producer.count("cp.async.bulk.tensor.2d.shared::cluster.global") == brought


@pytest.mark.parametrize(("workload", "options", "elements", "limit"), CASES, ids=["gelu", "silu", "swiglu"])
def test_instructions_per_element(workload: Callable[[], Workload], options: CompileOptions, elements: int, limit: float) -> None:
    """`elements`: of a result that one thread of a consumer warpgroup holds, which is what the code names."""
    module = parse_module(workload().text, "test.mlir")
    pipelines.lower(module, machine.target_spec("sm_90a"), options)
    (kernel,) = [op for op in module.body.block.ops if isinstance(op, tile.KernelOp)]
    backend = registry.backend("sm_90a")
    facts = backend.assemble(backend.emit(kernel)).facts
    counts: dict[str, int] = {}
    for name, count in facts.instructions.items():
        counts[name.split(".")[0]] = counts.get(name.split(".")[0], 0) + count
    assert facts.spill_bytes == 0
    assert counts.get("CALL", 0) == 0
    assert 2 * elements <= counts["MUFU"] <= 2 * elements + 8  # an exponential and a reciprocal; integer quotients of the tile loop
    assert sum(counts.get(name, 0) for name in ARITHMETIC) <= limit * elements
