"""convert-dispatch-to-tile and set-kernel-form on tensor programs: the tile program's structure."""

import re

import numpy as np
import pytest

import treadle
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.options import ContractionOverrides
from treadle.pipelines import tensor_passes
from treadle.remarks import Remark, collect_remarks
from treadle.transforms.kernel.convert_dispatch_to_tile import ConvertDispatchToTilePass
from treadle.transforms.kernel.set_kernel_form import SetKernelFormPass


def tiled(text: str, target: str = "sm_90a", tile: tuple[int, ...] = ()) -> tuple[str, list[Remark]]:
    """Tile-level text of a tensor-level module; its round trip is checked."""
    module = parse_module(text, "test.mlir")
    config = SetKernelFormPass(target=target, overrides=ContractionOverrides(tile=tile))
    with collect_remarks() as log:
        run_passes(module, [*tensor_passes(), config, ConvertDispatchToTilePass(target=target)])
    printed = print_module(module)
    assert print_module(parse_module(printed, "again.mlir")) == printed
    return printed, log.remarks


MATMUL = """
func.func @mm(%a: tensor<77x203xf16>, %b: tensor<203x45xf16>, %c: tensor<77x45xf32>) -> tensor<77x45xf32> {{
  {init}
  %r = linalg.matmul ins(%a, %b : tensor<77x203xf16>, tensor<203x45xf16>) outs({out} : tensor<77x45xf32>) -> tensor<77x45xf32>
  return %r : tensor<77x45xf32>
}}
"""
FILL = """%z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<77x45xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<77x45xf32>) -> tensor<77x45xf32>"""


def test_contraction_loops_along_k_and_stores_a_masked_tile() -> None:
    text, remarks = tiled(MATMUL.format(init=FILL, out="%f"), tile=(64, 32, 64))
    assert text.count("tile.load") == 2 and text.count("tile.contract") == 1 and text.count("tile.store") == 1
    assert re.search(r"scf.for .* iter_args\(.* -> \(tensor<64x32xf32>\)", text)
    assert 'grid = ["4", "1", "1"]' in text
    assert "arith.addf" not in text
    assert any(r.pass_name == "set-kernel-form" and "77x45x203" in r.text for r in remarks)


def test_an_initial_value_is_added_after_the_loop() -> None:
    text, _ = tiled(MATMUL.format(init="", out="%c"))
    body, after = text.split("scf.yield", 1)
    assert "arith.addf" not in body and "arith.addf" in after and "tile.load" in after


def test_transposed_operands_are_views_with_swapped_strides() -> None:
    text, _ = tiled("""
func.func @nt(%a: tensor<77x203xf16>, %b: tensor<45x203xf16>, %c: tensor<77x45xf32>) -> tensor<77x45xf32> {
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %b : tensor<77x203xf16>, tensor<45x203xf16>)
      outs(%c : tensor<77x45xf32>) {
  ^bb0(%x: f16, %y: f16, %s: f32):
    %x32 = arith.extf %x : f16 to f32
    %y32 = arith.extf %y : f16 to f32
    %p = arith.mulf %x32, %y32 : f32
    %t = arith.addf %s, %p : f32
    linalg.yield %t : f32
  } -> tensor<77x45xf32>
  return %r : tensor<77x45xf32>
}""")
    assert "memref<203x45xf16, strided<[1, 203]>>" in text


def test_batch_dims_are_taken_one_at_a_time() -> None:
    text, _ = tiled(
        """
func.func @bmm(%a: tensor<5x33x17xf32>, %b: tensor<5x17x9xf32>, %c: tensor<5x33x9xf32>) -> tensor<5x33x9xf32> {
  %r = linalg.batch_matmul ins(%a, %b : tensor<5x33x17xf32>, tensor<5x17x9xf32>) outs(%c : tensor<5x33x9xf32>) -> tensor<5x33x9xf32>
  return %r : tensor<5x33x9xf32>
}""",
        tile=(32, 32, 16),
    )
    assert 'grid = ["10", "1", "1"]' in text
    assert "dims array<i64: 1, 2>" in text


def test_dynamic_sizes_become_index_arguments_and_grid_expressions() -> None:
    text, _ = tiled(
        """
func.func @dyn(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}""",
        tile=(32, 64, 16),
    )
    grid = re.search(r'grid = \["([^"]*)"', text)
    assert grid is not None and "// 32" in grid[1] and "// 64" in grid[1]


REDUCTION = """
func.func @reduce(%x: tensor<33x1000xf32>, %i: tensor<{out}xf32>) -> tensor<{out}xf32> {{
  %r = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ({kept})>],
      iterator_types = {iterators}}} ins(%x : tensor<33x1000xf32>) outs(%i : tensor<{out}xf32>) {{
  ^bb0(%v: f32, %a: f32):
    {body}
    linalg.yield %s : f32
  }} -> tensor<{out}xf32>
  return %r : tensor<{out}xf32>
}}"""


