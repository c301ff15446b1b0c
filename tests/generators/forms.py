"""Functions in the forms of the tensor level that are no plain generics: named operations, branches, calls, single elements, gathers.

Sizes are written `7` or, where the text leaves them to the arguments, `?7`; `:f32` is a scalar argument, `:index=5` one of the value 5.
"""

import re
from dataclasses import dataclass

import ml_dtypes
import numpy as np

DTYPES: dict[str, type] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i1": np.bool_,
    "i8": np.int8,
    "i32": np.int32,
    "i64": np.int64,
}
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1.0)
"""What tells classifications apart; the first elements of every float argument of a form that asks for them."""


@dataclass(frozen=True, slots=True)
class Form:
    """`name`: of the entry function. `arguments`: types with sizes, such as `3x5xf32`.

    `limit`: integers lie from the first to below the second. `special`: float arguments hold `SPECIAL` too. `before`: what the entry calls.
    """

    name: str
    arguments: tuple[str, ...]
    result: str
    body: str
    limit: tuple[int, int] = (-9, 9)
    special: bool = False
    before: str = ""

    def text(self) -> str:
        """The module."""
        listing = ", ".join(f"%a{number}: {type_of(kind)}" for number, kind in enumerate(self.arguments))
        return f"{self.before}func.func @{self.name}({listing}) -> {type_of(self.result)} {{\n{self.body}\n}}\n"

    def arrays(self, seed: int = 0) -> list[np.ndarray | float]:
        """Arguments: N(0, 1) floats, small integers."""
        rng = np.random.default_rng(seed)
        found: list[np.ndarray | float] = []
        for kind in self.arguments:
            if kind.startswith(":"):
                found.append(_number(kind, rng))
                continue
            *sizes, element = kind.replace("?", "").split("x")
            shape = [int(size) for size in sizes]
            if element.startswith("i"):
                low, high = (0, 2) if element == "i1" else self.limit
                found.append(np.asarray(rng.integers(low, high, shape)).astype(DTYPES[element]))
                continue
            values = np.asarray(rng.standard_normal(shape)).astype(np.float32).astype(DTYPES[element])
            if self.special:
                values.reshape(-1)[: len(SPECIAL)] = np.array(SPECIAL[: values.size]).astype(values.dtype)
            found.append(values)
        return found

    def typed_arrays(self, seed: int = 0) -> list[np.ndarray]:
        """The same with scalars as arrays of their types."""
        kinds = {"index": np.int64, **DTYPES}
        pairs = zip(self.arguments, self.arrays(seed), strict=True)
        return [a if isinstance(a, np.ndarray) else np.asarray(a, kinds[type_of(kind)]) for kind, a in pairs]


def _number(kind: str, rng: np.random.Generator) -> float:
    element, _, value = kind[1:].partition("=")
    if element == "f32":
        return float(np.float32(rng.standard_normal()))
    if element == "i1":
        return bool(rng.integers(0, 2))
    return int(value) if value else int(rng.integers(-9, 9))


def type_of(kind: str) -> str:
    """`?7x5xf32` is an argument of 7 x 5 elements whose first size the text leaves open."""
    if kind.startswith(":"):
        return kind[1:].partition("=")[0]
    return f"tensor<{re.sub(r'[?][0-9]+', '?', kind)}>"


def empty(name: str, kind: str, *sources: tuple[str, str, int]) -> str:
    """`%name = tensor.empty(..)`; `sources` are value, type and axis that each open size of `kind` is read off."""
    lines: list[str] = []
    for number, (value, source, axis) in enumerate(sources):
        lines.append(f"  %{name}_c{number} = arith.constant {axis} : index")
        lines.append(f"  %{name}_d{number} = tensor.dim {value}, %{name}_c{number} : {type_of(source)}")
    sizes = ", ".join(f"%{name}_d{number}" for number in range(len(sources)))
    return "\n".join([*lines, f"  %{name} = tensor.empty({sizes}) : {type_of(kind)}"])


def _open(kind: str) -> list[int]:
    return [axis for axis, size in enumerate(kind.split("x")[:-1]) if size.startswith("?")]


