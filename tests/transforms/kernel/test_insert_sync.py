"""insert-sync on text: where synchronisation goes, and that there is no more of it than needed."""

import pytest
from generators import tile_kernel_texts as kernel_texts
from generators.tile_pipeline import find, lowered, skeleton

from treadle.dialects import sync, tile
from treadle.ir.core import Operation
from treadle.ir.dialects import builtin, scf
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.transforms.kernel.allocate_shared import AllocateSharedPass
from treadle.transforms.kernel.insert_sync import InsertSyncPass
from treadle.transforms.kernel.order_issue import OrderIssuePass

OPS = ("sync.", "tile.copy", "tile.local", "tile.contract", "tile.store")
LAYOUT = "#tile.shared_layout<offset = [[0, 1], [0, 2], [0, 4], [0, 8], [0, 16], [1, 0], [2, 0], [4, 0]], repeat = [1, 1]>"
BUFFER = f"memref<8x32xf32, {LAYOUT}, #tile.shared>"
TILE = "tensor<8x32xf32>"


def shape(text: str) -> list[str]:
    return skeleton(lowered(text, InsertSyncPass), *OPS)


def test_bulk_copies_and_queued_contractions() -> None:
    assert shape(kernel_texts.matmul(512, 512, 512)) == [
        "sync.mbarrier_alloc",
        "for",
        "sync.barrier",
        "sync.mbarrier_expect",
        "tile.copy",
        "tile.copy",
        "sync.wait_phase",
        "tile.contract",
        "sync.commit",
        "sync.wait",
        "end",
        "tile.store",
    ]


def test_one_operand_in_bulk_and_one_by_the_threads() -> None:
    assert shape(kernel_texts.matmul(123, 456, 51234)) == [
        "sync.mbarrier_alloc",
        "for",
        "sync.barrier",
        "sync.mbarrier_expect",
        "tile.copy",
        "tile.local_store",
        "sync.wait_phase",
        "sync.fence",
        "sync.barrier",
        "tile.contract",
        "sync.commit",
        "sync.wait",  # not behind the loads of the next step: those are branches
        "end",
        "tile.store",
    ]


def test_operands_by_the_threads_are_fenced_before_the_barrier() -> None:
    found = shape(kernel_texts.matmul(123, 457, 51233))
    end = found.index("end")
    assert found[: end + 1] == [
        "for",
        "sync.barrier",
        "tile.local_store",
        "tile.local_store",
        "sync.fence",
        "sync.barrier",
        "tile.contract",
        "sync.commit",
        "sync.wait",
        "end",
    ]
    assert found[-1] == "tile.store"


def test_register_instructions_need_two_barriers_a_step_and_nothing_else() -> None:
    text = kernel_texts.matmul(512, 512, 512, target="gfx942", instruction="mfma_16x16x16_f32_f16", tile=(128, 128, 32), warps=(2, 2))
    step = ["tile.local_load", "tile.local_load", "tile.contract"]
    assert shape(text) == ["for", "sync.barrier", "tile.local_store", "tile.local_store", "sync.barrier", *step, "end", "tile.store"]


def test_reused_bytes_are_ordered() -> None:
    found = shape(kernel_texts.matmul(512, 512, 512, out="f16"))
    tail = found[found.index("end") :]
    assert tail == ["end", "sync.barrier", "tile.local_store", "sync.barrier", "tile.local_load", "tile.store"]


def test_expected_bytes_and_parity() -> None:
    module = lowered(kernel_texts.matmul(123, 504, 520), InsertSyncPass)
    (expect,) = find(module, sync.MbarrierExpectOp)
    assert expect.byte_count.value.data == (128 * 64 + 64 * 128) * 2
    (wait,), (loop,) = find(module, sync.WaitPhaseOp), find(module, scf.ForOp)
    assert wait.parity is loop.body.block.args[-1] and wait.parity.type == builtin.i32
    flipped = loop.body.block.last_op
    assert flipped is not None
    xor = flipped.operands[-1].owner
    assert isinstance(xor, Operation) and xor.name == "arith.xori" and xor.operands[0] is wait.parity
    assert all(copy.barrier is expect.barrier for copy in find(module, tile.CopyOp))


def test_parity_is_carried_through_nested_loops() -> None:
    text = kernel_texts.matmul(512, 512, 512)
    inner = text[text.index("  %acc = scf.for") : text.index("  tile.store")]
    nested = (
        "  %one = arith.constant 1 : index\n"
        "  %acc = scf.for %rep = %zero to %k step %one iter_args(%outer = %init) -> (tensor<128x128xf32>) {\n"
        + inner.replace("%acc", "%in").replace("%init", "%outer")
        + "    scf.yield %in : tensor<128x128xf32>\n  }\n"
    )
    module = lowered(text.replace(inner, nested), InsertSyncPass)
    outer, loop = find(module, scf.ForOp)
    (wait,) = find(module, sync.WaitPhaseOp)
    assert wait.parity is loop.body.block.args[-1]
    assert loop.iter_args[-1] is outer.body.block.args[-1]
    last = outer.body.block.last_op
    assert last is not None and last.operands[-1] is loop.results[-1]


