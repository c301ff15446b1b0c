"""Kernels and host programs: sizes as expressions, views, copies, sharing, and that the numbers stay."""

import numpy as np
import pytest
from transforms.tensor.dispatch_programs import Array, compare, host_ops, kernels, lower, program, run_program

from treadle.dialects import dispatch
from treadle.errors import TreadleError
from treadle.ir.text import print_module

RANDOM = np.random.default_rng(6)


def normal(*shape: int) -> Array:
    return RANDOM.standard_normal(shape)


DYNAMIC_MATMUL = """func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x?xf32>
  %n = tensor.dim %b, %c1 : tensor<?x?xf32>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %p = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %p : tensor<?x?xf32>
}"""


@pytest.mark.parametrize(("m", "n", "k"), [(3, 5, 7), (1, 1, 1), (0, 5, 7), (3, 0, 7), (3, 5, 0)])
def test_dynamic_matmul(m: int, n: int, k: int) -> None:
    module = compare(DYNAMIC_MATMUL, normal(m, k), normal(k, n))
    assert program(module).dim_sources() == {"s0": (0, 0), "s1": (0, 1), "s3": (1, 1)}
    (kernel,) = kernels(module)
    assert dispatch.text_lists(kernel.arg_shapes) == (("s0", "s1"), ("s1", "s2"))
    assert dispatch.text_lists(kernel.arg_strides) == (("s1", "1"), ("s2", "1"))
    (launch,) = host_ops(module, dispatch.LaunchOp)
    assert launch.symbol_values() == {"s0": "s0", "s1": "s1", "s2": "s3"}


def test_inner_sizes_that_disagree_are_seen_from_the_input_shapes() -> None:
    module, _ = lower(DYNAMIC_MATMUL)
    with pytest.raises(TreadleError, match="TR723"):
        run_program(module, [normal(3, 5), normal(4, 6)])


def test_scalar_result_and_sizes_inside_kernels() -> None:
    text = """func.func @mean(%x: tensor<?xf32>) -> tensor<f32> {
      %c0 = arith.constant 0 : index
      %zero = arith.constant 0.0 : f32
      %n = tensor.dim %x, %c0 : tensor<?xf32>
      %ni = arith.index_cast %n : index to i32
      %nf = arith.sitofp %ni : i32 to f32
      %e = tensor.empty() : tensor<f32>
      %i = linalg.fill ins(%zero : f32) outs(%e : tensor<f32>) -> tensor<f32>
      %s = linalg.reduce { arith.addf } ins(%x : tensor<?xf32>) outs(%i : tensor<f32>) dimensions = [0]
      %e2 = tensor.empty() : tensor<f32>
      %m = linalg.map ins(%s : tensor<f32>) outs(%e2 : tensor<f32>) (%v: f32, %o: f32) {
        %q = arith.divf %v, %nf : f32
        linalg.yield %q : f32
      }
      return %m : tensor<f32> }"""
    (kernel,) = kernels(compare(text, normal(17)))
    assert dispatch.texts(kernel.symbols) == ("s0",)
    assert kernel.attributes["origin"] == dispatch.StringAttr("reduce")


def test_a_fill_with_a_computed_size_converts() -> None:
    text = """func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
      %c0 = arith.constant 0 : index
      %n = tensor.dim %x, %c0 : tensor<?xf32>
      %ni = arith.index_cast %n : index to i32
      %e = tensor.empty(%n) : tensor<?xf32>
      %i = linalg.fill ins(%ni : i32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
      return %i : tensor<?xf32> }"""
    compare(text, normal(5))


@pytest.mark.parametrize("size", [0, 1, 5])
def test_an_argument_returned_unchanged_is_copied(size: int) -> None:
    text = f"func.func @f(%x: tensor<{size}x3xf16>) -> tensor<{size}x3xf16> {{ return %x : tensor<{size}x3xf16> }}"
    module = compare(text, normal(size, 3))
    assert len(host_ops(module, dispatch.LaunchOp)) == min(size, 1)


