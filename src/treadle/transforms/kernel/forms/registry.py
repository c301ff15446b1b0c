"""All kernel forms, and the configuration of a kernel as a record."""

from treadle.dialects import dispatch, tile
from treadle.dialects.kernel_form import KernelFormAttr
from treadle.errors import SCHEDULE_FORM, InternalError, TreadleError
from treadle.ir.locations import location_of
from treadle.transforms.kernel.forms import (
    attention,
    elementwise,
    exchanged,
    reduction,
    roles,
    rows,
    split_operands,
    streaming,
    swapped,
    tiles,
)
from treadle.transforms.kernel.forms.form import Form, FormConfig

FORMS: tuple[Form, ...] = (streaming, swapped, split_operands, roles, exchanged, tiles, attention, rows, reduction, elementwise)
"""Of equal modelled times the first is taken."""
BY_NAME: dict[str, Form] = {form.NAME: form for form in FORMS}


def config_of(kernel: tile.KernelOp | dispatch.KernelOp) -> FormConfig | None:
    """How a kernel is computed; None for one that no pass has decided about. Raises TreadleError TR416 for what no form knows."""
    attribute = kernel.config if isinstance(kernel, tile.KernelOp) else kernel.attributes.get("config")
    if attribute is None:
        return None
    if not isinstance(attribute, KernelFormAttr):
        raise InternalError(f"kernel {kernel.sym_name.data} has the config {attribute}")
    form = BY_NAME.get(attribute.data.name)
    if form is None:
        reason = f"there is no kernel form '{attribute.data.name}'"
        raise TreadleError(SCHEDULE_FORM, location_of(kernel), op="tile.kernel", reason=reason, fix=f"there are {', '.join(BY_NAME)}")
    found: FormConfig = form.Config.of(attribute.data, location_of(kernel))
    return found


def decided(kernel: dispatch.KernelOp) -> FormConfig:
    """What set-kernel-form chose; InternalError where it has not run."""
    config = config_of(kernel)
    if config is None:
        raise InternalError(f"kernel {kernel.sym_name.data} has no config; run set-kernel-form first")
    return config
