"""The `dispatch` dialect: what becomes one kernel, and the host program that launches kernels.

Levels: `dispatch.region` stands inside a function between form-dispatches and outline-dispatches; `dispatch.kernel` and `dispatch.program` are what
outline-dispatches leaves of a function. All sizes, strides and offsets are expression strings (`plan/expr.py`), strides and offsets in elements.
"""

from collections.abc import Iterable, Sequence

from treadle.ir.core import (
    Attribute,
    AttrSizedOperandSegments,
    Block,
    Dialect,
    HasParent,
    IRDLOperation,
    IsolatedFromAbove,
    IsTerminator,
    Operation,
    ParametrizedAttribute,
    Parser,
    Printer,
    Region,
    SSAValue,
    SymbolOpInterface,
    TypeAttribute,
    VerifyException,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    param_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from treadle.ir.dialects import builtin

ArrayAttr, StringAttr, IntAttr = builtin.ArrayAttr, builtin.StringAttr, builtin.IntegerAttr
Strings = builtin.ArrayAttr[builtin.StringAttr]
Ints = builtin.DenseArrayBase


def strings(items: Iterable[object]) -> Strings:
    """An attribute holding the texts of `items` (expressions, names)."""
    return ArrayAttr([StringAttr(str(item)) for item in items])


def string_lists(rows: Iterable[Iterable[object]]) -> builtin.ArrayAttr[Strings]:
    """One list of texts an argument or result."""
    return ArrayAttr([strings(row) for row in rows])


def texts(attr: Strings) -> tuple[str, ...]:
    """The strings of an attribute made by `strings`."""
    return tuple(item.data for item in attr)


def text_lists(attr: builtin.ArrayAttr[Strings]) -> tuple[tuple[str, ...], ...]:
    """The strings of an attribute made by `string_lists`."""
    return tuple(texts(row) for row in attr)


def ints(values: Iterable[int]) -> Ints:
    """An `array<i64: ..>` attribute."""
    return builtin.DenseArrayBase.from_list(builtin.i64, list(values))


@irdl_attr_definition
class BufferType(ParametrizedAttribute, TypeAttribute):
    """`!dispatch.buffer<elem>`: device memory seen through a shape and strides that its defining op gives."""

    name = "dispatch.buffer"
    element_type: Attribute = param_def()


@irdl_op_definition
class YieldOp(IRDLOperation):
    """Ends a region or kernel with the tensors it computes."""

    name = "dispatch.yield"
    values = var_operand_def()
    assembly_format = "($values^ `:` type($values))? attr-dict"
    traits = traits_def(IsTerminator())

    def __init__(self, values: Sequence[SSAValue]) -> None:
        super().__init__(operands=[values])


def yielded(block: Block, owner: str) -> YieldOp:
    """The terminator of `block`; VerifyException where it is another operation."""
    last = block.last_op
    if not isinstance(last, YieldOp):
        raise VerifyException(f"the body of {owner} must end with dispatch.yield")
    return last


@irdl_op_definition
class RegionOp(IRDLOperation):
    """What form-dispatches decided to be one kernel; captures values of the surrounding function, yields tensors."""

    name = "dispatch.region"
    body = region_def("single_block")
    results_ = var_result_def(builtin.TensorType)
    assembly_format = "(`->` type($results_)^)? attr-dict-with-keyword $body"

    def __init__(self, result_types: Sequence[Attribute], body: Region, attributes: dict[str, Attribute] | None = None) -> None:
        super().__init__(regions=[body], result_types=[result_types], attributes=attributes or {})

    def verify_(self) -> None:
        if self.body.block.args:
            raise VerifyException("dispatch.region captures values of the function, its block takes no arguments")
        _check_types("dispatch.region yields", yielded(self.body.block, "dispatch.region").values, [r.type for r in self.results])


def _check_types(what: str, values: Sequence[SSAValue], wanted: Sequence[Attribute]) -> None:
    found = [value.type for value in values]
    if found != list(wanted):
        raise VerifyException(f"{what} ({', '.join(map(str, found))}) where ({', '.join(map(str, wanted))}) was declared")


def _check_rows(what: str, rows: builtin.ArrayAttr[Strings], types: Sequence[Attribute]) -> None:
    """Each row has one entry a dimension of its tensor type; static sizes of shapes are compared by the caller."""
    if len(rows) != len(types):
        raise VerifyException(f"{what} has {len(rows)} entries for {len(types)} tensors")
    for index, (row, type_) in enumerate(zip(rows, types, strict=True)):
        if not isinstance(type_, builtin.TensorType):
            raise VerifyException(f"{what} {index} belongs to {type_}, which is not a tensor")
        if len(row) != type_.get_num_dims():
            raise VerifyException(f"{what} {index} has {len(row)} dimensions, its tensor {type_} has {type_.get_num_dims()}")


def _check_static(what: str, rows: builtin.ArrayAttr[Strings], types: Sequence[Attribute]) -> None:
    for index, (row, type_) in enumerate(zip(rows, types, strict=True)):
        sizes = type_.get_shape() if isinstance(type_, builtin.TensorType) else ()
        for axis, (text, size) in enumerate(zip(texts(row), sizes, strict=True)):
            if size != builtin.DYNAMIC_INDEX and text != str(size):
                raise VerifyException(f"{what} {index} says {text} for axis {axis}, its tensor {type_} says {size}")


@irdl_op_definition
class KernelOp(IRDLOperation):
    """One kernel as a program on tensors: tensor arguments, then one `index` argument for each of `symbols`.

    Properties: `symbols` names of the index arguments; `arg_shapes`, `arg_strides`, `arg_align` (bytes) of the tensor arguments;
    `result_shapes`, `result_strides`, `result_align` of the memory the results go to. See docs/architecture.md for what the body may hold.
    """

    name = "dispatch.kernel"
    sym_name = prop_def(builtin.StringAttr)
    function_type = prop_def(builtin.FunctionType)
    symbols = prop_def(builtin.ArrayAttr[builtin.StringAttr])
    arg_shapes = prop_def(builtin.ArrayAttr[Strings])
    arg_strides = prop_def(builtin.ArrayAttr[Strings])
    arg_align = prop_def(builtin.DenseArrayBase)
    result_shapes = prop_def(builtin.ArrayAttr[Strings])
    result_strides = prop_def(builtin.ArrayAttr[Strings])
    result_align = prop_def(builtin.DenseArrayBase)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), SymbolOpInterface())

    def __init__(
        self,
        name: str,
        body: Region,
        result_types: Sequence[Attribute],
        *,
        symbols: Sequence[str],
        arg_shapes: Sequence[Sequence[object]],
        arg_strides: Sequence[Sequence[object]],
        arg_align: Sequence[int],
        result_shapes: Sequence[Sequence[object]],
        result_strides: Sequence[Sequence[object]],
        result_align: Sequence[int],
        attributes: dict[str, Attribute] | None = None,
    ) -> None:
        super().__init__(
            regions=[body],
            properties={
                "sym_name": StringAttr(name),
                "function_type": builtin.FunctionType.from_lists([arg.type for arg in body.block.args], list(result_types)),
                "symbols": strings(symbols),
                "arg_shapes": string_lists(arg_shapes),
                "arg_strides": string_lists(arg_strides),
                "arg_align": ints(arg_align),
                "result_shapes": string_lists(result_shapes),
                "result_strides": string_lists(result_strides),
                "result_align": ints(result_align),
            },
            attributes=attributes or {},
        )

    @property
    def tensor_count(self) -> int:
        """How many of the block's arguments are tensors (they come first)."""
        return len(self.body.block.args) - len(self.symbols)

    def verify_(self) -> None:
        args = [arg.type for arg in self.body.block.args]
        _check_types("dispatch.kernel takes", list(self.body.block.args), list(self.function_type.inputs))
        tensors, scalars = args[: self.tensor_count], args[self.tensor_count :]
        wrong = any(not isinstance(type_, builtin.TensorType) for type_ in tensors)
        if len(self.symbols) > len(args) or wrong or any(not isinstance(type_, builtin.IndexType) for type_ in scalars):
            raise VerifyException("dispatch.kernel takes its tensors first, then one index argument for each name in symbols")
        outputs = list(self.function_type.outputs)
        _check_rows("arg_shapes", self.arg_shapes, tensors)
        _check_rows("arg_strides", self.arg_strides, tensors)
        _check_static("arg_shapes", self.arg_shapes, tensors)
        _check_rows("result_shapes", self.result_shapes, outputs)
        _check_rows("result_strides", self.result_strides, outputs)
        _check_static("result_shapes", self.result_shapes, outputs)
        for what, attr, count in (("arg_align", self.arg_align, len(tensors)), ("result_align", self.result_align, len(outputs))):
            values = [int(value) for value in attr.get_values()]
            if len(values) != count:
                raise VerifyException(f"{what} has {len(values)} entries for {count} tensors")
            if any(value < 1 or value & (value - 1) for value in values):
                raise VerifyException(f"{what} holds powers of two (bytes), found {values}")
        _check_types("dispatch.kernel yields", yielded(self.body.block, "dispatch.kernel").values, outputs)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        with printer.in_parens():
            printer.print_list(self.body.block.args, printer.print_block_argument)
        printer.print_string(" -> ")
        with printer.in_parens():
            printer.print_list(self.function_type.outputs.data, printer.print_attribute)
        shown = {**self.properties, **self.attributes}
        printer.print_string(" attributes ")
        printer.print_attr_dict({key: value for key, value in shown.items() if key not in ("sym_name", "function_type")})
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)

    @classmethod
    def parse(cls, parser: Parser) -> "KernelOp":
        name = parser.parse_symbol_name()
        args = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument)
        parser.parse_punctuation("->")
        outputs = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        given = parser.parse_optional_attr_dict_with_keyword()
        attributes = dict(given.data) if given else {}
        body = parser.parse_region(args)
        names = cls.get_irdl_definition().properties
        properties: dict[str, Attribute] = {key: attributes.pop(key) for key in list(attributes) if key in names}
        properties["sym_name"] = name
        properties["function_type"] = builtin.FunctionType.from_lists([arg.type for arg in body.block.args], outputs)
        return cls.create(regions=[body], properties=properties, attributes=attributes)


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
    """The host program of one function: straight-line buffers and launches. `dims` maps a symbol to `[input, axis]`."""

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
            if not isinstance(place, builtin.DenseArrayBase) or len(values := place.get_values()) != 2:
                raise VerifyException(f"dims: {symbol} must be array<i64: input, axis>")
            found[symbol] = (int(values[0]), int(values[1]))
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
            if not -rank <= axis < rank:
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
    """Input number `index` of the function (inputs appear in order). The runtime checks an argument's shape, strides and alignment against these."""

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
    """Fresh row-major device memory, 256-byte aligned, contents unspecified."""

    name = "dispatch.alloc"
    shape = prop_def(builtin.ArrayAttr[builtin.StringAttr])
    result = result_def(BufferType)
    assembly_format = "$shape attr-dict `:` type($result)"
    traits = traits_def(HasParent(ProgramOp))

    def __init__(self, shape: Iterable[object], type_: BufferType) -> None:
        super().__init__(properties={"shape": strings(shape)}, result_types=[type_])


