"""Programs for tests of argument layouts, at sizes that no tile divides."""

M, K, N = 77, 45, 203


def matmul(dtype: str, m: int | str = M, k: int | str = K, n: int | str = N, attributes: str = "") -> str:
    a, b, c = f"tensor<{m}x{k}x{dtype}>", f"tensor<{k}x{n}x{dtype}>", f"tensor<{m}x{n}xf32>"
    sizes = [f"%d{i} = tensor.dim {v}, %i{i} : {t}" for i, (s, v, t) in enumerate(((m, "%x", a), (n, "%y", b))) if s == "?"]
    names = ", ".join(f"%d{i}" for i, s in enumerate((m, n)) if s == "?")
    return f"""
func.func @mm(%x: {a}{attributes}, %y: {b}) -> {c} {{
  %zero = arith.constant 0.0 : f32
  %i0 = arith.constant 0 : index
  %i1 = arith.constant 1 : index
  {"; ".join(sizes) if not sizes else chr(10).join(sizes)}
  %e = tensor.empty({names}) : {c}
  %f = linalg.fill ins(%zero : f32) outs(%e : {c}) -> {c}
  %r = linalg.matmul ins(%x, %y : {a}, {b}) outs(%f : {c}) -> {c}
  return %r : {c}
}}
"""


def reduction(dtype: str, axis: int) -> str:
    whole, kept = f"tensor<{M}x{K}x{dtype}>", f"tensor<{(M, K)[1 - axis]}x{dtype}>"
    return f"""
func.func @sum(%x: {whole}) -> {kept} {{
  %zero = arith.constant 0.0 : {dtype}
  %e = tensor.empty() : {kept}
  %f = linalg.fill ins(%zero : {dtype}) outs(%e : {kept}) -> {kept}
  %r = linalg.reduce ins(%x : {whole}) outs(%f : {kept}) dimensions = [{axis}]
    (%a: {dtype}, %b: {dtype}) {{
      %s = arith.addf %a, %b : {dtype}
      linalg.yield %s : {dtype}
    }}
  return %r : {kept}
}}
"""


def elementwise(dtype: str) -> str:
    kind = f"tensor<{M}x{K}x{dtype}>"
    return f"""
func.func @add(%x: {kind}, %y: {kind}) -> {kind} {{
  %e = tensor.empty() : {kind}
  %r = linalg.add ins(%x, %y : {kind}, {kind}) outs(%e : {kind}) -> {kind}
  return %r : {kind}
}}
"""
