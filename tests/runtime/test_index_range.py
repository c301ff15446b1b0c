"""Sizes beyond what 32 bits hold: never cut on the way to a kernel; refused, or run by the variant with 64-bit indices."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from runtime.programs import S, vector_add_manifest
from targets.simt.test_wide_indices_on_host import elementwise, reduction

import treadle
from treadle.artifact import Check, Launch, Manifest, PointerValue, TensorMap, TensorMapValue
from treadle.errors import TreadleError
from treadle.options import CompileOptions
from treadle.plan.index_range import SIZE_LIMIT
from treadle.runtime.arguments import views_of
from treadle.runtime.invocation import InvocationPlan, ScalarArg
from treadle.runtime.simulated import SimulatedProgram

MANIFEST = vector_add_manifest("sim")


def code_of(call: Any) -> str:
    with pytest.raises(TreadleError) as caught:
        call()
    return caught.value.code


def resolved(manifest: Manifest, size: int) -> Any:
    return InvocationPlan(manifest).resolve(((size,), (size,)), ((1,), (1,)))


def with_kind(kind: Any) -> Manifest:
    (kernel,) = MANIFEST.kernels
    return replace(MANIFEST, kernels=(replace(kernel, args=(*kernel.args[:-1], replace(kernel.args[-1], kind=kind)), kernarg_bytes=32),))


@pytest.mark.parametrize("size", [2**31, 2**31 + 1, 2**32, 3 * 10**9, 5 * 10**9])
def test_a_number_that_does_not_fit_is_refused(size: int) -> None:
    assert code_of(lambda: resolved(MANIFEST, size)) == "TR733"
    (first, _) = resolved(with_kind("i64"), size).launches
    (number,) = [arg.value for arg in first.args if isinstance(arg, ScalarArg)]
    assert number == size


def test_the_largest_number_that_fits() -> None:
    assert resolved(MANIFEST, 2**31 - 1).launches


def test_buffers_of_more_than_64_bits() -> None:
    assert resolved(with_kind("i64"), 2**60).buffer_bytes[0] == 2**62
    assert code_of(lambda: resolved(with_kind("i64"), 2**61)) == "TR734"


@pytest.mark.parametrize(("dims", "strides"), [((S, 8), (32,)), ((8, S), (32,))])
def test_tensor_maps(dims: Any, strides: Any) -> None:
    (kernel,) = MANIFEST.kernels
    args = (*kernel.args[:-1], replace(kernel.args[-1], kind="tensor_map", offset=64))
    seen = TensorMap("f32", dims, strides, (8, 8), (1, 1))
    value = TensorMapValue("b0", seen)
    launch = Launch("k0", (1, 1, 1), (*(PointerValue(b) for b in ("b0", "b1", "b3")), value))
    manifest = replace(MANIFEST, kernels=(replace(kernel, args=args, kernarg_bytes=192),), launches=(launch,))
    assert resolved(manifest, 2**20).launches
    assert code_of(lambda: resolved(manifest, 2**31)) == "TR733"
    far = TensorMapValue("b0", seen.with_sizes((8, 8), (1024 * S,)))
    pitched = replace(manifest, launches=(replace(launch, args=(*launch.args[:-1], far)),))
    assert resolved(pitched, 2**30 - 1).launches
    assert code_of(lambda: resolved(pitched, 2**30)) == "TR733"


CHECKED = replace(MANIFEST, checks=(Check(S, "<=", SIZE_LIMIT, "an axis", index_range=True), Check(S, "<=", 10**12, "too long")))


def test_checks_of_the_range_are_told_apart() -> None:
    assert Manifest.from_json(CHECKED.to_json()) == CHECKED
    assert '"index_range": true' in CHECKED.to_json()
    assert "index_range" not in replace(CHECKED, checks=CHECKED.checks[1:]).to_json()
    fine = resolved(CHECKED, 1000)
    assert fine.beyond is None
    assert len(fine.launches) == 2
    beyond = resolved(CHECKED, SIZE_LIMIT + 1)
    assert beyond.beyond == ("an axis", SIZE_LIMIT + 1, SIZE_LIMIT)
    assert not beyond.launches
    assert code_of(lambda: resolved(CHECKED, 10**12 + 1)) == "TR724"


def large(shape: tuple[int, ...], dtype: Any = np.int8) -> Any:
    """An array of ones that takes no memory."""
    return np.broadcast_to(np.ones((), dtype), shape)


def test_a_program_runs_its_wide_variant() -> None:
    program = treadle.compile(elementwise((5,), "i8", [(0,)], [None], dynamic=True), "sim")
    assert program.variant_for(np.ones(SIZE_LIMIT >> 12, np.int8)) is program
    wide = program.variant_for(large((2**31 + 5,)))
    assert wide is program.variant_for(large((5 * 10**9,)))
    assert [arg.kind for kernel in wide.manifest.kernels for arg in kernel.args if arg.kind != "pointer"]
    assert not {arg.kind for kernel in wide.manifest.kernels for arg in kernel.args} & {"i32"}
    assert not wide.manifest.checks
    x = np.arange(-100, 27, dtype=np.int8)
    np.testing.assert_array_equal(wide(x)[0], x + 1)


def test_an_artifact_alone_refuses() -> None:
    program = treadle.compile(elementwise((5,), "i8", [(0,)], [None], dynamic=True), "sim")
    alone = SimulatedProgram(program.manifest, program.files)
    assert code_of(lambda: alone.run(views_of(program.manifest, [large((2**31 + 5,))]))) == "TR732"


INDEXED = """func.func @f(%a: tensor<?x?xi64>) -> tensor<?x?xi64> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %a, %c0 : tensor<?x?xi64>
  %n = tensor.dim %a, %c1 : tensor<?x?xi64>
  %e = tensor.empty(%m, %n) : tensor<?x?xi64>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%a : tensor<?x?xi64>) outs(%e : tensor<?x?xi64>) {
  ^bb0(%x: i64, %o: i64):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %c = arith.constant 1000000007 : index
    %p = arith.muli %i, %c : index
    %q = arith.addi %p, %j : index
    %s = arith.index_cast %q : index to i64
    %t = arith.addi %s, %x : i64
    linalg.yield %t : i64 } -> tensor<?x?xi64>
  return %r : tensor<?x?xi64>
}"""


def test_index_arithmetic_beyond_32_bits() -> None:
    """Sizes are small, products with them are not: that decides about a call, too."""
    program = treadle.compile(INDEXED, "sim")
    for shape, same in [((2, 3), True), ((77, 130), False)]:
        x = np.arange(shape[0] * shape[1], dtype=np.int64).reshape(shape)
        assert (program.variant_for(x) is program) == same
        i, j = np.indices(shape)
        np.testing.assert_array_equal(program(x)[0], i * 1000000007 + j + x)


@pytest.mark.parametrize("shape", [(1, 1), (3, 1001), (65, 4097)])
def test_wide_kernels_on_small_arrays(shape: tuple[int, int]) -> None:
    """Reductions with ragged ends and masks, compiled for any size."""
    text = reduction(2, 3, "i8").replace("2x3x", "?x?x").replace("tensor<2x", "tensor<?x")
    text = text.replace(
        "  %e = tensor.empty()",
        "  %c0 = arith.constant 0 : index\n  %m = tensor.dim %a, %c0 : tensor<?x?xi8>\n  %e = tensor.empty(%m)",
    )
    x = np.random.default_rng(0).integers(-128, 127, shape, np.int8)
    for bits in (32, 64):
        program = treadle.compile(text, "sim", CompileOptions(index_bits=bits))
        np.testing.assert_array_equal(program(x)[0], x.sum(1, dtype=np.int32))


def test_the_option_takes_two_widths() -> None:
    with pytest.raises(ValueError, match="neither 32 nor 64"):
        CompileOptions(index_bits=48)
