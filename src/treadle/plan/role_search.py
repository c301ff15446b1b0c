"""The tile of a role kernel that is modelled to take the fewest clocks, with few of them modelled. No IR.

Tiles of one form (`held_forms`) differ in rings, orders and clusters. What a form's tiles take at least is told twice: by a few products,
and by the model of a tile that takes the least of everything (`LeastModel`), which is hardly less than what the best of them takes.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from treadle.machine.spec import TargetSpec
from treadle.plan.mixed_widths import MOST_NARROWER
from treadle.plan.part_merges import PAIR, clustered_units
from treadle.plan.rasters import least_fetched_by_pairs
from treadle.plan.role_clocks import Copies, LeastModel, RoleModel, joined
from treadle.plan.role_forms import held_forms
from treadle.plan.role_tiles import MANY_GROUPS, RoleProblem, RoleTile, may_cluster, most_neighbours, most_parts, tiles_of
from treadle.plan.small_m import SLACK


def role_tile(problem: RoleProblem, spec: TargetSpec) -> RoleTile | None:
    """The candidate of least modelled cost, of equals the first; None where none fits."""
    return RoleSearch(problem, spec).best()


class _Extent(NamedTuple):
    """Of tiles' extent along m (`which` is 0) or n (1): how many tiles follow one another, rows of k that they read, clocks of a step's
    copies of these. Of a cluster, how many workgroups may fetch a part of the rows each, and how many neighbours may share what they copy
    of the other operand.
    """

    which: int
    extent: int
    tiles: int
    read: int
    copies: Copies
    parts: int
    neighbours: int


class _Shape(NamedTuple):
    """A form of tiles, its rows and columns, clocks of a step's matrix instructions at least; whether results may leave later."""

    tile: RoleTile
    rows: int
    n: int
    matrix: float
    may_defer: bool


@lru_cache(maxsize=16)
def _kept_shapes(row: str, operand_bytes: int, roots: int, spec: TargetSpec) -> dict[tuple[object, ...], list[_Shape]]:
    """Where forms are kept, by what else they depend on, for all problems with such instructions."""
    return {}


class _Form:
    """What a form's tiles take at least, whatever the batch and k are: tiles of one batch, clocks of the first copies and of results that
    leave (`ends`), of a step's instructions or of what copies for one unit (`busy`), of its copies where all units ask (`cache`), the more
    of these.
    """

    __slots__ = ("busiest", "busy", "cache", "ends", "first", "is_alone", "models", "sides", "tile", "tiles")

    def __init__(self, tile: RoleTile, sides: tuple[_Extent, _Extent], first: float, ends: float, busy: float, cache: float) -> None:
        self.tile, self.sides, self.is_alone = tile, sides, tile.ping_pong == 1
        self.tiles = sides[0].tiles * sides[1].tiles
        self.first, self.ends, self.busy, self.cache = first, ends, busy, cache
        self.busiest = busy if busy > cache else cache
        self.models: list[LeastModel] = []


