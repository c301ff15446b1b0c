"""MLIR text in and out, with the user's line kept on every operation and in every error."""

import re
from bisect import bisect_right
from contextlib import suppress
from io import StringIO
from math import prod
from typing import Any, cast

from xdsl.dialect_interfaces.op_asm import OpAsmDialectInterface
from xdsl.ir import AttributeInvT
from xdsl.parser.core import UnresolvedOperand

from treadle.errors import NESTING, PARSE, SCHEDULE_FORM, UNKNOWN_OP, UNSUPPORTED, VERIFY, SourceLocation, TreadleError
from treadle.ir.builtin import AnyFloat, ComplexType, DenseIntOrFPElementsAttr, IndexType, IntegerType
from treadle.ir.compact_splats import COMPACT_FROM
from treadle.ir.context import Context, default_context
from treadle.ir.core import Attribute, AttrParser, IRDLOperation, Operation, ParseError, Parser, Printer, SSAValue, VerifyException
from treadle.ir.dialects import builtin
from treadle.ir.dominance import used_too_early
from treadle.ir.locations import has_location, location_of, make_location, resolve_location
from treadle.ir.misuse import misuse_in
from treadle.ir.nesting import MAX_DEPTH, too_deep_at
from treadle.ir.refused import advice_on
from treadle.ir.resources import fill_resources
from treadle.records import dataclass

__all__ = ["location_of", "parse_module", "print_module", "verify_module"]


@dataclass
class HexElement(Parser._TensorLiteralElement):  # pyright: ignore[reportPrivateUsage]
    """A hexadecimal element of `dense<..>`: for floats it is the bit pattern (upstream reads `0xFF800000` as 4286578688.0)."""

    def to_type(self, parser: AttrParser, type: AnyFloat | IntegerType | IndexType | ComplexType):
        if isinstance(type, AnyFloat):
            width = type.compile_time_size
            if not isinstance(self.value, int) or self.value >= 1 << (8 * width):
                parser.raise_error(f"'{self.span.text}' is no bit pattern of {type}", at_position=self.span)
            return next(type.iter_unpack(self.value.to_bytes(width, "little")))
        return super().to_type(parser, type)


_OPERATION_NAME = re.compile(r"[a-z_][\w.]*")
_IS_MISSING = re.compile(r"expected|mismatch|out of range", re.IGNORECASE)
"""Failures noticed at the token behind the place at fault."""

_LOCATION_ALIAS = re.compile(r"^(#loc\w*)[ \t]*=[ \t]*(loc\(.*\))[ \t]*$", re.MULTILINE)

_LOCATION_NAME = re.compile(r"#loc\w*")


def _words(error: Exception) -> str:
    """The first line of a message (the others show the text) on one line."""
    message = error.msg if isinstance(error, ParseError) else str(error).partition("\n")[0]
    return message.strip().replace("\n", " ")


_COMMENT = re.compile(r"//[^\n]*")


def _blank(match: re.Match[str]) -> str:
    return " " * len(match.group())


_PROMISES = ("overflowFlags", "nonNeg", "isExact", "isDisjoint", "fastmath")
"""Properties that only promise something about the operands, or permit more: an operation that has no such property may go without."""


def _drop_promises(op: Operation) -> None:
    given = [name for name in _PROMISES if name in op.properties]
    if given and isinstance(op, IRDLOperation):
        known = op.get_irdl_definition().properties
        for name in given:
            if name not in known:
                del op.properties[name]


