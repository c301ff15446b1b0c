"""`#linalg.type_fn<cast_signed>` and `#linalg.type_fn<cast_unsigned>`: how a named operation widens integers."""

from treadle.ir.core import Attribute, AttrParser, Data, Printer, VerifyException, irdl_attr_definition

CASTS = ("cast_signed", "cast_unsigned")


@irdl_attr_definition
class TypeFnAttr(Data[str]):
    """Value of the attribute `cast`; `data` is one of `CASTS`."""

    name = "linalg.type_fn"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        with parser.in_angle_brackets():
            start = parser.pos
            way = parser.parse_identifier()
            if way not in CASTS:
                parser.raise_error(f"#linalg.type_fn<{way}>: expected one of {', '.join(CASTS)}", start, parser.pos)
        return way

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.data)


def is_unsigned(cast: Attribute | None) -> bool:
    """Whether an operation with this `cast` (None: without) widens integers with zeros; `VerifyException` for other attributes."""
    if cast is not None and not isinstance(cast, TypeFnAttr):
        raise VerifyException(f"cast must be #linalg.type_fn<cast_signed> or #linalg.type_fn<cast_unsigned>, found {cast}")
    return cast is not None and cast.data == "cast_unsigned"
