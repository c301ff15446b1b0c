"""What becomes one kernel: fusion of consumers and producers, refusals, reuse, and that the numbers stay."""

import numpy as np
import pytest
from transforms.tensor.dispatch_programs import Array, body_generics, compare, host_ops, kernels, lower

from treadle.dialects import dispatch
from treadle.errors import TreadleError

RANDOM = np.random.default_rng(5)


def normal(*shape: int) -> Array:
    return RANDOM.standard_normal(shape)


EXAMPLES = "examples"


def example(name: str) -> str:
    from pathlib import Path

    return (Path(__file__).parents[3] / EXAMPLES / name).read_text()


def test_linear_bias_gelu_is_one_kernel() -> None:
    module = compare(example("linear_bias_gelu.mlir"), normal(77, 200), normal(136, 200), normal(136))
    (kernel,) = kernels(module)
    assert len(body_generics(kernel)) == 2


def test_softmax_is_one_kernel() -> None:
    module = compare(example("softmax.mlir"), normal(33, 1000))
    assert len(kernels(module)) == 1


def test_matmul_adds_to_its_third_argument() -> None:
    text = example("splitk_matmul.mlir").replace("51234", "517")
    module = compare(text, normal(123, 517), normal(517, 456), normal(123, 456))
    (kernel,) = kernels(module)
    assert [str(text) for text in dispatch.text_lists(kernel.arg_shapes)][2] == "('123', '456')"


MATMUL = """
  %zero = arith.constant 0.0 : f32
  %e{i} = tensor.empty() : tensor<{m}x{n}xf32>
  %f{i} = linalg.fill ins(%zero : f32) outs(%e{i} : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %p{i} = linalg.matmul ins({a}, {b} : tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>) outs(%f{i} : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
"""


def matmul(i: int, a: str, b: str, m: int, n: int, k: int) -> str:
    return MATMUL.format(i=i, a=a, b=b, m=m, n=n, k=k).replace("%zero", f"%zero{i}")


def test_two_contractions_in_a_row_are_two_kernels() -> None:
    text = f"""func.func @f(%a: tensor<7x5xf32>, %b: tensor<5x9xf32>, %c: tensor<9x3xf32>) -> tensor<7x3xf32> {{
      {matmul(0, "%a", "%b", 7, 9, 5)} {matmul(1, "%p0", "%c", 7, 3, 9)}
      return %p1 : tensor<7x3xf32> }}"""
    assert len(kernels(compare(text, normal(7, 5), normal(5, 9), normal(9, 3)))) == 2


def test_a_transposed_second_read_of_the_result_is_another_kernel() -> None:
    generic = """%s = linalg.generic {
        indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>],
        iterator_types = ["parallel", "parallel"]} ins(%p0, %p0 : tensor<9x9xf32>, tensor<9x9xf32>) outs(%e : tensor<9x9xf32>) {
      ^bb0(%x: f32, %y: f32, %o: f32):
        %q = arith.subf %x, %y : f32
        linalg.yield %q : f32 } -> tensor<9x9xf32>"""
    text = f"""func.func @f(%a: tensor<9x5xf32>, %b: tensor<5x9xf32>) -> tensor<9x9xf32> {{
      {matmul(0, "%a", "%b", 9, 9, 5)}
      %e = tensor.empty() : tensor<9x9xf32>
      {generic}
      return %s : tensor<9x9xf32> }}"""
    assert len(kernels(compare(text, normal(9, 5), normal(5, 9)))) == 2


def unary(result: str, source: str, op: str, shape: str, element: str = "f32") -> str:
    rank = shape.count("x") + 1 if shape else 0
    dims = ", ".join(f"d{d}" for d in range(rank))
    type_ = f"tensor<{shape}{'x' if shape else ''}{element}>"
    kinds = ", ".join(['"parallel"'] * rank)
    return f"""
      {result}_e = tensor.empty() : {type_}
      {result} = linalg.generic {{indexing_maps = [affine_map<({dims}) -> ({dims})>, affine_map<({dims}) -> ({dims})>],
        iterator_types = [{kinds}]}} ins({source} : {type_}) outs({result}_e : {type_}) {{
      ^bb0(%i: {element}, %o: {element}):
        %r = {op} %i : {element}
        linalg.yield %r : {element}
      }} -> {type_}"""


