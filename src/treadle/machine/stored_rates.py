"""Rates in a file beside the products' rows: what `treadle calibrate` found, for products that the user's machine has.

The file (environment variable TREADLE_RATES) holds a JSON object: by product (`sm_90a:h200-sxm`) an object of groups of `Rates`, each an
object of its constants; what is missing is as in the row.
"""

from typing import TYPE_CHECKING, Any

from treadle.errors import READ_FILE, TreadleError
from treadle.knobs import RATES

if TYPE_CHECKING:
    from pathlib import Path

    from treadle.machine.products import Product
    from treadle.machine.rates import Rates
    from treadle.records import Record

_read: dict[tuple[str, int, int], str] = {}
_known: dict[tuple[str, str], "Rates | None"] = {}


def stored_text() -> str:
    """The file's content, "" where none is named. Raises TR901 for a file that cannot be read."""
    path = RATES.get()
    if path is None:
        return ""
    try:
        state = path.stat()
        key = (str(path), state.st_mtime_ns, state.st_size)
        if key not in _read:
            _read[key] = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise TreadleError(READ_FILE, path=path, reason=problem.strerror or problem) from problem
    return _read[key]


def stored_rates(product: "Product") -> "Rates | None":
    """The rates of a product in the file; None where it has none. Raises TR901 for a file of another kind."""
    text = stored_text()
    if not text:
        return None
    name = product_name(product)
    if (text, name) not in _known:
        _known[text, name] = _rates(text, name, product)
    return _known[text, name]


def product_name(product: "Product") -> str:
    """As the file and targets have it."""
    return f"{product.architecture}:{product.name}"


def _rates(text: str, name: str, product: "Product") -> "Rates | None":
    import json

    try:
        found = json.loads(text).get(name)
        return None if found is None else rates_from_plain(product.rates, found)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise TreadleError(READ_FILE, path=RATES.get(), reason=f"it holds no rates of products ({problem})") from problem


def rates_from_plain(base: "Rates", plain: "dict[str, dict[str, Any]]") -> "Rates":
    """`base` with these constants. Raises KeyError for a group or constant that is none, TypeError for what is no number."""
    from dataclasses import replace

    for group, values in plain.items():
        if group not in type(base).record_names:
            raise KeyError(group)
        record = getattr(base, group)
        for name, value in values.items():
            usual = getattr(record, name, None)
            if not isinstance(usual, int | float) or not isinstance(value, int | float):
                raise TypeError(f"{group}.{name} is {value!r}")
            values = {**values, name: type(usual)(value)}
        base = replace(base, **{group: replace(record, **values)})
    return base


def plain_rates(rates: "Rates") -> dict[str, dict[str, Any]]:
    """The constants that are numbers, as JSON has them."""
    groups: dict[str, Record] = {group: getattr(rates, group) for group in rates.record_names}
    return {
        group: {name: value for name in record.record_names if isinstance(value := getattr(record, name), int | float)}
        for group, record in groups.items()
    }


def store_rates(path: "Path", product: "Product", rates: "Rates") -> None:
    """Write a product's rates into a file, which keeps those of others. Raises TR901, TR902."""
    import json

    from treadle.errors import WRITE_FILE

    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        content[product_name(product)] = plain_rates(rates)
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_name(f".{path.name}.part")
        made.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        made.replace(path)
    except OSError as problem:
        raise TreadleError(WRITE_FILE, path=path, reason=problem.strerror or problem) from problem
    except (ValueError, TypeError) as problem:
        raise TreadleError(READ_FILE, path=path, reason=f"it holds no rates of products ({problem})") from problem
