"""The ordered passes, one function a level, a reason beside every pass, and `lower`, which runs them on a module."""

from collections.abc import Callable, Mapping

from treadle import knobs
from treadle.frontends.levels import LEVELS, Level
from treadle.ir.context import default_context
from treadle.ir.core import Operation
from treadle.ir.dialects import builtin
from treadle.ir.passes import Context, ModulePass, run_passes
from treadle.ir.simplify import CsePass, DcePass
from treadle.machine import TargetSpec, target_name
from treadle.options import CompileOptions
from treadle.records import dataclass
from treadle.transforms.kernel.allocate_shared import AllocateSharedPass
from treadle.transforms.kernel.assign_layouts import AssignLayoutsPass
from treadle.transforms.kernel.convert_dispatch_to_tile import ConvertDispatchToTilePass
from treadle.transforms.kernel.divide_groups import DivideGroupsPass
from treadle.transforms.kernel.enclose_stages import EncloseStagesPass
from treadle.transforms.kernel.fold_rings import FoldRingsPass
from treadle.transforms.kernel.fold_turns import FoldTurnsPass
from treadle.transforms.kernel.form_roles import FormRolesPass
from treadle.transforms.kernel.form_warp_pipeline import FormWarpPipelinePass
from treadle.transforms.kernel.hoist_guarded_loops import HoistGuardedLoopsPass
from treadle.transforms.kernel.hoist_loads import HoistLoadsPass
from treadle.transforms.kernel.insert_sched_fences import InsertSchedFencesPass
from treadle.transforms.kernel.insert_sync import InsertSyncPass
from treadle.transforms.kernel.load_ahead import LoadAheadPass
from treadle.transforms.kernel.load_in_bulk import LoadInBulkPass
from treadle.transforms.kernel.lower_arrivals import LowerArrivalsPass
from treadle.transforms.kernel.lower_layout_conversions import LowerLayoutConversionsPass
from treadle.transforms.kernel.lower_reductions import LowerReductionsPass
from treadle.transforms.kernel.merge_parts import MergePartsPass
from treadle.transforms.kernel.order_issue import OrderIssuePass
from treadle.transforms.kernel.overlap_launches import OverlapLaunchesPass
from treadle.transforms.kernel.pipeline_loops import PipelineLoopsPass
from treadle.transforms.kernel.set_access_widths import SetAccessWidthsPass
from treadle.transforms.kernel.set_candidate import SetCandidatePass
from treadle.transforms.kernel.set_index_width import SetIndexWidthPass
from treadle.transforms.kernel.set_instruction import SetInstructionPass
from treadle.transforms.kernel.set_kernel_form import SetKernelFormPass
from treadle.transforms.kernel.set_operand_staging import SetOperandStagingPass
from treadle.transforms.kernel.set_pipeline import SetPipelinePass
from treadle.transforms.kernel.set_precision import SetPrecisionPass
from treadle.transforms.kernel.set_roles import SetRolesPass
from treadle.transforms.kernel.set_size_bounds import SetSizeBoundsPass
from treadle.transforms.kernel.set_stages import SetStagesPass
from treadle.transforms.kernel.set_target import SetTargetPass
from treadle.transforms.kernel.set_turns import SetTurnsPass
from treadle.transforms.kernel.simplify_math import SimplifyMathPass
from treadle.transforms.kernel.spread_copies import SpreadCopiesPass
from treadle.transforms.kernel.stage_operands import StageOperandsPass
from treadle.transforms.kernel.store_in_bulk import StoreInBulkPass
from treadle.transforms.tensor.bound_slice_reads import BoundSliceReadsPass
from treadle.transforms.tensor.box_scalars import BoxScalarsPass
from treadle.transforms.tensor.convert_conditionals import ConvertConditionalsPass
from treadle.transforms.tensor.decompose_softmax import DecomposeSoftmaxPass
from treadle.transforms.tensor.decompose_tensor_ops import DecomposeTensorOpsPass
from treadle.transforms.tensor.expand_f32_precision import ExpandF32PrecisionPass
from treadle.transforms.tensor.expand_scalars import ExpandScalarsPass
from treadle.transforms.tensor.fold_data_movement import FoldDataMovementPass
from treadle.transforms.tensor.form_dispatches import FormDispatchesPass
from treadle.transforms.tensor.form_online_softmax import FormOnlineSoftmaxPass
from treadle.transforms.tensor.generalize_named_ops import GeneralizeNamedOpsPass
from treadle.transforms.tensor.inline_calls import InlineCallsPass
from treadle.transforms.tensor.inline_foralls import InlineForallsPass
from treadle.transforms.tensor.normalize_generics import NormalizeGenericsPass
from treadle.transforms.tensor.outline_dispatches import OutlineDispatchesPass
from treadle.transforms.tensor.pad_channels import PadChannelsPass
from treadle.transforms.tensor.pad_rows import PadRowsPass
from treadle.transforms.tensor.resolve_tensor_dims import ResolveTensorDimsPass
from treadle.transforms.tensor.set_attention import SetAttentionPass
from treadle.transforms.tensor.set_channel_padding import SetChannelPaddingPass
from treadle.transforms.tensor.set_dispatch_groups import SetDispatchGroupsPass
from treadle.transforms.tensor.set_f32_split import SetF32SplitPass
from treadle.transforms.tensor.set_row_padding import SetRowPaddingPass
from treadle.transforms.tensor.set_split_reduction import SetSplitReductionPass
from treadle.transforms.tensor.set_turned_operands import SetTurnedOperandsPass
from treadle.transforms.tensor.split_divided_loops import SplitDividedLoopsPass
from treadle.transforms.tensor.split_reduction import SplitReductionPass
from treadle.transforms.tensor.tabulate_indices import TabulateIndicesPass
from treadle.transforms.tensor.turn_operands import TurnOperandsPass
from treadle.transforms.tensor.unroll_loops import UnrollLoopsPass

