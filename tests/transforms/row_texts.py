"""Texts of softmax, normalisations and other programs on rows: functions of %x (and of scales) over any sizes, -1 for dynamic ones."""

from collections.abc import Sequence

KINDS = ("softmax", "layer_norm", "rms_norm", "moments", "column_softmax", "group_norm")


def tensor(sizes: Sequence[int], element: str = "f32") -> str:
    return f"tensor<{''.join(f'{size if size >= 0 else chr(63)}x' for size in sizes)}{element}>"


class Text:
    """A function under construction: `generic` appends an operation over `rank` loops, the last `reduced` of `loops` reduced."""

    def __init__(self, sizes: Sequence[int], element: str) -> None:
        self.sizes, self.element, self.lines = tuple(sizes), element, list[str]()
        self.args = [f"%x: {tensor(sizes, element)}"]
        for axis in range(len(sizes)):
            self.lines.append(f"%c{axis} = arith.constant {axis} : index")
            self.lines.append(f"%n{axis} = tensor.dim %x, %c{axis} : {tensor(sizes, element)}")
        self.count = 0

    def empty(self, dims: Sequence[int], element: str) -> tuple[str, str]:
        self.count += 1
        type_ = tensor([self.sizes[d] for d in dims], element)
        dynamic = ", ".join(f"%n{d}" for d in dims if self.sizes[d] < 0)
        self.lines.append(f"%e{self.count} = tensor.empty({dynamic}) : {type_}")
        return f"%e{self.count}", type_

    def generic(
        self,
        inputs: Sequence[tuple[str, Sequence[int], str]],
        out: Sequence[int],
        body: str,
        element: str = "f32",
        start: str | None = None,
    ) -> tuple[str, Sequence[int], str]:
        """`inputs`: (value, its loops, element); `body`: lines on %a0, %a1, .. and %acc that end in %r. `start`: of a reduction."""
        rank = len(self.sizes)
        value, type_ = self.empty(out, element)
        if start is not None:
            self.lines.append(f"%z{self.count} = arith.constant {start} : {element}")
            self.lines.append(f"%s{self.count} = linalg.fill ins(%z{self.count} : {element}) outs({value} : {type_}) -> {type_}")
            value = f"%s{self.count}"
        loops = ", ".join(f"d{d}" for d in range(rank))
        maps = ", ".join(f"affine_map<({loops}) -> ({', '.join(f'd{d}' for d in dims)})>" for dims in (*(i[1] for i in inputs), out))
        kinds = ", ".join('"parallel"' if start is None or d in out else '"reduction"' for d in range(rank))
        names, types = ", ".join(i[0] for i in inputs), ", ".join(tensor([self.sizes[d] for d in i[1]], i[2]) for i in inputs)
        arguments = ", ".join([*(f"%a{n}: {i[2]}" for n, i in enumerate(inputs)), f"%acc: {element}"])
        self.lines.append(
            f"%v{self.count} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} ins({names} : {types})"
            f" outs({value} : {type_}) {{\n^bb0({arguments}):\n{body}\nlinalg.yield %r : {element} }} -> {type_}"
        )
        return f"%v{self.count}", out, element

    def kept(self, inputs: Sequence[tuple[str, Sequence[int], str]], out: Sequence[int], body: str) -> tuple[str, Sequence[int], str]:
        """An elementwise operation over the kept loops."""
        value, type_ = self.empty(out, "f32")
        loops = ", ".join(f"d{d}" for d in out)
        map_ = f"affine_map<({loops}) -> ({loops})>"
        maps = ", ".join([map_] * (len(inputs) + 1))
        names, types = ", ".join(i[0] for i in inputs), ", ".join(tensor([self.sizes[d] for d in i[1]], i[2]) for i in inputs)
        kinds, arguments = ", ".join(['"parallel"'] * len(out)), ", ".join([*(f"%a{n}: {i[2]}" for n, i in enumerate(inputs)), "%acc: f32"])
        self.lines.append(
            f"%v{self.count} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} ins({names} : {types})"
            f" outs({value} : {type_}) {{\n^bb0({arguments}):\n{body}\nlinalg.yield %r : f32 }} -> {type_}"
        )
        return f"%v{self.count}", out, "f32"

    def widened(self, number: int = 0) -> tuple[str, str]:
        """The line that makes f32 of an element, and its name."""
        if self.element == "f32":
            return "", f"%a{number}"
        return f"%w{number} = arith.extf %a{number} : {self.element} to f32\n", f"%w{number}"

    def narrowed(self, name: str) -> str:
        return f"%r = arith.truncf {name} : f32 to {self.element}" if self.element != "f32" else f"%r = arith.addf {name}, %zero : f32"

    def finished(self, results: Sequence[tuple[str, Sequence[int], str]]) -> str:
        types = ", ".join(tensor([self.sizes[d] for d in r[1]], r[2]) for r in results)
        body = "\n".join(self.lines)
        return (
            f"func.func @f({', '.join(self.args)}) -> ({types}) {{\n%zero = arith.constant 0.0 : f32\n{body}\n"
            f"return {', '.join(r[0] for r in results)} : {types}\n}}"
        )


