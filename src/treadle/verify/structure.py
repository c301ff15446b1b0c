"""What a schedule-level kernel may not look like, whatever its values: shapes that the model gives no meaning, or that no code exists for.

Operations refuse by themselves what they can tell alone (`dialects/limits.py`); here stands what takes the kernel's roles or its machine.
Both raise TR416. (docs/schedule.md, "Form")
"""

from collections.abc import Callable, Sequence
from typing import Any

from treadle.dialects import pipe, sync, tile
from treadle.dialects.agents import Role, arrivals_at, arriving_warps, role_of, roles_of, split_of
from treadle.dialects.limits import MAX_ARRIVALS, NAMED_BARRIERS
from treadle.dialects.tile_attributes import is_shared
from treadle.errors import SCHEDULE_FORM, TreadleError
from treadle.ir.ancestry import operands_of
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import builtin
from treadle.ir.locations import location_of
from treadle.ir.misuse import Misuse
from treadle.machine import TargetSpec
from treadle.plan import expr
from treadle.verify.regions import element_bytes

_MEMORY = (tile.AllocOp, tile.ViewOp, pipe.SlotOp, pipe.PartOp)


def check_structure(kernel: tile.KernelOp, spec: TargetSpec, ops: Sequence[Operation]) -> None:
    """Raises TR416 for the first operation of a kernel (`ops`: all in it, in order) that has no meaning there or no machine to run it."""
    roles = _Roles(ops)
    for op in (kernel, *ops):
        check = _CHECKS.get(type(op))
        try:
            if op is kernel:
                _kernel(kernel, spec, ops)
            elif type(op) is pipe.RolesOp:
                _roles(op, spec, roles)
            elif type(op) is sync.MbarrierAllocOp:
                _allocation(op, spec, roles)
            elif check is not None:
                check(op, spec)
            _check_operands(op, roles)
        except Misuse as misuse:
            raise TreadleError(SCHEDULE_FORM, location_of(op), op=op.name, reason=misuse.reason, fix=misuse.fix) from misuse


class _Roles:
    """Which operations stand in roles, looked up once a block."""

    def __init__(self, ops: Sequence[Operation]) -> None:
        kinds = {type(op) for op in ops}
        self.has_any, self.has_barriers = pipe.RolesOp in kinds, sync.BarrierOp in kinds
        self._around: dict[Block, pipe.RolesOp | None] = {}
        self._warps: dict[Block, int] = {}

    def around(self, op: Operation) -> pipe.RolesOp | None:
        """The roles around an operation."""
        block = op.parent
        if block is None:
            return None
        if block not in self._around:
            parent = block.parent_op()
            self._around[block] = parent if parent is None or isinstance(parent, pipe.RolesOp) else self.around(parent)
        return self._around[block]

    def arriving_warps(self, op: sync.ArriveOp) -> int:
        """Warps of the agent that executes `op`."""
        block = op.parent
        if block is None:
            return arriving_warps(op)
        if block not in self._warps:
            self._warps[block] = arriving_warps(op)
        return self._warps[block]


# --- the kernel


