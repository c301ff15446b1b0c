"""Changing the configuration that a kernel was given."""

from dataclasses import replace
from typing import Any

from treadle.dialects import dispatch, tile
from treadle.transforms.kernel.forms.registry import config_of


def reconfigure(kernel: tile.KernelOp | dispatch.KernelOp, **changes: Any) -> None:
    """Give some entries of a kernel's configuration other values."""
    config = config_of(kernel)
    assert config is not None
    entries = kernel.properties if isinstance(kernel, tile.KernelOp) else kernel.attributes
    entries["config"] = replace(config, **changes).attribute()