def rows_text(kind: str, sizes: Sequence[int], element: str = "f32") -> str:
    """The text of one of `KINDS`; the rows are along the last axis, along the first for "column_softmax", the last two for "group_norm"."""
    text, all_ = Text(sizes, element), tuple(range(len(sizes)))
    reduced = {"column_softmax": (0,), "group_norm": all_[-2:]}.get(kind, all_[-1:])
    kept = tuple(d for d in all_ if d not in reduced)
    x, (wide, a) = ("%x", all_, element), text.widened()
    if kind.endswith("softmax"):
        top = text.generic([x], kept, f"{wide}%r = arith.maximumf {a}, %acc : f32", start="0xFF800000")
        e = text.generic([x, top], all_, f"{wide}%d = arith.subf {a}, %a1 : f32\n%r = math.exp %d : f32")
        total = text.generic([e], kept, "%r = arith.addf %a0, %acc : f32", start="0.0")
        return text.finished([text.generic([e, total], all_, f"%q = arith.divf %a0, %a1 : f32\n{text.narrowed('%q')}", element)])
    count = f"%count = arith.constant {max(1, abs(_product(sizes, reduced)))}.0 : f32\n%eps = arith.constant 1.0e-5 : f32\n"
    square = f"{wide}%q = arith.mulf {a}, {a} : f32\n%r = arith.addf %q, %acc : f32"
    if kind == "rms_norm":
        text.args.append(f"%g: {tensor(sizes[-1:], element)}")
        total = text.generic([x], kept, square, start="0.0")
        scale = text.kept(
            [total], kept, f"{count}%m = arith.divf %a0, %count : f32\n%n = arith.addf %m, %eps : f32\n%r = math.rsqrt %n : f32"
        )
        wider, g = text.widened(2)
        body = f"{wide}{wider}%s = arith.mulf {a}, %a1 : f32\n%t = arith.mulf %s, {g} : f32\n{text.narrowed('%t')}"
        return text.finished([text.generic([x, scale, ("%g", all_[-1:], element)], all_, body, element)])
    sums = text.generic([x], kept, f"{wide}%r = arith.addf {a}, %acc : f32", start="0.0")
    if kind == "moments":
        squares = text.generic([x], kept, square, start="0.0")
        means = f"{count}%m = arith.divf %a0, %count : f32\n%p = arith.divf %a1, %count : f32"
        body = f"{means}\n%s = arith.mulf %m, %m : f32\n%r = arith.subf %p, %s : f32"
        return text.finished([text.kept([sums, squares], kept, body), sums])
    mean = text.kept([sums], kept, f"{count}%r = arith.divf %a0, %count : f32")
    centred = f"{wide}%d = arith.subf {a}, %a1 : f32\n"
    variance = text.generic([x, mean], kept, f"{centred}%q = arith.mulf %d, %d : f32\n%r = arith.addf %q, %acc : f32", start="0.0")
    scale = text.kept(
        [variance], kept, f"{count}%m = arith.divf %a0, %count : f32\n%n = arith.addf %m, %eps : f32\n%r = math.rsqrt %n : f32"
    )
    text.args += [f"%g: {tensor(sizes[-1:], element)}", f"%b: {tensor(sizes[-1:], element)}"]
    (wide3, g), (wide4, b) = text.widened(3), text.widened(4)
    body = f"{centred}{wide3}{wide4}%s = arith.mulf %d, %a2 : f32\n%t = math.fma %s, {g}, {b} : f32\n{text.narrowed('%t')}"
    last = all_[-1:]
    return text.finished([text.generic([x, mean, scale, ("%g", last, element), ("%b", last, element)], all_, body, element)])


def _product(sizes: Sequence[int], dims: Sequence[int]) -> int:
    total = 1
    for d in dims:
        total *= sizes[d] if sizes[d] > 0 else 64
    return total
