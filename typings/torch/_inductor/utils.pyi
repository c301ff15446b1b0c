from collections.abc import Callable
from typing import Any

def run_and_get_code(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, list[str]]: ...
