"""Pieces of a concatenation are written where they belong; whatever may overlap, or is read elsewhere, is copied."""

import numpy as np
import pytest
from transforms.tensor.dispatch_programs import Array, compare, host_ops

from treadle.dialects import dispatch

RANDOM = np.random.default_rng(8)


def normal(*shape: int) -> Array:
    return RANDOM.standard_normal(shape)


def doubled(name: str, source: str, shape: str) -> str:
    """`%name = source + source`, elementwise."""
    dynamic = f"(%d{name})" if "?" in shape else "()"
    size = f"%d{name} = tensor.dim {source}, %c0 : {shape}" if "?" in shape else ""
    same = "affine_map<(i, j) -> (i, j)>"
    return f"""{size}
      %e{name} = tensor.empty{dynamic} : {shape}
      %{name} = linalg.generic {{indexing_maps = [{same}, {same}], iterator_types = ["parallel", "parallel"]}}
          ins({source} : {shape}) outs(%e{name} : {shape}) {{
      ^bb0(%v{name}: f32, %o{name}: f32):
        %w{name} = arith.addf %v{name}, %v{name} : f32
        linalg.yield %w{name} : f32
      }} -> {shape}"""


def launches(text: str, *arrays: Array) -> int:
    return len(host_ops(compare(text, *arrays), dispatch.LaunchOp))


@pytest.mark.parametrize("rows", [(3, 5), (1, 1), (0, 4)])
def test_pieces_of_a_concatenation_are_not_copied(rows: tuple[int, int]) -> None:
    text = f"""func.func @f(%x: tensor<?x3xf32>, %y: tensor<?x3xf32>) -> tensor<?x3xf32> {{
      %c0 = arith.constant 0 : index
      {doubled("a", "%x", "tensor<?x3xf32>")}
      {doubled("b", "%y", "tensor<?x3xf32>")}
      %c = tensor.concat dim(0) %a, %b : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x3xf32>
      return %c : tensor<?x3xf32> }}"""
    assert launches(text, normal(rows[0], 3), normal(rows[1], 3)) == 2


def test_along_the_inner_axis_and_beside_an_argument() -> None:
    """A piece that is an argument is copied, the other one is not."""
    text = f"""func.func @f(%x: tensor<4x3xf32>, %y: tensor<4x5xf32>) -> tensor<4x8xf32> {{
      {doubled("b", "%y", "tensor<4x5xf32>")}
      %c = tensor.concat dim(1) %x, %b : (tensor<4x3xf32>, tensor<4x5xf32>) -> tensor<4x8xf32>
      return %c : tensor<4x8xf32> }}"""
    assert launches(text, normal(4, 3), normal(4, 5)) == 2


SLICES = """func.func @f(%x: tensor<4x3xf32>, %y: tensor<4x3xf32>) -> tensor<4x6xf32> {{
      {a}
      {b}
      %e = tensor.empty() : tensor<4x6xf32>
      %s = tensor.insert_slice %a into %e[0, {first}] [4, 3] [1, 1] : tensor<4x3xf32> into tensor<4x6xf32>
      %t = tensor.insert_slice %b into %s[0, {second}] [4, 3] [1, 1] : tensor<4x3xf32> into tensor<4x6xf32>
      return %t : tensor<4x6xf32> }}"""


@pytest.mark.parametrize(("first", "second", "count"), [(0, 3, 2), (3, 0, 4)])
def test_only_slices_in_order_are_known_to_be_apart(first: int, second: int, count: int) -> None:
    text = SLICES.format(a=doubled("a", "%x", "tensor<4x3xf32>"), b=doubled("b", "%y", "tensor<4x3xf32>"), first=first, second=second)
    assert launches(text, normal(4, 3), normal(4, 3)) == count


def test_overlapping_slices_keep_their_order() -> None:
    """The second piece is computed first, and still wins."""
    whole = "tensor<4x6xf32>"
    text = f"""func.func @f(%x: tensor<4x3xf32>, %y: tensor<4x3xf32>, %z: {whole}) -> {whole} {{
      {doubled("b", "%y", "tensor<4x3xf32>")}
      {doubled("a", "%x", "tensor<4x3xf32>")}
      %s = tensor.insert_slice %a into %z[0, 1] [4, 3] [1, 1] : tensor<4x3xf32> into {whole}
      %t = tensor.insert_slice %b into %s[0, 2] [4, 3] [1, 1] : tensor<4x3xf32> into {whole}
      return %t : {whole} }}"""
    compare(text, normal(4, 3), normal(4, 3), normal(4, 6))


def test_a_piece_that_is_read_elsewhere_has_memory_of_its_own() -> None:
    text = f"""func.func @f(%x: tensor<4x3xf32>, %y: tensor<4x3xf32>) -> (tensor<4x6xf32>, tensor<4x3xf32>) {{
      {doubled("a", "%x", "tensor<4x3xf32>")}
      {doubled("b", "%y", "tensor<4x3xf32>")}
      %c = tensor.concat dim(1) %a, %b : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x6xf32>
      return %c, %a : tensor<4x6xf32>, tensor<4x3xf32> }}"""
    assert launches(text, normal(4, 3), normal(4, 3)) == 3
