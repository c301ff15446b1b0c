"""What the tiles of a role kernel's form take at least: alone, in clusters of each kind, and with narrower ones beside. No IR.

That is hardly less than what the model tells of these tiles (`role_clocks.py`), which have rings, orders and stores of their own.
"""

from math import inf
from typing import Final, NamedTuple

from treadle.plan.mixed_widths import least_part, timed_columns
from treadle.plan.part_merges import PAIR
from treadle.plan.rasters import least_fetched_by_pairs
from treadle.plan.role_clocks import NEAR, Copies, RoleModel, joined, least_chain, promoting_clocks
from treadle.plan.role_clusters import ROUNDS_OF_QUADS, cluster_kinds, clustered_clocks, held_behind
from treadle.plan.role_forms import waited_boxes
from treadle.plan.role_tiles import DEEPEST_RING, ROLE_MARGIN_BYTES, RoleTile, may_defer, steps_in_flight

FAR: Final = 4
"""How many times as long one limit takes as another that counts for nothing beside it: for less than 1 / 2000 (see `limited`)."""


class Extent(NamedTuple):
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


def _cut_tiles(rows: int, form: RoleTile, model: RoleModel) -> float:
    """Where narrower tiles may be beside a form's: how many tiles so many rows of them would have if the last of each were cut to the
    columns that it computes, by the time that these take. Else 0.
    """
    shape = model.problem.shape
    may_be_narrower = shape.m and shape.n and shape.root_count == 1 and not (shape.groups_m or shape.groups_n)
    return rows * (shape.n or 0) / timed_columns(form.n, model.rates) if may_be_narrower and may_defer(form, model.problem) else 0.0


def _limited(one: float, other: float, sharpness: float) -> float:
    """As `limited`, or a little less."""
    if other * FAR < one:
        return one
    return (one**sharpness + other**sharpness) ** (1 / sharpness) if one * FAR > other else other


_Ring = tuple[float, int]
"""Clocks in which a slot is empty at least, and how many slots are filled meanwhile at most."""


class _Kind(NamedTuple):
    """Workgroups of a cluster along m and n, tiles of a batch in whole clusters, clocks of the engine for a step's copies, of the kernel
    beside its steps, units that have tiles at one time, and how many rounds of them there may be.
    """

    along_m: int
    along_n: int
    tiles: int
    engine: float
    beside: float
    units: int
    rounds: float