def test_one_value_returned_twice_goes_to_two_arrays() -> None:
    text = """func.func @f(%x: tensor<?x3xf32>) -> (tensor<?x3xf32>, tensor<?x3xf32>) {
      return %x, %x : tensor<?x3xf32>, tensor<?x3xf32> }"""
    module = compare(text, normal(4, 3))
    assert len(kernels(module)) == 1
    assert len(host_ops(module, dispatch.LaunchOp)) == 2


def test_constants_become_buffers_and_splats_scalars() -> None:
    text = """func.func @f(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2xi32>) {
      %c = arith.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
      %s = arith.constant dense<2.5> : tensor<2x3xf32>
      %k = arith.constant dense<[7, -8]> : tensor<2xi32>
      %e = tensor.empty() : tensor<2x3xf32>
      %a = linalg.add ins(%x, %c : tensor<2x3xf32>, tensor<2x3xf32>) outs(%e : tensor<2x3xf32>) -> tensor<2x3xf32>
      %b = linalg.mul ins(%a, %s : tensor<2x3xf32>, tensor<2x3xf32>) outs(%e : tensor<2x3xf32>) -> tensor<2x3xf32>
      return %b, %k : tensor<2x3xf32>, tensor<2xi32> }"""
    module = compare(text, normal(2, 3))
    assert len(host_ops(module, dispatch.ConstantOp)) == 2


def exp_of(source: str, type_: str, rank: int) -> str:
    dims = ", ".join(f"d{d}" for d in range(rank))
    kinds = ", ".join(['"parallel"'] * rank)
    return f"""%r = linalg.generic {{indexing_maps = [affine_map<({dims}) -> ({dims})>, affine_map<({dims}) -> ({dims})>],
        iterator_types = [{kinds}]}} ins({source} : {type_}) outs(%e : {type_}) {{
      ^bb0(%i: f32, %o: f32):
        %v = math.exp %i : f32
        linalg.yield %v : f32
      }} -> {type_}
      return %r : {type_} }}"""


def test_extract_slice_is_a_view() -> None:
    text = f"""func.func @f(%x: tensor<9x11xf32>) -> tensor<3x4xf32> {{
      %s = tensor.extract_slice %x[2, 1] [3, 4] [2, 2] : tensor<9x11xf32> to tensor<3x4xf32>
      %e = tensor.empty() : tensor<3x4xf32>
      {exp_of("%s", "tensor<3x4xf32>", 2)}"""
    module = compare(text, normal(9, 11))
    (kernel,) = kernels(module)
    assert dispatch.text_lists(kernel.arg_strides) == (("22", "2"),)
    assert dispatch.integers(kernel.arg_align) == (4,)  # element 23 of a 16-byte aligned array
    assert len(host_ops(module, dispatch.LaunchOp)) == 1


def test_rank_reducing_slice_at_dynamic_offset_is_checked() -> None:
    text = f"""func.func @f(%x: tensor<?x5xf32>, %w: tensor<?xf32>) -> tensor<5xf32> {{
      %c0 = arith.constant 0 : index
      %n = tensor.dim %w, %c0 : tensor<?xf32>
      %s = tensor.extract_slice %x[%n, 0] [1, 5] [1, 1] : tensor<?x5xf32> to tensor<5xf32>
      %e = tensor.empty() : tensor<5xf32>
      {exp_of("%s", "tensor<5xf32>", 1)}"""
    module = compare(text, normal(4, 5), normal(3))
    checks = [(op.left.data, op.relation.data, op.right.data) for op in host_ops(module, dispatch.CheckOp)]
    assert ("s1 + 1", "<=", "s0") in checks
    with pytest.raises(TreadleError, match=r"TR724.*leaves axis 0"):
        run_program(module, [normal(3, 5), normal(3)])


def test_static_slice_out_of_bounds_through_a_view_is_an_error() -> None:
    text = """func.func @f(%x: tensor<?xf32>) -> tensor<4xf32> {
      %c = tensor.cast %x : tensor<?xf32> to tensor<3xf32>
      %d = tensor.cast %c : tensor<3xf32> to tensor<?xf32>
      %s = tensor.extract_slice %d[0] [4] [1] : tensor<?xf32> to tensor<4xf32>
      return %s : tensor<4xf32> }"""
    with pytest.raises(TreadleError) as caught:
        lower(text)
    assert caught.value.code == "TR202"
    assert caught.value.location is not None
    assert caught.value.location.line == 4


