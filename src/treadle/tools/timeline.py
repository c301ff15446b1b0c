"""`treadle timeline`: who does what when in the kernels of a program, modelled from their schedules anywhere, or measured on a GPU."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from treadle.bench.option_text import options_from_plain, parse_options
from treadle.bench.suite import find
from treadle.dialects.stamp import HEADER
from treadle.errors import USAGE, TreadleError
from treadle.options import CompileOptions
from treadle.timeline.draw import FORMATS, draw
from treadle.timeline.kernels import Timeline, timelines
from treadle.timeline.measured import measured_timelines
from treadle.timeline.perfetto import trace_events
from treadle.tools import report
from treadle.tools.compile import write
from treadle.tools.compile_options import TargetOption
from treadle.tools.inputs import make_inputs
from treadle.transforms.kernel.insert_stamps import DEFAULT_CAPACITY, DEFAULT_WORKGROUPS, InsertStampsPass

SHOWN_CLOCKS = 15_000.0


def timeline(
    file: Annotated[str, typer.Argument(metavar="FILE.mlir|NAME", help="The tensor program, or a workload of `treadle bench --list`.")],
    target: TargetOption = "sm_90a",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="OUT", help=".svg, .png or .pdf: a picture; .json: trace events for Perfetto.")
    ] = None,
    function: Annotated[str | None, typer.Option(help="The function, where the file has several.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="A compile option, such as num_stages=3.")
    ] = None,
    size: Annotated[list[str] | None, typer.Option("--size", metavar="NAME=VALUE", help="A size that only the runtime knows.")] = None,
    begin: Annotated[float, typer.Option(min=0, help="First clock of the picture.")] = 0.0,
    end: Annotated[float, typer.Option(min=0, help="Last clock of the picture; 0: the first 15,000 after its beginning.")] = 0.0,
    until: Annotated[float, typer.Option(min=1, help="Clocks to model.")] = 200_000.0,
    measured: Annotated[bool, typer.Option("--measured", help="Run kernels that record what they do when, instead of the model.")] = False,
    device: Annotated[Literal["cuda", "hip"], typer.Option(help="With --measured: the GPU.")] = "cuda",
    inputs: Annotated[
        list[str] | None, typer.Option("--input", metavar="64x32xf16|FILE.npy", help="With --measured: one input; random ones by default.")
    ] = None,
    workgroups: Annotated[int, typer.Option(min=1, help="With --measured: how many workgroups record.")] = DEFAULT_WORKGROUPS,
    events: Annotated[int, typer.Option(min=8, help="With --measured: at least so many events an agent.")] = DEFAULT_CAPACITY // 2,
) -> int:
    """Show who does what when in each kernel: a table, and a picture or trace events with -o."""
    if output is not None and output.suffix not in (*FORMATS, ".json"):
        raise TreadleError(USAGE, message=f"-o {output}: the name must end in {', '.join((*FORMATS, '.json'))}")
    workload = find(file)
    base = CompileOptions() if workload is None else workload.options
    options = options_from_plain(base, parse_options(option or ()))
    sizes = _sizes(size or ())
    source = Path(file) if workload is None else workload.text
    if measured:
        stamps = InsertStampsPass(workgroups=workgroups, capacity=1 << (events + HEADER - 1).bit_length())
        found = measured_timelines(
            source,
            options,
            function,
            stamps,
            device,
            lambda p: make_inputs(p.name, p.manifest.inputs, inputs or (), 0, p.manifest.number_inputs),
        )
    else:
        found = timelines(source, target, options, function, sizes, until)
    if output is None:
        _show(found)
    elif output.suffix == ".json":
        write(output, json.dumps(trace_events(found)).encode())
    else:
        draw(found, output, begin, end or begin + SHOWN_CLOCKS)
    return 0


def _sizes(texts: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name or not value.isdecimal():
            raise TreadleError(USAGE, message=f"--size {text}: NAME=VALUE is wanted, such as s0=1024")
        found[name] = int(value)
    return found


def _show(found: Sequence[Timeline]) -> None:
    out = report.console()
    for one in found:
        outcome = one.outcome
        cut = ", stopped there" if outcome.is_cut else ""
        microseconds = outcome.clocks / one.clock_mhz
        title = f"{one.kernel} for {one.target}, {one.source}: "
        title += f"{outcome.clocks:.0f} clocks, {microseconds:.2f} us"
        made = report.table(escape(title + cut), "lane", "busy", "waits", "longest waits for")
        for lane in one.lanes:
            waits: dict[str, float] = {}
            for span in outcome.spans:
                if span.lane == lane and span.kind == "wait":
                    waits[span.label] = waits.get(span.label, 0.0) + span.end - span.start
            longest = sorted(waits, key=lambda label: -waits[label])[:3]
            told = ", ".join(f"{label} {waits[label] / outcome.clocks:.0%}" for label in longest)
            is_agent = lane in one.agents
            made.add_row(lane, f"{outcome.busy(lane):.0%}", f"{outcome.waiting(lane):.0%}" if is_agent else "", escape(told))
        out.print(made)
