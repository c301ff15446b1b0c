"""exchanged: the form `roles` with A and B exchanged, so that B's columns lie along the instruction's rows and A's rows along its columns.

Widths of tiles go by 16, heights by 64: a result with 80 or 360 rows is covered with less waste. Tiles of the result are transposed on
their way out, by the threads' stores. Filters of a convolution that fill few columns fill the instruction's rows, and pixels its columns.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import ClassVar

from treadle.analysis.exchanged_nest import exchange_refusal, exchanged
from treadle.analysis.kernel_problem import KernelProblem
from treadle.analysis.loop_nest import LoopNest
from treadle.plan.role_tiles import may_be_exchanged
from treadle.records import dataclass, replace
from treadle.transforms.kernel.forms import roles
from treadle.transforms.kernel.forms.form import Choice, Choices, Grid
from treadle.transforms.kernel.tiling.builder import KernelBuilder

NAME = "exchanged"
KIND = "contraction"
CLEAR_GAIN = 1.05
"""How many times as long a convolution takes as it stands where its operands are exchanged: images are copied at rates that models know
less well than those of matrices.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(roles.Config):
    """As of `roles`; axes, tile and types are those of the exchanged problem."""

    form: ClassVar[str] = NAME

    def nest_of(self, nest: LoopNest) -> LoopNest:
        return roles.Config.nest_of(self, exchanged(nest))


def refusal(problem: KernelProblem) -> str | None:
    """See `Form`."""
    if (reason := exchange_refusal(problem.nest)) is not None:
        return reason
    asked = problem.overrides
    if asked.form != NAME:
        if asked.tile:
            return "a tile is asked for"
        if (reason := roles.in_steps(problem).descriptor_refusal) is not None:
            return reason
        if not may_be_exchanged(problem.shape, problem.role_problem.operands, problem.spec):
            return "the result is large"
    if (reason := roles.refusal(problem.exchanged)) is not None or asked.form == NAME or problem.kind.image < 0:
        return reason
    return None if _is_clear(problem) else "it is not clearly faster for a convolution"


def _is_clear(problem: KernelProblem) -> bool:
    """Whether roles take clearly longer as operands stand. Those that refuse, or whose tiles do not fit, are no reason against it."""
    plain = () if roles.refusal(problem) is not None else roles.decide(problem)
    other = roles.decide(problem.exchanged)
    return bool(other) and (not plain or plain[0].seconds >= CLEAR_GAIN * other[0].seconds)


def decide(problem: KernelProblem) -> Sequence[Choice]:
    """See `Form`."""
    return Choices(
        replace(
            choice,
            config=_of_roles(choice.config),
            text=f"{choice.text}; operands exchanged",
        )
        for choice in roles.decide(problem.exchanged)
        if isinstance(choice.config, roles.Config)
    )


def _of_roles(config: roles.Config) -> Config:
    return Config(**{field.name: getattr(config, field.name) for field in fields(config)})


def build(kernel: KernelBuilder, config: Config) -> Grid:
    """See `Form`."""
    return roles.build(kernel, config)
