"""Index values as one of a few affine forms, up to a small remainder that residues decide: sums, quotients and remainders by constants,
minima and maxima, selections.

`floor(x / 3)` is `(x - x mod 3) / 3`: a third of a form, less a remainder of which the residue of x says which it is.
"""

from math import lcm

from treadle.ir.ancestry import ancestors
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.records import Record
from treadle.verify.scalars import INDEX_BITS, Linear, LinearForms, add, constant_value, is_narrow, width_of

MAX_PIECES = 8
MAX_SLACK = 64
MAX_SHIFT = 30
_QUOTIENTS = ("arith.divui", "arith.divsi", "arith.floordivsi", "arith.shrui", "arith.shrsi", "arith.ceildivsi", "arith.ceildivui")
_REMAINDERS = ("arith.remui", "arith.remsi")
_EXTREMES = ("arith.minsi", "arith.maxsi")
_CASTS = ("arith.index_cast", "arith.index_castui")


class Piece(Record):
    """`divisor * value = form + r` with a remainder `low <= r <= high`.

    With `source`: `value = floor(form / divisor)`, of which no remainder has to be known: a quotient of that value.
    """

    form: Linear
    divisor: int = 1
    low: int = 0
    high: int = 0
    source: SSAValue | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the value is the form."""
        return self.divisor == 1 and self.low == self.high == 0


class Pieces(Record):
    """The forms that a value may be, and how it is told which.

    `pivots`: differences whose sign decides. `residues`: values with the moduli to which they matter; they must be zero or more.
    `conditions`: truth values of selections.
    """

    all: tuple[Piece, ...]
    pivots: tuple[Piece, ...] = ()
    residues: tuple[tuple[SSAValue, int], ...] = ()
    conditions: tuple[SSAValue, ...] = ()


def difference(forms: LinearForms, one: SSAValue, other: SSAValue) -> Pieces | None:
    """`one - other`; None where it has too many forms."""
    return _sum(pieces(forms, one), pieces(forms, other), -1)


def pieces(forms: LinearForms, value: SSAValue) -> Pieces | None:
    """The forms of a value; None where they are too many, in a loop. Outside of all loops the value is then a form of its own: what it is
    made of, the class shares where it is made.
    """
    found = _pieces(forms, value)
    return Pieces((Piece(forms.of(value)),)) if found is None and not _is_in_loop(value.owner) else found


def _is_in_loop(owner: Operation | Block) -> bool:
    op = owner if isinstance(owner, Operation) else owner.parent_op()
    return isinstance(op, scf.ForOp) or (op is not None and any(isinstance(around, scf.ForOp) for around in ancestors(op)))


def _pieces(forms: LinearForms, value: SSAValue) -> Pieces | None:
    op = value.owner
    plain = Pieces((Piece(forms.of(value)),))
    if not isinstance(op, Operation) or not op.results or is_narrow(op):
        return plain
    match op.name:
        case "arith.addi" | "arith.subi":
            return _sum(pieces(forms, op.operands[0]), pieces(forms, op.operands[1]), 1 if op.name == "arith.addi" else -1)
        case "arith.muli":
            for one, other in (op.operands, tuple(reversed(op.operands))):
                if (factor := _constant(other)) is not None:
                    return _scaled(pieces(forms, one), factor)
            return plain
        case _ if op.name in _CASTS and width_of(op.operands[0].type) >= INDEX_BITS:
            return pieces(forms, op.operands[0])
        case _ if op.name in _EXTREMES:
            if not _is_in_loop(op):
                return plain  # which one it is, the class shares already
            one, other = pieces(forms, op.operands[0]), pieces(forms, op.operands[1])
            apart = _sum(one, other, -1)
            if one is None or other is None or apart is None:
                return None
            return _limited(Pieces(one.all + other.all, apart.pivots + apart.all, apart.residues, apart.conditions))
        case "arith.select":
            one, other = pieces(forms, op.operands[1]), pieces(forms, op.operands[2])
            both = _sum(one, other, -1)
            if one is None or other is None or both is None:
                return None
            return _limited(Pieces(one.all + other.all, both.pivots, both.residues, (op.operands[0], *both.conditions)))
        case _ if op.name in _QUOTIENTS or op.name in _REMAINDERS:
            return _divided(forms, op) or plain
        case _:
            return plain


def _constant(value: SSAValue) -> int | None:
    owner = value.owner
    return constant_value(owner) if isinstance(owner, Operation) and owner.name == "arith.constant" else None


def _divided(forms: LinearForms, op: Operation) -> Pieces | None:
    known = _constant(op.operands[1])
    if known is None or known < 0 or ("shr" in op.name and known > MAX_SHIFT):
        return None
    divisor = 1 << known if "shr" in op.name else known
    inner = pieces(forms, op.operands[0])
    if inner is None or not divisor:
        return None
    residues = (*inner.residues, (op.operands[0], divisor))
    more = divisor - 1 if "ceil" in op.name else 0  # ceil(f / d) is floor((f + d - 1) / d)
    if op.name in _REMAINDERS:
        return Pieces((Piece(((), 0), 1, 0, divisor - 1),), inner.pivots, residues, inner.conditions) if divisor <= MAX_SLACK else None
    if all(p.is_plain or p.source is not None for p in inner.all):
        quotients = tuple(Piece(add(((), p.divisor * more), p.form, 1), p.divisor * divisor, 0, 0, op.operands[0]) for p in inner.all)
        return Pieces(quotients, inner.pivots, (*inner.residues, (op.operands[0], 1)), inner.conditions)
    low, high = more - divisor + 1, more
    divided = tuple(Piece(p.form, p.divisor * divisor, p.low + p.divisor * low, p.high + p.divisor * high) for p in inner.all)
    return _limited(Pieces(divided, inner.pivots, residues, inner.conditions))


def _scaled(of: Pieces | None, factor: int) -> Pieces | None:
    if of is None:
        return None
    found: list[Piece] = []
    residues = dict.fromkeys(of.residues)
    for piece in of.all:
        if piece.source is not None and factor in (1, -1):
            found.append(piece if factor == 1 else _negated(piece))
            continue
        p = _with_remainder(piece, residues)
        ends = sorted((factor * p.low, factor * p.high))
        found.append(Piece(add(((), 0), p.form, factor), p.divisor, ends[0], ends[1]))
    return _limited(Pieces(tuple(found), of.pivots, tuple(residues), of.conditions))


def _negated(piece: Piece) -> Piece:
    """`-floor(f / d)` is `floor((d - 1 - f) / d)`."""
    return Piece(add(((), piece.divisor - 1), piece.form, -1), piece.divisor, 0, 0, piece.source)


def _with_remainder(piece: Piece, residues: dict[tuple[SSAValue, int], None]) -> Piece:
    """A quotient as a form and a remainder."""
    if piece.source is None:
        return piece
    residues[piece.source, piece.divisor] = None
    return Piece(piece.form, piece.divisor, 1 - piece.divisor, 0)


def _sum(one: Pieces | None, other: Pieces | None, sign: int) -> Pieces | None:
    if one is None or other is None:
        return None
    found: list[Piece] = []
    residues = dict.fromkeys(one.residues + other.residues)
    for a in one.all:
        for b in other.all:
            if a.source is not None and b.is_plain:
                found.append(Piece(add(a.form, b.form, sign * a.divisor), a.divisor, 0, 0, a.source))
                continue
            if b.source is not None and a.is_plain:
                right = b if sign > 0 else _negated(b)
                found.append(Piece(add(right.form, a.form, right.divisor), right.divisor, 0, 0, right.source))
                continue
            found.append(_joined(_with_remainder(a, residues), _with_remainder(b, residues), sign))
    conditions = tuple(dict.fromkeys(one.conditions + other.conditions))
    return _limited(Pieces(tuple(dict.fromkeys(found)), one.pivots + other.pivots, tuple(residues), conditions))


def _joined(a: Piece, b: Piece, sign: int) -> Piece:
    divisor = lcm(a.divisor, b.divisor)
    left, right = divisor // a.divisor, sign * (divisor // b.divisor)
    ends = sorted((right * b.low, right * b.high))
    form = add(add(((), 0), a.form, left), b.form, right)
    return Piece(form, divisor, left * a.low + ends[0], left * a.high + ends[1])


def _limited(found: Pieces) -> Pieces | None:
    is_small = len(found.all) <= MAX_PIECES and len(found.pivots) <= MAX_PIECES
    return found if is_small and all(p.high - p.low <= MAX_SLACK for p in (*found.all, *found.pivots)) else None
