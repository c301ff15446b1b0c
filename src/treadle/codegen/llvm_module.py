"""The module around LLVM functions: globals, declarations, attribute groups, metadata, and the final text."""

from collections.abc import Iterable, Sequence

from treadle.codegen.llvm_types import Value, pointer
from treadle.errors import InternalError
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class Parameter:
    """A function parameter; `attributes` is LLVM text, e.g. `byval([128 x i8]) align 64 "nvvm.grid_constant"`."""

    type: str
    name: str
    attributes: str = ""


def quoted(text: str) -> str:
    """`text` as an LLVM string: quotes, backslashes and what is not printable are escaped."""
    safe = "".join(chr(c) if 32 <= c < 127 and c not in (34, 92) else f"\\{c:02X}" for c in text.encode())
    return f'"{safe}"'


def key_value(key: str, value: str | int | None = None) -> str:
    """A string attribute: `"key"` or `"key"="value"`."""
    return quoted(key) if value is None else f"{quoted(key)}={quoted(str(value))}"


class Function:
    """A function under construction: parameters as values, and the text of its blocks."""

    __slots__ = ("_counter", "header", "lines", "module", "name", "parameters")

    def __init__(self, module: "Module", name: str, header: str, parameters: Sequence[Parameter]) -> None:
        self.module = module
        self.name = name
        self.header = header
        self.parameters = [Value(p.type, f"%{p.name}") for p in parameters]
        self.lines: list[str] = []
        self._counter = 0

    def fresh(self, stem: str = "v") -> str:
        """A name that no other value or block of this function has (without `%`)."""
        self._counter += 1
        return f"{stem}{self._counter}"

    def render(self) -> str:
        """The definition's text."""
        return "\n".join((self.header + " {", *self.lines, "}"))


