"""The import order of docs/architecture.md, "Packages and the import order": every import of the package is walked and judged."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "treadle"

# From the ground upwards; a package imports from lower floors or itself. The ground floor's rooms may see each other.
FLOORS = (
    (
        "records",
        "garbage",
        "errors",
        "remarks",
        "options",
        "knobs",
        "ir",
        "machine",
        "layout",
        "plan",
        "codegen",
        "artifact",
        "artifact_folder",
        "manifest_reader",
    ),
    ("dialects",),
    ("analysis",),
    ("strategies",),
    ("verify", "sim", "targets", "runtime"),
    ("transforms", "frontends"),
    ("pipelines",),
    ("driver",),
    ("bench", "timeline"),
    ("language",),
    ("torch",),
    ("tools",),
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
VENDORS = ("nvidia", "amd")
# The package's own front door loads public names lazily and may name any room.
FRONT_DOOR = "treadle"


def module_name(path: Path) -> str:
    """`src/treadle/ir/core.py` -> `treadle.ir.core`."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, importer: str, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Line and absolute module name of each import, `import_module("...")` and imports inside functions included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = importer.split(".")[: len(importer.split(".")) - node.level + is_package] if node.level else []
            home = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{home}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if function in ("import_module", "__import__"):
                yield node.lineno, node.args[0].value


def objection(importer: str, target: str) -> str | None:
    """Why `importer` may not import `target`; None where it may."""
    here, there = importer.split("."), target.split(".")
    if there[0] == "xdsl":
        return None if here[1:2] == ["ir"] else "only treadle.ir imports xdsl"
    if there[0] != "treadle" or len(there) == 1 or importer == FRONT_DOOR or there[1].startswith("__"):
        return None
    for room in (here[1], there[1]):
        if room not in FLOOR_OF:
            return f"`{room}` has no floor in the import order"
    vendor = there[2] if there[1] == "targets" and len(there) > 2 and there[2] in VENDORS else None
    if vendor and here[1:3] != ["targets", vendor] and here[1:] != ["targets", "registry"]:
        return "a vendor is reached through targets/registry.py only"
    if here[1] == there[1]:
        return None
    if here[1] == "transforms" and there[1] == "targets":
        return "transforms see machine, never targets"
    if here[1] in ("verify", "sim") and there[1] == "analysis":
        return "the prover and the simulator are independent of what the passes go by"
    if FLOOR_OF[here[1]] == FLOOR_OF[there[1]] == 0 or FLOOR_OF[there[1]] < FLOOR_OF[here[1]]:
        return None
    return f"`{there[1]}` is not on a lower floor than `{here[1]}`"


def violations(importer: str, text: str, is_package: bool = False) -> list[str]:
    """Every forbidden import of one module's text."""
    found = ((line, target, objection(importer, target)) for line, target in imported(ast.parse(text), importer, is_package))
    return [f"{importer}:{line}: imports {target}: {why}" for line, target, why in found if why]


def test_imports_go_downwards() -> None:
    paths = sorted(SOURCE.rglob("*.py"))
    assert len(paths) > 5
    found = [
        message for path in paths for message in violations(module_name(path), path.read_text(encoding="utf-8"), path.name == "__init__.py")
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("importer", "text", "why"),
    [
        ("treadle.dialects.tile", "from xdsl.ir import Operation", "only treadle.ir"),
        ("treadle.plan.expr", "def f():\n    import xdsl", "only treadle.ir"),
        ("treadle.ir.core", "from treadle.dialects import tile", "lower floor"),
        ("treadle.transforms.kernel.x", "from treadle.targets import registry", "never targets"),
        ("treadle.transforms.kernel.x", "from treadle.targets.simt import emit", "never targets"),
        ("treadle.targets.nvidia.emit", "from treadle.targets.amd import emit", "registry"),
        ("treadle.targets.simt.emit", "from treadle.targets import nvidia", "registry"),
        ("treadle.targets.amd.emit", "from ..nvidia import emit", "registry"),
        ("treadle.driver", "import treadle.targets.nvidia.emit", "registry"),
        ("treadle.sim.machine", "from treadle.transforms import common", "lower floor"),
        ("treadle.analysis.slices", "from treadle import verify", "lower floor"),
        ("treadle.verify.engine", "from treadle.analysis import structured_flow", "independent"),
        ("treadle.sim.machine", "from treadle.analysis import slots", "independent"),
        ("treadle.pipelines", "from importlib import import_module\nimport_module('treadle.driver')", "lower floor"),
        ("treadle.frontends.kernels", "from treadle import driver", "lower floor"),
        ("treadle.driver.program", "from treadle.language import kernel", "lower floor"),
        ("treadle.language.kernel", "from treadle.torch import operators", "lower floor"),
        ("treadle.language.kernel", "from treadle.targets.nvidia import backend", "registry"),
        ("treadle.torch.backend", "import treadle.tools.main", "lower floor"),
        ("treadle.helpers.x", "from treadle import errors", "no floor"),
    ],
)
def test_forbidden_imports_are_seen(importer: str, text: str, why: str) -> None:
    assert [why in message for message in violations(importer, text)] == [True]


