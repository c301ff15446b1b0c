"""The model of split reductions: parts are worth what they cost, and block bounds hold for every block."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import inf

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from treadle.bench.named_shapes import named_workload
from treadle.driver import trace
from treadle.machine import TargetSpec, target_spec
from treadle.plan import split_parts
from treadle.plan.block_bounds import greatest, in_whole_steps, least, of_the_launch
from treadle.plan.expr import Expr, ceil_div, constant, maximum, minimum, symbol
from treadle.plan.form_times import Gathered, best_tile, bounded_seconds, tile_seconds
from treadle.plan.pointwise_tiles import AxisShape
from treadle.plan.reduction_parts import SplitReduction, split_reduction
from treadle.plan.role_forms import tiles_of
from treadle.plan.small_m import SLACK
from treadle.plan.split_choices import (
    LEAST_STAGES,
    LEAST_STEPS,
    RoleCosts,
    SplitContraction,
    are_alike,
    choices_of_one_tile,
    least_seconds,
    moved_bytes,
    role_costs,
)
from treadle.plan.split_parts import (
    CLEAR_GAIN,
    CLEAR_GAIN_OF_PIECES,
    MERGES,
    MOST_ROUNDS,
    Parts,
    cluster_counts,
    fastest_seconds,
    merge_seconds,
    merge_times,
    split_contraction,
)
from treadle.plan.tile_config import ContractionShape, TileProblem, contraction_types
from treadle.remarks import Remark
from treadle.strategies import split_sizes

TARGETS = ("sm_90a", "gfx942", "gfx1201")


@settings(max_examples=60)
@given(st.sampled_from(TARGETS), st.sampled_from(["f32", "bf16"]), *(st.integers(1, 4000),) * 2, st.integers(1, 100_000))
def test_parts_of_contractions(target: str, kind: str, m: int, n: int, k: int) -> None:
    spec = target_spec(target)
    types = contraction_types(spec, kind, kind, "f32", ("", "") if kind == "f32" else ("arith.extf", "arith.extf"), False)
    size = 4 if kind == "f32" else 2
    problem = SplitContraction(ContractionShape(1, m, n, k), types, size, size, 4, (0, 0), (True, False))
    found = split_contraction(problem, spec)
    if found is None:
        return
    steps, in_pieces = ceil_div(k, found.step).as_int() or 0, problem.multiplies_pieces(spec)
    assert 2 <= found.count <= steps // (LEAST_STEPS if in_pieces else LEAST_STAGES)
    assert found.seconds < (CLEAR_GAIN_OF_PIECES if in_pieces else CLEAR_GAIN) * found.whole_seconds
    assert -(-m // 128) * -(-n // 128) < MOST_ROUNDS * spec.compute_units


@pytest.mark.parametrize("target", TARGETS)
def test_reductions_that_fill_the_machine_stay_whole(target: str) -> None:
    spec = target_spec(target)
    for rows, columns in ((56088, 77), (8192, 8192), (100_000, 1000)):
        axes = (AxisShape(rows, False, 0, 4 * rows), AxisShape(columns, True, 4 * rows * columns, 0))
        assert split_reduction(SplitReduction(axes, 1, 4.0 * rows * columns, 4), spec) is None
    axes = (AxisShape(1, False, 0, 4), AxisShape(10_000_019, True, 40_000_076, 0))
    found = split_reduction(SplitReduction(axes, 1, 40_000_076.0, 4), spec)
    assert found is not None
    assert found.count >= spec.compute_units // 2


def product_of(m: int, n: int, k: int, target: str) -> tuple[SplitContraction, TargetSpec]:
    spec = target_spec(target)
    types = contraction_types(spec, "bf16", "bf16", "f32", ("arith.extf", "arith.extf"), False)
    rows = (16, 16) if types.instruction.startswith("wgmma") else (0, 0)
    return SplitContraction(ContractionShape(1, m, n, k), types, 2, 2, 4, rows, (True, False)), spec


def test_who_merges_is_the_faster_one() -> None:
    """A few small parts cost the last workgroup less than a launch that begins when the one ahead has ended, many large ones more; where
    one is cheap or dear another one is taken, and never a number of parts that a cluster cannot have.
    """
    few, early = product_of(128, 128, 4096, "sm_90a")
    many, _ = product_of(64, 256, 65536, "sm_90a")
    assert (parts := split_contraction(many, early)) is not None and parts.merge == "kernel"
    apart_early = replace(early.product, fitted=replace(early.rates, arrivals=replace(early.rates.arrivals, cluster_clocks=1e5)))
    assert (parts := split_contraction(few, replace(early, product=apart_early))) is not None and parts.merge == "kernel"
    spec = replace(early, overlapping_launches=False)
    measured, times = spec.rates.arrivals, list[float]()
    apart, dear = replace(measured, cluster_clocks=1e5), replace(measured, cluster_clocks=1e5, arrival_clocks=1e5)
    for arrivals, merge in ((measured, "cluster"), (apart, "last"), (dear, "kernel")):
        product = replace(spec.product, fitted=replace(spec.rates, arrivals=arrivals))
        found = split_contraction(few, replace(spec, product=product))
        assert found is not None and found.merge == merge
        assert merge != "cluster" or found.count in cluster_counts(spec)
        times.append(found.seconds)
    assert times == sorted(times)


def test_a_merge_that_begins_early_takes_less() -> None:
    _, spec = product_of(168, 112, 6240, "sm_90a")
    late = replace(spec, overlapping_launches=False)
    saved = merge_seconds(8, 168 * 112, 4, late) - merge_seconds(8, 168 * 112, 4, spec)
    assert saved == pytest.approx(spec.rates.general.launch_seconds - spec.rates.general.overlapped_seconds)
    assert saved > 0


@settings(max_examples=60)
@given(st.sampled_from(TARGETS), st.integers(1, 500), st.integers(1, 2000), st.integers(1, 40), st.integers(2, 64), st.floats(0.5, 3))
def test_what_is_left_out_of_a_search_is_never_the_best(target: str, m: int, n: int, steps: int, count: int, share: float) -> None:
    """Where something takes less than is enough, the least is what it is without a limit; else nothing is told to take that little."""
    assume(abs(share - 1) > SLACK)  # at the limit itself either may be told
    problem, spec = product_of(m, n, 64 * steps * count, target)
    part, costs = replace(problem.shape, batch=count, k=64 * steps), role_costs(problem, spec)
    whole = min(merge_times(problem, part, count, costs, spec, inf).values())
    enough = whole * share
    found = min(merge_times(problem, part, count, costs, spec, enough).values(), default=inf)
    assert found == whole if share >= 1 + SLACK else found > enough


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(TARGETS), st.integers(1, 500), st.integers(1, 2000), st.integers(1, 40), st.sampled_from([2, 3, 4, 7, 8, 16]))
def test_who_merges_fastest_is_found_whoever_is_looked_at_first(target: str, m: int, n: int, steps: int, count: int) -> None:
    problem, spec = product_of(m, n, 64 * steps * count, target)
    part, costs = replace(problem.shape, batch=count, k=64 * steps), role_costs(problem, spec)
    alone = {who: merge_times(problem, part, count, costs, spec, inf, (who,)).get(who, inf) for who in MERGES}
    together = merge_times(problem, part, count, costs, spec, inf)
    fastest = min(alone, key=lambda who: alone[who])
    assert (min(together, key=lambda who: together[who]), min(together.values())) == (fastest, alone[fastest])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(TARGETS), st.integers(1, 500), st.integers(1, 2000), st.integers(1, 40), st.integers(2, 64))
def test_bounds_that_cost_little_are_bounds(target: str, m: int, n: int, steps: int, count: int) -> None:
    problem, spec = product_of(m, n, 64 * steps * count, target)
    part, costs = replace(problem.shape, batch=count, k=64 * steps), role_costs(problem, spec)
    choices = choices_of_one_tile(problem, part, spec)
    assert costs.least_of_one_tile(part) <= min(choice.seconds for choice in choices) * (1 + SLACK)
    for model in costs.of(part):
        assert model.floor(count, 64 * steps) <= model.least() * (1 + SLACK)
        assert model.least() <= min(model.costs().values(), default=inf) * (1 + SLACK)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(TARGETS), st.integers(1, 5000), st.integers(1, 2000), st.integers(1, 40_000))
def test_what_sizes_alone_tell_is_no_more_than_any_time(target: str, m: int, n: int, k: int) -> None:
    problem, spec = product_of(m, n, k, target)
    least = least_seconds(problem, spec)
    assert 0 < least <= fastest_seconds(problem, spec)
    assert fastest_seconds(problem, spec, enough=0.99 * least) == inf


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(TARGETS), st.integers(1, 500), st.integers(1, 2000), st.integers(1, 40_000), st.floats(0.5, 2))
def test_a_time_is_told_where_it_is_no_more_than_enough(target: str, m: int, n: int, k: int, share: float) -> None:
    assume(abs(share - 1) > SLACK)
    problem, spec = product_of(m, n, k, target)
    whole = fastest_seconds(problem, spec)
    for kept in (split_parts._split_of, role_costs):
        kept.cache_clear()
    found = fastest_seconds(problem, spec, enough=share * whole)
    assert found == whole if share > 1 else found > share * whole
    assert fastest_seconds(problem, spec) == whole


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["sm_90a:h100-sxm", "sm_90a:h200-sxm"]), *(st.integers(1, 34).map(lambda n: 64 * n),) * 2, st.integers(64, 300))
@example("sm_90a:h100-sxm", 2176, 512, 210)
def test_what_a_cluster_exchanges_takes_room_from_its_rings(target: str, m: int, n: int, steps: int) -> None:
    """Two parts take at least what the tiles take that fit beside it: 128 x 144 with two slots instead of four."""
    problem, spec = product_of(m, n, 64 * steps, target)
    part = replace(problem.shape, batch=2, k=-(-steps // 2) * 64)
    moved, held = moved_bytes(problem, part), 2 * problem.results * problem.partial_bytes
    costs = role_costs(replace(problem, shape=replace(problem.shape, k=None)), spec)
    found = merge_times(problem, part, 2, costs, spec, inf, ("cluster",)).get("cluster", inf)
    others = [choice.clustered for choice in choices_of_one_tile(problem, part, spec)]
    models = [model.of(replace(model.problem, parts=2, in_cluster=True)) for model in costs.of(part)]
    fitting = [bounded_seconds(clocks, moved - held, spec) for model in models for clocks in model.costs().values()]
    assert found >= min([*others, *fitting])


def test_parts_that_differ_in_length_take_no_turns() -> None:
    """Their workgroups have one tile each: several rounds of them take longer than those of parts alike, a single one as long. Clusters
    fetch an operand once in either, for all of a cluster have one part.
    """
    for rows in (4096, 512):
        alike, spec = product_of(rows, 1024, 64 * 64 * 4, "sm_90a")
        uneven = replace(alike, shape=replace(alike.shape, k=64 * (64 * 4 - 1)))
        part = replace(alike.shape, batch=4, k=64 * 64)
        assert are_alike(alike, part) and not are_alike(uneven, part)
        whole, cut = (merge_times(each, part, 4, role_costs(each, spec), spec, inf, ("kernel",))["kernel"] for each in (alike, uneven))
        assert cut > whole if rows > 512 else cut == whole
        tiles = [tile for model in role_costs(uneven, spec).of(part, alike=False) for tile in model.costs()]
        assert any(tile.cluster > 1 for tile in tiles) and all(tile.ping_pong == 1 for tile in tiles)


def test_models_answer_alike_whatever_they_were_asked_before() -> None:
    problem, spec = product_of(712, 800, 8872, "sm_90a")
    models = RoleCosts(problem, spec)
    uneven = [model.best() for model in models.of(replace(problem.shape, batch=2, k=4480), alike=False)]
    best = [model.best() for model in models.of(problem.shape)]
    assert best == [model.best() for model in RoleCosts(problem, spec).of(problem.shape)]
    assert any(tile is not None and tile.cluster > 1 for tile in best)
    assert uneven == [model.best() for model in RoleCosts(problem, spec).of(replace(problem.shape, batch=2, k=4480), alike=False)]


@pytest.mark.parametrize(("m", "n", "k", "rows"), [(264, 1432, 19832, 16), (1464, 544, 18152, 16)])
def test_parts_of_rows_that_begin_inside_requests_are_in_clusters(m: int, n: int, k: int, rows: int) -> None:
    """Whether a launch or the last workgroup merges them: parts are modelled to take less than those that each fetch all of their own."""
    problem, spec = product_of(m, n, k, "sm_90a:h200-sxm")
    problem = replace(problem, copied_rows=(rows, rows), along_k=(True, False))
    part = replace(problem.shape, batch=5, k=-(-k // 64 // 5) * 64)
    assert not are_alike(problem, part)
    models = role_costs(problem, spec).of(part, alike=False)
    for of_merge in (models, [model.of(replace(model.problem, parts=5)) for model in models]):
        costs = [model.costs() for model in of_merge]
        alone = min(clocks for each in costs for tile, clocks in each.items() if tile.cluster == 1)
        best = min((model.cost(tile), tile.cluster) for model in of_merge if (tile := model.best(lambda tile: tile.ping_pong == 1)))
        assert best[1] > 1 and best[0] == min(clocks for each in costs for clocks in each.values()) < alone
    for model in models:
        for changed in ({"in_turn": True}, {"in_cluster": True}):
            others = model.of(replace(model.problem, parts=4, **changed))
            assert all(tile.cluster == 1 for tile in others.costs())


@pytest.mark.parametrize("seed", range(8))
def test_parts_take_what_they_were_chosen_for(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of the parts is modelled to take what the choice of their number reckoned with, rows at any multiple of 16 bytes."""
    found: list[tuple[SplitContraction, Parts]] = []

    def chosen(problem: SplitContraction, spec: TargetSpec, *, whole_stages: bool = False) -> Parts | None:
        if (parts := split_contraction(problem, spec, whole_stages=whole_stages)) is not None:
            found.append((problem, parts))
        return parts

    monkeypatch.setattr(split_sizes, "split_contraction", chosen)
    draw, spec = random.Random(seed), target_spec("sm_90a")
    told: Sequence[Remark] = ()
    while not found:
        m, n, k = (8 * draw.randint(*sides) for sides in ((6, 120), (6, 120), (300, 1500)))
        workload = named_workload(f"gemm-bf16-nt-{m}x{n}x{k}")
        assert workload is not None
        told = trace(workload.text, "sm_90a", workload.options, until="tile").remarks
    ((problem, parts),) = found
    seconds = next(remark.seconds for remark in told if remark.pass_name == "set-kernel-form" and remark.seconds is not None)
    merging = merge_seconds(parts.count, problem.results, problem.partial_bytes, spec) if parts.merge == "kernel" else 0
    assert seconds == pytest.approx(parts.seconds - merging, rel=0.05, abs=2e-6)