class FormBounds:
    """Of one form, whatever the batch and k are. `first`: clocks before its first step; `kinds`: of its clusters, how many workgroups
    they have along m and n.
    """

    __slots__ = (
        *("_alone", "_beside", "_brought", "_chain", "_clustered", "_computing", "_cut", "_defers", "_ends", "_form", "_high", "_kinds"),
        *("_leaving", "_low", "_matrix", "_of_m", "_of_n", "_rates", "_told", "_units", "first", "kinds"),
    )

    def __init__(self, model: RoleModel, form: RoleTile, of_m: Extent, of_n: Extent) -> None:
        rates, elements = model.rates, form.rows * form.n
        low = high = joined(of_m.copies, of_n.copies, rates.stage_clocks)
        if model.meets:
            low = low._replace(cache=low.cache * (rates.own_share + least_fetched_by_pairs(of_m.read, of_n.read)))
            high = high._replace(cache=high.cache * (rates.own_share + rates.apart_share + 1))
        self._form, self._rates, self._units, self._low, self._high = form, rates, model.units, low, high
        self._matrix = model.matrix(form)
        self._chain = least_chain(form, self._matrix, rates) + promoting_clocks(form, model)
        self._leaving, self._brought = elements * model.leaving(form), elements * model.brought
        self._beside = self._leaving if model.threads_store and low.threads else elements * model.cut_stores(form)
        self._computing = elements * model.reading + waited_boxes(form, model.problem, model.spec) * rates.box_clocks
        self._ends = rates.tile_overhead + self._computing + self._leaving
        self._cut, self._defers = _cut_tiles(of_m.tiles, form, model), may_defer(form, model.problem)
        slot = (of_m.read + of_n.read) * form.k * model.problem.operand_bytes
        slots = max(2, min(DEEPEST_RING, (model.spec.shared_bytes_per_workgroup - ROLE_MARGIN_BYTES) // slot))
        held = held_behind(form, steps_in_flight(form, slots, model.problem))
        self._alone, self._clustered = (rates.ring_clocks, slots - 1), (rates.clustered_ring_clocks, max(1, slots - 1 - held))
        self.first = slot * rates.fill_clocks
        self._of_m, self._of_n, self._kinds = of_m, of_n, list[_Kind]()
        self.kinds = cluster_kinds(of_m.parts, of_n.parts, of_m.both, of_n.both, of_m.neighbours, of_n.neighbours)
        self._told: dict[tuple[int, int, bool, bool], list[float]] = {}

    def told(self, model: RoleModel, together: int, enough: float) -> list[float]:
        """Clocks from the first step on but for merging parts: of tiles alone, in clusters of each kind, with narrower ones beside;
        infinitely many where there are none, and less than could be told where they are more than `enough`. `together`: how many tiles
        of clusters of more than two workgroups begin at once; 0 where there are no clusters.
        """
        batch, in_turn = model.problem.shape.batch or 1, model.problem.takes_turns
        key = (batch, model.k, in_turn, together > 0)
        if (found := self._told.get(key)) is None:
            steps, rates, form = -(-model.k // self._form.k), self._rates, self._form
            between = rates.tile_overhead + self._leaving
            alone = min(between, rates.deferred_overhead) if self._defers else between
            tiles = self._of_m.tiles * self._of_n.tiles
            found = [self._clocks(self._low, self._high, self._alone, steps, tiles * batch, alone, self._units, in_turn=in_turn)]
            for along_m, along_n, tiles, engine, beside, units, rounds in self._told_kinds(model, together) if together else ():
                clocks, tiles = inf, tiles * batch
                if tiles <= rounds * units:
                    clocks = self._ends + -(-tiles // units) * steps * (self._chain if self._chain > engine else engine)
                    if clocks + beside <= enough:
                        copies = model.copies_of(form, form.n, along_m, along_n)
                        clocks = self._clocks(copies, copies, self._clustered, steps, tiles, between, units, in_turn=in_turn)
                found.append(beside + clocks)
            found.append(self._with_narrower(steps) if batch == 1 and self._cut else inf)
            self._told[key] = found
        return found

    def _told_kinds(self, model: RoleModel, together: int) -> list[_Kind]:
        if not self._kinds:
            (_, tiles_m, _, of_m, *_), (_, tiles_n, _, of_n, *_) = self._of_m, self._of_n
            for along_m, along_n in self.kinds:
                tiles = -(-tiles_m // along_m) * along_m * -(-tiles_n // along_n) * along_n
                engine = self._rates.stage_clocks + model.meeting(along_m, along_n) + of_m.engine / along_n + of_n.engine / along_m
                size = along_m * along_n
                units, rounds = (self._units, inf) if size == PAIR else (together, 1 if 1 not in (along_m, along_n) else ROUNDS_OF_QUADS)
                self._kinds.append(_Kind(along_m, along_n, tiles, engine, clustered_clocks(size, self._rates), units, rounds))
        return self._kinds

    def _step(self, copies: Copies, most: Copies, ring: _Ring, active: int) -> tuple[float, float]:
        """Clocks of a step's arithmetic and of its copies, with so many units at work."""
        share, matrix = active / self._units, self._matrix
        engine, cache, beyond, threads = most
        slowest = max(matrix, engine, cache * share + beyond * active, threads)
        arithmetic = self._chain * (1 + self._rates.power_factor * matrix / slowest * share)
        engine, cache, beyond, threads = copies
        found = _limited(engine, cache * share + beyond * active, NEAR)
        found = _limited(found, (ring[0] + found) / ring[1], NEAR)
        return arithmetic, _limited(found, threads, NEAR) if threads else found

    def _clocks(
        self, copies: Copies, most: Copies, ring: _Ring, steps: int, tiles: int, between: float, units: int, *, in_turn: bool
    ) -> float:
        """Of so many tiles with such copies in a step, at least and at most. `ring`: see `_step`; `between`: clocks between two tiles of a
        unit; `units`: those that have tiles at one time.
        """
        rates, full = self._rates, (tiles - 1) // units
        arithmetic, copying = self._step(copies, most, ring, tiles - full * units)
        sets = self._form.ping_pong
        if sets == 1:
            last = _limited(steps * arithmetic, steps * copying + self._brought, NEAR)
        else:
            last = self._in_ping_pong(steps * arithmetic, steps * copying + self._brought + self._beside)
        if full:
            arithmetic, copying = self._step(copies, most, ring, units)
            copying = steps * copying + self._brought
            if not in_turn:
                last += full * (_limited(steps * arithmetic, copying, NEAR) + self._ends + rates.start_clocks)
            elif sets == 1:
                last += full * _limited(steps * arithmetic + between + self._computing, copying + self._beside, NEAR)
            else:
                last += full * self._in_ping_pong(steps * arithmetic, copying + self._beside)
        return last + self._ends

    def _in_ping_pong(self, arithmetic: float, copying: float) -> float:
        """Clocks of a tile of sets that take turns."""
        rates = self._rates
        loop = _limited(arithmetic + rates.ping_pong_overhead + rates.ping_pong_share * self._leaving, copying, NEAR)
        return max(loop, (loop + self._computing + 2 * self._leaving) / self._form.ping_pong)

    def _with_narrower(self, steps: int) -> float:
        """Of tiles with narrower ones beside, whose stores are deferred. All tiles of a unit together are no faster than the sums of what
        limits them are: sums as `limited` are no more than those of their parts.
        """
        units, rates = self._units, self._rates
        if not (full := (self._of_m.tiles * self._of_n.tiles - 1) // units):
            return inf
        arithmetic, copying = self._step(self._low, self._high, self._alone, units)
        work = max(self._cut / units, (full + 1) * least_part(self._form.n, rates)) * steps * arithmetic
        moving = (full + 1) * (steps * copying + self._brought) + full * self._beside
        work += full * (rates.deferred_overhead + self._computing)
        return rates.deferred_clocks + self._ends + _limited(work, moving, NEAR)
