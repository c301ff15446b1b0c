"""What is above the machine's rows names no vendor, architecture or instruction: the code of those rooms is read word by word.

Docstrings and comments may cite sources.
"""

import ast
import re
from collections.abc import Iterator

import pytest
from test_layers import SOURCE, module_name

ROOMS = ("layout", "dialects", "analysis", "plan", "transforms", "verify", "sim", "timeline")
WORDS = (
    # vendors, their systems and their tools
    *("nvidia", "amd", "cuda", "hip", "rocm", "ptx", "ptxas", "sass", "hopper", "cdna", "rdna", "[hb][12]00", "mi300x?"),
    # architectures
    *(r"sm_?\d\w*", r"gfx\d\w*"),
    # instructions
    *("w?gmma", "mfma", r"wmma\d*", "smfmac", "swmmac", "tma", "tcgen05", "stmatrix", "ldmatrix", "setmaxnreg", "s_waitcnt", "cp_async"),
    # their counters and queues
    *("vmcnt", "lgkmcnt", "vscnt", "loadcnt", "storecnt", "dscnt", "bulk_store"),
)
FORBIDDEN = re.compile(rf"(?<![a-z0-9])(?:{'|'.join(WORDS)})(?![a-z0-9])")


def words(text: str) -> str:
    """Lower case, camel case taken apart."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()


def named(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of every identifier and string of a module, docstrings excepted."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        for field in ("id", "attr", "arg", "name", "asname"):
            if isinstance(text := getattr(node, field, None), str):
                yield line, text
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield line, node.value


def objections(text: str) -> list[str]:
    """What a module's text names though it should not."""
    return [f"{line}: {name}" for line, name in named(ast.parse(text)) if FORBIDDEN.search(words(name))]


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_names_a_vendor_or_an_instruction(room: str) -> None:
    paths = sorted((SOURCE / room).rglob("*.py"))
    assert paths
    found = [f"{module_name(path)}:{line}" for path in paths for line in objections(path.read_text(encoding="utf-8"))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        'queue = "wgmma"',
        "fragments.wgmma_accumulator(8)",
        "def emit_tma() -> None: ...",
        'f"a wait of vmcnt({n})"',
        'name.startswith("gfx11")',
        "class NvidiaRules: ...",
        'path == "cp_async"',
        "f(sm_90a=1)",
    ],
)
def test_such_names_are_seen(text: str) -> None:
    assert objections(text)


@pytest.mark.parametrize(
    "text", ['"""Hopper\'s wgmma, as in the PTX ISA."""', "x = 1  # gfx12 counts loads apart", "ownership = relationship"]
)
def test_prose_and_other_words_are_not(text: str) -> None:
    assert not objections(text)


RETIRED = re.compile(r"\b(under way|at hand|picked_up|mends?|with_mend|MOST_SUMS)\b")
"""Words that the glossary has the field's for: in flight, in registers, tuned options, suggested fix, accumulators."""


def retired(text: str) -> list[str]:
    """The lines of a text that say it in Treadle's old words."""
    return [line for line in text.splitlines() if RETIRED.search(line)]


def test_one_concept_has_one_name() -> None:
    paths = [*SOURCE.rglob("*.py"), *(SOURCE.parents[1] / "docs").glob("*.md")]
    found = [f"{path.name}: {line}" for path in paths for line in retired(path.read_text(encoding="utf-8"))]
    assert len(paths) > 500 and not found, "\n".join(found)


def test_retired_words_are_seen() -> None:
    assert retired("x = 1\ncopies that are under way\n") == ["copies that are under way"]
    assert not retired("copies in flight; a stage of the ring; amends")
