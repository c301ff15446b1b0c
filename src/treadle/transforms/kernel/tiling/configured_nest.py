"""The loop nest that a kernel's config speaks of."""

from treadle.analysis.loop_nest import LoopNest, loop_nest, split_axis
from treadle.dialects import dispatch
from treadle.errors import InternalError
from treadle.ir.builtin import attr_number
from treadle.ir.dialects import builtin


def config_of(kernel: dispatch.KernelOp) -> builtin.DictionaryAttr:
    """What set-tile-config chose; InternalError where it has not run."""
    config = kernel.attributes.get("config")
    if not isinstance(config, builtin.DictionaryAttr):
        raise InternalError(f"kernel {kernel.sym_name.data} has no config; run set-tile-config first")
    return config


def config_number(config: builtin.DictionaryAttr, key: str) -> int:
    """An integer of the config."""
    value = attr_number(config.data[key])
    if not isinstance(value, int):
        raise InternalError(f"config entry {key} is {config.data[key]}")
    return value


def configured_nest(kernel: dispatch.KernelOp) -> LoopNest:
    """The kernel's loop nest, with the axis split that the config splits."""
    config, nest = config_of(kernel), loop_nest(kernel)
    if "split_axis" in config.data:
        nest = split_axis(nest, config_number(config, "split_axis"), config_number(config, "split_step"))
    return nest
