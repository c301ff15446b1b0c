"""What the documentation shows is true: its commands run, its links lead somewhere, the options it names exist."""

import contextlib
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import treadle
from treadle import knobs
from treadle.ir import passes
from treadle.language.functions import FUNCTIONS
from treadle.options import CompileOptions
from treadle.tools.main import VERBS, invoke

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")])
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXTENDING = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^treadle (.+)$", README + EXTENDING, re.MULTILINE)
KERNELS = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
FIELDS = CompileOptions.record_names
KNOBS = {knob.name for knob in knobs.ALL}


@pytest.fixture(name="elsewhere")
def fixture_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the examples, for what commands write."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("elsewhere")
def test_commands(command: str) -> None:
    assert invoke(shlex.split(command)) == 0


@pytest.mark.parametrize("page", [README, EXTENDING], ids=["README", "extending"])
@pytest.mark.usefixtures("elsewhere")
def test_python(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_registry", dict(passes._registry))  # a pass of a page is none of the compiler's
    (text,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(text, {"__name__": "documentation"})


@pytest.mark.usefixtures("elsewhere")
def test_kernels_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """The page's commands, one after the other, what it shows in Python, and its program of two launches."""
    commands = re.findall(r"^treadle (.+)$", KERNELS, re.MULTILINE)
    assert len(commands) > 6
    for command in commands:
        assert invoke(shlex.split(command)) == 0, capsys.readouterr().err
    (text,) = re.findall(r"```python\n(.*?)```", KERNELS, re.DOTALL)
    capsys.readouterr()
    exec(text, {})
    assert capsys.readouterr().out.strip() == text.rpartition("# ")[2].strip()
    (program,) = re.findall(r"```\n(dispatch.program.*?)```", KERNELS, re.DOTALL)
    twice = treadle.compile(Path("examples/row_softmax.mlir").read_text(encoding="utf-8") + program, target="sim", function="twice")
    assert len(twice.manifest.launches) == 2 and twice(np.ones((2, 4), np.float32))[0].tolist() == [[0.25] * 4] * 2


def test_kernels_in_python(tmp_path: Path) -> None:
    """The page's kernels, from files: the language reads the text of functions."""
    texts = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "language.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(texts) == 4
    for number, text in enumerate(texts):
        file = tmp_path / f"kernels{number}.py"
        file.write_text(text, encoding="utf-8")
        with contextlib.suppress(SystemExit):  # PyTorch is not everywhere
            runpy.run_path(str(file))


def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What a new user types: the page's file, then its commands; without any one barrier of the schedule the proof fails."""
    pytest.importorskip("matplotlib", reason="the extra `plots` is not installed")
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "product.py").write_text("".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), encoding="utf-8")
    runpy.run_path("product.py")
    assert "error TR418" in capsys.readouterr().out
    commands = re.findall(r"^treadle (.+)$", page, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert invoke(shlex.split(command)) == 0, capsys.readouterr().err
    lines = (tmp_path / "staged.mlir").read_text(encoding="utf-8").splitlines()
    barriers = [number for number, line in enumerate(lines) if "sync.barrier" in line]
    assert barriers
    (tmp_path / "less.mlir").write_text("\n".join(line for number, line in enumerate(lines) if number != barriers[-1]), encoding="utf-8")
    assert invoke(["verify", "less.mlir"]) != 0


def test_all_functions_of_the_language_are_listed() -> None:
    page = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    assert not [name for name in FUNCTIONS if f"`{name}" not in page and f"tl.{name}" not in page]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
        assert target.startswith("https://") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_page_is_found_from_the_readme() -> None:
    missing = [page.name for page in ROOT.glob("docs/*.md") if f"docs/{page.name}" not in README]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_options_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"CompileOptions[.(](\w+)", text):
        assert name in FIELDS, f"{page.name}: {name}"
    for name in re.findall(r"--option ([a-z]\w*)=", text):
        assert name in FIELDS, f"{page.name}: {name}"
    for name in re.findall(r"\bTREADLE_[A-Z_]+\b", text):
        assert name in KNOBS, f"{page.name}: {name}"
    for verb in re.findall(r"\btreadle ([a-z]+)\b(?= [-A-Z{'\[]|`)", text):
        assert verb in VERBS, f"{page.name}: {verb}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_flags_exist(page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`--flags` that a page names are flags of the command, or of the tools that the page names."""
    named = set(re.findall(r"(?<![-\w])--([a-z][a-z0-9-]+)", page.read_text(encoding="utf-8")))
    monkeypatch.setenv("COLUMNS", "200")
    known = {"help", "version"}
    for verb in VERBS if named else ():
        assert invoke([verb, "--help"]) == 0
        known |= set(re.findall(r"--([a-z][a-z0-9-]+)", capsys.readouterr().out))
    text = page.read_text(encoding="utf-8")
    tools = set(re.findall(r"python (benchmarks/\w+\.py|tests/fuzz)\b[^\n`]* --", text))
    if "examples/kernels" in text:
        tools.add("examples/kernels/softmax.py")  # all have the flags of their harness
    for tool in tools:
        shown = subprocess.run([sys.executable, tool, "--help"], capture_output=True, text=True, check=True, cwd=ROOT)
        known |= set(re.findall(r"--([a-z][a-z0-9-]+)", shown.stdout))
    assert named <= known, named - known