def test_row_reduction_reduces_a_tile_once_and_joins_the_initial_value() -> None:
    text, _ = tiled(REDUCTION.format(out=33, kept="d0", iterators='["parallel", "reduction"]', body="%s = arith.addf %a, %v : f32"))
    assert text.count('"tile.reduce"') == 1 and text.count("tile.load") == 2
    assert "arith.select" not in text, "a plain load delivers the neutral element itself"


def test_maximum_masks_with_its_neutral_element() -> None:
    body = "%e = math.exp %v : f32\n    %s = arith.maximumf %a, %e : f32"
    text, _ = tiled(REDUCTION.format(out=33, kept="d0", iterators='["parallel", "reduction"]', body=body))
    assert "arith.select" in text and "dense<0xff800000>" in text.lower()


def test_a_reduction_that_cannot_be_split_walks_one_element_at_a_time() -> None:
    body = "%h = arith.mulf %a, %a : f32\n    %s = arith.addf %h, %v : f32"
    text, _ = tiled(REDUCTION.format(out=33, kept="d0", iterators='["parallel", "reduction"]', body=body))
    assert '"tile.reduce"' not in text and "scf.for" in text


def test_contiguous_dims_are_walked_as_one() -> None:
    text, remarks = tiled("""
func.func @ew(%x: tensor<7x11x13xf32>) -> tensor<7x11x13xf32> {
  %e = tensor.empty() : tensor<7x11x13xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>, affine_map<(a, b, c) -> (a, b, c)>],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%x : tensor<7x11x13xf32>) outs(%e : tensor<7x11x13xf32>) {
  ^bb0(%v: f32, %o: f32):
    %s = arith.mulf %v, %v : f32
    linalg.yield %s : f32
  } -> tensor<7x11x13xf32>
  return %r : tensor<7x11x13xf32>
}""")
    assert "memref<1001xf32" in text
    assert any("elementwise over 1001" in r.text for r in remarks)


def test_leaves_alone_what_has_a_config() -> None:
    module = parse_module(MATMUL.format(init=FILL, out="%f"), "test.mlir")
    run_passes(module, [*tensor_passes(), SetKernelFormPass(target="sm_90a", overrides=ContractionOverrides(tile=(64, 64)))])
    before = print_module(module)
    run_passes(module, [SetKernelFormPass(target="sm_90a", overrides=ContractionOverrides(tile=(128, 32)))])
    assert print_module(module) == before
    assert "tile = [64, 64, 64]" in before


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1100"])
def test_locations_survive_to_the_tile_level(target: str) -> None:
    from treadle.dialects import tile
    from treadle.ir.locations import location_of

    module = parse_module(MATMUL.format(init=FILL, out="%f"), "test.mlir")
    run_passes(module, [*tensor_passes(), SetKernelFormPass(target=target), ConvertDispatchToTilePass(target=target)])
    contract = next(op for op in module.walk() if isinstance(op, tile.ContractOp))
    found = location_of(contract)
    assert found is not None and (found.file, found.line) == ("test.mlir", 6)


def test_long_bodies() -> None:
    """A chain of operations is as long as its author wants; what evaluates it does not call itself for each."""
    count = 1200
    steps = "\n".join(f"    %x{n + 1} = arith.addf %x{n}, %one : f32" for n in range(count))
    text = f"""func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {{
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %r = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}}
      ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>) {{
  ^bb0(%x0: f32, %o: f32):
{steps}
    linalg.yield %x{count} : f32
  }} -> tensor<4xf32>
  return %r : tensor<4xf32>
}}"""
    program = treadle.compile(text, target="sim")
    arrays = [np.zeros(4, np.float32)]
    assert (program(*arrays)[0] == count).all()
    assert (program.reference(*arrays)[0].value == count).all()


@pytest.mark.parametrize("shape", ["1", "1x1x1"])
def test_indices_of_loops_of_one_step(shape: str) -> None:
    """No axis is left there, and every index is 0."""
    kind, dims = f"tensor<{shape}xf32>", ", ".join(f"d{i}" for i in range(shape.count("x") + 1))
    identity = f"affine_map<({dims}) -> ({dims})>"
    parallel = ", ".join(['"parallel"'] * (shape.count("x") + 1))
    text = f"""func.func @f(%a: {kind}) -> {kind} {{
      %e = tensor.empty() : {kind}
      %r = linalg.generic {{indexing_maps = [{identity}, {identity}], iterator_types = [{parallel}]}} ins(%a : {kind}) outs(%e : {kind}) {{
      ^bb0(%x: f32, %y: f32):
        %i = linalg.index 0 : index
        %j = arith.index_cast %i : index to i32
        %k = arith.sitofp %j : i32 to f32
        %s = arith.addf %x, %k : f32
        linalg.yield %s : f32
      }} -> {kind}
      return %r : {kind}
    }}"""
    given = np.full([int(extent) for extent in shape.split("x")], 2.5, np.float32)
    (found,) = treadle.compile(text, target="sim")(given)
    np.testing.assert_array_equal(found, given)