def test_few_parts_are_modelled_where_models_are_shared() -> None:
    """Steps of tiles cost the same whatever k is: sixteen lengths of one loop model them once."""
    problem, spec = product_of(24, 1000, 1 << 12, "sm_90a")
    assert split_contraction(problem, spec) is not None
    (model, *_) = role_costs(replace(problem, shape=replace(problem.shape, k=None)), spec).of(problem.shape)
    for each in role_costs(replace(problem, shape=replace(problem.shape, k=None)), spec).of(problem.shape):
        each.costs()
        for bound, _, _, form in each._bounded()[1]:
            least = min(map(each.cost, tiles_of(form, each.problem, spec)), default=inf) * (1 + SLACK)
            assert max(bound, each.at_least(form)) <= least
    steps = model.steps
    assert steps > 0
    assert split_contraction(replace(problem, shape=replace(problem.shape, k=1 << 13)), spec) is not None
    assert model.steps == steps


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_arrivals_that_nobody_measured_are_not_taken(target: str) -> None:
    for m, n, k in product((16, 100, 300), (64, 400), (6240, 70000)):
        found = split_contraction(*product_of(m, n, k, target))
        assert found is None or found.merge == "kernel"


def values(e: Expr, extents: dict[str, int], env: dict[str, int]) -> list[int]:
    return [e.evaluate(env | dict(zip(extents, place, strict=True))) for place in product(*(range(n) for n in extents.values()))]


