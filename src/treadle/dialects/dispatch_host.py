"""The host half of the `dispatch` dialect: programs of buffers, views, checks and launches."""

from collections.abc import Iterable, Sequence
from typing import cast

from treadle.dialects.dispatch_attributes import BufferType, IntAttr, Ints, StringAttr, Strings, integers, ints, strings
from treadle.ir.core import (
    Attribute,
    AttrSizedOperandSegments,
    HasParent,
    IRDLOperation,
    IsolatedFromAbove,
    IsTerminator,
    Operation,
    Parser,
    Printer,
    Region,
    SSAValue,
    SymbolOpInterface,
    VerifyException,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from treadle.ir.dialects import builtin


@irdl_op_definition
class ReturnOp(IRDLOperation):
    """Ends a program with the buffers of its results."""

    name = "dispatch.return"
    values = var_operand_def(BufferType)
    assembly_format = "($values^ `:` type($values))? attr-dict"
    traits = traits_def(IsTerminator())

    def __init__(self, values: Sequence[SSAValue]) -> None:
        super().__init__(operands=[values])


@irdl_op_definition
class ProgramOp(IRDLOperation):
    """The host program of one function: straight-line buffers and launches.

    `dims` maps a symbol to `[input, axis]`: axis < 0 is the stride of axis -1 - axis, axis 0 of an input without dimensions is its value.
    """

    name = "dispatch.program"
    sym_name = prop_def(builtin.StringAttr)
    dims = prop_def(builtin.DictionaryAttr)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), SymbolOpInterface())

    def __init__(self, name: str, dims: dict[str, tuple[int, int]], body: Region) -> None:
        pairs: dict[str, Attribute] = {symbol: ints(place) for symbol, place in dims.items()}
        super().__init__(regions=[body], properties={"sym_name": StringAttr(name), "dims": builtin.DictionaryAttr(pairs)})

    def dim_sources(self) -> dict[str, tuple[int, int]]:
        """Where each symbol's value is read: (input number, axis)."""
        found: dict[str, tuple[int, int]] = {}
        for symbol, place in self.dims.data.items():
            values = integers(cast(Ints, place)) if isinstance(place, builtin.DenseArrayBase) else ()
            if len(values) != 2:
                raise VerifyException(f"dims: {symbol} must be array<i64: input, axis>")
            found[symbol] = (values[0], values[1])
        return found

    def verify_(self) -> None:
        if self.body.block.args:
            raise VerifyException("dispatch.program takes no block arguments; inputs are dispatch.input operations")
        if not isinstance(self.body.block.last_op, ReturnOp):
            raise VerifyException("the body of dispatch.program must end with dispatch.return")
        inputs = [op for op in self.body.block.ops if isinstance(op, InputOp)]
        for symbol, (index, axis) in self.dim_sources().items():
            if not 0 <= index < len(inputs):
                raise VerifyException(f"dims: {symbol} is read from input {index}, the program has {len(inputs)} inputs")
            rank = len(inputs[index].shape)
            if not -rank <= axis < max(rank, 1):
                raise VerifyException(f"dims: {symbol} is read from axis {axis} of input {index}, which has {rank} dimensions")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(" attributes ")
        printer.print_attr_dict({"dims": self.dims, **self.attributes})
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)

    @classmethod
    def parse(cls, parser: Parser) -> "ProgramOp":
        name = parser.parse_symbol_name()
        given = parser.parse_optional_attr_dict_with_keyword()
        attributes = dict(given.data) if given else {}
        body = parser.parse_region()
        dims = attributes.pop("dims", builtin.DictionaryAttr({}))
        return cls.create(regions=[body], properties={"sym_name": name, "dims": dims}, attributes=attributes)


@irdl_op_definition
class InputOp(IRDLOperation):
    """Input number `index` of the function, in order. The runtime checks an argument's shape, strides and alignment against these."""

    name = "dispatch.input"
    index = prop_def(builtin.IntegerAttr[builtin.I64])
    arg_name = prop_def(builtin.StringAttr, prop_name="name")
    shape = prop_def(builtin.ArrayAttr[builtin.StringAttr])
    strides = prop_def(builtin.ArrayAttr[builtin.StringAttr])
    align = prop_def(builtin.IntegerAttr[builtin.I64])
    result = result_def(BufferType)
    assembly_format = "$index $name `shape` $shape `strides` $strides `align` $align attr-dict `:` type($result)"
    traits = traits_def(HasParent(ProgramOp))

    def __init__(self, index: int, name: str, type_: BufferType, shape: Iterable[object], strides: Iterable[object], align: int) -> None:
        super().__init__(
            properties={
                "index": IntAttr(index, builtin.i64),
                "name": StringAttr(name),
                "shape": strings(shape),
                "strides": strings(strides),
                "align": IntAttr(align, builtin.i64),
            },
            result_types=[type_],
        )

    def verify_(self) -> None:
        _check_ranks(self, self.shape, self.strides)


def _check_ranks(op: Operation, shape: Strings, strides: Strings) -> None:
    if len(shape) != len(strides):
        raise VerifyException(f"{op.name} has {len(shape)} sizes and {len(strides)} strides")


