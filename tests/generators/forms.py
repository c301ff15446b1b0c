"""Functions in the forms of the tensor level that are no plain generics: softmax, branches, calls, single elements, gathers."""

from generators.form import Form, empty_like, type_of
from generators.gather_forms import CLAMPED, DIVIDED, DIVIDED_AND_REDUCED, GATHERS, SCALARS


def _softmax(name: str, kind: str, axis: int) -> Form:
    t = type_of(kind)
    body = f"""{empty_like("e", kind)}
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
        f"""{empty_like("e", "?33xf32")}
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
        f"""{empty_like("e", "3x?5xf32")}
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