def _like(name: str, kind: str, source: str = "%a0", element: str = "") -> str:
    target = "x".join([*kind.split("x")[:-1], element or kind.rsplit("x", maxsplit=1)[-1]])
    return empty(name, target, *((source, kind, axis) for axis in _open(kind)))


def _softmax(name: str, kind: str, axis: int) -> Form:
    t = type_of(kind)
    body = f"""{_like("e", kind)}
  %r = linalg.softmax dimension({axis}) ins(%a0 : {t}) outs(%e : {t}) -> {t}
  return %r : {t}"""
    return Form(name, (kind,), kind, body)


SOFTMAX = (
    _softmax("softmax_last", "5x77xf32", 1),
    _softmax("softmax_first", "33x7xf32", 0),
    _softmax("softmax_middle", "?3x?65x5xf32", 1),
    _softmax("softmax_f16", "?7x129xf16", 1),
    _softmax("softmax_bf16", "3x200xbf16", 1),
    _softmax("softmax_single", "1xf32", 0),
    _softmax("softmax_f64", "3x?31xf64", 1),
)


def _classified(name: str, kind: str) -> Form:
    t, bits, result = (type_of("x".join([*kind.split("x")[:-1], e])) for e in (kind.rsplit("x", maxsplit=1)[-1], "i1", "i32"))
    tests = "\n".join(f"  %{op} = math.{op} %a0 : {t}" for op in ("isnan", "isinf", "isfinite"))
    widened = "\n".join(f"  %{op}_i = arith.extui %{op} : {bits} to {result}" for op in ("isnan", "isinf", "isfinite"))
    body = f"""{tests}
{widened}
  %two = arith.addi %isinf_i, %isinf_i : {result}
  %four0 = arith.addi %isfinite_i, %isfinite_i : {result}
  %four = arith.addi %four0, %four0 : {result}
  %s = arith.addi %isnan_i, %two : {result}
  %r = arith.addi %s, %four : {result}
  return %r : {result}"""
    return Form(name, (kind,), "x".join([*kind.split("x")[:-1], "i32"]), body, special=True)


CLASSES = tuple(
    _classified(f"classes_{e}", f"{shape}{e}") for shape, e in (("3x5x", "f32"), ("?13x", "f16"), ("17x", "bf16"), ("9x", "f64"))
)
NORMAL = Form(
    "is_normal",
    ("?11xf32",),
    "?11xi32",
    """  %n = math.isnormal %a0 : tensor<?xf32>
  %r = arith.extui %n : tensor<?xi1> to tensor<?xi32>
  return %r : tensor<?xi32>""",
    special=True,
)

