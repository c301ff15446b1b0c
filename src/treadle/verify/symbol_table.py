"""Symbols and the formulas that expressions over them make."""

from collections.abc import Iterable, Sequence

from treadle.plan import expr
from treadle.plan.expr import Expr
from treadle.plan.expr_atoms import Atom, Factors
from treadle.verify.formulas import Formula, Injection, Symbol, both, symbols_in


class SymbolTable:
    """Symbols by name, each made once for a key, and what is known of pairs of executions."""

    def __init__(self) -> None:
        self.symbols: dict[str, Symbol] = {}
        self.injections: list[Injection] = []
        self.named: dict[object, str] = {}

    def symbol(
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
        name = self.named.get(key)
        if name is None:
            name = self.named[key] = f"{prefix}{len(self.named)}"
            own = tuple(fact.replace("{self}", f"{{{name}}}") for fact in facts)
            on = frozenset((name,)) if depends is None else depends
            self.symbols[name] = Symbol(name, on, own, is_exact, is_nonnegative, meaning or name)
        return expr.symbol(name)

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
            case "table":
                return min(atom.values) >= 0

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
        known = self.symbol(
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
            case "table":
                return None

    def is_within(self, value: Expr, limit: Expr, names: set[str]) -> bool:
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
