"""MLIR text in and out, with the user's line kept on every operation and in every error."""

import re
from bisect import bisect_right
from dataclasses import dataclass
from io import StringIO
from typing import cast

from treadle.errors import PARSE, UNKNOWN_OP, VERIFY, SourceLocation, TreadleError
from treadle.ir.builtin import AnyFloat, ComplexType, IndexType, IntegerType
from treadle.ir.context import Context, default_context
from treadle.ir.core import Attribute, AttrParser, Operation, ParseError, Parser, Printer
from treadle.ir.dialects import builtin
from treadle.ir.locations import has_location, location_of, make_location, resolve_location

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


_LOCATION_ALIAS = re.compile(r"^(#loc\w*)[ \t]*=[ \t]*(loc\(.*\))[ \t]*$", re.MULTILINE)


def _blank(match: re.Match[str]) -> str:
    return " " * len(match.group())


class LocatingParser(Parser):
    """A parser that gives each operation the place of its name in the text, where the text has no `loc(...)` of its own."""

    def __init__(self, context: Context, text: str, file: str) -> None:
        # MLIR prints the aliases of locations behind the module, where they are used before they are defined: read them first.
        super().__init__(context, _LOCATION_ALIAS.sub(_blank, text), file)
        self._define_locations(dict(_LOCATION_ALIAS.findall(text)))
        self._file = file
        self._line_starts = [0, *(i + 1 for i, c in enumerate(text) if c == "\n")]
        self._op_starts: list[int] = []

    def _define_locations(self, pending: dict[str, str]) -> None:
        """Give every location alias its meaning; aliases may name each other in any order."""
        while pending:
            unresolved: dict[str, str] = {}
            for name, text in pending.items():
                parser = Parser(self.ctx, text)
                parser.attribute_aliases.update(self.attribute_aliases)
                try:
                    location = parser.parse_optional_location()
                except ParseError:
                    unresolved[name] = text
                    continue
                self.attribute_aliases[name] = cast("Attribute", location)
            if len(unresolved) == len(pending):
                return  # a use of one of these is an error with the user's line
            pending = unresolved

    def place(self, position: int) -> SourceLocation:
        """File, line and column (from 1) of a character position."""
        line = bisect_right(self._line_starts, position)
        return SourceLocation(self._file, line, position - self._line_starts[line - 1] + 1)

    @property
    def current_place(self) -> SourceLocation:
        """Where the parser stands."""
        return self.place(self._current_token.span.start)

    def _parse_op_result_list(self):
        results = super()._parse_op_result_list()
        self._op_starts[-1] = self._current_token.span.start
        return results

    def _get_op_by_name(self, name: str) -> type[Operation]:
        found = self.ctx.get_optional_op(name, dialect_stack=self._parser_state.dialect_stack)
        if found is None:
            raise TreadleError(UNKNOWN_OP, self.place(self._op_starts[-1]), name=name)
        return found

    def _parse_tensor_literal_element(self):
        is_hex = self._current_token.text[:2] in ("0x", "0X")
        element = super()._parse_tensor_literal_element()
        return HexElement(element.is_negative, element.value, element.span) if is_hex else element

    def parse_operation(self) -> Operation:
        self._op_starts.append(self._current_token.span.start)
        op = super().parse_operation()
        start = self._op_starts.pop()
        if resolve_location(op.location) is None:
            op.location = make_location(self.place(start))
        return op


def parse_module(text: str, file: str, ctx: Context | None = None) -> builtin.ModuleOp:
    """Parse and verify a module (a list of functions without `module { }` around it is one too).

    `file` is the name used in locations. Without `ctx` the text may use every dialect of the compiler.
    Raises `TreadleError` with the user's line: TR101 bad syntax, TR102 unknown operation, TR201 an operation that does not verify.
    """
    parser = LocatingParser(ctx or default_context(), text, file)
    try:
        module = parser.parse_module()
    except ParseError as error:
        start = error.span.get_location()
        message = error.msg.strip().replace("\n", " ")
        raise TreadleError(PARSE, SourceLocation(file, start.line, start.col), message=message) from error
    except TreadleError:
        raise
    except Exception as error:  # The parsers of upstream operations fail in many ways on text they do not expect.
        raise TreadleError(PARSE, parser.current_place, message=str(error).strip() or type(error).__name__) from error
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


def find_invalid(root: Operation) -> tuple[Operation, str] | None:
    """The first operation that does not verify, innermost first, with the reason; None where all do."""
    try:
        root.verify()
        return None
    except Exception as error:  # noqa: BLE001 - upstream verifiers also fail by assertion
        whole = _reason(error)
    for op in root.walk(region_first=True):
        try:
            op.verify(verify_nested_ops=False)
        except Exception as error:  # noqa: BLE001
            return op, _reason(error)
    return root, whole


def verify_module(module: Operation) -> None:
    """Verify an operation and everything in it; raises `TreadleError` TR201 at the line of the operation at fault."""
    if (invalid := find_invalid(module)) is not None:
        op, reason = invalid
        raise TreadleError(VERIFY, location_of(op), message=f"'{op.name}': {reason}")


def print_module(op: Operation, *, locations: bool = False) -> str:
    """The operation as MLIR text ending in a newline; with `locations` each operation carries its `loc(...)`.

    Nothing is verified: broken IR prints too, for error messages.
    """
    stream = StringIO()
    Printer(stream=stream, print_debuginfo=locations).print_op(op)
    return stream.getvalue().rstrip("\n") + "\n"
