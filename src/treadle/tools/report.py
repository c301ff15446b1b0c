"""Tables of the command line: what was formed, chosen and generated, and whether the result is right."""

from collections.abc import Sequence
from dataclasses import replace

from rich import box
from rich.console import Console
from rich.table import Table

from treadle.driver import Program
from treadle.remarks import Remark
from treadle.sim.check import CheckResult
from treadle.torch.reports import RegionRecord, Report

_STYLES = {"decision": "green", "refusal": "yellow", "note": "dim"}


def table(title: str, *columns: str) -> Table:
    """An empty table in the house style."""
    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def kernels_table(program: Program) -> Table:
    """What was formed: kernels, their grids, workgroups, shared memory and the size of their binaries."""
    made = table("formed", "kernel", "grid", "workgroup", "shared bytes", "binary bytes")
    grids: dict[str, list[str]] = {}
    for launch in program.manifest.launches:
        grids.setdefault(launch.kernel, []).append(" x ".join(str(extent) for extent in launch.grid))
    for kernel in program.manifest.kernels:
        size = len(program.binaries.get(kernel.binary, b""))
        made.add_row(
            kernel.symbol,
            "\n".join(grids.get(kernel.name, ["not launched"])),
            " x ".join(str(extent) for extent in kernel.block),
            str(kernel.shared_bytes),
            str(size) if size else "-",
        )
    return made


def remarks_table(remarks: Sequence[Remark], title: str = "chosen", kinds: Sequence[str] = ("decision", "refusal", "note")) -> Table:
    """Decisions and refusals with their reasons, kernel by kernel, in the order they were made."""
    made = table(title, "kernel", "pass", "what and why", "line")
    shown = [remark for remark in remarks if remark.kind in kinds]
    subjects = list(dict.fromkeys(remark.subject for remark in shown))
    for subject in subjects:
        for number, remark in enumerate(remark for remark in shown if remark.subject == subject):
            line = str(remark.location.line) if remark.location else ""
            text = remark.text if remark.kind == "decision" else f"{remark.kind}: {remark.text}"
            made.add_row("" if number else subject, remark.pass_name, f"[{_STYLES[remark.kind]}]{_plain(text)}[/]", line)
        made.add_section()
    return made


def regions_table(report: Report, title: str) -> Table:
    """The regions of PyTorch's graphs; those that differ in their place alone are one row."""
    made = table(title, "", "region", "shapes", "what became of it", "modelled us", "replaced us", "measured us", "first at")
    rows: dict[RegionRecord, list[RegionRecord]] = {}
    for region in report.regions:
        rows.setdefault(replace(region, node="", where=""), []).append(region)
    for row, alike in rows.items():
        times = (*(row.measured_us or (None, row.replaced_us)), row.modelled_us)
        measured, replaced, modelled = ("-" if time is None else f"{time:.1f}" for time in times)
        fate = f"[{'green' if row.taken else 'yellow'}]{_plain(row.fate)}[/]"
        said = map(_plain, (" ".join(row.operators), row.shapes))
        made.add_row(f"{len(alike)} x", *said, fate, modelled, replaced, measured, _plain(alike[0].where))
    return made


def results_table(outputs: Sequence[tuple[str, str]], comparisons: Sequence[CheckResult]) -> Table:
    """The outputs (name, type) and, where they were compared, their errors and verdicts."""
    columns = ("relative error", "allowed", "worst of its own bound", "verdict") if comparisons else ()
    made = table("result", "output", "type", *columns)
    for number, (name, kind) in enumerate(outputs):
        row = [name, kind]
        if comparisons:
            one = comparisons[number]
            verdict = "[green]correct[/]" if one.ok else f"[bold red]WRONG[/] at {one.place}: {_plain(one.problem)}"
            row += [f"{one.relative_error:.2e}", f"{one.allowed:.1e}", f"{one.worst:.2f}", verdict]
        made.add_row(*row)
    return made


def _plain(text: str) -> str:
    return text.replace("[", r"\[")


def console() -> Console:
    """A console on stdout; wide where stdout is not a terminal, so that nothing that reads it meets folded lines."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=160)
