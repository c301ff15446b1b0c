"""Calls on PyTorch tensors like those of an earlier call, without finding out once more what they are.

A guard (`torch_tensors.guard_of`) compares everything about the tensors but their addresses, so what is left is the stream, the addresses,
memory for results, and the launches prepared for them. Nothing is remembered by a tensor object: tensors can change in place. A settled
call has no guard: its caller, code that a compiler wrote, passes tensors of one kind.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

DirectCall = Callable[[Sequence[Any], Sequence[Any]], tuple[Any, ...] | None]
"""From arguments and given results (none: empty) to the results; None, with nothing done, for a call of another kind."""

UNALIGNED: Final = -1
"""A mask under which no address is aligned."""


def never(arrays: Sequence[Any], outs: Sequence[Any]) -> None:
    """No call is known yet, or none can be recognised."""


SettledCall = Callable[..., tuple[Any, ...]]
"""From the arguments to the results, for arguments whose kind the caller answers for."""


def _body(inputs: Sequence[str], given: Sequence[str], made: Sequence[str], results: int, otherwise: str) -> list[str]:
    """The lines of a call on tensors that are what they are expected to be. `otherwise`: what it gives at addresses of another kind."""
    tensors = [*inputs, *given]
    pointers = [f"p{i}" for i in range(len(tensors))]
    return [
        *(f"{x} = make_{x}()" for x in made),
        *(f"{p} = {x}.data_ptr()" for p, x in zip(pointers, tensors, strict=True)),
        f"key = (stream_of(ordinal), {', '.join([*pointers, *(f'{x}.data_ptr()' for x in made)])})",
        "launches = prepared(key)",
        "if launches is None:",
        f"  if ({' | '.join(pointers)}) & mask:",
        f"    return {otherwise}",
        "  launches = prepare(key)",
        "for enqueue in launches:",
        "  if status := enqueue():",
        "    retry(enqueue, status)",
        f"return ({''.join(f'{x}, ' for x in given or made[:results])})",
    ]


def _function(arguments: str, made: Sequence[str], lines: Sequence[str]) -> Callable[..., Any]:
    """What makes functions with these lines, over what they use."""
    text = [
        f"def make({arguments}, makers, stream_of, ordinal, prepared, prepare, mask, retry):",
        *([f"  {', '.join(f'make_{x}' for x in made)}, = makers"] if made else []),
        *(f"  {line}" for line in lines),
        "  return call",
    ]
    functions: dict[str, Any] = {}
    exec("\n".join(text), functions)
    return functions["make"]


@lru_cache(maxsize=64)
def _maker(inputs: int, given: int, made: int, results: int) -> Callable[..., DirectCall]:
    """A function that makes direct calls of so many arrays.

    `made` tensors are allocated, of which the first `results` are returned; with `given` results those are. Written out for the numbers,
    since loops over them would cost as much as what they do.
    """
    a, r, t = ([f"{letter}{i}" for i in range(count)] for letter, count in (("a", inputs), ("r", given), ("t", made)))
    counts = " and ".join([f"len(arrays) == {inputs}", *([f"len(outs) == {given}"] if given else [])])
    lines = [
        "def call(arrays, outs):",
        f"  if {counts}:",
        f"    {', '.join(a)}, = arrays",
        *([f"    {', '.join(r)}, = outs"] if given else []),
        f"    if check({', '.join([*a, *r])}):",
        *(f"      {line}" for line in _body(a, r, t, results, "None")),
        "  return None",
    ]
    return _function("check", t, lines)


@lru_cache(maxsize=64)
def _settled_maker(inputs: int, made: int, results: int) -> Callable[..., SettledCall]:
    """A function that makes settled calls of so many arrays."""
    a, t = ([f"{letter}{i}" for i in range(count)] for letter, count in (("a", inputs), ("t", made)))
    lines = [
        f"def call({', '.join(a)}):",
        *(f"  {line}" for line in _body(a, [], t, results, f"other({', '.join(a)})")),
    ]
    return _function("other", t, lines)


def direct_call(
    check: Callable[..., bool],
    counts: tuple[int, int, int],
    makers: Sequence[Callable[[], Any]],
    stream: tuple[Callable[[int], int], int],
    prepared: Callable[[tuple[int, ...]], Any],
    prepare: Callable[[tuple[int, ...]], Any],
    mask: int,
    retry: Callable[[Callable[[], int], int], None],
) -> DirectCall:
    """A direct call.

    `check`: the guard of arguments and given results. `counts`: of arguments, given results and results. `makers`: of results that are not
    given, then of a workspace. `stream`: PyTorch's function for the current stream, and its argument. `prepared` finds launches by stream
    and addresses (arguments, given results, made tensors), `prepare` makes them, for addresses with no bit of `mask`. `retry` is told of
    a launch that was refused.
    """
    inputs, given, results = counts
    return _maker(inputs, given, len(makers), results)(check, makers, *stream, prepared, prepare, mask, retry)


def settled_call(
    other: SettledCall,
    counts: tuple[int, int],
    makers: Sequence[Callable[[], Any]],
    stream: tuple[Callable[[int], int], int],
    prepared: Callable[[tuple[int, ...]], Any],
    prepare: Callable[[tuple[int, ...]], Any],
    mask: int,
    retry: Callable[[Callable[[], int], int], None],
) -> SettledCall:
    """A call that looks at nothing but addresses. `other`: what to call at those with a bit of `mask`. `counts`: of arguments and results.
    The rest as for `direct_call`.
    """
    inputs, results = counts
    return _settled_maker(inputs, len(makers), results)(other, makers, *stream, prepared, prepare, mask, retry)
