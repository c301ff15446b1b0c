"""Every hand-written schedule-level program, and every one that insert-sync orders: queues of all kinds, roles, rings, ping-pong.

`python hand_written_programs.py NAME [NAME...]` (with `tests` on the path) runs them once on the GPU, checks the results, and exits with 1
where one is wrong: what compute-sanitizer runs. Without names it lists them.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

from device import hand_written, synchronised
from device.sanitizer import run_named

from treadle.runtime.cuda import open_device
from treadle.targets.registry import backend

CASES = {**hand_written.CASES, **synchronised.CASES}
_TOOLS = 8  # that assemble at the same time


def wrong(names: list[str]) -> list[str]:
    """What is wrong with the programs on this machine's GPU."""
    if not names:
        return []
    device = open_device()
    target = backend("sm_90a")
    with ThreadPoolExecutor(_TOOLS) as tools:
        compiled = list(tools.map(target.assemble, [target.emit(CASES[name].build()) for name in names]))
    found: list[str] = []
    for name, kernel in zip(names, compiled, strict=True):
        case = CASES[name]
        arrays = case.arrays(0)
        error = case.error(arrays, [result.numpy() for result in case.program(device, kernel)(*arrays)])
        if not error <= case.tolerance:  # not a number is wrong too
            found.append(f"{name}: error {error:g}, allowed {case.tolerance:g}")
    return found


if __name__ == "__main__":
    sys.exit(run_named(CASES, wrong))
