"""One compilation from text to kernels: every stage's text, the remarks, and the files of the artifact.

This module loads the IR framework and the passes; a start from the cache never imports it.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal, cast, get_args

from treadle import pipelines
from treadle.artifact import MANIFEST_FILE, ArgKind, Kernel, KernelArg
from treadle.dialects import dispatch, tile
from treadle.driver.candidates import Candidates, RememberedCode
from treadle.driver.generation import compile_proven, emit_proven
from treadle.driver.host_program import HostProgram, LaunchedKernel
from treadle.driver.layouts import declare_layouts, fixed_layout
from treadle.driver.program import REMARKS_FILE
from treadle.driver.sources import Source
from treadle.errors import (
    KERNEL_NOT_TAKEN,
    SOURCE_HAS_NO_STAGE,
    TARGET_HAS_NO_STAGE,
    InternalError,
    KernelRejected,
    SourceLocation,
    TreadleError,
)
from treadle.frontends import mlir
from treadle.frontends.levels import LEVELS, Level
from treadle.frontends.loading import Loaded
from treadle.ir.core import Operation
from treadle.ir.dialects import builtin
from treadle.ir.locations import location_of
from treadle.ir.text import print_module
from treadle.machine import TargetSpec, target_spec
from treadle.options import CompileOptions
from treadle.plan.argument_layout import Layouts
from treadle.records import dataclass
from treadle.remarks import Remark, collect_remarks, emit
from treadle.targets import registry
from treadle.targets.interface import CompiledKernel, EmittedKernel, IndexParam, Param, PointerParam, TensorMapParam

Stage = Literal["tensor", "dispatch", "tile", "schedule", "llvm", "asm"]
STAGES: tuple[Stage, ...] = get_args(Stage)
SIMULATOR_STAGES: tuple[Stage, ...] = ("tensor", "dispatch", "tile")
CHOOSING_LEVELS: tuple[Level, ...] = ("tensor", "dispatch")
"""Where the compiler still chooses the form of kernels, so that a rejected one has another candidate."""
_LATE = (
    "treadle.garbage",
    "treadle.strategies.split_sizes",
    "xdsl.irdl.declarative_assembly_format_parser",
)
"""What compilations import where they use it, beside the modules of the proof."""
SIMULATED_MACHINE = "sm_90a"  # the simulator runs tile programs as this machine would be given them


@dataclass(slots=True)
class Lowered:
    """What a compilation leaves: `stages` (texts asked for), `remarks`, and, where it went to the end, `files` of the artifact."""

    stages: dict[str, str] = field(default_factory=dict[str, str])
    remarks: tuple[Remark, ...] = ()
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])


@dataclass(slots=True)
class _Kernel:
    launched: LaunchedKernel
    binary: bytes


def lower(
    source: Source,
    target: str,
    options: CompileOptions,
    function: str | None,
    *,
    layouts: Layouts | None = None,
    texts: bool = False,
    until: Stage | None = None,
    instrument: Callable[[builtin.ModuleOp], None] | None = None,
    told: str = "",
) -> Lowered:
    """Compile `source` for `target` ("sim" or an architecture) up to the stage `until`, or to the artifact's files where it is None.

    `layouts`: classes of the arguments' layouts that replace the declared ones. `texts`: keep the text of every stage that is passed.
    `instrument`: changes the module at schedule level, before it is proven and code is made of it. `told`: where `options` are from, for
    the remarks.
    Raises `TreadleError` with the user's line.
    """
    simulated = target == "sim"
    spec = target_spec(SIMULATED_MACHINE if simulated else target)
    stages = SIMULATOR_STAGES if simulated else STAGES
    if until is not None and until not in stages:
        raise TreadleError(TARGET_HAS_NO_STAGE, target=target, stage=until, stages=", ".join(stages))
    run = _Run(target, spec, options, texts, until, instrument, Candidates(options))
    with collect_remarks() as log:
        if told:
            emit("decision", "tune", "program", told)
        if ":" in target:
            emit("decision", "machine", "program", _product_text(spec))
        start = len(log.remarks)
        while True:
            loaded = _load(source, function, layouts)
            module = loaded.module
            kernels, rejected = run.attempt(loaded)
            if not rejected:
                break
            if loaded.level in CHOOSING_LEVELS:
                run.candidates.reject(rejected, _configs(module), log.remarks[start:], partial(_place_of, module))
            elif loaded.level != "tile" or not run.candidates.gives_up_pipelines(rejected[0]):
                raise rejected[0]
            log.remarks[start:], run.options = run.candidates.refusals, run.candidates.options
        run.lowered.remarks = tuple(log.remarks)
    if until is None:
        _add_files(run.lowered, module, kernels, target if simulated else spec.name)
    return run.lowered


def get_ready(target: str) -> None:
    """Import what the first compilation for an architecture would, and start its tools: for a process that will be asked to compile."""
    registry.start_tools(target)
    registry.backend(target)
    pipelines.proof_passes()
    proof = (f"treadle.verify.{module.name}" for module in iter_modules(import_module("treadle.verify").__path__))
    for name in (*_LATE, *proof):
        import_module(name)


def _load(source: Source, function: str | None, layouts: Layouts | None) -> Loaded:
    loaded = source.load(function)
    if layouts is not None:
        if loaded.level != "tensor":
            raise fixed_layout(layouts)
        declare_layouts(mlir.entry(loaded.module, function), layouts)
    return loaded


def not_taken(loaded: Loaded, error: InternalError) -> TreadleError:
    """TR310: what the passes rely on of the kernels that the compiler makes is the user's to keep in those that a user writes."""
    kernels = tile_kernels(loaded.module)
    names = "', '".join(kernel.sym_name.data for kernel in kernels)
    return TreadleError(KERNEL_NOT_TAKEN, location_of(kernels[0]) if kernels else None, kernel=names, reason=error)


