"""The tile of a role kernel that is modelled to take the fewest clocks, with few of them modelled. No IR.

Tiles of one form (`role_forms.py`) differ in rings, orders and clusters. What a form's tiles take at least is told twice: by a few
products, and by the model of a tile that takes the least of everything (`LeastModel`), which is hardly less than what the best of them
takes.
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
from treadle.plan.role_clocks import Copies, LeastModel, RoleModel, joined, least_chain, promoting_clocks
from treadle.plan.role_forms import WIDTH_STEP, alike_forms, close_widths
from treadle.plan.role_tiles import (
    MANY_GROUPS,
    RoleProblem,
    RoleTile,
    both_extents,
    both_parts,
    may_cluster,
    most_neighbours,
    most_parts,
    tiles_of,
)
from treadle.plan.small_m import SLACK


def role_tile(problem: RoleProblem, spec: TargetSpec) -> RoleTile | None:
    """The candidate of least modelled cost, of equals the first; None where none fits."""
    return RoleSearch(problem, spec).best()


class _Extent(NamedTuple):
    """Of tiles' extent along m or n: how many tiles follow one another, rows of k that they read, clocks of a step's copies of these, and
    for each unit at work at most of those beyond the array's end. Of a cluster, how many workgroups may fetch a part of the rows each, of
    one that fetches both operands once too, and how many neighbours may share what they copy of the other operand.
    """

    extent: int
    tiles: int
    read: int
    copies: Copies
    beyond: float
    parts: int
    both: int
    neighbours: int


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


_Form = tuple[RoleTile, bool, int, float, float, float, float, float, float, float, float]
"""What a form's tiles take at least, whatever the batch and k are: whether groups take turns, tiles of one batch, clocks beside steps, of
these behind a unit's last step, and between tiles. Of a step: its arithmetic, by which share of it more where all units work, and that of
it where tiles are narrower; what copies take for one unit, and for all.
"""


@lru_cache(maxsize=16)
def _kept_families(row: str, operand_bytes: int, roots: int, spec: TargetSpec) -> dict[tuple[object, ...], list[_Family]]:
    """Where forms are kept, by what else they depend on, for all problems with such instructions."""
    return {}


_Key = tuple[int, int, int, bool, bool]
"""Of a form: rows of an instruction's groups, how many groups, columns, whether they take turns, whether there may be clusters."""
_Bound = tuple[float, int, RoleTile, tuple[float, ...]]
"""Clocks at least, a form's number, the form; what models tell of its tiles alone and in clusters, nothing where they were not asked."""


