"""Which executions of two accesses to a global array meet: for all sizes, workgroups, iterations and elements at once.

A pair of accesses is held against each other as sets of executions (`global_accesses.py`); who the two executing agents are to one another
says which executions may be compared: those of one workgroup, of one cluster, of any two. The answer is that they never meet, or at what
distance of iterations they do. Where part of a form is not known the set is larger than the truth, and what it holds is no witness.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from treadle.dialects import tile
from treadle.dialects.effects import Effect
from treadle.errors import InternalError
from treadle.ir.core import Operation
from treadle.records import dataclass
from treadle.verify.affine import Forms
from treadle.verify.formulas import Formula
from treadle.verify.global_accesses import GlobalAccess, access_of
from treadle.verify.global_executions import CLUSTER, COUNTER, Executions, executions_of
from treadle.verify.program import Program

if TYPE_CHECKING:
    from treadle.verify.integer_sets import Map, Set

Kind = Literal["strand", "team", "workgroup", "cluster", "grid"]
"""What two agents are to each other: the same one, two of a team, two of a workgroup, of two workgroups of a cluster, of two clusters."""
Span = tuple[int, int] | None
Distance = tuple[int | None, ...]
"""By how many iterations the later of two accesses is ahead in each loop, outermost first; None: by any number."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """That two accesses may meet. `spans`: by how many iterations the later one's loops are ahead then, by level; None: by any number.

    `doubt`: why it is not certain that they do; empty where they do for some sizes.
    """

    spans: tuple[Span, ...]
    doubt: str

    @property
    def is_bounded(self) -> bool:
        """Whether iterations tell meetings apart."""
        return any(span is not None for span in self.spans)

    def holds(self, distance: "Distance") -> bool:
        """Whether they may meet at a distance."""
        return all(span is None or d is None or span[0] <= d <= span[1] for span, d in zip(self.spans, distance, strict=False))


NOWHERE = None


FARTHEST = 4
"""Meetings of iterations farther apart than this count as meetings of any two: a run repeats only after so many iterations."""
MAX_TOO_HARD = 8
"""After so many pairs that were given up no others are looked at: what takes so long is not decided pair by pair."""
TOO_LARGE = "their forms are too large to compare"


class GlobalArrays:
    """The accesses of a program to the arrays it tracks, and what pairs of them have in common."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.accesses: list[GlobalAccess] = []
        self.by_effect: dict[tuple[Operation, Effect], GlobalAccess] = {}
        self.assumed: dict[Operation, str] = {}
        self.farthest = max(FARTHEST, program.depth + 1)
        self._met_at: dict[tuple[GlobalAccess, GlobalAccess, Kind, Distance, tuple[int, ...]], bool] = {}
        self._met: dict[tuple[GlobalAccess, GlobalAccess, Kind], Meeting | None] = {}
        self._executions: dict[tuple[GlobalAccess, bool, tuple[Formula, ...]], Executions] = {}
        self._too_hard = 0
        self._forms: Forms | None = None

    @property
    def forms(self) -> Forms:
        """The index values of the kernel."""
        if self._forms is None:
            self._forms = Forms(self.program.kernel)
        return self._forms

    def read(self) -> list[GlobalAccess]:
        """All accesses to tracked arrays, in order."""
        if not self.accesses and self.program.tracked_pointers:
            for op in self.program.ops:
                for effect in self.program.effects(op):
                    view = effect.resource.owner
                    if isinstance(view, tile.ViewOp) and view.pointer in self.program.tracked_pointers:
                        known = access_of(self.forms, op, self.program.index[op], effect)
                        self.accesses.append(known)
                        self.by_effect[op, effect] = known
        return self.accesses

    def executions(self, access: GlobalAccess, with_warps: bool, counters: tuple[Formula, ...] = ()) -> Executions:
        """The executions of an access; `counters`: with where their workgroups arrive."""
        found = self._executions.get((access, with_warps, counters))
        if found is None:
            found = executions_of(self.forms, access, with_warps=with_warps, counters=counters)
            self._executions[access, with_warps, counters] = found
        return found

    def pairs(self) -> Iterator[tuple[GlobalAccess, GlobalAccess]]:
        """Pairs of accesses to one array of which one writes, each with itself included."""
        known = self.read()
        for at, one in enumerate(known):
            for other in known[at:]:
                if one.conflicts(other):
                    yield one, other

    def of(self, op: Operation, effect: Effect | None) -> GlobalAccess:
        """The access that an effect of an operation is."""
        if effect is None:
            raise InternalError("an access to shared memory is none to a global array")
        self.read()
        return self.by_effect[op, effect]

    def partners(self, access: GlobalAccess, kinds: Iterable[Kind]) -> tuple[tuple[GlobalAccess, Meeting], ...]:
        """What may meet an access, executed by agents that are one of these to the one that makes it."""
        found: list[tuple[GlobalAccess, Meeting]] = []
        for other in self.read():
            if other.conflicts(access):
                found += [(other, met) for kind in kinds if (met := self.meeting(access, other, kind)) is not None]
        return tuple(found)

    def meeting(self, one: GlobalAccess, other: GlobalAccess, kind: Kind) -> Meeting | None:
        """Where `other`, the later one, may meet `one`; None: nowhere."""
        key = (one, other, kind)
        if key not in self._met:
            found = self._met[key] = self._meeting(one, other, kind)
            turned = None if found is None else tuple(None if s is None else (-s[1], -s[0]) for s in found.spans)
            self._met[other, one, kind] = None if found is None or turned is None else Meeting(turned, found.doubt)
        return self._met[key]

    def _meeting(self, one: GlobalAccess, other: GlobalAccess, kind: Kind) -> Meeting | None:
        from treadle.verify.integer_sets import TooHard, bounded

        if not _may_be(one, other, kind):
            return NOWHERE
        pair = Pair(self, one, other, kind)
        if self._too_hard >= MAX_TOO_HARD:
            return Meeting((None,) * pair.levels, TOO_LARGE)
        spans: list[list[Span]] = []
        try:
            with bounded():
                for case in pair.cases():
                    if not case.is_empty():
                        spans.append([pair.span(case, level) for level in range(pair.levels)])
        except TooHard:
            self._too_hard += 1
            return Meeting((None,) * pair.levels, TOO_LARGE)
        if not spans:
            return NOWHERE
        return Meeting(tuple(self._limited([case[level] for case in spans]) for level in range(pair.levels)), pair.doubt)

    def meets_apart(self, one: GlobalAccess, other: GlobalAccess, arrival: GlobalAccess) -> bool:
        """Whether the two may meet in workgroups that arrive at different counters."""
        from treadle.verify.integer_sets import IN, OUT, SET, TooHard, bounded, different, pairs_of

        counters = () if arrival.addresses is None else arrival.addresses.places
        compares = Pair(self, one, other, "grid").compares
        try:
            with bounded():
                # Places and counters alone: what else tells executions apart takes long, and can only rule out more.
                before, after = (self._at_counters(access, counters, compares=compares) for access in (one, other))
                found, places = pairs_of(before, after), before.dim(SET) - len(counters)
                for at in range(places):
                    found = found.equate(IN, at, OUT, at)
                ways = [way for at in range(places, places + len(counters)) for way in different(found, at, at)]
                return not counters or not all(way.is_empty() for way in ways)
        except TooHard:
            return True

    def _at_counters(self, access: GlobalAccess, counters: tuple[Formula, ...], *, compares: bool) -> "Set":
        """Places of an access (none unless they can be compared), each with the counters that its workgroup arrives at."""
        from treadle.verify.integer_sets import SET

        known = self.executions(access, with_warps=False, counters=counters)
        kept = [*range(known.places if compares else 0), *(known.at[f"{COUNTER}{at}"] for at in range(len(counters)))]
        found = known.set
        for at in reversed(range(found.dim(SET))):
            if at not in kept:
                found = found.project_out(SET, at, 1)
        return found

    def _limited(self, spans: list[Span]) -> Span:
        """The span of several cases; None where it is too wide."""
        known = [span for span in spans if span is not None]
        if len(known) < len(spans):
            return None
        low, high = min(span[0] for span in known), max(span[1] for span in known)
        return (low, high) if low >= -self.farthest and high <= self.farthest else None

    def witness(self, one: GlobalAccess, other: GlobalAccess, kind: Kind, distance: Distance | None = None) -> list[str] | None:
        """Two executions that do meet (at a distance), described; None where there is none, or none is sure."""
        from treadle.verify.integer_sets import TooHard, bounded, pair_in

        pair = Pair(self, one, other, kind)
        try:
            with bounded():
                for case in pair.cases(distance) if not pair.doubt else ():
                    if (found := pair_in(case)) is not None:
                        return pair.describe(found)
        except TooHard:
            pass
        return None

    def meets_at(self, one: GlobalAccess, other: GlobalAccess, kind: Kind, distance: Distance, inner: tuple[int, ...] = ()) -> bool:
        """Whether the two may meet at a distance of iterations. `inner`: the iterations of loops that the other one alone is in."""
        key = (one, other, kind, distance, inner)
        if (known := self._met_at.get(key)) is not None:
            return known
        found = self._met_at[key] = self._meets_at(Pair(self, one, other, kind), distance, inner)
        return found

    @staticmethod
    def _meets_at(pair: "Pair", distance: Distance, inner: tuple[int, ...]) -> bool:
        from treadle.verify.integer_sets import TooHard, bounded

        try:
            with bounded():
                return not all(case.is_empty() for case in pair.cases(distance, inner))
        except TooHard:
            return True


