"""What tuning tries of attention: tiles of scores and the stages of the rings of keys and values."""

from dataclasses import dataclass, replace

from treadle.analysis.kernel_problem import KernelProblem
from treadle.machine import TargetSpec
from treadle.options import CompileOptions
from treadle.plan.attention_tiles import AttentionSizes, tunable_tiles
from treadle.transforms.kernel.forms import attention


@dataclass(frozen=True, slots=True)
class AttentionProblem:
    """Attention to tune: its sizes, and what is multiplied."""

    kernel: str
    sizes: AttentionSizes
    operand: str

    @property
    def work(self) -> int:
        """Multiply-adds, unknown sizes counted as the models count them."""
        batch, rows, keys = self.sizes.known
        return batch * rows * keys * (self.sizes.width + self.sizes.columns)


def attention_problem(asked: KernelProblem) -> AttentionProblem | None:
    """The problem of a kernel of attention that has a form of its own, None for others."""
    found = asked.nest.attention
    if found is None or attention.refusal(asked) is not None:
        return None
    return AttentionProblem(asked.nest.kernel.sym_name.data, attention.sizes_of(asked), attention.operand_type(found))


def attention_options(problem: AttentionProblem, spec: TargetSpec, base: CompileOptions) -> list[CompileOptions]:
    """The tiles that fit, as options, the best by the model first. Those with more stages come first among equals."""
    found = tunable_tiles(problem.sizes, problem.operand, spec)
    return [replace(base, tile=(t.rows, t.keys, t.width), num_stages=t.num_stages) for t in found]
