"""Vector clocks: what an agent knows to have happened.

A clock maps components to times. Components are an agent's program order, the groups of each of its queues, its fences, and the phases of
a transaction barrier. Whatever orders agents joins their clocks. (Mattern, "Virtual Time and Global States of Distributed Systems", 1989.)
"""

from collections.abc import Mapping

Component = tuple[str, int]
"""What is counted, and whose it is: `("order", agent)`, `(name of a queue, agent)`, `("fence", agent)` (for global arrays
`"global fence"`), `("mbarrier", barrier)`."""
Clock = dict[Component, int]
NEVER = 1 << 62
"""The time of what has not happened yet."""


def join(clock: Clock, other: Mapping[Component, int]) -> None:
    """Add to `clock` what `other` knows."""
    for component, time in other.items():
        if clock.get(component, 0) < time:
            clock[component] = time