def test_copies_outside_loops_have_a_constant_parity() -> None:
    text = kernel_texts.matmul(128, 128, 64)
    start, end = text.index("  %acc = scf.for"), text.index("  tile.store")
    flat = "\n".join(text[start:end].split("\n")[1:4])
    flat = flat.replace("%old", "%init").replace("%i,", "%zero,").replace("%i]", "%zero]").replace("%new", "%acc")
    module = lowered(text[:start] + flat + "\n" + text[end:], InsertSyncPass)
    expected = ["sync.mbarrier_alloc", "sync.mbarrier_expect", "tile.copy", "tile.copy", "sync.wait_phase", "tile.contract"]
    assert skeleton(module, *OPS) == [*expected, "sync.commit", "sync.wait", "tile.store"]


def straight(body: str, *, packed: bool = False, is_large: bool = False) -> list[str]:
    """The skeleton of a hand-written kernel on buffers %p and %q of 1 or (`is_large`) 2 KB and a tile %t.

    `packed`: large buffers that are not in use together share bytes.
    """
    header = (
        f"  %t = arith.constant dense<0.000000e+00> : {TILE}\n  %c0 = arith.constant 0 : index\n  %c1 = arith.constant 1 : index\n"
        f"  %p = tile.alloc : {BUFFER}\n  %q = tile.alloc : {BUFFER}\n"
    )
    text = kernel_texts.kernel("k", "%a: !tile.ptr<f32>", header + body, warps=4, target="gfx942", pointers=1)
    if is_large:
        text = text.replace("8x32xf32", "16x32xf32").replace("repeat = [1, 1]", "repeat = [2, 1]")
    module = parse_module(text, "test")
    run_passes(module, [*([AllocateSharedPass()] if packed else []), OrderIssuePass(), InsertSyncPass()])
    return [name.removeprefix("tile.local_").removeprefix("sync.") for name in skeleton(module, "sync.", "tile.local")]


def store(buffer: str, row: int = 0, rows: int = 8) -> str:
    if rows == 8:
        return f"tile.local_store %t, {buffer} array<i64: 0, 0> : {TILE}, {BUFFER}\n"
    return (
        f"%s{row} = arith.constant dense<0.000000e+00> : tensor<{rows}x32xf32>\n"
        f"tile.local_store %s{row}, {buffer} array<i64: {row}, 0> : tensor<{rows}x32xf32>, {BUFFER}\n"
    )


def load(buffer: str, row: int = 0, rows: int = 8, name: str = "x") -> str:
    return f"%{name}{buffer[1:]}{row} = tile.local_load {buffer} array<i64: {row}, 0> : {BUFFER} -> tensor<{rows}x32xf32>\n"


def loop(body: str) -> str:
    return f"scf.for %i = %c0 to %c1 step %c1 {{\n{body}}}\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (store("%p") + load("%p"), "store barrier load"),
        (load("%p") + store("%p"), "load barrier store"),
        (store("%p") + store("%p"), "store barrier store"),
        (load("%p") + load("%p", name="y"), "load load"),
        (store("%p") + load("%q"), "store load"),
        (store("%p") + store("%q") + load("%p") + load("%q"), "store store barrier load load"),
        # Disjoint parts of one buffer need no order.
        (store("%p", 0, 4) + load("%p", 4, 4), "store load"),
        (store("%p", 0, 4) + load("%p", 2, 4), "store barrier load"),
        # Across the back edge: what one iteration reads, the next overwrites.
        (loop(store("%p") + load("%p")), "for barrier store barrier load end"),
        (store("%p") + loop(load("%p")), "store for barrier load end"),
        (loop(load("%p")) + store("%p"), "for load end barrier store"),
        # A barrier for one buffer serves the other.
        (loop(store("%p") + load("%p") + store("%q") + load("%q")), "for store barrier load store barrier load end"),
    ],
)
def test_hazards(body: str, expected: str) -> None:
    assert straight(body) == expected.split()


def test_buffers_that_share_bytes_are_ordered() -> None:
    body = store("%p") + load("%p") + store("%q") + load("%q")
    apart = ["store", "barrier", "load", "store", "barrier", "load"]
    assert straight(body) == apart and straight(body, packed=True) == apart  # small ones have bytes of their own
    assert straight(body, is_large=True) == apart
    assert straight(body, packed=True, is_large=True) == ["store", "barrier", "load", "barrier", "store", "barrier", "load"]


def test_branches_join() -> None:
    branch = f"%f = arith.cmpi slt, %c0, %c1 : index\nscf.if %f {{\n{store('%p')}}}\n{load('%p')}"
    assert straight(branch) == ["store", "barrier", "load"]
    both = f"%f = arith.cmpi slt, %c0, %c1 : index\nscf.if %f {{\n{store('%p')}}} else {{\n{store('%q')}}}\n{load('%q')}"
    assert straight(both) == ["store", "store", "barrier", "load"]


def test_kernels_without_shared_memory_are_left_alone() -> None:
    text = kernel_texts.transpose(100, 100, (32, 32))
    assert str(lowered(text, AllocateSharedPass)) == str(lowered(text, InsertSyncPass))
