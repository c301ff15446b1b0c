// A layer of eight experts: rows offsets[e] to offsets[e + 1] of x, as a router leaves them, times the matrix of expert e. One kernel serves
// every table of offsets; rows that no expert has are not written.
func.func @experts(%x: tensor<8192x4096xbf16>, %w: tensor<8x4096x7168xbf16>, %offsets: tensor<9xi32>) -> tensor<8192x7168xbf16> {
  %zero = arith.constant 0.0 : bf16
  %one = arith.constant 1 : index
  %y = tensor.empty() : tensor<8192x7168xbf16>
  %r = scf.forall (%e) in (8) shared_outs(%o = %y) -> (tensor<8192x7168xbf16>) {
    %next = arith.addi %e, %one : index
    %s = tensor.extract %offsets[%e] : tensor<9xi32>
    %t = tensor.extract %offsets[%next] : tensor<9xi32>
    %start = arith.index_cast %s : i32 to index
    %end = arith.index_cast %t : i32 to index
    %count = arith.subi %end, %start : index
    %a = tensor.extract_slice %x[%start, 0] [%count, 4096] [1, 1] : tensor<8192x4096xbf16> to tensor<?x4096xbf16>
    %b = tensor.extract_slice %w[%e, 0, 0] [1, 4096, 7168] [1, 1, 1] : tensor<8x4096x7168xbf16> to tensor<4096x7168xbf16>
    %n = tensor.empty(%count) : tensor<?x7168xbf16>
    %f = linalg.fill ins(%zero : bf16) outs(%n : tensor<?x7168xbf16>) -> tensor<?x7168xbf16>
    %c = linalg.matmul ins(%a, %b : tensor<?x4096xbf16>, tensor<4096x7168xbf16>) outs(%f : tensor<?x7168xbf16>) -> tensor<?x7168xbf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %c into %o[%start, 0] [%count, 7168] [1, 1] : tensor<?x7168xbf16> into tensor<8192x7168xbf16>
    }
  }
  return %r : tensor<8192x7168xbf16>
}