Observer = Callable[[str, Operation], None]


@dataclass(frozen=True, slots=True)
class Door:
    """Where a program enters the pipeline. `retarget`: its kernels are to run on the target, so they must be written for it or for any."""

    level: Level
    retarget: bool = True

    @property
    def is_by_hand(self) -> bool:
        """Whether a user wrote its tile kernels."""
        return self.level in ("tile", "schedule")

    def passes(self, spec: TargetSpec) -> tuple[ModulePass, ...]:
        """What makes a program that a user wrote at this level what the passes before would have left."""
        match self.level:
            case "tensor":
                return ()
            case "tile":
                return kernel_passes(spec, retarget=self.retarget)
            case _:
                return (SetTargetPass(target_name(spec), self.retarget),)


TENSOR = Door("tensor")


def expansions(spec: TargetSpec, options: CompileOptions) -> tuple[ModulePass, ...]:
    """Rewrites of computations that the options or the operations ask for and the machine decides on."""
    splits = SetF32SplitPass(target_name(spec), options.f32_precision), ExpandF32PrecisionPass()
    return (*splits, SetChannelPaddingPass(target_name(spec)), PadChannelsPass())


def row_padding(spec: TargetSpec, options: CompileOptions) -> tuple[ModulePass, ...]:
    """Copies of operands that descriptors reach, where forms may be taken that have such copies."""
    splits = options.split_reduction == "auto" and options.reassociate
    by_threads = not options.roles or options.form in ("tiles", "streaming")
    asked = "off" if by_threads and options.row_padding == "auto" else options.row_padding
    return (SetRowPaddingPass(target_name(spec), asked, options.f32_precision, splits), PadRowsPass())


def turned_operands(spec: TargetSpec, options: CompileOptions) -> tuple[ModulePass, ...]:
    """Copies of operands that the vector units had better read the other way, where forms may be taken whose threads copy them."""
    by_others = options.form not in ("auto", "tiles") or options.pipeline_stages == 1
    asked = "off" if by_others and options.turned_operands == "auto" else options.turned_operands
    splits = options.split_reduction == "auto" and options.reassociate
    return (SetTurnedOperandsPass(target_name(spec), asked, options.f32_precision, splits), TurnOperandsPass())


