"""The tile of a role kernel that is modelled to take the fewest clocks, with few of them modelled. No IR.

Tiles of one form (`held_forms`) differ in rings, orders and clusters. What a form's tiles take at least is told twice: by a few products,
and by the model of a tile that takes the least of everything (`LeastModel`), which is hardly less than what the best of them takes.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf

from treadle.machine.spec import TargetSpec
from treadle.plan.mixed_widths import MOST_NARROWER
from treadle.plan.part_merges import clustered_units
from treadle.plan.role_clocks import LeastModel, RoleModel
from treadle.plan.role_forms import held_forms
from treadle.plan.role_tiles import RoleProblem, RoleTile, may_cluster, may_defer, tiles_of
from treadle.plan.small_m import SLACK


def role_tile(problem: RoleProblem, spec: TargetSpec) -> RoleTile | None:
    """The candidate of least modelled cost, of equals the first; None where none fits."""
    return RoleSearch(problem, spec).best()


class _Form:
    """What a form's tiles take at least, whatever the batch and k are: its step along k, tiles of one batch, clocks of the first copies and
    of results that leave (`ends`), of a step's instructions or of what copies for one unit (`busy`), of its copies where all units ask
    (`cache`), the more of these. `clusters`: of which they may be.
    """

    def __init__(self, model: RoleModel, form: RoleTile, clusters: bool) -> None:
        shape, rates, rows = model.problem.shape, model.rates, form.rows
        self.copies, matrix = model.least_and_most(form, clusters=clusters), model.matrix(form)
        if form.ping_pong == 1:
            # One group alone may wait instead.
            matrix = max(matrix, min(rates.step_clocks, matrix + rates.wait_clocks))
            matrix *= 1 - 1 / MOST_NARROWER if may_defer(form, model.problem) else 1
        self.tile, self.k = form, form.k
        self.tiles = shape.tiles_along_m(rows) * shape.tiles_along_n(form.n)
        self.first = form.k * model.problem.operand_bytes * shape.operand_rows(rows, form.n) * rates.fill_clocks
        self.ends = self.first + rates.tile_overhead + rows * form.n * (model.leaving(form) + model.reading)
        least = [each for each, _ in self.copies]
        engine, self.cache, _, threads = least[0] if len(least) == 1 else map(min, *least)
        self.busy = max(matrix, engine, threads)
        self.busiest = max(self.busy, self.cache)
        self.models: list[LeastModel] = []


class RoleSearch(RoleModel):
    """The model of a problem's tiles, and which of them is the best."""

    def __init__(self, problem: RoleProblem, spec: TargetSpec) -> None:
        super().__init__(problem, spec)
        self._forms: dict[tuple[RoleTile, bool], _Form] = {}
        self._held: dict[tuple[object, ...], list[_Form]] = {}
        self._bounds: dict[tuple[object, ...], list[tuple[float, int, _Form]]] = {}

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
        bounds = self._at_once() if self.problem.in_cluster else self._bounded()
        left = [(*each, False) for each in bounds if each[0] <= enough and (admits is None or admits(each[2].tile))]
        heapify(left)
        while left:
            bound, number, form, is_sharp = heappop(left)
            if bound > min(least * (1 + SLACK), enough):
                break
            if not is_sharp:
                heappush(left, (self._least_of(form), number, form, True))
                continue
            for tile in tiles_of(form.tile, self.problem, self.spec):
                clocks = self.cost(tile)
                if clocks < least or (clocks == least and number < place):
                    found, least, place = tile, clocks, number
        return found

    def at_least(self, form: RoleTile) -> float:
        """Clocks that a form's tiles take at least."""
        return self._least_of(self._form(form, may_cluster(self.problem)))

    def least(self) -> float:
        """Clocks that any tile takes at least; infinitely many where no form fits the registers."""
        return min([bound for bound, _, _ in self._bounded()], default=inf)

    def _bounded(self) -> list[tuple[float, int, _Form]]:
        """The forms that registers allow with what they take at least and their numbers: the first copies, in each round steps of matrix
        instructions or of copies, and results that leave at the end.
        """
        problem, units, k, clusters = self.problem, self.units, self.k, may_cluster(self.problem)
        held = (problem.is_plain and problem.parts == 1, clusters, problem.is_crowded, problem.promoted, problem.n_step)
        batch, in_turn = problem.shape.batch or 1, problem.takes_turns
        if (found := self._bounds.get((held, batch, k, in_turn))) is not None:
            return found
        if (forms := self._held.get(held)) is None:
            forms = self._held[held] = [self._form(form, clusters) for form in held_forms(problem, self.spec)]
        found = self._bounds[held, batch, k, in_turn] = []
        for number, form in enumerate(forms):
            tiles = form.tiles * batch
            full = -(-tiles // units) - 1
            if form.tile.ping_pong > 1 and not (full and in_turn):
                continue
            rounds = full * form.busiest + max(form.busy, form.cache * (tiles - full * units) / units)
            found.append((form.ends + -(-k // form.k) * rounds, number, form))
        return found

    def _at_once(self) -> list[tuple[float, int, _Form]]:
        """Of the forms of parts that clusters merge those whose tiles all begin at once, if there are any."""
        problem, batch, forms = self.problem, self.problem.shape.batch or 1, self._bounded()
        most = clustered_units(problem.parts, self.spec)
        few = [each for each in forms if each[2].tiles * batch <= most]
        return few if any(tiles_of(form.tile, problem, self.spec) for _, _, form in few) else forms

    def _least_of(self, form: _Form) -> float:
        """The same by the models of tiles that take the least of everything."""
        if not form.models:
            form.models = [LeastModel(self, form.tile, *each, clusters=number > 0) for number, each in enumerate(form.copies)]
        problem, units, steps = self.problem, self.units, -(-self.k // form.k)
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

    def _form(self, form: RoleTile, clusters: bool) -> _Form:
        if (found := self._forms.get((form, clusters))) is None:
            found = self._forms[form, clusters] = _Form(self, form, clusters)
        return found
