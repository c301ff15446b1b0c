"""The schedules that the verifier and the simulator are held against: name -> text, and whether anything is wrong with it.

`PROGRAMS` are right for every interleaving; `RACES` rebuild faults that were found in other compilers, each with the rules that may
report it.
"""

from dataclasses import dataclass

from hazards import programs_amd as amd
from hazards import programs_cluster as cluster
from hazards import programs_nvidia as nvidia
from hazards import programs_queues, programs_registers, races


@dataclass(frozen=True, slots=True)
class Schedule:
    """One kernel. `rules`: empty where it is right, else the rules of which one must report it. `symbols`: values to run it with."""

    name: str
    text: str
    rules: tuple[str, ...] = ()
    symbols: tuple[int, ...] = ()

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.rules


def _by_name(*schedules: Schedule) -> dict[str, Schedule]:
    return {schedule.name: schedule for schedule in schedules}


PROGRAMS = _by_name(
    Schedule("tma_unpipelined", nvidia.tma_unpipelined()),
    Schedule("tma_ring_4_2", nvidia.tma_ring(4, 2)),
    Schedule("tma_ring_3_2", nvidia.tma_ring(3, 2)),
    Schedule("one_consumer", nvidia.producer_consumer(3, 1)),
    Schedule("two_consumers", nvidia.producer_consumer(3, 2)),
    Schedule("two_consumers_carried", nvidia.producer_consumer(3, 2, carried=True)),
    Schedule("dynamic_consumer", nvidia.producer_consumer(3, 1, None), symbols=(7,)),
    Schedule("dynamic_consumers_carried", nvidia.producer_consumer(2, 2, None, carried=True), symbols=(5,)),
    Schedule("ping_pong", nvidia.ping_pong()),
    Schedule("groups_apart", nvidia.groups_apart()),
    Schedule("cp_async_ring_3_2", programs_queues.cp_async_ring(3, 2)),
    Schedule("bulk_store_ring", programs_queues.bulk_store_ring()),
    Schedule("two_products", nvidia.two_products()),
    Schedule("register_operand", programs_registers.register_operand()),
    Schedule("nested", nvidia.nested()),
    Schedule("cluster_shared_operand", cluster.shared_operand()),
    Schedule("cluster_drained", cluster.shared_operand(2, 5, drained=True)),
    Schedule("dynamic_cluster", cluster.shared_operand(3, None), symbols=(7,)),
    Schedule("cluster_exchanged", cluster.exchanged()),
    Schedule("double_buffer", amd.double_buffer()),
    Schedule("dynamic_double_buffer", amd.double_buffer(dynamic=True), symbols=(5,)),
    Schedule("direct_ring", amd.direct_ring()),
    Schedule("two_groups", amd.two_groups()),
    Schedule("rounds_through_one_buffer", amd.rounds()),
)

SWEEP = {
    (stages, ahead): programs_queues.cp_async_ring(stages, ahead, 2 * stages + 3) for stages in (2, 5, 9) for ahead in range(1, stages)
}
"""cp.async rings by stages and prefetch distance."""

RACES = _by_name(
    Schedule("iree_22468_prologue_without_barrier", races.prologue_without_barrier(), ("V3",)),
    Schedule("iree_23435_read_without_barrier", races.read_without_barrier(), ("V3",)),
    Schedule("nvfuser_3561_release_before_wait", nvidia.producer_consumer(3, 1, wait_first=False), ("V1", "V2", "V3")),
    Schedule("nvfuser_3865_wait_after_barrier", races.wait_after_barrier(), ("V2", "V3")),
    Schedule("nvfuser_3960_epilogue_input_aliases_store_buffer", races.aliased_epilogue_input(), ("V3",)),
    Schedule("triton_9720_four_stages_on_three_buffers", races.four_stages_on_three_buffers(), ("V1", "V2", "V3", "V5")),
    Schedule("triton_11047_wait_narrower_than_readers", races.wait_narrower_than_readers(), ("V2", "V3")),
    Schedule("tilelang_2566_trip_count_one", nvidia.producer_consumer(3, 1, None, second_wait=True), ("V5",), (1,)),
    Schedule("registers_given_up_in_flight", programs_registers.register_operand(in_time=False), ("V2",)),
    Schedule("trailing_group_one_slot", amd.two_groups(slots=1), ("V3",)),
    Schedule("conditional_barriers_do_not_pair", amd.two_groups(end=False), ("V5",)),
)
