"""Every matrix instruction of the AMD rows selects, and lane exchanges are what they say."""

import pytest
from targets.amd import programs

from treadle.codegen.llvm_text import Builder, Module, Parameter
from treadle.codegen.worker import emit_assembly
from treadle.machine import MatrixInstruction, target_spec
from treadle.targets.amd.hooks import ROW_LANES, dpp_controls
from treadle.targets.amd.matrix import instruction_fragments, intrinsic_of, issue

ROWS = [(target, row) for target in programs.TARGETS for row in target_spec(target).matrix_instructions]


@pytest.mark.parametrize(("target", "row"), ROWS, ids=lambda v: v.name if isinstance(v, MatrixInstruction) else v)
def test_row_selects(target: str, row: MatrixInstruction) -> None:
    intrinsic = intrinsic_of(row)
    module = Module("amdgcn-amd-amdhsa")
    types = (intrinsic.operand, intrinsic.operand, intrinsic.accumulator)
    parameters = [Parameter("ptr addrspace(1)", "p"), *(Parameter(t, n) for t, n in zip(types, "abc", strict=True))]
    function = module.function("k", parameters, convention="amdgpu_kernel")
    b = Builder(function)
    pointer, left, right, accumulator = function.parameters
    b.store(issue(b, intrinsic, left, right, accumulator), pointer, 16)
    b.ret()
    text = emit_assembly(str(module), triple=module.triple, cpu=target)
    found = [line.strip() for line in text.splitlines() if line.strip().startswith(("v_mfma", "v_wmma"))]
    assert len(found) == 1
    kinds = {"i8": ("i8", "iu8"), "f8E4M3FN": ("fp8",), "f8E4M3FNUZ": ("fp8",), "f8E5M2": ("bf8",), "f8E5M2FNUZ": ("bf8",)}
    mnemonic = found[0].split()[0]
    assert f"_{row.accumulator_type}_{row.m}x{row.n}x{row.k}_" in mnemonic
    if row.a_type == row.b_type and row.a_type not in kinds:
        assert mnemonic.endswith(f"_{row.a_type}")
    elif row.a_type == "i8":
        assert mnemonic.endswith(kinds["i8"])
    else:
        assert mnemonic.endswith(f"_{kinds[row.a_type][0]}_{kinds[row.b_type][0]}")


@pytest.mark.parametrize(("target", "row"), ROWS, ids=lambda v: v.name if isinstance(v, MatrixInstruction) else v)
def test_fragments_fit_the_registers(target: str, row: MatrixInstruction) -> None:
    a, b, c = instruction_fragments(row)
    lanes = target_spec(target).subgroup_size
    assert (a.shape, b.shape, c.shape) == ((row.m, row.k), (row.k, row.n), (row.m, row.n))
    assert a.num_lanes == b.num_lanes == c.num_lanes == lanes
    assert c.num_registers * lanes == row.m * row.n


def _moved(control: int, lane: int) -> int:
    if control < 0x100:
        return lane & ~3 | control >> 2 * (lane & 3) & 3
    if control == 0x140:
        return 15 - lane
    if control == 0x141:
        return lane & 8 | 7 - (lane & 7)
    assert control & ~15 == 0x160
    return lane ^ (control & 15)


@pytest.mark.parametrize("xor_mask", [False, True])
def test_lane_exchanges_within_a_row(xor_mask: bool) -> None:
    for mask in range(ROW_LANES):
        lanes = list(range(ROW_LANES))
        for control in dpp_controls(mask, xor_mask=xor_mask):
            lanes = [lanes[_moved(control, lane)] for lane in range(ROW_LANES)]
        assert lanes == [lane ^ mask for lane in range(ROW_LANES)]
