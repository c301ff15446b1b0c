"""Bulk copies of a producer: issued once each by an elected thread, in no loop of their own, also where clusters share buffers."""

from dataclasses import replace

import pytest
from transforms.role_kernels import MATMUL

from treadle import driver
from treadle.options import CompileOptions
from treadle.targets.nvidia.sass import parse
from treadle.targets.nvidia.toolchain import disassemble_cubin

OPTIONS = CompileOptions(tile=(64, 64, 64), warps=(4, 1), consumer_warpgroups=2, num_stages=3, tuned=False)


@pytest.mark.parametrize(("cluster", "walked"), [(1, 8), (2, 2), (2, 1), (2, 3)])
def test_copies_of_a_producer_stand_in_the_loops_of_tiles_and_steps_alone(cluster: int, walked: int) -> None:
    options = replace(OPTIONS, cluster=cluster, group_m=walked)
    program = driver.compile(MATMUL.format(m=1000, n=1000, k=520), target="sm_90a", options=options)
    (cubin,) = program.binaries.values()
    text = parse(disassemble_cubin(cubin))
    copies = [number for number, one in enumerate(text) if one.mnemonic == "UTMALDG"]
    assert len(copies) == 3
    back = [(one.target, number) for number, one in enumerate(text) if one.target is not None and one.target <= number]
    around = [[span for span in back if span[0] <= number <= span[1]] for number in copies]
    waits = [number for number, one in enumerate(text) if one.mnemonic == "SYNCS"]
    assert all(any(first <= at <= last for at in waits) for spans in around for first, last in spans), "each loop waits for a slot"
    assert all(len(spans) >= 2 for spans in around), "of tiles, and of steps"
