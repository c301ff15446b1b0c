"""Random reductions: separable ones of all types, coupled and declared ones, kernels of rows; split or not, ragged."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from analysis.test_coupled_reductions import extrema
from numeric import test_folds as folds
from numeric.test_coupled_reductions import arrays as extremum_arrays
from numeric.test_split_reductions import DTYPES, FLOATS, INTEGERS, Case
from transforms.reduction_texts import reduction
from transforms.row_texts import KINDS, rows_text

Arrays = list[np.ndarray]
LENGTHS = (1, 2, 3, 31, 64, 77, 129, 1000, 1025, 2049, 4099, 9001)
LONG = (5003, 16387, 40009, 70001)
"""Rows of so many elements have no workgroup's registers, or begin anywhere."""
IN_ORDER = 5100
"""Elements of a row at most, where the reference walks them one by one in seconds."""


@dataclass(frozen=True, slots=True)
class RandomReduction:
    """A function @f with its arguments. `label`: what it is."""

    label: str
    text: str
    arrays: Arrays


def _sizes(draw: random.Random) -> tuple[int, int]:
    """Rows and their length."""
    if draw.random() < 0.3:
        return draw.randint(1, 3), draw.choice(LONG) + draw.randint(0, 9)
    return draw.randint(1, 40), draw.choice(LENGTHS)


def _separable(draw: random.Random) -> RandomReduction:
    """Two loops of four reduced, in parts that an attribute asks for, or as the compiler likes."""
    kind = draw.choice(sorted(DTYPES))
    combiner = draw.choice(sorted(INTEGERS if kind[0] == "i" else FLOATS))
    if draw.random() < 0.5:
        rows, length = _sizes(draw)
        case = Case((1, rows, length, 1) if draw.random() < 0.7 else (length, 1, 1, rows), kind, combiner, 'r0 = "1"')
        text = case.text.replace('treadle.split_reduction = #dispatch.split<r0 = "1">,', "")
    else:
        loops = draw.choice(((0,), (1,), (0, 1)))
        parts = ", ".join(f'r{number} = "{draw.randint(2, 7)}" step {draw.randint(1, 9)}' for number in loops)
        case = Case((draw.randint(1, 40), draw.randint(1, 5), draw.randint(1, 30), draw.randint(1, 9)), kind, combiner, parts)
        text = case.text
    generator = np.random.default_rng(draw.randrange(1 << 30))
    if kind[0] == "i":
        values = generator.integers(-3, 4, case.sizes)
    else:
        terms = case.sizes[0] * case.sizes[2]
        centre, spread = (1.0, 0.5 / terms) if combiner == "arith.mulf" else (0.0, 1.0)
        values = centre + spread * generator.standard_normal(case.sizes)
    return RandomReduction(f"{combiner} {kind} {case.sizes} {case.parts}", text, [values.astype(DTYPES[kind])])


def _extremum(draw: random.Random) -> RandomReduction:
    """The index of an extremum: ties, NaN, initial values that win."""
    kind, ties, nan, body = draw.choice(list(extrema()))
    rows, length = _sizes(draw)
    length = min(length, IN_ORDER if ties == "first" and nan != "order" else 300)  # what the order decides has no parts
    given = extremum_arrays(kind, rows, length, draw)
    return RandomReduction(f"{kind} {ties} {nan} {rows}x{length}", reduction(body, {"m": "f32", "i": "i32"}, shape=(rows, length)), given)


def _coupled(draw: random.Random) -> RandomReduction:
    """Mean and variance, sums of exponentials under a maximum, a product that is declared to be associative, and several side by side."""
    name = draw.choice(sorted(folds.CASES))
    rows, length = _sizes(draw)
    length = min(length, 300 if name == "complex_product" else IN_ORDER)
    generator = np.random.default_rng(draw.randrange(1 << 30))
    return RandomReduction(f"{name} {rows}x{length}", folds.text_of(name, rows, length), folds.arguments(name, rows, length, generator))


def _rows(draw: random.Random) -> RandomReduction:
    """Softmax, normalisations and moments of rows."""
    kind, element = draw.choice(KINDS), draw.choice(("f32", "f16", "bf16"))
    rows, length = _sizes(draw)
    sizes = (length, rows) if kind == "column_softmax" else (rows, 1, length // 7 + 1, 7) if kind == "group_norm" else (rows, length)
    text = rows_text(kind, sizes, element)
    generator = np.random.default_rng(draw.randrange(1 << 30))
    shapes = [sizes, *([sizes[-1:]] * (text.count("%g:") + text.count("%b:")))]
    given = [generator.standard_normal(shape).astype(DTYPES[element]) for shape in shapes]
    return RandomReduction(f"{kind} {element} {sizes}", text, given)


FAMILIES: tuple[Callable[[random.Random], RandomReduction], ...] = (_separable, _extremum, _coupled, _rows)


def random_reduction(seed: int) -> RandomReduction:
    """The reduction of a seed; seeds 0, 1, 2, ... go through the families in turn."""
    return FAMILIES[seed % len(FAMILIES)](random.Random(seed))
