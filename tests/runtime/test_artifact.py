"""The artifact's records: round trip, strictness, folders that are whole or absent; and the numbers of a call."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runtime.programs import S, vector_add_manifest

from treadle import artifact_folder
from treadle.artifact import Check, Dim, Manifest, TensorMapValue
from treadle.errors import TreadleError
from treadle.plan.expr import symbol
from treadle.runtime.invocation import InvocationPlan, PointerArg, ScalarArg

# The example of docs/artifact.md.
EXAMPLE: dict[str, Any] = {
    "format": 1, "treadle": "0.1.0", "target": "gfx942", "function": "linear",
    "dims": {"s0": {"input": 0, "axis": 1}},
    "inputs": [{"name": "x", "dtype": "f16", "shape": [77, "s0"], "strides": ["s0", 1], "buffer": "b0"}],
    "outputs": [{"name": "r0", "dtype": "f16", "shape": [77, 203], "strides": [203, 1], "buffer": "b2"}],
    "buffers": [
        {"name": "b0", "role": "input", "bytes": "154 * s0", "align": 16},
        {"name": "b2", "role": "output", "bytes": 31262, "align": 256},
        {"name": "b3", "role": "temporary", "bytes": 4096, "align": 256, "zero": True},
        {"name": "c0", "role": "constant", "bytes": 64, "align": 16, "file": "c0.bin"},
    ],
    "kernels": [
        {"name": "k0", "symbol": "linear_k0", "binary": "k0.hsaco", "block": [256, 1, 1], "cluster": [1, 1, 1], "shared_bytes": 32768,
         "kernarg_bytes": 192,
         "args": [{"kind": "pointer", "offset": 0}, {"kind": "i32", "offset": 8}, {"kind": "tensor_map", "offset": 64}]},
    ],
    "launches": [
        {"kernel": "k0", "grid": ["(s0 + 127) // 128", 2, 1],
         "args": [{"buffer": "b0", "byte_offset": 0}, {"value": "s0"},
                  {"tensor_map": {"buffer": "b0", "dtype": "f16", "global_dim": ["s0", 77], "global_stride_bytes": ["2 * s0"],
                                  "box_dim": [64, 128], "element_stride": [1, 1], "swizzle": "128B", "interleave": "none",
                                  "l2_promotion": "128B", "oob_fill": "zero"}}]},
    ],
}  # fmt: skip


def test_the_example_reads_and_writes_back() -> None:
    manifest = Manifest.from_json(json.dumps(EXAMPLE))
    assert manifest.inputs[0].shape == (77, symbol("s0"))
    assert isinstance(manifest.launches[0].args[2], TensorMapValue)
    assert manifest.buffers[2].zero
    again = Manifest.from_json(manifest.to_json())
    assert again == manifest
    written = json.loads(manifest.to_json())
    assert written["buffers"] == EXAMPLE["buffers"]
    assert written["launches"][0]["grid"] == EXAMPLE["launches"][0]["grid"]


def test_own_records_round_trip() -> None:
    manifest = replace(vector_add_manifest("sm_90a"), checks=(Check(S, "<=", 100, "too long"),))
    assert Manifest.from_json(manifest.to_json()) == manifest


def _set(path: list[Any], value: Any) -> Any:
    def change(m: dict[str, Any]) -> None:
        for key in path[:-1]:
            m = m[key]
        if value is ...:
            del m[path[-1]]
        else:
            m[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (_set(["format"], 2), "manifest.format"),
        (_set(["target"], ...), "has no 'target'"),
        (_set(["extra"], 1), "unknown field 'extra'"),
        (_set(["dims", "s0", "axis"], 2), "manifest.dims.s0"),
        (_set(["dims", "s0", "axis"], -3), "manifest.dims.s0"),
        (_set(["dims"], {}), "uses 's0'"),
        (_set(["inputs", 0, "shape"], [77, "s0 / 2"]), "manifest.inputs[0].shape[1]"),
        (_set(["inputs", 0, "strides"], [1]), "differ in length"),
        (_set(["inputs", 0, "buffer"], "b9"), "no buffer 'b9'"),
        (_set(["buffers", 0, "bytes"], 1.5), "manifest.buffers[0].bytes"),
        (_set(["buffers", 0, "align"], 12), "no power of two"),
        (_set(["buffers", 0, "role"], "scratch"), "manifest.buffers[0].role"),
        (_set(["buffers", 1, "name"], "b0"), "one name"),
        (_set(["buffers", 3, "file"], "../c0.bin"), "manifest.buffers[3].file"),
        (_set(["buffers", 3, "file"], ...), "has no 'file'"),
        (_set(["kernels", 0, "block"], [256, 1]), "manifest.kernels[0].block"),
        (_set(["kernels", 0, "args", 1, "kind"], "f64"), "manifest.kernels[0].args[1].kind"),
        (_set(["kernels", 0, "kernarg_bytes"], 191), "manifest.kernels[0].args[2]"),
        (_set(["launches", 0, "kernel"], "k1"), "no kernel 'k1'"),
        (_set(["launches", 0, "grid"], [1, 1]), "manifest.launches[0].grid"),
        (_set(["launches", 0, "args"], []), "takes 3 arguments"),
        (_set(["launches", 0, "args", 0], {"value": 1}), "manifest.launches[0].args[0]"),
        (_set(["launches", 0, "args", 2, "tensor_map", "swizzle"], "96B"), "swizzle"),
        (_set(["launches", 0, "args", 2, "tensor_map", "box_dim"], [64]), "box_dim"),
    ],
)
def test_every_fault_names_its_place(change: Any, place: str) -> None:
    broken = copy.deepcopy(EXAMPLE)
    change(broken)
    with pytest.raises(TreadleError) as caught:
        Manifest.from_json(json.dumps(broken))
    assert caught.value.code == "TR931"
    assert place in str(caught.value)


def test_folders(tmp_path: Path) -> None:
    manifest = Manifest.from_json(json.dumps(EXAMPLE))
    place = tmp_path / "out"
    artifact_folder.write(place, manifest, {"k0.hsaco": b"elf"}, {"c0.bin": b"0" * 64})
    artifact_folder.write(place, manifest, {"k0.hsaco": b"newer"}, {"c0.bin": b"1" * 64})
    assert artifact_folder.read(place) == (manifest, {"k0.hsaco": b"newer", "c0.bin": b"1" * 64})
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    with pytest.raises(TreadleError, match=r"c0\.bin"):
        artifact_folder.write(tmp_path / "half", manifest, {"k0.hsaco": b"elf"})
    with pytest.raises(TreadleError) as caught:
        artifact_folder.write(tmp_path / "sim", vector_add_manifest("sim"), {"k0.bin": b""})
    assert caught.value.code == "TR931"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(TreadleError) as caught:
        artifact_folder.write(tmp_path / "mine", manifest, {"k0.hsaco": b"elf"}, {"c0.bin": b""})
    assert caught.value.code == "TR902"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", "out"]
    assert (tmp_path / "mine" / "thesis.txt").exists()
    with pytest.raises(TreadleError) as caught:
        artifact_folder.read(tmp_path / "none")
    assert caught.value.code == "TR901"


def test_numbers_of_a_call() -> None:
    plan = InvocationPlan(vector_add_manifest("sm_90a"))
    made = plan.resolve(((513,), (513,)), ((1,), (1,)))
    assert made is plan.resolve(((513,), (513,)), ((1,), (1,)))
    assert made.buffer_bytes == (2052,) * 4
    assert [launch.grid for launch in made.launches] == [(3, 1, 1)] * 2
    assert made.launches[1].args == (PointerArg(0, 2, 0), PointerArg(8, 1, 0), PointerArg(16, 3, 0), ScalarArg(24, "i32", 513))
    assert plan.resolve(((0,), (0,)), ((1,), (1,))).launches == ()
    for i in range(600):
        plan.resolve(((i,), (i,)), ((1,), (1,)))
    assert len(plan._cache) <= 256


def test_symbols_for_strides_and_checks() -> None:
    base = vector_add_manifest("sm_90a")
    pitch = symbol("p")
    x = replace(base.inputs[0], strides=(pitch,))
    manifest = replace(base, dims={"s0": Dim(0, 0), "p": Dim(0, -1)}, inputs=(x, base.inputs[1]), checks=(Check(pitch, "<=", 4, "pitch"),))
    plan = InvocationPlan(Manifest.from_json(manifest.to_json()))
    assert plan.resolve(((5,), (5,)), ((3,), (1,))).input_strides == ((3,), (1,))
    assert plan.resolve(((5,), (5,)), ((2,), (1,))).input_strides == ((2,), (1,))
    with pytest.raises(TreadleError) as caught:
        plan.resolve(((5,), (5,)), ((5,), (1,)))
    assert caught.value.code == "TR724"
