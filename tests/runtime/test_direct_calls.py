"""Calls like the one before: what they go without, and whatever makes a call another one, on stand-ins for the driver and PyTorch."""

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from cuda.bindings import driver as real
from runtime.fake_cuda import make_torch
from runtime.programs import vector_add_manifest
from runtime.test_calls import Machine, code_of

from treadle.driver.program import Program
from treadle.errors import TreadleError
from treadle.runtime import torch_tensors
from treadle.runtime.call_cache import CallCache
from treadle.runtime.direct_call import never

INVALID_CONTEXT, INVALID_HANDLE = int(real.CUresult.CUDA_ERROR_INVALID_CONTEXT), int(real.CUresult.CUDA_ERROR_INVALID_HANDLE)
OTHER_CONTEXT = 0xBAD


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made = make_torch()
    monkeypatch.setitem(sys.modules, "torch", made)
    yield made
    for known in (torch_tensors._streams, torch_tensors._guards, torch_tensors._met, torch_tensors.TENSOR_TYPES):
        known.clear()


class NamedResult(NamedTuple):
    """A sequence of another type."""

    only: Any


class Calls:
    """A program whose next call on `x`, `y` (and `z`) is direct, and how often arrays were looked up since."""

    def __init__(self, machine: Machine, torch: Any, monkeypatch: pytest.MonkeyPatch, given: bool) -> None:
        manifest = vector_add_manifest("sm_90a")
        b0, *rest = manifest.buffers
        self.program = machine.program(replace(manifest, buffers=(replace(b0, align=16), *rest)))
        self.x, self.y, self.z = (torch.tensor(np.arange(8) * k) for k in (1, 10, 0))
        self.given, self.found = given, 0
        torch.rooms = {}
        for _ in range(3):
            self()
        machine.launches()
        find = CallCache.find

        def counted(cache: CallCache, arrays: Any, outs: Any) -> Any:
            self.found += 1
            return find(cache, arrays, outs)

        monkeypatch.setattr(CallCache, "find", counted)

    def __call__(self) -> Any:
        return self.program(self.x, self.y, **({"out": self.z} if self.given else {}))[0]

    def right(self, made: Any) -> None:
        np.testing.assert_array_equal(made.memory, self.x.memory + 2 * self.y.memory)


