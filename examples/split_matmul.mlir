// C = A * B in f16 with sums in f32, written at tile level, where k is much longer than m and n: `parts` workgroups share the k of each
// 64 x 64 elements of C. Each stores its partial sum; the last of them to arrive adds all of them, in the order of the parts whoever is
// last, so that the result is the same to the bit every time. Who is last, what it may read then, and that the counters are zero again
// behind the kernel: all of it is proven, for all sizes.
tile.kernel @split_matmul(%a: !tile.ptr<f16>, %b: !tile.ptr<f16>, %sums: !tile.ptr<f32>, %counters: !tile.ptr<i32>, %c: !tile.ptr<f16>,
                          %m: index, %n: index, %k: index, %parts: index, %steps: index) attributes {
  arg_shapes = [["m", "k"], ["k", "n"], ["parts", "m", "n"], ["(m + 63) // 64", "(n + 63) // 64"], ["m", "n"]], output_count = 3,
  workspace = array<i64: 2, 3>, requires = ["k <= 64 * parts * steps"], grid = ["(n + 63) // 64", "(m + 63) // 64", "parts"], num_warps = 4
} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %side = arith.constant 64 : index
  %c63 = arith.constant 63 : index
  %m63 = arith.addi %m, %c63 : index
  %n63 = arith.addi %n, %c63 : index
  %rows = arith.divui %m63, %side : index
  %columns = arith.divui %n63, %side : index
  %mn = arith.muli %m, %n : index
  %va = tile.view %a offset 0 : i64 align 16 : i64 sizes [%m, %k] strides [%k] : !tile.ptr<f16> -> memref<?x?xf16, strided<[?, 1]>>
  %vb = tile.view %b offset 0 : i64 align 16 : i64 sizes [%k, %n] strides [%n] : !tile.ptr<f16> -> memref<?x?xf16, strided<[?, 1]>>
  %vs = tile.view %sums offset 0 : i64 align 16 : i64 sizes [%parts, %m, %n] strides [%mn, %n]
      : !tile.ptr<f32> -> memref<?x?x?xf32, strided<[?, ?, 1]>>
  %vt = tile.view %counters offset 0 : i64 align 16 : i64 sizes [%rows, %columns] strides [%columns]
      : !tile.ptr<i32> -> memref<?x?xi32, strided<[?, 1]>>
  %vc = tile.view %c offset 0 : i64 align 16 : i64 sizes [%m, %n] strides [%n] : !tile.ptr<f16> -> memref<?x?xf16, strided<[?, 1]>>
  %column = tile.program_id 0 : i64
  %row = tile.program_id 1 : i64
  %part = tile.program_id 2 : i64
  %m0 = arith.muli %row, %side : index
  %n0 = arith.muli %column, %side : index
  %first = arith.muli %part, %steps : index
  %none = arith.constant dense<0.0> : tensor<64x64xf32>
  %sum = scf.for %step = %c0 to %steps step %c1 iter_args(%acc = %none) -> (tensor<64x64xf32>) {
    %at = arith.addi %first, %step : index
    %k0 = arith.muli %at, %side : index
    // Elements outside of the arrays are 0.
    %ta = tile.load %va[%m0, %k0] dims array<i64: 0, 1> vector 1 : i64 : memref<?x?xf16, strided<[?, 1]>> -> tensor<64x64xf16>
    %tb = tile.load %vb[%k0, %n0] dims array<i64: 0, 1> vector 1 : i64 : memref<?x?xf16, strided<[?, 1]>> -> tensor<64x64xf16>
    %next = tile.contract %ta, %tb, %acc "" : tensor<64x64xf16>, tensor<64x64xf16>, tensor<64x64xf32> -> tensor<64x64xf32>
    scf.yield %next : tensor<64x64xf32>
  }
  tile.store %sum, %vs[%part, %m0, %n0] dims array<i64: 1, 2> vector 1 : i64 : tensor<64x64xf32>, memref<?x?x?xf32, strided<[?, ?, 1]>>
  %last = tile.arrive_last %vt[%row, %column] of %parts : memref<?x?xi32, strided<[?, 1]>>
  scf.if %last {
    %total = scf.for %p = %c0 to %parts step %c1 iter_args(%so_far = %none) -> (tensor<64x64xf32>) {
      %partial = tile.load %vs[%p, %m0, %n0] dims array<i64: 1, 2> vector 1 : i64 : memref<?x?x?xf32, strided<[?, ?, 1]>> -> tensor<64x64xf32>
      %more = arith.addf %so_far, %partial : tensor<64x64xf32>
      scf.yield %more : tensor<64x64xf32>
    }
    %half = arith.truncf %total : tensor<64x64xf32> to tensor<64x64xf16>
    tile.store %half, %vc[%m0, %n0] dims array<i64: 0, 1> vector 1 : i64 : tensor<64x64xf16>, memref<?x?xf16, strided<[?, 1]>>
    scf.yield
  }
  tile.return
}
