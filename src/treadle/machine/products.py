"""The products: what one can buy of an architecture, one row each, the architecture's default first.

Facts are from public data sheets (named at each row) as far as nothing else is said. `clock_mhz` is the clock that the stated peak rates of
the matrix units go by, 1755 on an H200, where it was measured. Models take their constants from a product's `rates`: fitted on the product
where someone has measured it, otherwise derived from the facts.
"""

from dataclasses import replace
from functools import cached_property
from math import inf
from typing import Any

from treadle.machine.rates import ArrivalRates, GeneralRates, Rates, ReductionRates, RoleRates, StreamingRates, SwappedRates
from treadle.records import Record


class Product(Record):
    """One product of an architecture.

    `name`: within the architecture, as in the target `sm_90a:h100-pcie`. `clock_mhz`: MHz under load; `memory_gbps`: GB/s of the memory;
    `l2_bytes`: of the cache that units share. `matrix_rate`: which part of the architecture's matrix instructions a unit completes in a
    clock, below 1 where the product is limited. `device_names`: what the driver calls it. `fitted`: rates that were measured on it.
    """

    name: str
    architecture: str
    description: str
    compute_units: int
    clock_mhz: int
    memory_gbps: int
    l2_bytes: int
    matrix_rate: float = 1.0
    device_names: tuple[str, ...] = ()
    fitted: Rates | None = None

    @property
    def is_measured(self) -> bool:
        """Whether its rates were fitted to times measured on it."""
        return self.fitted is not None

    @property
    def unit_bytes_per_clock(self) -> float:
        """One compute unit's part of the memory's bandwidth."""
        return self.memory_gbps * 1e3 / self.clock_mhz / self.compute_units

    @cached_property
    def rates(self) -> Rates:
        """The constants of the models: fitted ones, else derived ones."""
        return self.fitted or derived_rates(self)


