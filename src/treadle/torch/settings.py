"""What a user may choose with `options=` of `torch.compile`: ours begin with `treadle.`, the others are Inductor's."""

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

import torch

from treadle.errors import TORCH_OPTION, TreadleError
from treadle.options import CompileOptions, Precision
from treadle.records import Record

Rest = Literal["inductor", "eager"]
Choice = Literal["all", "auto", "modelled", "measured"]
PREFIX: Final = "treadle."
_OF_PYTORCH: Final[dict[str, Precision]] = {"highest": "ieee", "high": "3xtf32", "medium": "tf32"}


class Settings(Record):
    """`target`: "auto" (the GPU of the tensors), an architecture, or "sim" for tensors of the processor. `rest`: what runs the nodes that
    are not taken. `strict`: an anchor that is not taken is an error. `f32_precision`: as in `CompileOptions`; by default what
    `torch.set_float32_matmul_precision` says: "highest" is "ieee", "high" "3xtf32", "medium" "tf32". `choice`: which regions are taken of
    those that can be: "all", those that are "modelled" or "measured" to be no slower than what they replace, or ("auto") modelled so where
    the models are sure and measured where they are not; by default "auto", "measured" with the modes "max-autotune..", "all" on the
    simulator and where `strict` is set.
    """

    target: str = "auto"
    rest: Rest = "inductor"
    strict: bool = False
    f32_precision: Precision | Literal[""] = ""
    choice: Choice | Literal[""] = ""

    @property
    def chosen(self) -> Choice:
        """Which regions are taken."""
        return self.choice or ("all" if self.strict or self.target == "sim" else "auto")

    def compile_options(self) -> CompileOptions:
        """The options that regions are compiled with."""
        return CompileOptions(f32_precision=self.f32_precision or _OF_PYTORCH[torch.get_float32_matmul_precision()])


_CHOICES: Final[dict[str, tuple[Any, ...]]] = {
    "rest": get_args(Rest),
    "strict": (False, True),
    "f32_precision": ("", *get_args(Precision)),
    "choice": ("", *get_args(Choice)),
}


def settings_of(options: Mapping[str, Any] | None, mode: str | None = None) -> tuple[Settings, dict[str, Any]]:
    """Our settings in a mode of `torch.compile`, and the options that are Inductor's. Raises TR120 for one of ours that does not exist, or
    has another value.
    """
    ours: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    for name, value in (options or {}).items():
        if not name.startswith(PREFIX):
            theirs[name] = value
            continue
        field = name.removeprefix(PREFIX)
        if field not in Settings.record_names:
            known = ", ".join(PREFIX + known for known in Settings.record_names)
            raise TreadleError(TORCH_OPTION, name=name, value=value, hint=f"options are {known}")
        if field in _CHOICES and value not in _CHOICES[field]:
            raise TreadleError(TORCH_OPTION, name=name, value=value, hint=f"choose one of {', '.join(map(repr, _CHOICES[field]))}")
        ours[field] = value
    if (mode or "").startswith("max-autotune") and not ours.get("strict") and ours.get("target") != "sim":
        ours.setdefault("choice", "measured")
    return Settings(**ours), theirs
