"""The programs of regions, by digest: compiled once a process, found again by graphs that PyTorch loads from its cache.

What a region is compiled from lies beside PyTorch's own cache, so that both go together.
"""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import treadle
from treadle.errors import TORCH_REGION, InternalError, TreadleError
from treadle.ir.text import print_module
from treadle.options import CompileOptions
from treadle.records import Record
from treadle.runtime.cache import key_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from treadle.driver import Program
    from treadle.ir.builtin import ModuleOp

_DIGITS: Final = 32
_WORKERS: Final = 8


class Recipe(Record):
    """What a program is compiled from: text, target and the options that are not the compiler's own."""

    text: str
    target: str
    f32_precision: str

    @property
    def digest(self) -> str:
        """Equal for equal recipes."""
        return key_of(self.text, self.target, self.f32_precision)[:_DIGITS]


_programs: dict[str, "Program"] = {}
_refused: dict[str, str] = {}


def recipe_of(module: "ModuleOp", target: str, options: CompileOptions) -> Recipe:
    """The recipe of a module."""
    return Recipe(print_module(module), target, options.f32_precision)


def folder() -> Path:
    """Where recipes and reports lie: beside PyTorch's own cache."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return Path(cache_dir()) / "treadle-regions"


def _compiled(recipe: Recipe) -> "Program | str":
    """The program, or why there is none."""
    try:
        return treadle.compile(recipe.text, recipe.target, CompileOptions(f32_precision=recipe.f32_precision))  # pyright: ignore
    except TreadleError as refused:
        return f"{refused.code}: {refused.message}"
    except InternalError as defect:
        return f"a defect of the compiler: {str(defect).splitlines()[0]}"


def build(recipes: "Iterable[Recipe]") -> None:
    """Compile those that are new, side by side: the machine's tools take most of the time, and run as processes of their own."""
    wanted = {recipe.digest: recipe for recipe in recipes}
    fresh = {digest: recipe for digest, recipe in wanted.items() if digest not in _programs and digest not in _refused}
    workers = min(_WORKERS, os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool:
        for digest, found in zip(fresh, pool.map(_compiled, fresh.values()), strict=True):
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
    """A program that was built, by this process or an earlier one. Raises TR122 where its recipe has gone."""
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