BRANCHES = (
    Form(
        "branch",
        ("?13x7xf32", "i1"),
        "?13x7xf32",
        """  %c = tensor.extract %a1[] : tensor<i1>
  %r = scf.if %c -> (tensor<?x7xf32>) {
    %s = arith.addf %a0, %a0 : tensor<?x7xf32>
    scf.yield %s : tensor<?x7xf32>
  } else {
    scf.yield %a0 : tensor<?x7xf32>
  }
  return %r : tensor<?x7xf32>""",
    ),
    Form(
        "branch_on_size",
        ("?13x7xf32",),
        "?13x7xf32",
        """  %c0 = arith.constant 0 : index
  %ten = arith.constant 10 : index
  %n = tensor.dim %a0, %c0 : tensor<?x7xf32>
  %c = arith.cmpi sgt, %n, %ten : index
  %r:2 = scf.if %c -> (tensor<?x7xf32>, f32) {
    %one = arith.constant 1.0 : f32
    %s = arith.mulf %a0, %a0 : tensor<?x7xf32>
    scf.yield %s, %one : tensor<?x7xf32>, f32
  } else {
    %zero = arith.constant 0.0 : f32
    scf.yield %a0, %zero : tensor<?x7xf32>, f32
  }
  %e = tensor.empty(%n) : tensor<?x7xf32>
  %f = linalg.fill ins(%r#1 : f32) outs(%e : tensor<?x7xf32>) -> tensor<?x7xf32>
  %t = arith.addf %r#0, %f : tensor<?x7xf32>
  return %t : tensor<?x7xf32>""",
    ),
    Form(
        "branch_of_products",
        ("5x17xf32", "17x9xf32", "i1", "i1"),
        "5x9xf32",
        """  %c = tensor.extract %a2[] : tensor<i1>
  %d = tensor.extract %a3[] : tensor<i1>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x9xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x9xf32>) -> tensor<5x9xf32>
  %r = scf.if %c -> (tensor<5x9xf32>) {
    %p = linalg.matmul ins(%a0, %a1 : tensor<5x17xf32>, tensor<17x9xf32>) outs(%f : tensor<5x9xf32>) -> tensor<5x9xf32>
    %q = scf.if %d -> (tensor<5x9xf32>) {
      %s = arith.addf %p, %p : tensor<5x9xf32>
      scf.yield %s : tensor<5x9xf32>
    } else {
      scf.yield %p : tensor<5x9xf32>
    }
    scf.yield %q : tensor<5x9xf32>
  } else {
    scf.yield %f : tensor<5x9xf32>
  }
  return %r : tensor<5x9xf32>""",
    ),
    Form(
        "branch_in_a_body",
        ("?33xf32",),
        "?33xf32",
        f"""{_like("e", "?33xf32")}
  %r = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}}
      ins(%a0 : tensor<?xf32>) outs(%e : tensor<?xf32>) {{
  ^bb0(%x: f32, %o: f32):
    %zero = arith.constant 0.0 : f32
    %c = arith.cmpf olt, %x, %zero : f32
    %y = scf.if %c -> (f32) {{
      %s = math.exp %x : f32
      scf.yield %s : f32
    }} else {{
      scf.yield %x : f32
    }}
    linalg.yield %y : f32
  }} -> tensor<?xf32>
  return %r : tensor<?xf32>""",
    ),
    Form(
        "select_by_a_scalar",
        ("7x5xf32", "7x5xf32", "i1"),
        "7x5xf32",
        """  %c = tensor.extract %a2[] : tensor<i1>
  %r = arith.select %c, %a0, %a1 : tensor<7x5xf32>
  return %r : tensor<7x5xf32>""",
    ),
)

CALLS = (
    Form(
        "calls",
        ("?31xf32", "?31xf32"),
        "?31xf32",
        """  %0:2 = call @calls_swapped(%a0, %a1) : (tensor<?xf32>, tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>)
  %1 = call @calls_twice(%0#0) : (tensor<?xf32>) -> tensor<?xf32>
  %r = arith.subf %1, %0#1 : tensor<?xf32>
  return %r : tensor<?xf32>""",
        before="""func.func private @calls_twice(%x: tensor<?xf32>) -> tensor<?xf32> {
  %0 = arith.addf %x, %x : tensor<?xf32>
  return %0 : tensor<?xf32>
}
func.func private @calls_swapped(%x: tensor<?xf32>, %y: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %0 = call @calls_twice(%x) : (tensor<?xf32>) -> tensor<?xf32>
  return %y, %0 : tensor<?xf32>, tensor<?xf32>
}
""",
    ),
    Form(
        "call_in_a_branch",
        ("13xf32", "i1"),
        "13xf32",
        """  %c = tensor.extract %a1[] : tensor<i1>
  %r = scf.if %c -> (tensor<13xf32>) {
    %0 = func.call @in_a_branch(%a0) : (tensor<13xf32>) -> tensor<13xf32>
    scf.yield %0 : tensor<13xf32>
  } else {
    scf.yield %a0 : tensor<13xf32>
  }
  return %r : tensor<13xf32>""",
        before="""func.func private @in_a_branch(%x: tensor<13xf32>) -> tensor<13xf32> {
  %0 = math.absf %x : tensor<13xf32>
  return %0 : tensor<13xf32>
}
""",
    ),
)

