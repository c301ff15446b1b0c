"""The register layouts that a contraction's operands and accumulators have, and the attribute that says how operands are staged."""

from collections.abc import Mapping

from treadle.analysis.element_bytes import element_bytes
from treadle.dialects import tile
from treadle.dialects.tile_attributes import SharedLayoutAttr, is_shared
from treadle.errors import InternalError
from treadle.ir.core import Attribute
from treadle.ir.dialects import builtin
from treadle.layout.shared_layout import SharedLayout
from treadle.machine import TargetSpec
from treadle.plan.contract_layouts import ContractLayouts, matrix_layouts, multiply_add_layouts
from treadle.plan.staging import multiply_add_k_step
from treadle.transforms.kernel.forms.contraction import ContractionConfig
from treadle.transforms.kernel.forms.registry import config_of
from treadle.transforms.kernel.kernel_ir import num_warps

STAGING = "staging"
SOURCE = "source"
THREADS = "threads"
"""The path through the registers of the threads."""


def _entry(op: tile.ContractOp, name: str) -> Mapping[str, Attribute]:
    staging = op.attributes.get(STAGING)
    entry = staging.data.get(name) if isinstance(staging, builtin.DictionaryAttr) else None
    return entry.data if isinstance(entry, builtin.DictionaryAttr) else {}


def _path_and_layout(named: Mapping[str, Attribute]) -> tuple[str, SharedLayout | None]:
    path, layout = named.get("path"), named.get("layout")
    return path.data if isinstance(path, builtin.StringAttr) else "", layout.data if isinstance(layout, SharedLayoutAttr) else None


def staging_of(op: tile.ContractOp, name: str) -> tuple[str, SharedLayout | None]:
    """The path that `staging` names for operand "a" or "b", "" for none, and the layout of its buffer, None where it needs none."""
    return _path_and_layout(_entry(op, name))


def source_of(op: tile.ContractOp, name: str) -> tuple[str, SharedLayout | None]:
    """The same of what the operand is computed from, where that is copied as it is."""
    source = _entry(op, name).get(SOURCE)
    return _path_and_layout(source.data if isinstance(source, builtin.DictionaryAttr) else {})


def warp_grid(kernel: tile.KernelOp) -> tuple[int, int]:
    """Warps along m and n of a contraction's tile: what the configuration says, else all along m."""
    config = config_of(kernel)
    m, n = (config.warps if isinstance(config, ContractionConfig) else ()) or (num_warps(kernel), 1)
    return m, n


def contract_layouts(op: tile.ContractOp, kernel: tile.KernelOp, spec: TargetSpec) -> ContractLayouts:
    """The register layouts of a contraction of this kernel."""
    m, n = tile.tile_type(op.accumulator).get_shape()
    warps_m, warps_n = warp_grid(kernel)
    if warps_m * warps_n != num_warps(kernel):
        raise InternalError(f"{warps_m} x {warps_n} warps in a kernel of {num_warps(kernel)}")
    if op.instruction.data == "fma":
        k = op.operand_shape(op.a)[1]
        element = tile.memref_type(op.a).element_type if is_shared(op.a.type) else tile.tile_type(op.a).element_type
        return multiply_add_layouts(m, n, warps_m, warps_n, spec.subgroup_size, multiply_add_k_step(k, element_bytes(element)))
    row = spec.instruction(op.instruction.data)
    k = op.operand_shape(op.a)[1]
    # Contractions that share an operand hold more of them at once: packed ones, which all live to a step's end, would spill.
    return matrix_layouts(row, m, n, warps_m, warps_n, k if row.reads_shared or not _shares_operand(op) else 0)


def _shares_operand(op: tile.ContractOp) -> bool:
    """Whether another contraction reads an operand of this one."""
    return any(isinstance(use.operation, tile.ContractOp) and use.operation is not op for one in (op.a, op.b) for use in one.uses)