def _product_text(spec: TargetSpec) -> str:
    product = spec.product
    facts = f"{product.compute_units} compute units, {product.clock_mhz} MHz, {product.memory_gbps} GB/s"
    rates = "fitted to measured times" if product.is_measured else "derived from its data sheet, not measured"
    return f"compiled for {product.description} ({facts}); the constants of the models are {rates}"


@dataclass(slots=True)
class _Run:
    """One compilation: what is asked for, and which candidate each kernel has come to."""

    target: str
    spec: TargetSpec
    options: CompileOptions
    texts: bool
    until: Stage | None
    instrument: Callable[[builtin.ModuleOp], None] | None
    candidates: Candidates
    lowered: Lowered = field(default_factory=Lowered)
    backend: RememberedCode | None = None

    def attempt(self, loaded: Loaded) -> tuple[list[_Kernel], list[KernelRejected]]:
        """Take a module as far as it goes with the candidates as they are: its kernels where code was asked for, and the rejected ones."""
        try:
            return self._attempt(loaded)
        except InternalError as error:
            if loaded.level in CHOOSING_LEVELS:
                raise
            raise not_taken(loaded, error) from error

    def _attempt(self, loaded: Loaded) -> tuple[list[_Kernel], list[KernelRejected]]:
        module, until, simulated = loaded.module, self.until, self.target == "sim"
        stop = until if until in LEVELS else "tile" if simulated else "schedule"
        if LEVELS.index(stop) < LEVELS.index(loaded.level):
            if until is not None:
                raise TreadleError(SOURCE_HAS_NO_STAGE, level=loaded.level, stage=until)
            stop = loaded.level
        door = pipelines.Door(loaded.level, retarget=not simulated)
        proven, candidates = until in LEVELS or (simulated and stop == "schedule"), self.candidates.numbers
        try:
            pipelines.lower(module, self.spec, self.options, self._observe, until=stop, proven=proven, candidates=candidates, door=door)
        except KernelRejected as rejected:
            return [], [rejected]
        if until in LEVELS:
            return [], []
        if self.instrument is not None:
            self.instrument(module)
        return (_simulated(module, self.spec, loaded.level), []) if simulated else self._generate(module, door)

    def _observe(self, level: str, module: Operation) -> None:
        if self.texts:
            self.lowered.stages[level] = print_module(module)

    def _generate(self, module: builtin.ModuleOp, door: pipelines.Door) -> tuple[list[_Kernel], list[KernelRejected]]:
        def prove() -> None:
            pipelines.prove(module, self.options, door)

        if self.backend is None:
            self.backend = RememberedCode(registry.backend(self.target))
        ops, stages = tile_kernels(module), self.lowered.stages
        if self.until == "llvm":
            emitted = emit_proven(ops, self.backend, prove)
            if self.texts:
                stages["llvm"] = _join(emitted, lambda kernel: kernel.llvm_text, ";")
            return [], []
        outcomes = compile_proven(ops, self.backend, prove)
        if rejected := [outcome for outcome in outcomes if isinstance(outcome, KernelRejected)]:
            return [], rejected
        compiled = [outcome for outcome in outcomes if isinstance(outcome, CompiledKernel)]
        if self.texts:
            stages["llvm"] = _join([kernel.emitted for kernel in compiled], lambda kernel: kernel.llvm_text, ";")
            stages["asm"] = _join([kernel.emitted for kernel in compiled], _assembly_of(compiled), "//")
        return [_Kernel(launched(op, kernel, door.level), kernel.binary) for op, kernel in zip(ops, compiled, strict=True)], []


def scheduled(source: Source, target: str, options: CompileOptions, function: str | None) -> builtin.ModuleOp:
    """A program at schedule level for an architecture, proven as `options` ask for. Raises what compiling raises without tools."""
    loaded = source.load(function)
    pipelines.lower(loaded.module, target_spec(target), options, door=pipelines.Door(loaded.level))
    return loaded.module


