// gelu(x @ transpose(w) + bias) with bf16 storage and f32 arithmetic; GELU in its tanh form. No dimension is a multiple of a tile.
#x = affine_map<(m, n, k) -> (m, k)>
#w = affine_map<(m, n, k) -> (n, k)>
#y = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (n)>

func.func @linear_bias_gelu(%x: tensor<77x200xbf16>, %w: tensor<136x200xbf16>, %bias: tensor<136xbf16>) -> tensor<77x136xbf16> {
  %zero = arith.constant 0.000000e+00 : f32
  %half = arith.constant 5.000000e-01 : f32
  %one = arith.constant 1.000000e+00 : f32
  %cubic = arith.constant 4.471500e-02 : f32
  %root = arith.constant 0.797884583 : f32 // sqrt(2 / pi)
  %e0 = tensor.empty() : tensor<77x136xf32>
  %init = linalg.fill ins(%zero : f32) outs(%e0 : tensor<77x136xf32>) -> tensor<77x136xf32>
  %product = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<77x200xbf16>, tensor<136x200xbf16>) outs(%init : tensor<77x136xf32>) {
  ^bb0(%a: bf16, %b: bf16, %acc: f32):
    %a32 = arith.extf %a : bf16 to f32
    %b32 = arith.extf %b : bf16 to f32
    %p = arith.mulf %a32, %b32 : f32
    %s = arith.addf %acc, %p : f32
    linalg.yield %s : f32
  } -> tensor<77x136xf32>
  %e1 = tensor.empty() : tensor<77x136xbf16>
  %result = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%product, %bias : tensor<77x136xf32>, tensor<136xbf16>) outs(%e1 : tensor<77x136xbf16>) {
  ^bb0(%h: f32, %b: bf16, %out: bf16):
    %b32 = arith.extf %b : bf16 to f32
    %v = arith.addf %h, %b32 : f32
    %v2 = arith.mulf %v, %v : f32
    %v3 = arith.mulf %v2, %v : f32
    %c = arith.mulf %v3, %cubic : f32
    %u = arith.addf %v, %c : f32
    %w1 = arith.mulf %u, %root : f32
    %t = math.tanh %w1 : f32
    %t1 = arith.addf %t, %one : f32
    %hv = arith.mulf %v, %half : f32
    %g = arith.mulf %hv, %t1 : f32
    %y = arith.truncf %g : f32 to bf16
    linalg.yield %y : bf16
  } -> tensor<77x136xbf16>
  return %result : tensor<77x136xbf16>
}