def split_choices(spec: TargetSpec, options: CompileOptions) -> tuple[ModulePass, ...]:
    """Which reductions are split into parts for the machine."""
    choices = (options.split_reduction, options.reassociate, options.f32_precision)
    return (SetSplitReductionPass(target_name(spec), *choices),)


def tensor_passes(spec: TargetSpec | None = None, options: CompileOptions | None = None) -> tuple[ModulePass, ...]:
    """Tensor level to dispatch level: a function becomes kernels on tensors and a host program.

    What depends on the machine or the options is left out where they are not given.
    """
    expansion = () if spec is None or options is None else expansions(spec, options)
    precision = "ieee" if options is None else options.f32_precision
    groups = SetDispatchGroupsPass(None if spec is None else target_name(spec), precision)
    asked = "auto" if options is None else options.attention
    attention = () if spec is None else (SetAttentionPass(target_name(spec), asked),)
    online = () if spec is None else (FormOnlineSoftmaxPass(target_name(spec)),)
    splits = () if spec is None or options is None else split_choices(spec, options)
    padding = () if spec is None or options is None else (*row_padding(spec, options), *turned_operands(spec, options))
    return (
        InlineCallsPass(),  # one function, so that nothing after it has to look through calls
        UnrollLoopsPass(),  # before branches, which may hold loops and take one side for good in some iteration
        InlineForallsPass(),  # before scalars and branches, which the bodies may hold; each block's own from here on
        TabulateIndicesPass(),  # one operation, and not one for each group of a list, is what all others follow
        BoundSliceReadsPass(),  # where blocks are known as such, and slices are as the user wrote them
        BoxScalarsPass(),  # every argument is an array, and every scalar is computed from arrays and sizes
        ConvertConditionalsPass(),  # straight code from here on; its selections are generalised with the other arithmetic
        DecomposeSoftmaxPass(),  # the one named operation that is no single loop nest
        GeneralizeNamedOpsPass(),  # from here on every computation is a generic or a fill
        SplitDividedLoopsPass(),  # before what is read at quotients is gathered; reshapes between generics are no one's matter yet
        ExpandScalarsPass(),  # all operands are scalars now; nothing below knows these operations
        DecomposeTensorOpsPass(),  # pad, concat and splat become fills and insertions, which kernels and the host know
        NormalizeGenericsPass(),  # one form of loops, scalars and outputs, so that nothing after it has to ask
        ResolveTensorDimsPass(),  # sizes must not look like dependences on the tensors they are read off
        FoldDataMovementPass(),  # transposes, broadcasts and widenings cost nothing inside the kernel that reads them
        # operands may be anything now that movement is folded; before dispatches, whose kernels split and multiply apart
        *expansion,
        *attention,  # before what would make other operations of its softmax
        *online,  # before splits, which leave alone what is one reduction now
        *padding,  # what is one attention reads its operands as they are; splits depend on how rows and operands lie
        *splits,  # what is computed is final, so that what is split is what will be computed
        SplitReductionPass(),  # does what was chosen, by a loop over blocks like a user's
        InlineForallsPass(),  # those of the parts
        ResolveTensorDimsPass(),  # and their sizes, which would look like dependences
        groups,  # what belongs into one kernel, while producers and consumers are still visible
        FormDispatchesPass(),  # does what the groups say
        OutlineDispatchesPass(),  # kernels by themselves; sizes, grids and buffers as expressions
    )