ELEMENTS = (
    Form(
        "bits", ("?7x3xf32",), "?7x3xi32", "  %r = tensor.bitcast %a0 : tensor<?x3xf32> to tensor<?x3xi32>\n  return %r : tensor<?x3xi32>"
    ),
    Form(
        "rank",
        ("3x?5xf32",),
        "3x?5xf32",
        f"""{_like("e", "3x?5xf32")}
  %n = tensor.rank %a0 : tensor<3x?xf32>
  %i = arith.index_cast %n : index to i32
  %f = arith.sitofp %i : i32 to f32
  %s = linalg.fill ins(%f : f32) outs(%e : tensor<3x?xf32>) -> tensor<3x?xf32>
  %r = arith.mulf %s, %a0 : tensor<3x?xf32>
  return %r : tensor<3x?xf32>""",
    ),
    Form(
        "from_elements",
        ("7xf32",),
        "5xf32",
        """  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %x = tensor.extract %a0[%c0] : tensor<7xf32>
  %y = tensor.extract %a0[%c3] : tensor<7xf32>
  %z = arith.addf %x, %y : f32
  %r = tensor.from_elements %x, %y, %z, %x, %z : tensor<5xf32>
  return %r : tensor<5xf32>""",
    ),
)

ROW = "affine_map<(d0, d1) -> (d0)>"
PLANE = "affine_map<(d0, d1) -> (d0, d1)>"
GATHERS = (
    Form(
        "gather_rows",
        ("?11x5xf32", "?7xi32"),
        "?7x5xf32",
        f"""{empty("e", "?7x5xf32", ("%a1", "?7xi32", 0))}
  %r = linalg.generic {{indexing_maps = [{ROW}, {PLANE}], iterator_types = ["parallel", "parallel"]}}
      ins(%a1 : tensor<?xi32>) outs(%e : tensor<?x5xf32>) {{
  ^bb0(%i: i32, %o: f32):
    %row = arith.index_cast %i : i32 to index
    %column = linalg.index 1 : index
    %v = tensor.extract %a0[%row, %column] : tensor<?x5xf32>
    linalg.yield %v : f32
  }} -> tensor<?x5xf32>
  return %r : tensor<?x5xf32>""",
        limit=(0, 11),
    ),
    Form(
        "gather_guarded",
        ("13xf16", "33xi64"),
        "33xf16",
        """  %e = tensor.empty() : tensor<33xf16>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%a1 : tensor<33xi64>) outs(%e : tensor<33xf16>) {
  ^bb0(%i: i64, %o: f16):
    %zero = arith.constant 0 : i64
    %size = arith.constant 13 : i64
    %none = arith.constant -1.0 : f16
    %low = arith.cmpi sge, %i, %zero : i64
    %high = arith.cmpi slt, %i, %size : i64
    %inside = arith.andi %low, %high : i1
    %v = scf.if %inside -> (f16) {
      %at = arith.index_cast %i : i64 to index
      %x = tensor.extract %a0[%at] : tensor<13xf16>
      scf.yield %x : f16
    } else {
      scf.yield %none : f16
    }
    linalg.yield %v : f16
  } -> tensor<33xf16>
  return %r : tensor<33xf16>""",
        limit=(-20, 20),
    ),
    Form(
        "gather_and_sum",
        ("17x9xf32", "?5x31xi32"),
        "?5xf32",
        f"""{empty("e", "?5xf32", ("%a1", "?5x31xi32", 0))}
  %zero = arith.constant 0.0 : f32
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %r = linalg.generic {{indexing_maps = [{PLANE}, {ROW}], iterator_types = ["parallel", "reduction"]}}
      ins(%a1 : tensor<?x31xi32>) outs(%f : tensor<?xf32>) {{
  ^bb0(%i: i32, %o: f32):
    %row = arith.index_cast %i : i32 to index
    %k = linalg.index 1 : index
    %nine = arith.constant 9 : index
    %column = arith.remui %k, %nine : index
    %v = tensor.extract %a0[%row, %column] : tensor<17x9xf32>
    %s = arith.addf %o, %v : f32
    linalg.yield %s : f32
  }} -> tensor<?xf32>
  return %r : tensor<?xf32>""",
        limit=(0, 17),
    ),
    Form(
        "gather_from_a_result",
        ("?21xf32", "?21xi32"),
        "?21xf32",
        f"""{_like("e", "?21xf32")}
  %x = math.exp %a0 : tensor<?xf32>
  %r = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]}} ins(%x, %a1 : tensor<?xf32>, tensor<?xi32>) outs(%e : tensor<?xf32>) {{
  ^bb0(%own: f32, %i: i32, %o: f32):
    %at = arith.index_cast %i : i32 to index
    %v = tensor.extract %x[%at] : tensor<?xf32>
    %s = arith.subf %v, %own : f32
    linalg.yield %s : f32
  }} -> tensor<?xf32>
  return %r : tensor<?xf32>""",
        limit=(0, 21),
    ),
    Form(
        "gather_from_constants",
        ("19xi32", "19xf32"),
        "19xf32",
        """  %table = arith.constant dense<[1.5, -2.0, 0.25, 7.0, 3.0]> : tensor<5xf32>
  %e = tensor.empty() : tensor<19xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]} ins(%a0, %a1 : tensor<19xi32>, tensor<19xf32>) outs(%e : tensor<19xf32>) {
  ^bb0(%i: i32, %x: f32, %o: f32):
    %at = arith.index_cast %i : i32 to index
    %v = tensor.extract %table[%at] : tensor<5xf32>
    %s = arith.mulf %v, %x : f32
    linalg.yield %s : f32
  } -> tensor<19xf32>
  return %r : tensor<19xf32>""",
        limit=(0, 5),
    ),
    Form(
        "element_at_a_computed_place",
        ("?37xf32", "i32"),
        "?37xf32",
        f"""{_like("e", "?37xf32")}
  %i = tensor.extract %a1[] : tensor<i32>
  %at = arith.index_cast %i : i32 to index
  %x = tensor.extract %a0[%at] : tensor<?xf32>
  %f = linalg.fill ins(%x : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %r = arith.subf %a0, %f : tensor<?xf32>
  return %r : tensor<?xf32>""",
        limit=(0, 37),
    ),
)
CLAMPED = Form(
    "gather_clamped",
    ("?11xf32", "?40xi32"),
    "?40xf32",
    f"""{empty("e", "?40xf32", ("%a1", "?40xi32", 0))}
  %r = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}}
      ins(%a1 : tensor<?xi32>) outs(%e : tensor<?xf32>) {{
  ^bb0(%i: i32, %o: f32):
    %at = arith.index_cast %i : i32 to index
    %v = tensor.extract %a0[%at] : tensor<?xf32>
    linalg.yield %v : f32
  }} -> tensor<?xf32>
  return %r : tensor<?xf32>""",
    limit=(-(2**31), 2**31),
)

