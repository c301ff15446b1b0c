"""sm_90a's part of a kernel: ids, shuffles, barriers, transaction barriers, tensor copies, native math and conversions."""

from collections.abc import Sequence

from treadle.codegen.llvm_text import F32, I8, I16, I32, PTR, Builder, Parameter, Value, bit_width, i32, key_value, structure, vector
from treadle.dialects.sync import MbarrierAllocOp
from treadle.dialects.tile import AllocOp, ContractOp, CopyOp, KernelOp
from treadle.errors import InternalError
from treadle.ir.core import Operation
from treadle.ir.dialects import builtin
from treadle.machine import TargetSpec
from treadle.targets.interface import ExpectedFacts, Param, TensorMapParam
from treadle.targets.nvidia.tensor_map import CopyPlan, plan_copy
from treadle.targets.nvidia.wgmma import emit_wgmma, wait_text
from treadle.targets.simt.casts import widen_to_f32
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.hooks import SimtHooks
from treadle.targets.simt.small_floats import mend_overflow

MEMORY = "~{memory}"
_FP8_PTX = {"f8E4M3FN": "e4m3", "f8E5M2": "e5m2"}
_APPROXIMATE = {"exp2": "ex2.approx.f32", "rsqrt": "rsqrt.approx.f32"}
_ELECTED = frozenset({"tile.copy", "sync.mbarrier_expect"})


