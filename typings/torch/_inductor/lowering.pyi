from collections.abc import Callable
from typing import Any

lowerings: dict[Any, Callable[..., Any]]

def make_fallback(op: Any, layout_constraint: Any = ..., warn: bool = ...) -> None: ...