SCALARS = (
    Form(
        "scalars",
        ("?13xf32", ":f32", ":i32", ":i1"),
        "?13xf32",
        f"""{_like("e", "?13xf32")}
  %i = arith.sitofp %a2 : i32 to f32
  %s = arith.mulf %a1, %i : f32
  %f = linalg.fill ins(%s : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %x = arith.mulf %a0, %f : tensor<?xf32>
  %r = arith.select %a3, %x, %a0 : tensor<?xf32>
  return %r : tensor<?xf32>""",
    ),
    Form(
        "scalar_sizes",
        ("?17x7xf32", ":index=5", ":i32=3"),
        "?5x3xf32",
        """  %n = arith.index_cast %a2 : i32 to index
  %c1 = arith.constant 1 : index
  %x = tensor.extract_slice %a0[%c1, %n] [%a1, 3] [2, 1] : tensor<?x7xf32> to tensor<?x3xf32>
  %r = math.absf %x : tensor<?x3xf32>
  return %r : tensor<?x3xf32>""",
    ),
    Form(
        "scalar_initial_value",
        ("5x33xf32", "33x9xf32", ":f32"),
        "5x9xf32",
        """  %e = tensor.empty() : tensor<5x9xf32>
  %f = linalg.fill ins(%a2 : f32) outs(%e : tensor<5x9xf32>) -> tensor<5x9xf32>
  %r = linalg.matmul ins(%a0, %a1 : tensor<5x33xf32>, tensor<33x9xf32>) outs(%f : tensor<5x9xf32>) -> tensor<5x9xf32>
  return %r : tensor<5x9xf32>""",
    ),
    Form(
        "scalar_index",
        ("7x?11xf32", ":index=4"),
        "7xf32",
        """  %e = tensor.empty() : tensor<7xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<7xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %v = tensor.extract %a0[%i, %a1] : tensor<7x?xf32>
    linalg.yield %v : f32
  } -> tensor<7xf32>
  return %r : tensor<7xf32>""",
    ),
)

