"""Which values the unknowns of a program may have together, in the notation of integer sets: where sizes have no number."""

from treadle.ir.dialects import builtin
from treadle.plan.expr import Atom, Expr
from treadle.verify.unknowns import Unknowns


def names_of(unknowns: Unknowns) -> list[str]:
    """A name for each in the notation of integer sets."""
    return [f"u{at}" for at in range(len(unknowns.all))]


def domain_of(unknowns: Unknowns) -> str:
    """The values that they may have together, as a condition."""
    names = names_of(unknowns)
    parts = [f"{u.low} <= {name} <= {u.high}" for name, u in zip(names, unknowns.all, strict=True)]
    symbols, extra = _symbols(unknowns), dict[str, str]()
    ids = {unknown.axis: at for at, unknown in enumerate(unknowns.all)}
    for axis, extent in enumerate(unknowns.grid()):
        at = ids.get(axis)
        text = _text(extent, symbols, extra)
        if text is None:
            parts += [f"{known} >= 1" for factor in _factors(extent) if (known := _text(factor, symbols, extra)) is not None]
        elif at is None:
            parts.append(f"{text} >= 1")
        else:
            parts.append(f"{unknowns.all[at].factor} * {names[at]} + {unknowns.all[at].factor} <= {text}")
    if not extra:
        return " and ".join(parts)
    parts += [f"0 <= {name} <= {unknowns.largest_index}" for name in extra.values()]
    return f"(exists {', '.join(extra.values())} : {' and '.join(parts)})"


def _symbols(unknowns: Unknowns) -> dict[str, str]:
    kernel = unknowns.program.kernel
    known = {value: name for unknown, name in zip(unknowns.all, names_of(unknowns), strict=True) for value in unknown.values}
    arguments = kernel.body.block.args
    symbols = [symbol.data for symbol in kernel.symbols.data if isinstance(symbol, builtin.StringAttr)]
    return {
        symbol: known[argument]
        for symbol, argument in zip(symbols, arguments[len(arguments) - len(symbols) :], strict=True)
        if argument in known
    }


def _factors(extent: Expr) -> list[Expr]:
    """The factors of a product, each of which is one or more where the product is: two that may be below zero need not be."""
    if len(extent.terms) != 1 or extent.terms[0][1] <= 0:
        return []
    factors = [Expr({(atom,): 1}) for atom in extent.terms[0][0]]
    sure = [factor for factor in factors if _is_never_negative(factor)]
    return factors if len(sure) + 1 >= len(factors) else sure


def _is_never_negative(expr: Expr) -> bool:
    """Whether an expression of sizes is zero or more, as far as signs tell."""

    def is_sure(atom: Atom) -> bool:
        signs = [_is_never_negative(argument) for argument in atom.args]
        match atom.kind:
            case "symbol":
                return True
            case "%":
                return (atom.args[1].as_int() or 0) > 0 or all(signs)
            case "max":
                return any(signs)
            case "table":
                return min(atom.values) >= 0
            case _:
                return all(signs)

    return all(count >= 0 and all(map(is_sure, atoms)) for atoms, count in expr.terms)


def _text(expr: Expr, symbols: dict[str, str], extra: dict[str, str]) -> str | None:
    """A size expression in the notation of integer sets; None where it has products of symbols. `extra`: symbols that are no unknowns."""
    parts: list[str] = []
    for factors, count in expr.terms:
        if len(factors) > 1:
            return None
        if not factors:
            parts.append(str(count))
            continue
        (atom,) = factors
        if atom.kind == "symbol":
            name = symbols.get(atom.name) or extra.setdefault(atom.name, f"e{len(extra)}")
        else:
            inner = [_text(argument, symbols, extra) for argument in atom.args]
            if any(text is None for text in inner):
                return None
            if atom.kind == "table" or (atom.kind in ("//", "%") and not atom.args[1].is_constant):
                return None
            left, right = inner[0], inner[1]
            name = {"//": f"floor(({left}) / {right})", "%": f"(({left}) mod {right})"}.get(atom.kind, f"{atom.kind}({left}, {right})")
        parts.append(name if count == 1 else f"{count} * {name}")
    return " + ".join(parts) or "0"
