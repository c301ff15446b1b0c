"""How times are taken: contenders interleaved in random order, each call after a sweep that leaves the L2 cache without their data.

Pure over a `Clock`, so that it is tested without a device.
"""

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

MIN_ROUNDS = 11


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """`rounds`: calls of each contender; `warm_seconds`: interleaved calls before them, so that clocks settle under the load.

    `pause_seconds`: rest before a case; `most_seconds`: after that time no round beyond the eleventh is begun; `flush_bytes`: what is read
    before each call: more than any L2 cache, and long enough that the host has enqueued the call before it ends.
    `rows`, `columns`: size of the sample that is compared with float64. `seed`: of inputs, samples and order.
    """

    rounds: int = 21
    warm_seconds: float = 0.4
    pause_seconds: float = 0.3
    most_seconds: float = 20.0
    flush_bytes: int = 1 << 30
    rows: int = 24
    columns: int = 96
    seed: int = 0


QUICK = MeasureOptions(rounds=MIN_ROUNDS, warm_seconds=0.05, pause_seconds=0.0, most_seconds=4.0, flush_bytes=1 << 29, rows=8, columns=48)


class Clock(Protocol):
    """What measuring needs of a device."""

    def flush(self) -> None:
        """Enqueue the sweep."""
        ...

    def mark(self) -> Any:
        """Enqueue a time stamp."""
        ...

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Time between two stamps that have passed."""
        ...

    def synchronize(self) -> None:
        """Wait for everything that is enqueued."""
        ...


@dataclass(slots=True)
class Samples:
    """Times of one contender, one a round: on the device in ms, of the enqueuing call on the host in us."""

    device_ms: list[float] = field(default_factory=list[float])
    host_us: list[float] = field(default_factory=list[float])

    @property
    def median_ms(self) -> float:
        """The median on the device."""
        return statistics.median(self.device_ms)

    @property
    def median_host_us(self) -> float:
        """The median on the host."""
        return statistics.median(self.host_us)


Contenders = Mapping[str, Callable[[], object]]


def measure(
    clock: Clock, contenders: Contenders, options: MeasureOptions, while_warm: Callable[[], None] | None = None
) -> dict[str, Samples]:
    """Samples of each contender. `while_warm` is called once while the device is busy warming up."""
    order = random.Random(options.seed)
    found = {name: Samples() for name in contenders}
    _warm_up(clock, contenders, options.warm_seconds, while_warm)
    start = time.perf_counter()
    for number in range(max(MIN_ROUNDS, options.rounds)):
        if number >= MIN_ROUNDS and time.perf_counter() - start > options.most_seconds:
            break
        for name in order.sample(sorted(contenders), len(contenders)):
            clock.synchronize()  # the sweep starts now: the host has its whole length to enqueue the call
            clock.flush()
            begin = clock.mark()
            before = time.perf_counter()
            contenders[name]()
            found[name].host_us.append(1e6 * (time.perf_counter() - before))
            end = clock.mark()
            clock.synchronize()
            found[name].device_ms.append(clock.elapsed_ms(begin, end))
    return found


def _warm_up(clock: Clock, contenders: Contenders, seconds: float, while_warm: Callable[[], None] | None) -> None:
    until = time.perf_counter() + seconds
    turns = 0
    while turns < 2 or time.perf_counter() < until:
        for call in contenders.values():
            call()
        if turns == 1 and while_warm is not None:
            while_warm()
        turns += 1
        if turns % 4 == 0:
            clock.synchronize()
    clock.synchronize()


def flush_ms(clock: Clock) -> float:
    """How long the sweep takes: calls that the host enqueues slower than this are not hidden behind it."""
    times: list[float] = []
    for _ in range(5):
        begin = clock.mark()
        clock.flush()
        end = clock.mark()
        clock.synchronize()
        times.append(clock.elapsed_ms(begin, end))
    return statistics.median(times)


def ratio(peer: Samples, ours: Samples) -> float:
    """Median over the rounds of peer's time / our time: above 1 we are faster."""
    return statistics.median(p / o for p, o in zip(peer.device_ms, ours.device_ms, strict=True))


def sample_indices(extent: int, count: int, generator: random.Random) -> tuple[int, ...]:
    """`count` indices below `extent` (all where it has no more), the first and the last among them, ascending."""
    if extent <= count:
        return tuple(range(extent))
    inner = generator.sample(range(1, extent - 1), max(0, count - 2))
    return tuple(sorted({0, extent - 1, *inner}))


def spread(values: Sequence[float]) -> float:
    """Half the distance of the quartiles over the median: how far to trust a median."""
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / (2 * middle) if middle else 0.0
