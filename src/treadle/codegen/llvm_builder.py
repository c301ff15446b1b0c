"""Instructions as LLVM text, one method each, with types carried by the values.

The builder appends to the current block of one function. Integer arithmetic folds (see `llvm_fold`), and a pure instruction that was
already emitted on every path to here is reused (value numbering with one scope per structured region, see `llvm_control`). `fast_math` is
put on every floating instruction that takes flags, unless the call gives its own.
"""

from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from typing import Final

from treadle.codegen import llvm_types as ty
from treadle.codegen.llvm_fold import fold_binary, fold_cast, fold_compare
from treadle.codegen.llvm_module import Function
from treadle.codegen.llvm_types import Value
from treadle.errors import InternalError

_LABEL: Final = "label"


class Block:
    """A basic block: a name to branch to, placed with `Builder.place`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Instructions:
    """The straight-line part of the builder; `Builder` (in `llvm_control`) adds structured control flow."""

    def __init__(self, function: Function, fast_math: str = "") -> None:
        self.function = function
        self.module = function.module
        self.fast_math = fast_math
        self.current = Block("entry")
        self._lines = function.lines
        self._lines.append("entry:")
        self._scopes: list[dict[tuple[str, ...], Value]] = [{}]
        self._open = True
        self.location = ""  # `, !dbg !3`: where the instructions that follow come from

    # raw lines

    def emit(self, type: str, instruction: str) -> Value:
        """Append `%fresh = instruction` and return its value; `void` appends the instruction alone."""
        if not self._open:
            raise InternalError(f"instruction after the end of block {self.current.name} in {self.function.name}: {instruction}")
        if type == ty.VOID:
            self._lines.append(f"  {instruction}{self.location}")
            return Value(type, "")
        name = "%" + self.function.fresh()
        self._lines.append(f"  {name} = {instruction}{self.location}")
        return Value(type, name)

    def pure(self, type: str, instruction: str) -> Value:
        """`emit` for an instruction without effects: an earlier equal one is reused where it dominates."""
        key = (type, instruction)
        for scope in self._scopes:
            if key in scope:
                return scope[key]
        made = self.emit(type, instruction)
        self._scopes[-1][key] = made
        return made

    @contextmanager
    def scope(self):
        """Pure values emitted inside are not reused outside (for a region that not every path enters)."""
        self._scopes.append({})
        try:
            yield
        finally:
            self._scopes.pop()

    def comment(self, text: str) -> None:
        """A comment line."""
        self._lines.append("  ; " + text.replace("\n", " "))

    # integers

    def binary(self, op: str, a: Value, b: Value, flags: str = "") -> Value:
        """An integer instruction by name; `flags` such as `nuw`, `nsw`, `exact`, `disjoint`."""
        if a.type != b.type:
            raise InternalError(f"{op} of {a!r} and {b!r}")
        known, folded_op, a, b = fold_binary(op, a, b)
        if known is not None:
            return known
        if folded_op != op:
            flags = ""
        return self.pure(a.type, f"{folded_op} {flags + ' ' if flags else ''}{a.type} {a.text}, {b.text}")

    def add(self, a: Value, b: Value, flags: str = "") -> Value:
        return self.binary("add", a, b, flags)

    def sub(self, a: Value, b: Value, flags: str = "") -> Value:
        return self.binary("sub", a, b, flags)

    def mul(self, a: Value, b: Value, flags: str = "") -> Value:
        return self.binary("mul", a, b, flags)

    def sdiv(self, a: Value, b: Value) -> Value:
        return self.binary("sdiv", a, b)

    def udiv(self, a: Value, b: Value) -> Value:
        return self.binary("udiv", a, b)

    def srem(self, a: Value, b: Value) -> Value:
        return self.binary("srem", a, b)

    def urem(self, a: Value, b: Value) -> Value:
        return self.binary("urem", a, b)

    def shl(self, a: Value, b: Value, flags: str = "") -> Value:
        return self.binary("shl", a, b, flags)

    def lshr(self, a: Value, b: Value) -> Value:
        return self.binary("lshr", a, b)

    def ashr(self, a: Value, b: Value) -> Value:
        return self.binary("ashr", a, b)

    def and_(self, a: Value, b: Value) -> Value:
        return self.binary("and", a, b)

    def or_(self, a: Value, b: Value, flags: str = "") -> Value:
        return self.binary("or", a, b, flags)

    def xor(self, a: Value, b: Value) -> Value:
        return self.binary("xor", a, b)

    def not_(self, a: Value) -> Value:
        return self.binary("xor", a, ty.constant(a.type, -1))

    def neg(self, a: Value) -> Value:
        return self.binary("sub", ty.zero(a.type), a)

    def icmp(self, predicate: str, a: Value, b: Value) -> Value:
        """Compare integers or pointers; result is i1 or a vector of i1."""
        if a.type != b.type:
            raise InternalError(f"icmp of {a!r} and {b!r}")
        known = fold_compare(predicate, a, b)
        if known is not None and ty.vector_shape(a.type) is None:
            return ty.TRUE if known else ty.FALSE
        return self.pure(_condition_type(a.type), f"icmp {predicate} {a.type} {a.text}, {b.text}")

    # floating point

    def _float(self, op: str, type: str, operands: str, flags: str | None) -> Value:
        flags = self.fast_math if flags is None else flags
        return self.emit(type, f"{op} {flags + ' ' if flags else ''}{operands}")

    def fbinary(self, op: str, a: Value, b: Value, flags: str | None = None) -> Value:
        """`fadd`, `fsub`, `fmul`, `fdiv` or `frem`; `flags` None takes the builder's."""
        if a.type != b.type:
            raise InternalError(f"{op} of {a!r} and {b!r}")
        return self._float(op, a.type, f"{a.type} {a.text}, {b.text}", flags)

    def fadd(self, a: Value, b: Value, flags: str | None = None) -> Value:
        return self.fbinary("fadd", a, b, flags)

    def fsub(self, a: Value, b: Value, flags: str | None = None) -> Value:
        return self.fbinary("fsub", a, b, flags)

    def fmul(self, a: Value, b: Value, flags: str | None = None) -> Value:
        return self.fbinary("fmul", a, b, flags)

    def fdiv(self, a: Value, b: Value, flags: str | None = None) -> Value:
        return self.fbinary("fdiv", a, b, flags)

    def fneg(self, a: Value, flags: str | None = None) -> Value:
        return self._float("fneg", a.type, a.typed, flags)

    def fcmp(self, predicate: str, a: Value, b: Value) -> Value:
        """Compare floats; result is i1 or a vector of i1."""
        return self.pure(_condition_type(a.type), f"fcmp {predicate} {a.type} {a.text}, {b.text}")

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """`condition ? a : b`."""
        if a.type != b.type:
            raise InternalError(f"select of {a!r} and {b!r}")
        if condition.number is not None:
            return a if condition.number else b
        if a.text == b.text:
            return a
        return self.pure(a.type, f"select {condition.typed}, {a.typed}, {b.typed}")

    # casts

    def cast(self, op: str, value: Value, type: str, flags: str = "") -> Value:
        """A conversion instruction by name; to the same type it is nothing."""
        if value.type == type:
            return value
        known = fold_cast(op, value, type)
        return known if known is not None else self.pure(type, f"{op} {flags + ' ' if flags else ''}{value.typed} to {type}")

    def zext(self, value: Value, type: str) -> Value:
        return self.cast("zext", value, type)

    def sext(self, value: Value, type: str) -> Value:
        return self.cast("sext", value, type)

    def trunc(self, value: Value, type: str) -> Value:
        return self.cast("trunc", value, type)

    def resize(self, value: Value, type: str, signed: bool = True) -> Value:
        """An integer brought to another width: extended or truncated as needed."""
        have, want = ty.bit_width(value.type), ty.bit_width(type)
        return self.cast("trunc" if have > want else "sext" if signed else "zext", value, type)

    def fpext(self, value: Value, type: str) -> Value:
        return self.cast("fpext", value, type)

    def fptrunc(self, value: Value, type: str) -> Value:
        return self.cast("fptrunc", value, type)

    def sitofp(self, value: Value, type: str) -> Value:
        return self.cast("sitofp", value, type)

    def uitofp(self, value: Value, type: str) -> Value:
        return self.cast("uitofp", value, type)

    def fptosi(self, value: Value, type: str) -> Value:
        return self.cast("fptosi", value, type)

    def fptoui(self, value: Value, type: str) -> Value:
        return self.cast("fptoui", value, type)

    def bitcast(self, value: Value, type: str) -> Value:
        return self.cast("bitcast", value, type)

    def ptrtoint(self, value: Value, type: str) -> Value:
        return self.cast("ptrtoint", value, type)

    # memory

    def gep(self, base: Value, offset: Value, element: str = ty.I8, flags: str = "inbounds") -> Value:
        """`base + offset * sizeof(element)`; a constant 0 offset gives `base`."""
        if offset.number == 0:
            return base
        return self.pure(base.type, f"getelementptr {flags + ' ' if flags else ''}{element}, {base.typed}, {offset.typed}")

    def load(self, type: str, address: Value, align: int, *, metadata: str = "", volatile: bool = False) -> Value:
        """Load; `align` in bytes; `metadata` as `!invariant.load !0, !alias.scope !3`."""
        tail = f", {metadata}" if metadata else ""
        return self.emit(type, f"load {'volatile ' if volatile else ''}{type}, {address.typed}, align {align}{tail}")

    def store(self, value: Value, address: Value, align: int, *, metadata: str = "", volatile: bool = False) -> None:
        """Store; `align` in bytes."""
        tail = f", {metadata}" if metadata else ""
        self.emit(ty.VOID, f"store {'volatile ' if volatile else ''}{value.typed}, {address.typed}, align {align}{tail}")

    def fence(self, ordering: str, scope: str = "", metadata: str = "") -> None:
        """`fence`; `scope` such as `workgroup`, `metadata` such as `!mmra !0`."""
        named = f'syncscope("{scope}") ' if scope else ""
        self.emit(ty.VOID, f"fence {named}{ordering}{', ' + metadata if metadata else ''}")

    def atomic(self, op: str, address: Value, value: Value, ordering: str, align: int, scope: str = "", metadata: str = "") -> Value:
        """`atomicrmw op`; returns the old value."""
        named = f'syncscope("{scope}") ' if scope else ""
        tail = f", {metadata}" if metadata else ""
        return self.emit(value.type, f"atomicrmw {op} {address.typed}, {value.typed} {named}{ordering}, align {align}{tail}")

    # vectors and structures

    def extract(self, value: Value, index: int | Value) -> Value:
        """One element of a vector."""
        position = index if isinstance(index, Value) else ty.i32(index)
        return self.pure(ty.element_type(value.type), f"extractelement {value.typed}, {position.typed}")

    def insert(self, value: Value, element: Value, index: int | Value) -> Value:
        """The vector with one element replaced."""
        position = index if isinstance(index, Value) else ty.i32(index)
        return self.pure(value.type, f"insertelement {value.typed}, {element.typed}, {position.typed}")

    def shuffle(self, a: Value, b: Value | None, mask: Sequence[int]) -> Value:
        """Elements of `a` (then `b`) picked by `mask`; -1 picks nothing (poison)."""
        second = b or ty.poison(a.type)
        listed = ", ".join(f"i32 {m}" if m >= 0 else "i32 poison" for m in mask)
        result = ty.vector(len(mask), ty.element_type(a.type))
        return self.pure(result, f"shufflevector {a.typed}, {second.typed}, <{len(mask)} x i32> <{listed}>")

    def build_vector(self, elements: Sequence[Value]) -> Value:
        """A vector from scalars of one type."""
        if all(e.number is not None for e in elements):
            return ty.constant_vector(list(elements))
        result = ty.poison(ty.vector(len(elements), elements[0].type))
        for i, element in enumerate(elements):
            result = self.insert(result, element, i)
        return result

    def elements(self, value: Value) -> list[Value]:
        """The scalars of a vector (a scalar is a list of itself)."""
        shape = ty.vector_shape(value.type)
        return [self.extract(value, i) for i in range(shape[0])] if shape else [value]

    def splat(self, value: Value, length: int) -> Value:
        """A vector with `value` in every element."""
        first = self.insert(ty.poison(ty.vector(length, value.type)), value, 0)
        return self.shuffle(first, None, [0] * length)

    def extract_value(self, value: Value, index: int) -> Value:
        """One member of a structure or array of registers."""
        whole = self.module.literal_type(value.type)
        member = ty.struct_elements(whole)[index] if whole.startswith("{") else whole[1:-1].split(" x ", 1)[1]
        return self.pure(member, f"extractvalue {value.typed}, {index}")

    def insert_value(self, value: Value, member: Value, index: int) -> Value:
        """The structure with one member replaced."""
        return self.pure(value.type, f"insertvalue {value.typed}, {member.typed}, {index}")

    # calls

    def call(self, name: str, result: str, arguments: Sequence[Value], *, attributes: Iterable[str] = (), flags: str = "") -> Value:
        """Call a function that is defined or declared in the module."""
        return self.emit(result, self._call_text(name, result, arguments, attributes, flags))

    def intrinsic(
        self,
        name: str,
        result: str,
        arguments: Sequence[Value] = (),
        *,
        flags: str | None = None,
        pure: bool = False,
        attributes: Iterable[str] = (),
        metadata: str = "",
    ) -> Value:
        """Call an LLVM intrinsic by its full (mangled) name; declares it. `pure` allows reuse of an equal earlier call."""
        self.module.declare(name, result, [a.type for a in arguments])
        floating = self.fast_math if flags is None and ty.is_float(result) else flags or ""
        text = self._call_text(name, result, arguments, attributes, floating) + (f", {metadata}" if metadata else "")
        return self.pure(result, text) if pure else self.emit(result, text)

    def fake_use(self, value: Value) -> None:
        """Use a value here, by no instruction: it is computed in this block, however far away its other uses are."""
        self.module.declare("llvm.fake.use", "void", ["..."])
        self.emit("void", f"call void (...) @llvm.fake.use({value.typed})")

    def math(self, name: str, arguments: Sequence[Value], flags: str | None = None) -> Value:
        """A pure intrinsic overloaded on its result type, which is the first argument's: `math("llvm.fma", [a, b, c])`."""
        type = arguments[0].type
        return self.intrinsic(f"{name}.{mangled(type)}", type, arguments, flags=flags, pure=True)

    def _call_text(self, name: str, result: str, arguments: Sequence[Value], attributes: Iterable[str], flags: str) -> str:
        listed = ", ".join(a.typed for a in arguments)
        group = self.module.attribute_group(attributes)
        return f"call {flags + ' ' if flags else ''}{result} @{name}({listed}){' ' + group if group else ''}"

    def asm(
        self,
        template: str,
        constraints: str,
        arguments: Sequence[Value] = (),
        result: str = ty.VOID,
        *,
        side_effect: bool = True,
        convergent: bool = True,
        attributes: Iterable[str] = (),
        argument_attributes: Sequence[str] = (),
    ) -> Value:
        """Inline assembly; several outputs come as a structure, of a type with a name: LLVM's time to read a module goes with its length.

        Convergent by default: else passes may duplicate or sink it.
        """
        result = self.module.named_type(result) if result.startswith("{") else result
        words = [*attributes, "nounwind", *(["convergent"] if convergent else [])]
        extra = [*argument_attributes, *[""] * (len(arguments) - len(argument_attributes))]
        listed = ", ".join(f"{a.type} {e + ' ' if e else ''}{a.text}" for a, e in zip(arguments, extra, strict=True))
        head = f"call {result} asm {'sideeffect ' if side_effect else ''}{_asm_text(template)}, {_asm_text(constraints)}"
        text = f"{head}({listed}) {self.module.attribute_group(words)}"
        return self.emit(result, text) if side_effect or result == ty.VOID else self.pure(result, text)


def _asm_text(text: str) -> str:
    escaped = text.replace("\\", "\\5C").replace('"', "\\22").replace("\n", "\\0A").replace("\t", "\\09")
    return f'"{escaped}"'


def _condition_type(type: str) -> str:
    shape = ty.vector_shape(type)
    return ty.vector(shape[0], ty.I1) if shape else ty.I1


def mangled(type: str) -> str:
    """The suffix that overloaded intrinsics carry for a type: f32, v4f16, p3, i32."""
    shape = ty.vector_shape(type)
    if shape:
        return f"v{shape[0]}{mangled(shape[1])}"
    if type.startswith("ptr"):
        return f"p{type.removeprefix('ptr addrspace(').removesuffix(')') if '(' in type else 0}"
    return {ty.F16: "f16", ty.BF16: "bf16", ty.F32: "f32", ty.F64: "f64"}.get(type, type)
