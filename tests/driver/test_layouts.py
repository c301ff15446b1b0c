"""Arguments of any strides and bases: classes of layouts, variants, what they may rely on, and the errors of wrong arguments."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from driver.layout_programs import K, M, N, elementwise, matmul, reduction
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import treadle
from treadle import pipelines
from treadle.driver import lowering
from treadle.driver.layouts import declare_layouts
from treadle.driver.sources import read_source
from treadle.errors import TreadleError
from treadle.frontends import mlir
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.plan.argument_layout import ArgumentLayout, layout_class, normal_strides
from treadle.sim.check import check
from treadle.sim.program import SimProgram

Array = NDArray[Any]
TYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


RNG = np.random.default_rng(5)


def normal(shape: tuple[int, ...], dtype: str) -> Array:
    return RNG.standard_normal(shape, np.float32).astype(TYPES[dtype])


def offset(shape: tuple[int, ...], dtype: str, elements: int, pitch: int = 0) -> Array:
    """A matrix whose first element is `elements` behind an address that is a multiple of 64, its rows `pitch` apart (0: dense)."""
    rows, columns = shape
    pitch = pitch or columns
    room = normal((rows * pitch + elements + 64,), dtype)
    start = -room.ctypes.data % 64 // room.itemsize + elements
    return np.lib.stride_tricks.as_strided(room[start:], shape, (pitch * room.itemsize, room.itemsize))


# name -> array of a shape and type
LAYOUTS: dict[str, Callable[[tuple[int, int], str], Array]] = {
    "row-major": normal,
    "transposed": lambda s, t: normal(s[::-1], t).T,
    "sliced": lambda s, t: normal((2 * s[0], s[1] + 3), t)[::2, 3:],
    "columns apart": lambda s, t: normal((s[0], 3 * s[1]), t)[:, 1::3],
    "pitch of 16 bytes": lambda s, t: offset(s, t, 0, -(-s[1] // 8) * 8 + 8),
    "odd base": lambda s, t: offset(s, t, 3),
    "one row": lambda s, t: np.broadcast_to(normal((1, s[1]), t), s),
    "one column": lambda s, t: np.broadcast_to(normal((s[0], 1), t), s),
    "one number": lambda s, t: np.broadcast_to(normal((1, 1), t), s),
    "windows": lambda s, t: np.lib.stride_tricks.sliding_window_view(normal((s[0] + s[1] - 1,), t), s[1]),
    "backwards": lambda s, t: normal(s, t)[::-1, ::-1],
}


def verify(program: treadle.Program, *arrays: Array) -> None:
    for got, want in zip(program(*arrays), program.reference(*arrays), strict=True):
        verdict = check(got, want)
        assert verdict.ok, verdict


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_any_layout(dtype: str, layout: str) -> None:
    make = LAYOUTS[layout]
    product = treadle.compile(matmul(dtype), target="sim")
    verify(product, make((M, K), dtype), make((K, N), dtype))
    verify(product, make((M, K), dtype), normal((K, N), dtype))
    for axis in (0, 1):
        verify(treadle.compile(reduction(dtype, axis), target="sim"), make((M, K), dtype))
    verify(treadle.compile(elementwise(dtype), target="sim"), make((M, K), dtype), normal((M, K), dtype))


def test_dynamic_sizes() -> None:
    program = treadle.compile(matmul("f32", "?", "?", "?"), target="sim")
    for m, k, n in [(5, 3, 7), (1, 9, 4), (6, 1, 2), (0, 3, 4), (3, 0, 4), (3, 4, 0)]:
        for make in LAYOUTS.values():
            if min(m, k, n) > 0:
                verify(program, make((m, k), "f32"), make((k, n), "f32"))
        (empty,) = program(normal((k, m), "f32").T, normal((k, n + 3), "f32")[:, 3:])
        assert empty.shape == (m, n)


@pytest.mark.parametrize("layout", ["transposed", "sliced", "pitch of 16 bytes", "one row", "one column", "windows"])
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_schedules_keep_their_promises(dtype: str, layout: str) -> None:
    """The simulator checks every access of several elements at once against the strides that it meets."""
    arrays = [LAYOUTS[layout](shape, dtype) for shape in ((M, K), (K, N))]
    layouts = tuple(
        layout_class(a.shape, normal_strides(a.shape, [s // a.itemsize for s in a.strides], a.itemsize), 64, a.itemsize) for a in arrays
    )
    module = mlir.load(matmul(dtype))
    declare_layouts(mlir.entry(module), layouts)
    pipelines.lower(module, target_spec("sm_90a"), CompileOptions(roles=False))
    (got,) = SimProgram(module)(*arrays)
    np.testing.assert_allclose(got, arrays[0].astype(np.float64) @ arrays[1].astype(np.float64), rtol=1e-4, atol=1e-4)


# classes


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 70)), max_size=4),
    st.integers(0, 9),
    st.sampled_from([1, 2, 4, 8]),
)
def test_classes_promise_what_holds(dims: list[tuple[int, int]], base: int, size: int) -> None:
    shape, given_strides = [e for e, _ in dims], [s for _, s in dims]
    strides = normal_strides(shape, given_strides, size)
    found = layout_class(shape, strides, base * size, size)
    assert all(n == s for n, s, e in zip(strides, given_strides, shape, strict=True) if e > 1)
    assert base * size % found.align == 0
    assert size <= found.align <= 16
    for fixed, stride in zip(found.strides, strides, strict=True):
        assert fixed == stride if fixed is not None else stride % found.stride_divisor == 0
    assert sum(fixed == 1 for fixed in found.strides) == (1 in strides)
    if base * size % 16 == 0 and all(s * size % 16 == 0 for s in strides if s > 1):
        assert found.align == 16


def test_classes() -> None:
    assert layout_class((77, 45), (48, 1), 256, 2) == ArgumentLayout((None, 1), 8, 16)
    assert layout_class((77, 45), (48, 1), 256 + 4, 2) == ArgumentLayout((None, 1), 2, 4)
    assert layout_class((77, 45), (46, 1), 256, 2) == ArgumentLayout((None, 1), 2, 16)
    assert layout_class((77, 45), (1, 80), 256, 4) == ArgumentLayout((1, None), 4, 16)
    assert layout_class((77, 45), (0, 1), 258, 2) == ArgumentLayout((0, 1), 1, 2)
    assert layout_class((77, 45), (8, 1), 256, 2) == ArgumentLayout((None, 1), 1, 16)  # rows overlap
    assert layout_class((4, 4), (1, 1), 256, 2) == ArgumentLayout((None, 1), 1, 16)
    assert normal_strides((1, 5), (3, 1), 2) == (8, 1)
    assert normal_strides((5, 1), (7, 1), 4) == (7, 1)
    assert normal_strides((1, 1), (7, 9), 4) == (4, 4)


def test_one_variant_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    text = matmul("f16")
    program = treadle.compile(text, target="sim")
    y = normal((K, N), "f16")
    assert program.variant_for(normal((M, K), "f16"), y) is program
    padded = program.variant_for(offset((M, K), "f16", 0, 48), y)
    assert padded is not program
    assert padded is program.variant_for(offset((M, K), "f16", 8, 64), y)
    assert padded is not program.variant_for(offset((M, K), "f16", 0, 46), y)
    assert padded.variant_for(offset((M, K), "f16", 0, 48), y) is padded
    row = treadle.compile(matmul("f16", 1), target="sim")  # the pitch of one row is never used
    assert row.variant_for(offset((1, K), "f16", 2, 47), y) is row.variant_for(offset((1, K), "f16", 2, 48), y)
    assert "stride_divisor = 8" in padded.stages["tensor"]
    monkeypatch.delattr(lowering, "lower")  # a second process compiles nothing
    again = treadle.compile(text, target="sim").variant_for(offset((M, K), "f16", 0, 56), y)
    assert again.files == padded.files


# sm_90a without a GPU


def remarks(x: ArgumentLayout | None, y: ArgumentLayout | None, k: int = 64) -> list[str]:
    source = read_source(matmul("bf16", 128, k, 256))
    lowered = lowering.lower(source, "sm_90a", CompileOptions(), None, layouts=(x, y), until="schedule")
    return [r.text for r in lowered.remarks if r.pass_name == "set-operand-staging"]


def test_descriptor_copies_of_pitched_arrays() -> None:
    pitched, transposed = ArgumentLayout((None, 1), 8, 16), ArgumentLayout((1, None), 8, 16)
    for x in (None, pitched, transposed):
        for y in (pitched, transposed):
            assert remarks(x, y) == ["staged by descriptor copy"] * 2


@pytest.mark.parametrize(
    ("layout", "rule", "instead"),
    [
        (
            ArgumentLayout((None, 1), 4, 16),
            "pitch of dimension 0 is dynamic and not known to be a multiple of 16 bytes",
            "copied in pieces of 8 bytes by the producer's threads",
        ),
        (ArgumentLayout((None, 1), 4, 8), "base is aligned to 8 bytes, not 16", "copied in pieces of 8 bytes by the producer's threads"),
        (ArgumentLayout((None, None), 8, 16), "no dimension of the tile has unit stride", "staged by the threads"),
    ],
)
def test_the_refused_rule_is_named(layout: ArgumentLayout, rule: str, instead: str) -> None:
    a, b = remarks(layout, None)
    assert a == f"descriptor copy refused: {rule}; {instead}"
    assert b == "staged by descriptor copy"


def test_binaries_of_variants() -> None:
    source = read_source(matmul("bf16"))
    layouts = (ArgumentLayout((None, 1), 8, 16), ArgumentLayout((None, 1), 8, 16))
    files = lowering.lower(source, "sm_90a", CompileOptions(), None, layouts=layouts).files
    text = files["manifest.json"].decode()
    assert text.count('"tensor_map"') >= 2
    assert "s0 // 8" in text


# errors


def code_of(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(TreadleError) as caught:
        call()
    return caught.value.code, caught.value.message


class Elsewhere:
    """An array on a GPU that the program does not run on."""

    __cuda_array_interface__ = {"shape": (K, N), "typestr": "<f4", "data": (4096, False), "version": 3}


def test_wrong_arguments_are_named() -> None:
    program = treadle.compile(matmul("f32"), target="sim")
    x, y = normal((M, K), "f32"), normal((K, N), "f32")
    for arrays, code in [
        ((x, y.astype(np.float64)), "TR725"),
        ((x, y.T.astype(np.float64).T), "TR725"),
        ((x, y[None]), "TR722"),
        ((x, y[:, 1:]), "TR723"),
        ((x, Elsewhere()), "TR726"),
        ((x, "text"), "TR729"),
        ((x, np.zeros((K, N), "U3")), "TR725"),
    ]:
        found, message = code_of(lambda given=arrays: program(*given))
        assert found == code, message
        assert message.startswith("argument 1 ('y')"), message
    assert code_of(lambda: program(x))[0] == "TR721"
    sized = treadle.compile(matmul("f32", "?", K, "?"), target="sim")
    found, message = code_of(lambda: sized(x[:, 1:], y))
    assert (found, message) == ("TR723", f"argument 0 ('x') is {M}x{K - 1}, expected {M}x{K} (declared s0x{K})")


def test_fields_of_records() -> None:
    """Neighbours that are no whole number of elements apart, at addresses that are no multiple of an element."""
    records = np.zeros((M, K), np.dtype([("tag", "u1"), ("value", "f4")]))
    records["value"] = normal((M, K), "f32")
    program = treadle.compile(reduction("f32", 1), target="sim")
    verify(program, records["value"])


def test_strides_beyond_32_bits() -> None:
    program = treadle.compile(reduction("f32", 1).replace(f"{M}x{K}", "2x3").replace(f"{M}xf32", "2xf32"), target="sim")
    far = np.lib.stride_tricks.as_strided(normal((2, 3), "f32"), (2, 3), (4 << 31, 4))
    wide = program.variant_for(far)
    assert wide is not program
    assert wide is program.variant_for(far)
    assert [kind.kind for kernel in wide.manifest.kernels for kind in kernel.args if kind.kind != "pointer"] == ["i64"]
    near = np.lib.stride_tricks.as_strided(normal((2, 3), "f32"), (2, 3), (4 << 20, 4))
    assert {kind.kind for kernel in program.variant_for(near).manifest.kernels for kind in kernel.args} == {"pointer", "i32"}


@pytest.mark.parametrize(
    "attributes",
    ["{treadle.stride_divisor = 3 : i64}", "{treadle.align = 12 : i64}", "{treadle.strides = array<i64: 1>}", "{treadle.align = 0 : i64}"],
)
def test_wrong_attributes(attributes: str) -> None:
    assert code_of(lambda: treadle.compile(matmul("f32", attributes=" " + attributes), target="sim"))[0] == "TR201"


def test_declared_layouts() -> None:
    declared = " {treadle.strides = array<i64: -9223372036854775808, 1>, treadle.stride_divisor = 4 : i64, treadle.align = 4 : i64}"
    program = treadle.compile(matmul("f32", attributes=declared), target="sim")
    y = normal((K, N), "f32")
    for base, pitch, fits in [(0, 48, True), (1, 64, True), (0, 47, False)]:
        x = offset((M, K), "f32", base, pitch)
        assert (program.variant_for(x, y) is program) == fits
        verify(program, x, y)
