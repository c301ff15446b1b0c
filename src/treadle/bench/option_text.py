"""Compile options as text and as JSON: `num_stages=4`, `tile=128,256,64`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, cast

from treadle import errors
from treadle.errors import TreadleError
from treadle.options import CHOICES, CompileOptions

_DEFAULTS = CompileOptions()


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """`["num_stages=4", "tile=128,256,64"]` as plain values by name. Raises TR822 for a name or value that is none."""
    known = [field.name for field in fields(CompileOptions)]
    found: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or name not in known:
            raise TreadleError(errors.COMPILE_OPTION, text=text, reason="no such option", known=", ".join(known))
        try:
            read = {name: _read(name, value)}
            options_from_plain(_DEFAULTS, read)
        except ValueError as problem:
            raise TreadleError(errors.COMPILE_OPTION, text=text, reason=problem, known=", ".join(known)) from None
        found |= read
    return found


def _read(name: str, text: str) -> Any:
    match getattr(_DEFAULTS, name):
        case bool():
            if text not in ("true", "false"):
                raise ValueError("true or false is wanted")
            return text == "true"
        case int():
            return int(text)
        case tuple():
            return [int(part) for part in text.replace("x", ",").split(",") if part]
        case _:
            if text not in CHOICES.get(name, (text,)):
                raise ValueError(f"one of {', '.join(CHOICES[name])} is wanted")
            return text


def options_from_plain(base: CompileOptions, plain: Mapping[str, Any]) -> CompileOptions:
    """`base` with these values, lists as tuples."""
    return replace(base, **{name: tuple(cast("list[int]", value)) if isinstance(value, list) else value for name, value in plain.items()})


def plain_options(options: CompileOptions) -> dict[str, Any]:
    """The values that differ from the defaults, as JSON has them."""
    values, usual = asdict(options), asdict(_DEFAULTS)
    changed = {name: value for name, value in values.items() if value != usual[name]}
    return {name: list(cast("tuple[int, ...]", value)) if isinstance(value, tuple) else value for name, value in changed.items()}
