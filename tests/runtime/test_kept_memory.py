"""Counters that a program keeps from call to call, on stand-ins for the driver and PyTorch: where they lie, and when they are zeroed."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from runtime.fake_cuda import make_torch
from runtime.programs import vector_add_manifest
from runtime.test_calls import Machine

from treadle.artifact import Buffer, Manifest
from treadle.driver.program import Program
from treadle.errors import TreadleError
from treadle.runtime import kept_memory, torch_tensors

STREAM, OTHER, PER_THREAD = 9, 11, 2


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.fixture(params=["driver", "pytorch"])
def torch(machine: Machine, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Whether a stream is captured is asked of the driver, or of PyTorch."""
    made = make_torch()
    if request.param == "pytorch":
        made._C._cuda_isCurrentStreamCapturing = lambda: made.stream in machine.library.captured
    monkeypatch.setitem(sys.modules, "torch", made)
    made.rooms = {}
    made.stream = STREAM
    yield made
    for known in (torch_tensors._streams, torch_tensors._guards, torch_tensors._met, torch_tensors.TENSOR_TYPES):
        known.clear()


def counting(manifest: Manifest) -> Manifest:
    """The first launch adds up counters, in the place of its third array, which it leaves zero (of zeros)."""
    counters = Buffer("b4", "temporary", manifest.buffers[2].bytes, 256, zero=True, kept=True)
    first = manifest.launches[0]
    values = [replace(value, buffer="b4") if getattr(value, "buffer", "") in ("b0", "b1", "b2") else value for value in first.args]
    return replace(manifest, buffers=(*manifest.buffers, counters), launches=(replace(first, args=tuple(values)), *manifest.launches))


@pytest.fixture
def program(machine: Machine) -> Program:
    return machine.program(counting(vector_add_manifest("sm_90a")))


class Seen:
    """The fills and the counters' addresses of the calls since the last look."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def __call__(self) -> tuple[list[tuple[int, int]], set[int]]:
        calls, self.machine.library.calls = self.machine.library.calls, []
        fills = [(call[1], call[4]) for call in calls if call[0] == "fill"]
        launches = [call for call in calls if call[0] == "launch"]
        return fills, {call[-1][0] for call in launches[::3]}


def test_one_piece_a_stream_zeroed_once(machine: Machine, torch: Any, program: Program) -> None:
    x, seen = torch.tensor([1, 2, 3]), Seen(machine)
    places: dict[int, set[int]] = {}
    for stream in (STREAM, OTHER):
        torch.stream = stream
        for turn in range(4):  # looked up, then direct
            (r,) = program(x, x)
            np.testing.assert_array_equal(r.memory, [3, 6, 9])
            fills, places[stream] = seen()
            assert [at for _, at in fills] == ([stream] if turn == 0 else [])
            assert len(places[stream]) == 1 and (not fills or {address for address, _ in fills} == places[stream])
    assert not places[STREAM] & places[OTHER]


def test_graphs_have_counters_of_their_own(machine: Machine, torch: Any, program: Program) -> None:
    """A graph may run beside later calls on the stream that it was captured from, and beside other graphs: each has a piece that was zeroed
    ahead, for all its calls on a stream.
    """
    x, y, seen = torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6]), Seen(machine)
    for _ in range(3):
        program(x, y)
    ((start, _),), usual = seen()
    pieces: list[int] = []
    for graph in (7, 5, 7, 8):
        for stream in (STREAM, OTHER):
            torch.stream, machine.library.capture = stream, graph
            machine.library.captured.add(stream)
            for _ in range(3):
                program(x, y)
                fills, (place,) = seen()
                pieces.append(place)
                assert not fills
    assert len(set(pieces)) == 6 and start not in pieces
    assert pieces[:6] == pieces[12:18] == [pieces[0]] * 3 + [pieces[3]] * 3
    machine.library.captured.clear()
    torch.stream = STREAM
    program(x, y)
    assert seen() == ([], usual)


@pytest.mark.parametrize("is_first", [False, True])
def test_graphs_without_a_piece_zero_their_own(machine: Machine, torch: Any, program: Program, is_first: bool) -> None:
    """Those that the driver has no number for, those captured before any call, and those behind the last piece."""
    x, seen = torch.tensor([1, 2, 3]), Seen(machine)
    if not is_first:
        program(x, x)
    _, usual = seen()
    machine.library.captured.add(STREAM)
    for graph in (0, *range(1, 40)):
        machine.library.capture = graph
        for _ in range(3):
            program(x, x)
            fills, places = seen()
            has_piece = not is_first and 0 < graph <= kept_memory._FOR_GRAPHS
            assert [address for address, _ in fills] == ([] if has_piece else list(places)) and not places & usual


def test_a_stream_that_is_another_in_each_thread(machine: Machine, torch: Any, program: Program) -> None:
    torch.stream = PER_THREAD
    x, seen = torch.tensor([1, 2, 3]), Seen(machine)
    for _ in range(3):
        program(x, x)
        assert len(seen()[0]) == 1


def test_the_driver_is_asked_where_pytorch_refuses(machine: Machine, torch: Any, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch raises an error for the legacy stream while another one is captured."""
    asked: list[int] = []
    answers: list[Any] = [False, RuntimeError("it is captured elsewhere")]

    def is_captured(stream: int) -> bool:
        asked.append(stream)
        return False

    def of_pytorch() -> bool:
        if isinstance(answer := answers[-1], Exception):
            raise answer
        return answer

    torch._C._cuda_isCurrentStreamCapturing = of_pytorch
    x, y = torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6])
    for _ in range(3):
        program(x, y)
    monkeypatch.setattr(machine.device, "is_capturing", is_captured)
    program(x, y)
    assert asked == [STREAM]
    answers.pop()
    program(x, y)
    assert asked == [STREAM]


@pytest.mark.parametrize("captured", [False, True])
def test_bound_calls(machine: Machine, torch: Any, program: Program, captured: bool) -> None:
    """Their counters are their own, zero from the start, whatever the stream; of those that are bound in a capture at every call."""
    x, seen = torch.tensor([1, 2, 3]), Seen(machine)
    program(x, x)
    _, usual = seen()
    machine.library.captured.update([STREAM] if captured else [])
    bound = program.bind(x, x)
    assert len(seen()[0]) == (0 if captured else 1)
    for stream in (STREAM, OTHER, STREAM):
        torch.stream = stream
        bound()
        fills, places = seen()
        assert [at for _, at in fills] == ([stream] if captured else []) and not places & usual


def test_without_pytorch(machine: Machine, program: Program) -> None:
    x, seen = np.array([1, 2, 3], np.float32), Seen(machine)
    for turn in range(3):
        np.testing.assert_array_equal(program(x, x)[0].numpy(), [3, 6, 9])
        assert len(seen()[0]) == (1 if turn == 0 else 0)


def test_the_manifest_says_so() -> None:
    manifest = counting(vector_add_manifest("sm_90a"))
    text = manifest.to_json()
    assert '"kept": true' in text and Manifest.from_json(text) == manifest
    with pytest.raises(TreadleError, match="only temporary memory of zeros is kept"):
        Manifest.from_json(text.replace('"zero": true,', '"zero": false,'))