def tile_passes(spec: TargetSpec, options: CompileOptions, candidates: Mapping[str, int] | None = None) -> tuple[ModulePass, ...]:
    """Dispatch level to tile level: each kernel becomes one workgroup's program. `candidates`: of kernels that do not take their best."""
    target, numerics = target_name(spec), (options.f32_precision, options.fp8_accumulation)
    form = SetKernelFormPass(
        target, *numerics, options.overrides, is_pipelined=overlaps(options, spec), is_asked=options.pipeline_stages >= 0
    )
    # before anything looks at sizes: what may be large has no descriptor copies
    any_size = (SetSizeBoundsPass(),) if options.index_bits == 64 else ()
    return (
        *any_size,
        MergePartsPass(),  # one kernel of two, before anything is decided about either
        *(SetCandidatePass(kernel, number) for kernel, number in (candidates or {}).items()),  # what tools have rejected is not tried again
        form,  # all choices in one place, before anything is rewritten
        SetIndexWidthPass(),  # the extents of tiles are known, and no index is written yet
        ConvertDispatchToTilePass(target=target),  # does what was chosen; sequential and obviously right
        CsePass(),  # index arithmetic is emitted where it is needed, not once
        DcePass(),  # views and offsets that nothing reads
        SetPrecisionPass(),  # while every value's uses are plain operations, not yet buffers
        SimplifyMathPass(),  # before layouts and boxes: each operation is one
        CsePass(),  # rewrites make their constants anew
    )


def kernel_passes(spec: TargetSpec, *, retarget: bool = True) -> tuple[ModulePass, ...]:
    """What kernels written at tile level need before the passes behind: what conversion decides where it makes them.

    `retarget` False leaves kernels that name another target alone: nothing of it is executed.
    """
    return (
        SetTargetPass(target_name(spec), retarget),  # everything below asks for the machine
        FoldRingsPass(),  # what its producer brings ahead is no stage's business; while loads stand as they were written
        SetTurnsPass(),  # loops that were freed of their stages, too; while how many warps compute a tile decides nothing yet
        FoldTurnsPass(),  # before anything asks which kernels can have roles
        HoistGuardedLoopsPass(),  # loops that were freed of their stages, too; before anything asks which kernels can have roles
        SetInstructionPass(),  # instructions that are not named, while operands are whole tiles
        SetPrecisionPass(),
        SimplifyMathPass(),
        CsePass(),
    )


def overlaps(options: CompileOptions, spec: TargetSpec) -> bool:
    """Whether all loops of a kernel that contract overlap their iterations: those of some overlap on every machine."""
    return options.pipeline_stages == 0 or (options.pipeline_stages < 0 and spec.pipelines_contractions)


def pipelining_passes(stages: int) -> tuple[ModulePass, ...]:
    """Overlap of a loop's iterations, for `stages` as in `CompileOptions`."""
    if stages == 1:
        return (SetPipelinePass(stages), PipelineLoopsPass())  # what was to have roles
    return (
        HoistLoadsPass(unasked=stages < 0),  # what no step changes is no step's to load ahead
        SetPipelinePass(stages),  # layouts and staging say which copies there are and how large the buffers
        PipelineLoopsPass(),  # still sequential; insert-sync orders what overlaps
        CsePass(),  # stages repeat index arithmetic
        DcePass(),  # counters and kept values that no stage reads
    )


def schedule_passes(options: CompileOptions | None = None, spec: TargetSpec | None = None) -> tuple[ModulePass, ...]:
    """Tile level to schedule level: memory, layouts and synchronisation made explicit, and proven."""
    return (*unproven_schedule_passes(options, spec), *proof_passes(options))


def proof_passes(options: CompileOptions | None = None, door: Door = TENSOR) -> tuple[ModulePass, ...]:
    """What proves the final program, whoever wrote it. It changes nothing, so that tools may run beside it."""
    if options is not None and not options.verify:
        return ()
    from treadle.verify.verify_schedule import VerifySchedulePass  # a compilation imports it while the tools run

    return (VerifySchedulePass(stores=door.is_by_hand, allow_unproven=options is not None and options.allow_unproven),)


