// C = A * B in f16 with sums in f32, written at tile level: a workgroup computes 64 x 64 elements of C, 64 steps of k at a time.
// No instruction, layout, copy or barrier is named: the compiler chooses them for the machine, and proves what it inserts.
tile.kernel @tile_matmul(%a: !tile.ptr<f16>, %b: !tile.ptr<f16>, %c: !tile.ptr<f16>, %m: index, %n: index, %k: index) attributes {
  arg_shapes = [["m", "k"], ["k", "n"], ["m", "n"]], output_count = 1, grid = ["(n + 63) // 64", "(m + 63) // 64"], num_warps = 4
} {
  %va = tile.view %a offset 0 : i64 align 16 : i64 sizes [%m, %k] strides [%k] : !tile.ptr<f16> -> memref<?x?xf16, strided<[?, 1]>>
  %vb = tile.view %b offset 0 : i64 align 16 : i64 sizes [%k, %n] strides [%n] : !tile.ptr<f16> -> memref<?x?xf16, strided<[?, 1]>>
  %vc = tile.view %c offset 0 : i64 align 16 : i64 sizes [%m, %n] strides [%n] : !tile.ptr<f16> -> memref<?x?xf16, strided<[?, 1]>>
  %column = tile.program_id 0 : i64
  %row = tile.program_id 1 : i64
  %start = arith.constant 0 : index
  %side = arith.constant 64 : index
  %m0 = arith.muli %row, %side : index
  %n0 = arith.muli %column, %side : index
  %none = arith.constant dense<0.0> : tensor<64x64xf32>
  %sum = scf.for %k0 = %start to %k step %side iter_args(%acc = %none) -> (tensor<64x64xf32>) {
    // Elements outside of the arrays are 0.
    %ta = tile.load %va[%m0, %k0] dims array<i64: 0, 1> vector 1 : i64 : memref<?x?xf16, strided<[?, 1]>> -> tensor<64x64xf16>
    %tb = tile.load %vb[%k0, %n0] dims array<i64: 0, 1> vector 1 : i64 : memref<?x?xf16, strided<[?, 1]>> -> tensor<64x64xf16>
    %next = tile.contract %ta, %tb, %acc "" : tensor<64x64xf16>, tensor<64x64xf16>, tensor<64x64xf32> -> tensor<64x64xf32>
    scf.yield %next : tensor<64x64xf32>
  }
  %half = arith.truncf %sum : tensor<64x64xf32> to tensor<64x64xf16>
  tile.store %half, %vc[%m0, %n0] dims array<i64: 0, 1> vector 1 : i64 : tensor<64x64xf16>, memref<?x?xf16, strided<[?, 1]>>
  tile.return
}
