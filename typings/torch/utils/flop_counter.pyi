from typing import Any

flop_registry: dict[Any, Any]
