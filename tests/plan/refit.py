"""Fitting a model's constants anew, so that a model can be judged on shapes that its constants have not seen."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TypeVar

from treadle.machine import target_spec
from treadle.machine.rates import Rates
from treadle.machine.spec import TargetSpec
from treadle.records import Record

R = TypeVar("R", bound=Record)
STEPS = (1.25, 1.1, 1.04, 1.02)
AWAY = (0.7, 1.4, 0.85, 1.2)
"""Where fits begin, as parts of the constants that are kept."""
COUNTED = ("few_rounds", "full_step", "fixed_registers", "crowded_registers", "crowded_more", "max_registers")
"""What is no rate but counted, or chosen."""


def refit(kept: R, loss: Callable[[R], float]) -> R:
    """A record whose numbers make `loss` small, changed one after another by ever smaller factors. It begins away from what is `kept`."""
    values = {field.name: getattr(kept, field.name) for field in fields(kept)}  # pyright: ignore[reportArgumentType]
    names = [name for name, value in values.items() if isinstance(value, int | float) and name not in COUNTED]
    best = replace(kept, **{name: values[name] * AWAY[at % len(AWAY)] for at, name in enumerate(names)})  # pyright: ignore[reportArgumentType]
    least = loss(best)
    for step in STEPS:
        for name in names * 3:
            for factor in (step, 1 / step):
                tried = replace(best, **{name: getattr(best, name) * factor})  # pyright: ignore[reportArgumentType]
                if (found := loss(tried)) < least:
                    best, least = tried, found
    return best


def with_rates(target: str, change: Callable[[Rates], Rates]) -> TargetSpec:
    """A machine whose models have other constants."""
    spec = target_spec(target)
    return replace(spec, product=replace(spec.product, fitted=change(spec.rates)))  # pyright: ignore[reportArgumentType]
