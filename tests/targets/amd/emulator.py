"""Runs code objects in the AMD emulator of the tinygrad repository (test/mockgpu/amd), which interprets the machine code on the CPU.

TREADLE_AMD_EMULATOR names a checkout; without it `load` says why there is none. Nothing of the emulator is kept here.

What the emulator does not see: waits (nothing is ever pending), bank conflicts, hazards between instructions, deadlocks. It does see
missing barriers, if the waves of a workgroup run in several orders: each wave runs until it meets a barrier, so `launch` takes
an order.

Its known faults, and what is done here about each:
- one scratch buffer serves all waves: kernels that use scratch are refused;
- operands of MFMA and sources of ds_write in accumulation registers are read from the other register file: such kernels are refused;
- a WMMA whose accumulator is the constant 0 reads register 128 and the following: right as long as nothing wrote them, which zeroed
  registers at the start and starting instructions at the top of the kernel make so;
- WMMA on 8-bit floats takes them for f16: refused;
- MFMA reads the FNUZ formats of gfx942 as the OCP ones, whose values are twice as large: a product is four times the right one;
- integer MFMA becomes C that mixes vectors of int and unsigned, which does not compile: stored element by element instead;
- inactive lanes read shared memory too, wherever their address register points, which ends the process: they read address 0 here,
  and the result is dropped as before;
- it takes write-backs and invalidations of caches for accesses, and does not know s_setprio: they do nothing here;
- RDNA's loads from shared memory into the upper half of a register write the lower one: refused;
- RDNA's loads by descriptor are missing: added, as raw buffers of words (stores and other loads by descriptor are refused);
- loads that write shared memory read address 0 for lanes out of bounds, which ends the process: they read nothing here;
- the DPP control row_xmask is missing: added; a literal operand of v_permlanex16 is not read: handed over;
- lanes are computed one after the other, so that a DPP instruction whose result takes the place of what other lanes read gives them the
  new value: each lane is executed alone, on the old values;
- ds_swizzle is missing; RDNA3's three-operand encodings with DPP are not decoded: such kernels are refused; RDNA4's read no lane:
  handed over;
- f16 operands of matrix instructions: subnormals count as 0, infinities and NaN as finite. Tests use neither;
- a compare and swap returns what it wrote, so that LLVM's loops around it update more than once: tests use those of extrema alone;
- two bytes at an odd address are those at the even one before: read as part of four bytes;
- CDNA's 16-bit instructions of one and two operands take registers from 128 on for the upper halves of those 128 below, as on RDNA3, so
  that a result destroys another value: they are what they are called here;
- s_getpc, from which constants in memory are found, does not know the program counter: told;
- the mantissa of zero (v_frexp_mant_f32) is 1/2, so that zero divided by something is not zero. Tests divide no zeros.
"""

import contextlib
import ctypes
import functools
import importlib
import inspect
import os
import re
import shutil
import struct
import sys
import tempfile
import types
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from treadle.dialects.tile import KernelOp
from treadle.ir.dialects import builtin
from treadle.plan import expr
from treadle.sim.memory import Pointer
from treadle.sim.program import SimProgram
from treadle.targets.interface import CompiledKernel, IndexParam, PointerParam
from treadle.targets.registry import backend

