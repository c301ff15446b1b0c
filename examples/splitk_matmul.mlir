// A matrix product whose reduction is long and whose result is small: few tiles of output, much work in each.
// The result is added to the third argument, as linalg's `outs` says.
func.func @matmul_static(%arg0: tensor<123x51234xf32>, %arg1: tensor<51234x456xf32>, %arg2: tensor<123x456xf32>) -> tensor<123x456xf32> {
  %0 = linalg.matmul ins(%arg0, %arg1 : tensor<123x51234xf32>, tensor<51234x456xf32>) outs(%arg2 : tensor<123x456xf32>) -> tensor<123x456xf32>
  return %0 : tensor<123x456xf32>
}