class Module:
    """One LLVM module: create functions with `function`, then `str(module)` is its text."""

    def __init__(self, triple: str, name: str = "treadle") -> None:
        self.triple = triple
        self.name = name
        self.functions: list[Function] = []
        self._globals: dict[str, str] = {}
        self._declarations: dict[str, str] = {}
        self._types: dict[str, str] = {}
        self._literals: dict[str, str] = {}
        self._groups: dict[str, str] = {}
        self._metadata: list[str] = []
        self._metadata_ids: dict[str, str] = {}
        self._named_metadata: list[str] = []

    def function(
        self,
        name: str,
        parameters: Sequence[Parameter],
        *,
        result: str = "void",
        convention: str = "",
        attributes: Iterable[str] = (),
        linkage: str = "",
    ) -> Function:
        """Define a function. `convention` is `ptx_kernel`, `amdgpu_kernel` or empty; `attributes` are words or `key_value` strings."""
        names = {p.name for p in parameters}
        if len(names) != len(parameters):
            raise InternalError(f"two parameters of '{name}' have one name")
        listed = ", ".join(" ".join(filter(None, (p.type, p.attributes, f"%{p.name}"))) for p in parameters)
        group = self.attribute_group(attributes)
        words = ("define", linkage, convention, result, f"@{name}({listed})", group)
        made = Function(self, name, " ".join(filter(None, words)), parameters)
        self.functions.append(made)
        return made

    def declare(self, name: str, result: str, parameter_types: Sequence[str], attributes: Iterable[str] = ()) -> None:
        """Declare an external function or intrinsic once; a second declaration must agree."""
        text = f"declare {result} @{name}({', '.join(parameter_types)}){_spaced(self.attribute_group(attributes))}"
        if self._declarations.setdefault(name, text) != text:
            raise InternalError(f"'{name}' is declared twice: {self._declarations[name]} / {text}")

    def shared_array(self, name: str, size: int | None, align: int, address_space: int = 3) -> Value:
        """A workgroup-shared byte array; `size` None makes it external, sized at launch. Returns its address."""
        linkage = "external" if size is None else "internal"
        start = "" if size is None else " poison"
        return self.global_variable(
            name, f"[{size or 0} x i8]", f"{linkage} addrspace({address_space}) global", start, align, address_space
        )

    def constant_array(self, name: str, type: str, initializer: str, align: int, address_space: int) -> Value:
        """A constant global with LLVM text as its initial value. Returns its address."""
        words = f"internal unnamed_addr addrspace({address_space}) constant"
        return self.global_variable(name, type, words, f" {initializer}", align, address_space)

    def global_variable(self, name: str, type: str, words: str, initializer: str, align: int, address_space: int) -> Value:
        """A global from its parts; the same name again must be the same global. Returns its address."""
        text = f"@{name} = {words} {type}{initializer}, align {align}"
        if self._globals.setdefault(name, text) != text:
            raise InternalError(f"the global '{name}' is defined twice: {self._globals[name]} / {text}")
        return Value(pointer(address_space), f"@{name}")

    def named_type(self, literal: str) -> str:
        """A short name for a structure type, which is written out once."""
        name = self._types.setdefault(literal, f"%s{len(self._types)}")
        self._literals[name] = literal
        return name

    def literal_type(self, type: str) -> str:
        """What a name of `named_type` stands for; any other type as it is."""
        return self._literals.get(type, type)

    def attribute_group(self, attributes: Iterable[str]) -> str:
        """`#n` of the group that holds these attributes (sorted, shared); empty text for none."""
        body = " ".join(sorted(set(attributes)))
        return self._groups.setdefault(body, f"#{len(self._groups)}") if body else ""

    def metadata(self, body: str, *, distinct: bool = False) -> str:
        """`!n` of a metadata node with this body, e.g. `!{!"amdgpu-synchronize-as", !"local"}`; equal bodies share a node.

        In a distinct node `{self}` stands for the node itself.
        """
        if not distinct and body in self._metadata_ids:
            return self._metadata_ids[body]
        node = f"!{len(self._metadata)}"
        self._metadata.append(f"{node} = {'distinct ' if distinct else ''}{body.replace('{self}', node) if distinct else body}")
        if not distinct:
            self._metadata_ids[body] = node
        return node

    def line_table(self, function: Function, file: str) -> str:
        """Let instructions of `function` name lines of `file`; the scope for `location`. The machine code stays as it is."""
        source = self.metadata(f'!DIFile(filename: {quoted(file)}, directory: "")')
        words = f"language: DW_LANG_C99, file: {source}, isOptimized: true, runtimeVersion: 0, emissionKind: DebugDirectivesOnly"
        unit = self.metadata(f"!DICompileUnit({words})", distinct=True)
        kind = self.metadata(f"!DISubroutineType(types: {self.metadata('!{}')})")
        flags = "spFlags: DISPFlagDefinition | DISPFlagOptimized"
        words = f"name: {quoted(function.name)}, file: {source}, line: 0, type: {kind}, {flags}, unit: {unit}"
        scope = self.metadata(f"!DISubprogram({words})", distinct=True)
        self.named_metadata("llvm.dbg.cu", [unit])
        self.named_metadata("llvm.module.flags", [self.metadata('!{i32 2, !"Debug Info Version", i32 3}')])
        function.header += f" !dbg {scope}"
        return scope

    def location(self, scope: str, line: int) -> str:
        """What an instruction from a line of the scope's file carries at its end."""
        return f", !dbg {self.metadata(f'!DILocation(line: {line}, scope: {scope})')}"

    def named_metadata(self, name: str, nodes: Sequence[str]) -> None:
        """`!name = !{!0, ..}`."""
        self._named_metadata.append(f"!{name} = !{{{', '.join(nodes)}}}")

    def __str__(self) -> str:
        parts = [f"; ModuleID = '{self.name}'", f"target triple = {quoted(self.triple)}", ""]
        parts += [f"{name} = type {literal}" for literal, name in self._types.items()]
        parts += self._globals.values()
        parts += ["", *(f.render() + "\n" for f in self.functions)]
        parts += self._declarations.values()
        parts += [f"attributes {group} = {{ {body} }}" for body, group in self._groups.items()]
        parts += [*self._named_metadata, *self._metadata, ""]
        return "\n".join(parts)


def _spaced(text: str) -> str:
    return f" {text}" if text else ""