VARIABLE = "TREADLE_AMD_EMULATOR"
ARCHITECTURES = {"gfx942": "cdna", "gfx950": "cdna", "gfx1100": "rdna3", "gfx1201": "rdna4"}
ORDERS: dict[str, Callable[[list[int]], list[int]]] = {
    "forward": lambda waves: waves,
    "reverse": lambda waves: waves[::-1],
    "shuffled": lambda waves: [int(w) for w in np.random.default_rng(7).permutation(waves)],
}
GUARD_BYTES = 4096
GUARD = 0xA5
SHARED_GRANULE = 512
S_NOP = 0xBF800000
CACHE_CONTROL = {
    "cdna": (0xFFFC0000, (0xE0A00000, 0xE0A40000), 2),
    "rdna3": (0xFFFC0000, (0xE0AC0000, 0xE0B00000), 2),
    "rdna4": (0xFFFFC000, (0xEE0AC000, 0xEE0B0000), 3),
}
"""Instructions that write back or invalidate caches: the first word's mask, its values, and how many words there are.

buffer_wbl2, buffer_inv; buffer_gl0_inv, buffer_gl1_inv; global_inv, global_wb.
"""
PRIORITY = {"cdna": 0xBF8F0000, "rdna3": 0xBFB50000, "rdna4": 0xBFB50000}
"""The word of s_setprio, but for the priority in its lowest bits."""
DPP_OPERAND = 250
"""The number of the operand that stands for another lane's register."""
VOP3_DPP = "three-operand encodings with DPP"
SCALAR_REGISTERS = 124
"""Operands of RDNA with smaller numbers are scalar registers."""
ROW_XMASK, QUAD_IDENTITY = 0x160, 0xE4


def missing() -> str:
    """Why there is no emulator; empty text if there is one."""
    path = os.environ.get(VARIABLE, "")
    if not path:
        return f"{VARIABLE} names no checkout with the AMD emulator"
    found = (Path(path) / "test" / "mockgpu" / "amd" / "emu.py").is_file()
    return "" if found else f"{VARIABLE}={path} holds no test/mockgpu/amd/emu.py"


@functools.cache
def load() -> Any:
    """The emulator's module. It translates instructions to C; where there is no clang, ziglang's does it."""
    root = Path(os.environ[VARIABLE])
    if "CC" not in os.environ and shutil.which("clang") is None:
        script = Path(tempfile.mkdtemp(prefix="treadle-"), "clang")
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang clang "$@"\n')
        script.chmod(0o755)
        os.environ["CC"] = str(script)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    # The standard library has a package `test` too, which would win over a folder without __init__.
    package = sys.modules.get("test")
    if package is None or str(root / "test") not in list(getattr(package, "__path__", [])):
        package = types.ModuleType("test")
        package.__path__ = [str(root / "test")]
        sys.modules["test"] = package
    module: Any = importlib.import_module("test.mockgpu.amd.emu")
    original = module._dpp16_ctrl

    def dpp(lane: Any, control: int, *rest: Any) -> Any:
        if control & ~15 != ROW_XMASK:
            return original(lane, control, *rest)
        source, enabled, valid = original(lane, QUAD_IDENTITY, *rest)
        return source ^ module._c(control & 15, module.dtypes.int), enabled, valid

    module._dpp16_ctrl = dpp
    _leave_caches_out(module)
    _read_literals_of_lane_moves(module._Ctx)
    _keep_inactive_lanes_in_shared_memory(module)
    _read_nothing_out_of_bounds(module)
    _load_by_descriptors(module)
    _let_lanes_read_before_they_write(module)
    _load_halves_at_odd_addresses(importlib.import_module("test.mockgpu.amd.pcode"))
    _leave_upper_halves_to_rdna(module)
    _tell_where_instructions_are(module)
    return module


def _rewrite(module: Any, name: str, *replaced: tuple[str, str]) -> None:
    """Compile a function of the emulator anew, with each of these texts, which occur once in it, replaced."""
    original, names = getattr(module, name), {}
    text = inspect.getsource(original)
    for old, new in replaced:
        if text.count(old) != 1:
            raise RuntimeError(f"the emulator's {name} is another than the one that is mended here")
        text = text.replace(old, new)
    exec(text, vars(module), names)
    setattr(module, name, names[name])
    for kind, handler in list(module._INST_HANDLERS.items()):
        if handler is original:
            module._INST_HANDLERS[kind] = names[name]


def _leave_upper_halves_to_rdna(module: Any) -> None:
    """Where waves have 64 lanes, which are CDNA's, the numbers of registers from 128 on name registers in 16-bit instructions too."""
    short = "ctx.wave_size == 32 and bits"
    _rewrite(module, "_load_vsrc0", ("if bits['s0'] == 16:", f"if {short}['s0'] == 16:"))
    _rewrite(module, "_compile_vop12", *((f"= bits['{one}'] == 16 and", f"= {short}['{one}'] == 16 and") for one in ("d", "s0")))
    _rewrite(module, "_compile_vopc", ("    if bits['s0'] == 16:\n", f"    if {short}['s0'] == 16:\n"))