_H200_RATES = Rates(
    # The share of the peak is for both kinds of work; launches follow each other within a few microseconds. The
    # clocks of pieces are an estimate by the instructions that a piece takes. What a launch that overlaps takes is by 559 splits of 101
    # products of seeds 1 and 2 and some that had been slow: with 1.8 us they were modelled 5 % too slow, and what is chosen took 2.4 %
    # longer than the best of some six numbers of parts, with 1 us 1.8 %.
    general=GeneralRates(efficiency=0.75, launch_seconds=3e-6, overlapped_seconds=1e-6, element_macs=48, piece_clocks=2),
    # Fitted to 3,300 tilings of 330 random products (seeds 1 and 2, and some that had been slow on others) whose last tiles end with the
    # result, and at half the weight to 4,000 older ones of 350 products whose tiles stick out. Of a third of the products, which the fit
    # did not see, the tile of least modelled time takes 2.3 % longer than the fastest of some ten, 2.0 % of the older ones (the constants
    # before: 2.6 and 2.5 %). Without `apart_share` aligned kernels of 120 us and more whose copies take as long as their arithmetic were
    # modelled 15 to 29 % too fast, those of 15 us were not; with it, of aligned products of 30 us and more that the fit did not see, the
    # tile of least modelled time takes 0.6 % longer than the fastest, 1.3 % without. On another seed (tests/plan/role_times_h200.json) half
    # of the times are within 5 %, nine of ten within 15 %. What threads copy is fitted to 455 tilings of 62 products of odd pitches (half
    # within 7 %, nine of ten within 19 %; the choice among them takes 2.5 % longer than the best, 10 to 14 % before). What `read_share` and
    # `rounded_factor` say is an estimate; what threads store is by 528 exchanged kernels and 496 of odd pitches of these seeds. In four
    # rounds or fewer, half of the most rows of tiles was as fast or faster by up to 0.6 %; the steps of columns are fitted to 248 and
    # 232 columns beside 256.
    # `together_clocks` to `clustered_ring_clocks` and `common_share` are of 2,860 tilings, in clusters of all kinds and without, of 173
    # products whose rows begin inside requests (seeds 1 and 2, some that had been slow, some with few short rows), most with a side of at
    # most 500: the tile of least modelled time takes 3.2 % longer than the fastest, 14 % in one of twenty; with what was there before
    # 4.1 and 19 %.
    # `box_clocks` is by what two products with a bias and three steps took longer than modelled without it (seeds 1 and 2: 390 and 530
    # clocks).
    roles=RoleRates(
        row_clocks=0.922,
        stage_clocks=15.2,
        cache_row_clocks=1.715,
        own_share=0.138,
        apart_share=0.156,
        apart_steps=164,
        cut_line_factor=0.755,
        cut_request_factor=0.44,
        cut_sector_factor=1.284,
        beyond_clocks=0.0608,
        copied_row_clocks=6.47,
        copied_cache_clocks=5.0,
        held_clocks=29,
        held_factor=1.57,
        rounded_factor=1.1,
        fill_clocks=0.0065,
        start_clocks=2029,
        common_share=0.5,
        together_clocks=10,
        both_clocks=7.5,
        clustered_clocks=2000,
        larger_clusters_clocks=1500,
        ring_clocks=180,
        clustered_ring_clocks=1260,
        held_ring_clocks=20,
        step_clocks=142,
        wait_clocks=92.4,
        power_factor=0.104,
        promoting_clocks=260,
        tall_factor=1.02,
        tile_overhead=410,
        epilogue_clocks=0.0486,
        cut_store_clocks=0.0597,
        stored_clocks=0.08,
        cut_run_clocks=2.5,
        read_share=0.5,
        deferred_overhead=1044,
        deferred_clocks=1641,
        ping_pong_overhead=101,
        ping_pong_share=0.369,
        box_clocks=400,
        few_rounds=4,
        full_step=16,
        step_saved=0.5,
        l2_bytes_per_clock=82,
        producer_factor=2,
    ),
    # Fitted to 116 and, those of swapped operands, to 94 kernels of 54 skinny shapes (seeds 1 and 2), the fixed clocks with those of role
    # kernels, 4.2 us between two events; `vector_share` and `load_macs` to six and more rows, which the fit had too slow.
    streaming=StreamingRates(
        fixed_clocks=7440,
        latency_clocks=729,
        peak_share=0.93,
        vector_share=0.6,
        workgroup_clocks=30,
        alike=0.02,
        fixed_registers=16,
        crowded_registers=152,
        crowded_more=24,
        max_registers=216,
        load_macs=8,
    ),
    # What swapped kernels share with those of roles has their rates. `idle_factor` is what it was before: the fit had it higher, and M = 16
    # with few tiles too slow. Ten contractions of other seeds (tests/plan/swapped_times_h200.json) come out within 11 %, half within 5 %.
    swapped=SwappedRates(row_clocks=1.64, missing_row_clocks=4.35, stage_clocks=40, peak_share=0.9, idle_factor=0.07),
    # Fitted to 326 kernels of 79 random shapes of aligned pitches that merge parts (seeds 1 and 2). Of who merges, parts or none, what is
    # taken takes 1.9 % longer than the best of some ten that were measured of each shape, 9 % longer for one of twenty. Of clusters of
    # four and eight, 120 workgroups began at once and 124 did not.
    arrivals=ArrivalRates(
        arrival_clocks=1941,
        turn_clocks=478,
        traffic_factor=1.68,
        cluster_clocks=905,
        peer_bytes_per_clock=8.2,
        clustered_share=0.91,
        longest_together=4096,
    ),
    reductions=ReductionRates(workgroup_clocks=1500, element_clocks=2),
)

