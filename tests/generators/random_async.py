"""Random sequential programs on slots, for insert-sync: copies of all kinds, products, local accesses and bulk stores,
in loops and branches.
"""

import random

from generators.async_kernels import ACCUMULATOR, Kernel

SLOTS = {"%p": 3, "%q": 0, "%w": 2}
TRIPS = 5


class Source:
    """Writes one program. Every slot is filled first, so that whatever is read was written."""

    def __init__(self, seed: int, *, stores_once: bool = False) -> None:
        self.stores_once = stores_once
        self.rng = random.Random(seed)
        self.kernel = Kernel(rows=64 * 12)
        self.indices = ["%c0", "%c1"]
        self.results: list[str] = []
        self.depth = 0
        self.stored = 2
        self.kernel.buffers("f16", **{name[1:]: slots for name, slots in SLOTS.items()})
        self.kernel.buffers("f32", o=2)
        self.kernel.add("%pid = tile.program_id 0 : i64")
        self.bounds: list[tuple[str, str]] = []
        for name, slots in (*SLOTS.items(), ("%o", 2)):
            for number in range(max(1, slots)):
                self.fill(name, self.kernel.slot(name, f"%c{number}") if slots else name)

    def fill(self, name: str, at: str) -> None:
        kind = self.rng.choice(["bulk_tensor", "cp_async", "local"])
        if kind == "local" or name == "%o":
            self.kernel.local_store(at)
        else:
            self.kernel.copy(at, self.rng.choice(["%r0", "%r1"]), kind, self.rng.choice(["%va", "%vb"]))

    def place(self, name: str) -> str:
        slots = {**SLOTS, "%o": 2}[name]
        if not slots:
            return name
        index, result = self.rng.choice(self.indices), self.kernel.fresh("n")
        self.kernel.add(f"{result}a = arith.addi {index}, %c{self.rng.randrange(slots)} : index")
        self.kernel.add(f"{result} = arith.remui {result}a, %c{slots} : index")
        return self.kernel.slot(name, result)

    def operation(self) -> None:
        k, rng = self.kernel, self.rng
        match rng.choice(["fill", "fill", "load", "mma", "mma", "use", "out", "store", "loop", "branch"]):
            case "fill":
                name = rng.choice(list(SLOTS))
                self.fill(name, self.place(name))
            case "load":
                k.local_load(self.place(rng.choice(list(SLOTS))))
            case "mma":
                a, b = self.place("%p"), self.place(rng.choice(["%q", "%w"]))
                if rng.random() < 0.4:
                    a = k.fragment(rng.choice([a, *self.results[-1:]]))
                self.results.append(k.mma(a, b, rng.choice([*self.results[-1:], "%zero"])))
            case "use" if self.results:
                self.results.append(k.relu(rng.choice(self.results)))
            case "out" if not (self.stores_once and (self.bounds or self.stored > 11)):
                k.copy_out(self.place("%o"), f"%r{min(self.stored, 11)}")
                self.stored += 1
            case "store":
                k.local_store(self.place("%o"))
            case "loop" if self.depth < 2:
                self.loop()
            case "branch" if self.depth < 2:
                self.branch()
            case _:
                pass

    def body(self, count: int) -> None:
        for _ in range(count):
            self.operation()

    def loop(self) -> None:
        k, name = self.kernel, self.kernel.fresh("i")
        start = self.rng.choice([*self.results[-1:], "%zero"])
        result, argument = k.fresh("o"), k.fresh("x")
        kept, indices, stored = list(self.results), list(self.indices), self.stored
        bound = f"%c{self.rng.choice([0, 1, 2, TRIPS])}"
        k.add(f"{result} = scf.for {name} = %c0 to {bound} step %c1 iter_args({argument} = {start}) -> ({ACCUMULATOR}) {{")
        self.indices.append(name)
        self.bounds.append((name, bound))
        self.results.append(argument)
        self.depth += 1
        self.body(self.rng.randrange(1, 6))
        self.depth -= 1
        k.add(f"scf.yield {self.results[-1]} : {ACCUMULATOR}\n}}")
        self.bounds.pop()
        self.results, self.indices = [*kept, result], indices
        self.stored = max(stored, self.stored)

    def branch(self) -> None:
        kept, indices = list(self.results), list(self.indices)
        self.depth += 1
        flag = self.kernel.fresh("f")
        if self.bounds and self.rng.random() < 0.6:  # whether an iteration further on exists
            name, bound = self.rng.choice(self.bounds)
            self.kernel.add(f"{flag}a = arith.addi {name}, %c{self.rng.randrange(1, 4)} : index")
            self.kernel.add(f"{flag} = arith.cmpi slt, {flag}a, {bound} : index")
        else:
            self.kernel.add(f"{flag} = arith.cmpi eq, %pid, %c{self.kernel.count % 16} : index")
        self.kernel.add(f"scf.if {flag} {{")
        self.body(self.rng.randrange(1, 4))
        if self.rng.random() < 0.4:
            self.results, self.indices = list(kept), list(indices)
            self.kernel.add("} else {")
            self.body(self.rng.randrange(1, 4))
        self.kernel.add("}")
        self.depth -= 1
        self.results, self.indices = kept, indices


def random_kernel(seed: int, length: int = 10, *, stores_once: bool = False) -> Kernel:
    """A program of `length` operations, some of them loops and branches; its last result is stored.

    `stores_once`: no two bulk stores go to the same rows.
    """
    source = Source(seed, stores_once=stores_once)
    source.body(length)
    source.kernel.store(source.results[-1] if source.results else "%zero")
    return source.kernel
