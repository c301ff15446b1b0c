"""Machines by name: architectures, products, what is unknown, what is registered."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from treadle.bench import families
from treadle.driver import cache_key, trace
from treadle.driver.sources import Source
from treadle.errors import TreadleError
from treadle.machine import (
    Product,
    known_products,
    known_targets,
    lookup,
    products,
    register_product,
    register_target,
    registrations,
    target_name,
    target_spec,
)
from treadle.machine.products import PRODUCTS, target_of
from treadle.options import CompileOptions

MATMUL = """
func.func @f(%a: tensor<4096x4096xbf16>, %b: tensor<4096x3072xbf16>) -> tensor<4096x3072xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4096x3072xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<4096x3072xf32>) -> tensor<4096x3072xf32>
  %c = linalg.matmul ins(%a, %b : tensor<4096x4096xbf16>, tensor<4096x3072xbf16>) outs(%i : tensor<4096x3072xf32>) -> tensor<4096x3072xf32>
  return %c : tensor<4096x3072xf32>
}
"""
PLAIN = CompileOptions(tuned=False)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Registrations that end with the test."""
    tables: list[tuple[Any, str]] = [(lookup, "_rows"), (products, "_known"), (registrations, "_registered")]
    for module, name in tables:
        monkeypatch.setattr(module, name, getattr(module, name).copy())
    yield


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
def test_a_product_is_its_architecture_with_other_facts(product: Product) -> None:
    spec, row = target_spec(f"{product.architecture}:{product.name}"), target_spec(product.architecture)
    assert spec.product == product and spec.compute_units == product.compute_units
    assert replace(spec, product=row.product) == row
    assert target_spec(target_name(spec)) == spec
    assert (target_name(spec) == spec.name) == (product == row.product)


@pytest.mark.parametrize(
    ("name", "code", "advice"), [("sm_10", "TR501", "sm_90a"), ("h20", "TR501", "sm_90a"), ("sm_90a:h21", "TR502", "sm_90a:h20")]
)
def test_unknown_machines_are_errors_that_name_the_known(name: str, code: str, advice: str) -> None:
    with pytest.raises(TreadleError) as caught:
        target_spec(name)
    assert caught.value.code == code and advice in caught.value.fix


@pytest.mark.parametrize(
    ("name", "units", "target"),
    [
        ("NVIDIA H200", 132, "sm_90a"),
        ("NVIDIA H100 80GB HBM3", 132, "sm_90a:h100-sxm"),
        ("NVIDIA H100 PCIe", 114, "sm_90a:h100-pcie"),
        ("an H20 under another name", 78, "sm_90a:h20"),
        ("a slice", 16, "sm_90a"),
    ],
)
def test_devices_are_known_by_name_or_by_their_units(name: str, units: int, target: str) -> None:
    assert target_of("sm_90a", name, units) == target


def test_devices_of_other_architectures_are_compiled_for_as_such() -> None:
    assert target_of("sm_120a", "NVIDIA H200", 132) == "sm_120a"


def test_grids_fit_the_product() -> None:
    def workgroups(target: str) -> str:
        text = trace(MATMUL, target, PLAIN, until="schedule").stages["schedule"]
        assert f'target = "{target}"' in text
        return text[text.index("grid = [") :].split("]", 1)[0]

    assert '"132"' in workgroups("sm_90a")
    assert '"114"' in workgroups("sm_90a:h100-pcie")


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
@pytest.mark.parametrize(("m", "n", "k"), [(517, 1033, 264), (3, 1000, 520)])
def test_programs_of_every_product_become_proven_code(product: Product, m: int, n: int, k: int) -> None:
    """Tiled contractions and streamed ones; tracing to LLVM text includes the proof of the schedule."""
    text = families.matmul("f", "", m, n, k, "f16").text
    assert trace(text, f"{product.architecture}:{product.name}", PLAIN, until="llvm").stages["llvm"]


def test_named_products_are_remarked_with_where_their_rates_are_from() -> None:
    def told(target: str) -> list[str]:
        return [remark.text for remark in trace(MATMUL, target, PLAIN, until="dispatch").remarks if remark.pass_name == "machine"]

    assert told("sm_90a") == []
    assert "132 compute units" in told("sm_90a:h200-sxm")[0] and "fitted" in told("sm_90a:h200-sxm")[0]
    assert "78 compute units" in told("sm_90a:h20")[0] and "not measured" in told("sm_90a:h20")[0]


def test_registered_products_are_found_by_name_and_by_device(registry: None) -> None:
    mine = Product("h200-half", "sm_90a", "half an H200", 66, 1755, 2400, 25 << 20, device_names=("half",))
    register_product(mine)
    assert target_spec("sm_90a:h200-half").product == mine
    assert target_of("sm_90a", "half", 66) == "sm_90a:h200-half"
    assert known_products("sm_90a")[0] == target_spec("sm_90a").product
    register_product(replace(mine, compute_units=60))
    assert target_spec("sm_90a:h200-half").compute_units == 60
    with pytest.raises(TreadleError, match="TR501"):
        register_product(replace(mine, architecture="sm_10"))


def test_cache_keys_cover_products_and_what_is_registered(registry: None) -> None:
    def key(target: str) -> str:
        return cache_key(Source(MATMUL, "f.mlir"), target, PLAIN, None)

    plain, named = key("sm_90a"), key("sm_90a:h100-pcie")
    assert plain != named
    product = target_spec("sm_90a").product
    register_product(replace(product, name="mine"))
    first = key("sm_90a:mine")
    register_product(replace(product, name="mine", compute_units=60))
    assert key("sm_90a:mine") != first and key("sm_90a") == plain
    register_target(replace(target_spec("sm_90a"), max_cluster=4))
    assert key("sm_90a") != plain and key("sm_90a:h100-pcie") != named
    assert " at 0x" not in registrations.registered_facts("sm_90a"), "the same in every process"
    assert "sm_90a" in known_targets()
