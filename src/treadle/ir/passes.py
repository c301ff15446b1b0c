"""Passes: their protocol, their names and options on the command line, and the loop that runs and verifies them."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, replace
from types import NoneType
from typing import Any, ClassVar, Literal, TypeVar, cast, get_args, get_type_hints

from treadle import knobs
from treadle.errors import PASS_OPTION, PASS_SYNTAX, UNKNOWN_PASS, InternalError, TreadleError
from treadle.ir.builtin import ModuleOp
from treadle.ir.context import Context, default_context
from treadle.ir.core import Operation
from treadle.ir.locations import location_of
from treadle.ir.text import find_invalid
from treadle.records import Record, dataclass

__all__ = ["Context", "ModulePass", "Pass", "format_pass", "parse_passes", "register_pass", "registered_passes", "run_passes"]

Observer = Callable[[str, Operation], None]
Verify = Literal["each", "last", "none"]
"""Which results of a list of passes are verified."""


@dataclass(frozen=True)
class Pass(ABC):
    """A transformation of a module. Subclasses are frozen dataclasses; their fields are plain values and are the options of the pass."""

    name: ClassVar[str]

    @abstractmethod
    def apply(self, ctx: Context, module: ModuleOp, /) -> None:
        """Rewrite `module` in place."""


ModulePass = Pass

P = TypeVar("P", bound=Pass)
_registry: dict[str, type[Pass]] = {}


def register_pass(kind: type[P]) -> type[P]:
    """Class decorator: make the pass known under its name to `parse_passes`."""
    known = _registry.get(kind.name)
    if known is not None and (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise InternalError(f"two passes are named '{kind.name}': {known.__qualname__} and {kind.__qualname__}")
    _registry[kind.name] = kind
    return kind


def registered_passes() -> Mapping[str, type[Pass]]:
    """Every registered pass by name."""
    return dict(sorted(_registry.items()))


def _value(kind: Any, text: str, describe: str) -> Any:
    """The option value that `text` spells for a field of type `kind`."""
    choices = get_args(kind)
    if NoneType in choices:
        if text == "none":
            return None
        kind = next(choice for choice in choices if choice is not NoneType)
        choices = get_args(kind)
    if kind is bool:
        if text not in ("true", "false", "1", "0"):
            raise ValueError("expected true or false")
        return text in ("true", "1")
    if kind is int or kind is float:
        return kind(text)
    if kind is str:
        return text
    if choices and isinstance(choices[0], str):  # a Literal
        if text not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return text
    if getattr(kind, "__origin__", None) is tuple:
        return tuple(_value(choices[0], part, describe) for part in text.split(":") if part)
    raise InternalError(f"option {describe} has a type that the command line cannot spell: {kind}")


def pass_options(kind: type[Pass]) -> dict[str, tuple[Field[Any], Any, str]]:
    """The options of a pass by name: the field, its type, and the pass' field that holds a record of it ("": none)."""
    hints, found = get_type_hints(kind), dict[str, tuple[Field[Any], Any, str]]()
    for field in fields(kind):
        if isinstance(hint := hints[field.name], type) and issubclass(hint, Record):
            inner = get_type_hints(hint)
            found |= {part.name.replace("_", "-"): (part, inner[part.name], field.name) for part in fields(hint)}
        else:
            found[field.name.replace("_", "-")] = (field, hint, "")
    return found


