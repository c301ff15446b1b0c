"""Numbers that every block reads from a tensor, such as where its rows begin: the operation of a function, and what kernels keep of it."""

from collections.abc import Mapping, Sequence

from treadle.dialects.dispatch_attributes import Ints, Strings, integers, ints, string_lists, strings, text_lists, texts
from treadle.ir.builtin import is_tensor
from treadle.ir.core import (
    Attribute,
    IRDLOperation,
    Pure,
    SSAValue,
    VerifyException,
    irdl_op_definition,
    operand_def,
    result_def,
    traits_def,
    var_operand_def,
)
from treadle.ir.dialects import builtin
from treadle.records import dataclass


def _integers(kind: Attribute) -> builtin.TensorType[Attribute] | None:
    """The type of a tensor that indices may be read from; None for any other type."""
    return kind if is_tensor(kind) and kind.element_type in (builtin.i32, builtin.i64) else None


@irdl_op_definition
class ReadIndexOp(IRDLOperation):
    """An element of a tensor of integers as an index, from 0 to `most`: one below is 0, one above is `most`."""

    name = "dispatch.read_index"
    table = operand_def(builtin.TensorType)
    indices = var_operand_def(builtin.IndexType)
    most = operand_def(builtin.IndexType)
    result = result_def(builtin.IndexType)
    assembly_format = "$table `[` $indices `]` `most` $most attr-dict `:` type($table)"
    traits = traits_def(Pure())

    def __init__(self, table: SSAValue, indices: Sequence[SSAValue], most: SSAValue) -> None:
        super().__init__(operands=[table, list(indices), most], result_types=[builtin.IndexType()])

    def verify_(self) -> None:
        if (kind := _integers(self.table.type)) is None:
            raise VerifyException(f"dispatch.read_index reads i32 or i64, not {self.table.type}")
        if kind.get_num_dims() != len(self.indices):
            raise VerifyException(f"dispatch.read_index has {len(self.indices)} indices into {kind}")


@dataclass(frozen=True, slots=True)
class Read:
    """A number that the workgroups of a kernel read: tensor argument, index along each of its axes, and the most that it may be; the last
    ones are expressions over the kernel's symbols, those of blocks and of earlier reads too.
    """

    argument: int
    place: tuple[str, ...]
    most: str


def read_properties(reads: Mapping[str, Read]) -> dict[str, Attribute]:
    """The properties of a kernel that say what its workgroups read."""
    if not reads:
        return {}
    return {
        "read_symbols": strings(reads),
        "read_arguments": ints(read.argument for read in reads.values()),
        "read_places": string_lists(read.place for read in reads.values()),
        "read_bounds": strings(read.most for read in reads.values()),
    }


def reads_of(
    symbols: Strings | None, arguments: Ints | None, places: builtin.ArrayAttr[Strings] | None, bounds: Strings | None
) -> dict[str, Read]:
    """What `read_properties` made properties of, in order. VerifyException where the properties are of different length."""
    if symbols is None or arguments is None or places is None or bounds is None:
        return {}
    columns = (texts(symbols), integers(arguments), text_lists(places), texts(bounds))
    if len({len(column) for column in columns}) > 1:
        raise VerifyException("read_symbols, read_arguments, read_places and read_bounds have an entry each for every number that is read")
    rows = zip(*columns, strict=True)
    return {name: Read(argument, place, most) for name, argument, place, most in rows}


def check_reads(reads: Mapping[str, Read], tensors: Sequence[Attribute]) -> None:
    """VerifyException where a kernel's workgroups read what is no argument of integers, or at a place that is none."""
    for name, read in reads.items():
        kind = _integers(tensors[read.argument]) if 0 <= read.argument < len(tensors) else None
        if kind is None:
            raise VerifyException(f"{name} is read from argument {read.argument}, which is no tensor of i32 or i64")
        if kind.get_num_dims() != len(read.place):
            raise VerifyException(f"{name} is read at {len(read.place)} indices of {kind}")
