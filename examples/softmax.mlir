// softmax over rows, in four steps: the row's maximum, exp(x - maximum), the row's sum, the quotient.
#id = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>

func.func @softmax(%x: tensor<33x1000xf32>) -> tensor<33x1000xf32> {
  %lowest = arith.constant 0xFF800000 : f32 // -inf
  %zero = arith.constant 0.000000e+00 : f32
  %e0 = tensor.empty() : tensor<33xf32>
  %max_init = linalg.fill ins(%lowest : f32) outs(%e0 : tensor<33xf32>) -> tensor<33xf32>
  %max = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<33x1000xf32>) outs(%max_init : tensor<33xf32>) {
  ^bb0(%in: f32, %acc: f32):
    %m = arith.maximumf %in, %acc : f32
    linalg.yield %m : f32
  } -> tensor<33xf32>
  %e1 = tensor.empty() : tensor<33x1000xf32>
  %exp = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %max : tensor<33x1000xf32>, tensor<33xf32>) outs(%e1 : tensor<33x1000xf32>) {
  ^bb0(%in: f32, %m: f32, %out: f32):
    %d = arith.subf %in, %m : f32
    %e = math.exp %d : f32
    linalg.yield %e : f32
  } -> tensor<33x1000xf32>
  %e2 = tensor.empty() : tensor<33xf32>
  %sum_init = linalg.fill ins(%zero : f32) outs(%e2 : tensor<33xf32>) -> tensor<33xf32>
  %sum = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%exp : tensor<33x1000xf32>) outs(%sum_init : tensor<33xf32>) {
  ^bb0(%in: f32, %acc: f32):
    %s = arith.addf %in, %acc : f32
    linalg.yield %s : f32
  } -> tensor<33xf32>
  %e3 = tensor.empty() : tensor<33x1000xf32>
  %result = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%exp, %sum : tensor<33x1000xf32>, tensor<33xf32>) outs(%e3 : tensor<33x1000xf32>) {
  ^bb0(%in: f32, %s: f32, %out: f32):
    %q = arith.divf %in, %s : f32
    linalg.yield %q : f32
  } -> tensor<33x1000xf32>
  return %result : tensor<33x1000xf32>
}
