"""What a block's call runs on the device, kernel by kernel, with this backend and with Inductor: `torch_blocks.py --kernels`."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportMissingImports=false

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from treadle.bench.protocol import Clock

TURNS = 7
WIDTH = 70
"""Of a kernel's name: Inductor's are long."""


def kernel_times(call: Callable[[], Any], clock: Clock) -> dict[str, list[float]]:
    """Microseconds of each kernel of a call, one for each time that it ran; the cache is swept before each call, as for the ratios."""
    call()
    clock.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(TURNS):
            clock.flush()
            call()
        clock.synchronize()
    times: dict[str, list[float]] = defaultdict(list)
    for event in found.events() or ():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            times[event.name].append(event.time_range.elapsed_us())
    return times


def table(calls: Mapping[str, Callable[[], Any]], clock: Clock) -> str:
    """For each compiler its kernels, the longest first: microseconds of a call, how often it runs in one, and microseconds of one run."""
    sweep = kernel_times(clock.flush, clock).keys()
    lines: list[str] = []
    for compiler, call in calls.items():
        times = {name: found for name, found in kernel_times(call, clock).items() if name not in sweep}
        total = sum(map(sum, times.values())) / TURNS
        lines.append(f"{compiler}: {total:.1f} us in {sum(map(len, times.values())) / TURNS:.0f} kernels")
        for name, found in sorted(times.items(), key=lambda one: -sum(one[1])):
            lines.append(f"  {sum(found) / TURNS:8.1f}  {len(found) / TURNS:4.1f} x {sum(found) / len(found):7.2f}  {name[:WIDTH]}")
    return "\n".join(lines)
