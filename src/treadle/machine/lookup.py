"""Machines by name: an architecture (`sm_90a`), or an architecture and a product of it (`sm_90a:h100-pcie`)."""

import re
from dataclasses import replace

from treadle.errors import Entry, TreadleError
from treadle.machine import registrations
from treadle.machine.products import Product, add_product, products_of
from treadle.machine.rows import ROWS
from treadle.machine.spec import TargetSpec

UNKNOWN_TARGET = Entry("TR501", "target '{name}' is not supported", "use one of: {known}")
UNKNOWN_PRODUCT = Entry("TR502", "{architecture} has no product '{name}'", "use one of: {known} (see `treadle targets`)")

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Of a function in its text: another one in every process, while keys of the cache must be the same."""

_rows: dict[str, TargetSpec] = {row.name: row for row in ROWS}


def target_spec(name: str) -> TargetSpec:
    """The machine that a name stands for: an architecture is its default product.

    Raises TreadleError TR501 for an unknown architecture, TR502 for an unknown product.
    """
    architecture, colon, wanted = name.partition(":")
    row = _rows.get(architecture)
    if row is None:
        raise TreadleError(UNKNOWN_TARGET, name=name, known=", ".join(_rows))
    if not colon:
        return row
    for product in known_products(architecture):
        if product.name == wanted:
            return replace(row, product=product)
    known = ", ".join(f"{architecture}:{product.name}" for product in known_products(architecture))
    raise TreadleError(UNKNOWN_PRODUCT, architecture=architecture, name=wanted, known=known)


def known_spec(name: str) -> TargetSpec | None:
    """The machine of a name; None for an unknown one."""
    try:
        return target_spec(name)
    except TreadleError:
        return None


def target_name(spec: TargetSpec) -> str:
    """The name that `target_spec` knows a machine by: without its product where that is the architecture's default."""
    row = _rows.get(spec.name)
    return spec.name if row is None or row.product == spec.product else f"{spec.name}:{spec.product.name}"


def register_target(spec: TargetSpec) -> None:
    """Add an architecture with its default product (third parties and tests); replaces a row of the same name."""
    _rows[spec.name] = spec
    registrations.note(spec.name, _ADDRESS.sub("", repr(spec)))


def register_product(product: Product) -> None:
    """Add a product of a known architecture; replaces one of the same name. Raises TR501 for an unknown architecture."""
    target_spec(product.architecture)
    add_product(product)
    registrations.note(f"{product.architecture}:{product.name}", repr(product))


def known_targets() -> tuple[str, ...]:
    """Names of all architectures."""
    return tuple(_rows)


def known_products(architecture: str) -> tuple[Product, ...]:
    """The products of an architecture, its default first. Raises TR501."""
    default = target_spec(architecture).product
    return (default, *(one for one in products_of(architecture) if one != default))
