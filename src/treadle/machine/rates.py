"""What the models of `plan/` are fitted to: constants of one product, in clocks of a compute unit unless a name says otherwise."""

from treadle.records import Record


class RoleRates(Record):
    """Of kernels whose copying and computing go to different warps (plan/role_clocks.py, plan/mixed_widths.py).

    Copies of a step. `row_clocks`: a box's row in a unit's copy engine, `stage_clocks`: a slot beside its rows. `cache_row_clocks`: the
    same row out of the cache that all units share, when all ask; `own_share`: the part of it that each unit's request takes, beside the
    part of the rows that pairs of units fetch; `apart_share`: at most the part that they fetch apart, half of it at `apart_steps`, for
    pairs are at one step ever less. `cut_line_factor`: how much longer a row takes that begins inside a line of the cache;
    `cut_request_factor`, `cut_sector_factor`: and inside what is asked of it at once, at a sector or inside one. `common_share`: how
    much longer than that the cache takes for such rows where all units ask for the same. `beyond_clocks`: a row
    beyond an array's end, which all units' copies have in turn, beside what they ask of the cache. `copied_row_clocks`: of the producer's
    threads, a row that they copy, in pieces of any width; `copied_cache_clocks`: the same out of the cache that all units share, when all
    ask; `held_clocks`: the wait for pieces that go through registers; `held_factor`: how many times as long such rows take, which are
    shifted into place; `rounded_factor`: beside that, those that are rounded on their way. `fill_clocks`: before a kernel's first step, for
    each byte of a stage of the ring. `start_clocks`: from a workgroup's end to the next one's first step, where workgroups take one tile
    each. `together_clocks`: of a step of workgroups that fill each other's slots, `both_clocks`: beside it for each of a cluster
    that fetches both operands once; `clustered_clocks`: of a kernel that has pairs of such, `larger_clusters_clocks`: of one with
    larger clusters.
    `ring_clocks`: from a slot's release until what is copied into it is there, beside its rows; `clustered_ring_clocks`,
    `held_ring_clocks`: the same in clusters, and where threads copy.

    Arithmetic of a step. `step_clocks`: what consumers who wait for one another's instructions take at least; `wait_clocks`: what
    one consumer warpgroup takes beside its instructions where none of them run under the next step. `power_factor`: by how much clocks fall
    where all matrix units are busy. `promoting_clocks`: of a step of one group alone that scales its sums and adds them to others
    in registers. `tall_factor`: how many times as long instructions take of groups that hold more accumulators than leave room beside them,
    and have fewer slots.

    Of a tile outside its loop. `tile_overhead`: whatever its size. `epilogue_clocks`: of an element of the result on its way out of a
    compute unit; `cut_store_clocks`: beside these, where rows of the result begin inside a sector, half of it where inside a line alone;
    `stored_clocks`: where threads store it;
    `cut_run_clocks`: of neighbours that a warp stores at once, where they begin and end inside sectors.
    `read_share`: of `epilogue_clocks`, for an element that an epilogue reads from shared memory: nothing is stored or sent.
    `deferred_overhead`: of a tile whose results leave under the next one's loop, `deferred_clocks`: of a kernel that has such tiles.
    `ping_pong_overhead` and `ping_pong_share` (of the clocks in which results leave): between the loops of consumers that take turns.
    `box_clocks`: of each box of a result whose rows of numbers are read when the box before has left (see `waited_boxes`).

    `few_rounds`: in as many rounds of tiles, fewer rows of tiles are walked together. `full_step`: columns beyond a multiple of it cost
    more than their part of the time: matrix instructions go by whole steps, or nearly; `step_saved`: what a column that is missing from a
    whole step saves, as a part of a column.

    Of kernels that split f32 operands (plan/split_tiles.py). `l2_bytes_per_clock`: what a compute unit gets out of the cache when all ask.
    `producer_factor`: how many times as long the warps of a producer take for the pieces they copy as those of a plain tile (see
    `GeneralRates.piece_clocks`).
    """

    row_clocks: float
    stage_clocks: float
    cache_row_clocks: float
    own_share: float
    apart_share: float
    apart_steps: float
    cut_line_factor: float
    cut_request_factor: float
    cut_sector_factor: float
    common_share: float
    beyond_clocks: float
    copied_row_clocks: float
    copied_cache_clocks: float
    held_clocks: float
    held_factor: float
    rounded_factor: float
    fill_clocks: float
    start_clocks: float
    together_clocks: float
    both_clocks: float
    clustered_clocks: float
    larger_clusters_clocks: float
    ring_clocks: float
    clustered_ring_clocks: float
    held_ring_clocks: float
    step_clocks: float
    wait_clocks: float
    power_factor: float
    promoting_clocks: float
    tall_factor: float
    tile_overhead: float
    epilogue_clocks: float
    cut_store_clocks: float
    stored_clocks: float
    cut_run_clocks: float
    read_share: float
    deferred_overhead: float
    deferred_clocks: float
    ping_pong_overhead: float
    ping_pong_share: float
    box_clocks: float
    few_rounds: int
    full_step: int
    step_saved: float
    l2_bytes_per_clock: float
    producer_factor: float