class _Elected:
    """Instructions that one thread issues, gathered so that neighbours share one branch."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constraints: list[str] = []
        self.arguments: list[Value] = []

    def operand(self, value: Value) -> str:
        """The name of an input in the text."""
        for i, known in enumerate(self.arguments):
            if known.text == value.text and known.type == value.type:
                return f"${i}"
        self.arguments.append(value)
        self.constraints.append("l" if value.type.startswith("ptr") or bit_width(value.type) == 64 else "r")
        return f"${len(self.arguments) - 1}"


class NvidiaHooks(SimtHooks):
    """Hooks of sm_90a; one object a kernel."""

    triple = "nvptx64-nvidia-cuda"
    calling_convention = "ptx_kernel"

    def __init__(self, spec: TargetSpec) -> None:
        super().__init__(spec)
        self.cpu = spec.name
        self._copies: dict[CopyOp, tuple[CopyPlan, str]] = {}
        self._elected = _Elected()

    # --- the function

    def function_attributes(self, threads: int) -> Sequence[str]:
        return (key_value("nvvm.maxntid", threads), key_value("nvvm.minctasm", 1), "nounwind")

    def extra_parameters(self, kernel: KernelOp) -> Sequence[tuple[Param, Parameter]]:
        if self.spec.bulk_tensor is None:
            return ()
        names: dict[TensorMapParam, str] = {}
        for op in kernel.body.walk():
            if isinstance(op, CopyOp):
                plan = plan_copy(kernel, op, self.spec.bulk_tensor)
                self._copies[op] = (plan, names.setdefault(plan.map, f"map{len(names)}"))
        # Without grid_constant LLVM copies the map to local memory, where the copy engine cannot read it.
        words = 'byval([128 x i8]) align 64 "nvvm.grid_constant"'
        return [(param, Parameter(PTR, name, words)) for param, name in names.items()]

    def shared_alignment(self, alloc: AllocOp) -> int:
        users = [use.operation for use in alloc.result.uses]
        return 1024 if any(isinstance(user, CopyOp | ContractOp) for user in users) else 16

    def expected(self, ctx: KernelContext) -> ExpectedFacts:
        return ExpectedFacts(ctx.counts.matrix_instructions, ctx.counts.bulk_copies, ctx.counts.contractions > 0)

    def before(self, ctx: KernelContext, op: Operation | None) -> None:
        if self._elected.lines and (op is None or (op.name not in _ELECTED and not op.name.startswith("arith."))):
            self._flush(ctx)

    def _flush(self, ctx: KernelContext) -> None:
        b, todo = ctx.b, self._elected
        self._elected = _Elected()
        chosen = todo.operand(ctx.thread)
        body = "\n".join(todo.lines)
        b.asm(
            f"{{ .reg .pred p;\nsetp.ne.u32 p, {chosen}, 0;\n@p bra DONE;\n{body}\nDONE: }}",
            ",".join([*todo.constraints, MEMORY]),
            todo.arguments,
        )

    # --- ids and lanes

    def thread_id(self, b: Builder) -> Value:
        return b.intrinsic("llvm.nvvm.read.ptx.sreg.tid.x", I32, pure=True)

    def warp_id(self, b: Builder, thread: Value) -> Value:
        # The shuffle tells ptxas that all lanes agree, which keeps descriptors in uniform registers.
        return self.shuffle_index(b, b.lshr(thread, i32(5)), i32(0))

    def program_id(self, b: Builder, axis: int) -> Value:
        return b.intrinsic(f"llvm.nvvm.read.ptx.sreg.ctaid.{'xyz'[axis]}", I32, pure=True)

    def shuffle_xor(self, b: Builder, value: Value, mask: int) -> Value:
        return b.intrinsic("llvm.nvvm.shfl.sync.bfly.i32", I32, [i32(-1), value, i32(mask), i32(31)], attributes=["convergent"])

    def shuffle_index(self, b: Builder, value: Value, lane: Value) -> Value:
        return b.intrinsic("llvm.nvvm.shfl.sync.idx.i32", I32, [i32(-1), value, lane, i32(31)], attributes=["convergent"])

    # --- order

    def barrier(self, b: Builder) -> None:
        b.asm("bar.sync 0;", MEMORY)

    def fence(self, b: Builder, proxy: str) -> None:
        if proxy != "async_shared":
            super().fence(b, proxy)
        b.asm("fence.proxy.async.shared::cta;", MEMORY)

    def commit(self, b: Builder, queue: str) -> None:
        if queue != "wgmma":
            super().commit(b, queue)
        b.asm("wgmma.commit_group.sync.aligned;", MEMORY)

    def wait(self, ctx: KernelContext, queue: str, pending: int) -> None:
        if queue != "wgmma":
            super().wait(ctx, queue, pending)
        # Tiles being written pass through the wait, so that no reader can move above it.
        b = ctx.b
        tiles = list(ctx.in_flight)
        live = ctx.flatten(tiles)
        if not live:
            b.asm(wait_text(pending), MEMORY)
            return
        letters = ["f" if v.type == F32 else "r" for v in live]
        constraints = [*(f"={c}" for c in letters), *(str(i) for i in range(len(live))), MEMORY]
        result = b.asm(
            wait_text(pending), ",".join(constraints), live, structure([v.type for v in live]) if len(live) > 1 else live[0].type
        )
        ready = [b.extract_value(result, i) for i in range(len(live))] if len(live) > 1 else [result]
        ctx.bind_flat(tiles, ready)
        if pending == 0:
            ctx.in_flight.clear()

    def mbarriers_init(self, ctx: KernelContext, barriers: Sequence[tuple[MbarrierAllocOp, Value]]) -> None:
        b = ctx.b
        if not barriers:
            return
        with b.when(b.icmp("eq", ctx.thread, i32(0))):
            for op, address in barriers:
                b.asm("mbarrier.init.shared::cta.b64 [$0], $1;", f"r,r,{MEMORY}", [b.ptrtoint(address, I32), i32(op.arrivals.value.data)])
            b.asm("fence.mbarrier_init.release.cluster;", MEMORY)
        self.barrier(b)

    def mbarrier_expect(self, ctx: KernelContext, address: Value, byte_count: int) -> None:
        at = self._elected.operand(ctx.b.ptrtoint(address, I32))
        self._elected.lines.append(f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [{at}], {byte_count};")

    def wait_phase(self, ctx: KernelContext, address: Value, parity: Value) -> None:
        b = ctx.b
        text = "{ .reg .pred p;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1;\n@p bra DONE;\nbra WAIT;\nDONE: }"
        b.asm(text, f"r,r,{MEMORY}", [b.ptrtoint(address, I32), parity])

    # --- memory

    def load_global(
        self, b: Builder, address: Value, type: str, align: int, predicate: Value | None, other: Value, read_only: bool
    ) -> Value:
        if predicate is None:
            return b.load(type, address, align, metadata=f"!invariant.load {b.module.metadata('!{}')}" if read_only else "")
        bits = bit_width(type)
        words, word = (bits // 32, I32) if bits >= 32 else (1, I16)
        packed = _to_words(b, b.bitcast(other, f"i{bits}") if bits < 32 else other, words, word)
        names = ", ".join(f"${i}" for i in range(words))
        width = f".v{words}" if words > 1 else ""
        text = f"ld.global{'.nc' if read_only else ''}{width}.{'b32' if bits >= 32 else f'b{bits}'}"
        registers = f"{{{names}}}" if words > 1 else names
        template = f"{{ .reg .pred p; setp.ne.b32 p, ${2 * words + 1}, 0; @p {text} {registers}, [${2 * words}]; }}"
        letter = "r" if bits >= 32 else "h"
        constraints = [f"={letter}"] * words + [str(i) for i in range(words)] + ["l", "r"] + ([] if read_only else [MEMORY])
        result = b.asm(
            template,
            ",".join(constraints),
            [*packed, address, b.zext(predicate, I32)],
            word if words == 1 else structure([word] * words),
            side_effect=not read_only,
            convergent=False,
        )
        parts = [result] if words == 1 else [b.extract_value(result, i) for i in range(words)]
        return _from_words(b, parts, type)

    def store_global(self, b: Builder, address: Value, value: Value, align: int, predicate: Value | None) -> None:
        if predicate is None:
            b.store(value, address, align)
            return
        bits = bit_width(value.type)
        words, word = (bits // 32, I32) if bits >= 32 else (1, I16)
        packed = _to_words(b, b.bitcast(value, f"i{bits}") if bits < 32 else value, words, word)
        names = ", ".join(f"${i + 2}" for i in range(words))
        registers = f"{{{names}}}" if words > 1 else names
        width = f".v{words}" if words > 1 else ""
        letter = "r" if bits >= 32 else "h"
        b.asm(
            f"{{ .reg .pred p; setp.ne.b32 p, $1, 0; @p st.global{width}.b{32 if bits >= 32 else bits} [$0], {registers}; }}",
            ",".join(["l", "r", *[letter] * words, MEMORY]),
            [address, b.zext(predicate, I32), *packed],
            convergent=False,
        )

    def copy(self, ctx: KernelContext, op: CopyOp) -> None:
        if op.barrier is None:
            raise InternalError("tile.copy without a barrier to signal")
        b, todo = ctx.b, self._elected
        plan, name = self._copies[op]
        buffer = ctx.buffer(op.destination)
        source = todo.operand(ctx.parameters[name])
        barrier = todo.operand(b.ptrtoint(ctx.scalar(op.barrier), I32))
        starts = [ctx.scalar(op.offsets[dim]) for dim in plan.view_dims]
        base = b.ptrtoint(buffer.address, I32)
        for box in plan.boxes:
            target = todo.operand(b.add(base, i32(box.byte_offset)))
            at = ", ".join(todo.operand(b.add(start, i32(c))) for start, c in zip(starts, box.start, strict=True))
            todo.lines.append(
                f"cp.async.bulk.tensor.{len(starts)}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                f"[{target}], [{source}, {{{at}}}], [{barrier}];"
            )
            ctx.counts.bulk_copies += 1

    # --- arithmetic

    def contract(self, ctx: KernelContext, op: ContractOp) -> None:
        try:
            row = self.spec.instruction(op.instruction.data)
        except KeyError:
            super().contract(ctx, op)
            return
        emit_wgmma(ctx, op, row)

    def math(self, b: Builder, name: str, args: Sequence[Value]) -> Value | None:
        if name in _APPROXIMATE and args[0].type == F32:
            return b.asm(f"{_APPROXIMATE[name]} $0, $1;", "=f,f", args, F32, side_effect=False, convergent=False)
        return None

    def cast_float(self, b: Builder, values: Sequence[Value], source: str, result: str) -> Sequence[Value] | None:
        if result in _FP8_PTX:
            return self._to_fp8(b, values, source, result)
        if source in _FP8_PTX and result in ("f16", "f32"):
            return self._from_fp8(b, values, source, result)
        return None

    def _to_fp8(self, b: Builder, values: Sequence[Value], source: str, result: str) -> Sequence[Value] | None:
        if source not in ("f16", "bf16", "f32", "f64"):
            return None
        wide = [widen_to_f32(b, v, builtin.f32) for v in values]
        found: list[Value] = []
        for i in range(0, len(wide), 2):
            low, high = wide[i], wide[min(i + 1, len(wide) - 1)]
            text = f"cvt.rn.satfinite.{_FP8_PTX[result]}x2.f32 $0, $1, $2;"
            pair = b.asm(text, "=h,f,f", [high, low], I16, side_effect=False, convergent=False)
            found += [b.trunc(pair, I8), b.trunc(b.lshr(pair, Value(I16, "8", 8)), I8)]
        return [mend_overflow(b, v, code, result) for v, code in zip(wide, found, strict=False)]

    def _from_fp8(self, b: Builder, values: Sequence[Value], source: str, result: str) -> Sequence[Value]:
        found: list[Value] = []
        for i in range(0, len(values), 2):
            low, high = values[i], values[min(i + 1, len(values) - 1)]
            pair = b.or_(b.zext(low, I16), b.shl(b.zext(high, I16), Value(I16, "8", 8)))
            text = f"cvt.rn.f16x2.{_FP8_PTX[source]}x2 $0, $1;"
            both = b.bitcast(b.asm(text, "=r,h", [pair], I32, side_effect=False, convergent=False), vector(2, "half"))
            found += [b.extract(both, 0), b.extract(both, 1)]
        found = found[: len(values)]
        return found if result == "f16" else [b.fpext(v, F32) for v in found]


def _to_words(b: Builder, value: Value, words: int, word: str) -> list[Value]:
    """A value as 32-bit words (or one 16-bit word, zero-extended)."""
    if word == I16:
        return [b.zext(value, I16) if value.type == I8 else b.bitcast(value, I16)]
    if words == 1:
        return [b.bitcast(value, I32)]
    whole = b.bitcast(value, vector(words, I32))
    return [b.extract(whole, i) for i in range(words)]


def _from_words(b: Builder, parts: Sequence[Value], type: str) -> Value:
    """The opposite of `_to_words`."""
    if parts[0].type == I16:
        return b.bitcast(b.trunc(parts[0], I8) if bit_width(type) == 8 else parts[0], type)
    return b.bitcast(parts[0] if len(parts) == 1 else b.build_vector(parts), type)
