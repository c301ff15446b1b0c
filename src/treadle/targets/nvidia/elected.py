"""Instructions that one thread of a group issues, gathered so that neighbours share one branch.

It is the same thread for copies, for what commits and waits for them, and for announcements of bytes: the first of the executing group, or
in roles that copy, one of its first warp that the hardware elects, of all threads of a warp always the same. Where a comparison chooses it,
the assembler puts a loop that elects around each copy, since it does not know that one thread is left; beside matrix instructions it keeps
their descriptors in uniform registers only so.
"""

from treadle.codegen.llvm_text import Value, bit_width
from treadle.ir.core import Operation
from treadle.targets.simt.context import KernelContext

_OPERATIONS = frozenset({"tile.copy", "tile.copy_out", "sync.mbarrier_expect"})
# They compute addresses and touch nothing.
_QUIET = frozenset({"pipe.slot", "pipe.part", "sync.mbarrier_slot", "pipe.group_id", "pipe.cluster_rank", "tile.view", "tile.lookup"})
STORE_QUEUE = "bulk_store"


class Elected:
    """What is to be issued at the next flush. `votes`: the hardware elects the thread that does."""

    def __init__(self) -> None:
        self.votes = False
        self._lines: list[str] = []
        self._constraints: list[str] = []
        self._arguments: list[Value] = []

    def operand(self, value: Value) -> str:
        """The name of an input in the text."""
        for i, known in enumerate(self._arguments):
            if known.text == value.text and known.type == value.type:
                return f"${i}"
        self._arguments.append(value)
        wide = value.type.startswith("ptr") or bit_width(value.type) == 64
        self._constraints.append("l" if wide else "h" if bit_width(value.type) == 16 else "r")
        return f"${len(self._arguments) - 1}"

    def add(self, line: str) -> None:
        """One more instruction."""
        self._lines.append(line)

    def flush(self, ctx: KernelContext) -> None:
        """Emit what was gathered."""
        if not self._lines:
            return
        chosen = self.operand(ctx.thread)
        body = "\n".join(self._lines)
        first = f"setp.ne.u32 p, {chosen}, 0;\n@p bra DONE;"
        if self.votes:
            first = f"setp.ge.u32 p, {chosen}, {ctx.lanes};\n@p bra DONE;\nelect.sync _|p, {(1 << ctx.lanes) - 1:#x};\n@!p bra DONE;"
        text = f"{{ .reg .pred p;\n{first}\n{body}\nDONE: }}"
        constraints = ",".join([*self._constraints, "~{memory}"])
        arguments, self._lines, self._constraints, self._arguments = self._arguments, [], [], []
        ctx.b.asm(text, constraints, arguments)


def is_gathered(op: Operation) -> bool:
    """Whether an operation adds to what is gathered, or may stand among what does."""
    if op.name.startswith("arith.") or op.name in _QUIET:
        return True
    if op.name in ("sync.commit", "sync.wait"):
        return str(op.properties["queue"]).strip('"') == STORE_QUEUE
    if op.name == "tile.copy":
        return str(op.properties["path"]).strip('"') == "bulk_tensor"
    return op.name in _OPERATIONS