class StreamingRates(Record):
    """Of contractions that read their large operand straight into registers (plan/small_m.py).

    `fixed_clocks`: a kernel's launch, the first loads' latency, the memory's ramp, and the end. `latency_clocks`: from a load's issue to
    its data while the memory has time. `peak_share`: what all units together read of the memory's stated bandwidth where latency sets no
    limit. `vector_share`: how much of the memory's time the vector units may take: they share issue slots with the loads and with index
    arithmetic. `workgroup_clocks`: a workgroup's start and end, as far as the unit's other workgroups do not hide them. `alike`: modelled
    times that differ by less, as a part, are the same, by the model's own error.

    Registers of a thread: `fixed_registers` for addresses and counters; beyond `crowded_registers` the tools take about `crowded_more`
    more, since they move loads and conversions further up; `max_registers` at most. `load_macs`: multiply-adds that take as long as a
    load: its issue slots, and the arithmetic of its address and bounds.
    """

    fixed_clocks: float
    latency_clocks: float
    peak_share: float
    vector_share: float
    workgroup_clocks: float
    alike: float
    fixed_registers: int
    crowded_registers: int
    crowded_more: int
    max_registers: int
    load_macs: float


class SwappedRates(Record):
    """Of contractions whose large operand goes through a ring of descriptor copies (plan/small_m.py).

    `row_clocks`: a box's row in the copy engine; `missing_row_clocks`: the same for a row outside the array, which the engine fills with
    zeros: a tile of 32 rows is slower than one of 64. `stage_clocks`: the hand-over of a stage, as far as the other stages do not hide it.
    `peak_share`: what all units together copy of the memory's stated bandwidth. `idle_factor`: what units without a tile in the last round
    cost, as a part of the memory's time: the others take nearly all of their bandwidth.
    """

    row_clocks: float
    missing_row_clocks: float
    stage_clocks: float
    peak_share: float
    idle_factor: float


class ArrivalRates(Record):
    """Of workgroups that share a result and merge its parts (plan/split_parts.py).

    `arrival_clocks`: of an arrival: until the part is written for the whole device, the count, its way to the group's threads, and the end
    of the kernel behind the merge. `turn_clocks`: of as many elements of parts as the last one loads together, until they are there and
    added up. `traffic_factor`: what the parts of all tiles take beside being written, as a part of the time to move them once.
    `cluster_clocks`: of a cluster whose workgroups merge: its meetings at both ends, and until all know that the parts are there.
    `peer_bytes_per_clock`: what a workgroup reads of the others' shared memory. `clustered_share`: of the units, which clusters of more
    than two workgroups cover at one time; `longest_together`: elements of a sum that such a cluster computes at most: few long parts
    leave more of the machine waiting than the models say (5888 in clusters of eight took 1.6 times as long as modelled on an H200).
    """

    arrival_clocks: float
    turn_clocks: float
    traffic_factor: float
    cluster_clocks: float
    peer_bytes_per_clock: float
    clustered_share: float
    longest_together: int


class ReductionRates(Record):
    """Of reductions that are no contractions (plan/split_parts.py).

    `workgroup_clocks`: of a workgroup beside its loads: start, the last loads' latency, joining what its threads hold. `element_clocks`: of
    a compute unit for one element in each of a subgroup's lanes: its load, where that is narrow, and what joins it to others.
    """

    workgroup_clocks: float
    element_clocks: float


class GeneralRates(Record):
    """Of any kernel. `efficiency`: the share of the peak rates that large kernels reach, matrix units and memory alike.
    `launch_seconds`: of a kernel beside its work; `overlapped_seconds`: of one that begins while the one ahead of it ends.
    `element_macs`: how many multiply-adds take as long as bringing one element of an operand into a unit. `piece_clocks`: of a warp's copy
    of one piece a lane into shared memory, addresses and bounds included.
    """

    efficiency: float
    launch_seconds: float
    overlapped_seconds: float
    element_macs: int
    piece_clocks: float


class Rates(Record):
    """All constants of one product."""

    general: GeneralRates
    roles: RoleRates
    streaming: StreamingRates
    swapped: SwappedRates
    arrivals: ArrivalRates
    reductions: ReductionRates
