"""How deep a text is nested: parsers and passes call themselves for what is inside brackets, and calls have a limit."""

import re

MAX_DEPTH = 64
"""Brackets inside brackets. Programs that are written or printed by tools stay below 20."""

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*+"?|//[^\n]*|->|[<>]=|[(\[{<]|[)\]}>]')


def too_deep_at(text: str) -> int | None:
    """The position of the first bracket inside `MAX_DEPTH` others, None where there is none; strings and comments do not count."""
    depth = 0
    for token in _TOKEN.finditer(text):
        match token.group():
            case "(" | "[" | "{" | "<":
                depth += 1
                if depth > MAX_DEPTH:
                    return token.start()
            case ")" | "]" | "}" | ">":
                depth = max(depth - 1, 0)
            case _:
                pass
    return None
