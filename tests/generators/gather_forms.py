"""Gathers, scalar arguments, and maps that divide."""

from generators.form import Form, empty, empty_like

ROW = "affine_map<(d0, d1) -> (d0)>"
PLANE = "affine_map<(d0, d1) -> (d0, d1)>"
GATHERS = (
    Form(
        "gather_rows",
        ("?11x5xf32", "?7xi32"),
        "?7x5xf32",
        f"""{empty("e", "?7x5xf32", ("%a1", "?7xi32", 0))}
  %r = linalg.generic {{indexing_maps = [{ROW}, {PLANE}], iterator_types = ["parallel", "parallel"]}}
      ins(%a1 : tensor<?xi32>) outs(%e : tensor<?x5xf32>) {{
  ^bb0(%i: i32, %o: f32):
    %row = arith.index_cast %i : i32 to index
    %column = linalg.index 1 : index
    %v = tensor.extract %a0[%row, %column] : tensor<?x5xf32>
    linalg.yield %v : f32
  }} -> tensor<?x5xf32>
  return %r : tensor<?x5xf32>""",
        limit=(0, 11),
    ),
    Form(
        "gather_guarded",
        ("13xf16", "33xi64"),
        "33xf16",
        """  %e = tensor.empty() : tensor<33xf16>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%a1 : tensor<33xi64>) outs(%e : tensor<33xf16>) {
  ^bb0(%i: i64, %o: f16):
    %zero = arith.constant 0 : i64
    %size = arith.constant 13 : i64
    %none = arith.constant -1.0 : f16
    %low = arith.cmpi sge, %i, %zero : i64
    %high = arith.cmpi slt, %i, %size : i64
    %inside = arith.andi %low, %high : i1
    %v = scf.if %inside -> (f16) {
      %at = arith.index_cast %i : i64 to index
      %x = tensor.extract %a0[%at] : tensor<13xf16>
      scf.yield %x : f16
    } else {
      scf.yield %none : f16
    }
    linalg.yield %v : f16
  } -> tensor<33xf16>
  return %r : tensor<33xf16>""",
        limit=(-20, 20),
    ),
    Form(
        "gather_and_sum",
        ("17x9xf32", "?5x31xi32"),
        "?5xf32",
        f"""{empty("e", "?5xf32", ("%a1", "?5x31xi32", 0))}
  %zero = arith.constant 0.0 : f32
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %r = linalg.generic {{indexing_maps = [{PLANE}, {ROW}], iterator_types = ["parallel", "reduction"]}}
      ins(%a1 : tensor<?x31xi32>) outs(%f : tensor<?xf32>) {{
  ^bb0(%i: i32, %o: f32):
    %row = arith.index_cast %i : i32 to index
    %k = linalg.index 1 : index
    %nine = arith.constant 9 : index
    %column = arith.remui %k, %nine : index
    %v = tensor.extract %a0[%row, %column] : tensor<17x9xf32>
    %s = arith.addf %o, %v : f32
    linalg.yield %s : f32
  }} -> tensor<?xf32>
  return %r : tensor<?xf32>""",
        limit=(0, 17),
    ),
    Form(
        "gather_from_a_result",
        ("?21xf32", "?21xi32"),
        "?21xf32",
        f"""{empty_like("e", "?21xf32")}
  %x = math.exp %a0 : tensor<?xf32>
  %r = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]}} ins(%x, %a1 : tensor<?xf32>, tensor<?xi32>) outs(%e : tensor<?xf32>) {{
  ^bb0(%own: f32, %i: i32, %o: f32):
    %at = arith.index_cast %i : i32 to index
    %v = tensor.extract %x[%at] : tensor<?xf32>
    %s = arith.subf %v, %own : f32
    linalg.yield %s : f32
  }} -> tensor<?xf32>
  return %r : tensor<?xf32>""",
        limit=(0, 21),
    ),
    Form(
        "gather_from_constants",
        ("19xi32", "19xf32"),
        "19xf32",
        """  %table = arith.constant dense<[1.5, -2.0, 0.25, 7.0, 3.0]> : tensor<5xf32>
  %e = tensor.empty() : tensor<19xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]} ins(%a0, %a1 : tensor<19xi32>, tensor<19xf32>) outs(%e : tensor<19xf32>) {
  ^bb0(%i: i32, %x: f32, %o: f32):
    %at = arith.index_cast %i : i32 to index
    %v = tensor.extract %table[%at] : tensor<5xf32>
    %s = arith.mulf %v, %x : f32
    linalg.yield %s : f32
  } -> tensor<19xf32>
  return %r : tensor<19xf32>""",
        limit=(0, 5),
    ),
    Form(
        "element_at_a_computed_place",
        ("?37xf32", "i32"),
        "?37xf32",
        f"""{empty_like("e", "?37xf32")}
  %i = tensor.extract %a1[] : tensor<i32>
  %at = arith.index_cast %i : i32 to index
  %x = tensor.extract %a0[%at] : tensor<?xf32>
  %f = linalg.fill ins(%x : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %r = arith.subf %a0, %f : tensor<?xf32>
  return %r : tensor<?xf32>""",
        limit=(0, 37),
    ),
)
CLAMPED = Form(
    "gather_clamped",
    ("?11xf32", "?40xi32"),
    "?40xf32",
    f"""{empty("e", "?40xf32", ("%a1", "?40xi32", 0))}
  %r = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}}
      ins(%a1 : tensor<?xi32>) outs(%e : tensor<?xf32>) {{
  ^bb0(%i: i32, %o: f32):
    %at = arith.index_cast %i : i32 to index
    %v = tensor.extract %a0[%at] : tensor<?xf32>
    linalg.yield %v : f32
  }} -> tensor<?xf32>
  return %r : tensor<?xf32>""",
    limit=(-(2**31), 2**31),
)