@irdl_op_definition
class ConstantOp(IRDLOperation):
    """A row-major buffer of known contents: `value` is a dense elements attribute."""

    name = "dispatch.constant"
    value = prop_def(builtin.DenseIntOrFPElementsAttr)
    result = result_def(BufferType)
    assembly_format = "$value attr-dict `:` type($result)"
    traits = traits_def(HasParent(ProgramOp))

    def __init__(self, value: builtin.DenseIntOrFPElementsAttr) -> None:
        super().__init__(properties={"value": value}, result_types=[BufferType(value.get_element_type())])

    def verify_(self) -> None:
        if self.result.type != BufferType(self.value.get_element_type()):
            raise VerifyException(f"the constant holds {self.value.get_element_type()}, its buffer {self.result.type}")


@irdl_op_definition
class AllocOp(IRDLOperation):
    """Fresh row-major device memory, 256-byte aligned, contents unspecified.

    `when`: as for a launch; no bytes where it is 0. `counters`: it is zero instead, and the launches leave it zero, so that it may be the
    same memory in calls that follow one another.
    """

    name = "dispatch.alloc"
    shape = prop_def(builtin.ArrayAttr[builtin.StringAttr])
    when = opt_prop_def(builtin.StringAttr)
    counters = opt_prop_def(builtin.UnitAttr)
    result = result_def(BufferType)
    assembly_format = "$shape (`when` $when^)? (`counters` $counters^)? attr-dict `:` type($result)"
    traits = traits_def(HasParent(ProgramOp))

    def __init__(self, shape: Iterable[object], type_: BufferType, *, counters: bool = False) -> None:
        marked = builtin.UnitAttr() if counters else None
        super().__init__(properties={"shape": strings(shape), "counters": marked}, result_types=[type_])


@irdl_op_definition
class ViewOp(IRDLOperation):
    """The same memory as `source` through another shape.

    `offset` counts elements from the start of `source`; strides are absolute, not relative to the source's.
    """

    name = "dispatch.view"
    source = operand_def(BufferType)
    offset = prop_def(builtin.StringAttr)
    shape = prop_def(builtin.ArrayAttr[builtin.StringAttr])
    strides = prop_def(builtin.ArrayAttr[builtin.StringAttr])
    result = result_def(BufferType)
    assembly_format = "$source `offset` $offset `shape` $shape `strides` $strides attr-dict `:` type($source) `to` type($result)"
    traits = traits_def(HasParent(ProgramOp))

    def __init__(self, source: SSAValue, offset: object, shape: Iterable[object], strides: Iterable[object]) -> None:
        super().__init__(
            operands=[source],
            properties={"offset": StringAttr(str(offset)), "shape": strings(shape), "strides": strings(strides)},
            result_types=[source.type],
        )

    def verify_(self) -> None:
        _check_ranks(self, self.shape, self.strides)
        if self.source.type != self.result.type:
            raise VerifyException("a view has the element type of its source")


@irdl_op_definition
class LaunchOp(IRDLOperation):
    """Run `kernel` on `inputs` (its tensor arguments) writing `outputs` (its results); `symbols` gives the values of its symbols.

    `when`: an expression over the program's symbols, 0 or 1; where it is 0 nothing is launched.
    """

    name = "dispatch.launch"
    kernel = prop_def(builtin.SymbolRefAttr)
    inputs = var_operand_def(BufferType)
    outputs = var_operand_def(BufferType)
    symbols = prop_def(builtin.DictionaryAttr)
    when = opt_prop_def(builtin.StringAttr)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = (
        "$kernel `(` ($inputs^ `:` type($inputs))? `)` `->` `(` ($outputs^ `:` type($outputs))? `)` `symbols` $symbols (`when` $when^)? "
        "attr-dict"
    )
    traits = traits_def(HasParent(ProgramOp))

    def __init__(self, kernel: str, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue], symbols: dict[str, str]) -> None:
        values: dict[str, Attribute] = {name: StringAttr(text) for name, text in symbols.items()}
        super().__init__(
            operands=[inputs, outputs],
            properties={"kernel": builtin.SymbolRefAttr(kernel), "symbols": builtin.DictionaryAttr(values)},
        )

    def symbol_values(self) -> dict[str, str]:
        """The kernel's symbols as expressions over the program's."""
        return {name: text.data for name, text in self.symbols.data.items() if isinstance(text, builtin.StringAttr)}

    def verify_(self) -> None:
        for name, text in self.symbols.data.items():
            if not isinstance(text, builtin.StringAttr):
                raise VerifyException(f"symbols: {name} must be an expression string")


@irdl_op_definition
class CheckOp(IRDLOperation):
    """`left relation right` (`==` or `<=`, over the program's symbols) must hold at run time; `message` says what is wrong else.

    `index_range`: what the kernels' 32-bit indices need; the same program with 64-bit ones takes sizes for which it does not hold.
    """

    name = "dispatch.check"
    left = prop_def(builtin.StringAttr)
    relation = prop_def(builtin.StringAttr)
    right = prop_def(builtin.StringAttr)
    message = opt_prop_def(builtin.StringAttr)
    index_range = opt_prop_def(builtin.UnitAttr)
    assembly_format = "$left $relation $right (`,` $message^)? (`index_range` $index_range^)? attr-dict"
    traits = traits_def(HasParent(ProgramOp))

    def __init__(self, left: object, relation: str, right: object, message: str, *, index_range: bool = False) -> None:
        super().__init__(
            properties={
                "left": StringAttr(str(left)),
                "relation": StringAttr(relation),
                "right": StringAttr(str(right)),
                "message": StringAttr(message),
                "index_range": builtin.UnitAttr() if index_range else None,
            }
        )

    def verify_(self) -> None:
        if self.relation.data not in ("==", "<="):
            raise VerifyException(f"dispatch.check compares with == or <=, found {self.relation.data}")
