"""Index values of a kernel as expressions of what tells executions apart: workgroup ids, loop numbers, groups, sizes.

Every value becomes an `Expr` over *symbols*. Workgroup ids, numbers of iterations (from 0) and of groups, and the kernel's index arguments
are exact symbols. What no expression covers becomes a symbol of its own, with the facts that are known of it: exactly (a select, a signed
quotient), or in part (a product of two unknowns, a value that a loop carries in some other way than by steps).

Formulas are texts in isl's notation in which symbols stand in braces: two executions of one kernel are told apart by renaming them.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd

from treadle.dialects import pipe, tile
from treadle.dialects.tile_attributes import PointerType
from treadle.ir.core import Block, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.plan import expr
from treadle.plan.expr import Expr
from treadle.plan.expr_atoms import Atom, Factors
from treadle.verify.scalars import constant_value, width_of

Formula = str
NEVER_SHARED = "?"
"""Among what a symbol depends on: it may differ even between two agents at one point of the program."""
_COMPARISONS = {0: "=", 1: "!=", 2: "<", 3: "<=", 4: ">", 5: ">=", 6: "<", 7: "<=", 8: ">", 9: ">="}
_PLACE = re.compile(r"{(\w+)}")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A quantity. `depends`: the symbols that fix its value (none: the same in all executions); `meaning`: for messages.

    `facts` hold for every execution; `is_exact`: they say all there is to say.
    """

    name: str
    depends: frozenset[str]
    facts: tuple[Formula, ...] = ()
    is_exact: bool = True
    is_nonnegative: bool = False
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Injection:
    """For any two executions: where all `when` are equal, all `then` are. All are formulas of `symbols`."""

    symbols: frozenset[str]
    when: tuple[Formula, ...]
    then: tuple[Formula, ...]


def symbols_in(formula: Formula) -> set[str]:
    """The symbols of a formula."""
    return set(_PLACE.findall(formula))


def both(parts: Iterable[Formula]) -> Formula:
    """The conjunction."""
    return " and ".join(f"({part})" for part in parts) or "0 = 0"


