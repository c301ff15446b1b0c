"""What a user hands to the compiler: a program as text, as the path of a file, or as a module built in memory."""

import os
from typing import TYPE_CHECKING

from treadle.frontends.files import read_text
from treadle.records import Record

if TYPE_CHECKING:
    from treadle.frontends.levels import Level
    from treadle.frontends.loading import Loaded
    from treadle.ir.builtin import ModuleOp

    SourceLike = str | os.PathLike[str] | ModuleOp

TEXT_FILE = "<text>"
MODULE_FILE = "<module>"


class Source(Record):
    """A program: its text, and the file name that locations in it carry.

    `level`: the level that it is said to be at, told from its operations where it is None. `module`: the program as it was built in
    memory, never changed; the text is what is printed of it, and what a pickled source keeps.
    """

    text: str
    file: str
    level: "Level | None" = None
    module: "ModuleOp | None" = None

    def load(self, function: str | None = None) -> "Loaded":
        """The program as a module of its own, which may be changed. Raises what `frontends.loading` raises."""
        from treadle.frontends.loading import load_module, load_text

        if self.module is not None:
            return load_module(self.module.clone(), function, self.level, self.file)
        return load_text(self.text, self.file, function, self.level)

    def __getstate__(self) -> dict[str, object]:
        """Without the module: text is what another process can read."""
        return {**self.__dict__, "module": None}


def read_source(source: "SourceLike", level: "Level | None" = None) -> Source:
    """The text itself where `source` is a string with a line break or a brace, else the contents of the file, or a copy of the module.

    Raises TreadleError TR901 for a file that cannot be read.
    """
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return Source(source, TEXT_FILE, level)
    if isinstance(source, str | os.PathLike):
        return Source(read_text(source), str(os.fspath(source)), level)
    from treadle.ir.text import print_module

    return Source(print_module(source, locations=True), MODULE_FILE, level, source.clone())