def test_reshapes_are_views() -> None:
    text = f"""func.func @f(%x: tensor<?x6xf32>) -> tensor<?x2x3xf32> {{
      %c0 = arith.constant 0 : index
      %n = tensor.dim %x, %c0 : tensor<?x6xf32>
      %s = tensor.expand_shape %x [[0], [1, 2]] output_shape [%n, 2, 3] : tensor<?x6xf32> into tensor<?x2x3xf32>
      %e = tensor.empty(%n) : tensor<?x2x3xf32>
      {exp_of("%s", "tensor<?x2x3xf32>", 3)}"""
    assert len(host_ops(compare(text, normal(4, 6)), dispatch.LaunchOp)) == 1


def test_result_that_is_a_collapsed_kernel_result_needs_no_copy() -> None:
    text = f"""func.func @f(%x: tensor<4x6xf32>) -> tensor<24xf32> {{
      %e = tensor.empty() : tensor<4x6xf32>
      {exp_of("%x", "tensor<4x6xf32>", 2).rsplit("return", 1)[0]}
      %c = tensor.collapse_shape %r [[0, 1]] : tensor<4x6xf32> into tensor<24xf32>
      return %c : tensor<24xf32> }}"""
    assert len(host_ops(compare(text, normal(4, 6)), dispatch.LaunchOp)) == 1


def test_collapse_of_a_slice_copies_first() -> None:
    text = f"""func.func @f(%x: tensor<4x6xf32>) -> tensor<12xf32> {{
      %s = tensor.extract_slice %x[0, 2] [4, 3] [1, 1] : tensor<4x6xf32> to tensor<4x3xf32>
      %c = tensor.collapse_shape %s [[0, 1]] : tensor<4x3xf32> into tensor<12xf32>
      %e = tensor.empty() : tensor<12xf32>
      {exp_of("%c", "tensor<12xf32>", 1)}"""
    assert len(host_ops(compare(text, normal(4, 6)), dispatch.LaunchOp)) == 2


@pytest.mark.parametrize("again", [False, True])
def test_insert_slice_leaves_its_destination_alone(again: bool) -> None:
    more = ", %r" if again else ""
    types = ", tensor<4x6xf32>" if again else ""
    text = f"""func.func @f(%x: tensor<4x6xf32>, %y: tensor<2x3xf32>) -> (tensor<4x6xf32>{types}) {{
      %e = tensor.empty() : tensor<4x6xf32>
      {exp_of("%x", "tensor<4x6xf32>", 2).rsplit("return", 1)[0]}
      %c = tensor.insert_slice %y into %r[1, 0] [2, 3] [2, 2] : tensor<2x3xf32> into tensor<4x6xf32>
      return %c{more} : tensor<4x6xf32>{types} }}"""
    module = compare(text, normal(4, 6), normal(2, 3))
    assert len(host_ops(module, dispatch.LaunchOp)) == (3 if again else 2)


def test_insert_slice_into_an_argument() -> None:
    text = """func.func @f(%x: tensor<?x6xf32>, %y: tensor<1x6xf32>) -> tensor<?x6xf32> {
      %c = tensor.insert_slice %y into %x[2, 0] [1, 6] [1, 1] : tensor<1x6xf32> into tensor<?x6xf32>
      return %c : tensor<?x6xf32> }"""
    compare(text, normal(4, 6), normal(1, 6))


def test_strides_and_alignment_of_arguments() -> None:
    text = f"""func.func @f(%x: tensor<3x4xf32> {{treadle.strides = array<i64: -1, 1>, treadle.align = 64 : i64}}) -> tensor<3x4xf32> {{
      %e = tensor.empty() : tensor<3x4xf32>
      {exp_of("%x", "tensor<3x4xf32>", 2)}"""
    whole = normal(3, 9)
    module = compare(text, whole[:, :4])
    assert program(module).dim_sources() == {"s0": (0, -1)}
    (kernel,) = kernels(module)
    assert dispatch.text_lists(kernel.arg_strides) == (("s0", "1"),)
    assert dispatch.integers(kernel.arg_align) == (64,)


