"""A module as a program at tensor level: one function on tensors, every operation of a dialect that the compiler knows."""

from math import prod

import treadle.dialects  # noqa: F401 # pyright: ignore[reportUnusedImport] - makes our dialects known to the parser
from treadle.analysis.element_bytes import element_bytes
from treadle.errors import ELEMENT_TYPE, TYPE_TOO_LARGE, UNSUPPORTED, WHICH_FUNCTION, SourceLocation, TreadleError
from treadle.ir.builtin import (
    AnyFloat,
    IndexType,
    IntegerType,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    element_of,
    integer_width,
    is_tensor,
)
from treadle.ir.core import DYNAMIC_INDEX, Attribute
from treadle.ir.dialects import builtin, func
from treadle.ir.text import location_of, parse_module
from treadle.plan.index_range import WIDE_LIMIT

TENSOR_LEVEL = ("func", "linalg", "tensor", "arith", "math", "scf", "affine")
DEFAULT_FILE = "<text>"


def load(text: str, file: str = DEFAULT_FILE, function: str | None = None) -> ModuleOp:
    """Read a program at tensor level: `parse_module`, then `check`."""
    module = parse_module(text, file)
    check(module, function, file)
    return module


def check(module: ModuleOp, function: str | None = None, file: str = DEFAULT_FILE) -> None:
    """Check that a module is a program at tensor level, and leave the entry and what it calls in it.

    `function` picks the entry among several. It takes and returns tensors and scalars.
    `file`: for what has no line of its own.

    Raises `TreadleError`: TR104 for the choice of function, TR203 and TR204 for tensor types, TR301 for what is outside the tensor level.
    """
    entry = _choose(module, function, SourceLocation(file, 1))
    _keep(module, entry)
    for op in module.walk():
        dialect = op.name.split(".")[0]
        if dialect not in TENSOR_LEVEL and not isinstance(op, ModuleOp):
            hint = f"write it with the dialects {', '.join(TENSOR_LEVEL)}"
            raise TreadleError(UNSUPPORTED, location_of(op), what=f"operation '{op.name}'", hint=hint)
    _check_signature(entry)
    _check_element_types(module)


def entry(module: ModuleOp, function: str | None = None) -> func.FuncOp:
    """The entry function of a module that `check` accepted for the same choice."""
    return _choose(module, function, SourceLocation(DEFAULT_FILE, 1))


def _functions(module: ModuleOp) -> list[func.FuncOp]:
    return [op for op in module.body.block.ops if isinstance(op, func.FuncOp)]


def _choose(module: ModuleOp, wanted: str | None, top: SourceLocation) -> func.FuncOp:
    """The entry function: the one named, or the only one that is not private."""
    defined = [op for op in _functions(module) if not op.is_declaration]
    public = [op for op in defined if op.sym_visibility is None or op.sym_visibility.data == "public"]
    names = ", ".join(op.sym_name.data for op in public) or "none"
    if wanted is not None:
        for op in defined:
            if op.sym_name.data == wanted:
                return op
        raise TreadleError(WHICH_FUNCTION, top, problem=f"there is no function '{wanted}'", names=names)
    if len(public) != 1:
        problem = "the module has no function" if not public else f"the module has {len(public)} functions"
        raise TreadleError(WHICH_FUNCTION, top, problem=problem, names=names)
    return public[0]


def _keep(module: ModuleOp, entry: func.FuncOp) -> None:
    """Erase the functions that `entry` does not reach by calls."""
    by_name = {op.sym_name.data: op for op in _functions(module)}
    reached: dict[str, func.FuncOp] = {}
    pending: list[func.FuncOp] = [entry]
    while pending:
        current = pending.pop()
        reached[current.sym_name.data] = current
        for op in current.walk():
            if not isinstance(op, func.CallOp):
                continue
            callee = by_name.get(_callee(op))
            if callee is None or callee.is_declaration:
                hint = "define the function in this module"
                raise TreadleError(UNSUPPORTED, location_of(op), what=f"a call of '{_callee(op)}', which has no body here,", hint=hint)
            if callee.sym_name.data not in reached:
                pending.append(callee)
    for name, op in by_name.items():
        if name not in reached:
            op.detach()
            op.erase(safe_erase=False)


def _callee(op: func.CallOp) -> str:
    reference: Attribute = op.callee
    root = reference.root_reference if isinstance(reference, SymbolRefAttr) else StringAttr("")
    return root.data


def _check_signature(entry: func.FuncOp) -> None:
    kinds = [*entry.function_type.inputs, *entry.function_type.outputs]
    for kind in kinds:
        if not isinstance(kind, TensorType | AnyFloat | IndexType | IntegerType):
            hint = "use ranked tensors and scalars"
            raise TreadleError(UNSUPPORTED, location_of(entry), what=f"an argument or result of type {kind}", hint=hint)


_FLOATS = (
    builtin.Float64Type,
    builtin.Float32Type,
    builtin.Float16Type,
    builtin.BFloat16Type,
    builtin.Float8E4M3FNType,
    builtin.Float8E5M2Type,
    builtin.Float8E4M3FNUZType,
    builtin.Float8E5M2FNUZType,
)
_WIDTHS = (1, 8, 16, 32, 64)


def _instead_of(kind: Attribute) -> str:
    """What to use for an element type that is not supported."""
    if isinstance(kind, builtin.ComplexType):
        return "keep real and imaginary parts in tensors of their own: no machine computes with pairs"
    if (integer_width(kind) or 8) < 8:
        return "use i8, whole or with several values in it that shifts take apart: memory is addressed in bytes"
    return "use f64, f32, f16, bf16, an 8-bit float, i1, i8, i16, i32, i64 or index"


def _check_element_types(module: ModuleOp) -> None:
    for op in module.walk():
        arguments = [argument for region in op.regions for block in region.blocks for argument in block.args]
        for value in (*op.results, *arguments):
            kind: Attribute = element_of(value.type) if is_tensor(value.type) else value.type
            if not isinstance(kind, (*_FLOATS, IndexType)) and integer_width(kind) not in _WIDTHS:
                raise TreadleError(ELEMENT_TYPE, location_of(op), type=f"{kind}", instead=_instead_of(kind))
            if is_tensor(value.type) and (size := _least_bytes(value.type)) > WIDE_LIMIT:
                raise TreadleError(TYPE_TOO_LARGE, location_of(op), type=f"{value.type}", bytes=size)


def _least_bytes(kind: TensorType[Attribute]) -> int:
    """Bytes of a dense array of this type; sizes that are not known count as 1."""
    extents = [extent for extent in kind.get_shape() if extent != DYNAMIC_INDEX]
    return prod(extents) * element_bytes(kind.element_type)