class RoleSearch(RoleModel):
    """The model of a problem's tiles, and which of them is the best."""

    __slots__ = ("_bounds", "_close", "_families", "_held", "_key", "_known", "_models", "_told", "at_once", "step")

    def __init__(self, problem: RoleProblem, spec: TargetSpec) -> None:
        super().__init__(problem, spec)
        self.step, self.at_once = spec.slot_row_bytes // problem.operand_bytes, clustered_units(PAIR * PAIR, spec)
        self._families = _kept_families(problem.row.name, problem.operand_bytes, problem.shape.root_count, spec)
        self._close = close_widths(problem, spec)
        self._known: dict[_Key, _Form] = {}
        self._models: dict[tuple[int, int, int, int, bool], tuple[float, list[LeastModel]]] = {}
        self._told: dict[tuple[object, ...], tuple[float, list[float]]] = {}
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
        least, place, merges = inf, 0, self.problem.parts > 1
        bounds = self._at_once() if self.problem.in_cluster else self._bounded()[1]
        left = [each for each in bounds if each[0] <= enough]
        heapify(left)
        while left:
            bound, number, form, told = heappop(left)
            limit = min(least * (1 + SLACK), enough)
            if bound > limit:
                break
            if not told:
                if (admits is None or admits(form)) and (not merges or bound + self.merging(form) <= limit):
                    told = self._least_of(form)
                    heappush(left, (min(told), number, form, told))
                continue
            for tile in tiles_of(form, self.problem, self.spec):
                if told[-1 if tile.cluster > 1 else 0] > least * (1 + SLACK):
                    continue
                clocks = self.cost(tile)
                if clocks < least or (clocks == least and number < place):
                    found, least, place = tile, clocks, number
        return found

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
        instructions or of copies, and results that leave. Before them the least of all; behind each that models may tell more.
        """
        problem, units, start = self.problem, self.units, self.rates.start_clocks
        batch, in_turn = problem.shape.batch or 1, problem.takes_turns
        key = (self._holding(), batch, self.k, in_turn)
        if (found := self._bounds.get(key)) is not None:
            return found
        steps, bounds = -(-self.k // self.step), list[_Bound]()
        for number, form in enumerate(self._held_forms()[0]):
            tile, needs_turns, tiles, around, ends, between, arithmetic, power, narrower, copies, cache = form
            tiles *= batch
            full = (tiles - 1) // units
            if needs_turns and not (full and in_turn):
                continue
            left = tiles / units - full
            if full and batch == 1:
                arithmetic *= narrower
            # Comparisons take half of what `max` does, and there are hundreds of forms.
            last, shared = arithmetic * (1 + power * left), cache * left
            last = last if last > copies else copies
            last = around + steps * (last if last > shared else shared)
            if full:
                arithmetic, moving = steps * arithmetic * (1 + power), steps * (copies if copies > cache else cache)
                if in_turn:
                    arithmetic += between
                    last += full * (arithmetic if arithmetic > moving else moving)
                else:
                    last += full * ((arithmetic if arithmetic > moving else moving) + ends + start)
            bounds.append((last, number, tile, ()))
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
            forms, columns = list[_Form](), dict[int, _Extent]()
            for family in families:
                forms += self._forms(family, self._known, columns, clusters=key[1])
            around, busy, shared = inf, inf, inf
            for _, _, tiles, of_form, _, _, arithmetic, _, narrower, copies, cache in forms:
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
        few = [each for each in forms if shape.tiles(each[2].rows, each[2].n) <= most]
        return few if any(tiles_of(form, problem, self.spec) for _, _, form, _ in few) else forms

    def _least_of(self, form: RoleTile) -> tuple[float, ...]:
        """The same of a form by the models of tiles that take the least of everything: of those alone, and of those in clusters if any."""
        first, told = self._told_of(form)
        first += self.merging(form) if self.problem.parts > 1 else 0
        return tuple([first + clocks for clocks in told])

    def _told_of(self, form: RoleTile) -> tuple[float, list[float]]:
        """Clocks before a form's first step, and those of its tiles from there on but for merging their parts, which several may do."""
        problem, units, steps = self.problem, self.units, -(-self.k // self.step)
        key = (form.rows, form.m, form.n, form.ping_pong, problem.shape.batch, self.k, problem.takes_turns, self._holding()[1])
        if (known := self._told.get(key)) is not None:
            return known
        tiles, told = problem.shape.tiles(form.rows, form.n), list[float]()
        full = -(-tiles // units) - 1
        first, models = self._models_of(form)
        for model in models:
            is_narrower = model.may_defer and full and problem.shape.batch == 1
            part = least_part(form.n, self.rates) if is_narrower else 1.0
            found = model.more + model.last(steps, tiles - full * units, part)
            if full and problem.takes_turns:
                found += full * model.turn(steps, units, part)
            elif full:
                found += full * (model.last(steps, units) + self.rates.start_clocks)
            told.append(found)
        known = self._told[key] = first, told
        return known

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

    def _forms(self, family: _Family, known: dict[_Key, _Form], columns: dict[int, _Extent], *, clusters: bool) -> list[_Form]:
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
            if clusters:
                engine, cache, slowest = self._least_shared(of_m, of_n, engine, cache, slowest)
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
            narrower = part if may_defer else 1.0
            sums = (fill * (read_m + read_n) + ends, ends, between, chain + promoting, power, narrower, copies, cache)
            form = known[key] = (tile, in_turns, tiles_m * tiles_n, *sums)
            found.append(form)
        return found

    def _least_shared(self, of_m: _Extent, of_n: _Extent, engine: float, cache: float, slowest: float) -> tuple[float, float, float]:
        """The least that the engine and the cache take where clusters may share, and the most that either does."""
        for one, other in ((of_m, of_n), (of_n, of_m)):
            if (count := min(one.parts, other.neighbours)) > 1:
                together = self.rates.stage_clocks + self.rates.together_clocks + other.copies.engine
                slowest = max(slowest, together + one.copies.engine / PAIR)
                engine = min(engine, together + one.copies.engine / count)
                cache = min(cache, one.copies.cache / count + other.copies.cache)
        for along_m, along_n in self._both_extents(of_m, of_n):
            together = self.rates.stage_clocks + self.meeting(along_m, along_n)
            both = together + of_m.copies.engine / along_n + of_n.copies.engine / along_m
            slowest, engine = max(slowest, both), min(engine, both)
            cache = min(cache, of_m.copies.cache / along_n + of_n.copies.cache / along_m)
        return engine, cache, slowest

    def _both_extents(self, of_m: _Extent, of_n: _Extent) -> tuple[tuple[int, int], ...]:
        """Those of clusters that may fetch both operands of such tiles once: all begin at once."""
        if of_m.tiles * of_n.tiles > self.at_once:
            return ()
        return both_extents(of_m.both, of_n.both, of_m.neighbours, of_n.neighbours)

    def _extent(self, which: int, extent: int, part: int, *, clusters: bool) -> _Extent:
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
            found = kept[key] = _Extent(extent, tiles, extent * side.tiles, copies, beyond, parts, both, neighbours)
        return found

    def _models_of(self, form: RoleTile) -> tuple[float, list[LeastModel]]:
        """Clocks before a form's first step. Models of tiles that take the least of everything: of those alone, behind them of those in
        clusters, where there are such.
        """
        clusters = self._holding()[1]
        key = (form.rows, form.m, form.n, form.ping_pong, clusters)
        if (found := self._models.get(key)) is not None:
            return found
        rates, of_m = self.rates, self._extent(0, form.rows, form.m, clusters=clusters)
        of_n = self._extent(1, form.n, form.n, clusters=clusters)
        low = high = joined(of_m.copies, of_n.copies, rates.stage_clocks)
        if self.meets:
            engine, cache, beyond, threads = low
            low = Copies(engine, cache * (rates.own_share + least_fetched_by_pairs(of_m.read, of_n.read)), beyond, threads)
            high = Copies(engine, cache * (rates.own_share + 1), beyond, threads)
        models, shared = [LeastModel(self, form, low, high, clusters=False)], list[Copies]()
        for which, (one, other) in enumerate(((of_m, of_n), (of_n, of_m))):
            for count in (PAIR, 2 * PAIR):
                if count <= min(one.parts, other.neighbours):
                    own = self.side_copies(which, one.extent, self.step, count, one.extent, 1)
                    whole = self.side_copies(1 - which, other.extent, self.step, 1, other.extent, count)
                    shared.append(joined(own, whole, rates.stage_clocks + rates.together_clocks))
        for along_m, along_n in self._both_extents(of_m, of_n):
            a = self.side_copies(0, of_m.extent, self.step, along_n, of_m.extent, along_m)
            b = self.side_copies(1, of_n.extent, self.step, along_m, of_n.extent, along_n)
            shared.append(joined(a, b, rates.stage_clocks + self.meeting(along_m, along_n)))
        if shared:
            least, most = Copies(*map(min, *shared, shared[0])), Copies(*map(max, *shared, shared[0]))
            models.append(LeastModel(self, form, least, most, clusters=True))
        first = self.step * self.problem.operand_bytes * rates.fill_clocks * (of_m.read + of_n.read)
        found = self._models[key] = first, models
        return found


_SHARED = (*RoleModel.__slots__, *RoleSearch.__slots__)
"""What models have in common whose problems differ in their batches, in k, or in what tiles they may have (see `RoleSearch.of`)."""