def _make(kind: type[Pass], options: Mapping[str, str]) -> Pass:
    known = pass_options(kind)
    values: dict[str, Any] = {field.name: field.default for field in fields(kind) if isinstance(field.default, Record)}
    for key, text in options.items():
        field, hint, record = known.get(key.replace("_", "-"), (None, None, ""))
        if field is None:
            listing = ", ".join(known) or "none"
            raise TreadleError(PASS_OPTION, name=kind.name, option=key, reason=f"no such option (there are: {listing})")
        try:
            value = _value(hint, text, f"{kind.name}.{key}")
        except ValueError as error:
            raise TreadleError(PASS_OPTION, name=kind.name, option=key, reason=f"'{text}': {error}") from error
        values[record or field.name] = replace(values[record], **{field.name: value}) if record else value
    for name, (field, _, record) in known.items():
        if not record and field.name not in values and field.default is MISSING and field.default_factory is MISSING:
            raise TreadleError(PASS_OPTION, name=kind.name, option=name, reason="it has no default and must be given")
    return kind(**values)


_SPEC = re.compile(r"\s*([a-z][a-z0-9-]*)\s*(\{([^{}]*)\})?\s*(,|$)")
_OPTION = re.compile(r"\s*([A-Za-z][\w-]*)\s*(?:=\s*([^,\s]+))?\s*$")


def parse_passes(text: str, passes: Mapping[str, type[Pass]] | None = None) -> tuple[Pass, ...]:
    """The passes that `name{option=value, flag},other` spells; a flag alone is true, a tuple's parts are separated by `:`.

    Raises `TreadleError` for an unknown pass or option, a value that cannot be read, or bad syntax.
    """
    known = registered_passes() if passes is None else passes
    found: list[Pass] = []
    position = 0
    while text[position:].strip():
        match = _SPEC.match(text, position)
        if match is None:
            raise TreadleError(PASS_SYNTAX, text=text, rest=text[position:].strip())
        name, body = match.group(1), match.group(3) or ""
        if name not in known:
            raise TreadleError(UNKNOWN_PASS, name=name, known=", ".join(sorted(known)))
        options: dict[str, str] = {}
        for part in body.split(",") if body.strip() else ():
            option = _OPTION.match(part)
            if option is None:
                raise TreadleError(PASS_SYNTAX, text=text, rest=part.strip())
            options[option.group(1)] = option.group(2) or "true"
        found.append(_make(known[name], options))
        position = match.end()
    return tuple(found)


def format_pass(item: Pass) -> str:
    """The pass in the syntax of `parse_passes`, options at their default left out."""
    shown: list[str] = []
    for field, _, record in pass_options(type(item)).values():
        value = getattr(getattr(item, record) if record else item, field.name)
        if field.default is not MISSING and value == field.default:
            continue
        spelled = ":".join(map(str, cast("tuple[object, ...]", value))) if isinstance(value, tuple) else str(value)
        shown.append(f"{field.name.replace('_', '-')}={spelled.lower() if isinstance(value, bool | None) else spelled}")
    return item.name + ("{" + ",".join(shown) + "}" if shown else "")


def run_passes(
    module: ModuleOp, passes: Iterable[Pass], *, after: Observer | None = None, verify: Verify = "each", ctx: Context | None = None
) -> None:
    """Run the passes in order, in place; `after(name, module)` sees the module after each. `verify` says which results are verified.

    Raises what a pass raises for the user (`TreadleError`); anything else, a module that does not verify included, is an `InternalError`
    naming the pass and the line of the operation at fault.
    """
    context = ctx if ctx is not None else default_context()
    chosen = tuple(passes)
    for item in chosen:
        try:
            item.apply(context, module)
        except (TreadleError, InternalError):
            raise
        except Exception as error:
            raise InternalError(f"pass {item.name} failed: {type(error).__name__}: {error}") from error
        if verify == "each":
            _verify(module, f"after pass {item.name}")
        if after is not None:
            after(item.name, module)
    if verify == "last" and chosen:
        _verify(module, f"after the passes {', '.join(item.name for item in chosen)} ({knobs.VERIFY_EACH_PASS.name}=1 tells which)")


def _verify(module: ModuleOp, when: str) -> None:
    if (invalid := find_invalid(module)) is not None:
        op, reason = invalid
        raise InternalError(f"{when}, '{op.name}' at {location_of(op)} does not verify: {reason}")