_H100_RATES = replace(
    _H200_RATES,
    # Fitted to 688 tilings of 61 random shapes (seeds 1 and 2), parts and their merges among them. On another seed
    # (tests/plan/role_times_h100.json) half of the times come out within 5 %, nine of ten within 19 %. Clusters begin and end later than
    # others, whatever they do. The number of rounds, the steps of columns, what threads copy, and what no time told about are the H200's.
    # They were fitted when rows beyond an end and the cache's were the larger of both, not their sum, and lines were no limit.
    roles=RoleRates(
        row_clocks=1.27,
        stage_clocks=7.61,
        cache_row_clocks=2.21,
        own_share=0.3,
        apart_share=0.156,  # the H200's: not measured on this product
        apart_steps=164,
        cut_line_factor=0.0,
        cut_request_factor=1.53,
        cut_sector_factor=1.74,
        beyond_clocks=0.0915,
        copied_row_clocks=6.47,
        copied_cache_clocks=5.0,
        held_clocks=29,
        held_factor=1.57,
        rounded_factor=1.1,
        fill_clocks=0.0343,
        start_clocks=2029,
        common_share=0.5,  # the H200's: not measured on this product
        together_clocks=19.0,
        both_clocks=13,
        clustered_clocks=2500,
        larger_clusters_clocks=2000,  # as much less as the H200's
        ring_clocks=901,
        clustered_ring_clocks=1260,  # the H200's
        held_ring_clocks=20,
        step_clocks=162,
        wait_clocks=92.4,
        power_factor=0.16,
        promoting_clocks=260,
        tall_factor=0.946,
        tile_overhead=103,
        epilogue_clocks=0.0395,
        cut_store_clocks=0.0396,
        stored_clocks=0.061,
        cut_run_clocks=2.0,
        read_share=0.5,
        deferred_overhead=856,
        deferred_clocks=1950,
        ping_pong_overhead=32.6,
        ping_pong_share=0.62,
        box_clocks=400,  # the H200's
        few_rounds=4,
        full_step=16,
        step_saved=0.5,
        l2_bytes_per_clock=82,
        producer_factor=2,
    ),
    streaming=replace(
        _H200_RATES.streaming, fixed_clocks=10500, latency_clocks=700, peak_share=1.03, vector_share=0.75, workgroup_clocks=60, load_macs=8
    ),
    swapped=SwappedRates(row_clocks=1.8, missing_row_clocks=5.5, stage_clocks=10, peak_share=0.91, idle_factor=0.07),
    arrivals=ArrivalRates(
        arrival_clocks=2110,
        turn_clocks=2020,
        traffic_factor=0.935,
        cluster_clocks=3240,
        peer_bytes_per_clock=23.3,
        clustered_share=0.91,
        longest_together=4096,
    ),
)

# NVIDIA H200 Tensor Core GPU data sheet; units, cache and clock from a device.
H200_SXM = Product(
    "h200-sxm",
    "sm_90a",
    "NVIDIA H200 SXM",
    compute_units=132,
    clock_mhz=1755,
    memory_gbps=4800,
    l2_bytes=50 * 2**20,
    device_names=("NVIDIA H200",),
    fitted=_H200_RATES,
)


def derived_rates(product: Product) -> Rates:
    """Rates of a product that nobody has measured.

    What is a number of clocks or of registers, or a share, is taken over from the H200: caches, schedulers and instruction latencies go by
    the clock on all machines, and times in clocks of these machines differ by less than the rates do. What follows the
    memory's bandwidth (the fill of a ring from a cold cache) is scaled by a unit's part of it. What stores cost that leave sectors of a
    cache partly written is not known of other architectures. Peak rates are no constants of a model:
    the models compute them from units, clock, bandwidth and the rows of the matrix instructions.
    """
    measured = _H200_RATES.roles
    fill = measured.fill_clocks * H200_SXM.unit_bytes_per_clock / product.unit_bytes_per_clock
    roles: dict[str, Any] = {name: getattr(measured, name) for name in RoleRates.record_names}
    roles["fill_clocks"] = fill
    if product.architecture != H200_SXM.architecture:
        roles["cut_run_clocks"] = 0.0
    # What an arrival costs goes by how an architecture's caches are made to agree: on others nobody knows, and only who asks gets them.
    arrivals = _H200_RATES.arrivals if product.architecture == H200_SXM.architecture else ArrivalRates(inf, 0, 0, inf, 1, 0, 0)
    return Rates(_H200_RATES.general, RoleRates(**roles), _H200_RATES.streaming, _H200_RATES.swapped, arrivals, _H200_RATES.reductions)


