"""Texts of stages as they were when someone last looked: a change that was to leave the generated code alone shows here where it did not.

`make golden` (or pytest with `--update-golden`) writes the texts anew; the difference in the repository is then for the reviewer to read.
So that it shows what changed and not what was counted, values have no numbers in these files (a checksum of the whole text stands above
each), and long attributes stand once, under a name.
"""

import difflib
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from treadle import pipelines
from treadle.bench.suite import find
from treadle.frontends import mlir
from treadle.ir.text import print_module
from treadle.machine import target_spec
from treadle.options import CompileOptions, Precision

HERE = Path(__file__).parent
EXAMPLES = Path(__file__).parents[2] / "examples"
STAGES = ("dispatch", "tile", "schedule")
LONGEST_DIFFERENCE = 80
"""Lines of a difference that a failure shows."""
DYNAMIC = """func.func @f(%x: tensor<?x?xf16>, %w: tensor<?x?xf16>, %c: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %y = linalg.matmul ins(%x, %w : tensor<?x?xf16>, tensor<?x?xf16>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}
"""


@dataclass(frozen=True)
class Case:
    """A program of the examples or of the suite, compiled for one target."""

    name: str
    target: str
    precision: Precision = "ieee"

    @property
    def path(self) -> Path:
        """Where its texts are."""
        return HERE / f"{self.name}.{self.target}.txt"

    def text(self) -> str:
        """The program."""
        if self.name == "dynamic-matmul":
            return DYNAMIC
        workload = find(self.name)
        return (EXAMPLES / f"{self.name}.mlir").read_text(encoding="utf-8") if workload is None else workload.text


CASES = (
    Case("linear_bias_gelu", "sm_90a"),
    Case("linear_bias_gelu", "gfx942"),
    Case("softmax", "gfx1100"),
    Case("splitk_matmul", "gfx950"),
    Case("swiglu", "sm_90a"),  # several roots, roles, tiles in turn
    Case("llama3-8b-decode-16-o", "sm_90a"),  # a small side
    Case("f32-4096-3xtf32", "sm_90a", "3xtf32"),
    Case("dynamic-matmul", "gfx1201"),
    Case("conv-f16-2x64x64x640-640-k3", "sm_90a"),
)


def stages(case: Case) -> dict[str, str]:
    """The text of every stage; the schedule is not proven here."""
    found: dict[str, str] = {}
    options = CompileOptions(f32_precision=case.precision)
    module = mlir.load(case.text() + "\n", f"{case.name}.mlir")
    pipelines.lower(module, target_spec(case.target), options, lambda level, op: found.update({level: print_module(op)}), proven=False)
    return {stage: found[stage] for stage in STAGES}


def balanced_end(text: str, start: int) -> int:
    """Behind the `>` that closes the `<` at `start`."""
    depth = 0
    for position in range(start, len(text)):
        depth += {"<": 1, ">": -1}.get(text[position], 0)
        if depth == 0:
            return position + 1
    return len(text)


def shown(texts: dict[str, str]) -> str:
    """What is kept of the texts of a case."""
    names: dict[str, str] = {}
    parts: list[str] = []
    for stage, text in texts.items():
        kept, position = "", 0
        for match in re.finditer(r"#tile\.\w+<", text):
            if match.start() < position:
                continue
            end = balanced_end(text, match.end() - 1)
            name = names.setdefault(text[match.start() : end], f"#a{len(names)}")
            kept, position = kept + text[position : match.start()] + name, end
        plain = re.sub(r"%\w+(?::\d+|#\d+)?", "%", kept + text[position:])
        parts.append(f"== {stage} {hashlib.sha256(text.encode()).hexdigest()[:16]}\n{plain.strip()}\n")
    legend = "".join(f"{name} = {attribute}\n" for attribute, name in names.items())
    return "\n".join([*parts, f"== attributes\n{legend}"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.path.stem)
def test_stages_are_as_they_were(case: Case, request: pytest.FixtureRequest) -> None:
    found = shown(stages(case))
    if request.config.getoption("--update-golden"):
        case.path.write_text(found, encoding="utf-8")
    kept = case.path.read_text(encoding="utf-8") if case.path.exists() else ""
    if found == kept:
        return
    lines = list(difflib.unified_diff(kept.splitlines(), found.splitlines(), case.path.name, "now", lineterm="", n=1))
    more = f"\n.. and {len(lines) - LONGEST_DIFFERENCE} lines more" if len(lines) > LONGEST_DIFFERENCE else ""
    message = "\n".join(lines[:LONGEST_DIFFERENCE])
    pytest.fail(f"the code of {case.path.stem} changed; where that was the purpose, run `make golden`:\n{message}{more}", pytrace=False)


def test_every_file_belongs_to_a_case() -> None:
    assert {path.name for path in HERE.glob("*.txt")} == {case.path.name for case in CASES}


def test_what_is_kept_tells_texts_apart() -> None:
    """Operands that are exchanged show in the checksum, attributes and operations in the text as well."""
    base = 'a = op(%x, %y) : #tile.layout<[1], <2>>\nb = "other"(%x)'
    assert shown({"tile": base}) == shown({"tile": base})
    exchanged = shown({"tile": base.replace("%x, %y", "%y, %x")})
    assert exchanged != shown({"tile": base})
    assert exchanged.splitlines()[1:] == shown({"tile": base}).splitlines()[1:]
    assert "#a0 = #tile.layout<[1], <2>>" in shown({"tile": base})
    assert "layout<[1], <3>>" in shown({"tile": base.replace("<2>", "<3>")})
