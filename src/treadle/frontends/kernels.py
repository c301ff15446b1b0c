"""Modules of kernels, at dispatch, tile or schedule level, as programs: one host program, and the kernels that it launches."""

from collections.abc import Sequence

from treadle.dialects import dispatch, tile
from treadle.dialects.tile_attributes import PointerType
from treadle.errors import HOST_PROGRAM, UNSUPPORTED, WHICH_FUNCTION, SourceLocation, TreadleError
from treadle.frontends.host_programs import derived_program
from treadle.ir.builtin import element_of, is_tensor
from treadle.ir.core import Attribute, Operation, OpResult, SSAValue
from treadle.ir.dialects import builtin
from treadle.ir.locations import location_of
from treadle.plan.expr import as_expr

Kernel = tile.KernelOp | dispatch.KernelOp


def complete(module: builtin.ModuleOp, function: str | None, file: str) -> None:
    """Leave one `dispatch.program` in a module and the kernels that it launches: the one named `function`, or the only one.

    A tile kernel with a signature, that no program launches, stands for the program of its one launch. Raises TR104 for the choice, TR103
    and TR107 for a signature, TR108 for a program that does not fit its kernels, TR301 for other operations.
    """
    kernels: dict[str, Kernel] = {}
    programs: list[dispatch.ProgramOp] = []
    for op in module.body.block.ops:
        if isinstance(op, dispatch.ProgramOp):
            programs.append(op)
        elif isinstance(op, Kernel):
            if op.sym_name.data in kernels:
                raise TreadleError(HOST_PROGRAM, location_of(op), place=f"kernel '{op.sym_name.data}'", problem="another has the same name")
            kernels[op.sym_name.data] = op
        else:
            hint = "write one module of functions on tensors, or one of kernels and a dispatch.program"
            raise TreadleError(UNSUPPORTED, location_of(op), what=f"operation '{op.name}' beside kernels", hint=hint)
    program = _chosen(programs, kernels, function, SourceLocation(file, 1))
    if program.parent is None:
        module.body.block.add_op(program)
        kernels = {kernel.sym_name.data: kernel for kernel in kernels.values()}
    launches = _check(program, kernels)
    used = {launch.kernel.string_value() for launch in launches}
    for op in list(module.body.block.ops):
        unused = op is not program and not (isinstance(op, Kernel) and op.sym_name.data in used)
        if unused:
            op.detach()
            op.erase(safe_erase=False)


def _chosen(
    programs: Sequence[dispatch.ProgramOp], kernels: dict[str, Kernel], wanted: str | None, top: SourceLocation
) -> dispatch.ProgramOp:
    launched = {op.kernel.string_value() for p in programs for op in p.body.block.ops if isinstance(op, dispatch.LaunchOp)}
    alone = [k for k in kernels.values() if isinstance(k, tile.KernelOp) and k.sym_name.data not in launched]
    names = [p.sym_name.data for p in programs] + [k.sym_name.data for k in alone]
    for found in (p for p in programs if p.sym_name.data == wanted):
        return found
    for kernel in (k for k in kernels.values() if isinstance(k, tile.KernelOp) and k.sym_name.data == wanted):
        return derived_program(kernel)
    if wanted is not None:
        raise TreadleError(WHICH_FUNCTION, top, problem=f"there is no program or kernel '{wanted}'", names=", ".join(names) or "none")
    if len(programs) == 1:
        return programs[0]
    if not programs and len(alone) == 1:
        return derived_program(alone[0])
    problem = f"the module has {len(programs) or len(alone)} {'programs' if programs else 'kernels and no program'}"
    raise TreadleError(WHICH_FUNCTION, top, problem=problem, names=", ".join(names) or "none")


def _check(program: dispatch.ProgramOp, kernels: dict[str, Kernel]) -> list[dispatch.LaunchOp]:
    """The launches of a program that fits its kernels. Raises TR108 at the operation that does not."""
    known = set(program.dim_sources())
    launches: list[dispatch.LaunchOp] = []
    for number, op in enumerate(op for op in program.body.block.ops if isinstance(op, dispatch.InputOp)):
        if op.index.value.data != number:
            raise _objection(op, f"input {op.index.value.data} is the one number {number}: inputs are numbered in order")
    for op in program.body.block.ops:
        for text in _sizes(op):
            if strange := sorted(set(as_expr(text).symbols()) - known):
                raise _objection(op, f"'{text}' uses {strange[0]}, which `dims` of the program does not define")
        if isinstance(op, dispatch.LaunchOp):
            _check_launch(op, kernels)
            launches.append(op)
        elif isinstance(op, dispatch.ReturnOp):
            _check_return(op)
    return launches