class RoleSearch(RoleModel):
    """The model of a problem's tiles, and which of them is the best."""

    def __init__(self, problem: RoleProblem, spec: TargetSpec) -> None:
        super().__init__(problem, spec)
        self.step = spec.slot_row_bytes // problem.operand_bytes
        self._shapes = _kept_shapes(problem.row.name, problem.operand_bytes, problem.shape.root_count, spec)
        self._known: dict[tuple[int, int, bool, bool], _Form] = {}
        self._held: dict[tuple[object, ...], tuple[list[_Form], float, float, float]] = {}
        self._bounds: dict[tuple[object, ...], tuple[float, list[tuple[float, int, _Form, bool]]]] = {}

    def of(self, problem: RoleProblem) -> "RoleSearch":
        """The model of a problem that differs in its batch, in k, or in what tiles it may have."""
        found = RoleSearch.__new__(RoleSearch)
        found.__dict__.update(self.__dict__)
        found.problem, found.k, found._costs = problem, problem.shape.extents[2], {}
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
            bound, number, form, is_sharp = heappop(left)
            if bound > min(least * (1 + SLACK), enough):
                break
            if not is_sharp:
                if admits is None or admits(form.tile):
                    heappush(left, (self._least_of(form), number, form, True))
                continue
            for tile in tiles_of(form.tile, self.problem, self.spec):
                clocks = self.cost(tile)
                if clocks < least or (clocks == least and number < place):
                    found, least, place = tile, clocks, number
        return found

    def at_least(self, form: RoleTile) -> float:
        """Clocks that a form's tiles take at least."""
        (found,) = self._forms([self._shape(form)], may_cluster(self.problem))
        return self._least_of(found)

    def floor(self, batch: int, k: int) -> float:
        """Clocks that any tile takes at least of the same problem with such a batch and k: less than `least`, and told by three numbers."""
        _, ends, busy, shared = self._held_forms()
        return ends + k * max(busy, batch / self.units * shared)

    def least(self) -> float:
        """Clocks that any tile takes at least; infinitely many where no form fits the registers."""
        return self._bounded()[0]

    def _bounded(self) -> tuple[float, list[tuple[float, int, _Form, bool]]]:
        """The forms that registers allow with what they take at least and their numbers: the first copies, in each round steps of matrix
        instructions or of copies, and results that leave at the end. Before them the least of all; behind each that models may tell more.
        """
        problem, units, k = self.problem, self.units, self.k
        batch, in_turn = problem.shape.batch or 1, problem.takes_turns
        key = (self._holding(), batch, k, in_turn)
        if (found := self._bounds.get(key)) is not None:
            return found
        steps, (forms, *_) = -(-k // self.step), self._held_forms()
        bounds: list[tuple[float, int, _Form, bool]] = []
        for number, form in enumerate(forms):
            tiles = form.tiles * batch
            full = (tiles - 1) // units
            if form.is_alone or (full and in_turn):
                busy, last = form.busy, form.cache * (tiles - full * units) / units
                rounds = full * form.busiest + (busy if busy > last else last)
                bounds.append((form.ends + steps * rounds, number, form, False))
        found = self._bounds[key] = min([bound for bound, *_ in bounds], default=inf), bounds
        return found

    def _holding(self) -> tuple[object, ...]:
        """What of the problem its forms, and what they take at least, depend on; the rest is alike in all that share models."""
        problem = self.problem
        return problem.is_plain and problem.parts == 1, may_cluster(problem), problem.is_crowded, problem.promoted, problem.n_step

    def _held_forms(self) -> tuple[list[_Form], float, float, float]:
        """The forms that registers allow. The least of their ends, and, for each k, of what a unit is busy, and all together with a batch."""
        key = self._holding()
        if (found := self._held.get(key)) is None:
            m, few = self.problem.shape.m, 2 * self.problem.row.m
            kind = (*key, any(self.problem.piece_bytes), None if m is None else m > few)
            if (shapes := self._shapes.get(kind)) is None:
                shapes = self._shapes[kind] = [self._shape(form) for form in held_forms(self.problem, self.spec)]
            forms = self._forms(shapes, may_cluster(self.problem))
            ends, busy = min([form.ends for form in forms], default=inf), min([form.busy for form in forms], default=inf)
            shared = min([form.tiles * form.busiest for form in forms], default=inf)
            found = self._held[key] = forms, ends, busy / self.step, shared / self.step
        return found

    def _at_once(self) -> list[tuple[float, int, _Form, bool]]:
        """Of the forms of parts that clusters merge those whose tiles all begin at once, if there are any."""
        problem, batch, forms = self.problem, self.problem.shape.batch or 1, self._bounded()[1]
        most = clustered_units(problem.parts, self.spec)
        few = [each for each in forms if each[2].tiles * batch <= most]
        return few if any(tiles_of(form.tile, problem, self.spec) for _, _, form, _ in few) else forms

    def _least_of(self, form: _Form) -> float:
        """The same by the models of tiles that take the least of everything."""
        if not form.models:
            form.models = self._models(form)
        problem, units, steps = self.problem, self.units, -(-self.k // self.step)
        tiles, clocks = form.tiles * (problem.shape.batch or 1), inf
        full = -(-tiles // units) - 1
        for model in form.models:
            is_narrower = model.may_defer and full and problem.shape.batch == 1 and form.tile.consumer_warpgroups > 1
            part = 1 - 1 / MOST_NARROWER if is_narrower else 1.0
            found = model.more + model.last(steps, tiles - full * units, part)
            if full and problem.takes_turns:
                found += full * model.turn(steps, units, part)
            elif full:
                found += full * (model.last(steps, units) + self.rates.start_clocks)
            clocks = min(clocks, found)
        return form.first + clocks + (self.merging(form.tile) if problem.parts > 1 else 0)

    def _shape(self, form: RoleTile) -> _Shape:
        matrix = self.matrix(form)
        # One group alone may wait instead.
        least = max(matrix, min(self.rates.step_clocks, matrix + self.rates.wait_clocks)) if form.ping_pong == 1 else matrix
        may_defer = form.ping_pong == 1 and form.m <= self.problem.row.m and form.consumer_warpgroups < MANY_GROUPS
        return _Shape(form, form.rows, form.n, least, may_defer)

    def _forms(self, shapes: Iterable[_Shape], clusters: bool) -> list[_Form]:
        """What forms' tiles take at least. `clusters`: of which they may be."""
        rates, problem, known = self.rates, self.problem, self._known
        narrower = 1 - 1 / MOST_NARROWER if problem.may_be_deferred and not problem.promoted else 1.0
        filled = self.step * problem.operand_bytes * rates.fill_clocks
        along_m: dict[int, _Extent] = {}
        along_n: dict[int, _Extent] = {}
        found: list[_Form] = []
        for form, rows, n, matrix, may_defer in shapes:
            key = (rows * form.m, n, form.ping_pong > 1, clusters)
            if (known_form := known.get(key)) is not None:
                found.append(known_form)
                continue
            if (of_m := along_m.get(rows * form.m)) is None:
                of_m = along_m[rows * form.m] = self._extent(0, rows, form.m, clusters=clusters)
            if (of_n := along_n.get(n)) is None:
                of_n = along_n[n] = self._extent(1, n, n, clusters=clusters)
            a, b = of_m.copies, of_n.copies
            engine, cache, threads = rates.stage_clocks + a.engine + b.engine, a.cache + b.cache, a.threads + b.threads
            if self.meets:
                cache *= rates.own_share + least_fetched_by_pairs(of_m.read, of_n.read)
            if clusters:
                for one, other in ((of_m, of_n), (of_n, of_m)):
                    if (count := min(one.parts, other.neighbours)) > 1:
                        together = rates.stage_clocks + rates.together_clocks
                        engine = min(engine, together + one.copies.engine / count + other.copies.engine)
                        cache = min(cache, one.copies.cache / count + other.copies.cache)
            first = filled * (of_m.read + of_n.read)
            ends = first + rates.tile_overhead + rows * n * (self.leaving(form) + self.reading)
            busy = max(matrix * narrower if may_defer else matrix, engine, threads)
            known[key] = _Form(form, (of_m, of_n), first, ends, busy, cache)
            found.append(known[key])
        return found

    def _extent(self, which: int, extent: int, part: int, *, clusters: bool) -> _Extent:
        """That of tiles along m (0) or n (1), in groups of `part` rows or columns."""
        shape = self.problem.shape
        if which:
            tiles, size, read = shape.tiles_along_n(extent), shape.n, shape.operand_rows(0, extent)
        else:
            tiles, size, read = shape.tiles_along_m(extent), shape.m, shape.operand_rows(extent, 0)
        parts = neighbours = 1
        if clusters and size is not None:
            parts, neighbours = most_parts(which, part, self.problem, self.spec), most_neighbours(size, extent)
        return _Extent(which, extent, tiles, read, self.side_copies(which, extent, self.step, 1, extent, 1), parts, neighbours)

    def _models(self, form: _Form) -> list[LeastModel]:
        """Of tiles that take the least of everything: of those alone, behind them of those in clusters, where there are such."""
        rates, (of_m, of_n) = self.rates, form.sides
        low = high = joined(of_m.copies, of_n.copies, rates.stage_clocks)
        if self.meets:
            together = rates.own_share + least_fetched_by_pairs(of_m.read, of_n.read)
            low, high = low._replace(cache=low.cache * together), low._replace(cache=low.cache * (rates.own_share + 1))
        found = [LeastModel(self, form.tile, low, high, clusters=False)]
        shared: list[Copies] = []
        for one, other in ((of_m, of_n), (of_n, of_m)):
            for count in (PAIR, 2 * PAIR):
                if count <= min(one.parts, other.neighbours):
                    own = self.side_copies(one.which, one.extent, self.step, count, one.extent, 1)
                    whole = self.side_copies(other.which, other.extent, self.step, 1, other.extent, count)
                    shared.append(joined(own, whole, rates.stage_clocks + rates.together_clocks))
        if shared:
            least, most = Copies(*map(min, *shared, shared[0])), Copies(*map(max, *shared, shared[0]))
            found.append(LeastModel(self, form.tile, least, most, clusters=True))
        return found
