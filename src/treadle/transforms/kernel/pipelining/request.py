"""The attribute `pipeline` of a loop: what set-pipeline asks pipeline-loops for."""

from collections.abc import Mapping
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
_ENTRIES = ("stages", "mode", "buffers", "tail")


def request_attribute(request: Request) -> builtin.DictionaryAttr:
    """`{stages, mode, buffers, tail}`; the last two only where they are asked for."""
    entries: dict[str, Attribute] = {"stages": builtin.IntegerAttr(request.stages, builtin.i64), "mode": builtin.StringAttr(request.mode)}
    if request.buffers:
        entries["buffers"] = builtin.IntegerAttr(request.buffers, builtin.i64)
    if request.tail is not None:
        entries["tail"] = builtin.StringAttr(request.tail)
    return builtin.DictionaryAttr(entries)


def pipelined_attribute(request: Request, schedule: Schedule) -> builtin.DictionaryAttr:
    """What was done."""
    return request_attribute(Request(schedule.stages, request.mode, max(schedule.slots, default=1), schedule.tail))


def read_request(loop: scf.ForOp) -> Request | None:
    """The request on a loop, None where there is none. Raises `TreadleError` TR416 where it is malformed."""
    attribute = loop.attributes.get(PIPELINE)
    if attribute is None:
        return None
    entries: Mapping[str, Attribute] = attribute.data if isinstance(attribute, builtin.DictionaryAttr) else {}
    stages, mode, buffers, tail = (entries.get(name) for name in _ENTRIES)
    known = isinstance(attribute, builtin.DictionaryAttr) and entries.keys() <= set(_ENTRIES)
    if known and isinstance(stages, builtin.IntegerAttr) and isinstance(mode, builtin.StringAttr) and mode.data in _MODES:
        count = 0 if buffers is None else buffers.value.data if isinstance(buffers, builtin.IntegerAttr) else -1
        wanted = None if tail is None else tail.data if isinstance(tail, builtin.StringAttr) else ""
        if count >= 0 and (wanted is None or wanted in _TAILS):
            return Request(stages.value.data, mode.data, count, wanted)
    raise TreadleError(
        SCHEDULE_FORM,
        location_of(loop),
        op="scf.for",
        reason=f"its attribute '{PIPELINE}' is no request: {attribute}",
        fix=f'write {{stages = 3 : i64, mode = "{_MODES[0]}"}}: modes are {", ".join(_MODES)}; optional are '
        f"buffers = N : i64 (not negative) and tail, one of {', '.join(_TAILS)}",
    )
