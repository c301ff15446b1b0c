"""Small changes of texts, as slips of the pen and of tools make them: bytes, words, numbers and lines."""

import random
import re
from collections.abc import Callable

Mutation = Callable[[random.Random, str], str]
NUMBERS = (
    "0",
    "1",
    "2",
    "-1",
    "3",
    "7",
    "64",
    "65",
    "1000",
    "65536",
    "2147483647",
    "2147483648",
    "4294967296",
    "9223372036854775808",
    "1e30",
    "?",
)
ODD = (
    '"',
    "{",
    "}",
    "(",
    ")",
    "<",
    ">",
    "[",
    "]",
    "%",
    "#",
    "@",
    "!",
    "^",
    ":",
    ",",
    "->",
    "=",
    "//",
    "\\",
    "\0",
    "é",
    "\t",
    "-",
    "0x",
    "x",
    "\n",
)
WORDS = ("f32", "f16", "bf16", "f64", "f8E4M3FN", "i1", "i8", "i32", "i64", "index", "tensor", "parallel", "reduction", "none", "true")


def _place(rng: random.Random, text: str) -> int:
    return rng.randrange(len(text) + 1)


def _delete(rng: random.Random, text: str) -> str:
    at = _place(rng, text)
    return text[:at] + text[at + rng.choice((1, 1, 2, 5, 40)) :]


def _insert(rng: random.Random, text: str) -> str:
    at = _place(rng, text)
    return text[:at] + rng.choice(ODD) + text[at:]


def _byte(rng: random.Random, text: str) -> str:
    """One byte is another; what is no UTF-8 then becomes what a reader of Latin-1 sees."""
    data = bytearray(text.encode("utf-8", errors="surrogateescape"))
    data[rng.randrange(len(data))] = rng.choice((rng.randrange(256), rng.randrange(32, 127)))
    return data.decode("utf-8", errors="surrogateescape")


def _repeat(rng: random.Random, text: str) -> str:
    at, length = _place(rng, text), rng.choice((1, 3, 20))
    return text[:at] + text[at : at + length] * rng.choice((2, 3, 200)) + text[at + length :]


def _cut(rng: random.Random, text: str) -> str:
    return text[: _place(rng, text)]


def _substituted(pattern: str, words: tuple[str, ...]) -> Mutation:
    def mutate(rng: random.Random, text: str) -> str:
        found = list(re.finditer(pattern, text))
        if not found:
            return _insert(rng, text)
        match = rng.choice(found)
        return text[: match.start()] + rng.choice(words) + text[match.end() :]

    return mutate


def _copied(pattern: str) -> Mutation:
    """One match gets the text of another."""

    def mutate(rng: random.Random, text: str) -> str:
        found = list(re.finditer(pattern, text))
        if not found:
            return _delete(rng, text)
        match, other = rng.choice(found), rng.choice(found)
        return text[: match.start()] + other.group() + text[match.end() :]

    return mutate


def _lines(change: Callable[[random.Random, list[str]], None]) -> Mutation:
    def mutate(rng: random.Random, text: str) -> str:
        lines = text.splitlines(keepends=True)
        if lines:
            change(rng, lines)
        return "".join(lines)

    return mutate


def _drop(rng: random.Random, lines: list[str]) -> None:
    del lines[rng.randrange(len(lines))]


def _double(rng: random.Random, lines: list[str]) -> None:
    at = rng.randrange(len(lines))
    lines.insert(at, lines[at])


def _move(rng: random.Random, lines: list[str]) -> None:
    line = lines.pop(rng.randrange(len(lines)))
    lines.insert(rng.randrange(len(lines) + 1), line)


MUTATIONS: dict[str, Mutation] = {
    "delete": _delete,
    "insert": _insert,
    "byte": _byte,
    "repeat": _repeat,
    "cut": _cut,
    "number": _substituted(r"(?<![\w.%#])-?\d+|(?<=[<x])\d+(?=x)", NUMBERS),
    "word": _substituted(r"\b(?:f32|f16|bf16|f64|i1|i8|i32|i64|index|parallel|reduction)\b", WORDS),
    "operation": _copied(r"\b(?:arith|math|linalg|tensor|tile|sync|scf)\.\w+"),
    "value": _copied(r"%\w+"),
    "type": _copied(r"tensor<[^<>]*>|memref<[^<>]*>"),
    "attribute": _copied(r"\w+ = [^,{}\n]+"),
    "drop line": _lines(_drop),
    "double line": _lines(_double),
    "move line": _lines(_move),
}
"""By name; each is a function of a generator and a text."""


def mutate(rng: random.Random, text: str) -> tuple[str, str]:
    """The text after one or two mutations, and their names."""
    names = [rng.choice(list(MUTATIONS)) for _ in range(rng.choice((1, 1, 1, 2)))]
    for name in names:
        text = MUTATIONS[name](rng, text) if text else text
    return text, ", ".join(names)
