"""The tile of a role kernel that is modelled to take the fewest clocks, with few of them modelled. No IR.

Tiles of one form (`role_forms.py`) differ in rings, orders and clusters. What a form's tiles take at least is told twice: by a few
products, and by the model of a tile that takes the least of everything (`LeastModel`), which is hardly less than what the best of them
takes.
"""

from collections.abc import Callable, Iterator
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


class _Form(NamedTuple):
    """What a form's tiles take at least, whatever the batch and k are: tiles of one batch, clocks beside steps (`around`), of these behind
    a unit's last step (`ends`), and `between` tiles. Of a step: `arithmetic`, by which share of it more where all units work (`power`), and
    that of it where tiles are `narrower`; what copies for one unit (`copies`), and for all (`cache`).
    """

    tile: RoleTile
    in_turns: bool
    tiles: int
    around: float
    ends: float
    between: float
    arithmetic: float
    power: float
    narrower: float
    copies: float
    cache: float


@lru_cache(maxsize=16)
def _kept_families(row: str, operand_bytes: int, roots: int, spec: TargetSpec) -> dict[tuple[object, ...], list[_Family]]:
    """Where forms are kept, by what else they depend on, for all problems with such instructions."""
    return {}


_Bound = tuple[float, int, RoleTile, tuple[float, ...]]
"""Clocks at least, a form's number, the form; what models tell of its tiles alone and in clusters, nothing where they were not asked."""


