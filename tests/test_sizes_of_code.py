"""The limits of CONTRIBUTING: files of at most 400 lines, functions of at most 60 lines and 30 branches."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
BRANCHES = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.comprehension, ast.match_case)


def branches(function: ast.AST) -> int:
    """How many ways an operation goes: statements, cases, comprehensions, operands of `and` and `or` but the first."""
    inside = list(ast.walk(function))
    return sum(isinstance(node, BRANCHES) for node in inside) + sum(len(node.values) - 1 for node in inside if isinstance(node, ast.BoolOp))


def too_large(text: str, name: str) -> list[str]:
    """What of a file is too large."""
    found = [f"{name}: {len(text.splitlines())} lines"] if len(text.splitlines()) > 400 else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > 60 or branches(node) > 30:
                found.append(f"{name}: {node.name} has {lines} lines and {branches(node)} branches")
    return found


def test_files_and_functions_are_small() -> None:
    paths = sorted(SOURCE.rglob("*.py"))
    assert len(paths) > 100
    assert not [problem for path in paths for problem in too_large(path.read_text("utf-8"), str(path.relative_to(SOURCE)))]


def test_large_ones_are_found() -> None:
    long = "def f():\n" + "    pass\n" * 60
    wide = "def g(a):\n" + "".join(f"    if a == {n} or a: pass\n" for n in range(16))
    assert len(too_large(long, "x")) == len(too_large(wide, "x")) == len(too_large("\n" * 401, "x")) == 1
    assert not too_large("def f():\n" + "    pass\n" * 59, "x")
