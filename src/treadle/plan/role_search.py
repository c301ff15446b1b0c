"""The tile of a role kernel that is modelled to take the fewest clocks, with few of them modelled. No IR.

Tiles of one form (`role_forms.py`) differ in rings, orders and clusters. What a form's tiles take at least is told twice: by a few
products for all of them, and hardly less than the model tells, for those of each kind apart (`role_bounds.py`).
"""

from collections.abc import Callable
from functools import lru_cache
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from treadle.machine.spec import TargetSpec
from treadle.plan.mixed_widths import least_part
from treadle.plan.part_merges import PAIR, clustered_units
from treadle.plan.rasters import least_fetched_by_pairs
from treadle.plan.role_bounds import Extent, FormBounds, cut_tiles
from treadle.plan.role_clocks import RoleModel, least_chain, promoting_clocks
from treadle.plan.role_clusters import both_extents, both_parts, in_cluster, may_cluster, most_neighbours, most_parts
from treadle.plan.role_forms import WIDTH_STEP, alike_forms, close_widths
from treadle.plan.role_tiles import MANY_GROUPS, RoleProblem, RoleTile, ringed, tile_count, with_narrower
from treadle.plan.small_m import SLACK


def role_tile(problem: RoleProblem, spec: TargetSpec) -> RoleTile | None:
    """The candidate of least modelled cost, of equals the first; None where none fits."""
    return RoleSearch(problem, spec).best()


class _Column(NamedTuple):
    """A form of tiles of such rows, its columns, elements, clocks of a step's matrix instructions, and of its consumers at least; what
    narrower tiles beside it take of its time at least.
    """

    tile: RoleTile
    n: int
    elements: int
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