def _configs(module: builtin.ModuleOp) -> dict[str, str]:
    """What has been decided about each kernel, as text."""
    return {op.sym_name.data: str(op.config) for op in tile_kernels(module)}


def _place_of(module: builtin.ModuleOp, kernel: str) -> SourceLocation | None:
    return next((location_of(op) for op in tile_kernels(module) if op.sym_name.data == kernel), None)


def tile_kernels(module: builtin.ModuleOp) -> list[tile.KernelOp]:
    """The kernels of a lowered module, in order."""
    return [op for op in module.body.block.ops if isinstance(op, tile.KernelOp)]


def _assembly_of(compiled: Sequence[CompiledKernel]) -> Callable[[EmittedKernel], str]:
    texts = {kernel.symbol: kernel.assembly for kernel in compiled}
    return lambda kernel: texts[kernel.symbol]


def _join(kernels: Sequence[EmittedKernel], text: Callable[[EmittedKernel], str], comment: str) -> str:
    return "\n".join(f"{comment} kernel {kernel.symbol}\n{text(kernel).rstrip()}\n" for kernel in kernels)


def launched(op: tile.KernelOp, compiled: CompiledKernel, level: Level) -> LaunchedKernel:
    """A kernel with a binary, as the host program launches it."""
    emitted, facts = compiled.emitted, compiled.facts
    name = op.sym_name.data
    record = Kernel(
        name=name,
        symbol=emitted.symbol,
        binary=f"{name}.{compiled.suffix}",
        block=emitted.block,
        cluster=emitted.cluster,
        shared_bytes=emitted.shared_bytes,
        kernarg_bytes=facts.param_bytes,
        args=tuple(KernelArg(_kind(param), offset) for param, offset in zip(emitted.params, facts.param_offsets, strict=True)),
        facts={"registers": facts.registers, "spill_bytes": facts.spill_bytes, "instructions": facts.instructions} | _origin(level),
        overlaps=emitted.overlaps,
    )
    return LaunchedKernel(record, emitted.params, emitted.grid, op.symbol_names(), len(op.pointers()))


def _origin(level: Level) -> dict[str, Any]:
    return {} if level == "tensor" else {"written_at": level}


def _kind(param: Param) -> ArgKind:
    match param:
        case PointerParam():
            return "pointer"
        case IndexParam(bits=bits):
            return "i64" if bits == 64 else "i32"
        case TensorMapParam():
            return "tensor_map"


def _simulated(module: builtin.ModuleOp, spec: TargetSpec, level: Level) -> list[_Kernel]:
    """Kernels whose binary is their text, locations included; pointers and sizes are passed as on a GPU, eight bytes each."""
    kernels: list[_Kernel] = []
    for op in tile_kernels(module):
        name, pointers, bits = op.sym_name.data, len(op.pointers()), op.index_width()
        count = len(op.body.block.args)
        params = tuple(PointerParam(i) if i < pointers else IndexParam(i, bits) for i in range(count))
        record = Kernel(
            name=name,
            symbol=name,
            binary=f"{name}.mlir",
            block=(int(op.num_warps.value.data) * spec.subgroup_size, 1, 1),
            cluster=(1, 1, 1),
            shared_bytes=0,
            kernarg_bytes=8 * count,
            args=tuple(KernelArg(_kind(param), 8 * index) for index, param in enumerate(params)),
            facts=_origin(level),
        )
        launched = LaunchedKernel(record, params, op.grid_text(), op.symbol_names(), pointers)
        kernels.append(_Kernel(launched, print_module(op, locations=True).encode()))
    return kernels


def _add_files(lowered: Lowered, module: builtin.ModuleOp, kernels: Sequence[_Kernel], target: str) -> None:
    programs = [op for op in module.body.block.ops if isinstance(op, dispatch.ProgramOp)]
    if len(programs) != 1:
        raise InternalError(f"a compiled module has one host program, this one has {len(programs)}")
    host = HostProgram(programs[0], [kernel.launched for kernel in kernels], target)
    lowered.files = {kernel.launched.record.binary: kernel.binary for kernel in kernels}
    lowered.files |= host.files
    lowered.files[MANIFEST_FILE] = host.manifest.to_json().encode()
    lowered.files[REMARKS_FILE] = remarks_to_json(lowered.remarks).encode()


def remarks_to_json(remarks: Sequence[Remark]) -> str:
    """Remarks as the artifact keeps them."""
    rows: list[Any] = []
    for remark in remarks:
        place = remark.location
        rows.append(
            {
                "kind": remark.kind,
                "pass": remark.pass_name,
                "subject": remark.subject,
                "text": remark.text,
                "location": [place.file, place.line, place.column] if place else None,
                "seconds": remark.seconds,
            }
        )
    return json.dumps(cast("Any", rows), indent=1)