PRODUCTS: tuple[Product, ...] = (
    H200_SXM,
    # NVIDIA H100 Tensor Core GPU data sheet and architecture white paper: 132 units, 989 TFLOP/s of dense bf16, 3.35 TB/s, 50 MB.
    Product(
        "h100-sxm",
        "sm_90a",
        "NVIDIA H100 SXM",
        compute_units=132,
        clock_mhz=1830,
        memory_gbps=3350,
        l2_bytes=50 * 2**20,
        device_names=("NVIDIA H100 80GB HBM3",),
        fitted=_H100_RATES,
    ),
    # The same: 114 units, 756 TFLOP/s of dense bf16, 2.0 TB/s, 50 MB.
    Product(
        "h100-pcie",
        "sm_90a",
        "NVIDIA H100 PCIe",
        compute_units=114,
        clock_mhz=1620,
        memory_gbps=2000,
        l2_bytes=50 * 2**20,
        device_names=("NVIDIA H100 PCIe",),
    ),
    # Published figures of the H20: 78 units, 148 TFLOP/s of dense bf16 (a quarter of the H100's a unit and clock), 4.0 TB/s, 60 MB.
    Product(
        "h20",
        "sm_90a",
        "NVIDIA H20",
        compute_units=78,
        clock_mhz=1830,
        memory_gbps=4000,
        l2_bytes=60 * 2**20,
        matrix_rate=0.25,
        device_names=("NVIDIA H20",),
    ),
    # AMD Instinct MI300X data sheet: 304 units, 2100 MHz, 5.3 TB/s. The L2 cache is one die's; a cache of 256 MB lies behind all.
    Product(
        "mi300x",
        "gfx942",
        "AMD Instinct MI300X",
        compute_units=304,
        clock_mhz=2100,
        memory_gbps=5300,
        l2_bytes=4 * 2**20,
        device_names=("AMD Instinct MI300X", "AMD Instinct MI300X OAM"),
    ),
    # AMD Instinct MI325X data sheet: as the MI300X, with 6.0 TB/s.
    Product(
        "mi325x",
        "gfx942",
        "AMD Instinct MI325X",
        compute_units=304,
        clock_mhz=2100,
        memory_gbps=6000,
        l2_bytes=4 * 2**20,
        device_names=("AMD Instinct MI325X", "AMD Instinct MI325X OAM"),
    ),
    # AMD Instinct MI355X data sheet: 256 units, 2400 MHz, 8.0 TB/s.
    Product(
        "mi355x",
        "gfx950",
        "AMD Instinct MI355X",
        compute_units=256,
        clock_mhz=2400,
        memory_gbps=8000,
        l2_bytes=4 * 2**20,
        device_names=("AMD Instinct MI355X", "AMD Instinct MI355X OAM"),
    ),
    # AMD Instinct MI350X data sheet: 256 units, 2200 MHz, 8.0 TB/s.
    Product(
        "mi350x",
        "gfx950",
        "AMD Instinct MI350X",
        compute_units=256,
        clock_mhz=2200,
        memory_gbps=8000,
        l2_bytes=4 * 2**20,
        device_names=("AMD Instinct MI350X", "AMD Instinct MI350X OAM"),
    ),
    # AMD Radeon RX 7900 XTX, the product's page: 96 units, boost 2500 MHz, 960 GB/s; behind the L2 lies a cache of 96 MB.
    Product(
        "rx-7900-xtx",
        "gfx1100",
        "AMD Radeon RX 7900 XTX",
        compute_units=96,
        clock_mhz=2500,
        memory_gbps=960,
        l2_bytes=6 * 2**20,
        device_names=("AMD Radeon RX 7900 XTX", "Radeon RX 7900 XTX"),
    ),
    # AMD Radeon RX 9070 XT, the product's page: 64 units, boost 2970 MHz, 640 GB/s; behind the L2 lies a cache of 64 MB.
    Product(
        "rx-9070-xt",
        "gfx1201",
        "AMD Radeon RX 9070 XT",
        compute_units=64,
        clock_mhz=2970,
        memory_gbps=640,
        l2_bytes=8 * 2**20,
        device_names=("AMD Radeon RX 9070 XT", "Radeon RX 9070 XT"),
    ),
)


_known: list[Product] = list(PRODUCTS)


def add_product(product: Product) -> None:
    """Add a row, or replace one of the same name."""
    _known[:] = [one for one in _known if (one.architecture, one.name) != (product.architecture, product.name)] + [product]


def products_of(architecture: str) -> tuple[Product, ...]:
    """The products of an architecture, the default first."""
    return tuple(product for product in _known if product.architecture == architecture)


def default_product(architecture: str) -> Product:
    """What a target that names no product stands for."""
    return products_of(architecture)[0]


def target_of(architecture: str, device_name: str, units: int) -> str:
    """What to compile for on a device of an architecture: with its product, where that is known and not the default one.

    Products are known by the driver's name of the device, else by the number of compute units, of which the first counts; a device that no
    row is like is compiled for as the default product.
    """
    found = products_of(architecture)
    named = [product for product in found if device_name in product.device_names]
    alike = [product for product in found if product.compute_units == units]
    product = next(iter((*named, *alike, *found)), None)
    return architecture if product is None or product == found[0] else f"{architecture}:{product.name}"
