"""Index values of a kernel as expressions of what tells executions apart: workgroup ids, loop numbers, groups, sizes.

Every value becomes an `Expr` over *symbols*. Workgroup ids, numbers of iterations (from 0) and of groups, and the kernel's index arguments
are exact symbols. What no expression covers becomes a symbol of its own, with the facts that are known of it: exactly (a select, a signed
quotient), or in part (a product of two unknowns, a value that a loop carries in some other way than by steps).
"""

from collections.abc import Sequence
from math import gcd

from treadle.dialects import pipe, tile
from treadle.dialects.agents import Role, role_of
from treadle.dialects.tile_attributes import PointerType
from treadle.ir.core import Block, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.plan import expr
from treadle.plan.expr import Expr
from treadle.verify.formulas import NEVER_SHARED, Formula, Injection, symbols_in
from treadle.verify.scalars import INDEX_BITS, constant_value, sources_of, width_of
from treadle.verify.symbol_table import SymbolTable

_COMPARISONS = {0: "=", 1: "!=", 2: "<", 3: "<=", 4: ">", 5: ">=", 6: "<", 7: "<=", 8: ">", 9: ">="}
_MAY_WRAP = ("arith.addi", "arith.subi", "arith.muli", "arith.shli")
"""What fewer than 32 bits may not hold, unlike index arithmetic."""
_COMPUTED = ("arith.", "scf.", "tile.program_id", "pipe.group_id", "pipe.cluster_rank")


