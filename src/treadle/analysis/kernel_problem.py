"""What a kernel form is chosen for: a kernel's loop nest, the machine, what the user asks for, and what follows from them."""

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from math import gcd, prod

from treadle.analysis.axis_traffic import bytes_touched
from treadle.analysis.contraction_axes import is_light, is_plain, main_axis, reads_whole_tile, reduced_size, shared_operand
from treadle.analysis.descriptor_access import OperandCopies, operand_copies, operand_rows, read_shape, result_shape
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.exchanged_nest import exchanged
from treadle.analysis.group_runs import ListedRuns, Runs, runs_along
from treadle.analysis.indexing import Contraction
from treadle.analysis.loop_nest import LoopNest
from treadle.analysis.nest_axes import Access
from treadle.analysis.operation_marks import F32_PARTS, split_in_kernel
from treadle.analysis.small_side import SmallSide, small_side
from treadle.dialects import dispatch
from treadle.errors import InternalError
from treadle.ir.builtin import element_of, type_name
from treadle.ir.dialects import builtin
from treadle.machine.spec import TargetSpec
from treadle.options import ContractionOverrides
from treadle.plan.expr import constant, product
from treadle.plan.expr_tables import shortened
from treadle.plan.f32_split import IN_KERNEL, ROUNDED, SPLITS
from treadle.plan.form_times import Gathered
from treadle.plan.multiply_add_tiles import multiplies_pieces
from treadle.plan.role_tiles import OperandRows, ResultShape, RoleProblem, width_step
from treadle.plan.tile_config import ContractionShape, ContractionTypes, contraction_types, promotes
from treadle.records import dataclass, replace

NO_OVERRIDES = ContractionOverrides()
FOLLOWED = 64
"""Runtime many images of a multiple of so many pixels are whole tiles of rows, whose classes a proof tells apart."""