@pytest.fixture(params=[False, True], ids=["fresh", "given"])
def calls(machine: Machine, torch: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Calls:
    return Calls(machine, torch, monkeypatch, request.param)


def test_a_call_like_the_last_one_looks_nothing_up(torch: Any, calls: Calls) -> None:
    first = calls()
    calls.right(first)
    calls.x, calls.y = torch.tensor(np.ones(8)), torch.tensor(np.full(8, 3))  # other tensors of the kind, at other addresses
    second = calls()
    calls.right(second)
    assert (first is second) == calls.given
    if calls.given:
        assert calls.program(calls.x, calls.y, out=[calls.z]) == (calls.z,)
    assert calls.found == 0
    if calls.given:
        assert calls.program(calls.x, calls.y, out=NamedResult(calls.z)) == (calls.z,)


def test_new_memory_behind_a_tensor(torch: Any, calls: Calls) -> None:
    calls.x.memory = torch.tensor(np.full(8, 7)).memory
    calls.right(calls())
    assert calls.found == 0


def resize(torch: Any, tensor: Any) -> None:
    tensor.memory = torch.tensor(np.ones(5)).memory


def spread(torch: Any, tensor: Any) -> None:
    tensor.memory = torch.tensor(np.ones(16)).memory[::2]


def retype(torch: Any, tensor: Any) -> None:
    tensor.dtype = torch.float16


def negate(torch: Any, tensor: Any) -> None:
    tensor.negated = True


def move(torch: Any, tensor: Any) -> None:
    tensor.device.index = 1
    tensor.get_device = lambda: 1


@pytest.mark.parametrize(
    ("change", "code"),
    [(resize, "TR723"), (spread, "TR727"), (retype, "TR725"), (negate, "TR729"), (move, "TR726")],
    ids=lambda x: getattr(x, "__name__", None),
)
@pytest.mark.parametrize("which", ["x", "y", "z"])
def test_a_tensor_that_changed_in_place(
    torch: Any, calls: Calls, change: Callable[[Any, Any], None], code: str, which: str, machine: Machine
) -> None:
    if which == "z" and not calls.given:
        return
    change(torch, getattr(calls, which))
    found = code_of(calls)
    assert found == (code if which != "z" or change is negate else "TR731")
    assert calls.found
    assert not machine.launches()


def test_shapes_in_turn(torch: Any, calls: Calls) -> None:
    sizes = (8, 3, 8, 3, 0, 8)
    for size in sizes:
        calls.x, calls.y, calls.z = (torch.tensor(np.full(size, k)) for k in (1, 2, 3))
        calls.right(calls())
    assert calls.found == 3  # 3 is new, then known; 0 is new, so that 3 and 8 are still the last two with direct calls


def test_two_kinds_in_turn_are_looked_up_once(torch: Any, calls: Calls) -> None:
    first, second = ([torch.tensor(np.full(size, k)) for k in (1, 2, 3)] for size in (8, 3))
    for number in range(12):
        calls.x, calls.y, calls.z = (second, first)[number % 2]
        calls.right(calls())
    assert calls.found == 2  # a first call, and one to make its direct call
    third = [torch.tensor(np.full(5, k)) for k in (1, 2, 3)]
    for arrays in (first, third, third, first):  # the older of two is the one used longer ago
        calls.x, calls.y, calls.z = arrays
        calls.right(calls())
    assert calls.found == 4


def test_an_address_that_is_less_aligned(torch: Any, machine: Machine, calls: Calls) -> None:
    machine.variants.clear()

    def specialise(layouts: Any, *, wide: bool) -> Program:
        machine.variants.append(layouts)
        return machine.program(vector_add_manifest("sm_90a"))  # takes what is aligned to 4 bytes

    calls.program._specialise = specialise
    room, good = torch.tensor(np.arange(9)), calls.x
    off = torch.tensor(np.ones(8))
    off.memory = room.memory[1:]
    for x in (off, good, off, off, off, good, good):
        calls.x = x
        calls.right(calls())
    assert len(machine.variants) == 1
    assert machine.variants[0][0] is not None
    assert calls.found == 2  # new ones of less aligned addresses are looked up
    for known in calls.program._calls._forms.values():
        prepared = [key[1] for key in known.form._prepared if key[1] in (good.data_ptr(), off.data_ptr())]
        assert len(prepared) == 1, "a form was used for addresses of the other alignment"


def test_a_settled_call_looks_at_addresses_alone(torch: Any, machine: Machine, calls: Calls) -> None:
    """It takes new memory and streams as they come, and leaves what is less aligned to the program."""
    if calls.given:
        return
    settled = calls.program.settled([calls.x, calls.y])
    assert settled is not None
    calls.found = 0
    calls.right(settled(calls.x, calls.y)[0])
    calls.x, calls.y = torch.tensor(np.ones(8)), torch.tensor(np.full(8, 3))
    torch.stream = 5
    machine.launches()
    calls.right(settled(calls.x, calls.y)[0])
    assert [launch[5] for launch in machine.launches()] == [5, 5]
    assert calls.found == 0

    def specialise(layouts: Any, *, wide: bool) -> Program:
        return machine.program(vector_add_manifest("sm_90a"))

    calls.program._specialise = specialise
    room = torch.tensor(np.arange(9))
    calls.x = torch.tensor(np.ones(8))
    calls.x.memory = room.memory[1:]
    calls.right(settled(calls.x, calls.y)[0])
    assert calls.found
    assert calls.program.settled([calls.x, calls.y]) is None


def test_what_does_not_settle(torch: Any, machine: Machine) -> None:
    program = machine.program(vector_add_manifest("sm_90a"))
    x = torch.tensor([1, 2, 3])
    assert program.settled([x, x]) is None  # no call of the kind was made
    program(x, x)
    assert program.settled([x, x]) is not None
    array = np.ones(3, np.float32)
    made = program(array, array)[0]
    assert program.settled([array, array]) is None
    program(made, made)
    assert program.settled([made, made]) is None


def test_results_that_may_not_be_filled(torch: Any, calls: Calls) -> None:
    if calls.given:
        calls.z.memory = calls.x.memory
        assert code_of(calls) == "TR731"


def test_wrong_numbers(torch: Any, calls: Calls) -> None:
    x, y, z = calls.x, calls.y, calls.z
    for arrays in ((), (x,), (x, y, z)):
        assert code_of(lambda arrays=arrays: calls.program(*arrays)) == "TR721"
        assert code_of(lambda arrays=arrays: calls.program(*arrays, out=z)) == "TR721"
    for outs in ([], [z, z], (z, y)):
        assert code_of(lambda outs=outs: calls.program(x, y, out=outs)) == "TR730"


def test_arrays_of_other_kinds(torch: Any, machine: Machine, calls: Calls) -> None:
    array = np.arange(8, dtype=np.float32)
    made = calls.program(array, array)[0]
    np.testing.assert_array_equal(made.numpy(), 3 * array)
    parameter = torch.nn.Parameter(calls.x)
    calls.x = parameter
    calls.right(calls())
    calls.x = made
    for _ in range(3):
        np.testing.assert_array_equal(calls().memory, made.numpy() + 2 * calls.y.memory)


def test_the_stream_is_that_of_the_moment(torch: Any, machine: Machine, calls: Calls) -> None:
    for stream in (0, 5, 0, 6):
        torch.stream = stream
        calls.right(calls())
        assert [launch[5] for launch in machine.launches()] == [stream, stream]
    assert calls.found == 0


@pytest.mark.parametrize(("context", "status"), [(0, INVALID_CONTEXT), (OTHER_CONTEXT, INVALID_HANDLE)])
@pytest.mark.parametrize("way", ["direct", "looked up", "bound", "prepared"])
@pytest.mark.parametrize("stream", [0, 1, 2, 5])
def test_a_thread_with_another_context(
    torch: Any, machine: Machine, calls: Calls, context: int, status: int, way: str, stream: int
) -> None:
    """A launch that the driver refuses is made once more in the right context; on default streams nothing is tried."""
    torch.stream = stream
    bound = calls.program.bind(calls.x, calls.y)
    for call in (bound, calls):
        call()
    machine.launches()
    if way == "looked up":
        calls.program._calls.fresh.last = calls.program._calls.given.last = never
    elif way == "prepared":
        calls.x = torch.tensor(np.ones(8))
    machine.bindings.current = context
    calls.right(bound()[0] if way == "bound" else calls())
    # Who prepares launches has made the context current.
    assert machine.library.refused == ([] if way == "prepared" or stream <= 2 else [status])
    assert len(machine.launches()) == 2
    assert machine.bindings.current == 0xC0
    assert bool(calls.found) == (way == "looked up")


@pytest.mark.parametrize("bound", [False, True])
def test_a_fill_never_goes_to_another_context(torch: Any, machine: Machine, bound: bool) -> None:
    """The driver takes a fill of stream 0 whichever context is current, so the context comes first; the stand-in objects to others."""
    torch.rooms = {}
    manifest = vector_add_manifest("sm_90a")
    *rest, last = manifest.buffers
    program = machine.program(replace(manifest, buffers=(*rest, replace(last, zero=True))))
    x, y = torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6])
    call = program.bind(x, y) if bound else lambda: program(x, y)
    for _ in range(3):
        machine.bindings.current = OTHER_CONTEXT
        np.testing.assert_array_equal(call()[0].memory, [9, 12, 15])
    assert not machine.library.refused
    assert not machine.library.strays