class LocatingParser(Parser):
    """A parser that gives each operation the place of its name in the text, where the text has no `loc(...)` of its own."""

    def __init__(self, context: Context, text: str, file: str) -> None:
        # MLIR prints the aliases of locations behind the module, where they are used before they are defined: read them first.
        super().__init__(context, _LOCATION_ALIAS.sub(_blank, text), file)
        self._define_locations(dict(_LOCATION_ALIAS.findall(text)))
        self._text = text
        self._file = file
        self._line_starts = [0, *(i + 1 for i, c in enumerate(text) if c == "\n")]
        self._op_starts: list[int] = []
        self._first_uses: dict[str, int] = {}
        self.resources: dict[str, str] = {}

    def _define_locations(self, pending: dict[str, str]) -> None:
        """Give every location alias its meaning; aliases may name each other in any order."""
        order, started = list(reversed(pending)), set[str]()
        while order:
            name = order[-1]
            needed = [other for other in _LOCATION_NAME.findall(pending[name]) if other in pending and other not in started]
            if name not in started and needed:
                started.add(name)
                order += needed
                continue
            started.add(order.pop())
            if name in self.attribute_aliases:
                continue
            parser = Parser(self.ctx, pending[name])
            parser.attribute_aliases = self.attribute_aliases
            with suppress(ParseError, RecursionError):  # a use of this one is an error with the user's line
                self.attribute_aliases[name] = cast("Attribute", parser.parse_optional_location())

    def place(self, position: int) -> SourceLocation:
        """File, line and column (from 1) of a character position."""
        line = bisect_right(self._line_starts, position)
        return SourceLocation(self._file, line, position - self._line_starts[line - 1] + 1)

    def error_of(self, error: Exception) -> TreadleError:
        """What a failure of the upstream parser means to the user: the place and the words are often its own, not the text's."""
        if isinstance(error, RecursionError):  # prefixes such as `- - - d0` nest without brackets
            return TreadleError(NESTING, self.place(self._current_token.span.start), limit=MAX_DEPTH)
        if not isinstance(error, ParseError):  # an operation refused what it was built from: all of it is at fault
            start = self._op_starts[-1] if self._op_starts else self._current_token.span.start
            name = _OPERATION_NAME.match(self._text, start)
            message = f"'{name.group()}': " if name else ""
            message += _words(error) or f"this is not the form of the operation ({type(error).__name__})"
            return TreadleError(PARSE, self.place(start), message=message)
        start, message = error.span.start, _words(error)
        undefined = {name: self._first_uses[name] for name in self.forward_ssa_references if name in self._first_uses}
        if message.startswith("values used but not defined") and undefined:
            name, start = min(undefined.items(), key=lambda item: item[1])
            return TreadleError(PARSE, self.place(start), message=f"'%{name}' is used but not defined")
        if message in ("in block definition", "Could not parse entire input!"):
            found = self._text[start : error.span.end]
            message = f"expected an operation, found '{found}'" if found else "the text ends where an operation or '}' is expected"
        elif "{first_char}" in message:
            message = "this character starts no name"
        if not self._text[start : error.span.end] or (_IS_MISSING.search(message) and not self._line_before(start).strip()):
            start = len(self._text[:start].rstrip())  # what is missing belongs behind what stands before it, as in MLIR's own messages
        return TreadleError(PARSE, self.place(start), message=message)

    def _line_before(self, position: int) -> str:
        return self._text[self._line_starts[bisect_right(self._line_starts, position) - 1] : position]

    def resolve_operand(self, operand: UnresolvedOperand, type: AttributeInvT) -> SSAValue[AttributeInvT]:
        if operand.operand_name not in self.ssa_values:
            self._first_uses.setdefault(operand.operand_name, operand.span.start)
        return super().resolve_operand(operand, type)

    def _parse_op_result_list(self):
        results = super()._parse_op_result_list()
        self._op_starts[-1] = self._current_token.span.start
        return results

    def _get_op_by_name(self, name: str) -> type[Operation]:
        found = self.ctx.get_optional_op(name, dialect_stack=self._parser_state.dialect_stack)
        if found is None and (advice := advice_on(name)) is not None:
            raise TreadleError(UNSUPPORTED, self.place(self._op_starts[-1]), what=f"operation '{name}'", hint=advice)
        if found is None:
            raise TreadleError(UNKNOWN_OP, self.place(self._op_starts[-1]), name=name)
        return found

    def _parse_dialect_resource_handle(self, dialect_name: str, interface: OpAsmDialectInterface) -> str:
        # Upstream keeps the data in the dialect, which all modules share, and gives equal names of two modules new ones.
        literal = self.parse_optional_str_literal()
        return self.parse_identifier(" for resource handle") if literal is None else literal

    def _parse_resource(self, dialect_name: str, interface: OpAsmDialectInterface) -> None:
        key = self._parse_dialect_resource_handle(dialect_name, interface)
        self.parse_punctuation(":")
        self.resources[key] = self.parse_str_literal()

    def _parse_tensor_literal_element(self):
        is_hex = self._current_token.text[:2] in ("0x", "0X")
        element = super()._parse_tensor_literal_element()
        return HexElement(element.is_negative, element.value, element.span) if is_hex else element

    def parse_dense_int_or_fp_elements_attr(self, type: Any) -> DenseIntOrFPElementsAttr:
        """As upstream, which would write `dense<1.0>` out for every element of its type."""
        start = self.pos
        self.parse_punctuation("<", " in dense attribute")
        if self._current_token.text[0] not in '[">':
            value = self._parse_tensor_literal_element()
            self.parse_punctuation(">", " in dense attribute")
            if type is None:
                self.parse_punctuation(":", " in dense attribute")
                type = self._parse_dense_literal_type()
            count = prod(type.get_shape())
            values = [cast("float", value.to_type(self, type.element_type))] * (count if count < COMPACT_FROM else 1)
            return DenseIntOrFPElementsAttr.from_list(type, values)
        self._resume_from(start)
        return super().parse_dense_int_or_fp_elements_attr(type)

    def parse_operation(self) -> Operation:
        self._op_starts.append(self._current_token.span.start)
        op = super().parse_operation()
        start = self._op_starts.pop()
        _drop_promises(op)
        if resolve_location(op.location) is None:
            op.location = make_location(self.place(start))
        return op


