"""Timelines as one picture, by matplotlib (extra `plots`): a row a lane, a bar a span, colours by what it is."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from treadle.errors import TOOL_MISSING, WRITE_FILE, TreadleError
from treadle.timeline.kernels import Timeline
from treadle.timeline.steps import SpanKind

COLOURS: Final[dict[SpanKind, str]] = {
    "work": "#8fa6bd",
    "local": "#5b8c85",
    "matrix": "#c1543c",
    "copy": "#3f6fb5",
    "store": "#8a63a8",
    "wait": "#e8e2d3",
}
FORMATS = (".svg", ".png", ".pdf")
_MIN_LABEL_SHARE = 0.05
_ROW_INCHES, _WIDTH_INCHES = 0.34, 15.0


def draw(found: Sequence[Timeline], path: Path, begin: float, end: float) -> None:
    """Write the picture of `begin` to `end` clocks; the name's ending says in which format. Raises TR551 without matplotlib, TR902."""
    try:
        figures: Any = import_module("matplotlib.figure")
    except ImportError as problem:
        raise TreadleError(TOOL_MISSING, tool="matplotlib", reason=problem, install="it with `pip install treadle[plots]`") from None
    rows = [len(timeline.lanes) for timeline in found]
    height = sum(rows) * _ROW_INCHES + 1.1 * len(found) + 0.4
    figure = figures.Figure(figsize=(_WIDTH_INCHES, height), layout="constrained")
    axes = figure.subplots(len(found), 1, squeeze=False, height_ratios=[count + 2 for count in rows])
    for (one,), timeline in zip(axes, found, strict=True):
        _draw_one(one, timeline, begin, min(end, timeline.outcome.clocks))
    handles = [import_module("matplotlib.patches").Patch(color=colour, label=kind) for kind, colour in COLOURS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8)
    try:
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    except OSError as problem:
        raise TreadleError(WRITE_FILE, path=path, reason=problem.strerror or problem) from problem


def _draw_one(axes: Any, timeline: Timeline, begin: float, end: float) -> None:
    lanes = {lane: row for row, lane in enumerate(timeline.lanes)}
    for span in timeline.outcome.spans:
        low, high = max(span.start, begin), min(span.end, end)
        if high <= low:
            continue
        row = lanes[span.lane]
        axes.barh(row, high - low, left=low, height=0.8, color=COLOURS[span.kind], edgecolor="white", linewidth=0.2)
        if high - low > _MIN_LABEL_SHARE * (end - begin):
            axes.text((low + high) / 2, row, span.label, ha="center", va="center", fontsize=6, clip_on=True)
    outcome = timeline.outcome
    labels = [
        f"{lane}\nwaits {outcome.waiting(lane):.0%}" if lane in timeline.agents else f"{lane}\nbusy {outcome.busy(lane):.0%}"
        for lane in lanes
    ]
    axes.set_yticks(range(len(lanes)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlim(begin, end)
    microseconds = (end - begin) / timeline.clock_mhz
    axes.set_xlabel(f"clocks (at {timeline.clock_mhz} MHz, {end - begin:.0f} clocks are {microseconds:.2f} us)", fontsize=8)
    cut = ", stopped there" if outcome.is_cut else ""
    title = f"{timeline.kernel} for {timeline.target}: {timeline.source}, {outcome.clocks:.0f} clocks{cut}"
    axes.set_title(title, fontsize=9, loc="left")
    axes.tick_params(axis="x", labelsize=7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
