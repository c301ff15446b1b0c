"""Whether a region that could be taken is: what its program costs against what it replaces, by the model or measured.

Measured once for each program: the answer is kept in the tuned store, for the product that it was measured on.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final

from treadle import machine
from treadle.machine.spec import TargetSpec
from treadle.records import Record
from treadle.torch import measuring
from treadle.torch.library import LEAST_BEHIND_US, Replaced, replaced

if TYPE_CHECKING:
    from treadle.driver import Program
    from treadle.torch.programs import Recipe
    from treadle.torch.regions import Region
    from treadle.torch.settings import Settings

SIMULATED: Final = "sm_90a"
"""The machine that the simulator runs programs of."""
SURELY_FASTER: Final = 0.5
SURELY_SLOWER: Final = 1.4
"""What is modelled at such a multiple of the time of what it replaces, or beyond, needs no measurement. Both models are within 10 to 18 %
of what is measured (root mean square), but ours leaves out what elementwise operators compute: a GELU took twice the modelled time.
"""
SMALL_US: Final = 20.0
"""What is modelled so much slower, or less, is measured whatever the multiple: of short kernels the models know little but their order.
f32 of 88 x 224 x 224 was modelled at 17 us beside 11, and took 9 beside 13.
"""
MARGIN: Final = 1.005
"""A program may be measured so much slower than what it replaces: it costs the host less."""
LONG_US: Final = 50.0
GAIN_OF_LONG: Final = 0.99
"""What is replaced and takes longer hides what it costs the host: a program must be so much faster, for beside other kernels clocks and
caches are others than where it is measured. Of six f32 products of 0.4 ms in a block one was taken, 0.4 % ahead; the block took 2 % longer.
"""


class Verdict(Record):
    """`reason`: why what is replaced stays, "" where the program is taken. Times in microseconds, None where they are not known;
    `measured_us`: the program's, and that of what it replaces.
    """

    reason: str = ""
    modelled_us: float | None = None
    replaced_us: float | None = None
    measured_us: tuple[float, float] | None = None


def modelled_us(program: "Program") -> float | None:
    """The modelled times of all launches together; None where one is not known."""
    known = {remark.subject: remark.seconds for remark in program.remarks if remark.seconds is not None}
    launches = Counter(launch.kernel for launch in program.manifest.launches)
    if not launches or not launches.keys() <= known.keys():
        return None
    return 1e6 * sum(count * known[kernel] for kernel, count in launches.items())


def verdict(region: "Region", program: "Program", recipe: "Recipe", settings: "Settings") -> Verdict:
    """What the settings' choice says about a region and its program. Sizes that are symbols are not modelled: the program is taken."""
    stands_for = replaced(region)
    ours, theirs = modelled_us(program), _us(stands_for, program.target)
    if settings.chosen == "all":
        return Verdict("", ours, theirs)
    if (measured := _measured(region, program, recipe, settings, (ours, theirs), stands_for)) is not None:
        slower = measured[0] > (MARGIN if measured[1] < LONG_US else GAIN_OF_LONG) * measured[1]
        reason = f"{measured[0]:.1f} us measured, {measured[1]:.1f} us what it replaces" if slower else ""
        return Verdict(reason, ours, theirs, measured)
    if ours is None or theirs is None or ours <= theirs:
        return Verdict("", ours, theirs)
    count = len(program.manifest.launches)
    return Verdict(f"{ours:.1f} us are modelled for its {count} launch(es), {theirs:.1f} us for what it replaces", ours, theirs)


def _measured(
    region: "Region",
    program: "Program",
    recipe: "Recipe",
    settings: "Settings",
    modelled: tuple[float | None, float | None],
    stands_for: Replaced | None,
) -> tuple[float, float] | None:
    """Microseconds of the program and of what it replaces; None where nothing is measured. With "auto" the product is, where the models are
    not sure, and what follows it is modelled; as it is with "measured" where it would be in a kernel that runs in any case.
    """
    ours, theirs = modelled
    if settings.chosen == "measured":
        if stands_for is None or not stands_for.runs_anyway:
            return measuring.times(region, program, recipe.digest, settings)
        found = measuring.times(region, program, recipe.digest, settings, "product")
        return None if found is None else (found[0], found[1] + 1e6 * stands_for.following_seconds(_spec(program.target)))
    if settings.chosen != "auto" or ours is None or theirs is None or stands_for is None:
        return None
    if ours <= SURELY_FASTER * theirs or ours >= max(SURELY_SLOWER * theirs, theirs + SMALL_US):
        return None
    found = measuring.times(region, program, recipe.digest, settings, "library")
    if found is None:
        return None
    return found[0], found[1] + 1e6 * stands_for.following_seconds(_spec(program.target), behind_us=LEAST_BEHIND_US)


def _us(stands_for: Replaced | None, target: str) -> float | None:
    return None if stands_for is None else 1e6 * stands_for.seconds(_spec(target))


def _spec(target: str) -> TargetSpec:
    return machine.target_spec(SIMULATED if target == "sim" else target)
