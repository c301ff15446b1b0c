"""A program from its text, a file, or a module built in memory: parsed, verified, checked for its level. The one loader there is."""

import os

import treadle.dialects  # noqa: F401 # pyright: ignore[reportUnusedImport] - makes our dialects known to the parser
from treadle.frontends import kernels, mlir
from treadle.frontends.files import read_text
from treadle.frontends.levels import Level, level_of
from treadle.ir.builtin import ModuleOp
from treadle.ir.text import parse_module, verify_module
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class Loaded:
    """A module that holds one program, and the level it is at."""

    module: ModuleOp
    level: Level


def load_text(text: str, file: str = mlir.DEFAULT_FILE, function: str | None = None, level: Level | None = None) -> Loaded:
    """The program that a text spells; `file` is the name in locations. The rest as for `load_module`, and TR101, TR102 for the text."""
    return _checked(parse_module(text, file), file, function, level)


def load_path(path: str | os.PathLike[str], function: str | None = None, level: Level | None = None) -> Loaded:
    """The program in a file. The rest as for `load_text`, and TR901 for a file that cannot be read."""
    return load_text(read_text(path), str(path), function, level)


def load_module(module: ModuleOp, function: str | None = None, level: Level | None = None, file: str = "<module>") -> Loaded:
    """A module that was built in memory: it is verified, completed and changed in place.

    `function` picks one of several functions, programs or kernels, `level` is told from the operations where it is not given.
    Raises `TreadleError`: TR201 and TR416 for operations that do not verify, and what `mlir.check` and `kernels.complete` raise.
    """
    verify_module(module)
    return _checked(module, file, function, level)


def _checked(module: ModuleOp, file: str, function: str | None, level: Level | None) -> Loaded:
    level = level or level_of(module)
    if level == "tensor":
        mlir.check(module, function, file)
    else:
        kernels.complete(module, function, file)
    return Loaded(module, level)