@pytest.mark.parametrize(
    ("importer", "text"),
    [
        ("treadle.ir.core", "from xdsl.ir import Operation"),
        ("treadle.targets.registry", "from treadle.targets.nvidia import target"),
        ("treadle.targets.nvidia.emit", "from treadle.targets.simt import emit"),
        ("treadle.driver", "from treadle import __version__, pipelines"),
        ("treadle.machine.spec", "from treadle import errors"),
        ("treadle.language.kernel", "from treadle import driver\nfrom treadle.dialects import tile\nfrom treadle.timeline import kernels"),
        ("treadle.torch.backend", "from treadle import driver\nfrom treadle.language import kernel\nfrom treadle.ir import builtin"),
        ("treadle.targets.simt.ages", "from treadle.analysis import structured_flow"),
        ("treadle.transforms.kernel.x", "from treadle.machine import spec\nimport numpy"),
    ],
)
def test_allowed_imports_pass(importer: str, text: str) -> None:
    assert violations(importer, text) == []


def passes_among(modules: dict[str, str]) -> set[str]:
    """The modules, by name with their text, that define a registered pass."""
    return {name for name, text in modules.items() if re.search(r"^@register_pass$", text, re.MULTILINE)}


def passes_that_import_passes(modules: dict[str, str]) -> list[str]:
    """Each import of one pass module by another: what two passes share belongs to neither."""
    passes = passes_among(modules)
    return [
        f"{name}:{line}: imports {target}"
        for name in sorted(passes)
        for line, target in imported(ast.parse(modules[name]), name)
        if target in passes or target.rpartition(".")[0] in passes
    ]


def test_passes_do_not_import_passes() -> None:
    modules = {module_name(path): path.read_text(encoding="utf-8") for path in (SOURCE / "transforms").rglob("*.py")}
    assert len(passes_among(modules)) > 30
    found = passes_that_import_passes(modules)
    assert not found, "\n".join(found)


def test_imports_among_passes_are_seen() -> None:
    decider = "@register_pass\nclass A:\n    pass\n\ndef helper() -> None: ...\n"
    modules = {
        "t.a": decider,
        "t.b": f"from t.a import helper\n{decider}",
        "t.c": "from t.a import helper\n",
        "t.d": f"import t.a\n{decider}",
    }
    assert passes_that_import_passes(modules) == ["t.b:1: imports t.a.helper", "t.d:1: imports t.a"]


def pass_names(text: str) -> list[str]:
    """The names of the passes that a module's text registers."""
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    registered = [node for node in classes if "register_pass" in map(ast.unparse, node.decorator_list)]
    assigned = [statement for node in registered for statement in node.body if isinstance(statement, ast.AnnAssign | ast.Assign)]
    return [
        statement.value.value
        for statement in assigned
        if isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)
        for target in ([statement.target] if isinstance(statement, ast.AnnAssign) else statement.targets)
        if isinstance(target, ast.Name) and target.id == "name"
    ]


def test_pass_file_and_test_have_one_name() -> None:
    """`set-kernel-form`, `set_kernel_form.py`, `test_set_kernel_form.py`, which may have more behind that."""
    tests = [path.stem for path in Path(__file__).parent.rglob("test_*.py")]
    found: list[str] = []
    for path in (SOURCE / "transforms").rglob("*.py"):
        for name in pass_names(path.read_text(encoding="utf-8")):
            found += [name]
            assert path.stem == name.replace("-", "_")
            assert any(test.startswith(f"test_{path.stem}") for test in tests), f"{name} has no test"
    assert len(found) > 30