def binary(result: str, left: str, right: str, op: str, shape: str) -> str:
    type_ = f"tensor<{shape}xf32>"
    return f"""
      {result}_e = tensor.empty() : {type_}
      {result} = linalg.{op} ins({left}, {right} : {type_}, {type_}) outs({result}_e : {type_}) -> {type_}"""


def test_diamond_of_elementwise_is_one_kernel() -> None:
    text = f"""func.func @f(%x: tensor<5x7xf32>) -> tensor<5x7xf32> {{
      {unary("%a", "%x", "math.exp", "5x7")} {unary("%b", "%a", "arith.negf", "5x7")} {unary("%c", "%a", "math.tanh", "5x7")}
      {binary("%d", "%b", "%c", "mul", "5x7")}
      return %d : tensor<5x7xf32> }}"""
    (kernel,) = kernels(compare(text, normal(5, 7)))
    assert len(body_generics(kernel)) == 4
    assert len(kernel.function_type.outputs) == 1


def test_results_returned_on_the_way_are_exported() -> None:
    text = f"""func.func @f(%x: tensor<5xf32>) -> (tensor<5xf32>, tensor<5xf32>) {{
      {unary("%a", "%x", "math.exp", "5")} {unary("%b", "%a", "arith.negf", "5")}
      return %b, %a : tensor<5xf32>, tensor<5xf32> }}"""
    (kernel,) = kernels(compare(text, normal(5)))
    assert len(kernel.function_type.outputs) == 2


def test_consumer_that_waits_for_another_kernel_stays_out() -> None:
    # exp(p) is exported; its row sums come from another kernel; the quotient needs both and must not close a cycle.
    text = f"""func.func @f(%a: tensor<7x5xf32>, %b: tensor<5x9xf32>) -> tensor<7x9xf32> {{
      {matmul(0, "%a", "%b", 7, 9, 5)} {unary("%x", "%p0", "math.tanh", "7x9")}
      %se = tensor.empty() : tensor<7xf32>
      %si = linalg.fill ins(%zero0 : f32) outs(%se : tensor<7xf32>) -> tensor<7xf32>
      %s = linalg.reduce {{ arith.addf }} ins(%x : tensor<7x9xf32>) outs(%si : tensor<7xf32>) dimensions = [1]
      %be = tensor.empty() : tensor<7x9xf32>
      %sb = linalg.broadcast ins(%s : tensor<7xf32>) outs(%be : tensor<7x9xf32>) dimensions = [1]
      {binary("%q", "%x", "%sb", "sub", "7x9")}
      return %q : tensor<7x9xf32> }}"""
    module = compare(text, normal(7, 5), normal(5, 9))
    assert [len(body_generics(kernel)) for kernel in kernels(module)] == [2, 2]


def test_expensive_producer_of_a_contraction_is_computed_once() -> None:
    text = f"""func.func @f(%a: tensor<7x5xf32>, %b: tensor<5x9xf32>) -> tensor<7x9xf32> {{
      {unary("%x", "%a", "math.exp", "7x5")} {matmul(0, "%x", "%b", 7, 9, 5)}
      return %p0 : tensor<7x9xf32> }}"""
    module, remarks = lower(text)
    assert len(kernels(module)) == 2
    assert any(remark.kind == "refusal" and "repeated for every tile" in remark.text and remark.location for remark in remarks)
    compare(text, normal(7, 5), normal(5, 9))