def _tell_where_instructions_are(module: Any) -> None:
    """Let s_getpc read the program counter."""
    original = module._Ctx.compile_sop_pcode

    def compiled(self: Any, op: Any, srcs: Any, *rest: Any) -> Any:
        own = {"PC": self.rpc().cast(module.dtypes.int64)} if "GETPC" in op.name else {}
        return original(self, op, srcs | own, *rest)

    module._Ctx.compile_sop_pcode = compiled


def _leave_caches_out(module: Any) -> None:
    """Write-backs and invalidations of caches do nothing: the emulator has none, and takes these instructions for accesses. Nor does
    s_setprio, which it does not know.
    """
    decode = module._decode_at

    def decoded(pc: int, arch: str) -> Any:
        mask, values, words = CACHE_CONTROL[arch]
        word = ctypes.c_uint32.from_address(pc).value
        if word & mask in values:
            ctypes.memmove(pc, struct.pack("<I", S_NOP) * words, 4 * words)
        elif word & ~3 == PRIORITY[arch]:
            ctypes.memmove(pc, struct.pack("<I", S_NOP), 4)
        return decode(pc, arch)

    module._decode_at = decoded


def _let_lanes_read_before_they_write(module: Any) -> None:
    """Execute DPP instructions that write the register they read from other lanes lane by lane, each on the old values, and those of three
    operands, whose first one is taken for a scalar register.
    """
    decode = module._decode_at

    def decoded(pc: int, arch: str) -> Any:
        (program, runtime), inst = decode(pc, arch)
        three = type(inst).__name__ == "VOP3_DPP16"
        if not all(hasattr(type(inst), name) for name in ("dpp", "vdst", "vsrc0")):
            return (program, runtime), inst
        fields = (inst.vdst, inst.vsrc0)
        if fields[0].offset != fields[1].offset and not three:
            return (program, runtime), inst
        size, control = module._wave_size(arch), int(inst.dpp)
        if three and control & ~15 != ROW_XMASK:
            raise NotImplementedError(f"{inst} in the emulator")
        column, source = (slice((f.offset & 255) * size, (f.offset & 255) * size + size) for f in fields)
        scalars, vectors = (program.arg.globals.index(number) for number in (0, 1))
        kept = [module.PC_LO_IDX, module.PC_HI_IDX, module.EXEC_LO.offset, module.EXEC_LO.offset + 1]

        def run(*buffers: Any) -> None:
            sgpr = np.ctypeslib.as_array((ctypes.c_uint32 * module.SGPR_COUNT).from_address(buffers[scalars].value))
            vgpr = np.ctypeslib.as_array((ctypes.c_uint32 * (256 * size)).from_address(buffers[vectors].value))
            before, state, read = vgpr[column].copy(), sgpr[kept].copy(), vgpr[source].copy()
            after, enabled = before.copy(), int(state[2]) | int(state[3]) << 32
            for lane in range(size):
                if enabled >> lane & 1:
                    vgpr[column], sgpr[kept] = before, [*state[:2], 1 << lane & 0xFFFFFFFF, 1 << lane >> 32 if size > 32 else state[3]]
                    if three:
                        sgpr[DPP_OPERAND] = read[lane ^ (control & 15)]
                    runtime.fxn(*buffers)
                    after[lane] = vgpr[column][lane]
            vgpr[column], sgpr[kept[2:]] = after, state[2:]

        return (program, types.SimpleNamespace(fxn=run)), inst

    module._decode_at = decoded


