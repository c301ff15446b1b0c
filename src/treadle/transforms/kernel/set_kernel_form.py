"""set-kernel-form: in which form each kernel is computed, and how it is tiled in detail.

Level: dispatch. Reads: the kernel's loop nest, its `candidate` (see set-candidate), the TargetSpec, the options. Writes: the attribute
`config` (`#tile.form`) on `dispatch.kernel`. Leaves alone: kernels that have it already.

Every form of `forms/registry.py` that is for such a nest is asked; the one of least modelled time is taken. Remarks tell what was taken,
and of the others their time or why they refuse. What follows the best is tried, in order, where the machine's tools reject its code.
"""

from collections.abc import Iterator, Sequence

from treadle import machine, remarks
from treadle.analysis.kernel_problem import NO_OVERRIDES, KernelProblem
from treadle.analysis.loop_nest import loop_nest
from treadle.dialects import dispatch
from treadle.ir.dialects import builtin
from treadle.ir.locations import location_of
from treadle.ir.passes import Context, Pass, register_pass
from treadle.options import ContractionOverrides
from treadle.records import dataclass, replace
from treadle.transforms.kernel.forms.form import Choice, Form
from treadle.transforms.kernel.forms.registry import FORMS

NAME = "set-kernel-form"


def asked_form(overrides: ContractionOverrides) -> str:
    """The form that the overrides name or imply, "" for none."""
    if overrides.form != "auto":
        return overrides.form
    return "" if not overrides.tile else "roles" if overrides.num_stages else "tiles"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a form says about a kernel: its choices, or why it has none."""

    form: Form
    choices: Sequence[Choice]
    refusal: str

    @property
    def text(self) -> str:
        """For remarks, where another form was taken."""
        return f"{self.form.NAME}: " + (self.refusal or f"{self.choices[0].seconds * 1e6:.1f} us modelled")


def _answer(form: Form, problem: KernelProblem) -> Answer:
    reason = form.refusal(problem)
    choices = form.decide(problem) if reason is None else ()
    return Answer(form, choices, "" if choices else reason or "nothing of it fits the machine")


def answers(problem: KernelProblem) -> list[Answer]:
    """What the forms say, those that can compute the kernel first, the fastest of them ahead. A form that is asked for is the only one
    unless it refuses.
    """
    asked = asked_form(problem.overrides)
    forms = [form for form in FORMS if problem.nest.kind == form.KIND]
    found = [_answer(form, problem) for form in forms if asked == form.NAME]
    if not any(answer.choices for answer in found):
        found += [_answer(form, problem) for form in forms if asked != form.NAME]
    return sorted(found, key=lambda answer: answer.choices[0].seconds if answer.choices else float("inf"))


def candidates(problem: KernelProblem, found: Sequence[Answer]) -> list[Choice]:
    """All choices in the order in which they are tried: form by form, each with at most half of the accumulators of the one before or known
    to need fewer registers. Behind the first tile iterations do not overlap; where loops are pipelined, behind all that have a quarter of
    the first one's accumulators, and the second in any case, for a large tile that overlaps nothing leaves units idle.
    """
    chain = list(_lighter([choice for answer in found for choice in answer.choices]))
    first = next((number for number, choice in enumerate(chain) if choice.accumulators), len(chain))
    large = sum(choice.accumulators >= chain[first].accumulators / 4 for choice in chain[first:])
    count = max(2, large) if problem.overlaps else 1
    eased = [replace(choice, config=choice.config.relieved(problem)) for choice in chain[first:]]
    kept = eased[max(1, count - 1) :] or eased[-1:]
    overlapping = chain[: first + count]
    return list({choice.config: choice for choice in (*overlapping, *kept)}.values())


def _lighter(choices: Sequence[Choice]) -> Iterator[Choice]:
    limit = float("inf")
    for choice in choices:
        if choice.accumulators <= limit or choice.is_light:
            yield choice
            limit = choice.accumulators / 2 if choice.accumulators else limit


@register_pass
@dataclass(frozen=True)
class SetKernelFormPass(Pass):
    """`target` names the machine; `f32_precision`, `fp8_accumulation` decide about types, `overrides` about contractions (see
    `CompileOptions` for all of them). `is_pipelined`: set-pipeline will decide about loops; not `is_asked`:
    about loops of multiply-adds in any case.
    """

    name = NAME
    target: str
    f32_precision: str = "ieee"
    fp8_accumulation: str = "fast"
    overrides: ContractionOverrides = NO_OVERRIDES
    is_pipelined: bool = False
    is_asked: bool = True

    def apply(self, ctx: Context, module: builtin.ModuleOp) -> None:
        spec = machine.target_spec(self.target)
        for op in module.body.block.ops:
            if isinstance(op, dispatch.KernelOp) and "config" not in op.attributes:
                numerics = (self.f32_precision, self.fp8_accumulation)
                self._decide(op, KernelProblem(loop_nest(op), spec, self.overrides, *numerics, self.is_pipelined, is_asked=self.is_asked))

    def _decide(self, kernel: dispatch.KernelOp, problem: KernelProblem) -> None:
        found = answers(problem)
        asked = kernel.attributes.get(dispatch.CANDIDATE)
        # Times that nobody measured are infinite, like those of forms that refuse.
        chosen = next(answer.choices[0] for answer in found if answer.choices)
        if isinstance(asked, builtin.IntegerAttr):
            choices = candidates(problem, found)
            chosen = choices[min(asked.value.data, len(choices) - 1)]
        kernel.attributes["config"] = chosen.config.attribute()
        subject, place = kernel.sym_name.data, location_of(problem.nest.root.op)
        others = [answer.text for answer in found if chosen.config.form != answer.form.NAME]
        if others:
            remarks.emit("refusal", self.name, subject, f"other forms: {'; '.join(others)}", place)
        remarks.emit("decision", self.name, subject, f"{chosen.text}; {chosen.seconds * 1e6:.1f} us modelled", place, chosen.seconds)