def test_cheap_producer_of_a_contraction_joins_it() -> None:
    text = f"""func.func @f(%a: tensor<7x5xf32>, %b: tensor<5x9xf32>) -> tensor<7x9xf32> {{
      {unary("%x", "%a", "arith.negf", "7x5")} {matmul(0, "%x", "%b", 7, 9, 5)}
      return %p0 : tensor<7x9xf32> }}"""
    (kernel,) = kernels(compare(text, normal(7, 5), normal(5, 9)))
    assert ["dispatch.root" in op.attributes for op in body_generics(kernel)] == [False, True]


def test_chain_of_cheap_producers_has_a_budget() -> None:
    chain = "".join(unary(f"%x{i + 1}", f"%x{i}" if i else "%a", "arith.negf", "7x5") for i in range(4))
    text = f"""func.func @f(%a: tensor<7x5xf32>, %b: tensor<5x9xf32>) -> tensor<7x9xf32> {{
      {chain} {matmul(0, "%x4", "%b", 7, 9, 5)}
      return %p0 : tensor<7x9xf32> }}"""
    module = compare(text, normal(7, 5), normal(5, 9))
    assert [len(body_generics(kernel)) for kernel in kernels(module)] == [2, 3]


def test_bias_broadcast_as_initial_value_joins() -> None:
    text = """func.func @f(%a: tensor<7x5xf32>, %b: tensor<5x9xf32>, %bias: tensor<9xf32>) -> tensor<7x9xf32> {
      %e = tensor.empty() : tensor<7x9xf32>
      %i = linalg.broadcast ins(%bias : tensor<9xf32>) outs(%e : tensor<7x9xf32>) dimensions = [0]
      %p = linalg.matmul ins(%a, %b : tensor<7x5xf32>, tensor<5x9xf32>) outs(%i : tensor<7x9xf32>) -> tensor<7x9xf32>
      return %p : tensor<7x9xf32> }"""
    (kernel,) = kernels(compare(text, normal(7, 5), normal(5, 9), normal(9)))
    assert len(body_generics(kernel)) == 2


def test_transposed_consumer_joins_with_a_permuted_read() -> None:
    text = f"""func.func @f(%a: tensor<7x5xf32>, %b: tensor<5x9xf32>) -> tensor<9x7xf32> {{
      {matmul(0, "%a", "%b", 7, 9, 5)}
      %e = tensor.empty() : tensor<9x7xf32>
      %t = linalg.transpose ins(%p0 : tensor<7x9xf32>) outs(%e : tensor<9x7xf32>) permutation = [1, 0]
      return %t : tensor<9x7xf32> }}"""
    (kernel,) = kernels(compare(text, normal(7, 5), normal(5, 9)))
    assert len(body_generics(kernel)) == 2


def test_unused_arguments_and_dead_code_make_no_kernels() -> None:
    text = f"""func.func @f(%x: tensor<5xf32>, %unused: tensor<3x4xf16>) -> tensor<5xf32> {{
      {unary("%a", "%x", "math.exp", "5")} {unary("%dead", "%x", "math.tanh", "5")}
      return %a : tensor<5xf32> }}"""
    module = compare(text, normal(5), normal(3, 4))
    assert len(kernels(module)) == 1
    assert len(host_ops(module, dispatch.InputOp)) == 2


@pytest.mark.parametrize(
    ("body", "line", "name"),
    [
        (
            "%i = tensor.extract %n[] : tensor<i32>\n%e = arith.index_cast %i : i32 to index\n%z = arith.constant 0 : index\n"
            "%o = arith.constant 1 : index\n%r = scf.for %k = %z to %e step %o iter_args(%y = %x) -> (tensor<5xf32>) "
            "{ scf.yield %y : tensor<5xf32> }",
            7,
            "scf.for",
        ),
        (
            "%c = arith.constant true\n%r = scf.while (%y = %x) : (tensor<5xf32>) -> (tensor<5xf32>) "
            "{ scf.condition(%c) %y : tensor<5xf32> } do { ^bb0(%y: tensor<5xf32>): scf.yield %y : tensor<5xf32> }",
            4,
            "scf.while",
        ),
    ],
)
def test_control_flow_on_tensors_is_refused_at_its_line(body: str, line: int, name: str) -> None:
    text = f"func.func @f(%x: tensor<5xf32>, %n: tensor<i32>) -> tensor<5xf32> {{\n\n{body}\n  return %r : tensor<5xf32>\n}}"
    with pytest.raises(TreadleError) as caught:
        lower(text)
    assert caught.value.code == "TR301"
    assert name in caught.value.message
    assert caught.value.location is not None
    assert caught.value.location.line == line


