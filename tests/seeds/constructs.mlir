// One function per construct of the tensor level; pieces are separated as mlir-opt's --split-input-file does.
func.func @matmul_f16_f32(%a: tensor<3x5xf16>, %b: tensor<5x?xf16>, %c: tensor<3x?xf32>) -> tensor<3x?xf32> {
  %0 = linalg.matmul ins(%a, %b : tensor<3x5xf16>, tensor<5x?xf16>) outs(%c : tensor<3x?xf32>) -> tensor<3x?xf32>
  return %0 : tensor<3x?xf32>
}
// -----
func.func @matmul_i8_i32(%a: tensor<3x5xi8>, %b: tensor<5x7xi8>, %c: tensor<3x7xi32>) -> tensor<3x7xi32> {
  %0 = linalg.matmul ins(%a, %b : tensor<3x5xi8>, tensor<5x7xi8>) outs(%c : tensor<3x7xi32>) -> tensor<3x7xi32>
  return %0 : tensor<3x7xi32>
}
// -----
func.func @matmul_f8(%a: tensor<3x5xf8E4M3FN>, %b: tensor<5x7xf8E5M2>, %c: tensor<3x7xf32>) -> tensor<3x7xf32> {
  %0 = linalg.matmul ins(%a, %b : tensor<3x5xf8E4M3FN>, tensor<5x7xf8E5M2>) outs(%c : tensor<3x7xf32>) -> tensor<3x7xf32>
  return %0 : tensor<3x7xf32>
}
// -----
func.func @matmul_f8_fnuz(%a: tensor<3x5xf8E4M3FNUZ>, %b: tensor<5x7xf8E5M2FNUZ>, %c: tensor<3x7xf32>) -> tensor<3x7xf32> {
  %0 = linalg.matmul ins(%a, %b : tensor<3x5xf8E4M3FNUZ>, tensor<5x7xf8E5M2FNUZ>) outs(%c : tensor<3x7xf32>) -> tensor<3x7xf32>
  return %0 : tensor<3x7xf32>
}
// -----
func.func @matmul_maps(%a: tensor<3x5xbf16>, %b: tensor<7x5xbf16>, %c: tensor<3x7xf32>) -> tensor<3x7xf32> {
  %0 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
    {foo = 1 : i32} ins(%a, %b : tensor<3x5xbf16>, tensor<7x5xbf16>) outs(%c : tensor<3x7xf32>) -> tensor<3x7xf32>
  return %0 : tensor<3x7xf32>
}
// -----
func.func @transposed(%a: tensor<5x3xf32>, %b: tensor<7x5xf32>, %d: tensor<2x3x5xf32>, %e: tensor<2x7x5xf32>, %c: tensor<3x7xf32>, %f: tensor<2x3x7xf32>, %t: tensor<5x7xf32>, %u: tensor<3x5xf32>) -> (tensor<3x7xf32>, tensor<2x3x7xf32>) {
  %0 = linalg.matmul_transpose_a ins(%a, %t : tensor<5x3xf32>, tensor<5x7xf32>) outs(%c : tensor<3x7xf32>) -> tensor<3x7xf32>
  %1 = linalg.matmul_transpose_b ins(%u, %b : tensor<3x5xf32>, tensor<7x5xf32>) outs(%0 : tensor<3x7xf32>) -> tensor<3x7xf32>
  %2 = linalg.batch_matmul_transpose_b ins(%d, %e : tensor<2x3x5xf32>, tensor<2x7x5xf32>) outs(%f : tensor<2x3x7xf32>) -> tensor<2x3x7xf32>
  return %1, %2 : tensor<3x7xf32>, tensor<2x3x7xf32>
}
// -----
func.func @batched(%a: tensor<2x3x5xf16>, %b: tensor<2x5x7xf16>, %c: tensor<2x3x7xf32>, %d: tensor<3x7xf32>) -> (tensor<2x3x7xf32>, tensor<3x7xf32>) {
  %0 = linalg.batch_matmul ins(%a, %b : tensor<2x3x5xf16>, tensor<2x5x7xf16>) outs(%c : tensor<2x3x7xf32>) -> tensor<2x3x7xf32>
  %1 = linalg.batch_reduce_matmul ins(%a, %b : tensor<2x3x5xf16>, tensor<2x5x7xf16>) outs(%d : tensor<3x7xf32>) -> tensor<3x7xf32>
  return %0, %1 : tensor<2x3x7xf32>, tensor<3x7xf32>
}
// -----
func.func @vectors(%a: tensor<3x5xf32>, %x: tensor<5xf32>, %y: tensor<3xf32>, %s: tensor<f32>, %b: tensor<2x3x5xf32>, %u: tensor<2x5xf32>, %v: tensor<2x3xf32>) -> (tensor<3xf32>, tensor<5xf32>, tensor<f32>, tensor<2x3xf32>, tensor<2x5xf32>) {
  %0 = linalg.matvec ins(%a, %x : tensor<3x5xf32>, tensor<5xf32>) outs(%y : tensor<3xf32>) -> tensor<3xf32>
  %1 = linalg.vecmat ins(%y, %a : tensor<3xf32>, tensor<3x5xf32>) outs(%x : tensor<5xf32>) -> tensor<5xf32>
  %2 = linalg.dot ins(%x, %x : tensor<5xf32>, tensor<5xf32>) outs(%s : tensor<f32>) -> tensor<f32>
  %3 = linalg.batch_matvec ins(%b, %u : tensor<2x3x5xf32>, tensor<2x5xf32>) outs(%v : tensor<2x3xf32>) -> tensor<2x3xf32>
  %4 = linalg.batch_vecmat ins(%v, %b : tensor<2x3xf32>, tensor<2x3x5xf32>) outs(%u : tensor<2x5xf32>) -> tensor<2x5xf32>
  return %0, %1, %2, %3, %4 : tensor<3xf32>, tensor<5xf32>, tensor<f32>, tensor<2x3xf32>, tensor<2x5xf32>
}
// -----
func.func @contract(%a: tensor<3x5xf16>, %b: tensor<5x7xf16>, %c: tensor<3x7xf32>) -> tensor<3x7xf32> {
  %0 = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
    ins(%a, %b : tensor<3x5xf16>, tensor<5x7xf16>) outs(%c : tensor<3x7xf32>) -> tensor<3x7xf32>
  return %0 : tensor<3x7xf32>
}
// -----
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @generic_two_results(%a: tensor<3x5xf16>, %m: tensor<3xf32>, %s: tensor<3xi32>) -> (tensor<3xf32>, tensor<3xi32>) {
  %0:2 = linalg.generic {indexing_maps = [#id, #row, #row], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<3x5xf16>) outs(%m, %s : tensor<3xf32>, tensor<3xi32>) attrs = {foo = "bar"} {
  ^bb0(%in: f16, %best: f32, %where: i32):
    %i = linalg.index 1 : index
    %j = arith.index_cast %i : index to i32
    %x = arith.extf %in : f16 to f32
    %more = arith.cmpf ogt, %x, %best : f32
    %value = arith.select %more, %x, %best : f32
    %place = arith.select %more, %j, %where : i32
    linalg.yield %value, %place : f32, i32
  } -> (tensor<3xf32>, tensor<3xi32>)
  return %0#0, %0#1 : tensor<3xf32>, tensor<3xi32>
}
// -----
func.func @reduce(%a: tensor<3x5x7xf16>, %c: tensor<3x7xf32>, %d: tensor<3x5x7xi32>, %e: tensor<3x7xi32>, %f: tensor<3x5xf32>, %g: tensor<3xf32>) -> (tensor<3x7xf32>, tensor<3x7xi32>, tensor<3xf32>) {
  %0:2 = linalg.reduce ins(%a, %d : tensor<3x5x7xf16>, tensor<3x5x7xi32>) outs(%c, %e : tensor<3x7xf32>, tensor<3x7xi32>) dimensions = [1] {foo = 1 : i32}
    (%x: f16, %y: i32, %s: f32, %t: i32) {
      %w = arith.extf %x : f16 to f32
      %1 = arith.addf %w, %s : f32
      %2 = arith.addi %y, %t : i32
      linalg.yield %1, %2 : f32, i32
    }
  %3 = linalg.reduce { arith.maximumf } ins(%f : tensor<3x5xf32>) outs(%g : tensor<3xf32>) dimensions = [1]
  return %0#0, %0#1, %3 : tensor<3x7xf32>, tensor<3x7xi32>, tensor<3xf32>
}
// -----
func.func @moves(%a: tensor<3x5xf32>, %b: tensor<5x3xf32>, %c: tensor<3x5x2xf32>, %x: tensor<?x5xf32>, %y: tensor<5x?xf32>) -> (tensor<5x3xf32>, tensor<3x5x2xf32>, tensor<5x?xf32>) {
  %0 = linalg.transpose ins(%a : tensor<3x5xf32>) outs(%b : tensor<5x3xf32>) permutation = [1, 0]
  %1 = linalg.broadcast ins(%a : tensor<3x5xf32>) outs(%c : tensor<3x5x2xf32>) dimensions = [2] {foo = 1 : i32}
  %2 = linalg.transpose ins(%x : tensor<?x5xf32>) outs(%y : tensor<5x?xf32>) permutation = [1, 0]
  return %0, %1, %2 : tensor<5x3xf32>, tensor<3x5x2xf32>, tensor<5x?xf32>
}
// -----
func.func @elementwise(%a: tensor<3x5xf32>, %b: tensor<3x5xf32>, %c: tensor<3x5xf32>, %k: tensor<3x5xi1>) -> tensor<3x5xf32> {
  %0 = linalg.map { arith.addf } ins(%a, %b : tensor<3x5xf32>, tensor<3x5xf32>) outs(%c : tensor<3x5xf32>)
  %1 = linalg.map ins(%0 : tensor<3x5xf32>) outs(%c : tensor<3x5xf32>) (%x: f32, %out: f32) {
    %e = math.exp %x : f32
    linalg.yield %e : f32
  }
  %2 = linalg.sub ins(%1, %b : tensor<3x5xf32>, tensor<3x5xf32>) outs(%c : tensor<3x5xf32>) -> tensor<3x5xf32>
  %3 = linalg.reciprocal ins(%2 : tensor<3x5xf32>) outs(%c : tensor<3x5xf32>) -> tensor<3x5xf32>
  %4 = linalg.select ins(%k, %3, %a : tensor<3x5xi1>, tensor<3x5xf32>, tensor<3x5xf32>) outs(%c : tensor<3x5xf32>) -> tensor<3x5xf32>
  return %4 : tensor<3x5xf32>
}
// -----
func.func @fill_and_copy(%n: index, %x: f32, %h: tensor<?x3xf16>) -> (tensor<?x3xf32>, tensor<?x3xf16>) {
  %0 = tensor.empty(%n) : tensor<?x3xf32>
  %1 = linalg.fill {foo = 1 : i32} ins(%x : f32) outs(%0 : tensor<?x3xf32>) -> tensor<?x3xf32>
  %2 = linalg.copy ins(%1 : tensor<?x3xf32>) outs(%h : tensor<?x3xf16>) -> tensor<?x3xf16>
  return %1, %2 : tensor<?x3xf32>, tensor<?x3xf16>
}
// -----
func.func @reshapes(%a: tensor<16x256xf32>, %b: tensor<?x3xf32>, %n: index) -> (tensor<16x4x64xf32>, tensor<4096xf32>, tensor<?x2x3xf32>, tensor<f32>, tensor<1x1xf32>) {
  %0 = tensor.expand_shape %a [[0], [1, 2]] : tensor<16x256xf32> into tensor<16x4x64xf32>
  %1 = tensor.collapse_shape %a [[0, 1]] : tensor<16x256xf32> into tensor<4096xf32>
  %2 = tensor.expand_shape %b [[0, 1], [2]] output_shape [%n, 2, 3] : tensor<?x3xf32> into tensor<?x2x3xf32>
  %e = tensor.empty() : tensor<1x1xf32>
  %3 = tensor.collapse_shape %e [] : tensor<1x1xf32> into tensor<f32>
  %4 = tensor.expand_shape %3 [] output_shape [1, 1] : tensor<f32> into tensor<1x1xf32>
  return %0, %1, %2, %3, %4 : tensor<16x4x64xf32>, tensor<4096xf32>, tensor<?x2x3xf32>, tensor<f32>, tensor<1x1xf32>
}
// -----
func.func @slices(%a: tensor<7x5x3xf32>, %i: index, %n: index) -> (tensor<2x?xf32>, tensor<7x5x3xf32>, tensor<?x?xf32>) {
  %0 = tensor.extract_slice %a[1, %i, 0] [2, %n, 1] [3, 1, 1] : tensor<7x5x3xf32> to tensor<2x?xf32>
  %1 = tensor.insert_slice %0 into %a[1, %i, 0] [2, %n, 1] [3, 1, 1] : tensor<2x?xf32> into tensor<7x5x3xf32>
  %c1 = arith.constant 1 : index
  %d = tensor.dim %0, %c1 : tensor<2x?xf32>
  %zero = arith.constant 0.0 : f32
  %2 = tensor.pad %0 low[1, %d] high[0, 2] {
  ^bb0(%x: index, %y: index):
    tensor.yield %zero : f32
  } : tensor<2x?xf32> to tensor<3x?xf32>
  %3 = tensor.cast %2 : tensor<3x?xf32> to tensor<?x?xf32>
  return %0, %1, %3 : tensor<2x?xf32>, tensor<7x5x3xf32>, tensor<?x?xf32>
}
// -----
#ceil = affine_map<(d0)[s0] -> (d0 ceildiv 64, s0 floordiv 3, d0 mod 5)>
#sub = affine_map<()[s0, s1] -> (s0 - s1)>
func.func @affine(%a: index, %b: index, %t: tensor<?xf32>) -> (tensor<?xf32>, index, index) {
  %0 = affine.min #ceil(%a)[%b]
  %1 = affine.max #ceil(%a)[%b]
  %2 = affine.apply #sub()[%0, %1]
  return %t, %1, %2 : tensor<?xf32>, index, index
}
// -----
func.func @forall_2d(%a: tensor<?x?xf32>, %m: index, %n: index) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %0 = scf.forall (%i, %j) = (0, %c0) to (%m, %n) step (32, %m) shared_outs(%o = %a) -> (tensor<?x?xf32>) {
    %s = tensor.extract_slice %o[%i, %j] [1, 1] [1, 1] : tensor<?x?xf32> to tensor<1x1xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %o[%i, %j] [1, 1] [1, 1] : tensor<1x1xf32> into tensor<?x?xf32>
    }
  } {mapping = [#gpu.thread<y>, #gpu.thread<x>]}
  return %0 : tensor<?x?xf32>
}
// -----
func.func @forall_mappings(%a: tensor<7xf32>) -> (tensor<7xf32>, tensor<7xf32>, tensor<7xf32>) {
  %0 = scf.forall (%i) in (7) shared_outs(%o = %a) -> (tensor<7xf32>) {
    %s = tensor.extract_slice %o[%i] [1] [1] : tensor<7xf32> to tensor<f32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %o[%i] [1] [1] : tensor<f32> into tensor<7xf32>
    }
  } {mapping = [#gpu.warp<linear_dim_0>]}
  %1:2 = scf.forall (%i) in (7) shared_outs(%o = %0, %p = %a) -> (tensor<7xf32>, tensor<7xf32>) {
    %s = tensor.extract_slice %o[%i] [1] [1] : tensor<7xf32> to tensor<1xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %o[%i] [1] [1] : tensor<1xf32> into tensor<7xf32>
      tensor.parallel_insert_slice %s into %p[%i] [1] [1] : tensor<1xf32> into tensor<7xf32>
    }
  }
  return %0, %1#0, %1#1 : tensor<7xf32>, tensor<7xf32>, tensor<7xf32>
}
// -----
func.func @scalars(%x: tensor<3x5xf32>, %i: tensor<3x5xi32>, %n: index) -> (tensor<3x5xf32>, tensor<3x5xi8>) {
  %inf = arith.constant dense<0xFF800000> : tensor<3x5xf32>
  %nan = arith.constant 0x7FC00000 : f32
  %0 = arith.maximumf %x, %inf : tensor<3x5xf32>
  %1 = arith.cmpf olt, %0, %x fastmath<nnan> : tensor<3x5xf32>
  %2 = arith.select %1, %x, %0 : tensor<3x5xi1>, tensor<3x5xf32>
  %3 = arith.sitofp %i : tensor<3x5xi32> to tensor<3x5xf32>
  %4 = math.fma %2, %3, %x : tensor<3x5xf32>
  %5 = arith.fptosi %4 : tensor<3x5xf32> to tensor<3x5xi32>
  %6 = arith.cmpi ult, %5, %i : tensor<3x5xi32>
  %7 = arith.extui %6 : tensor<3x5xi1> to tensor<3x5xi32>
  %8 = arith.trunci %7 : tensor<3x5xi32> to tensor<3x5xi8>
  %9 = arith.remf %4, %x : tensor<3x5xf32>
  %10 = arith.index_castui %n : index to i64
  %f8 = arith.truncf %9 : tensor<3x5xf32> to tensor<3x5xf8E4M3FN>
  %11 = arith.extf %f8 : tensor<3x5xf8E4M3FN> to tensor<3x5xf32>
  return %11, %8 : tensor<3x5xf32>, tensor<3x5xi8>
}
// -----
module @named attributes {ml.a = "b"} {
  func.func private @helper(%x: tensor<?xf32>) -> f32 {
    %c0 = arith.constant 0 : index
    %0 = tensor.extract %x[%c0] : tensor<?xf32>
    return %0 : f32
  }
  func.func @control(%x: tensor<?x?xf32> {ml.arg = 1 : i32}, %n: index) -> (f32 {ml.res}) attributes {ml.fn} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %f = arith.constant 0.0 : f32
    %s = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %f) -> (f32) {
      %v = tensor.extract %x[%i, %c0] : tensor<?x?xf32>
      %w = arith.addf %acc, %v : f32
      scf.yield %w : f32
    }
    %lt = arith.cmpi ult, %n, %c1 : index
    %r = scf.if %lt -> (f32) {
      scf.yield %s : f32
    } else {
      scf.yield %f : f32
    }
    %cs = tensor.collapse_shape %x [[0, 1]] : tensor<?x?xf32> into tensor<?xf32>
    %k = call @helper(%cs) : (tensor<?xf32>) -> f32
    %z = arith.addf %k, %r : f32
    return %z : f32
  }
}
