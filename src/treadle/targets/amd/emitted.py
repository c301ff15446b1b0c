"""How much of everything an emitted kernel asks for, by the line of the line table: read off its LLVM text."""

import re
from collections import Counter

from treadle.codegen.llvm_text import bit_width

Amounts = dict[int, Counter[str]]
"""By line: how many matrix instructions and barriers, how many bytes a lane of each kind of access."""

_PLACE = re.compile(r"!dbg !(\d+)")
_LOCATION = re.compile(r"^!(\d+) = !DILocation\(line: (\d+),", re.MULTILINE)
_LOAD = re.compile(r"= load (?:atomic )?(<[^>]+>|\w+), ptr addrspace\((\d)\)")
_BOUNDED = re.compile(r"call (<[^>]+>|\w+) @llvm\.amdgcn\.raw\.ptr\.buffer\.load\.(?!lds)")
_COPY = re.compile(r"@llvm\.amdgcn\.raw\.ptr\.buffer\.load\.lds\(.*?, i32 (\d+), i32")
_STORE = re.compile(r"^\s*store (?:atomic )?(<[^>]+>|\w+) .*, ptr addrspace\((\d)\)")
_CALL = re.compile(r"@llvm\.amdgcn\.(mfma|smfmac|wmma|swmmac|s\.barrier)\b")
_SHARED = "3"


def emitted_amounts(llvm_text: str) -> Amounts:
    """What the text of one kernel holds."""
    lines = {node: int(line) for node, line in _LOCATION.findall(llvm_text)}
    found: Amounts = {}
    for text in llvm_text.splitlines():
        place = _PLACE.search(text)
        if place is None or place.group(1) not in lines:
            continue
        amounts = found.setdefault(lines[place.group(1)], Counter())
        for pattern, word in ((_LOAD, "load"), (_STORE, "store")):
            if access := pattern.search(text):
                amounts[f"local_{word}" if access.group(2) == _SHARED else word] += bit_width(access.group(1)) // 8
        if copied := _COPY.search(text):
            amounts["copy"] += int(copied.group(1))
        if bounded := _BOUNDED.search(text):
            amounts["load"] += bit_width(bounded.group(1)) // 8
        if call := _CALL.search(text):
            amounts["barrier" if call.group(1) == "s.barrier" else "matrix"] += 1
    return found
