"""Two readings of one kernel's machine code, compared."""

from treadle.targets.nvidia.sass import loops, parse
from treadle.targets.nvidia.sass_words import decode
from treadle.targets.nvidia.toolchain import disassemble_cubin

FLOW = ("BRA", "EXIT", "JMP", "RET")


def check_words(cubin: bytes, symbol: str) -> bool:
    """Assert that the bits say what nvdisasm says, registers a superset; False where they are not all known."""
    words = decode(cubin, symbol)
    if words is None:
        return False
    text = parse(disassemble_cubin(cubin))
    assert len(words) == len(text)
    assert loops(words) == loops(text)
    for word, one in zip(words, text, strict=True):
        assert (word.mnemonic, word.target, word.is_matrix, word.pending) == (one.mnemonic, one.target, one.is_matrix, one.pending), one
        if one.is_matrix:
            assert (word.closes_group, word.accumulator()) == (one.closes_group, one.accumulator()), one
        else:
            assert word.registers() >= one.registers(), one
        if one.mnemonic in FLOW:
            assert word.is_predicated == one.is_predicated, one
        if one.mnemonic == "MEMBAR":
            assert (".CTA" in word.suffix) == (".CTA" in one.suffix), one
    return True
