"""Attention in stages at schedule level, for tests of every target."""

import math
from typing import Any

from staged_attention import attention

from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.ir.dialects import builtin
from treadle.language.build import build
from treadle.options import CompileOptions


def staged_attention(target: str, *arrays: Any, num_stages: int = 3, **constants: Any) -> builtin.ModuleOp:
    """examples/staged_attention.py as a call with these arrays compiles it, proven."""
    width = arrays[0].shape[2]
    constants = {"scale": 1 / math.sqrt(width), "D": width, **constants}
    form, _, _ = attention[1, 1]._resolved(arrays, constants, 8, num_stages)
    return scheduled(read_source(build(attention.function, form).module, "tile"), target, CompileOptions(), None)
