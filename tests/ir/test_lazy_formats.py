"""Assembly formats: few are parsed for a program, and all of them parse."""

import subprocess
import sys

from treadle.dialects import all_dialects_context
from treadle.ir import lazy_formats
from treadle.ir.core import IRDLOperation

SCRIPT = """
from treadle.ir import lazy_formats
parsed, parse = [], lazy_formats._parse_format
lazy_formats._parse_format = lambda text, op_def: parsed.append(op_def.name) or parse(text, op_def)
from treadle.dialects import all_dialects_context
from treadle.ir.text import parse_module
context = all_dialects_context()
assert not parsed
parse_module("func.func @f(%a: f16) -> f32 { %b = arith.extf %a : f16 to f32 return %b : f32 }", "f.mlir", context)
print(*sorted(parsed))
"""


def test_formats_are_parsed_with_their_first_use() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["arith.extf", "func.return"]


def test_every_format_parses() -> None:
    context = all_dialects_context()
    parsed = 0
    loaded = {dialect.name for dialect in context.loaded_dialects}
    for name in set(context.registered_dialect_names) - loaded:
        context.load_registered_dialect(name)
    for op in context.loaded_ops:
        if issubclass(op, IRDLOperation) and (text := op.get_irdl_definition().assembly_format) is not None:
            lazy_formats._parse_format(text, op.get_irdl_definition())  # pyright: ignore[reportPrivateUsage]
            parsed += 1
    assert parsed > 100
