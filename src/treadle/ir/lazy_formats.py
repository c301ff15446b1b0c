"""Assembly formats of operations are parsed with their first use, not with the import of their dialect.

Upstream parses the format of each operation of each dialect when its class is made, a tenth of the compiler's import; a program uses few.
"""

from functools import cached_property

from xdsl.irdl import IRDLOperation, OpDef
from xdsl.irdl.declarative_assembly_format import FormatProgram
from xdsl.parser import Parser
from xdsl.printer import Printer

_parse_format = FormatProgram.from_str


class LazyFormat(FormatProgram):
    """A format that is still text. A wrong one raises upstream's ParseError at the first operation it is used for."""

    def __init__(self, input: str, op_def: OpDef) -> None:
        self.__dict__.update(text=input, op_def=op_def)  # the base class is a frozen dataclass

    @cached_property
    def program(self) -> FormatProgram:
        """The parsed format."""
        return _parse_format(self.__dict__["text"], self.__dict__["op_def"])

    def parse(self, parser: Parser, op_type: type[IRDLOperation]) -> IRDLOperation:
        """As upstream."""
        return self.program.parse(parser, op_type)

    def print(self, printer: Printer, op: IRDLOperation) -> None:
        """As upstream."""
        self.program.print(printer, op)


FormatProgram.from_str = staticmethod(LazyFormat)
