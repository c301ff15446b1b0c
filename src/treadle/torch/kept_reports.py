"""Reports of graphs that PyTorch's cache keeps: noted again by a process that finds the compiled graph there and looks at no region."""

import json
import os
from collections.abc import Sequence

from treadle.errors import TreadleError
from treadle.runtime.cache import key_of
from treadle.torch.programs import folder
from treadle.torch.reports import RegionRecord, Report, load, note

_DIGITS = 16
_noted: set[str] = set()
"""Graphs whose regions this process has in its report, or had before it was cleared."""


def keep(records: Sequence[RegionRecord]) -> str:
    """Note what became of a graph's regions, and keep it beside PyTorch's cache. The graph's name: its regions are called with it."""
    note(records)
    graph = key_of(json.dumps([record.plain() for record in records]))[:_DIGITS]
    _noted.add(graph)
    target = folder() / f"{graph}.report.json"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{graph}.{os.getpid()}")
        Report(tuple(records)).save(part)
        part.replace(target)
    return graph


def found_again(graph: str) -> None:
    """Note a graph's regions when the first of them runs, where this process has not looked at the graph."""
    if graph in _noted:
        return
    _noted.add(graph)
    try:
        note(load(folder() / f"{graph}.report.json").regions)
    except TreadleError:
        return  # the file has gone: the model runs without
