"""Functions with scalar arguments and results of one type, in tensor-level text."""


def scaled(kind: str) -> str:
    """(s, x[n]) -> (x * s, s * s), and for `i1` the conjunctions."""
    op = "arith.andi" if kind == "i1" else "arith.mulf" if kind[0] in "fb" else "arith.muli"
    return f"""func.func @scaled(%s: {kind}, %x: tensor<?x{kind}>) -> (tensor<?x{kind}>, {kind}) {{
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x{kind}>
  %e = tensor.empty(%n) : tensor<?x{kind}>
  %r = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}}
      ins(%x : tensor<?x{kind}>) outs(%e : tensor<?x{kind}>) {{
  ^bb0(%a: {kind}, %o: {kind}):
    %p = {op} %a, %s : {kind}
    linalg.yield %p : {kind}
  }} -> tensor<?x{kind}>
  %q = {op} %s, %s : {kind}
  return %r, %q : tensor<?x{kind}>, {kind}
}}"""


ALONE = """func.func @alone(%s: f32, %n: i64, %b: i1) -> (f32, i64, f32) {
  %c = arith.constant 2.5 : f32
  %f = arith.sitofp %n : i64 to f32
  %q = arith.mulf %s, %f : f32
  %m = arith.addi %n, %n : i64
  %r = arith.select %b, %q, %c : f32
  return %q, %m, %r : f32, i64, f32
}"""
"""No tensors at all."""

FILLED = """func.func @filled(%n: KIND, %x: f32) -> (tensor<?xf32>, KIND) {
  %m = arith.index_cast %n : KIND to index
  %e = tensor.empty(%m) : tensor<?xf32>
  %z = linalg.fill ins(%x : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %o = arith.addi %n, %n : KIND
  return %z, %o : tensor<?xf32>, KIND
}"""
"""An integer that is a size of the program and a number in a kernel."""


def filled(kind: str) -> str:
    """`FILLED` for an integer type, or `index`."""
    text = FILLED.replace("KIND", kind)
    return text.replace("  %m = arith.index_cast %n : index to index\n", "").replace("empty(%m)", "empty(%n)") if kind == "index" else text