def test_a_refusal_in_the_right_context_is_final(torch: Any, machine: Machine, calls: Calls) -> None:
    torch.stream = 5
    calls()
    machine.launches()
    machine.library.status = 700
    with pytest.raises(TreadleError, match="ILLEGAL_ADDRESS"):
        calls()
    assert len(machine.launches()) == 1
    machine.library.status, machine.bindings.current = 700, OTHER_CONTEXT
    with pytest.raises(TreadleError, match="ILLEGAL_ADDRESS"):
        calls()
    assert (len(machine.launches()), machine.library.refused) == (1, [INVALID_HANDLE])


@pytest.mark.parametrize("fact", ["type", "shape", "stride", "dtype", "device", "neg"])
def test_guards_that_overlook_something_are_not_used(torch: Any, machine: Machine, fact: str) -> None:
    torch.FakeGuards.blind = frozenset([fact])
    x = torch.tensor([1, 2, 3])
    assert torch_tensors.guard_of((x,)) is None
    program = machine.program(vector_add_manifest("sm_90a"))
    for _ in range(3):
        np.testing.assert_array_equal(program(x, torch.tensor([1, 1, 1]))[0].memory, [3, 4, 5])


def test_one_tensor_for_two_arguments(torch: Any, calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """No guard recognises it; trying to make one must not cost much each time."""
    calls.y = calls.x
    made: list[int] = []
    guard_of = torch_tensors.guard_of

    def counted(tensors: Any) -> Any:
        made.append(1)
        return guard_of(tensors)

    monkeypatch.setattr("treadle.runtime.tensor_calls.guard_of", counted)
    for _ in range(100):
        calls.right(calls())
    assert calls.found == 100
    assert len(made) < 9
    assert (calls.program._calls.given if calls.given else calls.program._calls.fresh).last is never


def test_nothing_is_kept_alive(torch: Any, calls: Calls) -> None:
    calls()
    gone = [weakref.ref(tensor) for tensor in (calls.x, calls.y, calls.z)]
    del calls.x, calls.y, calls.z
    gc.collect()
    assert [ref() for ref in gone] == [None] * 3


def test_programs_whose_results_are_no_memory_of_their_own(torch: Any, machine: Machine) -> None:
    manifest = vector_add_manifest("sm_90a")
    (r,) = manifest.outputs
    program: Program = machine.program(replace(manifest, outputs=(r, replace(r, name="r1", buffer="b0"))))
    x, y = torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6])
    for _ in range(4):
        assert program(x, y)[1][1].address == x.data_ptr()


def test_several_results(torch: Any, machine: Machine) -> None:
    manifest = vector_add_manifest("sm_90a")
    (r,) = manifest.outputs
    b0, b1, b2, b3 = manifest.buffers
    program = machine.program(
        replace(manifest, outputs=(r, replace(r, name="r1", buffer="b2")), buffers=(b0, b1, replace(b2, role="output"), b3))
    )
    x, y = torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6])
    outs = [torch.tensor([0, 0, 0]) for _ in range(2)]
    for _ in range(4):
        for made in (program(x, y), program(x, y, out=outs), program(x, y, out=tuple(outs))):
            np.testing.assert_array_equal([m.memory for m in made], [[9, 12, 15], [5, 7, 9]])
