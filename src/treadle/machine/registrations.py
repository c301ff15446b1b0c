"""What is known in this process beside the compiler's own rows, as text for cache keys. Light: every start reads it."""

from treadle.machine.stored_rates import stored_text

_registered: dict[str, str] = {}


def note(what: str, facts: str) -> None:
    """Remember facts that programs for the target `what` (an architecture, or one with a product) may depend on."""
    _registered[what] = facts


def registered_facts(target: str) -> str:
    """What a cache key must hold about a target beside its name; "" for rows of the compiler, whose files the key covers."""
    architecture = target.partition(":")[0]
    return "\n".join([*(_registered.get(name, "") for name in dict.fromkeys((architecture, target))), stored_text()])
