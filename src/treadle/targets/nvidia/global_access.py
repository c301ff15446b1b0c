"""Loads and stores of global memory under a predicate of each thread, without branches."""

from collections.abc import Sequence
from typing import Final

from treadle.codegen.llvm_text import BF16, F16, F32, F64, I8, I16, I32, I64, Builder, Value, bit_width, structure, vector
from treadle.targets.simt.hooks import Reading

MEMORY = "~{memory}"
_LOADS: Final[dict[Reading, str]] = {"plain": "", "ordered": "", "read_only": ".nc", "streaming": ".cs"}
"""PTX ISA, "ld": through the cache of data that no thread writes; evicted first."""


def predicated_load(
    b: Builder,
    address: Value,
    type: str,
    predicate: Value | None,
    other: Value,
    reading: Reading,
    *,
    stays: bool = False,
) -> Value:
    """A load where `predicate` holds (None: everywhere), `other` elsewhere. `stays`: it is issued in the order of the text."""
    bits = bit_width(type)
    words, word = (bits // 32, I32) if bits >= 32 else (1, I16)
    packed = _to_words(b, b.bitcast(other, f"i{bits}") if bits < 32 else other, words, word)
    names = ", ".join(f"${i}" for i in range(words))
    width = f".v{words}" if words > 1 else ""
    text = f"ld.global{_LOADS[reading]}{width}.{'b32' if bits >= 32 else f'b{bits}'}"
    registers = f"{{{names}}}" if words > 1 else names
    template = f"{text} {registers}, [${2 * words}];"
    if predicate is not None:
        template = f"{{ .reg .pred p; setp.ne.b32 p, ${2 * words + 1}, 0; @p {template} }}"
    is_kept = reading in ("plain", "ordered")
    asked = [] if predicate is None else [b.zext(predicate, I32)]
    letter = "r" if bits >= 32 else "h"
    constraints = [f"={letter}"] * words + [str(i) for i in range(words)] + ["l"] + ["r"] * len(asked) + [MEMORY] * is_kept
    result = b.asm(
        template,
        ",".join(constraints),
        [*packed, address, *asked],
        word if words == 1 else structure([word] * words),
        side_effect=stays or is_kept,
        convergent=False,
    )
    parts = [result] if words == 1 else [b.extract_value(result, i) for i in range(words)]
    return _from_words(b, parts, type)


def prefetch(b: Builder, address: Value, predicate: Value) -> None:
    """Ask the cache that all units share for a line where `predicate` holds. It changes nothing but when loads are over."""
    b.asm("{ .reg .pred p; setp.ne.b32 p, $1, 0; @p prefetch.global.L2 [$0]; }", f"l,r,{MEMORY}", [address, b.zext(predicate, I32)])


def predicated_store(b: Builder, address: Value, value: Value, predicate: Value) -> None:
    """A store where `predicate` holds."""
    bits = bit_width(value.type)
    words, word = (bits // 32, I32) if bits >= 32 else (1, I16)
    packed = _to_words(b, b.bitcast(value, f"i{bits}") if bits < 32 else value, words, word)
    names = ", ".join(f"${i + 2}" for i in range(words))
    registers = f"{{{names}}}" if words > 1 else names
    width = f".v{words}" if words > 1 else ""
    letter = "r" if bits >= 32 else "h"
    b.asm(
        f"{{ .reg .pred p; setp.ne.b32 p, $1, 0; @p st.global{width}.b{32 if bits >= 32 else bits} [$0], {registers}; }}",
        ",".join(["l", "r", *[letter] * words, MEMORY]),
        [address, b.zext(predicate, I32), *packed],
        convergent=False,
    )


_REDUCTIONS = {
    ("fadd", F32): ("add.f32", "f"),
    ("fadd", F64): ("add.f64", "d"),
    ("fadd", F16): ("add.noftz.f16", "h"),
    ("fadd", BF16): ("add.noftz.bf16", "h"),
    ("add", I32): ("add.u32", "r"),
    ("add", I64): ("add.u64", "l"),
    **{(op, kind): (f"{op}.s{kind[1:]}", letter) for op in ("max", "min") for kind, letter in ((I32, "r"), (I64, "l"))},
    **{(op, kind): (f"{op}.b{kind[1:]}", letter) for op in ("and", "or", "xor") for kind, letter in ((I32, "r"), (I64, "l"))},
}
"""PTX ISA, "red": operations and types that the memory itself combines."""


def predicated_update(b: Builder, op: str, address: Value, value: Value, predicate: Value) -> bool:
    """An update for the whole device where `predicate` holds; False where there is no instruction for it, and nothing is emitted."""
    if (op, value.type) not in _REDUCTIONS:
        return False
    name, letter = _REDUCTIONS[op, value.type]
    given = b.bitcast(value, I16) if letter == "h" else value
    b.asm(
        f"{{ .reg .pred p; setp.ne.b32 p, $1, 0; @p red.relaxed.gpu.global.{name} [$0], $2; }}",
        f"l,r,{letter},{MEMORY}",
        [address, b.zext(predicate, I32), given],
        convergent=False,
    )
    return True


def _to_words(b: Builder, value: Value, words: int, word: str) -> list[Value]:
    """A value as 32-bit words (or one 16-bit word, zero-extended)."""
    if word == I16:
        return [b.zext(value, I16) if value.type == I8 else b.bitcast(value, I16)]
    if words == 1:
        return [b.bitcast(value, I32)]
    whole = b.bitcast(value, vector(words, I32))
    return [b.extract(whole, i) for i in range(words)]


def _from_words(b: Builder, parts: Sequence[Value], type: str) -> Value:
    """The opposite of `_to_words`."""
    if parts[0].type == I16:
        return b.bitcast(b.trunc(parts[0], I8) if bit_width(type) == 8 else parts[0], type)
    return b.bitcast(parts[0] if len(parts) == 1 else b.build_vector(parts), type)
