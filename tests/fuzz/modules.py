"""Random modules: machine code for every target, and results on the simulator against float64 and IREE on the CPU, on a GPU where asked."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
from fuzz.kinds import Kind
from fuzz.outcomes import IN_TURN, Outcome, Settings, Status, of_refusal, worst
from generators.contractions import TARGETS
from generators.modules import GeneratedModule, random_module
from numeric.iree_oracle import IreeFunctions, IreeRefusal

import treadle
from treadle.driver import target_of_device
from treadle.driver.lowering import lower
from treadle.driver.sources import Source
from treadle.errors import TreadleError
from treadle.ir.text import parse_module
from treadle.options import CompileOptions
from treadle.sim.check import check
from treadle.sim.reference import ReferenceResult, evaluate_module

Found = tuple[Status, str]
REORDERED = 32.0
OPTIONS = CompileOptions(tuned=False)


def run(seed: int, settings: Settings) -> Outcome:
    """The module of a seed, everywhere. Without targets: all of them. `IN_TURN`: one, by the seed."""
    module = random_module(seed)
    arrays = module.arrays(seed)
    label = f"{module.family} {', '.join(f'{spec.shape} {spec.element}' for spec in module.inputs)}"
    (reference,) = evaluate_module(parse_module(module.text, f"{module.name}.mlir"), arrays)
    found = [_executed(module, arrays, reference, device) for device in ("sim", settings.device) if device]
    if settings.iree and find_spec("iree") is not None:
        found.append(_by_iree(module, arrays, reference))
    targets = (TARGETS[seed % len(TARGETS)],) if settings.targets == IN_TURN else settings.targets or TARGETS
    found += [_compiled(module, target) for target in targets]
    return Outcome(seed, worst(found)[0], label, worst(found)[1], module.text if worst(found)[0] != "right" else "")


def _executed(module: GeneratedModule, arrays: Sequence[np.ndarray], reference: ReferenceResult, device: str) -> Found:
    try:
        (result,) = treadle.compile(module.text, target=target_of_device(device), options=OPTIONS)(*arrays)
    except TreadleError as error:
        status, detail = of_refusal(error)
        return status, f"{device}: {detail}"
    except Exception as error:  # noqa: BLE001 - a defect, of whatever kind
        return "internal", f"{device}: {type(error).__name__}: {error}"
    verdict = check(np.asarray(result), reference)
    return ("right", "") if verdict.ok else ("wrong", f"{device}: {verdict}")


def _by_iree(module: GeneratedModule, arrays: Sequence[np.ndarray], reference: ReferenceResult) -> Found:
    """IREE's opinion on the reference: what both agree on is no fault of one of them. What it does not compile it has no opinion on.

    It rounds in an order of its own: a value that is added to a sum is where it starts to sum. So its bounds are `REORDERED` times as wide.
    """
    try:
        result = IreeFunctions(module.text)(module.name, arrays)
    except IreeRefusal:
        return "right", ""
    wide = reference if reference.bound is None else replace(reference, bound=REORDERED * reference.bound)
    verdict = check(result, wide)
    return ("right", "") if verdict.ok else ("wrong", f"IREE against the reference: {verdict}")


def _compiled(module: GeneratedModule, target: str) -> Found:
    try:
        lower(Source(module.text, f"{module.name}.mlir"), target, OPTIONS, None)
    except TreadleError as error:
        status, detail = of_refusal(error)
        return status, f"{target}: {detail}"
    except Exception as error:  # noqa: BLE001 - a defect, of whatever kind
        return "internal", f"{target}: {type(error).__name__}: {error}"
    return "right", ""


KIND = Kind(run, seconds=120.0)
