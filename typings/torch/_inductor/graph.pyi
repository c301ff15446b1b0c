from typing import Any

class GraphLowering:
    @staticmethod
    def decide_layout_opt(gm: Any, *, is_inference: bool) -> bool: ...