class Forms:
    """The values of a kernel as expressions, each looked at once."""

    def __init__(self, kernel: tile.KernelOp) -> None:
        self.kernel = kernel
        self.symbols: dict[str, Symbol] = {}
        self.injections: list[Injection] = []
        self._known: dict[SSAValue, Expr] = {}
        self._named: dict[object, str] = {}
        self._open: set[str] = set()
        arguments = [a for a in kernel.body.block.args if not isinstance(a.type, PointerType)]
        names: dict[str, expr.ExprLike] = {}
        for name, argument in zip(kernel.symbol_names(), arguments, strict=True):
            known = self._symbol(argument, "n", frozenset(), facts=("{self} >= 0",), is_nonnegative=True, meaning=name)
            self._known[argument] = names[name] = known
        self.grid = [expr.parse(text).substitute(names) for text in kernel.grid_text()]
        self.ids = [self._workgroup_id(axis) for axis in range(3)]

    # --- symbols

    def _symbol(
        self,
        key: object,
        prefix: str,
        depends: frozenset[str] | None,
        *,
        facts: Sequence[Formula] = (),
        is_exact: bool = True,
        is_nonnegative: bool = False,
        meaning: str = "",
    ) -> Expr:
        """The symbol for a key. In its facts {self} is its name. `depends` None: on itself, it tells executions apart."""
        name = self._named.get(key)
        if name is None:
            name = self._named[key] = f"{prefix}{len(self._named)}"
            own = tuple(fact.replace("{self}", f"{{{name}}}") for fact in facts)
            on = frozenset((name,)) if depends is None else depends
            self.symbols[name] = Symbol(name, on, own, is_exact, is_nonnegative, meaning or name)
        return expr.symbol(name)

    def _workgroup_id(self, axis: int) -> Expr:
        size = self.grid[axis]
        if size == 1:
            return expr.constant(0)
        count = self.formula(size)
        facts = [f"0 <= {{self}} < {count}"]
        if axis == 0 and self.kernel.cluster_size() > 1:
            facts.append(f"({count} mod {self.kernel.cluster_size()}) = 0")
        return self._symbol(("id", axis), "w", None, facts=facts, is_nonnegative=True, meaning=f"workgroup id {axis}")

    def group(self, role: Operation | None, count: int) -> Expr:
        """The number of the group that executes a role."""
        if role is None or count == 1:
            return expr.constant(0)
        return self._symbol(("group", role), "g", None, facts=(f"0 <= {{self}} < {count}",), is_nonnegative=True, meaning="group")

    def number(self, loop: scf.ForOp) -> Expr:
        """The number of an iteration of a loop, from 0."""
        return self._symbol(("number", loop), "k", None, facts=("{self} >= 0",), is_nonnegative=True, meaning="iteration")

    def element(self, key: object, extent: int) -> Expr:
        """A coordinate within a tile."""
        return self._symbol(key, "e", None, facts=(f"0 <= {{self}} < {extent}",), is_nonnegative=True, meaning="element")

    def closed(self, names: Iterable[str]) -> set[str]:
        """The symbols with all that their facts speak of."""
        found: set[str] = set()
        work = list(names)
        while work:
            name = work.pop()
            if name not in found:
                found.add(name)
                work += [other for fact in self.symbols[name].facts for other in symbols_in(fact)]
        return found

    def is_exact(self, names: Iterable[str]) -> bool:
        """Whether nothing about the symbols was left out."""
        return all(self.symbols[name].is_exact for name in self.closed(names))

    def depends(self, *values: Expr) -> frozenset[str]:
        """What tells the values of expressions apart."""
        found: set[str] = set()
        for value in values:
            for name in value.symbols():
                found |= self.symbols[name].depends
        return frozenset(found)

    def is_nonnegative(self, value: Expr) -> bool:
        """Whether a value is at least 0, by its form alone."""
        return all(factor > 0 and all(self._is_nonnegative(a) for a in atoms) for atoms, factor in value.terms)

    def _is_nonnegative(self, atom: Atom) -> bool:
        match atom.kind:
            case "symbol":
                return self.symbols[atom.name].is_nonnegative
            case "//" | "%":
                return (atom.args[1].as_int() or 0) > 0 and (atom.kind == "%" or self.is_nonnegative(atom.args[0]))
            case "min":
                return all(self.is_nonnegative(arg) for arg in atom.args)
            case "max":
                return any(self.is_nonnegative(arg) for arg in atom.args)

    # --- formulas

    def formula(self, value: Expr) -> Formula:
        """A value as an affine formula; products of unknowns become symbols."""
        parts = [f"{factor}" if not atoms else f"{factor} * {self._product(atoms)}" for atoms, factor in value.terms]
        return f"({' + '.join(parts)})" if parts else "0"

    def _product(self, atoms: Factors) -> Formula:
        if len(atoms) == 1 and (known := self._atom(atoms[0])) is not None:
            return known
        whole = [Expr({(atom,): 1}) for atom in atoms]
        bounds = ("{self} >= 0",) if all(self.is_nonnegative(part) for part in whole) else ()
        text = " * ".join(map(str, whole))
        known = self._symbol(
            ("product", text), "m", self.depends(*whole), facts=bounds, is_exact=False, is_nonnegative=bool(bounds), meaning=text
        )
        return f"{{{known}}}"

    def _atom(self, atom: Atom) -> Formula | None:
        match atom.kind:
            case "symbol":
                return f"{{{atom.name}}}"
            case "min" | "max":
                return f"{atom.kind}({', '.join(self.formula(arg) for arg in atom.args)})"
            case "//" | "%":
                by = atom.args[1].as_int()
                if by is None or by <= 0:
                    return None
                inner = self.formula(atom.args[0])
                return f"floor({inner}/{by})" if atom.kind == "//" else f"({inner} mod {by})"

    # --- values

    def of(self, value: SSAValue) -> Expr:
        """A value of integer or index type."""
        found = self._known.get(value)
        if found is None:
            found = self._argument(value) if isinstance(value, BlockArgument) else self._result(value)
            # What is said in terms of a carried value that is being looked at does not hold outside.
            if not self._open or not self._open.intersection(self.closed(found.symbols())):
                self._known[value] = found
        return found

    def scope(self, op: Operation) -> frozenset[str]:
        """What tells executions of an operation apart: ids, group and iterations of the loops it is in."""
        found = self.depends(*self.ids)
        parent, inside = op.parent_op(), op
        while parent is not None:
            if isinstance(parent, scf.ForOp):
                found |= self.depends(self.number(parent))
            elif isinstance(parent, pipe.RolesOp):
                found |= self.depends(self.group(*role_of(parent, inside)))
            parent, inside = parent.parent_op(), parent
        return found

    def _unknown(self, value: SSAValue, depends: frozenset[str], facts: Sequence[Formula] = (), *, is_exact: bool = False) -> Expr:
        owner = value.owner
        meaning = owner.name if isinstance(owner, Operation) else "a value that a loop carries"
        key = (value, *sorted(self._open))
        return self._symbol(key, "x", depends, facts=facts, is_exact=is_exact, meaning=meaning)

    def _argument(self, value: BlockArgument) -> Expr:
        block = value.owner
        loop = block.parent_op() if isinstance(block, Block) else None
        if not isinstance(loop, scf.ForOp):
            return self._unknown(value, frozenset((NEVER_SHARED,)))
        return self._induction(loop) if value.index == 0 else self._carried(loop, value)

    def _induction(self, loop: scf.ForOp) -> Expr:
        first, step, number = self.of(loop.lb), self.of(loop.step), self.number(loop)
        by = step.as_int()
        if by is not None and by > 0:
            return first + number * by
        # An unknown step: the loop's values are known by their order, and where the start lies within a step, by where they come from.
        unit = gcd(*(factor for _, factor in (*first.terms, *step.terms))) or 1
        start, stride = first // unit, step // unit
        depends = self.depends(first, step, number)
        low = (f"{{self}} >= {self.formula(start)}",)
        is_above, meaning = self.is_nonnegative(start), "a loop with an unknown step"
        known = self._symbol(("iv", loop), "j", depends, facts=low, is_exact=False, is_nonnegative=is_above, meaning=meaning)
        if not self.depends(stride) and self._is_within(start, stride, self.closed({*start.symbols(), *stride.symbols()})):
            self.injections.append(Injection(frozenset((str(known),)), (f"{{{known}}}",), (f"{{{number}}}", self.formula(start))))
        return known * unit

    def _is_within(self, value: Expr, limit: Expr, names: set[str]) -> bool:
        """Whether 0 <= value < limit in every execution."""
        from treadle.verify.integer_sets import TooHard, bounded, integer_set

        outside = f"not (0 <= {self.formula(value)} < {self.formula(limit)})"
        names = self.closed(names | symbols_in(outside))
        facts = [fact for name in sorted(names) for fact in self.symbols[name].facts]
        body = both([outside, *facts]).format_map({name: name for name in names})
        try:
            with bounded():
                return integer_set(f"{{ [{', '.join(sorted(names))}] : {body} }}").is_empty()
        except TooHard:
            return False

    def _carried(self, loop: scf.ForOp, value: BlockArgument) -> Expr:
        """A carried value: its start and a step an iteration, where the step is the same in all."""
        at = value.index - 1
        closed = self._steps(loop, value)
        if closed is not None:
            return self.of(loop.iter_args[at]) + self.number(loop) * closed
        return self._unknown(value, self.scope(loop) | self.depends(self.number(loop)))

    def _steps(self, loop: scf.ForOp, value: BlockArgument) -> Expr | None:
        """By how much each iteration raises a carried value; None where that differs, or is not known."""
        end = loop.body.block.last_op
        if end is None or not width_of(value.type):
            return None
        tentative = self._symbol(("carried", value), "c", frozenset((NEVER_SHARED,)), is_exact=False)
        name = str(tentative)
        if name in self._open:
            return None
        self._open.add(name)
        self._known[value] = tentative
        change = self.of(end.operands[value.index - 1]) - tentative
        del self._known[value]
        self._open.discard(name)
        varies = self._open | {name, str(self.number(loop))}
        if varies.intersection(self.closed(change.symbols())) or varies.intersection(self.depends(change)):
            return None
        return change if self.depends(change) <= self.scope(loop) else None

    def trips(self, loop: scf.ForOp) -> Expr | None:
        """How many iterations a loop makes."""
        first, last, by = self.of(loop.lb), self.of(loop.ub), self.of(loop.step).as_int()
        return expr.maximum(0, expr.ceil_div(last - first, by)) if by is not None and by > 0 else None

    def _result(self, value: SSAValue) -> Expr:
        op = value.owner
        if not isinstance(op, Operation) or not width_of(value.type):
            return self._symbol(value, "x", frozenset((NEVER_SHARED,)), is_exact=False, meaning="an unknown value")
        match op:
            case tile.ProgramIdOp():
                return self.ids[op.axis.value.data]
            case pipe.ClusterRankOp():
                return self.ids[0] % self.kernel.cluster_size()
            case pipe.GroupIdOp():
                return self._group_id(op)
            case scf.ForOp():
                return self._after(op, op.results.index(value))
            case scf.IfOp():
                return self._either_way(op, op.results.index(value))
            case _:
                return self._arithmetic(op)

    def _group_id(self, op: Operation) -> Expr:
        parent, inside = op.parent_op(), op
        while parent is not None:
            if isinstance(parent, pipe.RolesOp):
                return self.group(*role_of(parent, inside))
            parent, inside = parent.parent_op(), parent
        return expr.constant(0)

    def _after(self, loop: scf.ForOp, at: int) -> Expr:
        carried = loop.body.block.args[at + 1]
        step, count = self._steps(loop, carried), self.trips(loop)
        if step is None or count is None:
            return self._unknown(loop.results[at], self.scope(loop))
        return self.of(loop.iter_args[at]) + step * count

    def _either_way(self, op: scf.IfOp, at: int) -> Expr:
        ends = [region.block.last_op for region in op.regions if region.blocks]
        if len(ends) < 2 or ends[0] is None or ends[1] is None:
            return self._unknown(op.results[at], self.scope(op))
        return self._chosen(op.results[at], op.cond, self.of(ends[0].operands[at]), self.of(ends[1].operands[at]))

    def _chosen(self, value: SSAValue, condition: SSAValue, one: Expr, other: Expr) -> Expr:
        if one == other:
            return one
        owner = value.owner
        scope = self.scope(owner) if isinstance(owner, Operation) else frozenset((NEVER_SHARED,))
        decided = self.condition(condition)
        a, b = f"{{self}} = {self.formula(one)}", f"{{self}} = {self.formula(other)}"
        if decided is None:
            return self._unknown(value, scope, (f"({a}) or ({b})",))
        return self._unknown(value, scope, (f"(({decided}) and {a}) or (not ({decided}) and {b})",), is_exact=True)

    # --- arithmetic

    def _arithmetic(self, op: Operation) -> Expr:
        value = op.results[0]
        if op.name == "arith.constant":
            number = constant_value(op)
            return self._unknown(value, frozenset()) if number is None else expr.constant(number)
        if op.name == "arith.select":
            return self._chosen(value, op.operands[0], self.of(op.operands[1]), self.of(op.operands[2]))
        if op.regions or not op.name.startswith("arith."):
            return self._unknown(value, self.scope(op) | {NEVER_SHARED})
        operands = [self.of(operand) for operand in op.operands]
        found = self._exactly(op, operands)
        if found is None:
            found = self._unknown(value, self.depends(*operands))
        return found

    def _exactly(self, op: Operation, operands: list[Expr]) -> Expr | None:
        """The value where it can be said; None where only that it follows from the operands."""
        a, b = operands[0], operands[-1]
        signed = all(self.is_nonnegative(value) for value in operands)
        match op.name:
            case "arith.addi":
                return a + b
            case "arith.subi":
                return a - b
            case "arith.muli":
                return a * b
            case "arith.index_cast" | "arith.extsi":
                return a if width_of(op.operands[0].type) > 1 else None
            case "arith.extui" | "arith.index_castui":
                return a if signed and width_of(op.operands[0].type) > 1 else None
            case "arith.trunci":
                return a if width_of(op.results[0].type) >= 32 else None
            case "arith.minsi" | "arith.maxsi":
                return expr.minimum(a, b) if op.name == "arith.minsi" else expr.maximum(a, b)
            case "arith.minui" | "arith.maxui" if signed:
                return expr.minimum(a, b) if op.name == "arith.minui" else expr.maximum(a, b)
            case "arith.shli":
                by = b.as_int()
                return a * (1 << by) if by is not None and 0 <= by < 31 else None
            case "arith.andi":
                mask = b.as_int()
                return a % (mask + 1) if mask is not None and mask > 0 and mask & (mask + 1) == 0 else None
            case "arith.shrsi" | "arith.shrui":
                by = b.as_int()
                return self._divided(op, a, expr.constant(1 << by)) if by is not None and 0 <= by < 31 else None
            case _ if "div" in op.name or "rem" in op.name:
                return self._divided(op, a, b)
            case _:
                return None

    def _divided(self, op: Operation, a: Expr, b: Expr) -> Expr | None:
        by = b.as_int()
        if by is None:
            return self._by_unknown(op, a, b)
        if by <= 0:
            return None
        is_remainder = "rem" in op.name
        if op.name.startswith("arith.ceildiv"):
            return expr.ceil_div(a, b) if op.name.endswith("si") or self.is_nonnegative(a) else None
        if self.is_nonnegative(a) or op.name in ("arith.floordivsi", "arith.shrsi"):
            return a % b if is_remainder else a // b
        value = self.formula(a)
        if op.name.endswith("ui"):
            wrapped = a + (1 << width_of(op.operands[0].type, op))
            below = self.formula(wrapped % by if is_remainder else wrapped // by)
        else:
            below = self.formula(-(-a % by) if is_remainder else -(-a // by))
        above = self.formula(a % b if is_remainder else a // b)
        fact = f"({value} >= 0 and {{self}} = {above}) or ({value} < 0 and {{self}} = {below})"
        return self._unknown(op.results[0], self.depends(a), (fact,), is_exact=True)

    def _by_unknown(self, op: Operation, a: Expr, b: Expr) -> Expr | None:
        """Quotient and remainder by a size: together they say what was divided."""
        if self.depends(b) or not self.is_nonnegative(a) or not self.is_nonnegative(b) or "ceil" in op.name:
            return None
        whole, by = self.formula(a), self.formula(b)
        depends, key = self.depends(a), (str(a), str(b))
        first = ("quotient", key) not in self._named
        q = self._symbol(
            ("quotient", key), "q", depends, facts=(f"0 <= {{self}} <= {whole}",), is_exact=False, is_nonnegative=True, meaning=op.name
        )
        facts = (f"0 <= {{self}} < {by}", f"{{self}} <= {whole}")
        r = self._symbol(("remainder", key), "r", depends, facts=facts, is_exact=False, is_nonnegative=True, meaning=op.name)
        if first:
            self.injections.append(Injection(frozenset((str(q), str(r))), (f"{{{q}}}", f"{{{r}}}"), (whole,)))
        return r if "rem" in op.name else q

    # --- conditions

    def condition(self, value: SSAValue) -> Formula | None:
        """A truth value as a formula; None where it is not known."""
        op = value.owner
        if not isinstance(op, Operation):
            return None
        match op.name:
            case "arith.constant":
                return "0 = 0" if constant_value(op) else "0 = 1"
            case "arith.cmpi":
                return self._comparison(op)
            case "arith.andi" | "arith.ori" | "arith.xori":
                one, other = self.condition(op.operands[0]), self.condition(op.operands[1])
                if one is None or other is None:
                    return None
                if op.name == "arith.xori":
                    return f"((({one}) and not ({other})) or (({other}) and not ({one})))"
                return f"(({one}) {'and' if op.name == 'arith.andi' else 'or'} ({other}))"
            case _:
                return None

    def _comparison(self, op: Operation) -> Formula | None:
        predicate = op.properties["predicate"]
        which = int(predicate.value.data) if isinstance(predicate, builtin.IntegerAttr) else -1
        if width_of(op.operands[0].type) <= 1 or which not in _COMPARISONS:
            return None
        one, other = self.of(op.operands[0]), self.of(op.operands[1])
        if which >= 6 and not (self.is_nonnegative(one) and self.is_nonnegative(other)):
            return None
        return f"({self.formula(one)} {_COMPARISONS[which]} {self.formula(other)})"


def role_of(roles: pipe.RolesOp, inside: Operation) -> tuple[Operation | None, int]:
    """A key for the role that an operation of its region belongs to (the region's first operation), and how many groups it has."""
    at = next(at for at, region in enumerate(roles.roles) if inside.parent is region.block)
    return roles.roles[at].block.first_op, roles.role_groups()[at]