def _read_literals_of_lane_moves(context: Any) -> None:
    """Hand the literal of v_permlanex16 and its like to the readers of its operands."""
    compile_lanes, read = context.compile_lane_pcode, context.rsrc_dyn

    def compiled(self: Any, op: Any, inst: Any) -> Any:
        literal = self.optional_field(inst, "literal")

        def reading(me: Any, offset: Any, lane: Any) -> Any:
            return read(me, offset, lane, 32, literal)

        context.rsrc_dyn = reading
        try:
            return compile_lanes(self, op, inst)
        finally:
            context.rsrc_dyn = read

    context.compile_lane_pcode = compiled


def _read_nothing_out_of_bounds(module: Any) -> None:
    """Loads by descriptor that write shared memory: what is out of bounds is no address."""
    unguarded = "mem.index(word_addr.cast(dtypes.int64)).load()"
    _rewrite(module, "_compile_mubuf", (unguarded, "mem.index(word_addr.cast(dtypes.int64).valid(in_bounds)).load()"))


_NARROW_LOADS = {
    **dict.fromkeys(("BUFFER_LOAD_UBYTE", "BUFFER_LOAD_U8"), (1, "")),
    **dict.fromkeys(("BUFFER_LOAD_USHORT", "BUFFER_LOAD_U16"), (2, "")),
    **dict.fromkeys(("BUFFER_LOAD_UBYTE_D16", "BUFFER_LOAD_D16_U8"), (1, "low")),
    **dict.fromkeys(("BUFFER_LOAD_UBYTE_D16_HI", "BUFFER_LOAD_D16_HI_U8"), (1, "high")),
    **dict.fromkeys(("BUFFER_LOAD_SHORT_D16", "BUFFER_LOAD_D16_B16"), (2, "low")),
    **dict.fromkeys(("BUFFER_LOAD_SHORT_D16_HI", "BUFFER_LOAD_D16_HI_B16"), (2, "high")),
}
"""Of CDNA and RDNA: the bytes that a lane loads, and the half of the register that they go to, the other one staying ("": all of it)."""


def _load_by_descriptors(module: Any) -> None:
    """Loads by descriptors of raw buffers, of words on RDNA and of parts of words on all: zero where an offset lies beyond the
    descriptor's size.
    """
    number, types, wide = module._c, module.dtypes, module._u64
    usual = module._INST_HANDLERS[module.irc.MUBUF]

    def placed(word: Any, place: Any, size: int, half: str, before: Any) -> Any:
        """What a register holds behind a load of `size` bytes of a word, or of the word."""
        if size == 4:
            return word
        shift = (place & module.UOp.const(3, types.uint64)).cast(types.uint32) * number(8)
        value = (word >> shift) & number((1 << 8 * size) - 1)
        if not half:
            return value
        low = half == "low"
        return (before & number(0xFFFF0000 if low else 0xFFFF)) | (value if low else value * number(1 << 16))

    def compiled(inst: Any, ctx: Any) -> Any:
        name, kind, mask = module._op_name(inst), type(inst), ctx.rexec()
        words = {"BUFFER_LOAD_B32": 1, "BUFFER_LOAD_B64": 2, "BUFFER_LOAD_B96": 3, "BUFFER_LOAD_B128": 4}.get(name, 0)
        size, half = (4, "") if words else _NARROW_LOADS.get(name, (0, ""))
        words = words or 1
        if kind is module.irc.MUBUF and size in (0, 4):
            return usual(inst, ctx)
        if not size or inst.idxen or getattr(inst, "tfe", 0) or getattr(inst, "lds", 0):
            raise NotImplementedError(f"{inst} in the emulator")
        first = ctx.inst_field(kind.srsrc) * number(4) if hasattr(kind, "srsrc") else ctx.inst_field(kind.rsrc)
        base = wide(ctx.rsgpr_dyn(first), ctx.rsgpr_dyn(first + number(1))) & module.UOp.const(0xFFFFFFFFFFFF, types.uint64)
        extent, common = ctx.rsgpr_dyn(first + number(2)), ctx.inst_field(kind.soffset)
        constant = common >= number(SCALAR_REGISTERS)  # the register that is always 0 (124), and on RDNA3 numbers (128 and on)
        shared = constant.where((common > number(128)).where(common - number(128), number(0)), ctx.rsgpr_dyn(common))
        lane = ctx.range()
        inside = ctx.inst_field(kind.offset if hasattr(kind, "offset") else kind.ioffset)
        offset = ctx.rvgpr_dyn(ctx.inst_field(kind.vaddr), lane) if inst.offen else number(0)
        own = offset.cast(types.uint64) + inside.cast(types.uint64)
        into, found = ctx.inst_field(kind.vdata), []
        for word in range(words):
            place = own + module.UOp.const(4 * word, types.uint64) + shared.cast(types.uint64)
            reads = module._lane_active(mask, lane) & (place + module.UOp.const(size - 1, types.uint64) < extent.cast(types.uint64))
            at = (reads.where(base + place, module.UOp.const(0, types.uint64)) >> module.UOp.const(2, types.uint64)).cast(types.int64)
            loaded, register = reads.where(ctx.vmem.index(at.valid(reads)).load(), number(0)), into + number(word)
            read, write = (ctx.raccvgpr_dyn, ctx.waccvgpr_dyn) if getattr(inst, "acc", 0) else (ctx.rvgpr_dyn, ctx.wvgpr_dyn)
            before = read(register, lane) if half else number(0)
            found.append(write(register, lane, placed(loaded, base + place, size, half, before), mask))
        return module.UOp.sink(module.UOp.group(*found).end(lane), *ctx.inc_pc())

    formats = importlib.import_module("tinygrad.renderer.amd")._load_formats()
    for name, kind in (("rdna3", module.ir3.MUBUF), ("rdna4", module.ir4.VBUFFER)):
        formats[name].append(kind)
        module._INST_HANDLERS[kind] = compiled
    module._INST_HANDLERS[module.irc.MUBUF] = compiled


