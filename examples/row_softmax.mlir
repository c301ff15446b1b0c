// softmax over rows in one kernel, written at tile level: a workgroup holds a whole row. Rows may have any length up to 1024.
tile.kernel @row_softmax(%x: !tile.ptr<f32>, %y: !tile.ptr<f32>, %rows: index, %columns: index) attributes {
  arg_shapes = [["rows", "columns"], ["rows", "columns"]], output_count = 1, requires = ["columns <= 1024"],
  grid = ["rows"], num_warps = 4
} {
  %in = tile.view %x offset 0 : i64 align 16 : i64 sizes [%rows, %columns] strides [%columns]
      : !tile.ptr<f32> -> memref<?x?xf32, strided<[?, 1]>>
  %out = tile.view %y offset 0 : i64 align 16 : i64 sizes [%rows, %columns] strides [%columns]
      : !tile.ptr<f32> -> memref<?x?xf32, strided<[?, 1]>>
  %row = tile.program_id 0 : i64
  %start = arith.constant 0 : index
  // What lies behind the end of the row is -inf: it changes no maximum, and its exponential is 0.
  %values = tile.load %in[%row, %start] dims array<i64: 1> vector 1 : i64 other 0xFF800000 : f32
      : memref<?x?xf32, strided<[?, 1]>> -> tensor<1024xf32>
  %largest = "tile.reduce"(%values) <{axis = 0 : i64}> ({
  ^bb0(%l: f32, %r: f32):
    %m = arith.maximumf %l, %r : f32
    tile.yield %m : f32
  }) : (tensor<1024xf32>) -> tensor<1xf32>
  %subtracted = tile.broadcast %largest : tensor<1xf32> -> tensor<1024xf32>
  %shifted = arith.subf %values, %subtracted : tensor<1024xf32>
  %exp = math.exp %shifted : tensor<1024xf32>
  %sum = "tile.reduce"(%exp) <{axis = 0 : i64}> ({
  ^bb0(%l: f32, %r: f32):
    %s = arith.addf %l, %r : f32
    tile.yield %s : f32
  }) : (tensor<1024xf32>) -> tensor<1xf32>
  %divisor = tile.broadcast %sum : tensor<1xf32> -> tensor<1024xf32>
  %quotient = arith.divf %exp, %divisor : tensor<1024xf32>
  tile.store %quotient, %out[%row, %start] dims array<i64: 1> vector 1 : i64 : tensor<1024xf32>, memref<?x?xf32, strided<[?, 1]>>
  tile.return
}