def _sizes(op: Operation) -> list[str]:
    match op:
        case dispatch.InputOp() | dispatch.ViewOp():
            return [*dispatch.texts(op.shape), *dispatch.texts(op.strides), *([op.offset.data] if isinstance(op, dispatch.ViewOp) else [])]
        case dispatch.AllocOp():
            return list(dispatch.texts(op.shape))
        case dispatch.CheckOp():
            return [op.left.data, op.right.data]
        case dispatch.LaunchOp():
            return list(op.symbol_values().values())
        case _:
            return []


def _check_launch(op: dispatch.LaunchOp, kernels: dict[str, Kernel]) -> None:
    name = op.kernel.string_value()
    kernel = kernels.get(name)
    if kernel is None:
        raise _objection(op, f"there is no kernel '{name}' (kernels: {', '.join(kernels) or 'none'})")
    inputs, outputs = _pointer_types(kernel)
    for what, values, wanted in (("arrays", op.inputs, inputs), ("results", op.outputs, outputs)):
        given = [value.type.element_type for value in values if isinstance(value.type, dispatch.BufferType)]
        if given != wanted:
            listed, expected = (", ".join(map(str, kinds)) or "nothing" for kinds in (given, wanted))
            raise _objection(op, f"kernel '{name}' takes {what} of {expected}, the launch gives {listed}")
    missing = set(_symbols(kernel)) ^ set(op.symbol_values())
    if missing:
        raise _objection(op, f"kernel '{name}' has the symbols {', '.join(_symbols(kernel)) or 'none'}; {min(missing)} is not in both")
    if isinstance(kernel, tile.KernelOp):
        for text in kernel.grid_text():
            if strange := sorted(set(as_expr(text).symbols()) - set(kernel.symbol_names())):
                raise _objection(op, f"the grid of '{name}' uses {strange[0]}, which is no symbol of it")


def _symbols(kernel: Kernel) -> tuple[str, ...]:
    return kernel.symbol_names() if isinstance(kernel, tile.KernelOp) else dispatch.texts(kernel.symbols)


def _pointer_types(kernel: Kernel) -> tuple[list[Attribute], list[Attribute]]:
    """Element types of what a launch reads and of what it writes."""
    if isinstance(kernel, tile.KernelOp):
        kinds = [p.type.element_type for p in kernel.pointers() if isinstance(p.type, PointerType)]
        first = len(kinds) - kernel.output_count.value.data
        return kinds[:first], kinds[first:]
    tensors = [a.type for a in kernel.body.block.args[: kernel.tensor_count]]
    return [_element(kind) for kind in tensors], [_element(kind) for kind in kernel.function_type.outputs]


def _element(kind: Attribute) -> Attribute:
    return element_of(kind) if is_tensor(kind) else kind


def _check_return(op: dispatch.ReturnOp) -> None:
    """Each result is the whole of fresh memory, and no memory is returned twice."""
    allocs: set[SSAValue] = set()
    for value in op.values:
        owner = value.op if isinstance(value, OpResult) else None
        if isinstance(owner, dispatch.ViewOp) and owner.offset.data == "0" and isinstance(owner.source, OpResult):
            owner = owner.source.op
        if not isinstance(owner, dispatch.AllocOp):
            raise _objection(op, "a result is neither memory of dispatch.alloc nor a dense view of all of it")
        if owner.counters is not None:
            raise _objection(op, "a result is memory of counters, which is kept for other calls")
        if owner.result in allocs:
            raise _objection(op, "two results are the same memory")
        allocs.add(owner.result)


def _objection(op: Operation, problem: str) -> TreadleError:
    return TreadleError(HOST_PROGRAM, location_of(op), place=f"'{op.name}'", problem=problem)
