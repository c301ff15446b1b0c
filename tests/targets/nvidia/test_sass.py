"""The reader of machine code sees what the audit must refuse."""

from dataclasses import replace

import pytest

from treadle.errors import KernelRejected
from treadle.targets.interface import EmittedKernel, ExpectedFacts
from treadle.targets.nvidia.audit import audit, instruction_counts
from treadle.targets.nvidia.sass import in_flight, loops, parse, slow_in_loops, touched_accumulators
from treadle.targets.nvidia.toolchain import KernelResources

LOOP = """
//## File "k", line 1
        /*0000*/                   MOV R24, RZ ;
.L_x_1:
//## File "k", line 2
        /*0010*/                   WARPGROUP.ARRIVE ;
        /*0020*/                   HGMMA.64x16x16.F32.BF16 R24, gdesc[UR12], R24 ;
        {between}
        /*0040*/                   HGMMA.64x16x16.F32.BF16 R24, gdesc[UR12], R24, gsb0 ;
//## File "k", line 3
        {behind}
        /*0060*/                   WARPGROUP.DEPBAR.LE gsb0, {pending} ;
//## File "k", line 4
        /*0070*/              @P0 BRA `(.L_x_1) ;
        {last}
        /*0090*/                   EXIT ;
.L_x_2:
        /*00a0*/                   BRA `(.L_x_2);
"""
RESOURCES = KernelResources("k", 100, 0, 0, 0, 0)


def code(between: str = "", behind: str = "", pending: str = "0x0", last: str = "") -> str:
    def placed(text: str, at: str) -> str:
        return f"/*{at}*/ {text} ;" if text else ""

    return LOOP.format(between=placed(between, "0030"), behind=placed(behind, "0050"), pending=pending, last=placed(last, "0080"))


def emitted(waits: int = 1) -> EmittedKernel:
    facts = ExpectedFacts(2, 0, True, 0, waits, ("a", "tile.contract at x.mlir:3:1", "sync.wait", "scf.for"))
    return EmittedKernel("k", "", (), (128, 1, 1), (1, 1, 1), 0, ("1", "1", "1"), "", "", "", facts)


def judge(sass: str, waits: int = 1) -> None:
    audit(emitted(waits), RESOURCES, (), instruction_counts(sass), parse(sass))


def test_good_code_passes() -> None:
    judge(code())
    judge(code(last="STG.E desc[UR4][R2.64], R24"))
    judge(code(between="UIADD3 UR4, UR4, 0x1, URZ", behind="IADD3 R2, R3, R4, RZ"))
    assert len(loops(parse(code()))) == 1


@pytest.mark.parametrize("where", ["between", "behind"])
@pytest.mark.parametrize(
    "text", ["MOV R9, R25", "MOV R31, RZ", "STG.E.64 desc[UR4][R2.64], R24", "IADD3 R24, R2, R3, RZ", "STS.128 [R2], R21"]
)
def test_an_accumulator_touched_in_flight(where: str, text: str) -> None:
    with pytest.raises(
        KernelRejected,
        match=r"kernel 'k' is rejected: .* touches an accumulator in flight \(from (tile.contract at x.mlir:3:1|sync.wait)\)",
    ):
        judge(code(**{where: text}))


def test_registers_beside_the_accumulator_are_free() -> None:
    for text in ("MOV R9, R23", "MOV R32, RZ", "STS.128 [R2], R20", "STG.E desc[UR4][R22.64], R32"):
        judge(code(behind=text))


def test_what_stays_pending_is_in_flight_around_the_back_edge() -> None:
    """With one group pending the wait retires nothing: the store behind the loop reads what is being written."""
    bad = code(pending="0x1", last="STG.E desc[UR4][R2.64], R24")
    assert [one.mnemonic for one in touched_accumulators(parse(bad))] == ["STG"]
    instructions = parse(bad)
    top = next(at for at, one in enumerate(instructions) if one.suffix == ".ARRIVE")
    assert list(in_flight(instructions)[top].values()) == [0]


def test_slow_instructions_of_main_loops() -> None:
    for text, found in (
        ("R2UR UR4, R0", True),
        ("MEMBAR.ALL.GPU", True),
        ("ERRBAR", True),
        ("MEMBAR.ALL.CTA", False),
        ("MOV R2, R3", False),
    ):
        assert bool(slow_in_loops(parse(code(between=text)))) == found
    assert not slow_in_loops(parse(code(behind="R2UR UR4, R0")))
    with pytest.raises(KernelRejected, match="R2UR among the matrix instructions of a main loop"):
        judge(code(between="R2UR UR4, R0"))


def test_waits_other_than_written() -> None:
    with pytest.raises(KernelRejected, match="1 waits for matrix instructions, 2 emitted"):
        judge(code(), waits=2)
    with pytest.raises(KernelRejected, match="1 waits for matrix instructions, 0 emitted"):
        judge(code(), waits=0)


def test_remarks_about_a_line_name_the_operation() -> None:
    ptx = "x\n\t.loc\t1 2 0\n wgmma\n\t.loc\t1 3 0\n wait"
    for remark, words in (("(C7514) something in line 3", "tile.contract"), ("(C7519) warpgroup.arrive in around line 5", "sync.wait")):
        with pytest.raises(KernelRejected, match=words):
            audit(emitted(), RESOURCES, (remark,), {"HGMMA": 2}, parse(code()), ptx)
    spilled = replace(RESOURCES, spill_store_bytes=8)
    with pytest.raises(KernelRejected, match=r"8 bytes stored.*\(from sync.wait\)"):
        audit(emitted(), spilled, (), {"HGMMA": 2}, parse(code(behind="STL [R1], R2")))