@dataclass(frozen=True)
class KernelProblem:
    """A kernel that a form is wanted for. The facts about contractions are for nests that are one.

    `f32_precision`, `fp8_accumulation`: as in `CompileOptions`. `is_pipelined`: set-pipeline will decide about the kernel's loops; not
    `is_asked`: nobody has said whether it will.
    `split`: the name in `IN_KERNEL` of the parts of f32 operands that the kernel is to make and multiply; "" for a kernel that multiplies
    them as they are.
    """

    nest: LoopNest
    spec: TargetSpec
    overrides: ContractionOverrides = NO_OVERRIDES
    f32_precision: str = "ieee"
    fp8_accumulation: str = "fast"
    is_pipelined: bool = False
    split: str = ""
    is_asked: bool = True

    @property
    def overlaps(self) -> bool:
        """Whether iterations of the kernel's loop may overlap, where it is that of a contraction."""
        return self.is_pipelined or (not self.is_asked and self.nest.kind == "contraction" and self.multiplies_pieces)

    @property
    def multiplies_pieces(self) -> bool:
        """Whether the vector units multiply what the threads' copies bring as it is."""
        plain = self.kind.image < 0 and not self.kind.scales and not self.split
        return plain and multiplies_pieces(self.types, self.names[:2], self.spec)

    @cached_property
    def kind(self) -> Contraction:
        """The contraction."""
        if not isinstance(self.nest.computation, Contraction):
            raise InternalError("a fact of contractions is asked for")
        return self.nest.computation

    @cached_property
    def names(self) -> tuple[str, str, str]:
        """Element types of A, B and the result."""
        root = self.nest.root
        a, b, result = (type_name(element_of(v.type)) for v in (root.inputs[self.kind.lhs], root.inputs[self.kind.rhs], root.op.results[0]))
        return a, b, result

    def on_product(self, spec: TargetSpec) -> "KernelProblem":
        """The same problem on another product of the architecture, or one with other rates. What is known of the kernel is kept: it follows
        from the architecture, and rates are for models.
        """
        found = copy(self)
        object.__setattr__(found, "spec", spec)
        found.__dict__.pop("exchanged", None)  # a problem with rates of its own
        return found

    @cached_property
    def exchanged(self) -> "KernelProblem":
        """The same problem with A and B exchanged. Descriptor copies that bring both bring them exchanged."""
        found = replace(self, nest=exchanged(self.nest))
        found.__dict__["memory_bytes"] = self.memory_bytes  # of the same arrays
        if self.copies == OperandCopies():
            found.__dict__["copies"] = self.copies
        return found

    @property
    def f32_parts(self) -> str:
        """The type of the parts of f32 operands that are multiplied (see expand-f32-precision); "" for any other contraction."""
        parts = self.nest.root.op.attributes.get(F32_PARTS)
        return parts.data if isinstance(parts, builtin.StringAttr) else ""

    @property
    def split_inside(self) -> str:
        """The name in `IN_KERNEL` of what the kernel may make of its f32 operands itself; "" for none."""
        rounds = self.f32_precision == ROUNDED and not self.f32_parts and self.names[:2] == ("f32", "f32")
        return split_in_kernel(self.nest.root.op) or (ROUNDED if rounds and self.kind.image < 0 and not self.kind.scales else "")

    @cached_property
    def types(self) -> ContractionTypes:
        """What it is computed in where a matrix instruction may be used."""
        if self.split:
            element = IN_KERNEL[self.split].element
            return contraction_types(self.spec, element, element, self.names[2], ("", ""), allow_tf32=False)
        allow_tf32 = "tf32" in (self.f32_parts, self.f32_precision)
        return contraction_types(self.spec, *self.names, (self.kind.lhs_cast, self.kind.rhs_cast), allow_tf32)

    @cached_property
    def is_promoted(self) -> bool:
        """Whether each step along k has accumulators of its own, added to the running ones in f32."""
        wanted = self.f32_parts != "" or self.split in SPLITS or (self.fp8_accumulation == "promoted" and self.types.a.startswith("f8"))
        return bool(self.kind.scales) or promotes(self.spec, self.types.instruction, wanted)

    @cached_property
    def axes(self) -> tuple[int, int, int]:
        """The main axes along m, n and k; -1 where there is none."""
        return (main_axis(self.nest, "m"), main_axis(self.nest, "n"), main_axis(self.nest, "k"))

    @cached_property
    def sizes(self) -> tuple[int | None, int | None, int | None]:
        """Extents of the main axes; None where only the runtime knows."""
        m, n, k = (self.nest.axes[i].bound.as_int() if i >= 0 else 1 for i in self.axes)
        return m, n, k

    @property
    def merges_parts(self) -> bool:
        """Whether the last of several workgroups merges what they have."""
        return dispatch.MERGE in self.nest.kernel.attributes

    @property
    def parts(self) -> int:
        """How many blocks there are, of a reduction's parts; 1 where only the runtime knows."""
        return product([axis.size for axis in self.nest.axes if axis.block]).as_int() or 1

    @property
    def merges_in_turn(self) -> bool:
        """Whether each of them adds its part in its turn."""
        return dispatch.MERGE_IN_TURN in self.nest.kernel.attributes

    def parts_together(self, rows: int) -> int:
        """How many workgroups of a cluster merge their parts of a tile of so many rows; 1 where none are asked to, or they cannot."""
        if dispatch.MERGE_IN_CLUSTER not in self.nest.kernel.attributes or self.types.accumulator not in ("f32", "i32"):
            return 1
        count = self.parts
        return count if count <= self.spec.max_cluster and rows % count == 0 and count & (count - 1) == 0 else 1

    @cached_property
    def may_take_turns(self) -> bool:
        """Whether a workgroup may compute several tiles. Where a part of a reduction begins and ends, the runtime's sizes times the part's
        number tell, and such products are no steps that a proof could follow from one tile to the next. Nor is the number of tiles of
        runtime many images of an odd number of pixels. Where only the runtime knows both the tiles and their steps along k, so many
        combinations differ that a proof takes seconds: that is for those who ask for it. Who merges parts of a tile does so once. Where
        blocks read their sizes, no proof knows how many steps a tile has in a loop over tiles.
        """
        if self.merges_parts or self._has_odd_images or (self.nest.kernel.reads and not self._walks_runs):
            return False
        m, n, k = self.sizes
        blocks, is_open = frozenset(self.nest.kernel.ranges), k is None and (m is None or n is None)
        walked = all(blocks.isdisjoint(axis.size.symbols()) for axis in self.nest.axes if axis.is_reduction)
        return walked and (not is_open or self.overrides.persistent == "always")

    @property
    def _walks_runs(self) -> bool:
        """Whether every tile takes all steps, those of no group too, because tiles in turn are asked for and few belong to no group."""
        return self.overrides.persistent == "always" and any(runs_along(self.nest, axis) is not None for axis in self.axes[:2])

    @property
    def _has_odd_images(self) -> bool:
        if not any(access.image for access in self.nest.accesses):
            return False
        side = "m" if self.kind.image == self.kind.lhs else "n"
        pixels = [axis.size for axis in self.nest.axes if axis.role == side]
        return any(not count.is_constant and count.divisor() < FOLLOWED for count in pixels)

    @property
    def is_fixed(self) -> bool:
        """Whether all sizes are known, the same in every block."""
        return not dispatch.texts(self.nest.kernel.symbols) and all(size.is_constant for size in self.nest.dim_sizes)

    @cached_property
    def shape(self) -> ContractionShape:
        """The sizes as the models of tiles see them: of groups that a table tells, as if all were of one size."""
        nest, (m, n, _) = self.nest, self.sizes
        of_m, of_n = (runs_along(nest, axis) for axis in self.axes[:2])
        groups_m = of_m.sizes if isinstance(of_m, ListedRuns) else ()
        groups_n = of_n.sizes if isinstance(of_n, ListedRuns) and not groups_m else ()
        m = m if m is None or not isinstance(of_m, Runs) else -(-m // of_m.groups)
        n = n if n is None or not isinstance(of_n, Runs) else -(-n // of_n.groups)
        listed = {runs.block for runs in (of_m, of_n) if isinstance(runs, ListedRuns)}
        others = [
            axis.usual for i, axis in enumerate(nest.axes) if not axis.is_reduction and i not in self.axes[:2] and axis.block not in listed
        ]
        batch = None if None in others else prod(size for size in others if size is not None)
        shared = shared_operand(nest, self.kind)
        return ContractionShape(batch, m, n, reduced_size(nest), len(nest.roots), shared, groups_m, groups_n)

    @cached_property
    def copies(self) -> OperandCopies:
        """Which hardware copies bring the operands to where the matrix instruction reads them."""
        types = replace(self.types, a="f32", b="f32") if self.split else self.types
        return operand_copies(self.nest, self.kind, types, self.spec, any_major=self.split != "")

    @property
    def may_keep_cache(self) -> bool:
        """Whether a ring may have fewer stages than fit, for the cache of the threads that copy: nobody asks for a number of them."""
        return any(self.copies.piece_bytes) and not self.overrides.num_stages

    @cached_property
    def gathered(self) -> Gathered | None:
        """What threads load at a time of a convolution's operands; None for all else, where descriptor copies bring both, and where loops
        overlap their loads with arithmetic.
        """
        image, sides = self.kind.image, (self.kind.lhs, self.kind.rhs)
        if image < 0 or self.copies.refusal is None or self.spec.pipelines_contractions:
            return None
        found = [next((a for a in self.nest.accesses if a.input_number == number), None) for number in sides]
        widths = [2 if access is None else self._load_bytes(access) for access in found]
        return Gathered((widths[0], widths[1]), sides.index(image))

    @cached_property
    def loads(self) -> int:
        """How many loads of the operand that is loaded in the narrower pieces stand for one of the widest."""
        read = [access for access in self.nest.accesses if access.input_number in (self.kind.lhs, self.kind.rhs)]
        return self.spec.max_vector_bytes // min([self.spec.max_vector_bytes, *map(self._load_bytes, read)])

    def _load_bytes(self, access: Access) -> int:
        """How many bytes of an array a thread loads at once."""
        size = element_bytes(access.element)
        if access.image is None:
            strides = [self.nest.stride_along(access, axis) for axis in self.nest.axes]
            apart = [stride for stride, axis in zip(strides, self.nest.axes, strict=True) if not axis.block]
            steps = [stride.divisor() for stride in apart if stride not in (constant(0), constant(1))]
            is_contiguous = constant(1) in strides
        else:
            image = access.image
            pairs = zip(image.strides, image.places, strict=True)
            found = (stride * place.coefficients[dim] for stride, place in pairs for dim in place.dims)
            steps = [step for step in found if step > 1]
            is_contiguous = 1 in image.strides
        along = [step & -step for step in steps]
        return size * min([self.spec.max_vector_bytes // size, *along]) if is_contiguous else size

    @property
    def descriptor_refusal(self) -> str | None:
        """Why descriptor copies cannot bring the operands to where the matrix instruction reads them, None where they can."""
        return self.copies.unaligned

    @property
    def is_crowded(self) -> bool:
        """Whether registers hold more than accumulators and an epilogue: runtime sizes cost as many as threads' copies do, for the same
        bounds and addresses; so do further results, held beside the first.
        """
        several = sum(access.is_result for access in self.nest.accesses) > 1
        return self.descriptor_refusal is not None or not self.is_fixed or several

    @cached_property
    def role_problem(self) -> RoleProblem:
        """What tiles of role kernels are chosen for, where hardware copies bring the operands."""
        nest, spec, shape = self.nest, self.spec, self.shape
        row, operand_bytes = spec.instruction(self.types.instruction), self.types.operand_bytes
        results = self.results + tuple(read_shape(nest, a, spec) for a in nest.accesses if reads_whole_tile(nest, a))
        n_axis = nest.axes[main_axis(nest, "n")]
        along_n = any(nest.stride_along(a, n_axis) == constant(1) for a in nest.accesses if a.input_number == self.kind.rhs)
        n_step = width_step(OperandRows(not along_n), shape.k, row, operand_bytes, spec)
        # Bounds and addresses of runtime sizes take registers; so do threads that copy.
        pieces = self.copies.piece_bytes
        fixed, plain = self.is_fixed and not any(pieces), is_plain(nest)
        # Before the first tile the place of a deferred store is behind the end of an array, along columns.
        steps_known = shape.n is not None and all(axis.size.is_constant for axis in nest.axes if axis.is_reduction)
        may_defer = self.may_take_turns and steps_known and (fixed or plain) and not any(pieces)
        deferred = may_defer and all(result.in_bulk for result in results)
        return RoleProblem(
            row,
            shape,
            operand_bytes,
            results,
            n_step,
            self.is_promoted,
            scaled=bool(self.kind.scales),
            is_plain=fixed and plain,
            is_light=fixed and is_light(nest) and all(result.in_bulk for result in self.results),
            may_be_deferred=deferred,
            piece_bytes=pieces,
            is_crowded=any(pieces) and bool(dispatch.texts(nest.kernel.symbols)),
            takes_turns=self.may_take_turns,
            operands=self.operands,
            parts=self.parts if self.merges_parts else 1,
            in_cluster=self.parts_together(row.m) > 1,
            in_turn=self.merges_in_turn,
            has_like_tiles=self._has_like_tiles,
            overlaps=self._overlaps(results, pieces),
        )

    def _overlaps(self, results: Sequence[ResultShape], pieces: Sequence[int]) -> tuple[bool, bool]:
        """Whether the last tiles along m, and along n, may begin earlier, so that they end with the result: where descriptors copy the
        operand's rows, which take much longer behind an array's end, and rows that lie along the side end where tiles may begin. Parts that
        a tile's workgroups merge are one tile's alone, and a matrix that is read besides may be the one that is written.
        """
        kind = self.kind
        if self.merges_parts or any(result.is_read for result in results):
            return False, False
        sides = zip(self.axes[:2], (kind.lhs, kind.rhs), pieces, strict=True)
        m, n = (axis >= 0 and piece == 0 and operand != kind.image and self._ends_whole(axis) for axis, operand, piece in sides)
        return m, n

    def _ends_whole(self, number: int) -> bool:
        """Whether an axis of known size ends whole accesses behind where tiles may begin in rows that lie along it: 16 bytes, in results
        whose rows begin elsewhere what these begin at.
        """
        nest, axis, whole = self.nest, self.nest.axes[number], self.spec.max_vector_bytes
        if not axis.size.is_constant or runs_along(nest, number) is not None:
            return False
        for access in nest.accesses:
            if nest.stride_along(access, axis) == constant(1):
                size, others = element_bytes(access.element), [each for each in nest.axes if not each.block and each is not axis]
                begins = (nest.stride_along(access, other).divisor() * size for other in others)
                if axis.size.divisor() * size % (gcd(whole, *begins) if access.is_result else whole):
                    return False
        return True

    @property
    def _has_like_tiles(self) -> bool:
        """Whether all tiles of one block, as a part of a sum is, are known to have as many steps."""
        nest = self.nest
        blocks = frozenset[str]() if nest.kernel.reads else frozenset(nest.kernel.ranges)
        sides = all(nest.axes[main_axis(nest, role)].size.is_constant for role in ("m", "n"))
        return sides and all(axis.size.symbols() <= blocks for axis in nest.axes if axis.is_reduction)

    @cached_property
    def results(self) -> tuple[ResultShape, ...]:
        """How results can leave."""
        return tuple(result_shape(self.nest, access, self.spec) for access in self.nest.accesses if access.is_result)

    @property
    def operands(self) -> tuple[OperandRows, OperandRows]:
        """How A and B lie in memory; of several contractions, those of the first."""
        first = {a.input_number: a for a in reversed(self.nest.accesses) if a.input_number >= 0}
        a, b = first[self.kind.lhs], first[self.kind.rhs]
        line = self.spec.line_bytes
        return operand_rows(self.nest, a, "m", line), operand_rows(self.nest, b, "n", line)

    @cached_property
    def small_side(self) -> SmallSide | str:
        """The small and the large side, or why none counts as small."""
        if self.kind.scales or self.f32_parts:
            return "products have scales, or are those of parts of f32"
        side = small_side(self.nest, self.kind, self.axes, self.sizes, self.types, self.spec)
        if isinstance(side, str):
            return side
        return replace(side, shape=replace(side.shape, takes_turns=self.may_take_turns, merges=self.merges_parts))

    @cached_property
    def memory_bytes(self) -> int:
        """Bytes of all arrays that the kernel reads and writes; unknown extents count as 4096."""
        return sum(bytes_touched(self.nest, access) for access in self.nest.accesses)

    @property
    def extents_text(self) -> str:
        """The sizes of the main axes, as remarks tell them."""
        return "x".join(shortened(self.nest.axes[i].size) if i >= 0 else "1" for i in self.axes)

    @property
    def operands_text(self) -> str:
        """The contraction with its operands as they are in memory."""
        return f"contraction {self.extents_text}, operands {self.names[0]} and {self.names[1]}, accumulators in {self.types.accumulator}"
