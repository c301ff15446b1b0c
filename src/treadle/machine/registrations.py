"""What is known in this process beside the compiler's own rows, as text for cache keys. Light: every start reads it."""

from treadle.knobs import RATES

_registered: dict[str, str] = {}


def note(what: str, facts: str) -> None:
    """Remember facts that programs for the target `what` (an architecture, or one with a product) may depend on."""
    _registered[what] = facts


def is_extended() -> bool:
    """Whether this process knows what a new process would not."""
    return bool(_registered)


def registered_facts(target: str) -> str:
    """What a cache key must hold about a target beside its name; "" for rows of the compiler, whose files the key covers."""
    architecture = target.partition(":")[0]
    found = [_registered.get(name, "") for name in dict.fromkeys((architecture, target))]
    if RATES.get() is not None:
        from treadle.machine.stored_rates import stored_text

        found.append(stored_text())
    return "\n".join(found)
