from typing import Any

V: Any