@settings(max_examples=200)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 12), st.booleans())
def test_bounds_of_parts_hold_in_every_block(k: int, step: int, count: int, is_known: bool) -> None:
    """Balanced parts of a size that is known, or only at run time: where they begin, end, and how long they are."""
    p, size, parts = symbol("p0"), constant(k) if is_known else symbol("s0"), constant(count) if is_known else symbol("s1")
    steps = ceil_div(size, step)
    first, after = (p * steps) // parts * step, ((p + 1) * steps) // parts * step
    length = maximum(0, minimum(size - first, after - first))
    env = {} if is_known else {"s0": k, "s1": count}
    for value in (length, size - first - length, first):
        lower, upper = least(value, {"p0": parts}), greatest(value, {"p0": parts})
        found = values(value, {"p0": count}, env)
        assert lower is not None
        assert min(each.evaluate(env) for each in lower) <= min(found)
        if upper is not None:
            assert max(each.evaluate(env) for each in upper) >= max(found)
    assert sum(values(length, {"p0": count}, env)) == k
    assert in_whole_steps(length, size - first, step)
    assert step == 1 or not in_whole_steps(length + 1, size - first, step)


@given(st.integers(0, 100_000), st.integers(1, 600), st.integers(1, 300))
def test_blocks_divide_nothing_that_the_launch_can(size: int, step: int, least_size: int) -> None:
    """Parts of whole steps, as many as the size is worth: a block computes products and sums, least and greatest ones."""
    p, n = symbol("p0"), symbol("s0")
    steps = ceil_div(n, step)
    parts = maximum(1, minimum(steps, n // least_size))
    each = maximum(1, ceil_div(steps, parts))
    length = maximum(0, minimum(each * step, n - p * each * step))
    known: dict[Expr, Expr] = {}
    settled = of_the_launch(length, {"p0"}, known, lambda: f"h{len(known)}")
    assert "//" not in str(settled)
    assert settled.symbols() == {"p0", "s0", "h0"}
    env = {"s0": size}
    given_ones = {str(place): value.evaluate(env) for value, place in known.items()}
    for block in range(parts.evaluate(env)):
        assert settled.evaluate({"p0": block} | env | given_ones) == length.evaluate({"p0": block} | env)
    assert of_the_launch(each, {"p0"}, known, lambda: "h") == symbol("h0"), "what is the same in all blocks is computed once"


def test_gathered_images_wait_and_are_worth_larger_tiles() -> None:
    """What threads gather one element at a time takes longer than wide loads, and less of it in tiles that hold all columns."""
    spec = target_spec("sm_90a")
    types = contraction_types(spec, "bf16", "bf16", "f32", ("", ""), allow_tf32=False)
    shape = ContractionShape(1, 9660, 39, 2601)
    narrow, wide = Gathered((2, 2), 0), Gathered((16, 16), 0)
    problem = TileProblem(types, shape, spec, through_registers=True)
    assert best_tile(problem, 0, narrow).n == 64
    row, tile = spec.instruction(types.instruction), best_tile(problem, 0, None)
    times = [tile_seconds(tile, row, shape, 2, 0, spec, gathered=each) for each in (None, wide, narrow)]
    assert times == sorted(times) and times[2] > 2 * times[0]
