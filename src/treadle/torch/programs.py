"""The programs of regions, by digest: compiled once a process, found again by graphs that PyTorch loads from its cache.

New ones are compiled side by side in processes of their own, from the moment that they are written, where the machine has cores for it.
What a region is compiled from lies beside PyTorch's own cache, so that both go together.
"""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from treadle import driver
from treadle.driver import apart
from treadle.errors import TORCH_REGION, InternalError, TreadleError
from treadle.machine.registrations import is_extended
from treadle.options import CompileOptions
from treadle.records import Record
from treadle.runtime.cache import key_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from concurrent.futures import Future

    from treadle.driver import Program
    from treadle.ir.builtin import ModuleOp

_DIGITS: Final = 32
_WORKERS: Final = 8
_READY: Final = 4
"""Processes that get ready for a graph: a layer of a transformer has as many different programs, or a few more."""


class Recipe(Record):
    """What a program is compiled from: text, target and the options that are not the compiler's own."""

    text: str
    target: str
    f32_precision: str

    @property
    def digest(self) -> str:
        """Equal for equal recipes."""
        return key_of(self.text, self.target, self.f32_precision)[:_DIGITS]

    @property
    def options(self) -> CompileOptions:
        """What it is compiled with."""
        return CompileOptions(f32_precision=self.f32_precision)  # pyright: ignore[reportArgumentType] - written from such options


_programs: dict[str, "Program"] = {}
_refused: dict[str, str] = {}
_begun: "dict[str, Future[str | None]]" = {}
"""Those that are compiled apart at the moment."""


def recipe_of(module: "ModuleOp", target: str, options: CompileOptions) -> Recipe:
    """The recipe of a module."""
    from treadle.ir.text import print_module  # a start from PyTorch's cache needs no IR

    return Recipe(print_module(module), target, options.f32_precision)


def folder() -> Path:
    """Where recipes and reports lie: beside PyTorch's own cache."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return Path(cache_dir()) / "treadle-regions"


def _compiled(recipe: Recipe) -> "Program | str":
    """The program, or why there is none."""
    return apart.outcome(recipe.text, recipe.target, recipe.options)


@contextmanager
def expected(target: str) -> "Generator[None]":
    """While a graph is compiled: processes get ready to compile regions for a target while PyTorch traces. Not where PyTorch's cache holds
    other graphs with regions: likely it holds this one.
    """
    if not apart.is_worthwhile() or folder().exists():
        yield
        return
    with suppress(TreadleError):  # no device, or no such target: regions will say so
        apart.COMPILERS.prepare(_READY, _architecture(target))
    try:
        yield
    finally:
        apart.COMPILERS.spare()


def _architecture(target: str) -> str:
    """The device's for "auto". Raises TreadleError where there is none."""
    return driver.target_of_device("auto") if target == "auto" else target


def begin(recipe: Recipe) -> None:
    """Have a new program compiled while this process goes on; `build` waits for it."""
    digest = recipe.digest
    if digest in _programs or digest in _refused or digest in _begun or recipe.target == "sim" or not apart.is_worthwhile():
        return
    with suppress(TreadleError):  # no device: `build` says so
        target = _architecture(recipe.target)
        if not is_extended() and not driver.is_kept(recipe.text, target, recipe.options):
            _begun[digest] = apart.COMPILERS.begin(recipe.text, target, recipe.options)


def _finished(recipe: Recipe) -> "Program | str":
    """The program, or why there is none, of a recipe that may have been begun: what was compiled apart is in the disk cache."""
    if (begun := _begun.pop(recipe.digest, None)) is not None:
        with suppress(apart.Unanswered):
            if (reason := begun.result()) is not None:
                return reason
    return _compiled(recipe)


def build(recipes: "Iterable[Recipe]") -> None:
    """See to it that those that are new are compiled: side by side, as the machine's tools run in processes of their own."""
    wanted = {recipe.digest: recipe for recipe in recipes}
    fresh = {digest: recipe for digest, recipe in wanted.items() if digest not in _programs and digest not in _refused}
    workers = min(_WORKERS, os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool:
        for digest, found in zip(fresh, pool.map(_finished, fresh.values()), strict=True):
            if isinstance(found, str):
                _refused[digest] = found
            else:
                _programs[digest] = found
    for digest, recipe in wanted.items():
        if digest in _programs:
            _keep(recipe)  # those of old too: the folder may be another one by now


def _keep(recipe: Recipe) -> None:
    """Write a recipe where a later process finds it; without it that process could not run graphs that PyTorch has kept."""
    target = folder() / f"{recipe.digest}.json"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{recipe.digest}.{os.getpid()}")
        part.write_text(json.dumps([recipe.text, recipe.target, recipe.f32_precision]), encoding="utf-8")
        part.replace(target)


def refusal(digest: str) -> str | None:
    """Why there is no program; None where there is one."""
    return _refused.get(digest)


def program(digest: str) -> "Program":
    """The program of a region, by the digest in its row of the report; built by this process or an earlier one. Raises TR122 where what it
    is compiled from has gone.
    """
    found = _programs.get(digest)
    return found if found is not None else _found_again(digest)


@lru_cache(maxsize=1024)
def _found_again(digest: str) -> "Program":
    path = folder() / f"{digest}.json"
    if not path.exists():
        raise TreadleError(TORCH_REGION, path=path)
    found = _compiled(Recipe(*json.loads(path.read_text(encoding="utf-8"))))
    if isinstance(found, str):
        raise InternalError(f"a region that was compiled before is refused now: {found}")
    _programs[digest] = found
    return found