@irdl_op_definition
class ViewOp(IRDLOperation):
    """The same memory as `source` through another shape; `offset` counts from the start of `source`, strides are absolute (not relative to the source's)."""

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
    """Run `kernel` on buffers `inputs` (its tensor arguments) writing `outputs` (its results); `symbols` gives the value of each of the kernel's symbols."""

    name = "dispatch.launch"
    kernel = prop_def(builtin.SymbolRefAttr)
    inputs = var_operand_def(BufferType)
    outputs = var_operand_def(BufferType)
    symbols = prop_def(builtin.DictionaryAttr)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = (
        "$kernel `(` ($inputs^ `:` type($inputs))? `)` `->` `(` ($outputs^ `:` type($outputs))? `)` `symbols` $symbols attr-dict"
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
    """`left relation right` (`==` or `<=`, over the program's symbols) must hold at run time; `message` says what is wrong where it does not."""

    name = "dispatch.check"
    left = prop_def(builtin.StringAttr)
    relation = prop_def(builtin.StringAttr)
    right = prop_def(builtin.StringAttr)
    message = opt_prop_def(builtin.StringAttr)
    assembly_format = "$left $relation $right (`,` $message^)? attr-dict"
    traits = traits_def(HasParent(ProgramOp))

    def __init__(self, left: object, relation: str, right: object, message: str) -> None:
        super().__init__(
            properties={
                "left": StringAttr(str(left)),
                "relation": StringAttr(relation),
                "right": StringAttr(str(right)),
                "message": StringAttr(message),
            }
        )

    def verify_(self) -> None:
        if self.relation.data not in ("==", "<="):
            raise VerifyException(f"dispatch.check compares with == or <=, found {self.relation.data}")


DISPATCH = Dialect(
    "dispatch",
    [RegionOp, KernelOp, YieldOp, ProgramOp, InputOp, ConstantOp, AllocOp, ViewOp, LaunchOp, CheckOp, ReturnOp],
    [BufferType],
)
