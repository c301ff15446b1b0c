"""Timelines as trace events (the JSON that Perfetto and chrome://tracing open)."""

from collections.abc import Sequence
from typing import Any

from treadle.timeline.kernels import Timeline

_CATEGORY = {"wait": "wait", "copy": "memory", "store": "memory", "matrix": "matrix", "work": "work", "local": "work"}


def trace_events(found: Sequence[Timeline]) -> dict[str, Any]:
    """One process a kernel, one thread a lane, one complete event a span; times in microseconds, as the format asks."""
    events: list[dict[str, Any]] = []
    for number, timeline in enumerate(found, 1):
        events.append(_named("process_name", number, 0, f"{timeline.kernel} for {timeline.target}, {timeline.source}"))
        lanes = {lane: at for at, lane in enumerate(timeline.lanes, 1)}
        for lane, at in lanes.items():
            events += [_named("thread_name", number, at, lane), _sorted(number, at)]
        events += [
            {
                "ph": "X",
                "name": span.label,
                "cat": _CATEGORY[span.kind],
                "pid": number,
                "tid": lanes[span.lane],
                "ts": span.start / timeline.clock_mhz,
                "dur": (span.end - span.start) / timeline.clock_mhz,
                "args": {"clocks": round(span.end - span.start, 1), "agent": span.agent, "kind": span.kind},
            }
            for span in timeline.outcome.spans
        ]
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _sorted(process: int, thread: int) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": thread, "args": {"sort_index": thread}}
