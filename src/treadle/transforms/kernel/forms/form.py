"""What every kernel form is made of: a configuration, choices with modelled times, and the protocol of its module."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Literal, Protocol, Self, overload

from treadle.analysis.kernel_problem import KernelProblem
from treadle.analysis.loop_nest import LoopNest
from treadle.dialects.kernel_form import KernelForm, KernelFormAttr
from treadle.errors import SCHEDULE_FORM, SourceLocation, TreadleError
from treadle.plan.expr import Expr
from treadle.records import dataclass
from treadle.transforms.kernel.tiling.builder import KernelBuilder

Kind = Literal["contraction", "rows", "attention", "reduction", "elementwise"]
Grid = tuple[Expr, Expr, Expr]


def tile_extents(axes: Sequence[int], tile: Sequence[int], rank: int) -> list[int]:
    """The extents of a contraction's tile along each of `rank` axes, of which `axes` are m and n (negative: there is none)."""
    found = [1] * rank
    for axis, extent in zip(axes[:2], tile, strict=False):
        if axis >= 0:
            found[axis] = extent
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class FormConfig:
    """How one kernel is computed: frozen plain values (integers, flags, words, lists of integers), each with a default, so that kernels
    written by hand name what matters to them.
    """

    form: ClassVar[str]

    @property
    def num_warps(self) -> int:
        """Warps of the workgroup, of each group of warps where there are several."""
        raise NotImplementedError

    @property
    def groups(self) -> int:
        """Groups of warps that each execute the whole body, until roles are formed."""
        return 1

    @property
    def cluster_size(self) -> int:
        """Workgroups of a cluster as the kernel is built; form-roles may make clusters later."""
        return 1

    @property
    def line_elements(self) -> int:
        """Elements of the aligned lines that tiles along a row begin with, wherever the row does; 0 where tiles begin where rows do."""
        return 0

    @property
    def crosses_ends(self) -> bool:
        """Whether accesses may be wide where rows begin and end anywhere, in groups that lie across ends or are shifted into place."""
        return False

    @property
    def rows_together(self) -> int:
        """Rows of tiles that are walked together."""
        return 1

    def extents(self, rank: int) -> list[int]:
        """Elements that a workgroup takes along each of `rank` axes of the nest, reduced ones apart."""
        raise NotImplementedError

    def nest_of(self, nest: LoopNest) -> LoopNest:
        """The loop nest that the configuration speaks of."""
        return nest

    def relieved(self, problem: KernelProblem) -> Self:
        """The same with fewer registers needed, for where tools reject the code; itself where there is no such thing."""
        return self

    def attribute(self) -> KernelFormAttr:
        """The configuration as it stands on a kernel."""
        changed = [(field.name, getattr(self, field.name)) for field in fields(self) if getattr(self, field.name) != field.default]
        return KernelFormAttr(KernelForm(self.form, tuple(changed)))

    @classmethod
    def of(cls, form: KernelForm, location: SourceLocation | None = None) -> Self:
        """The inverse of `attribute`. Raises TreadleError TR416 for an entry that the form does not have."""
        known = {field.name: field.default for field in fields(cls)}
        for name, value in form.entries:
            if name not in known or type(value) is not type(known[name]):
                reason = f"the form '{form.name}' has no '{name}' of this kind"
                raise TreadleError(SCHEDULE_FORM, location, op="tile.kernel", reason=reason, fix=f"it has {', '.join(known)}")
        return cls(**dict[str, Any](form.entries))


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to compute a kernel: its configuration, modelled time, and the words for it.

    `accumulators`: what a warp holds of them, 0 where registers do not limit the form; it orders what is tried after a rejection.
    `is_light`: it needs fewer registers than the choice before it whatever `accumulators` says.
    """

    config: FormConfig
    seconds: float
    text: str
    accumulators: float = 0
    is_light: bool = False


class Choices(Sequence[Choice]):
    """Choices that are made when they are asked for: those behind the first are for where tools reject it, which they hardly ever do."""

    def __init__(self, left: Iterator[Choice]) -> None:
        self._left, self._made = left, list[Choice]()

    def _make(self, count: int | None) -> list[Choice]:
        """So many of them, or all."""
        while count is None or len(self._made) < count:
            if (choice := next(self._left, None)) is None:
                break
            self._made.append(choice)
        return self._made

    @overload
    def __getitem__(self, index: int) -> Choice: ...

    @overload
    def __getitem__(self, index: slice) -> list[Choice]: ...

    def __getitem__(self, index: int | slice) -> Choice | list[Choice]:
        return self._make(index + 1 if isinstance(index, int) and index >= 0 else None)[index]

    def __len__(self) -> int:
        return len(self._make(None))

    def __bool__(self) -> bool:
        return bool(self._make(1))


class Form(Protocol):
    """The module of a form. Each is a file of this folder and a line of `registry.py`."""

    @property
    def NAME(self) -> str:
        """As in `#tile.form` and in overrides."""
        ...

    @property
    def KIND(self) -> Kind:
        """Of the loop nests it is for."""
        ...

    @property
    def Config(self) -> type[Any]:
        """Its subclass of `FormConfig`."""
        ...

    def refusal(self, problem: KernelProblem) -> str | None:
        """Why a kernel cannot be computed in this form, None where it can."""
        ...

    def decide(self, problem: KernelProblem) -> Sequence[Choice]:
        """The choices for a kernel that `refusal` lets pass, the best first; those behind it are for where tools reject it, and cost no
        time until then where there is much to it (see `Choices`). May be empty.
        """
        ...

    def build(self, kernel: KernelBuilder, config: Any) -> Grid:
        """Emit the kernel as the configuration asks; returns its grid."""
        ...
