"""The model of a matrix unit gives what following every wave through every trip gives, and stops once a loop has its rhythm."""

import random
from collections import defaultdict
from math import inf

import pytest

from treadle.machine import target_spec
from treadle.targets.amd import cycles
from treadle.targets.amd.assembly import parse
from treadle.targets.amd.cycles import AHEAD, BARRIER_CLOCKS, LOAD_CLOCKS, MEASURED, SHARED_CLOCKS, WARM_UP, Step, loop_cycles, steps_of

SPEC = target_spec("gfx942")
SLOT, UNITS = SPEC.subgroup_size // SPEC.vector_lanes, SPEC.matrix_units
LINES = (
    "v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], a[0:3]",
    "v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]",
    "global_load_dwordx4 v[4:7], v[8:9], off",
    "ds_read_b64 v[0:1], v9",
    "ds_write_b128 v9, v[4:7]",
    "v_add_u32 v8, v8, v9",
    "s_add_u32 s4, s4, s5",
    "s_waitcnt vmcnt(0)",
    "s_waitcnt vmcnt(2)",
    "s_waitcnt lgkmcnt(0)",
    "s_waitcnt lgkmcnt(3)",
    "s_barrier",
)


def _listing(lines: list[str]) -> str:
    return "\n".join(["k:", ".L1:", *(f"\t{line}" for line in lines), "\ts_cbranch_scc1 .L1", "\ts_endpgm", "\t.amdhsa_kernel k"])


def _followed(steps: list[Step], waves: int, workgroup_waves: int) -> tuple[float, float]:
    """`loop_cycles` by asking each wave anew, before every instruction, when it could go on."""
    ready, at, trips = [0.0] * waves, [0] * waves, [0] * waves
    free: dict[str, float] = defaultdict(float)
    served: dict[str, float] = defaultdict(float)
    done: list[dict[str, list[float]]] = [defaultdict(list) for _ in range(waves)]
    matrix_until, multiplied = 0.0, 0

    def earliest(w: int) -> float:
        step = steps[at[w]]
        when = max(ready[w], free[step.issue] if step.issue != "none" else 0.0, matrix_until if step.matrix else 0.0)
        for counter, left in step.waits:
            when = max(when, *([0.0, done[w][counter][-left - 1]] if len(done[w][counter]) > left else [0.0]))
        if step.meets:
            first = w // workgroup_waves * workgroup_waves
            fellows = range(first, min(waves, first + workgroup_waves))
            when = inf if any((trips[f], at[f]) < (trips[w], at[w]) for f in fellows) else max(when, *(ready[f] for f in fellows))
        return when

    found: list[tuple[float, int]] = []
    for trip in (WARM_UP, WARM_UP + MEASURED):
        while (slowest := min(trips)) < trip:
            w = min(range(waves), key=lambda w: (earliest(w), trips[w] > slowest + AHEAD))
            step, when = steps[at[w]], earliest(w)
            ready[w] = when + (BARRIER_CLOCKS if step.meets else SLOT)
            free[step.issue] = when + SLOT
            if step.matrix:
                matrix_until, multiplied = when + step.matrix, multiplied + step.matrix
            if step.counter is not None:
                served[step.issue] = max(when, served[step.issue]) + step.served * UNITS
                end = served[step.issue] + (SHARED_CLOCKS if step.issue == "shared" else LOAD_CLOCKS)
                done[w][step.counter].append(max([end, *done[w][step.counter][-1:]]))
            at[w] = (at[w] + 1) % len(steps)
            trips[w] += at[w] == 0
        found.append((max(ready), multiplied))
    (begin, before), (end, after) = found
    share = (after - before) / (end - begin)
    return waves * sum(step.matrix for step in steps) / share, min(1.0, share)


@pytest.mark.parametrize("seed", range(40))
def test_it_is_what_following_every_trip_gives(seed: int) -> None:
    rng = random.Random(seed)
    lines = [rng.choice(LINES) for _ in range(rng.randint(1, 24))]
    lines.insert(rng.randint(0, len(lines)), LINES[0])
    workgroup_waves = rng.choice((1, 2, 3))
    waves = workgroup_waves * rng.randint(1, 3) + rng.choice((0, 0, 1))
    listing = parse(_listing(lines), "k")
    loop = frozenset(range(len(lines) + 1))
    expected = _followed(steps_of(listing, loop, {}, SPEC), waves, workgroup_waves)
    assert loop_cycles(listing, loop, {}, SPEC, waves, workgroup_waves) == pytest.approx(expected, rel=1e-9)


def test_a_loop_with_a_rhythm_is_not_followed_further(monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[int] = []
    run = cycles.Unit.run

    def counted(self: cycles.Unit, trips: int) -> float:
        followed.append(trips)
        return run(self, trips)

    monkeypatch.setattr(cycles.Unit, "run", counted)
    lines = [LINES[2], LINES[7], *[LINES[1]] * 20]
    loop_cycles(parse(_listing(lines), "k"), frozenset(range(len(lines) + 1)), {}, SPEC, 4, 2)
    assert max(followed) < WARM_UP + MEASURED
