"""The form of schedule-level kernels (docs/schedule.md, "Form"): what has no meaning, or no machine, is refused with its line."""

import pytest
from hazards import programs_cluster as cluster
from hazards import programs_nvidia as nvidia
from hazards.campaign import simulator_objects
from hazards.kernels import kernel_of
from hazards.schedules import (
    ACC_LAYOUT,
    ROWS_LAYOUT,
    TILE_BYTES,
    alloc,
    array,
    constants,
    kernel,
    load,
    local_load,
    local_store,
    queued_copy,
    roles,
    slot,
    store,
    tma,
    view,
    wgmma,
    zeros,
)

from treadle.errors import TreadleError
from treadle.targets.registry import backend
from treadle.verify.check import prove

ARGS = "%a: !tile.ptr<f16>, %c: !tile.ptr<f16>"
TILE = array(64, 64)
HEAD = (view("%va", "%a", 64, 64), view("%vc", "%c", 64, 64), constants(0, 1, 2))
PARITY = "  %even = arith.constant 0 : i32\n  %one = arith.constant 1 : i32"
BARRIER = "  %b = sync.mbarrier_alloc 1 : i64 : !sync.mbarrier"
RING = "  %bs = sync.mbarrier_alloc 1 : i64 slots 2 : i64 : !sync.mbarrier"
YES = "  %n = tile.program_id 0 : i64\n  %yes = arith.cmpi eq, %n, %c0 : index"


def body(*lines: str, warps: int = 8, target: str = "sm_90a") -> str:
    return kernel(ARGS, *HEAD, *lines, pointers=2, warps=warps, target=target)


def in_roles(first: str, second: str, *before: str, warps: tuple[int, int] = (4, 4), groups: tuple[int, int] = (1, 1), of: int = 8) -> str:
    return body(*before, roles(("one", "two"), warps, groups, first, second), warps=of)


def loop(*lines: str) -> str:
    return "\n".join(["  scf.for %i = %c0 to %c2 step %c1 {", *lines, "  }"])


def branch(*lines: str) -> str:
    return "\n".join([YES, "  scf.if %yes {", *lines, "  }"])


