"""All executions of an access to a global array as one set of integer points, which pairs of accesses are compared by."""

from typing import TYPE_CHECKING

from treadle.records import dataclass
from treadle.verify.affine import Forms
from treadle.verify.formulas import Formula, both, symbols_in
from treadle.verify.global_accesses import GlobalAccess

if TYPE_CHECKING:
    from treadle.verify.integer_sets import Set

CLUSTER = "cluster"
"""The coordinate of executions that says which cluster the workgroup is of."""
COUNTER = "counter"
"""With a number behind it: coordinates that say at which counter the workgroup arrives."""


@dataclass(frozen=True, slots=True)
class Executions:
    """All executions of an access as points. First come `places` coordinates of where it is; `at`: where symbols are.

    `injections`: by number, where its known values are, where what they say is, and its family.
    """

    set: "Set"
    places: int
    at: dict[str, int]
    injections: dict[int, tuple[list[int], list[int], str]]


def executions_of(forms: Forms, access: GlobalAccess, *, with_warps: bool, counters: tuple[Formula, ...] = ()) -> Executions:
    """The executions of an access; `with_warps`: and which warp of the team touches each element; `counters`: and where the workgroup
    arrives.
    """
    from treadle.verify.integer_sets import integer_set

    where = () if access.addresses is None else access.addresses.places
    formulas = [f"p{at} = {place}" for at, place in enumerate(where)] + list(access.domain)
    names = set(access.names)
    if with_warps:
        formulas += access.warp_domain
        names |= forms.closed({access.warp, *(name for formula in access.warp_domain for name in symbols_in(formula))})
    names |= forms.closed({name for formula in counters for name in symbols_in(formula)})
    injections = [(at, known) for at, known in enumerate(forms.injections) if known.symbols <= names]
    for _, known in injections:
        names |= forms.closed({name for formula in known.then for name in symbols_in(formula)})
    for name in names:
        formulas += forms.symbols[name].facts
    dimensions = [f"p{at}" for at in range(len(where))]
    varying = sorted(name for name in names if forms.symbols[name].depends)
    at = {name: len(dimensions) + number for number, name in enumerate(varying)}
    dimensions += varying
    if forms.kernel.cluster_size() > 1 and not forms.ids[0].is_constant:
        at[CLUSTER] = len(dimensions)
        dimensions.append(CLUSTER)
        formulas.append(f"{CLUSTER} = floor({{{forms.ids[0]}}}/{forms.kernel.cluster_size()})")
    for number, formula in enumerate(counters):
        at[f"{COUNTER}{number}"] = len(dimensions)
        dimensions.append(f"{COUNTER}{number}")
        formulas.append(f"{COUNTER}{number} = {formula}")
    found: dict[int, tuple[list[int], list[int], str]] = {}
    for number, known in injections:
        then = [f"t{number}_{which}" for which in range(len(known.then))]
        formulas += [f"{name} = {formula}" for name, formula in zip(then, known.then, strict=True)]
        places = [len(dimensions) + which for which in range(len(then))]
        found[number] = ([at[formula[1:-1]] for formula in known.when], places, known.family)
        dimensions += then
    parameters = ", ".join(sorted(names.difference(varying)))
    body = both(formulas).format_map({name: name for name in names})
    return Executions(integer_set(f"[{parameters}] -> {{ [{', '.join(dimensions)}] : {body} }}"), len(where), at, found)