DIVIDED = (
    Form(
        "split_by_division",
        ("4x6xf32",),
        "24xf32",
        """  %e = tensor.empty() : tensor<24xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0 floordiv 6, d0 mod 6)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]} ins(%a0 : tensor<4x6xf32>) outs(%e : tensor<24xf32>) {
  ^bb0(%x: f32, %o: f32):
    linalg.yield %x : f32
  } -> tensor<24xf32>
  return %r : tensor<24xf32>""",
    ),
    Form(
        "nearest_neighbour",
        ("?3x5xf32", "7x?10xf32"),
        "7x?10xf32",
        f"""{empty("e", "7x?10xf32", ("%a1", "7x?10xf32", 1))}
  %r = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0 floordiv 3, d1 floordiv 2)>, {PLANE}, {PLANE}],
      iterator_types = ["parallel", "parallel"]}} ins(%a0, %a1 : tensor<?x5xf32>, tensor<7x?xf32>) outs(%e : tensor<7x?xf32>) {{
  ^bb0(%x: f32, %y: f32, %o: f32):
    %s = arith.mulf %x, %y : f32
    linalg.yield %s : f32
  }} -> tensor<7x?xf32>
  return %r : tensor<7x?xf32>""",
    ),
)

DIVIDED_AND_REDUCED = (
    Form(
        "reduced_blocks",
        ("5x?13xf32", "4xf32"),
        "5xf32",
        """  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ((d1 + 3) floordiv 4)>,
      affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%a0, %a1 : tensor<5x?xf32>, tensor<4xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<5xf32>
  return %r : tensor<5xf32>""",
    ),
    Form(
        "loop_sized_by_a_divided_read",
        ("3x?9xf32",),
        "5xf32",
        """  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0 floordiv 2, d1)>, affine_map<(d0, d1) -> (d0)>],
      iterator_types = ["parallel", "reduction"]} ins(%a0 : tensor<3x?xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%x: f32, %o: f32):
    %s = arith.addf %o, %x : f32
    linalg.yield %s : f32
  } -> tensor<5xf32>
  return %r : tensor<5xf32>""",
    ),
)

FORMS: tuple[Form, ...] = (*SOFTMAX, *BRANCHES, *CALLS, *ELEMENTS, *GATHERS, *SCALARS, *DIVIDED)
INSERTED = Form(
    "insert_elements",
    ("?5x7xf32", "3xf32"),
    "?5x7xf32",
    """  %c1 = arith.constant 1 : index
%c2 = arith.constant 2 : index
%c0 = arith.constant 0 : index
%n = tensor.dim %a0, %c0 : tensor<?x7xf32>
%last = arith.subi %n, %c1 : index
%x = tensor.extract %a1[%c2] : tensor<3xf32>
%0 = tensor.insert %x into %a0[%last, %c2] : tensor<?x7xf32>
%r = tensor.insert %x into %0[%c1, %c0] : tensor<?x7xf32>
return %r : tensor<?x7xf32>""",
)
MATRIX_FROM_ELEMENTS = Form(
    "matrix_from_elements",
    ("?7xf32",),
    "2x3xf32",
    """  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %x = tensor.extract %a0[%c1] : tensor<?xf32>
  %y = tensor.extract %a0[%c3] : tensor<?xf32>
  %z = arith.addf %x, %y : f32
  %r = tensor.from_elements %x, %y, %z, %x, %z, %y : tensor<2x3xf32>
  return %r : tensor<2x3xf32>""",
)
WITHOUT_ORACLE: tuple[Form, ...] = (*CLASSES, NORMAL, MATRIX_FROM_ELEMENTS, INSERTED, CLAMPED, *DIVIDED_AND_REDUCED)
"""Forms that IREE on the CPU does not compile, or not rightly, or does not define."""
EVERY = (*FORMS, *WITHOUT_ORACLE)
