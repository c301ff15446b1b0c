"""Upstream's classes, made by our decorator, are what the standard one makes of them."""

import dataclasses
import re
import subprocess
import sys

import treadle.ir
from treadle.ir import quick_classes
from treadle.ir.builtin import f32, i64

DUMP = """
import dataclasses, sys

MODULES = ["xdsl.dialects." + name for name in ("affine", "arith", "builtin", "func", "linalg", "math", "memref", "scf", "tensor")]
for name in (*MODULES, "xdsl.irdl.declarative_assembly_format_parser", "xdsl.printer", "xdsl.pattern_rewriter", "xdsl.passes"):
    __import__(name)
seen = set()
for module in sorted(name for name in sys.modules if name.startswith("xdsl.")):
    for name, kind in sorted(vars(sys.modules[module]).items()):
        if isinstance(kind, type) and kind.__module__.startswith("xdsl.") and kind not in seen and "__dataclass_fields__" in vars(kind):
            seen.add(kind)
            own = [name in kind.__dict__ for name in ("__init__", "__eq__", "__repr__", "__hash__", "__setattr__", "__match_args__")]
            fields = dataclasses.fields(kind)
            rows = [(f.name, f.init, f.repr, f.compare, f.kw_only, str(f.default), str(f.default_factory)) for f in fields]
            rows += [(f.name, f.compare if f.hash is None else f.hash) for f in fields]
            print(module, name, own, kind.__hash__ is None, kind.__match_args__, rows, kind.__dataclass_params__.frozen)
"""


def dumped(first: str) -> list[str]:
    """What is to be seen of upstream's dataclasses, after an import."""
    done = subprocess.run([sys.executable, "-c", first + DUMP], capture_output=True, text=True, check=True)
    return [re.sub(r"0x[0-9a-f]+", "", line) for line in done.stdout.splitlines()]


def test_classes_are_what_the_standard_decorator_makes() -> None:
    ours, standard = set(dumped("import treadle.ir")), set(dumped(""))
    assert len(standard) > 120
    assert ours >= standard


def test_the_standard_decorator_is_back() -> None:
    assert treadle.ir.quick_classes is quick_classes
    assert dataclasses.dataclass.__module__ == "dataclasses"
    with quick_classes.quick_classes():
        assert dataclasses.dataclass is not quick_classes.standard

        @dataclasses.dataclass(order=True)
        class Ordered:
            a: int

        @dataclasses.dataclass
        class Plain:
            a: int

    assert Ordered(1) < Ordered(2)
    assert Plain(1) == Plain(1)
    assert hasattr(Plain, "__record_entries__")
    assert not hasattr(Ordered, "__record_entries__")


def test_attributes_are_compared_by_value() -> None:
    assert hasattr(type(f32), "__record_entries__")
    assert f32 == type(f32)()
    assert len({f32, type(f32)(), i64}) == 2
