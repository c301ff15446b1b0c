"""Small ragged programs, one for each kind of schedule the compiler forms on sm_90a.

`python compiled_programs.py NAME [NAME...]` (with `tests` on the path) runs them on the GPU, checks the results, and exits with 1 where one
is wrong: what compute-sanitizer runs. Without names it lists them.
"""

import sys
from dataclasses import dataclass, replace

import numpy as np
from device.sanitizer import run_named
from generators.grouped_contractions import grouped_text

from treadle import driver
from treadle.bench import families, reductions
from treadle.bench.workload import Workload
from treadle.options import CompileOptions
from treadle.sim.check import check
from treadle.tools.inputs import make_inputs

PLAIN = CompileOptions(tuned=False)
AS_IS = replace(PLAIN, form="tiles", split_reduction="off", row_padding="off", turned_operands="off")
ROLES = replace(PLAIN, tile=(64, 128, 64), warps=(4, 1), consumer_warpgroups=2, num_stages=3)
TURNS = replace(PLAIN, tile=(64, 128, 64), warps=(4, 1), consumer_warpgroups=1, num_stages=4, ping_pong=2, steps_in_flight=1)


ROLE = r'names = \["producer", "consumer"\]'
IN_TURNS = r'names = \["producer", "consumer0", "consumer1"\]'
SPLIT_ROLES = r'names = \["producer", "splitter", "consumer"\]'
DEFERRED = r"scf\.if .*\{\n(\s+(?!scf|\}).*\n)*?\s+tile\.copy_out"
"""A box that is stored in one of a loop's first steps."""
NARROW_BOX = r"tile\.copy_out .* memref<64x8xbf16"
"""The last box of a row, of 16 bytes."""
BY_DESCRIPTOR, SHIFTED = r'path "bulk_tensor"', r"tile\.load .* shifted "
IN_FLIGHT = r'sync\.wait "wgmma" pending 1 '
SHARED_FETCH = "multicast array<i64: 0, 1>"
TURN = r"tile\.await_turn .*\n(.*\n)*?.*tile\.pass_turn"
PIPELINED = r"\bpipelined\b"
ROLES_OR_BULK = r"pipe\.roles|bulk_tensor"


def _instruction(name: str) -> str:
    return f'tile\\.contract .*"{name}"'


BF16 = _instruction("wgmma_m64k16_f32_bf16_bf16")
FP8 = _instruction("wgmma_m64k32_f32_f8E4M3FN_f8E4M3FN")


@dataclass(frozen=True)
class Case:
    """A program, how it is compiled, and what its schedule must hold for the case to be one of its kind: expressions for the text of the
    schedule level that are all found there (`shows`), and such that are not (`lacks`).
    """

    workload: Workload
    options: CompileOptions = PLAIN
    shows: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


def _matmul(m: int, n: int, k: int, dtype: str = "bf16", options: CompileOptions = PLAIN, *, transposed: bool = True) -> Workload:
    return families.matmul("case", "case", m, n, k, dtype, transposed=transposed, options=options)


def _groups(count: int, n: int, k: int, dtype: str, tables: str = "") -> Workload:
    """A product of so many groups of 0 to 90 rows, each with a matrix of its own."""
    text = grouped_text([37 * group % 91 for group in range(count)], n, k, dtype, tables=tables)

    def write(rows: int, columns: int) -> str:
        return text

    return replace(_matmul(8, n, k, dtype), write=write)


def _merged(work: Workload, merge: str, parts: int = 4) -> Workload:
    """The product in parts along k, which a cluster's workgroups merge through one another's shared memory, or each in its turn."""
    split = f'treadle.split_reduction = #dispatch.split<r0 = "{parts}" step 64, merge = {merge}>'
    whole = work.write

    def write(rows: int, columns: int) -> str:
        return whole(rows, columns).replace("linalg.generic {", f"linalg.generic {{{split}, ", 1)

    return replace(work, write=write)