class RoleSearch(RoleModel):
    """The model of a problem's tiles, and which of them is the best."""

    def __init__(self, problem: RoleProblem, spec: TargetSpec) -> None:
        super().__init__(problem, spec)
        self.step, self.at_once = spec.slot_row_bytes // problem.operand_bytes, clustered_units(PAIR * PAIR, spec)
        self._families = _kept_families(problem.row.name, problem.operand_bytes, problem.shape.root_count, spec)
        self._close = close_widths(problem, spec)
        self._known: dict[tuple[int, int, int, bool, bool], _Form] = {}
        self._models: dict[tuple[int, int, int, int, bool], tuple[float, list[LeastModel]]] = {}
        self._key: tuple[bool, bool, bool, bool, int] | None = None
        self._held: dict[tuple[object, ...], tuple[list[_Form], float, float, float]] = {}
        self._bounds: dict[tuple[object, ...], tuple[float, list[_Bound]]] = {}

    def of(self, problem: RoleProblem) -> "RoleSearch":
        """The model of a problem that differs in its batch, in k, or in what tiles it may have."""
        found = RoleSearch.__new__(RoleSearch)
        found.__dict__.update(self.__dict__)
        found.problem, found.k, found._costs, found._key = problem, problem.shape.extents[2], {}, None
        return found

    def best(self, admits: Callable[[RoleTile], bool] | None = None, enough: float = inf) -> RoleTile | None:
        """Of the tiles whose forms are admitted that of least clocks, of equals the first; None where there is none. Tiles that are sure to
        take more clocks than `enough` may be left out.

        Forms are looked at in the order of what they take at least, until that is more than the best tile takes.
        """
        found: RoleTile | None = None
        least, place = inf, 0
        bounds = self._at_once() if self.problem.in_cluster else self._bounded()[1]
        left = [each for each in bounds if each[0] <= enough]
        heapify(left)
        while left:
            bound, number, form, told = heappop(left)
            if bound > min(least * (1 + SLACK), enough):
                break
            if not told:
                if admits is None or admits(form):
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
                last += full * (max(arithmetic + between, moving) if in_turn else max(arithmetic, moving) + ends + start)
            bounds.append((last, number, tile, ()))
        found = self._bounds[key] = min([bound for bound, *_ in bounds], default=inf), bounds
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
            forms = [form for family in families for form in self._forms(family, self._known, clusters=key[1])]
            around = min([form.around for form in forms], default=inf)
            busy = [max(form.arithmetic * form.narrower, form.copies) for form in forms]
            shared = [form.tiles * max(one, form.cache) for one, form in zip(busy, forms, strict=True)]
            found = self._held[key] = forms, around, min(busy, default=inf) / self.step, min(shared, default=inf) / self.step
        return found

    def _at_once(self) -> list[_Bound]:
        """Of the forms of parts that clusters merge those whose tiles all begin at once, if there are any."""
        problem, shape, forms = self.problem, self.problem.shape, self._bounded()[1]
        most = clustered_units(problem.parts, self.spec)
        few = [each for each in forms if shape.tiles(each[2].rows, each[2].n) <= most]
        return few if any(tiles_of(form, problem, self.spec) for _, _, form, _ in few) else forms

    def _least_of(self, form: RoleTile) -> tuple[float, ...]:
        """The same of a form by the models of tiles that take the least of everything: of those alone, and of those in clusters if any."""
        problem, units, steps = self.problem, self.units, -(-self.k // self.step)
        tiles, told = problem.shape.tiles(form.rows, form.n), list[float]()
        full = -(-tiles // units) - 1
        first, models = self._models_of(form)
        first += self.merging(form) if problem.parts > 1 else 0
        for model in models:
            is_narrower = model.may_defer and full and problem.shape.batch == 1
            part = least_part(form.n, self.rates) if is_narrower else 1.0
            found = model.more + model.last(steps, tiles - full * units, part)
            if full and problem.takes_turns:
                found += full * model.turn(steps, units, part)
            elif full:
                found += full * (model.last(steps, units) + self.rates.start_clocks)
            told.append(first + found)
        return tuple(told)

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

    def _forms(self, family: _Family, known: dict[tuple[int, int, int, bool, bool], _Form], *, clusters: bool) -> Iterator[_Form]:
        """What a family's forms take at least. `known`: of those that were asked for before. `clusters`: of which they may be."""
        rates, problem, units, (m, groups, in_turns, may_defer, columns) = self.rates, self.problem, self.units, family
        of_m, fill = self._extent(0, m * groups, m, clusters=clusters), self.step * problem.operand_bytes * rates.fill_clocks
        own, overhead, each = rates.own_share, rates.tile_overhead, self.heavy / groups + self.reading
        promoting = promoting_clocks(columns[0].tile, self)
        may_defer = may_defer and problem.may_be_deferred and not problem.promoted
        for tile, n, elements, matrix, chain, part in columns:
            if n % WIDTH_STEP and n not in self._close:
                continue
            if (form := known.get((m, groups, n, in_turns, clusters))) is not None:
                yield form
                continue
            of_n = self._extent(1, n, n, clusters=clusters)
            engine, cache, _, threads = joined(of_m.copies, of_n.copies, rates.stage_clocks)
            most, read_m, read_n = cache, of_m.read, of_n.read
            if self.meets:
                most, cache = most * (own + 1), most * (own + least_fetched_by_pairs(read_m, read_n))
            slowest = max(engine, most + (of_m.beyond + of_n.beyond) * units, threads)
            if clusters:
                engine, cache, slowest = self._least_shared(of_m, of_n, engine, cache, slowest)
            leaving = elements * self.leaving(tile)
            ends = between = overhead + leaving + elements * each
            if in_turns:
                between = rates.ping_pong_overhead + rates.ping_pong_share * leaving
            elif may_defer:
                between = min(between, rates.deferred_overhead + elements * each)
            power = rates.power_factor * matrix / max(matrix, slowest)
            around = fill * (read_m + read_n) + ends
            copies = engine if engine > threads else threads
            tiles = of_m.tiles * of_n.tiles
            narrower = part if may_defer else 1.0
            form = _Form(tile, in_turns, tiles, around, ends, between, chain + promoting, power, narrower, copies, cache)
            known[m, groups, n, in_turns, clusters] = form
            yield form

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
