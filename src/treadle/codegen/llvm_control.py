"""Control flow on top of the instructions: explicit blocks and phis, and structured loops and conditionals.

A loop is emitted in rotated form (a guard, then a body that tests at its end), which needs one branch per trip without any IR pass.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from treadle.codegen import llvm_types as ty
from treadle.codegen.llvm_builder import Block, Instructions
from treadle.codegen.llvm_types import Value
from treadle.errors import InternalError


class Loop:
    """A loop under construction: `index` and `carried` inside; `next` sets the carried values of the following trip; `results` after."""

    __slots__ = ("_next", "carried", "index", "results")

    def __init__(self, index: Value, carried: list[Value]) -> None:
        self.index = index
        self.carried = carried
        self.results: list[Value] = []
        self._next: list[Value] | None = None if carried else []

    def next(self, values: Sequence[Value]) -> None:
        """The carried values for the following trip, in order."""
        if [v.type for v in values] != [c.type for c in self.carried]:
            raise InternalError(f"loop carries {[c.type for c in self.carried]}, next gives {[v.type for v in values]}")
        self._next = list(values)

    @property
    def following(self) -> list[Value]:
        """What `next` was given."""
        if self._next is None:
            raise InternalError("a loop with carried values ends without `next`")
        return self._next


class Conditional:
    """An if under construction: enter `then()` and, if wanted, `otherwise()`.

    `give` sets the values of the branch one is in; afterwards `results` holds the merged ones.
    """

    __slots__ = ("_builder", "_condition", "_exit", "_given", "_otherwise", "_seen_otherwise", "_then", "results")

    def __init__(self, builder: "Builder", condition: Value) -> None:
        self._builder = builder
        self._condition = condition
        self._then, self._otherwise, self._exit = builder.block("then"), builder.block("else"), builder.block("join")
        self._given: list[tuple[list[Value], Block]] = []
        self._seen_otherwise = False
        self.results: list[Value] = []

    @contextmanager
    def then(self) -> Generator[None]:
        """The branch for a true condition."""
        self._builder.branch_if(self._condition, self._then, self._otherwise)
        yield from self._branch(self._then)

    @contextmanager
    def otherwise(self) -> Generator[None]:
        """The branch for a false condition; comes second."""
        self._seen_otherwise = True
        yield from self._branch(self._otherwise)

    def give(self, values: Sequence[Value]) -> None:
        """The values of this branch; both branches must give the same types."""
        self._given.append((list(values), self._builder.current))

    def _branch(self, block: Block) -> Generator[None]:
        builder = self._builder
        before = len(self._given)
        builder.place(block, keep_scope=True)
        with builder.scope():
            yield
            for i in range(before, len(self._given)):  # inner control flow may have moved on since `give`
                self._given[i] = (self._given[i][0], builder.current)
        builder.branch(self._exit)

    def finish(self) -> None:
        """Close the conditional (called by `Builder.conditional`)."""
        builder = self._builder
        if not self._seen_otherwise:
            if self._given:
                raise InternalError("a conditional with results needs both branches")
            builder.place(self._otherwise, keep_scope=True)
            builder.branch(self._exit)
        builder.place(self._exit, keep_scope=True)
        if self._given:
            (first, first_from), (second, second_from) = self._given
            pairs = zip(first, second, strict=True)
            self.results = [builder.phi(a.type, [(a, first_from), (b, second_from)]) for a, b in pairs]


class Builder(Instructions):
    """Builds one function: every instruction of `Instructions`, blocks, and structured control flow."""

    def block(self, stem: str = "block") -> Block:
        """A new block, to be placed later."""
        return Block(self.function.fresh(stem))

    def place(self, block: Block, *, keep_scope: bool = False) -> None:
        """Continue in `block`. Values known before are reused only if the caller vouches that they dominate (`keep_scope`)."""
        if self._open:
            raise InternalError(f"block {self.current.name} has no terminator")
        if not keep_scope:
            self._scopes = [{}]
        self._lines.append(f"{block.name}:")
        self.current, self._open = block, True

    def _terminate(self, text: str) -> None:
        self.emit(ty.VOID, text)
        self._open = False

    def branch(self, target: Block, metadata: str = "") -> None:
        """Jump."""
        self._terminate(f"br label %{target.name}{', ' + metadata if metadata else ''}")

    def branch_if(self, condition: Value, yes: Block, no: Block, metadata: str = "") -> None:
        """Jump by an i1."""
        self._terminate(f"br {condition.typed}, label %{yes.name}, label %{no.name}{', ' + metadata if metadata else ''}")

    def ret(self, value: Value | None = None) -> None:
        """Return."""
        self._terminate(f"ret {value.typed}" if value else "ret void")

    def unreachable(self) -> None:
        """End of a path that is never taken."""
        self._terminate("unreachable")

    def phi(self, type: str, incoming: Sequence[tuple[Value, Block]]) -> Value:
        """A value by predecessor; must be among the first instructions of its block."""
        return self.emit(type, f"phi {type} " + ", ".join(f"[ {v.text}, %{b.name} ]" for v, b in incoming))

    @contextmanager
    def loop(
        self,
        lower: Value,
        upper: Value,
        step: Value,
        carried: Sequence[Value] = (),
        *,
        signed: bool = True,
        runs_once: bool = False,
        skipped: Sequence[Value] | None = None,
        metadata: str = "",
    ) -> Generator[Loop]:
        """`for index = lower; index < upper; index += step`, carrying values; `runs_once` promises one trip and drops the guard.

        `skipped`: the results of a loop that makes no trip, where they are not what it starts from.
        """
        below = "slt" if signed else "ult"
        guard = ty.TRUE if runs_once else self.icmp(below, lower, upper)
        before, body, done = self.current, self.block("loop"), self.block("done")
        if guard.number == 0:
            # Never runs: the body still has to be built, in a block that nothing reaches.
            self.branch(done)
        elif guard.number == 1:
            self.branch(body)
        else:
            self.branch_if(guard, body, done)
        self.place(body, keep_scope=True)
        position = len(self._lines)  # phis are written when their second operands are known
        names = ["%" + self.function.fresh() for _ in range(1 + len(carried))]
        made = Loop(Value(lower.type, names[0]), [Value(c.type, n) for c, n in zip(carried, names[1:], strict=True)])
        with self.scope():
            yield made
            following = made.following
            advanced = self.add(made.index, step, "nsw" if signed else "nuw")
            last = self.current
            if guard.number == 0:
                self.branch(body, metadata)
            else:
                self.branch_if(self.icmp(below, advanced, upper), body, done, metadata)
        starts = [] if guard.number == 0 else [before]
        phis: list[str] = []
        for name, first, then in zip(names, [lower, *carried], [advanced, *following], strict=True):
            incoming = [f"[ {first.text}, %{b.name} ]" for b in starts] + [f"[ {then.text}, %{last.name} ]"]
            phis.append(f"  {name} = phi {first.type} {', '.join(incoming)}")
        self._lines[position:position] = phis
        self.place(done, keep_scope=True)
        none = list(carried if skipped is None else skipped)
        if guard.number == 0:
            made.results = none
        elif guard.number == 1:
            made.results = following
        else:
            pairs = zip(none, following, strict=True)
            made.results = [self.phi(a.type, [(a, before), (b, last)]) for a, b in pairs]

    @contextmanager
    def conditional(self, condition: Value) -> Generator[Conditional]:
        """`with b.conditional(c) as branch: with branch.then(): ...; with branch.otherwise(): ...`; then `branch.results`."""
        made = Conditional(self, condition)
        yield made
        made.finish()

    @contextmanager
    def when(self, condition: Value) -> Generator[None]:
        """Run the block only where `condition` holds; a constant true adds no branch."""
        if condition.number == 1:
            yield
            return
        with self.conditional(condition) as branch, branch.then():
            yield