def read_through(index: str, source: str, result: str, element: str = "f32") -> str:
    return f"""func.func @f(%x: tensor<{source}x{element}>) -> tensor<{result}x{element}> {{
  %e = tensor.empty() : tensor<{result}x{element}>
  %0 = linalg.generic {{indexing_maps = [affine_map<(d0) -> ({index})>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}}
      ins(%x : tensor<{source}x{element}>) outs(%e : tensor<{result}x{element}>) {{
  ^bb0(%a: {element}, %o: {element}):
    linalg.yield %a : {element}
  }} -> tensor<{result}x{element}>
  return %0 : tensor<{result}x{element}>
}}"""


@pytest.mark.parametrize(
    "index", ["d0 floordiv 2", "d0 mod 3", "d0 ceildiv 4", "d0 * 2 + d0 mod 2", "(d0 + 3) mod 5", "(12 - d0) floordiv 2"]
)
def test_index_expressions_that_divide_become_gathers(index: str) -> None:
    module = compare(read_through(index, "25", "9"), np.random.default_rng(1).standard_normal(25))
    (kernel,) = kernels(module)
    assert [op.name for op in kernel.walk() if op.name == "tensor.extract"] == ["tensor.extract"]


def test_sums_and_multiples_do_not() -> None:
    (kernel,) = kernels(compare(read_through("d0 * 2 + 5", "25", "9"), np.random.default_rng(1).standard_normal(25)))
    assert not [op for op in kernel.walk() if op.name == "tensor.extract"]


def test_elements_of_type_index_are_refused_at_their_line() -> None:
    with pytest.raises(TreadleError, match="elements of type index") as caught:
        lower(read_through("d0", "9", "9", "index"))
    assert (caught.value.code, caught.value.location and caught.value.location.line) == ("TR301", 3)


@pytest.mark.parametrize("operands", ["%e, %x", "%x, %e"])
def test_values_of_nothing_are_refused(operands: str) -> None:
    text = f"""func.func @f(%x: tensor<8xf32>) -> tensor<8xf32> {{
  %e = tensor.empty() : tensor<8xf32>
  %0 = arith.subf {operands} : tensor<8xf32>
  return %0 : tensor<8xf32>
}}"""
    with pytest.raises(TreadleError, match=r"reads tensor\.empty") as caught:
        lower(text)
    assert (caught.value.code, caught.value.location and caught.value.location.line) == ("TR302", 3)


@pytest.mark.parametrize("yielded", ["%s", "%a"])
def test_reductions_onto_nothing_are_refused_at_their_line(yielded: str) -> None:
    text = f"""func.func @f(%x: tensor<8x3xf32>) -> tensor<8xf32> {{
  %e = tensor.empty() : tensor<8xf32>
  %0 = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>],
      iterator_types = ["parallel", "reduction"]}} ins(%x : tensor<8x3xf32>) outs(%e : tensor<8xf32>) {{
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield {yielded} : f32
  }} -> tensor<8xf32>
  return %0 : tensor<8xf32>
}}"""
    with pytest.raises(TreadleError, match=r"tensor\.empty") as caught:
        lower(text)
    assert (caught.value.code, caught.value.location and caught.value.location.line) == ("TR302", 3)
