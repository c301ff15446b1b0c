"""Named linalg operations made from the rows of `named_table`: text, maps, iterators, body and verification.

No body, map or iterator type comes from upstream's classes. Each operation is one class; those that nothing else refers to have no name in
Python and are found in `NAMED_OPERATIONS`.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import ClassVar, Self

from treadle.dialects.mlir_ext.linalg_base import (
    IteratorTypeAttr,
    NamedOperation,
    TensorEffects,
    parse_named,
    print_operand_group,
    print_result_types,
)
from treadle.dialects.mlir_ext.loops import verify_structured
from treadle.dialects.mlir_ext.named_table import NAMED, Index, NamedRow
from treadle.dialects.mlir_ext.scalar_bodies import same_body, scalar_body
from treadle.dialects.mlir_ext.type_fn import is_unsigned
from treadle.ir.builtin import AffineMapAttr, ArrayAttr, DenseIntOrFPElementsAttr, is_array_of, tensor_types
from treadle.ir.core import (
    AffineExpr,
    AffineMap,
    Attribute,
    Operation,
    Parser,
    Printer,
    Region,
    SSAValue,
    VerifyException,
    irdl_op_definition,
    opt_prop_def,
    traits_def,
)

Maps = ArrayAttr[AffineMapAttr]
Numbers = tuple[int, ...]


def _expression(row: NamedRow, index: Index, strides: Iterator[int], dilations: Iterator[int]) -> AffineExpr:
    loops = [AffineExpr.dimension(row.loops.index(loop)) for loop in index[::2]]
    if ":" in index:
        return loops[0] * next(strides) + loops[1] * next(dilations)
    return loops[0] + loops[1] if "+" in index else loops[0]


@lru_cache(maxsize=256)
def indexing_maps(row: NamedRow, strides: Numbers, dilations: Numbers) -> Maps:
    """The maps of a row's inputs and output."""
    stride, dilation = iter(strides), iter(dilations)
    maps: list[AffineMapAttr] = []
    for operand in row.operands:
        results = [_expression(row, index, stride, dilation) for index in operand]
        maps.append(AffineMapAttr(AffineMap(len(row.loops), 0, tuple(results))))
    return ArrayAttr(maps)


@lru_cache(maxsize=256)
def iterator_types(row: NamedRow) -> ArrayAttr[IteratorTypeAttr]:
    """Loops that the output's dimensions name are parallel."""
    kept = {index[0] for index in row.operands[-1]}
    return ArrayAttr([IteratorTypeAttr.parallel() if loop in kept else IteratorTypeAttr.reduction() for loop in row.loops])