def _kernel(op: tile.KernelOp, spec: TargetSpec, ops: Sequence[Operation]) -> None:
    warps, cluster = op.num_warps.value.data, op.cluster_size()
    most = min(spec.max_warps_per_workgroup, spec.max_threads_per_workgroup // spec.subgroup_size)
    if warps > most:
        raise Misuse(f"{warps} warps; a workgroup of {spec.name} has at most {most}", "use fewer warps and more workgroups")
    if op.group_count() != 1:
        raise Misuse(f"{op.group_count()} groups of warps without roles", "write the groups as a role of pipe.roles")
    if cluster > spec.max_cluster:
        raise Misuse(f"clusters of {cluster}; {spec.name} has clusters of at most {spec.max_cluster}", "use a smaller cluster")
    columns = expr.parse(op.grid_text()[0]).as_int()
    if columns is not None and columns % cluster:
        raise Misuse(f"clusters of {cluster} in a grid of {columns} along its first axis", "make the grid a multiple of the cluster")
    needed = _shared_bytes(ops, spec)
    if needed > spec.shared_bytes_per_workgroup:
        text = f"{needed} bytes of shared memory; {spec.name} has {spec.shared_bytes_per_workgroup} for a workgroup"
        raise Misuse(text, "use smaller tiles or fewer slots")
    is_split = any(type(each) is sync.BarrierOp and each.groups is not None for each in ops)
    if is_split and warps % (groups := split_of(op)):
        raise Misuse(f"{warps} warps, which sync.barrier splits into {groups} groups", "use a multiple of the groups")


def _shared_bytes(ops: Sequence[Operation], spec: TargetSpec) -> int:
    """Bytes of the buffers and barriers, as if none had to be aligned."""
    end = free = 0
    for op in ops:
        if isinstance(op, tile.AllocOp):
            size = tile.shared_layout_of(op.result).size * element_bytes(tile.memref_type(op.result).element_type)
            if op.byte_offset is None:
                free += size
            else:
                end = max(end, op.byte_offset.value.data + size)
        elif isinstance(op, sync.MbarrierAllocOp):
            free += op.slot_count() * spec.barrier_bytes
    return end + free


# --- roles


def _roles(op: pipe.RolesOp, spec: TargetSpec, facts: _Roles) -> None:
    kernel = op.parent_op()
    if not isinstance(kernel, tile.KernelOp):
        raise Misuse("it stands outside a kernel's own block", "move it to the top level of a kernel")
    roles = roles_of(op)
    others = [other for other in kernel.body.block.ops if isinstance(other, pipe.RolesOp) and other is not op]
    if others and any(role.registers for role in roles):
        raise Misuse("registers move between roles once in a kernel that has several pipe.roles", "leave `registers` 0")
    for role in roles:
        if role.registers:
            _moved_registers(role, spec)
    if any(role.registers for role in roles):
        _enough_registers(roles, kernel.num_warps.value.data, spec)
    if not facts.has_barriers:
        return
    meeting = [role for role in roles if any(isinstance(inner, sync.BarrierOp) for inner in role.operations())]
    if not meeting:
        return
    fix = "let the warps that meet use sync.named_barrier"
    absent = [role.name for role in roles if role not in meeting]
    if absent:
        raise Misuse(f"sync.barrier in some roles only: the warps of {', '.join(absent)} never arrive", fix)
    idle = kernel.num_warps.value.data - roles[-1].end_warp
    if idle:
        raise Misuse(f"sync.barrier in roles, of which {idle} of the kernel's warps have none: they never arrive", fix)


def _moved_registers(role: Role, spec: TargetSpec) -> None:
    """Registers that a role of the machine may have."""
    moves = spec.register_moves
    if moves is None:
        raise Misuse(f"{spec.name} moves no registers between roles", "leave `registers` 0")
    if role.registers % moves.granule or not moves.fewest <= role.registers <= moves.most:
        text = f"role '{role.name}' with {role.registers} registers a thread"
        raise Misuse(text, f"give it a multiple of {moves.granule} from {moves.fewest} to {moves.most}")
    if role.first_warp % moves.warps or role.end_warp % moves.warps:
        text = f"role '{role.name}' takes warps {role.first_warp} to {role.end_warp - 1}"
        raise Misuse(text, f"registers move by {moves.warps} warps: let the role begin and end at a multiple")


def _enough_registers(roles: Sequence[Role], warps: int, spec: TargetSpec) -> None:
    """All that roles ask for together is what their workgroup begins with: who asks for more waits for ever."""
    start = spec.registers_at_start(warps)
    asked = sum((role.end_warp - role.first_warp) * (role.registers or start) for role in roles)
    asked += (warps - roles[-1].end_warp) * start
    if asked > start * warps:
        text = f"roles ask for {asked * spec.subgroup_size} registers; a workgroup of {warps} warps begins with {start} a thread"
        raise Misuse(text, f"give them {start * warps * spec.subgroup_size} at most together")


def _barrier(op: sync.BarrierOp, spec: TargetSpec) -> None:
    role = role_of(op)
    if op.groups is None or role is None:
        return
    if max(tile.ints(op.groups)) >= role.groups:
        raise Misuse(f"groups {list(tile.ints(op.groups))} of role '{role.name}', which has {role.groups}", "number them from 0")


def _named_barrier(op: sync.NamedBarrierOp, spec: TargetSpec) -> None:
    if not spec.named_barriers:
        raise Misuse(f"{spec.name} has no named barriers", "use sync.barrier")
    role = role_of(op)
    last = op.number(role.groups - 1 if role is not None else 0)
    if last > NAMED_BARRIERS[-1]:
        raise Misuse(f"the last group meets at barrier {last} of {NAMED_BARRIERS[-1]}", "choose a smaller `id`")


# --- transaction barriers


def _allocation(op: sync.MbarrierAllocOp, spec: TargetSpec, roles: _Roles) -> None:
    if spec.bulk_tensor is None:
        raise Misuse(f"{spec.name} has no transaction barriers", "order the agents by sync.barrier")
    counts = sorted({roles.arriving_warps(arrive) for arrive in arrivals_at(op)}) or [1]
    if any(counts[-1] % count for count in counts):
        text = f"agents of {' and '.join(map(str, counts))} warps arrive at it"
        raise Misuse(text, "let agents arrive whose numbers of warps divide the largest of them")
    if op.arrivals.value.data * counts[-1] > MAX_ARRIVALS:
        raise Misuse(f"{op.arrivals.value.data} arrivals of {counts[-1]} warps", f"a phase counts at most {MAX_ARRIVALS} of warps")


# --- what the machine has


def _queue(op: sync.CommitOp | sync.WaitOp, spec: TargetSpec) -> None:
    op.check_machine(spec)


def _copy(op: tile.CopyOp, spec: TargetSpec) -> None:
    op.check_machine(spec)
    if op.is_bulk and op.barrier is None:
        raise Misuse("a bulk copy that signals no barrier is never known to be complete", "add `signals`, and an expect of its bytes")


def _copy_out(op: tile.CopyOutOp, spec: TargetSpec) -> None:
    op.check_machine(spec)


def _contract(op: tile.ContractOp, spec: TargetSpec) -> None:
    name = op.instruction.data
    row = next((row for row in spec.matrix_instructions if row.name == name), None)
    if row is None and name != "fma":
        raise Misuse(f"{spec.name} has no instruction '{name}'", 'name one of the machine\'s, or "fma"')
    for side, value in enumerate((op.a, op.b)):
        in_shared = is_shared(value.type)
        if in_shared and (row is None or not row.may_read(side, "shared")):
            raise Misuse(f"'{name}' does not read its operands from shared memory", "load them by tile.local_load")
        if not in_shared and row is not None and not row.may_read(side, "registers"):
            raise Misuse(f"'{name}' does not read its operand {'ab'[side]} from registers", "store it in a shared buffer")


def _fence(op: sync.FenceOp, spec: TargetSpec) -> None:
    if spec.bulk_tensor is None:
        raise Misuse(f"{spec.name} has no proxy '{op.proxy.data}'", "remove the fence")


def _at_counter(op: tile.OrderedCounterOp, spec: TargetSpec) -> None:
    kernel = op.parent_op()
    takes_turns = isinstance(op, tile.AwaitTurnOp | tile.PassTurnOp)
    if takes_turns and isinstance(kernel, tile.KernelOp) and kernel.cluster_size() > 1:
        raise Misuse("workgroups of a cluster begin together, in no order", "let the workgroups of such a kernel be no clusters")


def _check_operands(op: Operation, roles: _Roles) -> None:
    outer = roles.around(op) if roles.has_any else None
    for value in operands_of(op):
        kind = type(value.type)
        if kind is builtin.MemRefType:
            if not isinstance(value.owner, _MEMORY):
                fix = "carry the number of a slot instead, and pick it with pipe.slot"
                raise Misuse("the memory it names is chosen by a branch or carried by a loop", fix)
        elif outer is not None and kind is builtin.TensorType:
            owner = value.owner
            if isinstance(owner, Operation) and roles.around(owner) is not outer and not _is_uniform(value):
                # A register tile is spread over the warps of a team; others hold it only where it is the same in all of them.
                text = "the register tile is spread over the warps outside the role"
                raise Misuse(text, "load or compute it in the role, or pass it through a shared buffer")


def _is_uniform(value: SSAValue) -> bool:
    """Whether every thread holds the same in each register of a tile."""
    owner = value.owner
    if isinstance(owner, tile.SplatOp) or not isinstance(owner, Operation):
        return isinstance(owner, tile.SplatOp)
    if owner.name == "arith.constant":
        return True
    is_elementwise = owner.name.startswith(("arith.", "math.")) or isinstance(owner, tile.BroadcastOp | tile.ConvertLayoutOp)
    return is_elementwise and all(_is_uniform(v) for v in owner.operands if isinstance(v.type, builtin.TensorType))


_CHECKS: dict[type[Operation], Callable[[Any, TargetSpec], None]] = {
    sync.BarrierOp: _barrier,
    sync.NamedBarrierOp: _named_barrier,
    sync.CommitOp: _queue,
    sync.WaitOp: _queue,
    sync.FenceOp: _fence,
    tile.ContractOp: _contract,
    tile.CopyOp: _copy,
    tile.CopyOutOp: _copy_out,
    tile.CountInOp: _at_counter,
    tile.AwaitTurnOp: _at_counter,
    tile.PassTurnOp: _at_counter,
}