def parse_module(text: str, file: str, ctx: Context | None = None) -> builtin.ModuleOp:
    """Parse and verify a module (a list of functions without `module { }` around it is one too).

    `file` is the name used in locations. Without `ctx` the text may use every dialect of the compiler.
    Raises `TreadleError` with the user's line: TR101 bad syntax, TR102 unknown operation, TR201 an operation that does not verify,
    TR416 one that stands where it cannot or names what no machine has.
    """
    if not _COMMENT.sub("", text).strip():
        raise TreadleError(PARSE, SourceLocation(file, 1, 1), message="the text holds no operations")
    if (deep := too_deep_at(text)) is not None:
        column = deep - text.rfind("\n", 0, deep)
        raise TreadleError(NESTING, SourceLocation(file, text.count("\n", 0, deep) + 1, column), limit=MAX_DEPTH)
    try:
        parser = LocatingParser(ctx or default_context(), text, file)
    except ParseError as error:  # the first token is read at once
        start = error.span.get_location()
        raise TreadleError(PARSE, SourceLocation(file, start.line, start.col), message=_words(error)) from error
    try:
        module = parser.parse_module()
    except TreadleError:
        raise
    except Exception as error:  # The parsers of upstream operations fail in many ways on text they do not expect.
        raise parser.error_of(error) from error
    fill_resources(module, parser.resources)
    if not has_location(module):
        module.location = make_location(SourceLocation(file, 1, 1))
    for op in module.walk():
        parent = op.parent_op()
        if parent is not None and not has_location(op):
            op.location = parent.location
    verify_module(module)
    return module


def _reason(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.removeprefix("Operation does not verify: ").replace("\n", " ")


def _first_invalid(root: Operation) -> tuple[Operation, BaseException] | None:
    if (early := used_too_early(root)) is not None:  # first: verifiers follow values to their definitions
        op, number = early
        return op, VerifyException(f"operand {number} is used before it is defined")
    try:
        root.verify()
        return None
    except Exception as error:  # noqa: BLE001 - upstream verifiers also fail by assertion
        whole = error
    for op in root.walk(region_first=True):
        try:
            op.verify(verify_nested_ops=False)
        except Exception as error:  # noqa: BLE001
            return op, error
    return root, whole


def find_invalid(root: Operation) -> tuple[Operation, str] | None:
    """The first operation that does not verify, innermost first, with the reason; None where all do."""
    found = _first_invalid(root)
    return None if found is None else (found[0], _reason(found[1]))


def verify_module(module: Operation) -> None:
    """Verify an operation and everything in it; raises `TreadleError` TR201 or TR416 at the line of the operation at fault."""
    if (invalid := _first_invalid(module)) is None:
        return
    op, error = invalid
    if (misuse := misuse_in(error)) is not None:
        raise TreadleError(SCHEDULE_FORM, location_of(op), op=op.name, reason=misuse.reason, fix=misuse.fix)
    raise TreadleError(VERIFY, location_of(op), message=f"'{op.name}': {_reason(error)}")


class _QuickPrinter(Printer):
    """Writes text of one line, which nearly all is, without asking how to indent it."""

    def print_string(self, text: str, *, indent: int | None = None) -> None:
        if "\n" in text or self.stream is None:
            super().print_string(text, indent=indent)
            return
        self._current_column += len(text)
        self.stream.write(text)


def print_module(op: Operation, *, locations: bool = False) -> str:
    """The operation as MLIR text ending in a newline; with `locations` each operation carries its `loc(...)`.

    Nothing is verified: broken IR prints too, for error messages.
    """
    stream = StringIO()
    _QuickPrinter(stream=stream, print_debuginfo=locations).print_op(op)
    return stream.getvalue().rstrip("\n") + "\n"
