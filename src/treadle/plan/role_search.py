"""The tile of a role kernel that is modelled to take the fewest clocks, with few of them modelled. No IR.

Tiles of one form (`role_forms.py`) differ in rings, orders and clusters. What a form's tiles take at least is told twice: by a few
products for all of them, and hardly less than the model tells, for those of each kind apart (`role_bounds.py`).
"""

from collections.abc import Callable
from functools import lru_cache
from heapq import heapify, heappop, heappush
from math import inf
from operator import attrgetter
from typing import NamedTuple

from treadle.machine.spec import TargetSpec
from treadle.plan.mixed_widths import least_part, timed_columns
from treadle.plan.part_merges import PAIR, clustered_units
from treadle.plan.rasters import least_fetched_by_pairs
from treadle.plan.role_bounds import Extent, FormBounds
from treadle.plan.role_clocks import RoleModel, least_chain, promoting_clocks
from treadle.plan.role_clusters import ROUNDS_OF_QUADS, both_extents, in_cluster, may_cluster, most_tiles, shared_parts, shares_operands
from treadle.plan.role_forms import WIDTH_STEP, alike_forms, close_widths, has_many_steps
from treadle.plan.role_tiles import MANY_GROUPS, RoleProblem, RoleTile, ringed, tile_count, with_narrower
from treadle.plan.small_m import SLACK


def role_tile(problem: RoleProblem, spec: TargetSpec) -> RoleTile | None:
    """The candidate of least modelled cost, of equals the first; None where none fits."""
    return RoleSearch(problem, spec).best()


class _Column(NamedTuple):
    """A form of tiles of such rows, its columns, these by the time that they take, clocks of a step's matrix instructions, and of its
    consumers at least; what narrower tiles beside it take of its time at least.
    """

    tile: RoleTile
    n: int
    timed: float
    matrix: float
    chain: float
    least_part: float


class _Family(NamedTuple):
    """The forms with such groups of warps, the widest first. `may_defer`: results may leave later."""

    m: int
    groups: int
    in_turns: bool
    may_defer: bool
    columns: list[_Column]


_Steps = tuple[RoleTile, int, float, float, float, float, float, float, float, float, float]
"""What a form's tiles take at least, whatever the batch, k and the results are: tiles of one batch, clocks before the first step. Of a
step: its arithmetic, by which share of it more where all units work, that of it where tiles are narrower, and how many tiles there were
if the last of each row were cut to its columns, by their time, 0 where all have one width; what copies take for one unit, and for all, and
the same where clusters of more than two workgroups may be.
"""
_Form = tuple[bool, float, float, float, _Steps]
"""Whether its groups take turns, clocks beside steps, of these behind a unit's last step, and between tiles."""


@lru_cache(maxsize=16)
def _kept_steps(sides: tuple[object, ...], kind: tuple[object, ...], spec: TargetSpec) -> dict["_Key", _Steps]:
    """Where these are kept for all problems with such operands."""
    return {}


@lru_cache(maxsize=16)
def _kept_families(row: str, operand_bytes: int, roots: int, spec: TargetSpec) -> dict[tuple[object, ...], list[_Family]]:
    """Where forms are kept, by what else they depend on, for all problems with such instructions."""
    return {}


_Key = tuple[int, int, int, bool, bool]
"""Of a form: rows of an instruction's groups, how many groups, columns, whether they take turns, whether there may be clusters."""
_Bound = tuple[float, int, int, RoleTile]
"""Clocks at least, a form's number, which of its tiles (-1: any), the form."""
_ANY = -1