CASES: dict[str, Case] = {
    "roles": Case(_matmul(300, 520, 200), ROLES, (ROLE, BF16), (DEFERRED, IN_FLIGHT, SHARED_FETCH)),
    "roles-kn": Case(_matmul(300, 520, 200, transposed=False), ROLES, (ROLE, BF16), (DEFERRED, IN_FLIGHT, SHARED_FETCH)),
    "roles-many-tiles": Case(_matmul(1900, 1560, 136), ROLES, (ROLE, BF16, r'grid = \["132"')),
    "roles-one-tile-each": Case(_matmul(300, 520, 200), replace(ROLES, persistent="never"), (ROLE, BF16, r'grid = \["15"')),
    "late": Case(_matmul(1900, 1560, 136), replace(ROLES, deferred_store=True), (ROLE, DEFERRED)),
    "two-widths": Case(_matmul(1530, 2552, 136), replace(ROLES, deferred_store=True, tail_tile_n=112), (ROLE, DEFERRED, "columns 112")),
    "two-widths-eighths": Case(
        _matmul(1530, 2664, 136), replace(ROLES, deferred_store=True, tail_tile_n=120), (ROLE, DEFERRED, "columns 120")
    ),
    "pending": Case(_matmul(300, 520, 200), replace(ROLES, steps_in_flight=1), (ROLE, IN_FLIGHT)),
    "turns": Case(_matmul(1900, 1560, 136), TURNS, (IN_TURNS, IN_FLIGHT)),
    "turns-scaled": Case(
        families.row_scaled("case", "case", 1900, 1560, 272, "f8E4M3FN"),
        replace(TURNS, tile=(128, 192, 128)),
        (IN_TURNS, IN_FLIGHT, FP8, r"tile\.load .* ordered "),
    ),
    "turns-gelu": Case(
        families.epilogue("case", "case", "linear_bias_gelu", 1900, 1560, 136, "bf16"),
        replace(TURNS, tile=(128, 192, 64)),
        (IN_TURNS, IN_FLIGHT, BF16, r"tile\.load .* ordered "),
    ),
    "cluster": Case(_matmul(500, 512, 200), replace(ROLES, cluster=2), (ROLE, SHARED_FETCH, "cluster_barrier")),
    "cluster-kn": Case(_matmul(500, 512, 200, transposed=False), replace(ROLES, cluster=2), (ROLE, SHARED_FETCH, "cluster_barrier")),
    "cluster-both": Case(
        _matmul(500, 520, 200),
        replace(ROLES, cluster=4, cluster_n=2, group_m=2),
        (ROLE, r"multicast array<i64: 0, 2> relative", "cluster_barrier"),
    ),
    "cluster-both-kn": Case(
        _matmul(2040, 760, 200, transposed=False),
        replace(ROLES, cluster=8, cluster_n=4, group_m=2),
        (ROLE, r"multicast array<i64: 0, 2, 4, 6> relative", "cluster_barrier"),
    ),
    "cluster-left-over": Case(
        _matmul(760, 520, 1064),
        replace(ROLES, tile=(64, 104, 64), cluster=4, group_m=4),
        (ROLE, r"multicast array<i64: 0, 1, 2, 3>", "cluster_barrier"),
    ),
    "cluster-spans": Case(
        _matmul(760, 488, 1064, transposed=False),
        replace(ROLES, tile=(64, 96, 64), cluster=4, group_m=4),
        (ROLE, r"multicast array<i64: 0, 1, 2, 3>", r"memref<16x32xbf16", "cluster_barrier"),
    ),
    "cluster-two-rounds": Case(
        _matmul(2040, 1240, 1064),
        replace(ROLES, tile=(64, 104, 64), cluster=4, group_m=4),
        (ROLE, r"multicast array<i64: 0, 1, 2, 3>", r'grid = \["120"'),
    ),
    "cluster-deferred": Case(
        _matmul(2040, 1536, 136), replace(ROLES, cluster=2, deferred_store=True), (SHARED_FETCH, "cluster_barrier", DEFERRED)
    ),
    "cluster-kn-deferred": Case(
        _matmul(2040, 1536, 136, transposed=False),
        replace(ROLES, cluster=2, deferred_store=True),
        (SHARED_FETCH, "cluster_barrier", DEFERRED),
    ),
    "narrow-boxes": Case(_matmul(2040, 328, 136), replace(ROLES, tile=(64, 168, 64)), (ROLE, NARROW_BOX), (r"tile\.store ",)),
    "narrow-boxes-deferred": Case(
        _matmul(9000, 504, 136), replace(ROLES, tile=(64, 88, 64), deferred_store=True), (ROLE, NARROW_BOX, DEFERRED), (r"tile\.store ",)
    ),
    "narrow-boxes-beside": Case(
        families.beside("case", "case", "linear_residual", 2040, 328, 136, "bf16"),
        replace(ROLES, tile=(64, 168, 64)),
        (ROLE, NARROW_BOX, r"tile\.copy .* memref<64x8xbf16"),
    ),
    "ends-deferred": Case(
        _matmul(9000, 520, 136), replace(ROLES, deferred_store=True), (r"overlaps_ends = \[0, 1\]", r"tile\.copy_out", DEFERRED)
    ),
    "ends-both-kn": Case(
        _matmul(1096, 1992, 136, transposed=False),
        replace(ROLES, cluster=4, cluster_n=2, group_m=4),
        (r"overlaps_ends = \[0, 1\]", "cluster_barrier", r"tile\.copy_out"),
    ),
    "ends-exchanged": Case(
        _matmul(1096, 1992, 136), replace(ROLES, form="exchanged"), (r"overlaps_ends = \[0, 1\]", r"tile\.store "), (r"tile\.copy_out",)
    ),
    "exchanged-168": Case(_matmul(328, 2040, 136), replace(ROLES, tile=(64, 168, 64), form="exchanged"), (ROLE, r"tile\.store ")),
    "plain": Case(_matmul(300, 520, 200), replace(PLAIN, roles=False), (BF16, "bulk_tensor"), (r"pipe\.roles", PIPELINED)),
    "pipelined": Case(
        _matmul(300, 520, 456), replace(PLAIN, roles=False, pipeline_stages=3), (BF16, "bulk_tensor", PIPELINED), (r"pipe\.roles",)
    ),
    "odd-pitch": Case(_matmul(77, 203, 345), PLAIN, (ROLE, BF16, "cp_async"), (r'"bulk_tensor" : memref',)),
    "pitch-of-4-bytes": Case(_matmul(77, 203, 46), PLAIN, (ROLE, BF16, r'sync\.wait "cp_async" pending 4 ')),
    "odd-pitch-tiles": Case(
        _matmul(77, 203, 45), replace(PLAIN, form="tiles"), (BF16, r"tile\.local_store"), (ROLES_OR_BULK, "cp_async", PIPELINED)
    ),
    "odd-pitch-pipelined": Case(
        _matmul(77, 203, 345),
        replace(PLAIN, form="tiles", pipeline_stages=3),
        (BF16, r"tile\.local_store", PIPELINED),
        (ROLES_OR_BULK, "cp_async"),
    ),
    "padded-rows": Case(_matmul(77, 203, 345), replace(PLAIN, row_padding="always"), (BF16, BY_DESCRIPTOR, SHIFTED), ("cp_async",)),
    "padded-rows-of-one-type": Case(
        _matmul(203, 203, 345, "f16"), replace(PLAIN, row_padding="always"), (BY_DESCRIPTOR, rf"{SHIFTED}(.*\n)*?.*{SHIFTED}.*\n.* edges ")
    ),
    "padded-rows-of-bytes": Case(_matmul(77, 203, 345, "i8"), replace(PLAIN, row_padding="always"), (BY_DESCRIPTOR, SHIFTED)),
    "turned-operands": Case(
        _matmul(260, 132, 345, "f32"),
        replace(PLAIN, turned_operands="always"),
        ("#tile.form<elementwise", _instruction("fma"), r"tile\.copy .* \"cp_async\" .*memref<260x345xf32, strided<\[1, 260\]>>"),
    ),
    "turned-operands-of-one-type": Case(
        _matmul(203, 203, 345, "f32"),
        replace(PLAIN, turned_operands="always"),
        (r"(tile\.store .*strided<\[224, 1\]>>(.*\n)*?.*){2}", _instruction("fma"), "cp_async"),
    ),
    "f32": Case(_matmul(65, 77, 123, "f32"), PLAIN, (_instruction("fma"),), ("wgmma",)),
    "groups-in-tables": Case(_groups(40, 136, 200, "f16"), PLAIN, (ROLE, r"tile\.lookup", _instruction("wgmma_m64k16_f32_f16_f16"))),
    "groups-in-large-tables": Case(_groups(5000, 24, 16, "bf16", "i32"), PLAIN, (r"tile\.lookup",)),
    "groups-in-tables-f32": Case(_groups(19, 77, 123, "f32"), PLAIN, (r"tile\.lookup", _instruction("fma"))),
    "f32-repeated-rows": Case(
        _matmul(123, 203, 515, "f32"),
        replace(AS_IS, tile=(128, 256, 16), warps=(2, 4)),
        (r"repeats array<i64: 0>", r"repeats array<i64: 1>"),
    ),
    "f32-repeated-rows-kn": Case(
        _matmul(83, 200, 387, "f32", transposed=False),
        replace(AS_IS, tile=(96, 96, 16), warps=(2, 2)),
        (r"repeats array<i64: 0>",),
    ),
    "f16": Case(_matmul(128, 264, 1040, "f16"), PLAIN, (ROLE, _instruction("wgmma_m64k16_f32_f16_f16"))),
    "streaming": Case(_matmul(3, 1000, 1032, "f16"), PLAIN, ("#tile.form<streaming", r"tile\.reduce"), (r"tile\.contract",)),
    "swapped": Case(
        _matmul(17, 1000, 1032, "f16"),
        replace(PLAIN, form="swapped"),
        ("#tile.form<swapped", ROLE, _instruction("wgmma_m64k16_f32_f16_f16")),
    ),
    "tf32": Case(_matmul(130, 132, 260, "f32"), replace(PLAIN, f32_precision="tf32"), (ROLE, _instruction("wgmma_m64k8_f32_tf32_tf32"))),
    # Three products of parts pay where k is long: below, f32 is multiplied as it is.
    "3xtf32": Case(_matmul(515, 644, 2052, "f32"), replace(PLAIN, f32_precision="3xtf32"), (_instruction("wgmma_m64k8_f32_tf32_tf32"),)),
    "bf16x6": Case(
        _matmul(123, 456, 5001, "f32", transposed=False), replace(PLAIN, f32_precision="bf16x6"), (SPLIT_ROLES, BF16, "cp_async")
    ),
    "bf16x6-nk": Case(_matmul(515, 644, 2052, "f32"), replace(PLAIN, f32_precision="bf16x6"), (SPLIT_ROLES, BF16), ("cp_async",)),
    "cluster-merge": Case(_merged(_matmul(130, 200, 1000), "cluster"), PLAIN, (ROLE, BF16, r" peers ")),
    "turn-merge": Case(_merged(_matmul(130, 200, 1000), "turnstile", 7), PLAIN, (ROLE, BF16, TURN)),
    "turn-merge-groups": Case(_merged(_matmul(300, 520, 1000), "turnstile", 3), ROLES, (ROLE, BF16, TURN)),
    "turn-merge-many": Case(_merged(_matmul(1900, 1560, 1000), "turnstile", 5), ROLES, (ROLE, BF16, TURN)),
    "turn-merge-tiles": Case(_merged(_matmul(77, 203, 645), "turnstile", 3), replace(PLAIN, form="tiles"), (BF16, TURN), (r"pipe\.roles",)),
    "fp8": Case(_matmul(300, 528, 400, "f8E4M3FN"), PLAIN, (ROLE, FP8), ("is_promoted = true",)),
    "fp8-promoted": Case(
        _matmul(300, 528, 400, "f8E4M3FN"), replace(PLAIN, fp8_accumulation="promoted"), (ROLE, FP8, "is_promoted = true")
    ),
    "fp8-blocks": Case(families.block_scaled("case", "case", 256, 384, 512, "f8E4M3FN"), PLAIN, (ROLE, FP8, r"math\.fma")),
    "int8": Case(_matmul(300, 528, 400, "i8"), PLAIN, (ROLE, _instruction("wgmma_m64k32_i32_i8_i8"))),
    "bias-gelu": Case(families.epilogue("case", "case", "linear_bias_gelu", 300, 520, 200, "bf16"), PLAIN, (ROLE, BF16, r"math\.exp2")),
    "silu-two": Case(families.epilogue("case", "case", "linear_silu_two", 300, 520, 200, "bf16"), PLAIN, (ROLE, BF16, r"math\.exp2")),
    "swiglu": Case(families.gated("case", "case", 300, 520, 200, "bf16"), PLAIN, (ROLE, rf"{BF16}(.*\n)+?.*{BF16}", r"math\.exp2")),
    "horizontal-three": Case(
        families.gated("case", "case", 300, 520, 200, "bf16", outputs=3), PLAIN, (ROLE, rf"{BF16}(.*\n)+?.*{BF16}", "output_count = 3")
    ),
    "batch": Case(families.batch_matmul("case", "case", 3, 136, 264, 200, "bf16"), PLAIN, (ROLE, BF16, r"memref<3x(136x200|200x136)x")),
    "row-sums": Case(reductions.row_sums("case", "case", 333, 1027, "f32"), PLAIN, (r"tile\.reduce",), (r"tile\.contract",)),
    "softmax": Case(reductions.softmax("case", "case", 77, 1001, "bf16"), PLAIN, (r"tile\.reduce", r"math\.exp2?\b"), (r"tile\.contract",)),
}


def compiled(name: str) -> driver.Program:
    """A case, compiled."""
    case = CASES[name]
    return driver.compile(case.workload.text, target="sm_90a", options=case.options)


def wrong(name: str, runs: int = 1) -> list[str]:
    """What is wrong with a case on this machine's GPU, run so often with the same inputs."""
    program = compiled(name)
    arrays = make_inputs(program.name, program.manifest.inputs, (), 0)
    first = [np.asarray(result) for result in program(*arrays)]
    found = [f"{name}: {checked}" for checked in map(check, first, program.reference(*arrays)) if not checked.ok]
    for run in range(1, runs):
        again = program(*arrays)
        if any(a.tobytes() != np.asarray(b).tobytes() for a, b in zip(first, again, strict=True)):
            found.append(f"{name}: run {run} differs from the first")
            break
    return found


if __name__ == "__main__":
    sys.exit(run_named(CASES, lambda names: [problem for name in names for problem in wrong(name)]))