REFUSED: dict[str, tuple[str, str]] = {
    # where operations stand
    "roles in a loop": (body(loop(roles(("one",), (4,), (1,), ""))), "pipe.roles.*inside scf.for"),
    "roles in a branch": (body(branch(roles(("one",), (4,), (1,), ""))), "pipe.roles.*inside scf.if"),
    "roles in a role": (in_roles(roles(("inner",), (4,), (1,), ""), ""), "pipe.roles.*inside pipe.roles"),
    "too many warps": (in_roles("", "", groups=(2, 1)), "pipe.roles.*12 warps in a kernel of 8"),
    "a role that returns": (in_roles("", "").replace("pipe.end_role", "tile.return", 1), "ends in pipe.end_role"),
    "an end without a role": (body("  pipe.end_role"), "pipe.end_role"),
    "registers twice": (
        body(*2 * [roles(("one", "two"), (4, 4), (1, 1), "", "")]).replace("registers = array<i64: 0, 0>", "registers = array<i64: 40, 0>"),
        "pipe.roles.*several",
    ),
    "registers beside the machine's steps": (
        in_roles("", "").replace("registers = array<i64: 0, 0>", "registers = array<i64: 42, 0>"),
        "42 reg",
    ),
    "more registers than a workgroup begins with": (
        # 96 of each of 640 threads: 65,536 registers are 4,096 more than are given out.
        in_roles("", "", warps=(8, 12), of=20).replace("registers = array<i64: 0, 0>", "registers = array<i64: 88, 112>"),
        "pipe.roles.*65536 registers.*begins with 96",
    ),
    "registers on a machine that moves none": (
        body(roles(("one", "two"), (4, 4), (1, 1), "", ""), target="gfx942").replace(
            "registers = array<i64: 0, 0>", "registers = array<i64: 40, 0>"
        ),
        "pipe.roles.*gfx942 moves no",
    ),
    "registers of half a group": (
        in_roles("", "", warps=(2, 4)).replace("registers = array<i64: 0, 0>", "registers = array<i64: 40, 0>"),
        "pipe.roles.*warps 0 to 1",
    ),
    "barriers allocated in a loop": (body(loop(BARRIER)), "mbarrier_alloc.*inside scf.for"),
    "barriers allocated in a branch": (body(branch(BARRIER)), "mbarrier_alloc.*inside scf.if"),
    "barriers allocated in a role": (in_roles(BARRIER, ""), "mbarrier_alloc.*inside pipe.roles"),
    "clusters meet in a role": (in_roles("  sync.cluster_barrier", ""), "sync.cluster_barrier.*outside"),
    # numbers
    "parity 2": (body(BARRIER, "  %p = arith.constant 2 : i32\n  sync.wait_phase %b parity %p"), "sync.wait_phase.*parity 2"),
    "parity -1": (body(BARRIER, "  %p = arith.constant -1 : i32\n  sync.wait_phase %b parity %p"), "sync.wait_phase.*parity -1"),
    "pending -1": (body('  sync.wait "cp_async" pending -1 : i64'), "sync.wait.*pending -1"),
    "pending 64": (body('  sync.wait "cp_async" pending 64 : i64'), "sync.wait.*pending 64"),
    "eight matrix groups": (body('  sync.wait "wgmma" pending 8 : i64'), "sync.wait.*pending 8"),
    "no arrivals": (body(BARRIER.replace("alloc 1", "alloc 0")), "mbarrier_alloc.*arrivals 0"),
    "2^20 arrivals": (body(BARRIER.replace("alloc 1", f"alloc {1 << 20}")), "mbarrier_alloc.*arrivals"),
    "2^20 arrivals of warps": (
        body(BARRIER.replace("alloc 1", f"alloc {1 << 18}"), roles(("one",), (4,), (1,), "  sync.barrier\n  sync.arrive %b"), warps=4),
        "mbarrier_alloc.*arrivals of 4 warps",
    ),
    "no slots": (body(RING.replace("slots 2", "slots 0")), "mbarrier_alloc.*slots 0"),
    "no bytes": (body(BARRIER, "  sync.mbarrier_expect %b bytes 0 : i64"), "mbarrier_expect.*bytes 0"),
    "2^20 bytes": (body(BARRIER, f"  sync.mbarrier_expect %b bytes {1 << 20} : i64"), "mbarrier_expect.*bytes"),
    "named barrier 0": (body("  sync.named_barrier 0 : i64 warps 8 : i64"), "named_barrier.*barrier 0"),
    "named barrier 16": (body("  sync.named_barrier 16 : i64 warps 8 : i64"), "named_barrier.*barrier 16"),
    "the last group's barrier": (
        in_roles("  sync.named_barrier 15 : i64 per_group warps 2 : i64", "", warps=(2, 4), groups=(2, 1)),
        "named_barrier.*barrier 16",
    ),
    "no warps": (body("  sync.named_barrier 1 : i64 warps 0 : i64"), "named_barrier.*warps 0"),
    "more warps than the kernel's": (body("  sync.named_barrier 1 : i64 warps 9 : i64 arrive"), "named_barrier.*warps 9"),
    "no groups": (body("  sync.barrier groups array<i64>"), "sync.barrier.*groups"),
    "group -1": (body("  sync.barrier groups array<i64: -1>"), "sync.barrier.*groups"),
    "a group twice": (body("  sync.barrier groups array<i64: 1, 1>"), "sync.barrier.*groups"),
    "a group that the role has not": (in_roles(*2 * ["  sync.barrier groups array<i64: 1>"]), "sync.barrier.*groups.*which has 1"),
    "groups that do not share out the warps": (body("  sync.barrier groups array<i64: 2>"), "tile.kernel.*3 groups"),
    "axis 3": (body("  %n = tile.program_id 3 : i64"), "tile.program_id.*axis 3"),
    "axis -1": (body("  %n = tile.program_id -1 : i64"), "tile.program_id.*axis -1"),
    "a buffer before memory": (body(alloc("%s", at=-16)), "tile.alloc.*byte -16"),
    "more memory than there is": (body(alloc("%s", 40)), "tile.kernel.*bytes of shared memory"),
    "warps beyond the machine's": (body(warps=33), "tile.kernel.*33 warps"),
    "part 3 of 64": (body(alloc("%s"), cluster.half("%h", "%s", "%c0").replace(" of 2 ", " of 3 ")), "pipe.part"),
    # words
    "an unknown queue": (body('  sync.wait "tma" pending 0 : i64'), "sync.wait.*'tma'"),
    "a queue of another machine": (body('  sync.wait "vmcnt" pending 0 : i64'), "sync.wait.*sm_90a has no queue 'vmcnt'"),
    "a commit where each operation is a group": (body('  sync.commit "vmcnt"', target="gfx942"), "sync.commit.*group of its own"),
    "an unknown queue closed": (body('  sync.commit "tma"'), "sync.commit.*'tma'"),
    "read of a queue that does not tell": (body('  sync.wait "cp_async" pending 0 : i64 read'), "sync.wait.*read"),
    "an unknown proxy": (body('  sync.fence "tensor"'), "sync.fence.*'tensor'"),
    "a priority that no scheduler has": (body("  sync.set_priority 4 : i64"), "sync.set_priority.*priority 4 is not between 0 and 3"),
    "an unknown class": (body('  sync.sched_fence ["alu", "salad"]'), "sync.sched_fence.*'salad'"),
    "a proxy of another machine": (body('  sync.fence "async_shared"', target="gfx942"), "sync.fence.*gfx942 has no"),
    "barriers of another machine": (body(BARRIER, target="gfx942"), "mbarrier_alloc.*gfx942 has no"),
    "named barriers of another machine": (body("  sync.named_barrier 1 : i64 warps 8 : i64", target="gfx1100"), "named_barrier.*gfx1100"),
    "copies of another machine": (body(alloc("%s"), queued_copy("%va", TILE, "%c0, %c0", "%s", "direct")), "tile.copy.*'direct'"),
    "a copy that nobody can wait for": (
        body(alloc("%s"), tma("%va", TILE, "%c0, %c0", "%s", "%b").replace(" signals %b : !sync.mbarrier", "")),
        "tile.copy.*signals no barrier",
    ),
    "an instruction of another machine": (nvidia.two_products().replace("sm_90a", "gfx942"), "gfx942 has no"),
    "an unknown instruction": (nvidia.two_products().replace("wgmma_m64k16_f32_f16_f16", "wgmma_m64k17"), "tile.contract.*'wgmma_m64k17'"),
    "shared operands of multiply-adds": (nvidia.two_products().replace("wgmma_m64k16_f32_f16_f16", "fma"), "tile.contract.*'fma'"),
    # clusters
    "a cluster of 16": (body().replace("num_warps", "cluster = 16 : i64, num_warps").replace('["1",', '["16",'), "tile.kernel.*16"),
    "a cluster on another machine": (
        body(target="gfx942").replace("num_warps", "cluster = 2 : i64, num_warps").replace('["1",', '["2",'),
        "tile.kernel.*clusters",
    ),
    "half a cluster": (body().replace("num_warps", "cluster = 2 : i64, num_warps"), "tile.kernel.*grid of 1"),
    "peers outside": (cluster.exchanged(peers="array<i64: 0, 2>"), r"sync.arrive.*workgroups \[0, 2\]"),
    "a peer twice": (cluster.exchanged(peers="array<i64: 0, 0>"), r"sync.arrive.*workgroups \[0, 0\]"),
    "filled twice": (cluster.exchanged().replace("multicast array<i64: 0, 1>", "multicast array<i64: 1, 1>"), r"tile.copy.*\[1, 1\]"),
    # what a barrier or buffer is
    "all slots at once": (body(RING, "  sync.arrive %bs"), "sync.arrive.*allocation of 2"),
    "all slots signalled": (body(RING, alloc("%s"), tma("%va", TILE, "%c0, %c0", "%s", "%bs")), "tile.copy.*allocation of 2"),
    "a chosen barrier": (
        body(BARRIER, BARRIER.replace("%b", "%d"), YES, "  %e = arith.select %yes, %b, %d : !sync.mbarrier\n  sync.arrive %e"),
        "sync.arrive.*chosen",
    ),
    "a barrier from a branch": (
        body(
            BARRIER,
            BARRIER.replace("%b", "%d"),
            YES,
            "  %e = scf.if %yes -> (!sync.mbarrier) {\n  scf.yield %b : !sync.mbarrier\n  } else {\n  scf.yield %d : !sync.mbarrier\n  }",
            "  sync.arrive %e",
        ),
        "sync.arrive.*chosen",
    ),
    "a carried barrier": (
        body(
            BARRIER,
            "  %e = scf.for %i = %c0 to %c2 step %c1 iter_args(%d = %b) -> (!sync.mbarrier) {",
            "  sync.arrive %d\n  scf.yield %d : !sync.mbarrier\n  }",
        ),
        "sync.arrive.*carried",
    ),
    "a chosen view": (
        body(
            YES,
            f"  %e = scf.if %yes -> ({TILE}) {{\n  scf.yield %va : {TILE}\n  }} else {{\n  scf.yield %vc : {TILE}\n  }}",
            load("%x", "%e", TILE, "%c0, %c0", ROWS_LAYOUT),
            store("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT, "f16"),
        ),
        "chosen by a branch",
    ),
    "a tile of all warps in a role": (
        in_roles(
            store("%x", "%vc", TILE, "%c0, %c0", ROWS_LAYOUT, "f16"), "", alloc("%s"), load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT)
        ),
        "tile.store.*outside the role",
    ),
    # meetings within roles
    "a barrier that one role comes to": (in_roles("  sync.barrier", ""), "pipe.roles.*warps of two never arrive"),
    "a barrier never come to": (in_roles(loop("  sync.barrier").replace("%c2", "%c0"), ""), "pipe.roles.*warps of two never arrive"),
    "a barrier with idle warps": (in_roles("  sync.barrier", "  sync.barrier", of=12), "pipe.roles.*4 of the kernel's warps"),
    "agents of 3 and 4 warps": (
        in_roles("  sync.arrive %b\n  sync.barrier", "  sync.arrive %b\n  sync.barrier", BARRIER, warps=(3, 4), of=7),
        "mbarrier_alloc.*3 and 4",
    ),
    "groups without roles": (body().replace("num_warps", "groups = 2 : i64, num_warps"), "tile.kernel.*groups of warps without roles"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    text, message = REFUSED[name]
    with pytest.raises(TreadleError, match=message) as caught:
        prove(kernel_of(text))
    assert caught.value.code in ("TR416", "TR201") and caught.value.location is not None
    assert caught.value.code == "TR416" or name in ("part 3 of 64", "a role that returns", "an end without a role")
    assert caught.value.fix


def says(text: str, *, emits: bool = True) -> tuple[set[str], bool]:
    """The verifier's rules and whether the simulator objects; the emitter has code for what both accept."""
    made = kernel_of(text)
    verdict = prove(made)
    assert not verdict.undecided
    found = {finding.rule for finding in verdict.findings}
    objects = simulator_objects(made, ())
    if emits and not found:
        assert backend(made.target.data).emit(made).llvm_text
    return found, objects


RIGHT: tuple[set[str], bool] = (set(), False)


def passed_on(*between: str, first: str = "", third: str = "") -> str:
    """One role writes a tile, and another role of a second `pipe.roles` reads it."""
    write = "\n".join([load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT), local_store("%x", "%s", ROWS_LAYOUT)])
    read = "\n".join([local_load("%y", "%s", ACC_LAYOUT), store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16")])
    return body(
        alloc("%s"),
        roles(("one", "two"), (4, 4), (1, 1), write, first),
        *between,
        roles(("three", "four"), (4, 4), (1, 1), third, read),
    )


def test_roles_after_roles() -> None:
    """What the first ones did is over when the second ones start; within these nothing is ordered."""
    again = "\n".join([load("%z", "%va", TILE, "%c0, %c0", ROWS_LAYOUT), local_store("%z", "%s", ROWS_LAYOUT)])
    assert says(passed_on()) == RIGHT
    assert says(passed_on(third=again)) == ({"V3"}, True)
    assert says(passed_on(first=again)) == ({"V3"}, True)
    assert says(passed_on(roles(("all",), (8,), (1,), ""), third=again)) == ({"V3"}, True)
    assert says(passed_on("  sync.barrier")) == RIGHT


def test_barriers_of_roles_after_roles_are_ordered_without_memory() -> None:
    """Arrivals in roles that follow one another are in the order of the roles: the code has a barrier between them."""
    text = body(
        BARRIER.replace("alloc 1", "alloc 1"),
        PARITY,
        roles(("one", "two"), (4, 4), (1, 1), "  sync.arrive %b", "  sync.wait_phase %b parity %even"),
        roles(("one", "two"), (4, 4), (1, 1), "  sync.wait_phase %b parity %one", "  sync.arrive %b"),
    )
    assert says(text) == RIGHT
    emitted = backend("sm_90a").emit(kernel_of(text)).llvm_text
    assert emitted.count("bar.sync 0;") == 2  # behind mbarrier.init, and between the roles


def issuing(*more: str, warps: int) -> str:
    """A role that copies a tile for another one, after `more`; the named barrier takes `warps`."""
    copy = [*more, f"  sync.mbarrier_expect %b bytes {TILE_BYTES} : i64", tma("%va", TILE, "%c0, %c0", "%s", "%b")]
    meet = f"  sync.named_barrier 1 : i64 warps {warps} : i64"
    use = [
        "  sync.wait_phase %b parity %even",
        local_load("%y", "%s", ROWS_LAYOUT),
        store("%y", "%vc", TILE, "%c0, %c0", ROWS_LAYOUT, "f16"),
    ]
    return in_roles("\n".join(copy), "\n".join([*([meet] if more else []), *use]), BARRIER, PARITY, alloc("%s"))


def test_one_definition_of_an_issuing_role() -> None:
    """A role of copies and transaction barriers has one warp a group; a named barrier is met by all four."""
    assert says(issuing(warps=8)) == RIGHT
    meet = "  sync.named_barrier 1 : i64 warps {} : i64"
    assert says(issuing(meet.format(8), warps=8)) == RIGHT
    assert says(issuing(meet.format(5), warps=5))[0] == {"V5"} and says(issuing(meet.format(5), warps=5))[1]


def test_a_role_of_loads_and_stores_has_all_its_warps() -> None:
    """Elements of one array that different warps of a role read and write are not one thread's."""
    swap = "\n".join(
        [
            load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
            store("%x", "%vc", TILE, "%c0, %c0", ROWS_LAYOUT, "f16"),
            load("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT),
            store("%y", "%va", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
        ]
    )
    assert says(in_roles(swap, "")) == ({"V3"}, True)


def test_a_buffer_allocated_in_a_loop_is_one_buffer() -> None:
    lines = [
        alloc("%s"),
        load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
        local_store("%x", "%s", ROWS_LAYOUT),
        "  sync.barrier",
        local_load("%y", "%s", ACC_LAYOUT),
        store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
    ]
    assert says(body(loop(*lines, "  sync.barrier"), warps=4)) == RIGHT
    assert says(body(loop(*lines), warps=4)) == ({"V3"}, True)


def product(*lines: str, use: str) -> str:
    return kernel(
        nvidia.ARGS,
        "  %full = sync.mbarrier_alloc 1 : i64 : !sync.mbarrier",
        view("%va", "%a", 64, 64),
        view("%vb", "%b", 64, 64),
        view("%vc", "%c", 64, 64, "f32"),
        constants(0, 1),
        PARITY,
        zeros("%init"),
        alloc("%sa"),
        alloc("%sb"),
        f"  sync.mbarrier_expect %full bytes {2 * TILE_BYTES} : i64",
        tma("%va", TILE, "%c0, %c0", "%sa", "%full"),
        tma("%vb", TILE, "%c0, %c0", "%sb", "%full"),
        "  sync.wait_phase %full parity %even",
        wgmma("%d", "%sa", "%sb", "%init"),
        '  sync.commit "wgmma"',
        *lines,
        store(use, "%vc", array(64, 64, "f32"), "%c0, %c0", ACC_LAYOUT, "f32"),
    )


def chain(result: str, accumulator: str) -> str:
    return wgmma(result, "%sa", "%sb", accumulator) + '\n  sync.commit "wgmma"'


WAIT = '  sync.wait "wgmma" pending 0 : i64'


def test_an_accumulator_in_flight_belongs_to_one_chain() -> None:
    one, two = chain("%e", "%d"), chain("%f", "%d")
    assert says(product(one, WAIT, use="%e"), emits=False) == RIGHT
    assert says(product(WAIT, one, two, WAIT, use="%f"), emits=False) == RIGHT  # complete: each chain has a copy
    assert says(product(one, two, WAIT, use="%f"), emits=False) == ({"V1"}, True)
    assert says(product(one, WAIT, two, WAIT, use="%f"), emits=False) == ({"V1"}, True)
    assert says(product(one, WAIT, use="%d"), emits=False) == ({"V1"}, True)


def test_an_accumulator_has_one_chain_through_loops() -> None:
    acc = nvidia.ACC
    around = [
        f"  %e = scf.for %i = %c0 to %c1 step %c1 iter_args(%o = %d) -> ({acc}) {{",
        chain("%n", "%o"),
        f"  scf.yield %n : {acc}\n  }}",
    ]
    assert says(product(*around, WAIT, use="%e"), emits=False) == RIGHT
    assert says(product(*around, WAIT, use="%d"), emits=False) == ({"V1"}, True)
    assert says(product(*around, chain("%f", "%d"), WAIT, use="%f"), emits=False) == ({"V1"}, True)


@pytest.mark.parametrize(("number", "is_right"), [(0, True), (2, False), (-2, False)])
def test_a_computed_parity_is_0_or_1(number: int, is_right: bool) -> None:
    text = body(
        BARRIER.replace("alloc 1", "alloc 8"),
        f"  %h = arith.constant {number // 2} : i32\n  %p = arith.addi %h, %h : i32",
        "  sync.arrive %b\n  sync.wait_phase %b parity %p",
    )
    found, objects = says(text)
    assert (found, objects) == (RIGHT if is_right else ({"V5"}, True))


def test_bytes_of_a_phase_are_counted() -> None:
    half = 1 << 19
    text = body(BARRIER.replace("alloc 1", "alloc 2"), *2 * [f"  sync.mbarrier_expect %b bytes {half} : i64"])
    found, objects = says(text)
    assert found == {"V5"} and objects


def test_a_fence_before_a_copy_is_complete_covers_nothing() -> None:
    """The fence stands behind the wait that says that the copy's generic writes are done."""

    def copied(*order: str) -> str:
        return body(
            alloc("%s"),
            queued_copy("%va", TILE, "%c0, %c0", "%s", "cp_async"),
            '  sync.commit "cp_async"',
            *order,
            "  sync.barrier",
            f'  tile.copy_out %s, %vc[%c0, %c0] dims array<i64: 0, 1> path "bulk_tensor" : {_buffer()}, {TILE}',
            '  sync.commit "bulk_store"\n  sync.wait "bulk_store" pending 0 : i64',
            warps=4,
        )

    fence, wait = '  sync.fence "async_shared"', '  sync.wait "cp_async" pending 0 : i64'
    assert says(copied(wait, fence), emits=False) == RIGHT
    assert says(copied(fence, wait), emits=False) == ({"V4"}, True)


def _buffer() -> str:
    return alloc("%s").partition(" : ")[2]


def test_groups_outside_roles() -> None:
    """Leading and trailing warps: each meets the barriers that name it and those for all."""
    lines = ["  sync.barrier groups array<i64: 0>", "  sync.barrier", "  sync.barrier groups array<i64: 1>"]
    assert says(body(*lines, warps=8)) == RIGHT
    assert says(body(*lines[:2], warps=8))[0] == {"V5"} and says(body(*lines[:2], warps=8))[1]


def test_arrivals_at_any_peers() -> None:
    """Where the agent reads the slots by itself, its arrival at the peers releases to the cluster."""
    both = cluster.exchanged()
    assert says(both) == RIGHT
    assert "mbarrier.arrive.release.cluster.shared::cluster.b64" in backend("sm_90a").emit(kernel_of(both)).llvm_text
    one = backend("sm_90a").emit(kernel_of(cluster.exchanged(peers="array<i64: 1>"))).llvm_text
    assert "shr.u32 there, 2, $1;" in one


def test_little_things_that_are_right() -> None:
    assert says(body('  sync.commit "cp_async"\n  sync.wait "cp_async" pending 0 : i64')) == RIGHT
    assert says(body('  sync.wait "bulk_store" pending 3 : i64 read')) == RIGHT
    group = body(alloc("%s", 2), "  %g = pipe.group_id", slot("%t", "%s", (2,), "%g"), local_store("%z", "%t", ROWS_LAYOUT), warps=4)
    zero = zeros("%z", ROWS_LAYOUT, "f16")
    assert says(group.replace("  %g = pipe.group_id", f"{zero}\n  %g = pipe.group_id")) == RIGHT


@pytest.mark.parametrize("index", ["%c2", "%n"])
def test_slots_that_are_not_there_are_named(index: str) -> None:
    minus = "  %n = arith.constant -1 : index"
    for use in (f"  %b = sync.mbarrier_slot %bs[{index}] : !sync.mbarrier\n  sync.arrive %b", slot("%t", "%s", (2,), index)):
        (left,) = prove(kernel_of(body(RING, minus, alloc("%s", 2), use))).undecided
        assert "slot" in left.reason and left.error("k").code == "TR415"