_Form = tuple[RoleTile, bool, int, float, float, float, float, float, float, float, float, float, float, float]
"""What a form's tiles take at least, whatever the batch and k are: whether groups take turns, tiles of one batch, clocks beside steps, of
these behind a unit's last step, and between tiles. Of a step: its arithmetic, by which share of it more where all units work, that of
it where tiles are narrower, and how many tiles there are then (`cut_tiles`); what copies take for one unit, and for all, and the same
where clusters of more than two workgroups may be.
"""


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

    __slots__ = ("_bounds", "_close", "_families", "_held", "_key", "_known", "_told", "at_once", "step")

    def __init__(self, problem: RoleProblem, spec: TargetSpec) -> None:
        super().__init__(problem, spec)
        self.step, self.at_once = spec.slot_row_bytes // problem.operand_bytes, clustered_units(PAIR * PAIR, spec)
        self._families = _kept_families(problem.row.name, problem.operand_bytes, problem.shape.root_count, spec)
        self._close = close_widths(problem, spec)
        self._known: dict[_Key, _Form] = {}
        self._told: dict[tuple[int, int, int, int], FormBounds] = {}
        self._key: tuple[bool, bool, bool, bool, int] | None = None
        self._held: dict[tuple[object, ...], tuple[list[_Form], float, float, float]] = {}
        self._bounds: dict[tuple[object, ...], tuple[float, list[_Bound]]] = {}

    def of(self, problem: RoleProblem) -> "RoleSearch":
        """The model of a problem that differs in its batch, in k, or in what tiles it may have."""
        found = RoleSearch.__new__(RoleSearch)
        for name in _SHARED:
            setattr(found, name, getattr(self, name))
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
                if (admits is None or admits(form)) and (not merges or bound + self.merging(form) <= limit):
                    for which, clocks in enumerate(self._least_of(form)):
                        if clocks <= limit:
                            heappush(left, (clocks, number, which, form))
                continue
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
        if which > len(kinds := self._bounds_of(tile).kinds):
            return with_narrower(tile, self.problem, self.spec)
        each = in_cluster(tile, *kinds[which - 1], self.problem, self.spec)
        return (each,) if each.cluster == PAIR or tile_count(each, self.problem.shape) <= self.at_once else ()

    def at_least(self, form: RoleTile) -> float:
        """Clocks that a form's tiles take at least."""
        return min(self._least_of(form))

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
        steps, bounds = -(-self.k // self.step), list[_Bound]()
        for number, form in enumerate(self._held_forms()[0]):
            tile, needs_turns, tiles, around, ends, between, arithmetic, power, narrower, cut, copies, cache, few_copies, few_cache = form
            tiles *= batch
            full = (tiles - 1) // units
            if needs_turns and not (full and in_turn):
                continue
            if tiles <= at_once:
                copies, cache = few_copies, few_cache
            left, last = tiles / units - full, arithmetic
            if cut and full and batch == 1:
                # No tile has more columns than the form's, nor fewer than narrow ones: of what all others have the last one is a part.
                last *= narrower
                arithmetic *= max(narrower, (cut / units - 1) / full)
            # Comparisons take half of what `max` does, and there are hundreds of forms.
            last, shared = last * (1 + power * left), cache * left
            last = last if last > copies else copies
            last = around + steps * (last if last > shared else shared)
            if full:
                arithmetic, moving = steps * arithmetic * (1 + power), steps * (copies if copies > cache else cache)
                if in_turn:
                    arithmetic += between
                    last += full * (arithmetic if arithmetic > moving else moving)
                else:
                    last += full * ((arithmetic if arithmetic > moving else moving) + ends + start)
            bounds.append((last, number, _ANY, tile))
        # No two have the same number, so that forms are not compared.
        found = self._bounds[key] = min(bounds)[0] if bounds else inf, bounds
        return found

    def _holding(self) -> tuple[bool, bool, bool, bool, int]:
        """What of the problem its forms, and what they take at least, depend on; the rest is alike in all that share models."""
        if self._key is None:
            asked = self.problem
            self._key = asked.is_plain and asked.parts == 1, may_cluster(asked), asked.is_crowded, asked.promoted, asked.n_step
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
            for family in families:
                forms += self._forms(family, self._known, columns, clusters=key[1])
            around, busy, shared = inf, inf, inf
            for _, _, tiles, of_form, _, _, arithmetic, _, narrower, _, _, _, copies, cache in forms:
                arithmetic *= narrower
                own = arithmetic if arithmetic > copies else copies
                all_units = tiles * (own if own > cache else cache)
                around = of_form if of_form < around else around
                busy = own if own < busy else busy
                shared = all_units if all_units < shared else shared
            found = self._held[key] = forms, around, busy / self.step, shared / self.step
        return found

    def _at_once(self) -> list[_Bound]:
        """Of the forms of parts that clusters merge those whose tiles all begin at once, if there are any."""
        problem, shape, forms = self.problem, self.problem.shape, self._bounded()[1]
        most = clustered_units(problem.parts, self.spec)
        few = [each for each in forms if shape.tiles(each[3].rows, each[3].n) <= most]
        return few if any(ringed(form, problem, self.spec) is not None for _, _, _, form in few) else forms

    def _least_of(self, form: RoleTile) -> list[float]:
        """Clocks that a form's tiles take at least: those alone, those in clusters of each kind, those with narrower ones beside."""
        problem, bounds = self.problem, self._bounds_of(form)
        first = bounds.first + (self.merging(form) if problem.parts > 1 else 0)
        together = self.at_once if self._holding()[1] else 0
        return [first + clocks for clocks in bounds.told(problem.shape.batch or 1, self.k, problem.takes_turns, together)]

    def _bounds_of(self, form: RoleTile) -> FormBounds:
        clusters = self._holding()[1]
        key = (form.rows, form.m, form.n, form.ping_pong)
        if (found := self._told.get(key)) is None or (clusters and not found.tells_of_clusters):
            of_m, of_n = self._extent(0, form.rows, form.m, clusters=clusters), self._extent(1, form.n, form.n, clusters=clusters)
            found = self._told[key] = found or FormBounds(self, form, of_m, of_n)
            if clusters:
                found.tell_of_clusters(self, of_m, of_n)
        return found

    def _found_families(self) -> list[_Family]:
        found: dict[tuple[int, int, bool], _Family] = {}
        for form in alike_forms(self.problem, self.spec):
            m, groups, in_turns = kind = (form.m, form.consumer_warpgroups, form.ping_pong > 1)
            may_defer = not in_turns and m <= self.problem.row.m and 1 < groups < MANY_GROUPS
            family = found.setdefault(kind, _Family(m, groups, in_turns, may_defer, []))
            matrix = self.matrix(form)
            chain, part = least_chain(form, matrix, self.rates), least_part(form.n, self.rates)
            family.columns.append(_Column(form, form.n, form.rows * form.n, matrix, chain, part))
        return list(found.values())

    def _forms(self, family: _Family, known: dict[_Key, _Form], columns: dict[int, Extent], *, clusters: bool) -> list[_Form]:
        """What a family's forms take at least. `known`: of those that were asked for before. `columns`: extents along n, which families
        have in common. `clusters`: of which they may be.
        """
        rates, problem, units, (m, groups, in_turns, may_defer, widths) = self.rates, self.problem, self.units, family
        of_m, fill = self._extent(0, m * groups, m, clusters=clusters), self.step * problem.operand_bytes * rates.fill_clocks
        own, overhead, each, own_and_all = rates.own_share, rates.tile_overhead, self.heavy / groups + self.reading, rates.own_share + 1
        promoting = promoting_clocks(widths[0].tile, self)
        may_defer = may_defer and problem.may_be_deferred and not problem.promoted
        _, tiles_m, read_m, (engine_m, cache_m, _, threads_m), beyond_m, *_ = of_m
        engine_m += rates.stage_clocks
        meets, out, found = self.meets, dict[int, float](), list[_Form]()
        # There are hundreds of forms: calls and comparisons by `max` would take longer than all else.
        for tile, n, elements, matrix, chain, part in widths:
            if n % WIDTH_STEP and n not in self._close:
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
            if (leaving := out.get(n & -n)) is None:
                leaving = out[n & -n] = self.leaving(tile)
            leaving *= elements
            ends = between = overhead + leaving + elements * each
            if in_turns:
                between = rates.ping_pong_overhead + rates.ping_pong_share * leaving
            elif may_defer:
                between = min(between, rates.deferred_overhead + elements * each)
            power = rates.power_factor * matrix / (matrix if matrix > slowest else slowest)
            copies = engine if engine > threads else threads
            few = few if few > threads else threads
            cut = cut_tiles(tiles_m, tile, self) if may_defer else 0.0
            sums = (chain + promoting, power, part if cut else 1.0, cut, copies, cache, few, few_cache)
            form = known[key] = (tile, in_turns, tiles_m * tiles_n, fill * (read_m + read_n) + ends, ends, between, *sums)
            found.append(form)
        return found

    def _shared(self, of_m: Extent, of_n: Extent, engine: float, cache: float) -> tuple[float, float, float, float, float]:
        """What the engine and the cache take at least where pairs may share, the same where larger clusters may, too; the most of the
        engine.
        """
        _, tiles_m, _, (engine_m, cache_m, _, _), _, parts_m, both_m, next_m = of_m
        _, tiles_n, _, (engine_n, cache_n, _, _), _, parts_n, both_n, next_n = of_n
        most, few, few_cache = engine, engine, cache
        together = self.rates.stage_clocks + self.rates.together_clocks
        for count, own, own_cache, other, other_cache in (
            (parts_m if parts_m < next_n else next_n, engine_m, cache_m, engine_n + together, cache_n),
            (parts_n if parts_n < next_m else next_m, engine_n, cache_n, engine_m + together, cache_m),
        ):
            if count > 1:
                pair = other + own / PAIR
                most = pair if pair > most else most
                engine, cache = min(engine, pair), min(cache, own_cache / PAIR + other_cache)
                few, few_cache = min(few, other + own / count), min(few_cache, own_cache / count + other_cache)
        if tiles_m * tiles_n <= self.at_once:
            for along_m, along_n in both_extents(both_m, both_n, next_m, next_n):
                both = self.rates.stage_clocks + self.meeting(along_m, along_n) + engine_m / along_n + engine_n / along_m
                most = both if both > most else most
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
                parts, both = (most(which, part, self.problem, self.spec) for most in (most_parts, both_parts))
                neighbours = most_neighbours(size, extent)
                beyond = max(beyond, side.tiles * 2 * PAIR * extent * extent / side.extent * self.rates.beyond_clocks)
            found = kept[key] = Extent(extent, tiles, extent * side.tiles, copies, beyond, parts, both, neighbours)
        return found


_SHARED = (*RoleModel.__slots__, *RoleSearch.__slots__)
"""What models have in common whose problems differ in their batches, in k, or in what tiles they may have (see `RoleSearch.of`)."""