def unproven_schedule_passes(options: CompileOptions | None = None, spec: TargetSpec | None = None) -> tuple[ModulePass, ...]:
    """`schedule_passes` without the proof, for who runs `proof_passes` before anything made of the module leaves the compiler.

    `spec`: the machine; without it nothing is pipelined where nobody asks.
    """
    stages = (CompileOptions() if options is None else options).pipeline_stages
    if spec is None and stages < 0:
        stages = 1
    return (
        SetAccessWidthsPass(),  # before staging: the width decides which copies a thread can make
        SetOperandStagingPass(),  # while the operands' loads still stand beside the contraction
        StageOperandsPass(),  # contraction operands where the matrix instruction reads them
        AssignLayoutsPass(),  # who holds which element; needs to know the staging
        LoadInBulkPass(),  # layouts say who reads which element; before conversions take buffers of their own
        LowerReductionsPass(),  # what crosses warps goes through shared buffers, visible to insert-sync
        LowerLayoutConversionsPass(),  # the same for conversions, reductions' own included
        LowerArrivalsPass(),  # the same for the flags of arrivals
        StoreInBulkPass(),  # before roles exist: it sees each store once
        # layouts are final, buffers not yet those of roles
        *((DivideGroupsPass(),) if options is not None and options.issue_turns == "always" else ()),
        SetRolesPass(),  # final layouts and boxes say what fits and what can be deferred
        FormRolesPass(),  # whatever it clones and drops is cleaned up next
        CsePass(),  # layouts make equal constants and loads distinct values; join those that agreed
        DcePass(),  # what only the old forms used
        LoadAheadPass(),  # roles say who waits for what; the ring's own copies are ahead by themselves
        *pipelining_passes(stages),
        AllocateSharedPass(),  # every buffer is known now; what shares bytes is a hazard insert-sync must see
        SetStagesPass(),  # fragments and layouts say what each piece costs
        EncloseStagesPass(),  # from here on all stages cut loops
        FormWarpPipelinePass(),  # bytes of all buffers are known; what its groups cannot share is refused before anything moves
        SpreadCopiesPass(),  # conditions are still those of pipeline-loops; commits and waits come where the copies are then
        OrderIssuePass(),  # what moves ahead of what, while moving needs no care for barriers
        InsertSyncPass(),  # sees every access there will be
        InsertSchedFencesPass(),  # at the barriers that are there now
        # what it adds stands before the whole body
        *(() if options is None or options.overlap_launches == "never" else (OverlapLaunchesPass(options.overlap_launches == "always"),)),
    )


def lower(
    module: builtin.ModuleOp,
    spec: TargetSpec,
    options: CompileOptions,
    observe: Observer | None = None,
    until: str = "schedule",
    *,
    proven: bool = True,
    candidates: Mapping[str, int] | None = None,
    door: Door = TENSOR,
) -> None:
    """Take a module from its own level to the level `until`, in place; `observe` sees the module at every level on the way.

    The module is verified at every level, or after every pass where the knob asks for it. `proven` False leaves `prove` to the caller.
    `candidates`: of kernels that are not computed in the best way, the number of the one behind it.
    Raises `TreadleError` with the user's line for what cannot be compiled.
    """
    often = "each" if knobs.VERIFY_EACH_PASS.get() else "last"
    makers: dict[str, Callable[[], tuple[ModulePass, ...]]] = {
        "tensor": tuple,
        "dispatch": lambda: tensor_passes(spec, options),
        "tile": lambda: tile_passes(spec, options, candidates),
        "schedule": lambda: unproven_schedule_passes(options, spec),
    }
    start, context = LEVELS.index(door.level), default_context()
    for number, level in enumerate(LEVELS[start : LEVELS.index(until) + 1]):
        passes = makers[level]() if number else door.passes(spec)
        run_passes(module, passes, verify=often if options.verify else "none", ctx=context)
        if level == "schedule" and proven:
            prove(module, options, door)
        if observe is not None:
            observe(level, module)


def prove(module: builtin.ModuleOp, options: CompileOptions, door: Door = TENSOR) -> None:
    """Prove a module at schedule level, as `options` ask for; raises `TreadleError` TR411-TR415 for the first fault."""
    run_passes(module, proof_passes(options, door), verify="none", ctx=Context())  # it makes no operations, and needs no dialects for them
