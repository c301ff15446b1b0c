from typing import Any

class Node:
    op: str
    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    meta: dict[str, Any]
    users: dict[Node, None]
    all_input_nodes: list[Node]
    def __getattr__(self, name: str) -> Any: ...

class Graph:
    nodes: Any
    def __getattr__(self, name: str) -> Any: ...
    def __init__(self) -> None: ...

class GraphModule:
    graph: Graph
    def __init__(self, root: Any, graph: Graph) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
    def __call__(self, *args: Any) -> Any: ...