SCALARS = (
    Form(
        "scalars",
        ("?13xf32", ":f32", ":i32", ":i1"),
        "?13xf32",
        f"""{empty_like("e", "?13xf32")}
  %i = arith.sitofp %a2 : i32 to f32
  %s = arith.mulf %a1, %i : f32
  %f = linalg.fill ins(%s : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %x = arith.mulf %a0, %f : tensor<?xf32>
  %r = arith.select %a3, %x, %a0 : tensor<?xf32>
  return %r : tensor<?xf32>""",
    ),
    Form(
        "scalar_sizes",
        ("?17x7xf32", ":index=5", ":i32=3"),
        "?5x3xf32",
        """  %n = arith.index_cast %a2 : i32 to index
  %c1 = arith.constant 1 : index
  %x = tensor.extract_slice %a0[%c1, %n] [%a1, 3] [2, 1] : tensor<?x7xf32> to tensor<?x3xf32>
  %r = math.absf %x : tensor<?x3xf32>
  return %r : tensor<?x3xf32>""",
    ),
    Form(
        "scalar_initial_value",
        ("5x33xf32", "33x9xf32", ":f32"),
        "5x9xf32",
        """  %e = tensor.empty() : tensor<5x9xf32>
  %f = linalg.fill ins(%a2 : f32) outs(%e : tensor<5x9xf32>) -> tensor<5x9xf32>
  %r = linalg.matmul ins(%a0, %a1 : tensor<5x33xf32>, tensor<33x9xf32>) outs(%f : tensor<5x9xf32>) -> tensor<5x9xf32>
  return %r : tensor<5x9xf32>""",
    ),
    Form(
        "scalar_index",
        ("7x?11xf32", ":index=4"),
        "7xf32",
        """  %e = tensor.empty() : tensor<7xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<7xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %v = tensor.extract %a0[%i, %a1] : tensor<7x?xf32>
    linalg.yield %v : f32
  } -> tensor<7xf32>
  return %r : tensor<7xf32>""",
    ),
)

DIVIDED = (
    Form(
        "split_by_division",
        ("4x6xf32",),
        "24xf32",
        """  %e = tensor.empty() : tensor<24xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0 floordiv 6, d0 mod 6)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]} ins(%a0 : tensor<4x6xf32>) outs(%e : tensor<24xf32>) {
  ^bb0(%x: f32, %o: f32):
    linalg.yield %x : f32
  } -> tensor<24xf32>
  return %r : tensor<24xf32>""",
    ),
    Form(
        "nearest_neighbour",
        ("?3x5xf32", "7x?10xf32"),
        "7x?10xf32",
        f"""{empty("e", "7x?10xf32", ("%a1", "7x?10xf32", 1))}
  %r = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0 floordiv 3, d1 floordiv 2)>, {PLANE}, {PLANE}],
      iterator_types = ["parallel", "parallel"]}} ins(%a0, %a1 : tensor<?x5xf32>, tensor<7x?xf32>) outs(%e : tensor<7x?xf32>) {{
  ^bb0(%x: f32, %y: f32, %o: f32):
    %s = arith.mulf %x, %y : f32
    linalg.yield %s : f32
  }} -> tensor<7x?xf32>
  return %r : tensor<7x?xf32>""",
    ),
)

DIVIDED_AND_REDUCED = (
    Form(
        "reduced_blocks",
        ("5x?13xf32", "4xf32"),
        "5xf32",
        """  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ((d1 + 3) floordiv 4)>,
      affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%a0, %a1 : tensor<5x?xf32>, tensor<4xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<5xf32>
  return %r : tensor<5xf32>""",
    ),
    Form(
        "loop_sized_by_a_divided_read",
        ("3x?9xf32",),
        "5xf32",
        """  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0 floordiv 2, d1)>, affine_map<(d0, d1) -> (d0)>],
      iterator_types = ["parallel", "reduction"]} ins(%a0 : tensor<3x?xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%x: f32, %o: f32):
    %s = arith.addf %o, %x : f32
    linalg.yield %s : f32
  } -> tensor<5xf32>
  return %r : tensor<5xf32>""",
    ),
)
