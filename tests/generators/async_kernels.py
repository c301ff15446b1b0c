"""Sequential kernels in text whose copies and matrix instructions will overlap, and what insert-sync makes of them in a line.

`Kernel` holds the operands every text needs: views `%va`, `%vb` of f16 and `%vc` of f32 (rows of 64 columns), constants `%c0`..,
a zero accumulator `%zero`; `buffers(name=slots)` allocates operands of 64 x 64 f16 (0: no slots).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from treadle.dialects import sync, tile
from treadle.dialects.tile import shared_buffer_type, tile_of
from treadle.ir.core import Operation
from treadle.ir.dialects import builtin
from treadle.ir.passes import Pass, run_passes
from treadle.ir.text import parse_module
from treadle.layout.fragments import tile_fragment
from treadle.layout.shared_layout import row_major, swizzled
from treadle.layout.tile_layout import blocked
from treadle.machine.fragments import wgmma_a, wgmma_accumulator
from treadle.transforms.kernel.insert_sync import InsertSyncPass
from treadle.transforms.kernel.order_issue import OrderIssuePass

MMA = "wgmma_m64k16_f32_f16_f16"
SIDE = 64
FRAGMENT = str(tile_of([SIDE, SIDE], builtin.f16, tile_fragment(wgmma_a(2), (SIDE, SIDE), (1, 1))))
ACCUMULATOR = str(tile_of([SIDE, SIDE], builtin.f32, tile_fragment(wgmma_accumulator(SIDE), (SIDE, SIDE), (1, 1))))
PLAIN = str(tile_of([SIDE, SIDE], builtin.f16, blocked([SIDE, SIDE], [1, 0], 8, 32, 4)))
OUT = str(tile_of([SIDE, SIDE], builtin.f32, blocked([SIDE, SIDE], [1, 0], 4, 32, 4)))


def buffer(slots: int = 0, element: str = "f16") -> str:
    """The type of a shared buffer of 64 x 64, swizzled for f16, with a leading dimension of slots."""
    layout = swizzled((SIDE, SIDE), (1, 0), 2, 128) if element == "f16" else row_major((SIDE, SIDE), (1, 0))
    shape = [SIDE, SIDE]
    if slots:
        layout, shape = layout.stacked(slots), [slots, SIDE, SIDE]
    return str(shared_buffer_type(shape, builtin.f16 if element == "f16" else builtin.f32, layout))


def view_type(rows: int, element: str) -> str:
    return f"memref<{rows}x{SIDE}x{element}, strided<[{SIDE}, 1]>>"


@dataclass
class Kernel:
    """Text of a kernel; lines are added by the methods. Arrays have `rows` rows of 64."""

    rows: int = 64 * 12
    target: str = "sm_90a"

    def __post_init__(self) -> None:
        self.lines: list[str] = []
        self.types: dict[str, str] = {}
        self.count = 0
        for name, element in (("a", "f16"), ("b", "f16"), ("c", "f32")):
            kind = view_type(self.rows, element)
            self.lines.append(
                f"%v{name} = tile.view %{name} offset 0 : i64 align 16 : i64 sizes [] strides [] : !tile.ptr<{element}> -> {kind}"
            )
            self.types[f"%v{name}"] = kind
        self.lines += [f"%c{n} = arith.constant {n} : index" for n in range(17)]
        self.lines += [f"%r{n} = arith.constant {n * SIDE} : index" for n in range(13)]
        self.lines.append(f"%zero = arith.constant dense<0.000000e+00> : {ACCUMULATOR}")
        self.lines.append(f"%plain = arith.constant dense<1.000000e+00> : {PLAIN}")
        self.lines.append(f"%out = arith.constant dense<2.000000e+00> : {OUT}")

    def add(self, line: str) -> None:
        self.lines.append(line)

    def fresh(self, stem: str = "x") -> str:
        self.count += 1
        return f"%{stem}{self.count}_"

    def buffers(self, element: str = "f16", **slots: int) -> None:
        for name, count in slots.items():
            self.types[f"%{name}"] = buffer(count, element)
            self.add(f"%{name} = tile.alloc : {self.types[f'%{name}']}")

    def slot(self, name: str, index: str) -> str:
        """A slot of a buffer."""
        found = self.fresh("s")
        source = self.types[name]
        self.types[found] = buffer(element="f32" if "xf32" in source else "f16")
        self.add(f"{found} = pipe.slot {name}[{index}] : {source} -> {self.types[found]}")
        return found

    def copy(self, into: str, row: str = "%c0", path: str = "bulk_tensor", view: str = "%va") -> None:
        self.add(f'tile.copy {view}[{row}, %c0] dims array<i64: 0, 1>, {into} path "{path}" : {self.types[view]}, {self.types[into]}')

    def copy_out(self, source: str, row: str = "%c0") -> None:
        self.add(
            f'tile.copy_out {source}, %vc[{row}, %c0] dims array<i64: 0, 1> path "bulk_tensor" : {self.types[source]}, {self.types["%vc"]}'
        )

    def mma(self, a: str, b: str, accumulator: str = "%zero", name: str = "") -> str:
        found = name or self.fresh("d")
        kinds = f"{self.types[a]}, {self.types[b]}, {ACCUMULATOR} -> {ACCUMULATOR}"
        self.add(f'{found} = tile.contract {a}, {b}, {accumulator} "{MMA}" : {kinds}')
        return found

    def fragment(self, source: str) -> str:
        """A left operand in registers: of a slot, or a result that is narrowed."""
        if source not in self.types:
            found = self.fresh("h")
            self.add(f"{found} = arith.truncf {source} : {ACCUMULATOR} to {FRAGMENT}")
        else:
            found = self.local_load(source, FRAGMENT)
        self.types[found] = FRAGMENT
        return found

    def relu(self, value: str) -> str:
        found = self.fresh("e")
        self.add(f"{found} = arith.maximumf {value}, %zero : {ACCUMULATOR}")
        return found

    def store(self, value: str, row: str = "%c0") -> None:
        self.add(f"tile.store {value}, %vc[{row}, %c0] dims array<i64: 0, 1> vector 2 : i64 : {ACCUMULATOR}, {self.types['%vc']}")

    def local_store(self, into: str, value: str = "") -> None:
        is_wide = "xf32" in self.types[into]
        value, kind = value or ("%out" if is_wide else "%plain"), ACCUMULATOR if value else OUT if is_wide else PLAIN
        self.add(f"tile.local_store {value}, {into} array<i64: 0, 0> : {kind}, {self.types[into]}")

    def local_load(self, source: str, kind: str = "") -> str:
        found = self.fresh("l")
        kind = kind or (OUT if "xf32" in self.types[source] else PLAIN)
        self.add(f"{found} = tile.local_load {source} array<i64: 0, 0> : {self.types[source]} -> {kind}")
        return found

    def text(self) -> str:
        header = (
            f'symbols = [], grid = ["1", "1", "1"], num_warps = 4 : i64, target = "{self.target}", arg_align = array<i64: 16, 16, 16>, '
            'output_count = 1 : i64, sym_name = "k"'
        )
        body = "\n".join(self.lines)
        return (
            f'"tile.kernel"() <{{{header}}}> ({{\n^bb0(%a: !tile.ptr<f16>, %b: !tile.ptr<f16>, %c: !tile.ptr<f32>):\n{body}\n'
            "  tile.return\n}) : () -> ()\n"
        )

    def synchronised(self, *before: Pass) -> builtin.ModuleOp:
        """The module after insert-sync, and passes before it."""
        module = parse_module(self.text(), "test")
        run_passes(module, [*before, OrderIssuePass(), InsertSyncPass()])
        return module


def _short(op: Operation) -> str | None:
    match op:
        case sync.WaitOp():
            return f"wait {op.queue.data} {op.pending.value.data}{' read' if op.read is not None else ''}"
        case sync.CommitOp():
            return f"commit {op.queue.data}"
        case sync.BarrierOp():
            return "bare" if op.bare is not None else "barrier"
        case sync.WaitPhaseOp():
            return "phase"
        case sync.MbarrierExpectOp():
            return "expect"
        case tile.ContractOp():
            return "mma"
        case _:
            names = {
                "sync.fence": "fence",
                "tile.copy": "copy",
                "tile.copy_out": "copy_out",
                "tile.store": "store",
                "arith.maximumf": "relu",
            }
            return names.get(op.name) or (op.name.removeprefix("tile.") if op.name.startswith("tile.local_") else None)


def outline(module: Operation) -> list[str]:
    """What a kernel does, in order, with `for`, `if`, `else` and `end`."""
    found: list[str] = []

    def visit(op: Operation) -> None:
        if op.name == "scf.for":
            found.append("for")
        elif op.name == "scf.if":
            found.append("if")
        elif (text := _short(op)) is not None:
            found.append(text)
        for number, region in enumerate(op.regions):
            if op.name == "scf.if" and number and region.blocks and len(tuple(region.block.ops)) > 1:
                found.append("else")
            for block in region.blocks:
                for inner in block.ops:
                    visit(inner)
        if op.name in ("scf.for", "scf.if"):
            found.append("end")

    visit(module)
    return found


def lines(text: str) -> list[str]:
    """An outline as it is written in tests: items separated by `;` or by line breaks."""
    return [item for item in (re.sub(r"\s+", " ", part).strip() for part in re.split(r"[;\n]", text)) if item]


def count(found: Sequence[str], start: str) -> int:
    """How many items of an outline start so."""
    return sum(item.startswith(start) for item in found)


START = "expect; copy; copy; phase"
"""What `operands` is synchronised by, in `lines`."""


def operands(path: str = "bulk_tensor", rows: int = 128) -> Kernel:
    """Two operands in shared memory."""
    kernel = Kernel(rows=rows)
    kernel.buffers(p=0, q=0)
    kernel.copy("%p", path=path)
    kernel.copy("%q", view="%vb", path=path)
    return kernel


def loop(kernel: Kernel, carried: int = 1, start: str = "%zero", trips: int = 3) -> None:
    """Open a loop with iteration arguments %x0.. and results %o0.."""
    args = ", ".join(f"%x{n} = {start}" for n in range(carried))
    results = ", ".join(f"%o{n}" for n in range(carried))
    kernel.add(f"{results} = scf.for %i = %c0 to %c{trips} step %c1 iter_args({args}) -> ({', '.join([ACCUMULATOR] * carried)}) {{")


def end(kernel: Kernel, *values: str) -> None:
    """Close a loop."""
    kernel.add(f"scf.yield {', '.join(values)} : {', '.join([ACCUMULATOR] * len(values))}\n}}" if values else "scf.yield\n}")


def branch(kernel: Kernel) -> None:
    """Open a conditional that no compiler can decide."""
    kernel.add("%pid = tile.program_id 0 : i64\n%flag = arith.cmpi slt, %pid, %c1 : index\nscf.if %flag {")