@pytest.mark.parametrize("attribute", ["treadle.strides = array<i64: 1>", "treadle.align = 3 : i64", 'treadle.align = "x"'])
def test_wrong_argument_attributes_are_errors(attribute: str) -> None:
    with pytest.raises(TreadleError, match="TR201"):
        lower(f"func.func @f(%x: tensor<3x4xf32> {{{attribute}}}) -> tensor<3x4xf32> {{ return %x : tensor<3x4xf32> }}")


def test_equal_kernels_are_shared_and_unequal_sizes_are_not() -> None:
    body = "\n".join(
        f"""%e{i} = tensor.empty() : tensor<{n}xf32>
        %r{i} = linalg.exp ins(%x{i} : tensor<{n}xf32>) outs(%e{i} : tensor<{n}xf32>) -> tensor<{n}xf32>"""
        for i, n in enumerate((5, 5, 6))
    )
    text = f"""func.func @f(%x0: tensor<5xf32>, %x1: tensor<5xf32>, %x2: tensor<6xf32>) -> (tensor<5xf32>, tensor<5xf32>, tensor<6xf32>) {{
      {body}
      return %r0, %r1, %r2 : tensor<5xf32>, tensor<5xf32>, tensor<6xf32> }}"""
    module = compare(text, normal(5), normal(5), normal(6))
    assert len(kernels(module)) == 2
    assert len(host_ops(module, dispatch.LaunchOp)) == 3


def test_several_functions_make_several_programs() -> None:
    one = """func.func @{name}(%x: tensor<5xf32>) -> tensor<5xf32> {{
      %e = tensor.empty() : tensor<5xf32>
      %r = linalg.exp ins(%x : tensor<5xf32>) outs(%e : tensor<5xf32>) -> tensor<5xf32>
      return %r : tensor<5xf32> }}"""
    module, _ = lower(one.format(name="f") + one.format(name="g"))
    x = normal(5)
    for name in ("f", "g"):
        np.testing.assert_allclose(run_program(module, [x], name)[0], np.exp(x), rtol=1e-6)
    assert len(kernels(module)) == 1


def test_locations_reach_kernels_and_launches() -> None:
    module, _ = lower(DYNAMIC_MATMUL)
    (kernel,) = kernels(module)
    for op in (*kernel.walk(), *program(module).walk()):
        assert "test.mlir" in str(op.location), op.name
    assert '"test.mlir":9:' in print_module(module, locations=True)


def test_affine_and_index_arithmetic_in_sizes() -> None:
    text = """#half = affine_map<(d0)[s0] -> ((d0 + s0) floordiv 2)>
    func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %n = tensor.dim %x, %c0 : tensor<?xf32>
      %h = affine.apply #half(%n)[%c1]
      %m = arith.subi %n, %h : index
      %s = tensor.extract_slice %x[%m] [%h] [1] : tensor<?xf32> to tensor<?xf32>
      %e = tensor.empty(%h) : tensor<?xf32>
      %r = linalg.exp ins(%s : tensor<?xf32>) outs(%e : tensor<?xf32>) -> tensor<?xf32>
      return %r : tensor<?xf32> }"""
    compare(text, normal(7))
    compare(text, normal(8))


def test_empty_tensor_returned() -> None:
    module, _ = lower("func.func @f() -> tensor<3xf32> { %e = tensor.empty() : tensor<3xf32> return %e : tensor<3xf32> }")
    assert len(kernels(module)) == 0


BACKWARDS = """func.func @f(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (12 - d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<?xf32>) outs(%y : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<?xf32>
  return %0 : tensor<?xf32>
}"""


def test_backward_reads_are_checked_at_both_ends() -> None:
    module = compare(BACKWARDS, normal(13), normal(9))
    checks = {(op.left.data, op.relation.data, op.right.data) for op in host_ops(module, dispatch.CheckOp)}
    assert checks == {("13", "<=", "s0"), ("0", "<=", "13 - s1")}
