"""How a kernel is computed, as one attribute: `#tile.form<roles, tile = [64, 256, 64], num_stages = 4>`.

The dialect knows a form's name and plain values; what they mean is the business of the form (`transforms/kernel/forms/`).
"""

from collections.abc import Mapping
from typing import NamedTuple

from treadle.ir.core import AttrParser, Data, Printer, irdl_attr_definition

Value = bool | int | str | tuple[int, ...]


class KernelForm(NamedTuple):
    """The name of a form, and the entries of its configuration that differ from their defaults."""

    name: str
    entries: tuple[tuple[str, Value], ...] = ()

    @property
    def values(self) -> Mapping[str, Value]:
        """The entries by name."""
        return dict(self.entries)


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _value(parser: AttrParser) -> Value:
    if (text := parser.parse_optional_str_literal()) is not None:
        return text
    if parser.parse_optional_keyword("true"):
        return True
    if parser.parse_optional_keyword("false"):
        return False
    if (number := parser.parse_optional_integer(allow_boolean=False)) is not None:
        return number
    return tuple(parser.parse_comma_separated_list(AttrParser.Delimiter.SQUARE, parser.parse_integer))


@irdl_attr_definition
class KernelFormAttr(Data[KernelForm]):
    """See the module's docstring."""

    name = "tile.form"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> KernelForm:
        found: dict[str, Value] = {}
        with parser.in_angle_brackets():
            form = parser.parse_identifier()
            while parser.parse_optional_punctuation(",") is not None:
                name = parser.parse_identifier()
                if name in found:
                    parser.raise_error(f"'{name}' is there twice")
                parser.parse_punctuation("=")
                found[name] = _value(parser)
        return KernelForm(form, tuple(found.items()))

    def print_parameter(self, printer: Printer) -> None:
        shown = [self.data.name, *(f"{name} = {_text(value)}" for name, value in self.data.entries)]
        printer.print_string(f"<{', '.join(shown)}>")
