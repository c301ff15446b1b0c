"""Machines by name: an architecture (`sm_90a`), or an architecture and a product of it (`sm_90a:h100-pcie`)."""

import re
from dataclasses import replace

from treadle.errors import Entry, TreadleError
from treadle.machine import registrations
from treadle.machine.products import Product, add_product, products_of
from treadle.machine.rows import ROWS
from treadle.machine.spec import TargetSpec
from treadle.machine.stored_rates import stored_rates

UNKNOWN_TARGET = Entry("TR501", "target '{name}' is not supported", "use one of: {known}")
UNKNOWN_PRODUCT = Entry("TR502", "{architecture} has no product '{name}'", "use one of: {known} (see `treadle targets`)")

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Of a function in its text: another one in every process, while keys of the cache must be the same."""

_rows: dict[str, TargetSpec] = {row.name: row for row in ROWS}
_rated: dict[tuple[str, int, int], tuple[TargetSpec, TargetSpec]] = {}
"""Machines with rates from a file, beside those that they are made of, so that a machine is one object."""


def target_spec(name: str) -> TargetSpec:
    """The machine that a name stands for: an architecture is its default product.

    Raises TreadleError TR501 for an unknown architecture, TR502 for an unknown product, TR901 where TREADLE_RATES names no file of rates.
    """
    spec = _row_of(name)
    rates = stored_rates(spec.product)
    if rates is None:
        return spec
    key = (name, id(spec), id(rates))
    if key not in _rated:
        _rated[key] = (spec, replace(spec, product=replace(spec.product, fitted=rates)))
    return _rated[key][1]


def _row_of(name: str) -> TargetSpec:
    architecture, colon, wanted = name.partition(":")
    row = _rows.get(architecture)
    if row is None:
        raise TreadleError(UNKNOWN_TARGET, name=name, known=", ".join(_rows))
    if not colon:
        return row
    for product in _products(row):
        if product.name == wanted:
            return replace(row, product=product)
    known = ", ".join(f"{architecture}:{product.name}" for product in _products(row))
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
    return spec.name if row is None or row.product.name == spec.product.name else f"{spec.name}:{spec.product.name}"


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
    return _products(_row_of(architecture))


def _products(row: TargetSpec) -> tuple[Product, ...]:
    return (row.product, *(one for one in products_of(row.name) if one != row.product))