def _may_be(one: GlobalAccess, other: GlobalAccess, kind: Kind) -> bool:
    """Whether agents that are this to each other execute the two."""
    if kind in ("strand", "team"):
        return one.role is other.role
    if kind == "workgroup":
        return one.role is not other.role or not one.group.is_constant
    return True


class Pair:
    """Two accesses and who executes them. `doubt`: why their sets are larger than the truth; empty where they are exact."""

    def __init__(self, arrays: GlobalArrays, one: GlobalAccess, other: GlobalAccess, kind: Kind) -> None:
        self.arrays, self.forms, self.one, self.other, self.kind = arrays, arrays.forms, one, other, kind
        self.common = 0
        for a, b in zip(one.loops, other.loops, strict=False):
            if a is not b:
                break
            self.common += 1
        # Loops of different roles are taken level by level; those that one agent runs one after the other are not comparable.
        self.levels = min(len(one.loops), len(other.loops)) if one.role is not other.role else self.common
        self.compares = self._compares()
        doubts = [] if self.compares else ["the strides of its views are not known to be the same"]
        doubts += [access.doubt for access in (one, other) if not access.is_exact]
        self.doubt = doubts[0] if doubts else ""

    def _compares(self) -> bool:
        """Whether the places of both are coordinates of one box, so that equal ones are one place."""
        one, other = self.one.addresses, self.other.addresses
        if one is None or other is None:
            return False
        if one.is_linear or other.is_linear:
            return one.is_linear and other.is_linear
        if one.offset != other.offset or len(one.places) != len(other.places):
            return False
        if one.is_nested and other.is_nested and one.strides == other.strides:
            return True
        if (one.strides, one.sizes) != (other.strides, other.sizes):
            return False
        for access, addresses in ((self.one, one), (self.other, other)):
            if not addresses.is_nested:
                self.arrays.assumed[access.op] = "no two elements of its view share an address"
        return True

    def span(self, case: "Map", level: int) -> Span:
        """By how many iterations the later access is ahead in a case."""
        from treadle.verify.integer_sets import distances

        with_warps = self.kind in ("strand", "team")
        one, other = self.arrays.executions(self.one, with_warps), self.arrays.executions(self.other, with_warps)
        return distances(case, one.at[self.one.numbers[level]], other.at[self.other.numbers[level]])

    # --- relations

    def cases(self, distance: Distance | None = None, inner: tuple[int, ...] = ()) -> "Iterator[Map]":
        """The pairs of executions that meet, case by case; `distance`: those of iterations so far apart.

        `inner`: the iterations of the loops that the other one alone is in.
        """
        from treadle.verify.integer_sets import IN, OUT, apart_by, pairs_of

        with_warps = self.kind in ("strand", "team")
        one, other = self.arrays.executions(self.one, with_warps), self.arrays.executions(self.other, with_warps)
        found = pairs_of(one.set, other.set)
        for at in range(one.places if self.compares else 0):
            found = found.equate(IN, at, OUT, at)
        for level, ahead in enumerate(distance or ()):
            if ahead is not None:
                found = apart_by(found, one.at[self.one.numbers[level]], other.at[self.other.numbers[level]], ahead)
        for level, number in enumerate(inner, len(self.other.loops) - len(inner)):
            found = found.fix_val(OUT, other.at[self.other.numbers[level]], number)
        if self.kind == "strand":
            found = found.equate(IN, one.at[self.one.warp], OUT, other.at[self.other.warp])
        for shared, apart in self._who():
            yield from self._case(found, one, other, shared, apart)

    def _case(self, found: "Map", one: Executions, other: Executions, shared: set[str], apart: list[tuple[str, str]]) -> "Iterator[Map]":
        """One case: symbols that both executions share, and pairs of symbols that differ."""
        from treadle.verify.integer_sets import IN, OUT, different

        for name in one.at.keys() & other.at.keys():
            on = self.forms.symbols[name].depends if name in self.forms.symbols else {name}
            if on <= shared:
                found = found.equate(IN, one.at[name], OUT, other.at[name])
        ways = [found]
        for a, b in apart:
            ways = [new for way in ways for new in different(way, one.at[a], other.at[b])]
        for known, (when, then, family) in one.injections.items():
            for number, (to, gives, of) in other.injections.items():
                if known == number or (family and family == of):
                    ways = [new for way in ways for new in _injected(way, (when, then), (to, gives)) if not new.is_empty()]
        yield from ways

    def _who(self) -> Iterator[tuple[set[str], list[tuple[str, str]]]]:
        """Which symbols both executions share, and which differ. Together the cases are everything."""
        forms, kind, one, other = self.forms, self.kind, self.one, self.other
        ids = [str(i) for i in forms.ids if not i.is_constant]
        varying = {name for access in (one, other) for name in access.names if not forms.symbols[name].is_exact}
        on = {name for symbol in varying for name in forms.symbols[symbol].depends}
        if kind in ("grid", "cluster"):
            yield from self._two_workgroups(ids, bool(on.intersection(ids)))
            return
        shared = set(ids)
        apart: list[tuple[str, str]] = []
        group = "" if one.group.is_constant else str(one.group)
        if kind in ("strand", "team") and group:
            shared.add(group)
        elif kind == "workgroup" and group and one.role is other.role:
            apart.append((group, group))
        if kind == "team":
            apart.append((one.warp, other.warp))
        numbers = one.numbers[: self.common]
        if not on.intersection(numbers):
            yield shared, apart
            return
        for level, number in enumerate(numbers):
            yield {*shared, *numbers[:level]}, [*apart, (number, number)]
        yield {*shared, *numbers}, apart

    def _two_workgroups(self, ids: list[str], varies: bool) -> Iterator[tuple[set[str], list[tuple[str, str]]]]:
        """Two workgroups of one cluster, or of different ones (by the axes along which they differ, where values depend on that)."""
        if not ids:
            return
        has_clusters = self.forms.kernel.cluster_size() > 1
        if self.kind == "cluster":
            if has_clusters:
                yield {CLUSTER, *ids[1:]}, [(ids[0], ids[0])]
            return
        axes = [CLUSTER, *ids[1:]] if has_clusters else ids
        if not varies:
            yield from ((set[str](), [(axis, axis)]) for axis in axes)
            return
        for which in range(1, 1 << len(axes)):
            differ = [axis for at, axis in enumerate(axes) if which >> at & 1]
            yield set(axes).difference(differ), [(axis, axis) for axis in differ]

    # --- words

    def describe(self, found: tuple[dict[str, int], list[int], list[int]]) -> list[str]:
        """A pair of executions in words: the sizes, then what each of the two does."""
        forms = self.forms
        parameters, *points = found
        sizes = [f"{forms.symbols[name].meaning} = {value}" for name, value in parameters.items()]
        lines = ["with " + ", ".join(sizes)] if sizes else []
        with_warps = self.kind in ("strand", "team")
        for access, point in zip((self.one, self.other), points, strict=True):
            at = self.arrays.executions(access, with_warps).at
            ids = [0 if i.is_constant else point[at[str(i)]] for i in forms.ids]
            loops = "".join(f", iteration {point[at[number]]}" for number in access.numbers)
            element = [point[at[name]] if name else 0 for name in access.elements]
            does = "writes" if access.is_write else "reads"
            lines.append(f"workgroup {ids}{loops}: {access.op.name} {does} the place of element {element} of its tile")
        return lines


def _injected(found: "Map", before: tuple[list[int], list[int]], after: tuple[list[int], list[int]]) -> "Iterator[Map]":
    """The pairs that agree with an injection: those with equal origins, and those that differ somewhere."""
    from treadle.verify.integer_sets import IN, OUT, different

    equal = found
    for a, b in zip(before[1], after[1], strict=True):
        equal = equal.equate(IN, a, OUT, b)
    yield equal
    for a, b in zip(before[0], after[0], strict=True):
        yield from different(found, a, b)