class RoleSearch(RoleModel):
    """The model of a problem's tiles, and which of them is the best."""

    __slots__ = ("_bounds", "_closes", "_families", "_held", "_key", "_known", "_lists", "_told", "at_once", "step")

    def __init__(self, problem: RoleProblem, spec: TargetSpec) -> None:
        super().__init__(problem, spec)
        self.step, self.at_once = spec.slot_row_bytes // problem.operand_bytes, clustered_units(PAIR * PAIR, spec)
        self._families = _kept_families(problem.row.name, problem.operand_bytes, problem.shape.root_count, spec)
        shape, row = problem.shape, problem.row.name
        kind = (row, problem.operand_bytes, shape.root_count, shape.m is None, shape.n is None, problem.promoted, problem.scaled)
        self._closes: dict[bool, frozenset[int]] = {}
        self._lists: dict[tuple[int, int, bool, bool], tuple[int, list[_Steps], list[_Form]]] = {}
        self._known = _kept_steps((*self.sides, self.common), kind, spec)
        self._told: dict[tuple[int, int, int, int], FormBounds] = {}
        self._key: tuple[bool, bool, bool, bool, bool, int, bool] | None = None
        self._held: dict[tuple[object, ...], tuple[list[_Form], float, float, float]] = {}
        self._bounds: dict[tuple[object, ...], tuple[float, list[_Bound]]] = {}

    def of(self, problem: RoleProblem) -> "RoleSearch":
        """The model of a problem that differs in k, in its batch if neither is one, or in what tiles it may have."""
        found = RoleSearch.__new__(RoleSearch)
        for name, value in zip(_SHARED, _SHARED_OF(self), strict=True):
            setattr(found, name, value)
        found.problem, found.k, found._costs, found._key = problem, problem.shape.extents[2], {}, None
        return found

    def best(self, admits: Callable[[RoleTile], bool] | None = None, enough: float = inf) -> RoleTile | None:
        """Of the tiles whose forms are admitted that of least clocks, of equals the first; None where there is none. Tiles that are sure to
        take more clocks than `enough` may be left out.

        Forms are looked at in the order of what they take at least, until that is more than the best tile takes.
        """
        found: RoleTile | None = None
        least, place, merges, rings = inf, (0, 0), self.problem.parts > 1, dict[int, RoleTile | None]()
        bounds = self._at_once() if self.problem.in_cluster else self._bounded()[1]
        left = [each for each in bounds if each[0] <= enough]
        heapify(left)
        while left:
            bound, number, which, form = heappop(left)
            limit = min(least * (1 + SLACK), enough)
            if bound > limit:
                break
            if which == _ANY:
                if not (admits is None or admits(form)) or (merges and bound + self.merging(form) > limit):
                    continue
                told = self._least_of(form, limit)
                for which, clocks in enumerate(told):
                    if clocks <= limit:
                        heappush(left, (clocks, number, which, form))
                if limit < inf:
                    continue
                # Any tile tells more of the others than none.
                which = told.index(min(told))
            if number not in rings:
                rings[number] = ringed(form, self.problem, self.spec)
            for tile in self._tiles(rings[number], which):
                clocks = self.cost(tile)
                if clocks < least or (clocks == least and (number, which) < place):
                    found, least, place = tile, clocks, (number, which)
        return found

    def _tiles(self, tile: RoleTile | None, which: int) -> tuple[RoleTile, ...]:
        """Those of `_least_of` of a form that has such a ring."""
        if tile is None or which == 0:
            return () if tile is None else (tile,)
        kinds = self._bounds_of(tile).kinds if may_cluster(self.problem) else ()
        if which > len(kinds):
            return with_narrower(tile, self.problem, self.spec)
        each = in_cluster(tile, *kinds[which - 1], self.problem, self.spec)
        return (each,) if tile_count(each, self.problem.shape) <= most_tiles(each, self.spec) else ()

    def at_least(self, form: RoleTile) -> float:
        """Clocks that a form's tiles take at least."""
        return min(self._least_of(form, inf))

    def floor(self, batch: int, k: int) -> float:
        """Clocks that any tile takes at least of the same problem with such a batch and k: less than `least`, and told by three numbers."""
        _, ends, busy, shared = self._held_forms()
        return ends + k * max(busy, batch / self.units * shared)

    def least(self) -> float:
        """Clocks that any tile takes at least; infinitely many where no form fits the registers."""
        return self._bounded()[0]

    def _bounded(self) -> tuple[float, list[_Bound]]:
        """The forms that registers allow with what they take at least and their numbers: the first copies, in each round steps of matrix
        instructions or of copies, and results that leave. Before them the least of all.
        """
        problem, units, start, at_once = self.problem, self.units, self.rates.start_clocks, self.at_once
        batch, in_turn = problem.shape.batch or 1, problem.takes_turns
        key = (self._holding(), batch, self.k, in_turn)
        if (found := self._bounds.get(key)) is not None:
            return found
        steps, bounds, may_be_narrower = -(-self.k // self.step), list[_Bound](), batch == 1 and problem.may_be_deferred
        for number, (needs_turns, around, ends, between, form) in enumerate(self._held_forms()[0]):
            tile, tiles, _, arithmetic, power, narrower, cut, copies, cache, few_copies, few_cache = form
            tiles *= batch
            share = 1.0
            if tiles <= ROUNDS_OF_QUADS * at_once:
                copies, cache, share = few_copies, few_cache, at_once / units
            # Comparisons take half of what `max` does, and there are hundreds of forms.
            if tiles <= units:
                if not needs_turns:
                    cache *= (left := tiles / units)
                    arithmetic *= 1 + power * left
                    arithmetic = arithmetic if arithmetic > copies else copies
                    bounds.append((around + steps * (arithmetic if arithmetic > cache else cache), number, _ANY, tile))
                continue
            if needs_turns and not in_turn:
                continue
            full = (tiles - 1) // units
            left, last = tiles / units - full, arithmetic
            if cut and may_be_narrower:
                # No tile has more columns than the form's, nor fewer than narrow ones: of what all others have the last one is a part.
                last *= narrower
                arithmetic *= max(narrower, (cut / units - 1) / full)
            last, shared = last * (1 + power * left), cache * left
            last = last if last > copies else copies
            last = around + steps * (last if last > shared else shared)
            arithmetic, moving = steps * arithmetic * (1 + power * share), steps * max(copies, cache * share)
            if in_turn:
                arithmetic += between
                last += full * (arithmetic if arithmetic > moving else moving)
            else:
                last += full * ((arithmetic if arithmetic > moving else moving) + ends + start)
            bounds.append((last, number, _ANY, tile))
        # No two have the same number, so that forms are not compared.
        found = self._bounds[key] = min(bounds)[0] if bounds else inf, bounds
        return found

    def _holding(self) -> tuple[bool, bool, bool, bool, bool, int, bool]:
        """What of the problem its forms, and what they take at least, depend on; the rest is alike in all that share models."""
        if self._key is None:
            asked = self.problem
            kind = asked.is_plain and asked.parts == 1, shares_operands(asked), asked.is_crowded, asked.is_light and asked.parts == 1
            self._key = (*kind, asked.promoted, asked.n_step, has_many_steps(asked, self.spec))
        return self._key

    def _held_forms(self) -> tuple[list[_Form], float, float, float]:
        """The forms that registers allow. The least of what they take beside steps, and, for each k, of what a unit is busy, and of what
        all are with a batch.
        """
        key = self._holding()
        if (found := self._held.get(key)) is None:
            problem = self.problem
            kind = (*key, any(problem.piece_bytes), None if problem.shape.m is None else problem.shape.m > 2 * problem.row.m)
            if (families := self._families.get(kind)) is None:
                families = self._families[kind] = self._found_families()
            forms, columns = list[_Form](), dict[int, Extent]()
            around, busy, shared, share = inf, inf, inf, self.at_once / self.units if key[1] else 1.0
            for family in families:
                steps, of_family = self._of_family(family, columns, clusters=key[1])
                forms += of_family
                for _, tiles, _, arithmetic, _, narrower, _, _, _, copies, cache in steps:
                    arithmetic, cache = arithmetic * narrower, cache * share
                    own = arithmetic if arithmetic > copies else copies
                    all_units = tiles * (own if own > cache else cache)
                    busy = own if own < busy else busy
                    shared = all_units if all_units < shared else shared
            around = min([each[1] for each in forms], default=inf)
            found = self._held[key] = forms, around, busy / self.step, shared / self.step
        return found

    def _at_once(self) -> list[_Bound]:
        """Of the forms of parts that clusters merge those whose tiles all begin at once, if there are any."""
        problem, forms, held = self.problem, self._bounded()[1], self._held_forms()[0]
        most = clustered_units(problem.parts, self.spec) // (problem.shape.batch or 1)
        few = [each for each in forms if held[each[1]][-1][1] <= most]
        return few if any(ringed(form, problem, self.spec) is not None for _, _, _, form in few) else forms

    def _least_of(self, form: RoleTile, enough: float) -> list[float]:
        """Clocks that a form's tiles take at least: those alone, those in clusters of each kind, those with narrower ones beside; less than
        could be told where they are more than `enough`.
        """
        problem, bounds = self.problem, self._bounds_of(form)
        first = bounds.first + (self.merging(form) if problem.parts > 1 else 0)
        return [first + clocks for clocks in bounds.told(self, self.at_once if may_cluster(problem) else 0, enough - first)]

    def _bounds_of(self, form: RoleTile) -> FormBounds:
        key = (form.rows, form.m, form.n, form.ping_pong)
        if (found := self._told.get(key)) is None:
            clusters = self._holding()[1]
            of_m, of_n = self._extent(0, form.rows, form.m, clusters=clusters), self._extent(1, form.n, form.n, clusters=clusters)
            found = self._told[key] = FormBounds(self, form, of_m, of_n)
        return found

    def _found_families(self) -> list[_Family]:
        found: dict[tuple[int, int, bool], _Family] = {}
        for form in alike_forms(self.problem, self.spec):
            m, groups, in_turns = kind = (form.m, form.consumer_warpgroups, form.ping_pong > 1)
            may_defer = not in_turns and m <= self.problem.row.m and 1 < groups < MANY_GROUPS
            family = found.setdefault(kind, _Family(m, groups, in_turns, may_defer, []))
            matrix = self.matrix(form)
            chain, part = least_chain(form, matrix, self.rates), least_part(form.n, self.rates)
            family.columns.append(_Column(form, form.n, timed_columns(form.n, self.rates), matrix, chain, part))
        return list(found.values())

    def _of_family(self, family: _Family, columns: dict[int, Extent], *, clusters: bool) -> tuple[list[_Steps], list[_Form]]:
        """A family's steps and forms; of one whose forms have fewer columns at most, those of them that it has, too."""
        key, most = (family.m, family.groups, family.in_turns, self._holding()[-1]), family.columns[0].n
        if (known := self._lists.get(key)) is None or known[0] < most:
            steps = self._steps(family, columns, clusters=clusters)
            known = self._lists[key] = most, steps, self._forms(family, steps)
        if known[0] == most:
            return known[1], known[2]
        return [each for each in known[1] if each[0].n <= most], [each for each in known[2] if each[-1][0].n <= most]

    def _forms(self, family: _Family, steps: list[_Steps]) -> list[_Form]:
        """A family's forms with such steps, and what they take beside these."""
        rates, out, found, groups = self.rates, dict[int, float](), list[_Form](), family.groups
        each, overhead, in_turns = self.reading, rates.tile_overhead, family.in_turns
        rows, may_defer = family.m * groups, family.may_defer and self.problem.may_be_deferred and not self.problem.promoted
        for form in steps:
            n = form[0].n
            if (leaving := out.get(n & -n)) is None:
                leaving = out[n & -n] = self.leaving(form[0])
            leaving *= rows * n
            ends = between = overhead + leaving + rows * n * each
            if in_turns:
                between = rates.ping_pong_overhead + rates.ping_pong_share * leaving
            elif may_defer:
                between = min(between, rates.deferred_overhead + rows * n * each)
            found.append((in_turns, form[2] + ends, ends, between, form))
        return found

    def _steps(self, family: _Family, columns: dict[int, Extent], *, clusters: bool) -> list[_Steps]:
        """What steps of a family's forms take at least. `columns`: extents along n, which families have in common. `clusters`: of which
        they may be.
        """
        rates, problem, units, (m, groups, in_turns, may_defer, widths) = self.rates, self.problem, self.units, family
        of_m, fill = self._extent(0, m * groups, m, clusters=clusters), self.step * problem.operand_bytes * rates.fill_clocks
        own, own_and_all, known = rates.own_share, rates.own_share + rates.apart_share + 1, self._known
        if (close := self._closes.get(self._holding()[-1])) is None:
            close = self._closes[self._holding()[-1]] = close_widths(self.problem, self.spec)
        promoting, shape = promoting_clocks(widths[0].tile, self), problem.shape
        may_be_narrower = may_defer and shape.m and shape.root_count == 1 and not (shape.groups_m or shape.groups_n or problem.promoted)
        _, tiles_m, read_m, (engine_m, cache_m, _, threads_m), beyond_m, *_ = of_m
        engine_m += rates.stage_clocks
        meets, found, size = self.meets, list[_Steps](), (shape.n or 0) if may_be_narrower else 0
        # There are hundreds of forms: calls and comparisons by `max` would take longer than all else.
        for tile, n, timed, matrix, chain, part in widths:
            if n % WIDTH_STEP and n not in close:
                continue
            key = (m, groups, n, in_turns, clusters)
            if (form := known.get(key)) is not None:
                found.append(form)
                continue
            if (of_n := columns.get(n)) is None:
                of_n = columns[n] = self._extent(1, n, n, clusters=clusters)
            _, tiles_n, read_n, (engine_n, cache_n, _, threads_n), beyond_n, *_ = of_n
            engine, most, threads = engine_m + engine_n, cache_m + cache_n, threads_m + threads_n
            cache = most
            if meets:
                most, cache = most * own_and_all, most * (own + least_fetched_by_pairs(read_m, read_n))
            slowest = most + (beyond_m + beyond_n) * units
            slowest = engine if engine > slowest else slowest
            slowest = threads if threads > slowest else slowest
            few, few_cache = engine, cache
            if clusters:
                engine, cache, few, few_cache, most = self._shared(of_m, of_n, engine, cache)
                slowest = most if most > slowest else slowest
            power = rates.power_factor * matrix / (matrix if matrix > slowest else slowest)
            copies, few = engine if engine > threads else threads, few if few > threads else threads
            cut = tiles_m * size / timed
            sums = (power, part if size else 1.0, cut, copies, cache, few, few_cache)
            form = known[key] = (tile, tiles_m * tiles_n, fill * (read_m + read_n), chain + promoting, *sums)
            found.append(form)
        return found

    def _shared(self, of_m: Extent, of_n: Extent, engine: float, cache: float) -> tuple[float, float, float, float, float]:
        """What the engine and the cache take at least where pairs may share, the same where larger clusters may, too; the most of the
        engine.
        """
        _, tiles_m, _, (engine_m, cache_m, _, _), _, parts_m, both_m, next_m = of_m
        _, tiles_n, _, (engine_n, cache_n, _, _), _, parts_n, both_n, next_n = of_n
        stage, most, few, few_cache = self.rates.stage_clocks, engine, engine, cache
        count = parts_m if parts_m < next_n else next_n
        if count > 1:
            other = engine_n + stage + self.rates.together_clocks
            most = max(most, other + engine_m)
            engine, cache = min(engine, other + engine_m / PAIR), min(cache, cache_m / PAIR + cache_n)
            few, few_cache = min(few, other + engine_m / count), min(few_cache, cache_m / count + cache_n)
        count = parts_n if parts_n < next_m else next_m
        if count > 1:
            other = engine_m + stage + self.rates.together_clocks
            most = max(most, other + engine_n)
            engine, cache = min(engine, other + engine_n / PAIR), min(cache, cache_n / PAIR + cache_m)
            few, few_cache = min(few, other + engine_n / count), min(few_cache, cache_n / count + cache_m)
        if tiles_m * tiles_n <= self.at_once:
            for along_m, along_n in both_extents(both_m, both_n, next_m, next_n):
                both = stage + self.meeting(along_m, along_n)
                most = max(most, both + engine_m + engine_n)
                both += engine_m / along_n + engine_n / along_m
                few, few_cache = min(few, both), min(few_cache, cache_m / along_n + cache_n / along_m)
        return engine, cache, few, few_cache, most

    def _extent(self, which: int, extent: int, part: int, *, clusters: bool) -> Extent:
        """That of tiles along m (0) or n (1), in groups of `part` rows or columns."""
        shape, side, kept = self.problem.shape, self.sides[which], self.kept[which].extents
        size = shape.n if which else shape.m
        # What only the runtime knows counts as some size, and has no clusters.
        key = (extent, part, clusters and size is not None)
        if (found := kept.get(key)) is None:
            tiles = shape.tiles_along_n(extent) if which else shape.tiles_along_m(extent)
            copies, parts, both, neighbours = self.side_copies(which, extent, self.step, 1, extent, 1), 1, 1, 1
            beyond = copies.beyond
            if clusters and size is not None:
                parts, both, neighbours = shared_parts(which, part, size, extent, self.problem)
                if not (side.overlaps and size >= extent):
                    beyond = max(beyond, side.tiles * 2 * PAIR * extent * extent / side.extent * self.rates.beyond_clocks)
            found = kept[key] = Extent(extent, tiles, extent * side.tiles, copies, beyond, parts, both, neighbours)
        return found


_SHARED = (*RoleModel.__slots__, *RoleSearch.__slots__)
"""What models have in common whose problems differ in k, in batches or in what tiles they may have (see `RoleSearch.of`)."""
_SHARED_OF = attrgetter(*_SHARED)
