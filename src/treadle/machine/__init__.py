"""What machines are: `TargetSpec` rows of architectures and `Product` rows below them, looked up by name.

Names are loaded when they are first asked for: a start from the cache reads products, not architectures.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treadle.machine.lookup import (
        known_products,
        known_spec,
        known_targets,
        register_product,
        register_target,
        target_name,
        target_spec,
    )
    from treadle.machine.products import Product
    from treadle.machine.queues import Queue, QueueRole
    from treadle.machine.rates import Rates
    from treadle.machine.spec import (
        BulkTensorCopy,
        FragmentLayouts,
        MatrixInstruction,
        OperandSpace,
        RegisterMoves,
        SharedBanks,
        TargetSpec,
    )

_PLACES = {
    "lookup": ("known_products", "known_spec", "known_targets", "register_product", "register_target", "target_name", "target_spec"),
    "products": ("Product",),
    "queues": ("Queue", "QueueRole"),
    "rates": ("Rates",),
    "spec": ("BulkTensorCopy", "FragmentLayouts", "MatrixInstruction", "OperandSpace", "RegisterMoves", "SharedBanks", "TargetSpec"),
}

__all__ = [
    "BulkTensorCopy",
    "FragmentLayouts",
    "MatrixInstruction",
    "OperandSpace",
    "Product",
    "Queue",
    "QueueRole",
    "Rates",
    "RegisterMoves",
    "SharedBanks",
    "TargetSpec",
    "known_products",
    "known_spec",
    "known_targets",
    "register_product",
    "register_target",
    "target_name",
    "target_spec",
]


def __getattr__(name: str) -> Any:
    for place, names in _PLACES.items():
        if name in names:
            found = getattr(import_module(f"treadle.machine.{place}"), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module 'treadle.machine' has no attribute '{name}'")
