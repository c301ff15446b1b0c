"""Faults of the compiler that a simulated execution catches."""


class SimulationFault(Exception):
    """The simulated program broke a promise of its IR: an access out of memory, a misaligned vector, an index beyond 32 bits.

    It is the compiler's fault, never the user's.
    """
