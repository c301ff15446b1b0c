"""What `treadle tune` found, and when a compilation uses it.

A record says which choices are best for one text, its numerics and one target; it names the product it was measured on. A compilation picks
it up where the user left the choices to the compiler, allows it (`CompileOptions.tuned`), and this machine has that product.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle import __version__
from treadle.errors import TreadleError
from treadle.options import CompileOptions
from treadle.runtime.cache import default_folder, key_of
from treadle.runtime.device import default_device

if TYPE_CHECKING:
    from collections.abc import Mapping

NUMERICS = ("f32_precision", "fp8_accumulation", "reassociate")
"""Options that change results: a record is for one value of each, and never changes them."""
NOT_CHOICES = (*NUMERICS, "verify", "allow_unproven", "tuned")


def record_path(text: str, target: str, options: CompileOptions) -> Path:
    """Where the record of a text with the numerics of `options` on a target is, whether it exists or not."""
    numerics = [str(getattr(options, name)) for name in NUMERICS]
    return default_folder() / "tuned" / f"{key_of(text, target, *numerics)[:32]}.json"


def read_record(path: Path) -> "Mapping[str, Any] | None":
    """A record's content; None where there is none, or where another Treadle wrote it."""
    if not path.is_file():
        return None
    import json

    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return content if content["treadle"] == __version__ and isinstance(content["best"]["options"], dict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def with_choices(base: CompileOptions, plain: "Mapping[str, Any]") -> CompileOptions | None:
    """`base` with a record's choices, its numerics as they are; None where the record holds what is no option."""
    from dataclasses import replace

    try:
        choices: dict[str, Any] = {name: value for name, value in plain.items() if name not in NOT_CHOICES}
        sizes: dict[str, list[int]] = {name: value for name, value in choices.items() if isinstance(value, list)}
        return replace(base, **choices | {name: tuple(value) for name, value in sizes.items()})
    except (TypeError, ValueError):
        return None


def leaves_choices(options: CompileOptions) -> bool:
    """Whether everything that tuning chooses is left to the compiler."""
    usual = CompileOptions()
    return all(getattr(options, name) == getattr(usual, name) for name in CompileOptions.record_names if name not in NOT_CHOICES)


def product_of(target: str) -> str:
    """The product in this machine that runs a target's programs; "" where there is none."""
    try:
        return default_device(target).name
    except TreadleError:
        return ""


def with_tuned_options(text: str, target: str, options: CompileOptions) -> tuple[CompileOptions, str]:
    """The options to compile with, and, where they come from a record, what to tell about it ("" otherwise)."""
    if not options.tuned or target == "sim" or not leaves_choices(options):
        return options, ""
    path = record_path(text, target, options)
    content = read_record(path)
    if content is None or content.get("product", "") != product_of(target):
        return options, ""
    chosen = with_choices(options, content["best"]["options"])
    if chosen is None:
        return options, ""
    return chosen, f"choices measured on {content['product']} by `treadle tune`: {path.name}"
