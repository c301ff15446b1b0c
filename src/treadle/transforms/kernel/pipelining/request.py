"""The attribute `pipeline` of a loop: what set-pipeline asks pipeline-loops for."""

from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

from treadle.errors import SCHEDULE_FORM, TreadleError
from treadle.ir.core import Attribute
from treadle.ir.dialects import builtin, scf
from treadle.ir.locations import location_of
from treadle.plan.stages import Mode, Request, Schedule, Tail

PIPELINE = "pipeline"
PIPELINED = "pipelined"
"""What pipeline-loops leaves on the steady loop: the same entries, as carried out."""
_MODES: tuple[Mode, ...] = get_args(Mode)
_TAILS: tuple[Tail, ...] = get_args(Tail)
_ENTRIES = ("stages", "mode", "buffers", "tail", "reads_ahead", "unroll")


def request_attribute(request: Request) -> builtin.DictionaryAttr:
    """`{stages, mode, buffers, tail, reads_ahead, unroll}`; the last four only where they are asked for."""
    entries: dict[str, Attribute] = {"stages": builtin.IntegerAttr(request.stages, builtin.i64), "mode": builtin.StringAttr(request.mode)}
    if request.buffers:
        entries["buffers"] = builtin.IntegerAttr(request.buffers, builtin.i64)
    if request.tail is not None:
        entries["tail"] = builtin.StringAttr(request.tail)
    if request.reads_ahead:
        entries["reads_ahead"] = builtin.UnitAttr()
    if request.unroll > 1:
        entries["unroll"] = builtin.IntegerAttr(request.unroll, builtin.i64)
    return builtin.DictionaryAttr(entries)


def pipelined_attribute(request: Request, schedule: Schedule) -> builtin.DictionaryAttr:
    """What was done."""
    return request_attribute(replace(request, buffers=max(schedule.slots, default=1), tail=schedule.tail))


def read_request(loop: scf.ForOp) -> Request | None:
    """The request on a loop, None where there is none. Raises `TreadleError` TR416 where it is malformed."""
    attribute = loop.attributes.get(PIPELINE)
    if attribute is None:
        return None
    entries: Mapping[str, Attribute] = attribute.data if isinstance(attribute, builtin.DictionaryAttr) else {}
    stages, mode, buffers, tail, ahead, unroll = (entries.get(name) for name in _ENTRIES)
    known = isinstance(attribute, builtin.DictionaryAttr) and entries.keys() <= set(_ENTRIES)
    if known and isinstance(stages, builtin.IntegerAttr) and isinstance(mode, builtin.StringAttr) and mode.data in _MODES:
        count = 0 if buffers is None else buffers.value.data if isinstance(buffers, builtin.IntegerAttr) else -1
        wanted = None if tail is None else tail.data if isinstance(tail, builtin.StringAttr) else ""
        steps = 1 if unroll is None else unroll.value.data if isinstance(unroll, builtin.IntegerAttr) else 0
        if count >= 0 and steps > 0 and (wanted is None or wanted in _TAILS) and (ahead is None or isinstance(ahead, builtin.UnitAttr)):
            return Request(stages.value.data, mode.data, count, wanted, ahead is not None, steps)
    raise TreadleError(
        SCHEDULE_FORM,
        location_of(loop),
        op="scf.for",
        reason=f"its attribute '{PIPELINE}' is no request: {attribute}",
        fix=f'write {{stages = 3 : i64, mode = "{_MODES[0]}"}}: modes are {", ".join(_MODES)}; optional are '
        f"buffers = N : i64 (not negative), tail, one of {', '.join(_TAILS)}, reads_ahead, and unroll = N : i64 (positive)",
    )