@irdl_op_definition
class NamedOp(NamedOperation):
    """An operation of the table; subclasses set `name` and `ROW`."""

    name = "linalg.named"
    ROW: ClassVar[NamedRow]
    strides = opt_prop_def()
    dilations = opt_prop_def()
    cast = opt_prop_def()
    indexing_maps = opt_prop_def()
    traits = traits_def(TensorEffects())

    def __init__(
        self,
        inputs: Sequence[SSAValue | Operation],
        outputs: Sequence[SSAValue | Operation],
        indexing_maps: Maps | None = None,
        attributes: dict[str, Attribute] | None = None,
    ) -> None:
        """`indexing_maps` where they are not the op's default ones; `attributes` may hold the op's own (`strides`, `cast`, ..) too.

        Raises `VerifyException` where the operation is not defined on these elements.
        """
        ins, outs = [SSAValue.get(value) for value in inputs], [SSAValue.get(value) for value in outputs]
        rest = dict(attributes or {})
        own = {name: rest.pop(name, None) for name in self._own_attributes()}
        if indexing_maps is not None:
            own["indexing_maps"] = indexing_maps
        super().__init__(
            ins=ins,
            outs=outs,
            result_types=[tensor_types([value.type for value in outs])],
            properties=own,
            attributes=rest,
            hidden_region=self.expected_body(ins, outs, own.get("cast")),
        )

    @classmethod
    def _own_attributes(cls) -> tuple[str, ...]:
        """The attributes that mean something to the operation; others are kept and ignored, as in MLIR."""
        windows = ("strides", "dilations") if cls.ROW.windows else ()
        return (*windows, *(("cast",) if cls.ROW.casts else ()), *(("indexing_maps",) if cls.ROW.free_maps else ()))

    @classmethod
    def expected_body(cls, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue], cast: Attribute | None) -> Region:
        """The body that the table gives the operation on these operands. Raises `VerifyException` where it is not defined."""
        wanted = len(cls.ROW.operands) - 1
        if len(inputs) != wanted or len(outputs) != 1:
            raise VerifyException(f"expected {_count(wanted)} and one output, found {len(inputs)} and {len(outputs)}")
        return scalar_body(cls.ROW.rule, inputs, outputs, unsigned=cls.ROW.casts and is_unsigned(cast))

    @classmethod
    def get_hidden_region(cls, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Region:
        return cls.expected_body(inputs, outputs, None)

    @property
    def default_maps(self) -> Maps:
        """The maps that the table gives, with the operation's strides and dilations."""
        return indexing_maps(self.ROW, self._numbers("strides"), self._numbers("dilations"))

    def _numbers(self, name: str) -> Numbers:
        """The values of `strides` or `dilations`, which are 1 where the attribute is missing."""
        attribute = self.properties.get(name)
        count = self.ROW.windows
        if attribute is None:
            return (1,) * count
        values = tuple(attribute.get_values()) if isinstance(attribute, DenseIntOrFPElementsAttr) else ()
        if len(values) != count or not all(isinstance(value, int) and value > 0 for value in values):
            raise VerifyException(f"{name} must be {_count(count, 'positive integer')}, as in dense<1> : tensor<{count}xi64>")
        return tuple(int(value) for value in values)

    def get_indexing_maps(self) -> Maps:
        maps = self.properties.get("indexing_maps")
        return maps if is_array_of(maps, AffineMapAttr) else self.default_maps

    def get_default_indexing_maps(self) -> Sequence[AffineMap]:
        return tuple(entry.data for entry in self.get_indexing_maps())

    def get_iterator_types(self) -> ArrayAttr[IteratorTypeAttr]:
        return iterator_types(self.ROW)

    def verify_(self) -> None:
        expected = self.expected_body(self.inputs, self.outputs, self.properties.get("cast"))
        if not same_body(self.body, expected):
            raise VerifyException("the body is not the operation's own; write it as linalg.generic")
        self._verify_maps()
        verify_structured(self)
        super().verify_()

    def _verify_maps(self) -> None:
        default, maps = self.default_maps.data, self.get_indexing_maps().data
        if len(maps) != len(default) or any(m.data.num_dims != d.data.num_dims for m, d in zip(maps, default, strict=True)):
            raise VerifyException(f"expected {len(default)} indexing maps over {default[0].data.num_dims} loops")
        if maps[-1] != default[-1]:
            raise VerifyException(f"the output's indexing map must be {default[-1].data}")
        if maps == default:
            return
        for number, (given, standard) in enumerate(zip(maps[:-1], default[:-1], strict=True)):
            allowed = set(standard.data.results)
            if not given.data.results or not set(given.data.results) <= allowed or len(set(given.data.results)) != len(given.data.results):
                raise VerifyException(f"indexing map {number} must name each of some of the loops of {standard.data} once")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        start = parser.pos
        text = parse_named(parser)
        own: dict[str, Attribute | None] = {name: text.attributes.pop(name, None) for name in cls._own_attributes()}
        if text.maps is not None:
            if not cls.ROW.free_maps:
                parser.raise_error(f"{cls.name} has no indexing_maps of its own", start, parser.pos)
            own["indexing_maps"] = text.maps
        try:
            body = cls.expected_body(text.inputs, text.outputs, own.get("cast"))
        except VerifyException as error:
            parser.raise_error(str(error), start, parser.pos)
        return cls.build(
            operands=[text.inputs, text.outputs],
            result_types=[text.results],
            properties=own,
            attributes=text.attributes,
            regions=[body],
        )

    def print(self, printer: Printer) -> None:
        own = {name: value for name in self._own_attributes() if (value := self.properties.get(name)) is not None}
        maps = own.pop("indexing_maps", None)
        if maps is not None and maps != self.default_maps:
            printer.print_string(" indexing_maps = ")
            printer.print_attribute(maps)
        printer.print_op_attributes({**own, **self.attributes})
        print_operand_group(printer, "ins", self.inputs)
        print_operand_group(printer, "outs", self.outputs)
        print_result_types(printer, self.res.types)


def _count(number: int, what: str = "input") -> str:
    return f"{('no', 'one', 'two', 'three', 'four')[number]} {what}{'' if number == 1 else 's'}"


def named_operation(name: str) -> type[NamedOp]:
    """A class for a row of the table that has none of its own."""
    return type(f"Linalg_{name}", (NamedOp,), {"name": f"linalg.{name}", "ROW": NAMED[name]})