def _load_halves_at_odd_addresses(module: Any) -> None:
    """Two bytes at an odd address are part of four bytes there."""
    original, types, number = module.Parser._handle_mem_load, module.dtypes, module._const

    def loaded(self: Any, address: Any, kind: Any) -> Any:
        memory = self.vars.get("_vmem") if "_vmem" in self.vars else self.vars.get("_lds")
        if kind not in (types.uint16, types.int16) or memory is None or memory.dtype == types.uint8:
            return original(self, address, kind)
        low = (address & number(address.dtype, 3)).cast(types.uint32)
        odd = (low & number(types.uint32, 1)).ne(number(types.uint32, 0))
        word = original(self, odd.where(address, address - low.cast(address.dtype)), types.uint32)
        shift = odd.where(number(types.uint32, 0), low * number(types.uint32, 8))
        return module._cast_to((word >> shift) & number(types.uint32, 0xFFFF), kind)

    module.Parser._handle_mem_load = loaded


def _keep_inactive_lanes_in_shared_memory(module: Any) -> None:
    """Let registers of inactive lanes count as 0 in instructions on shared memory."""
    read = module._Ctx.rvgpr_dyn

    def compiled(inst: Any, ctx: Any) -> Any:
        mask = ctx.rexec()

        def reading(me: Any, register: Any, lane: Any, *rest: Any) -> Any:
            return module._lane_active(mask, lane).where(read(me, register, lane, *rest), module._c(0))

        module._Ctx.rvgpr_dyn = reading
        try:
            return module._compile_mem_op(inst, ctx)
        finally:
            module._Ctx.rvgpr_dyn = read

    for kind in module._inst_kinds("DS"):
        module._INST_HANDLERS[kind] = compiled


