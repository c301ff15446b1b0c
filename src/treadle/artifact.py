"""The artifact's manifest (docs/artifact.md) as frozen records with strict reading; `artifact_folder` has the folder around it.

Sizes are `int` where they are known and `Expr` where they depend on runtime dimensions. Every record checks what can be checked without
running: names that are used exist, expressions use symbols of `dims` only, offsets lie in the argument block.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, get_args

from treadle import errors
from treadle.errors import TreadleError
from treadle.manifest_reader import Reader
from treadle.plan.expr import Expr
from treadle.records import Record

Size: TypeAlias = int | Expr
Role = Literal["input", "output", "temporary", "constant"]
ArgKind = Literal["pointer", "i32", "i64", "f32", "tensor_map"]
Swizzle = Literal["none", "32B", "64B", "128B"]
Interleave = Literal["none", "16B", "32B"]
Promotion = Literal["none", "64B", "128B", "256B"]
Fill = Literal["zero", "nan"]
Relation = Literal["==", "<="]

FORMAT: Final = 1
MANIFEST_FILE: Final = "manifest.json"
ARG_BYTES: Final[Mapping[ArgKind, int]] = {"pointer": 8, "i32": 4, "i64": 8, "f32": 4, "tensor_map": 128}


class Dim(Record):
    """Where a symbol's value comes from: the extent of `axis` of the input number `input`, or, for `axis` = -1 - k, its stride of axis k.

    Strides are in elements. Axis 0 of an input without dimensions is the number that it holds.
    """

    input: int
    axis: int


class TensorRecord(Record):
    """An input or output. `dtype` is the MLIR name (f16, bf16, f8E4M3FN, i8, ..), `strides` are in elements.

    `in_place`: an input that the program writes to; its array is changed by a call.
    """

    name: str
    dtype: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    buffer: str
    in_place: bool = False


class Buffer(Record):
    """Device memory; `align` is what kernels rely on; a constant's contents are in `file`; `zero` asks for zeros at the start.

    `kept`: the launches leave zeros, too, so that it may be kept for the next call on the same stream.
    """

    name: str
    role: Role
    bytes: Size
    align: int
    file: str | None = None
    zero: bool = False
    kept: bool = False


class KernelArg(Record):
    """One argument: its kind and its byte offset in the argument block."""

    kind: ArgKind
    offset: int


class Kernel(Record):
    """A kernel: `symbol` in the file `binary`; `shared_bytes` is the dynamic part only. `facts` is free information for people
    (`written_at`: the level of one that a user wrote).

    `overlaps`: it may start before the launch ahead of it has ended, for which it waits by itself.
    """

    name: str
    symbol: str
    binary: str
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int
    kernarg_bytes: int
    args: tuple[KernelArg, ...]
    facts: Mapping[str, Any] = MappingProxyType({})
    overlaps: bool = False


class PointerValue(Record):
    """The address `byte_offset` bytes into a buffer."""

    buffer: str
    byte_offset: Size = 0


class ScalarValue(Record):
    """A number passed by value; a float only for kind f32."""

    value: Size | float


class TensorMap(Record):
    """How an array is seen by descriptor copies. Dimensions innermost first; the innermost stride is one element, not listed.

    `lower_corner`, `upper_corner`: of copies that walk the pixels of images (im2col), where their bounding box begins, from the image's
    start, and ends, from its end, for each dimension but the first and the last; `box_dim` is the channels and the pixels of a copy then.
    Else empty.

    Sizes are over the symbols of the kernel that takes the map, then of the program that launches it.
    """

    dtype: str
    global_dim: tuple[Size, ...]
    global_stride_bytes: tuple[Size, ...]
    box_dim: tuple[int, ...]
    element_stride: tuple[int, ...]
    swizzle: Swizzle = "none"
    interleave: Interleave = "none"
    l2_promotion: Promotion = "none"
    oob_fill: Fill = "zero"
    lower_corner: tuple[int, ...] = ()
    upper_corner: tuple[int, ...] = ()

    def with_sizes(self, global_dim: tuple[Size, ...], global_stride_bytes: tuple[Size, ...]) -> "TensorMap":
        """The same with other sizes."""
        rest = (self.box_dim, self.element_stride, self.swizzle, self.interleave, self.l2_promotion, self.oob_fill)
        return TensorMap(self.dtype, global_dim, global_stride_bytes, *rest, self.lower_corner, self.upper_corner)


class TensorMapValue(Record):
    """A tensor map over a buffer, from `byte_offset` on, 128 bytes by value."""

    buffer: str
    map: TensorMap
    byte_offset: Size = 0


ArgValue: TypeAlias = PointerValue | ScalarValue | TensorMapValue


class Launch(Record):
    """One launch of a kernel; skipped where a grid extent is 0."""

    kernel: str
    grid: tuple[Size, Size, Size]
    args: tuple[ArgValue, ...]


class Check(Record):
    """`left relation right` must hold for the sizes of a call; `message` says what is wrong where it does not.

    `index_range`: what kernels with 32-bit indices need; the program compiled with `index_bits=64` does without.
    """

    left: Size
    relation: Relation
    right: Size
    message: str = ""
    index_range: bool = False


class Manifest(Record):
    """Everything a launcher needs beside the binaries."""

    treadle: str
    target: str
    function: str
    dims: Mapping[str, Dim]
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    buffers: tuple[Buffer, ...]
    kernels: tuple[Kernel, ...]
    launches: tuple[Launch, ...]
    checks: tuple[Check, ...] = ()
    format: int = FORMAT

    @property
    def is_by_hand(self) -> bool:
        """Whether a user wrote the kernels, for the layouts that the inputs declare: there are no others to be compiled."""
        return any("written_at" in kernel.facts for kernel in self.kernels)

    def kernel(self, name: str) -> Kernel:
        """The kernel of a name."""
        return next(k for k in self.kernels if k.name == name)

    @property
    def number_inputs(self) -> tuple[int, ...]:
        """The inputs without dimensions whose numbers are sizes of the program: a launcher reads them on the host."""
        return tuple(sorted({dim.input for dim in self.dims.values() if not self.inputs[dim.input].shape}))

    def to_json(self) -> str:
        """The text of manifest.json."""
        return json.dumps(_plain(self), indent=1)

    @staticmethod
    def from_json(text: str | bytes) -> "Manifest":
        """Read and check manifest.json. Raises `TreadleError` TR931 that names the place."""
        try:
            value = json.loads(text)
        except (ValueError, UnicodeDecodeError) as problem:
            raise TreadleError(errors.MANIFEST, place="manifest", reason=problem) from None
        return _manifest(Reader(value, "manifest"))


# writing


_RARE: Final = ("index_range", "in_place", "overlaps", "facts")
"""Fields that are written only where they say something."""


def _plain(value: Any) -> Any:
    match value:
        case Expr():
            known = value.as_int()
            return str(value) if known is None else known
        case Manifest():
            head = {"format": value.format, "treadle": value.treadle, "target": value.target, "function": value.function}
            names = ("dims", "inputs", "outputs", "buffers", "checks", "kernels", "launches")
            return head | {name: _plain(getattr(value, name)) for name in names}
        case Buffer():
            record: dict[str, Any] = {"name": value.name, "role": value.role, "bytes": _plain(value.bytes), "align": value.align}
            marks = {name: True for name, marked in (("zero", value.zero), ("kept", value.kept)) if marked}
            return record | ({"file": value.file} if value.file else {}) | marks
        case TensorMapValue():
            seen = {name: plain for name, plain in _fields(value.map).items() if plain or not name.endswith("corner")}
            return {"tensor_map": {"buffer": value.buffer, **seen, "byte_offset": _plain(value.byte_offset)}}
        case Check() | TensorRecord() | Kernel():
            return {name: plain for name, plain in _fields(value).items() if plain or name not in _RARE}
        case Dim() | KernelArg() | PointerValue() | ScalarValue() | Launch():
            return _fields(value)
        case Mapping():
            return {str(k): _plain(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case tuple() | list():
            return [_plain(v) for v in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value


def _fields(record: Any) -> dict[str, Any]:
    return {name: _plain(getattr(record, name)) for name in record.record_names}


# reading


def _manifest(r: Reader) -> Manifest:
    version = r.integer("format")
    if version != FORMAT:
        raise r.at("format").error(f"format {version}, this is a reader of format {FORMAT}")
    dims = {name: Dim(d.integer("input", low=0), d.integer("axis")) for name, d in r.mapping("dims")}
    sized = r.with_symbols(dims)
    inputs = tuple(_tensor(t) for t in sized.items("inputs"))
    for name, d in dims.items():
        if d.input >= len(inputs) or not -len(inputs[d.input].shape) <= d.axis < max(len(inputs[d.input].shape), 1):
            raise r.at("dims").at(name).error("there is no such input axis")
    made = Manifest(
        format=version,
        treadle=r.text("treadle"),
        target=r.text("target"),
        function=r.text("function"),
        dims=dims,
        inputs=inputs,
        outputs=tuple(_tensor(t) for t in sized.items("outputs")),
        buffers=tuple(_buffer(b) for b in sized.items("buffers")),
        checks=tuple(
            Check(
                c.size("left"),
                c.choice("relation", get_args(Relation)),
                c.size("right"),
                c.text("message", ""),
                c.flag("index_range", default=False),
            )
            for c in sized.items("checks", optional=True)
        ),
        kernels=tuple(_kernel(k) for k in sized.items("kernels")),
        launches=tuple(_launch(item) for item in sized.items("launches")),
    )
    r.only("format", "treadle", "target", "function", "dims", "inputs", "outputs", "buffers", "checks", "kernels", "launches")
    _check_names(made, r)
    return made


def _tensor(r: Reader) -> TensorRecord:
    made = TensorRecord(
        r.text("name"), r.text("dtype"), r.sizes("shape"), r.sizes("strides"), r.text("buffer"), r.flag("in_place", default=False)
    )
    if len(made.shape) != len(made.strides):
        raise r.error("shape and strides differ in length")
    r.only("name", "dtype", "shape", "strides", "buffer", "in_place")
    return made


def _buffer(r: Reader) -> Buffer:
    role: Role = r.choice("role", get_args(Role))
    file = r.file_name("file") if role == "constant" or r.has("file") else None
    align = r.integer("align", low=1)
    if align & (align - 1):
        raise r.at("align").error(f"{align} is no power of two")
    zero, kept = r.flag("zero", default=False), r.flag("kept", default=False)
    if kept and not (zero and role == "temporary"):
        raise r.at("kept").error("only temporary memory of zeros is kept")
    r.only("name", "role", "bytes", "align", "file", "zero", "kept")
    return Buffer(r.text("name"), role, r.size("bytes"), align, file, zero, kept)


def _kernel(r: Reader) -> Kernel:
    size = r.integer("kernarg_bytes", low=0)
    args = tuple(KernelArg(a.choice("kind", get_args(ArgKind)), a.integer("offset", low=0)) for a in r.items("args"))
    for i, arg in enumerate(args):
        if arg.offset + ARG_BYTES[arg.kind] > size:
            raise r.at("args").at(i).error(f"ends behind the {size} bytes of the argument block")
    r.only("name", "symbol", "binary", "block", "cluster", "shared_bytes", "kernarg_bytes", "args", "facts", "overlaps")
    return Kernel(
        name=r.text("name"),
        symbol=r.text("symbol"),
        binary=r.file_name("binary"),
        block=r.triple("block"),
        cluster=r.triple("cluster"),
        shared_bytes=r.integer("shared_bytes", low=0),
        kernarg_bytes=size,
        args=args,
        facts=dict(r.mapping_values("facts")),
        overlaps=r.flag("overlaps", default=False),
    )


def _launch(r: Reader) -> Launch:
    x, y, z = r.sizes("grid", count=3)
    r.only("kernel", "grid", "args")
    return Launch(r.text("kernel"), (x, y, z), tuple(_value(a) for a in r.items("args")))


def _value(r: Reader) -> ArgValue:
    if r.has("tensor_map"):
        r.only("tensor_map")
        return _tensor_map(r.at("tensor_map"))
    if r.has("value"):
        r.only("value")
        return ScalarValue(r.size_or_float("value"))
    r.only("buffer", "byte_offset")
    return PointerValue(r.text("buffer"), r.size("byte_offset", default=0))


def _tensor_map(r: Reader) -> TensorMapValue:
    global_dim = r.sizes("global_dim")
    rank, is_walk = len(global_dim), r.has("lower_corner")
    r.only("buffer", *TensorMap.record_names, "byte_offset")
    seen = TensorMap(
        dtype=r.text("dtype"),
        global_dim=global_dim,
        global_stride_bytes=r.sizes("global_stride_bytes", count=rank - 1),
        box_dim=r.integers("box_dim", 2 if is_walk else rank),
        element_stride=r.integers("element_stride", rank),
        swizzle=r.choice("swizzle", get_args(Swizzle)),
        interleave=r.choice("interleave", get_args(Interleave)),
        l2_promotion=r.choice("l2_promotion", get_args(Promotion)),
        oob_fill=r.choice("oob_fill", get_args(Fill)),
        lower_corner=r.integers("lower_corner", rank - 2, low=None) if is_walk else (),
        upper_corner=r.integers("upper_corner", rank - 2, low=None) if is_walk else (),
    )
    return TensorMapValue(r.text("buffer"), seen, r.size("byte_offset", default=0))


_VALUE_OF: Final[Mapping[ArgKind, type]] = {"pointer": PointerValue, "tensor_map": TensorMapValue}


def _check_names(m: Manifest, r: Reader) -> None:
    for what, names in (("buffers", [b.name for b in m.buffers]), ("kernels", [k.name for k in m.kernels])):
        if len(set(names)) != len(names):
            raise r.at(what).error("two have one name")
    buffers, kernels = {b.name for b in m.buffers}, {k.name: k for k in m.kernels}
    for field_name, tensors in (("inputs", m.inputs), ("outputs", m.outputs)):
        for i, tensor in enumerate(tensors):
            if tensor.buffer not in buffers:
                raise r.at(field_name).at(i).error(f"there is no buffer '{tensor.buffer}'")
    for i, launch in enumerate(m.launches):
        here = r.at("launches").at(i)
        if launch.kernel not in kernels:
            raise here.error(f"there is no kernel '{launch.kernel}'")
        wanted = kernels[launch.kernel].args
        if len(wanted) != len(launch.args):
            raise here.error(f"'{launch.kernel}' takes {len(wanted)} arguments, {len(launch.args)} are given")
        for j, (arg, value) in enumerate(zip(wanted, launch.args, strict=True)):
            if not isinstance(value, _VALUE_OF.get(arg.kind, ScalarValue)):
                raise here.at("args").at(j).error(f"does not fit kind {arg.kind}")
            if not isinstance(value, ScalarValue) and value.buffer not in buffers:
                raise here.at("args").at(j).error(f"there is no buffer '{value.buffer}'")
