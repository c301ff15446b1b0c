"""The host program of a tile kernel that is called by itself, derived from its signature.

The pointers that are no fresh outputs are the inputs, in order: inputs first, then in-place arguments. A symbol that stands alone for a
size of an input, or else for a stride of one, is read from there; the others are integers that follow the arrays as further arguments.
"""

from collections.abc import Mapping, Sequence

from treadle.dialects import dispatch, tile
from treadle.dialects.global_arrays import accessed_pointers
from treadle.dialects.tile_attributes import PointerType
from treadle.errors import KERNEL_FORM, TreadleError
from treadle.ir.core import Block, Region, SSAValue
from treadle.ir.dialects import builtin
from treadle.ir.locations import location_of, set_location
from treadle.plan.expr import Expr, as_expr, product

FRESH_ALIGN = 256
"""Bytes that the memory of fresh results is aligned to."""
_NUMBER_ALIGN = 8


def row_major(shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """Strides in elements of a dense array."""
    return tuple(product(shape[axis + 1 :]) for axis in range(len(shape)))


def objection(kernel: tile.KernelOp, problem: str, hint: str) -> TreadleError:
    """TR107, at the kernel."""
    return TreadleError(KERNEL_FORM, location_of(kernel), kernel=kernel.sym_name.data, problem=problem, hint=hint)


def expressions(kernel: tile.KernelOp, texts: Sequence[str]) -> tuple[Expr, ...]:
    """Sizes over the kernel's symbols. Raises TR103, TR107 for other names."""
    found = tuple(as_expr(text) for text in texts)
    known = set(kernel.symbol_names())
    for text, expr in zip(texts, found, strict=True):
        if strange := sorted(set(expr.symbols()) - known):
            listed = ", ".join(kernel.symbol_names()) or "none"
            raise objection(kernel, f"'{text}' uses {strange[0]}, which is no symbol of it", f"use its index arguments: {listed}")
    return found


def is_counted(pointer: SSAValue) -> bool:
    """Whether workgroups arrive at the array of a pointer."""
    views = [use.operation.result for use in pointer.uses if isinstance(use.operation, tile.ViewOp)]
    return any(isinstance(use.operation, tile.CounterOp) for view in views for use in view.uses)


class _Signature:
    """A kernel's signature as expressions. `arguments`: numbers of the pointers that a call gives arrays for; `workspace`: of those that
    are memory of the program's own.
    """

    def __init__(self, kernel: tile.KernelOp) -> None:
        if kernel.arg_shapes is None:
            hint = "give it `arg_shapes`, one list of sizes for each pointer, or write a dispatch.program that launches it"
            raise objection(kernel, "its arguments have no shapes, so it cannot be called", hint)
        self.pointers = kernel.pointers()
        self.shapes = [expressions(kernel, row) for row in dispatch.text_lists(kernel.arg_shapes)]
        given = kernel.arg_strides
        rows = [row_major(shape) for shape in self.shapes]
        self.strides = rows if given is None else [expressions(kernel, row) for row in dispatch.text_lists(given)]
        count = len(self.pointers)
        self.names = tuple(f"p{i}" for i in range(count)) if kernel.arg_names is None else dispatch.texts(kernel.arg_names)
        self.aligns = tile.ints(kernel.arg_align)
        in_place = () if kernel.in_place is None else tile.ints(kernel.in_place)
        self.workspace = () if kernel.workspace is None else tile.ints(kernel.workspace)
        first = count - kernel.output_count.value.data
        self.arguments = [i for i in range(count) if i < first or i in in_place]
        self._check(kernel, first, rows)

    def _check(self, kernel: tile.KernelOp, first: int, rows: Sequence[tuple[Expr, ...]]) -> None:
        _, written = accessed_pointers(kernel)
        for number, pointer in enumerate(self.pointers):
            name = self.names[number]
            if number < first and pointer in written:
                hint = "count it among the outputs (they come last), and name its number in `in_place`"
                raise objection(kernel, f"it writes to '{name}', which is an input", hint)
            if number not in self.arguments and self.strides[number] != rows[number]:
                raise objection(kernel, f"the strides of the result '{name}' are not row-major", "results are dense: leave its strides out")
            if number not in self.arguments and self.aligns[number] > FRESH_ALIGN:
                raise objection(
                    kernel, f"the result '{name}' asks for {self.aligns[number]} bytes of alignment", f"ask for at most {FRESH_ALIGN}"
                )
        if len(set(self.names)) != len(self.names):
            raise objection(kernel, "two arguments have one name", "give each pointer a name of its own")

    def sources(self, symbols: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Where each symbol's value is read (input number, axis), as `dispatch.program` has it; symbols of no array follow as numbers."""
        found: dict[str, tuple[int, int]] = {}
        for strides in (False, True):
            for number, pointer in enumerate(self.arguments):
                for axis, expr in enumerate((self.strides if strides else self.shapes)[pointer]):
                    name = str(expr)
                    if name in symbols:
                        found.setdefault(name, (number, -1 - axis if strides else axis))
        after = len(self.arguments)
        for name in symbols:
            if name not in found:
                found[name] = (after, 0)
                after += 1
        return {name: found[name] for name in symbols}


def derived_program(kernel: tile.KernelOp) -> dispatch.ProgramOp:
    """The program of one launch that a kernel's signature says; it gets the kernel's name, and the kernel is its number 0 from then on.

    Raises TR103 and TR107 at the kernel.
    """
    signature, symbols = _Signature(kernel), kernel.symbol_names()
    expressions(kernel, kernel.grid_text())
    sources = signature.sources(symbols)
    block = Block()
    values: dict[int, SSAValue] = {}
    for number, pointer in enumerate(signature.arguments):
        op = dispatch.InputOp(
            number,
            signature.names[pointer],
            _buffer(signature.pointers[pointer]),
            signature.shapes[pointer],
            signature.strides[pointer],
            signature.aligns[pointer],
        )
        block.add_op(op)
        values[pointer] = op.result
    _add_numbers(block, sources, len(signature.arguments))
    _add_checks(block, kernel)
    results: list[SSAValue] = []
    for pointer in range(len(signature.pointers)):
        if pointer not in values:
            counters = pointer in signature.workspace and is_counted(signature.pointers[pointer])
            alloc = dispatch.AllocOp(signature.shapes[pointer], _buffer(signature.pointers[pointer]), counters=counters)
            block.add_op(alloc)
            values[pointer] = alloc.result
            results += [] if pointer in signature.workspace else [alloc.result]
    ordered = [values[pointer] for pointer in range(len(signature.pointers))]
    first = len(ordered) - kernel.output_count.value.data
    name = kernel.sym_name.data
    kernel.properties["sym_name"] = builtin.StringAttr(f"{name}_k0")
    block.add_ops(
        [
            dispatch.LaunchOp(kernel.sym_name.data, ordered[:first], ordered[first:], {symbol: symbol for symbol in symbols}),
            dispatch.ReturnOp(results),
        ]
    )
    program = dispatch.ProgramOp(name, sources, Region(block))
    set_location(program, kernel)
    return program


def _add_numbers(block: Block, sources: Mapping[str, tuple[int, int]], arrays: int) -> None:
    """One input without dimensions for each symbol that no array gives."""
    for name, (number, _) in sources.items():
        if number >= arrays:
            block.add_op(dispatch.InputOp(number, name, dispatch.BufferType(builtin.IndexType()), (), (), _NUMBER_ALIGN))


def _add_checks(block: Block, kernel: tile.KernelOp) -> None:
    """What the kernel requires of its sizes. Raises TR107 for what is no comparison."""
    for text in () if kernel.requires is None else dispatch.texts(kernel.requires):
        for relation in ("==", "<="):
            sides = text.split(relation)
            if len(sides) == 2:
                left, right = expressions(kernel, sides)
                block.add_op(dispatch.CheckOp(left, relation, right, f"kernel '{kernel.sym_name.data}' requires {text}"))
                break
        else:
            raise objection(kernel, f"'{text}' in `requires` is no comparison", "write two sizes with == or <= between them")


def _buffer(pointer: SSAValue) -> dispatch.BufferType:
    kind = pointer.type
    if not isinstance(kind, PointerType):
        raise TypeError(f"{kind} is no pointer")
    return dispatch.BufferType(kind.element_type)
