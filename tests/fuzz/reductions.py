"""Random reductions: results on the simulator against float64 and IREE on the CPU, on a GPU where asked, and machine code for a target."""

import re
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
from fuzz.kinds import Kind
from fuzz.outcomes import Outcome, Settings, Status, of_refusal, worst
from generators.contractions import TARGETS
from generators.reductions import RandomReduction, random_reduction
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
"""IREE sums in an order, and in a type, of its own: its bounds are so many times as wide."""
OPTIONS = CompileOptions(tuned=False)
_OURS = re.compile(r"treadle\.split_reduction = #dispatch\.split<.*?>,|, treadle\.associative = \[.*?\]", re.DOTALL)


def run(seed: int, settings: Settings) -> Outcome:
    """The reduction of a seed. Without targets: machine code for one, by the seed."""
    case = random_reduction(seed)
    references = evaluate_module(parse_module(case.text, "case.mlir"), case.arrays)
    found = [_executed(case, references, device) for device in ("sim", settings.device) if device]
    if settings.iree and find_spec("iree") is not None:
        found.append(_by_iree(case, references))
    found += [_compiled(case, target) for target in settings.targets or (TARGETS[seed % len(TARGETS)],)]
    status, detail = worst(found)
    return Outcome(seed, status, case.label, detail, case.text if status != "right" else "")


def _executed(case: RandomReduction, references: Sequence[ReferenceResult], device: str) -> Found:
    try:
        results = treadle.compile(case.text, target=target_of_device(device), options=OPTIONS)(*case.arrays)
    except TreadleError as error:
        status, detail = of_refusal(error)
        return status, f"{device}: {detail}"
    except Exception as error:  # noqa: BLE001 - a defect, of whatever kind
        return "internal", f"{device}: {type(error).__name__}: {error}"
    return _judged([np.asarray(result) for result in results], references, device)


def _by_iree(case: RandomReduction, references: Sequence[ReferenceResult]) -> Found:
    """IREE's opinion on the reference, of the same text without what is asked of this compiler. What it does not compile it has none on."""
    try:
        results = IreeFunctions(_OURS.sub("", case.text)).all_results("f", case.arrays)
    except IreeRefusal:
        return "right", ""
    wide = [one if one.bound is None else replace(one, bound=REORDERED * one.bound) for one in references]
    return _judged(results, wide, "IREE against the reference")


def _judged(results: Sequence[np.ndarray], references: Sequence[ReferenceResult], who: str) -> Found:
    for number, (result, reference) in enumerate(zip(results, references, strict=True)):
        if not (verdict := check(result, reference)).ok:
            return "wrong", f"{who}, result {number}: {verdict}"
    return "right", ""


def _compiled(case: RandomReduction, target: str) -> Found:
    try:
        lower(Source(case.text, "case.mlir"), target, OPTIONS, None)
    except TreadleError as error:
        status, detail = of_refusal(error)
        return status, f"{target}: {detail}"
    except Exception as error:  # noqa: BLE001 - a defect, of whatever kind
        return "internal", f"{target}: {type(error).__name__}: {error}"
    return "right", ""


KIND = Kind(run, seconds=120.0)