class Forms(SymbolTable):
    """The values of a kernel as expressions, each looked at once."""

    def __init__(self, kernel: tile.KernelOp) -> None:
        super().__init__()
        self.kernel = kernel
        self._known: dict[SSAValue, Expr] = {}
        self._open: set[str] = set()
        arguments = [a for a in kernel.body.block.args if not isinstance(a.type, PointerType)]
        names: dict[str, expr.ExprLike] = {}
        for name, argument in zip(kernel.symbol_names(), arguments, strict=True):
            known = self.symbol(argument, "n", frozenset(), facts=("{self} >= 0",), is_nonnegative=True, meaning=name)
            self._known[argument] = names[name] = known
        self.grid = [expr.parse(text).substitute(names) for text in kernel.grid_text()]
        self.ids = [self._workgroup_id(axis) for axis in range(3)]

    # --- what tells executions apart

    def _workgroup_id(self, axis: int) -> Expr:
        size = self.grid[axis]
        if size == 1:
            return expr.constant(0)
        count = self.formula(size)
        facts = [f"0 <= {{self}} < {count}"]
        if axis == 0 and self.kernel.cluster_size() > 1:
            facts.append(f"({count} mod {self.kernel.cluster_size()}) = 0")
        return self.symbol(("id", axis), "w", None, facts=facts, is_nonnegative=True, meaning=f"workgroup id {axis}")

    def group(self, role: Role | None) -> Expr:
        """The number of the group that executes a role."""
        if role is None or role.groups == 1:
            return expr.constant(0)
        facts = (f"0 <= {{self}} < {role.groups}",)
        return self.symbol(("group", role.region), "g", None, facts=facts, is_nonnegative=True, meaning="group")

    def number(self, loop: scf.ForOp) -> Expr:
        """The number of an iteration of a loop, from 0."""
        return self.symbol(("number", loop), "k", None, facts=("{self} >= 0",), is_nonnegative=True, meaning="iteration")

    def element(self, key: object, extent: int) -> Expr:
        """A coordinate within a tile."""
        return self.symbol(key, "e", None, facts=(f"0 <= {{self}} < {extent}",), is_nonnegative=True, meaning="element")

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
        found = self.depends(*self.ids, self.group(role_of(op)))
        parent = op.parent_op()
        while parent is not None:
            if isinstance(parent, scf.ForOp):
                found |= self.depends(self.number(parent))
            parent = parent.parent_op()
        return found

    def _unknown(self, value: SSAValue, depends: frozenset[str], facts: Sequence[Formula] = (), *, is_exact: bool = False) -> Expr:
        owner = value.owner
        meaning = owner.name if isinstance(owner, Operation) else "a value that a loop carries"
        if not is_exact and not self._is_computed(value):
            depends |= {NEVER_SHARED}
        key = (value, *sorted(self._open))
        return self.symbol(key, "x", depends, facts=facts, is_exact=is_exact, meaning=meaning)

    def _is_computed(self, value: SSAValue) -> bool:
        """Whether only arithmetic, loops and branches lead to a value: who computes it at one point of the program then gets the same."""
        work, seen = [value], set[SSAValue]()
        while work:
            known = work.pop()
            if known in seen:
                continue
            seen.add(known)
            owner = known.owner
            if isinstance(owner, Operation) and not owner.name.startswith(_COMPUTED):
                return False
            work += sources_of(known)
        return True

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
        return self._in_steps(("iv", loop), first, step, number)

    def _in_steps(self, key: object, first: Expr, step: Expr, number: Expr) -> Expr:
        """The number of an iteration whose step is not known: the loop's values are known by their order, and where the start lies within a
        step, by where they come from.
        """
        unit, start, stride = _in_units(first, step)
        depends = self.depends(first, step, number)
        low = (f"{{self}} >= {self.formula(start)}",)
        is_above, meaning = self.is_nonnegative(start), "a loop with an unknown step"
        known = self.symbol(key, "j", depends, facts=low, is_exact=False, is_nonnegative=is_above, meaning=meaning)
        if self._is_within_step(start, stride):
            self.injections.append(Injection(frozenset((str(known),)), (f"{{{known}}}",), (f"{{{number}}}", self.formula(start))))
        return known * unit

    def _is_within_step(self, start: Expr, stride: Expr) -> bool:
        """Whether a start lies within the first step, or the second."""
        if self.depends(stride):
            return False
        names = self.closed({*start.symbols(), *stride.symbols()})
        return any(self.is_within(known, stride, names) for known in (start, start - stride))

    def _carried(self, loop: scf.ForOp, value: BlockArgument) -> Expr:
        """A carried value: its start and a step an iteration, where the step is the same in all."""
        at = value.index - 1
        closed = self._steps(loop, value)
        if closed is not None:
            first, number = self.of(loop.iter_args[at]), self.number(loop)
            is_told = closed.as_int() is None and self._is_within_step(*_in_units(first, closed)[1:])
            return self._in_steps(("in steps", value), first, closed, number) if is_told else first + number * closed
        return self._unknown(value, self.scope(loop) | self.depends(self.number(loop)))

    def _steps(self, loop: scf.ForOp, value: BlockArgument) -> Expr | None:
        """By how much each iteration raises a carried value; None where that differs, or is not known."""
        end = loop.body.block.last_op
        if end is None or width_of(value.type) < INDEX_BITS:
            return None
        tentative = self.symbol(("carried", value), "c", frozenset((NEVER_SHARED,)), is_exact=False)
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
            return self.symbol(value, "x", frozenset((NEVER_SHARED,)), is_exact=False, meaning="an unknown value")
        match op:
            case tile.ProgramIdOp():
                return self.ids[op.axis.value.data]
            case pipe.ClusterRankOp():
                return self.ids[0] % self.kernel.cluster_size()
            case pipe.GroupIdOp():
                return self.group(role_of(op))
            case scf.ForOp():
                return self._after(op, op.results.index(value))
            case scf.IfOp():
                return self._either_way(op, op.results.index(value))
            case _:
                return self._arithmetic(op)

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
        decided = self.condition(condition)
        a, b = f"{{self}} = {self.formula(one)}", f"{{self}} = {self.formula(other)}"
        if decided is None:
            owner = value.owner
            scope = self.scope(owner) if isinstance(owner, Operation) else frozenset((NEVER_SHARED,))
            return self._unknown(value, scope, (f"({a}) or ({b})",))
        fact = f"(({decided}) and {a}) or (not ({decided}) and {b})"
        depends = {name for symbol in symbols_in(fact) - {"self"} for name in self.symbols[symbol].depends}
        return self._unknown(value, frozenset(depends), (fact,), is_exact=True)

    # --- arithmetic

    def _arithmetic(self, op: Operation) -> Expr:
        value = op.results[0]
        if op.name == "arith.constant":
            number = constant_value(op)
            return self._unknown(value, frozenset()) if number is None else expr.constant(number)
        if op.name == "arith.select":
            return self._chosen(value, op.operands[0], self.of(op.operands[1]), self.of(op.operands[2]))
        if isinstance(op, tile.LookupOp):
            within = (f"{min(op.table)} <= {{self}} <= {max(op.table)}",)
            return self._unknown(value, self.depends(self.of(op.index)), within)
        if op.regions or not op.name.startswith("arith."):
            return self._unknown(value, self.scope(op) | {NEVER_SHARED})
        operands = [self.of(operand) for operand in op.operands]
        found = self._from_digits(op) if op.name == "arith.addi" else None
        if found is None:
            found = self._exactly(op, operands)
        if found is None:
            found = self._unknown(value, self.depends(*operands))
        return found

    def _exactly(self, op: Operation, operands: list[Expr]) -> Expr | None:
        """The value where it can be said; None where only that it follows from the operands."""
        a, b = operands[0], operands[-1]
        bits = width_of(op.results[0].type)
        if bits == 1 or (bits < INDEX_BITS and op.name in _MAY_WRAP):
            return None
        signed = all(self.is_nonnegative(value) for value in operands)
        match op.name:
            case "arith.addi":
                return a + b
            case "arith.subi":
                return a - b
            case "arith.muli":
                return a * b
            case "arith.index_cast" | "arith.extsi":
                return a if _keeps_value(op) else None
            case "arith.extui" | "arith.index_castui":
                return a if signed and _keeps_value(op) else None
            case "arith.trunci":
                return a if width_of(op.results[0].type) >= 32 else None
            case "arith.minsi" | "arith.maxsi":
                return expr.minimum(a, b) if op.name == "arith.minsi" else expr.maximum(a, b)
            case "arith.minui" | "arith.maxui" if signed:
                return expr.minimum(a, b) if op.name == "arith.minui" else expr.maximum(a, b)
            case "arith.shli" | "arith.shrsi" | "arith.shrui":
                return self._shifted(op, a, b.as_int())
            case "arith.andi":
                mask = b.as_int()
                return a % (mask + 1) if mask is not None and mask > 0 and mask & (mask + 1) == 0 else None
            case _ if "div" in op.name or "rem" in op.name:
                return self._divided(op, a, b)
            case _:
                return None

    def _shifted(self, op: Operation, a: Expr, by: int | None) -> Expr | None:
        if by is None or not 0 <= by < 31:
            return None
        return a * (1 << by) if op.name == "arith.shli" else self._divided(op, a, expr.constant(1 << by))

    def _divided(self, op: Operation, a: Expr, b: Expr) -> Expr | None:
        by = b.as_int()
        if by is None:
            return self._by_unknown(op, a, b)
        if by <= 0:
            return None
        is_remainder = "rem" in op.name
        if by == 1:
            return expr.constant(0) if is_remainder else a
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
        first = ("quotient", key) not in self.named
        q = self.symbol(
            ("quotient", key), "q", depends, facts=(f"0 <= {{self}} <= {whole}",), is_exact=False, is_nonnegative=True, meaning=op.name
        )
        facts = (f"0 <= {{self}} < {by}", f"{{self}} <= {whole}")
        r = self.symbol(("remainder", key), "r", depends, facts=facts, is_exact=False, is_nonnegative=True, meaning=op.name)
        if first:
            self.injections.append(Injection(frozenset((str(q), str(r))), (f"{{{q}}}", f"{{{r}}}"), (whole,), f"digits by {by}"))
        return r if "rem" in op.name else q

    def _from_digits(self, op: Operation) -> Expr | None:
        """A number times a size, and something below the size: the sum says what both are. None for other sums."""
        for product, low in (op.operands, tuple(op.operands)[::-1]):
            if not isinstance(owner := product.owner, Operation) or owner.name != "arith.muli" or width_of(product.type) < INDEX_BITS:
                continue
            for high, by in (owner.operands, tuple(owner.operands)[::-1]):
                number, size, rest = self.of(high), self.of(by), self.of(low)
                if size.is_constant or self.depends(size) or not self.depends(number) or not self.is_nonnegative(number):
                    continue
                if self.is_nonnegative(rest) and self.is_within(rest, size, self.closed({*rest.symbols(), *size.symbols()})):
                    return self._sum_of_digits(number, size, rest)
        return None

    def _sum_of_digits(self, number: Expr, size: Expr, rest: Expr) -> Expr:
        key = ("digits", str(number), str(size), str(rest))
        is_new = key not in self.named
        facts = (f"{{self}} = {self.formula(number * size + rest)}",)
        depends = self.depends(number, size, rest)
        known = self.symbol(key, "d", depends, facts=facts, is_exact=False, is_nonnegative=True, meaning="a sum of digits")
        if is_new:
            says = (self.formula(number), self.formula(rest))
            self.injections.append(Injection(frozenset((str(known),)), (f"{{{known}}}",), says, f"sums of digits by {self.formula(size)}"))
        return known

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


def _in_units(first: Expr, step: Expr) -> tuple[int, Expr, Expr]:
    """The largest number that a start and a step are multiples of, and both in terms of it."""
    unit = gcd(*(factor for _, factor in (*first.terms, *step.terms))) or 1
    return unit, first // unit, step // unit


def _keeps_value(op: Operation) -> bool:
    """Whether a cast of a number that is no truth value drops no bits."""
    return width_of(op.operands[0].type) > 1 and width_of(op.results[0].type, op) >= width_of(op.operands[0].type, op)