def refusal(kernel: CompiledKernel) -> str:
    """Why the emulator's answer about a kernel would not count; empty text if it does."""
    text = kernel.assembly
    if kernel.facts.stack_bytes or "scratch_" in re.sub(r"^\s*[.;].*$", "", text, flags=re.MULTILINE):
        return "scratch"
    if re.search(r"v_s?mfma\w+ \S+, (?:v\S+, a|a)\[?\d", text) or re.search(r"ds_write\w* v\d+, (?:.*, )?a\[?\d", text):
        return "operands in accumulation registers"
    if kernel.emitted.cpu == "gfx1100" and "_e64_dpp" in text:
        return VOP3_DPP
    if ARCHITECTURES[kernel.emitted.cpu] != "cdna" and re.search(r"ds_load_\w*d16_hi", text):
        return "loads from shared memory into upper halves"
    return "WMMA on 8-bit floats" if re.search(r"v_wmma\w+_(fp8|bf8)_", text) else ""


@dataclass(frozen=True)
class CodeObject:
    """A loaded code object: its memory (kept alive) and the addresses of its symbols."""

    memory: "ctypes.Array[ctypes.c_char]"
    base: int
    symbols: dict[str, int]

    @staticmethod
    def load(binary: bytes) -> "CodeObject":
        """Place the segments of an ELF file and read its dynamic symbols."""
        phoff, shoff = struct.unpack_from("<QQ", binary, 32)
        phentsize, phnum, shentsize, shnum = struct.unpack_from("<HHHH", binary, 54)
        loads = []
        for i in range(phnum):
            kind, _, offset, vaddr, _, filesz, memsz = struct.unpack_from("<IIQQQQQ", binary, phoff + i * phentsize)
            if kind == 1:
                loads.append((offset, vaddr, filesz, memsz))
        size = max(vaddr + memsz for _, vaddr, _, memsz in loads)
        memory = ctypes.create_string_buffer(size + 8192)
        base = -(-ctypes.addressof(memory) // 4096) * 4096
        for offset, vaddr, filesz, _ in loads:
            ctypes.memmove(base + vaddr, binary[offset : offset + filesz], filesz)
        sections = [struct.unpack_from("<IIQQQQIIQQ", binary, shoff + i * shentsize) for i in range(shnum)]
        symbols: dict[str, int] = {}
        for section in sections:
            if section[1] != 11:  # dynamic symbols
                continue
            strings = sections[section[6]][4]
            for at in range(section[4], section[4] + section[5], 24):
                name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", binary, at)
                end = binary.index(b"\0", strings + name)
                symbols[binary[strings + name : end].decode()] = base + value
        return CodeObject(memory, base, symbols)


@contextlib.contextmanager
def wave_order(emulator: Any, order: str) -> Generator[None]:
    """Let the waves of every workgroup run in an order."""
    original = emulator._init_wave

    def permuted(lib: int, wave_start: int, total_threads: int, *rest: Any) -> Any:
        size = rest[-1]
        waves = ORDERS[order](list(range(-(-total_threads // size))))
        return original(lib, waves[wave_start // size] * size, total_threads, *rest)

    emulator._init_wave = permuted
    try:
        yield
    finally:
        emulator._init_wave = original


@contextlib.contextmanager
def scalar_stores(wanted: bool) -> Generator[None]:
    """Let the translation to C store element by element."""
    renderer = importlib.import_module("tinygrad.renderer.cstyle").ClangRenderer
    original = renderer.supports_float4
    renderer.supports_float4 = original and not wanted
    try:
        yield
    finally:
        renderer.supports_float4 = original


def _guarded(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A copy of an array at an aligned address with guard bytes on both sides: (the copy, all bytes)."""
    store = np.full(array.nbytes + 2 * GUARD_BYTES + 256, GUARD, np.uint8)
    start = GUARD_BYTES + -(store.ctypes.data + GUARD_BYTES) % 256
    inner = store[start : start + array.nbytes]
    inner[:] = np.frombuffer(array.tobytes(), np.uint8)
    return inner, store


class EmulatedKernel:
    """A compiled kernel in the place of the simulator's: the same `symbols`, `grid` and `launch`. `order` names one of `ORDERS`."""

    def __init__(self, kernel: CompiledKernel, symbols: Sequence[str], order: str) -> None:
        self.kernel = kernel
        self.symbols = list(symbols)
        self.order = order

    def grid(self, values: Sequence[int]) -> tuple[int, ...]:
        """Workgroups along each axis."""
        environment = dict(zip(self.symbols, values, strict=True))
        return tuple(expr.parse(text).evaluate(environment) for text in self.kernel.emitted.grid)

    def launch(self, pointers: Sequence[Pointer], values: Sequence[int]) -> None:
        """Run on the pointers' memory. Raises AssertionError where the kernel writes outside an allocation."""
        kernel = self.kernel
        guarded = {id(pointer.data): _guarded(pointer.data) for pointer in pointers}
        addresses = [guarded[id(p.data)][0].ctypes.data + p.offset * p.data.itemsize for p in pointers]
        x, y, z = self.grid(values)
        self.run(addresses, values, [(i, j, k) for k in range(z) for j in range(y) for i in range(x)])
        for pointer in pointers:
            inner, store = guarded[id(pointer.data)]
            start = inner.ctypes.data - store.ctypes.data
            outside = np.concatenate([store[:start], store[start + inner.size :]])
            assert (outside == GUARD).all(), f"{kernel.symbol} writes outside an array"
            pointer.data[...] = np.frombuffer(inner.tobytes(), pointer.data.dtype)

    def run(self, addresses: Sequence[int], values: Sequence[int], places: Sequence[tuple[int, int, int]]) -> None:
        """Run the workgroups with these ids (x, y, z) on memory at these addresses, which nothing guards."""
        emulator = load()
        kernel = self.kernel
        if why := refusal(kernel):
            raise NotImplementedError(f"the emulator cannot judge {kernel.symbol}: {why}")
        code = CodeObject.load(kernel.binary)
        descriptor = code.symbols[f"{kernel.symbol}.kd"]
        record = ctypes.string_at(descriptor, 64)
        (shared,) = struct.unpack_from("<I", record, 0)
        (entry,) = struct.unpack_from("<q", record, 16)
        (rsrc2,) = struct.unpack_from("<I", record, 52)
        rsrc2 |= -(-shared // SHARED_GRANULE) << 15  # the launcher's part of the descriptor
        block = np.zeros(kernel.facts.param_bytes + 8, np.uint8)
        for param, offset in zip(kernel.emitted.params, kernel.facts.param_offsets, strict=True):
            if isinstance(param, PointerParam):
                packed = struct.pack("<Q", addresses[param.arg])
            elif isinstance(param, IndexParam):
                packed = struct.pack("<i" if param.bits == 32 else "<q", values[param.arg - len(addresses)])
            else:
                raise TypeError(f"parameter {param}")
            block[offset : offset + len(packed)] = np.frombuffer(packed, np.uint8)

        # The emulator walks a whole grid: it gets the ids of the workgroups in place of the grid's.
        def product(*_: object) -> list[tuple[int, ...]]:
            return [place[::-1] for place in places]

        chosen = types.SimpleNamespace(product=product)
        with wave_order(emulator, self.order), scalar_stores("v_mfma_i32" in kernel.assembly), patch.object(emulator, "itertools", chosen):
            architecture = ARCHITECTURES[kernel.emitted.cpu]
            emulator.run_asm(descriptor + entry, 0, 1, 1, 1, *kernel.emitted.block, block.ctypes.data, rsrc2, 0, architecture)


class EmulatedProgram(SimProgram):
    """A lowered module whose host program the simulator runs, with machine code for its kernels."""

    def __init__(self, module: builtin.ModuleOp, target: str, order: str = "forward", compiled: dict[str, CompiledKernel] | None = None):
        super().__init__(module)
        chosen = compile_kernels(module, target) if compiled is None else compiled
        self._emulated = {name: EmulatedKernel(chosen[name], kernel.symbols, order) for name, kernel in self._kernels.items()}
        self._kernels: Any = self._emulated


def compile_kernels(module: builtin.ModuleOp, target: str) -> dict[str, CompiledKernel]:
    """Code objects of all kernels of a module, by name."""
    chosen = backend(target)
    kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
    return {one.symbol: one for one in [chosen.assemble(chosen.emit(op)) for op in kernels]}
