"""What the steps of a run share: numbers and forms of values, nodes so far, and the class that the run stands for."""

from collections.abc import Callable

from treadle.ir.core import Operation, SSAValue
from treadle.verify.classes import Class, Key
from treadle.verify.decode import References
from treadle.verify.events import Node
from treadle.verify.program import Program
from treadle.verify.symbols import Atoms, Form, Symbol
from treadle.verify.unknowns import Unknowns

Step = Callable[[], None]


class Undecided(Exception):
    """A run cannot go on: what an operation does is not known."""

    def __init__(self, op: Operation, reason: str) -> None:
        super().__init__(reason)
        self.op, self.reason = op, reason


class State:
    """One tracer's state. `env`: numbers (or references) of values, `symbols`: their forms in the class of the run.

    `facts`: for each node of a loop and each of its stretches between turning points, the forms of its length less the length it has here;
    `loop_of`: the loop that a node comes of; `silent`: the same for loops without events, with what they may be longer by.
    `cost`: steps taken, of all runs. `blame`: an operation for each loop whose length a decision fixed.
    """

    def __init__(self, program: Program, unknowns: Unknowns) -> None:
        self.program, self.unknowns = program, unknowns
        self.atoms = Atoms(len(unknowns.all))
        self.references = References()
        self.env: list[object] = []
        self.symbols: list[Symbol] = []
        self.out: list[int] = []
        self.nodes: list[Node] = []
        self._ids: dict[object, int] = {}
        self._place_of: dict[SSAValue, int] = {}
        self.blame: dict[int, Operation] = {}
        self.cost = 0
        self.group = self.rank = 0
        self.begin()

    def begin(self) -> None:
        """Begin a run."""
        self.trips: dict[int, int] = {}
        self.covered = Class(self.atoms)
        self.facts: dict[tuple[int, int], dict[Key, None]] = {}
        self.silent: list[tuple[int, Form, int]] = []
        self.loop_of: dict[int, int] = {}
        self.undecided: dict[Operation, str] = {}

    def place(self, value: SSAValue) -> int:
        """Where a value stands in `env` and `symbols`."""
        found = self._place_of.get(value)
        if found is None:
            found = self._place_of[value] = len(self.env)
            self.env.append(None)
            self.symbols.append(None)
        return found

    def node(self, key: object, make: Callable[[], Node]) -> int:
        """The number of the node with this key."""
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = len(self.nodes)
            self.nodes.append(make())
        return found

    def put(self, at: int, value: object, symbol: Symbol = None) -> None:
        """Set a value."""
        self.env[at] = value
        self.symbols[at] = symbol

    def values(self) -> tuple[list[object], list[Symbol]]:
        """All numbers and forms as they are, for `restore`."""
        return list(self.env), list(self.symbols)

    def restore(self, kept: tuple[list[object], list[Symbol]]) -> None:
        """Go back to these."""
        self.env[:], self.symbols[:] = kept

    # --- decisions

    def fix(self, at: int, op: Operation) -> object:
        """The value as a number, which it has in all of the class."""
        value, symbol = self.env[at], self.symbols[at]
        if symbol is not None and isinstance(value, int):
            self._note(symbol, op)
            self.covered.zero(Form(symbol.terms, symbol.constant - value, symbol.loops))
        return value

    def depends(self, form: Form, op: Operation) -> None:
        """The loops of a form have to be as long as here."""
        self._note(form, op)
        self.covered.loops |= form.loops

    def sign(self, form: Form, value: int, op: Operation) -> None:
        """The class has the sign that a form has here."""
        self._note(form, op)
        self.covered.sign(form, value)

    def not_negative(self, form: Form, op: Operation) -> None:
        """The class has a form zero or more."""
        self._note(form, op)
        self.covered.not_negative(form)

    def zero(self, form: Form, op: Operation) -> None:
        """The class has a form zero."""
        self._note(form, op)
        self.covered.zero(form)

    def congruent(self, form: Form, value: int, modulus: int) -> None:
        """The class has a form that is `value` modulo a number, or `value` (0). Iterations that are left out are the same modulo it."""
        if not modulus:
            self.covered.zero(Form(form.terms, form.constant - value))
            return
        rest = self.atoms.remainder(Form(form.terms, form.constant), modulus)
        self.covered.zero(Form(rest.terms, rest.constant - value % modulus))

    def _note(self, form: Form, op: Operation) -> None:
        for loop in form.loops:
            self.blame.setdefault(loop, op)
