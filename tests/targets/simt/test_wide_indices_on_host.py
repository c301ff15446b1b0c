"""Index arithmetic beyond 32 bits, executed: the addresses that emitted code touches are those that Python's integers give."""

import random
from collections.abc import Sequence
from math import prod

import pytest
from targets.addresses import Place, added, agree, base, kernels_of, lowered, moments, recorded, walked

from treadle.dialects import dispatch
from treadle.ir.dialects import builtin, scf
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.plan import expr
from treadle.targets.simt.ranges import constant_of

WHOLE = CompileOptions(split_reduction="off")
"""Long reductions in one kernel each."""
EDGE = (2**31 - 1, 2**31, 2**31 + 1, 2**32, 2**32 + 3, 3 * 10**9, 5 * 10**9)
BYTES = {"i8": 1, "i16": 2, "f32": 4, "f64": 8, "f8E4M3FN": 1}
LANES = {"sm_90a": 32, "gfx942": 64, "gfx1100": 32}


def tensor(shape: tuple[int, ...], element: str, dynamic: bool = False) -> str:
    return "x".join(["tensor<" + ("?" if dynamic else str(shape[0])), *("?" if dynamic else str(n) for n in shape[1:]), f"{element}>"])


def elementwise(
    shape: tuple[int, ...], element: str, maps: list[tuple[int, ...]], strides: Sequence[list[int] | None], dynamic: bool = False
) -> str:
    """The sum of inputs whose dimensions are those of the loops that `maps` name; `strides` of each, None for row-major."""
    rank = len(shape)
    dims = ", ".join(f"d{i}" for i in range(rank))
    kinds = [tensor(tuple(shape[d] for d in m), element, dynamic) for m in maps]
    given = [
        f"%a{i}: {kind}" + (f" {{treadle.strides = array<i64: {', '.join(map(str, s))}>}}" if s is not None else "")
        for i, (kind, s) in enumerate(zip(kinds, strides, strict=True))
    ]
    out = tensor(shape, element, dynamic)
    indexing = ", ".join(f"affine_map<({dims}) -> ({', '.join(f'd{d}' for d in m)})>" for m in [*maps, tuple(range(rank))])
    add, one = ("arith.addi", "1") if element.startswith("i") else ("arith.addf", "1.0")
    kinds_of_loops = ", ".join(['"parallel"'] * rank)
    body = "".join(f"    %s{i + 1} = {add} %s{i}, %x{i} : {element}\n" for i in range(len(maps)))
    sizes = "".join(f"  %c{d} = arith.constant {d} : index\n  %n{d} = tensor.dim %a0, %c{d} : {kinds[0]}\n" for d in range(rank))
    return (
        f"func.func @f({', '.join(given)}) -> {out} {{\n"
        + (sizes if dynamic else "")
        + f"  %e = tensor.empty({', '.join(f'%n{d}' for d in range(rank)) if dynamic else ''}) : {out}\n"
        f"  %r = linalg.generic {{indexing_maps = [{indexing}], iterator_types = [{kinds_of_loops}]}}\n"
        f"    ins({', '.join(f'%a{i}' for i in range(len(maps)))} : {', '.join(kinds)}) outs(%e : {out}) {{\n"
        f"  ^bb0({', '.join(f'%x{i}: {element}' for i in range(len(maps)))}, %o: {element}):\n"
        f"    %s0 = arith.constant {one} : {element}\n{body}"
        f"    linalg.yield %s{len(maps)} : {element} }} -> {out}\n  return %r : {out}\n}}"
    )


def launches(module: builtin.ModuleOp, shapes: list[tuple[int, ...]]) -> list[tuple[str, list[int]]]:
    """Kernels and values of their symbols for inputs of these shapes."""
    (program,) = [op for op in module.body.block.ops if isinstance(op, dispatch.ProgramOp)]
    env = {name: shapes[number][axis] for name, (number, axis) in program.dim_sources().items()}
    found: list[tuple[str, list[int]]] = []
    for op in program.body.block.ops:
        if isinstance(op, dispatch.LaunchOp):
            values = op.symbol_values()
            kernel = next(k for k in kernels_of(module) if k.sym_name.data == op.kernel.string_value())
            found.append((kernel.sym_name.data, [expr.parse(values[n]).evaluate(env) for n in kernel.symbol_names()]))
    return found


def some_places(grid: int, numel: int, rng: random.Random) -> list[Place]:
    """The first and last workgroups, those around elements number 2^31 and 2^32, and some others."""
    wanted = {0, 1, grid - 2, grid - 1, *(rng.randrange(grid) for _ in range(2))}
    wanted |= {grid * (1 << bits) // numel + d for bits in (31, 32) for d in (-1, 0, 1)}
    return [(n, 0, 0) for n in sorted(wanted) if 0 <= n < grid]


def check(
    text: str, target: str, shapes: list[tuple[int, ...]], numel: int, rng: random.Random, options: CompileOptions | None = None
) -> int:
    """Hold the code of some workgroups of the only kernel against its tile program; returns the width of its indices."""
    module = lowered(text, target, options)
    (kernel,) = kernels_of(module)
    ((_, symbols),) = launches(module, shapes)
    env = dict(zip(kernel.symbol_names(), symbols, strict=True))
    grid = expr.parse(kernel.grid_text()[0]).evaluate(env)
    places = some_places(grid, numel, rng)
    want, have = walked(kernel, symbols, places), recorded(kernel, symbols, places, LANES[target])
    assert agree(have, want), f"{target}: {have} for {want}\n{text}"
    return kernel.index_width()


@pytest.mark.parametrize("size", EDGE)
@pytest.mark.parametrize(("element", "target"), [("i8", "sm_90a"), ("f32", "gfx942"), ("f64", "gfx1100")])
def test_one_axis(size: int, element: str, target: str) -> None:
    text = elementwise((size,), element, [(0,)], [None])
    assert check(text, target, [(size,)], size, random.Random(size)) == 64


@pytest.mark.parametrize("size", EDGE)
def test_workgroups_take_their_part(size: int) -> None:
    """Without the tile program in between: workgroup w touches elements w * tile to (w + 1) * tile, and reads whole 16 bytes at the end."""
    (kernel,) = kernels_of(lowered(elementwise((size,), "i16", [(0,)], [None]), "sm_90a"))
    grid = expr.parse(kernel.grid_text()[0]).evaluate({})
    extent = -(-size // grid)
    extent = 1 << (extent - 1).bit_length()
    for number in {0, (1 << 31) // extent, (1 << 32) // extent, grid - 1} & set(range(grid)):
        first = number * extent
        part = min(extent, size - first)
        want = {
            ("load", 0): moments(base(0) + 2 * first, [-(-part // 8) * 8], [2]),
            ("store", 1): moments(base(1) + 2 * first, [part], [2]),
        }
        assert recorded(kernel, [], [(number, 0, 0)], 32) == want


def random_case(seed: int) -> tuple[tuple[int, ...], str, list[tuple[int, ...]], list[list[int] | None], int]:
    """Shapes with products around and beyond 2^31, inputs transposed, broadcast and strided."""
    rng = random.Random(seed)
    rank = rng.randint(1, 3)
    small = [1, 3, 64, 257, 1000]
    shape = [rng.choice([rng.choice(small), 46341, 65537, 70000, 1 << 16]) for _ in range(rank)]
    shape[rng.randrange(rank)] = rng.choice([*EDGE, 40000, 1 << 20, 1 << 26])
    element = rng.choice(["i8", "i16", "f32", "f64"])
    maps: list[tuple[int, ...]] = [tuple(range(rank))]
    if rank > 1:
        order = list(range(rank))
        rng.shuffle(order)
        maps.append(tuple(order))
        maps.append(tuple(sorted(rng.sample(range(rank), rng.randint(1, rank - 1)))))
    strides: list[list[int] | None] = [None] * len(maps)
    if rng.random() < 0.6:
        which = rng.randrange(len(maps))
        dims = maps[which]
        pitch, made = 1, [0] * len(dims)
        for at in reversed(range(len(dims))):
            made[at] = 0 if rng.random() < 0.3 else pitch
            pitch *= shape[dims[at]] + rng.choice([0, 5, 16])
        strides[which] = made
    return tuple(shape), element, maps, strides, prod(shape)


@pytest.mark.parametrize("seed", range(24))
def test_random_arrays(seed: int) -> None:
    shape, element, maps, strides, numel = random_case(seed)
    if numel > 1 << 40:
        shape = (min(shape[0], 70000), *(min(n, 1 << 12) for n in shape[1:]))
        strides = [None] * len(maps)
        numel = prod(shape)
    target = random.Random(seed).choice(list(LANES))
    check(elementwise(shape, element, maps, strides), target, [], numel, random.Random(seed))


@pytest.mark.parametrize("shape", [(2**31 - 2**21,), (2**31,), (2**32 + 3,), (70000, 40000), (3, 5, 10**9 // 3), (2**33, 1)])
@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_dynamic_sizes(shape: tuple[int, ...], target: str) -> None:
    maps, strides = [tuple(range(len(shape))), tuple(reversed(range(len(shape))))], [None, None]
    text = elementwise(shape, "f32", maps, strides, dynamic=True)
    shapes = [shape, shape[::-1]]
    assert check(text, target, shapes, prod(shape), random.Random(0), CompileOptions(index_bits=64)) == 64
    module = lowered(text, target)
    checks = [op for op in module.walk() if isinstance(op, dispatch.CheckOp) and op.index_range is not None]
    (program,) = [op for op in module.body.block.ops if isinstance(op, dispatch.ProgramOp)]
    env = {name: shapes[number][axis] for name, (number, axis) in program.dim_sources().items()}
    fits = all(expr.parse(op.left.data).evaluate(env) <= int(op.right.data) for op in checks)
    if fits:
        assert check(text, target, shapes, prod(shape), random.Random(1)) == 32
    assert checks
    assert fits == (max(shape) < 2**31 and (shape != (70000, 40000) or len(shape) != 1))


def reduction(rows: int, columns: int, element: str, strides: str = "") -> str:
    wide = "i32" if element.startswith("i") else "f32"
    cast = f"arith.extsi %x : {element} to {wide}" if wide == "i32" else f"arith.extf %x : {element} to {wide}"
    zero, add = ("0", "arith.addi") if wide == "i32" else ("0.0", "arith.addf")
    source, result = f"tensor<{rows}x{columns}x{element}>", f"tensor<{rows}x{wide}>"
    return f"""func.func @f(%a: {source}{strides}) -> {result} {{
  %z = arith.constant {zero} : {wide}
  %e = tensor.empty() : {result}
  %i = linalg.fill ins(%z : {wide}) outs(%e : {result}) -> {result}
  %r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}} ins(%a : {source}) outs(%i : {result}) {{
  ^bb0(%x: {element}, %s: {wide}):
    %y = {cast}
    %t = {add} %s, %y : {wide}
    linalg.yield %t : {wide} }} -> {result}
  return %r : {result}
}}"""


@pytest.mark.parametrize(
    ("columns", "element", "target"), [(3 * 10**9, "i8", "sm_90a"), (4 * 10**9, "f8E4M3FN", "gfx942"), (2**31 + 16, "i8", "gfx1100")]
)
def test_every_element_of_a_row_is_read_once(columns: int, element: str, target: str) -> None:
    """All loads of a row of more than 2^31 elements, by count, sum and squares of their addresses."""
    (kernel,) = kernels_of(lowered(reduction(3, columns, element), target, WHOLE))
    assert kernel.index_width() == 64
    found = recorded(kernel, [], [(2, 0, 0)], LANES[target])
    assert found["load", 0] == moments(base(0) + 2 * columns, [columns], [1])
    assert set(found) == {("load", 0), ("store", 1)}


def test_rows_that_are_broadcast() -> None:
    """3 000 000 001 elements that are one in memory."""
    (kernel,) = kernels_of(lowered(reduction(2, 3 * 10**9 + 1, "i8", " {treadle.strides = array<i64: 1, 0>}"), "gfx942", WHOLE))
    assert kernel.index_width() == 64
    (loop,) = [op for op in kernel.body.walk() if isinstance(op, scf.ForOp)]
    step = constant_of(loop.step)
    assert step is not None
    found = recorded(kernel, [], [(0, 0, 0)], 64, threads=[1])
    assert found["load", 0] == moments(base(0) + 1, [-(-(3 * 10**9 + 1) // step)], [0])


MATMUL = """func.func @f(%a: tensor<{m}x{k}xf16>, %b: tensor<{k}x{n}xf16>) -> tensor<{m}x{n}xf32> {{
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{m}x{n}xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %r = linalg.matmul ins(%a, %b : tensor<{m}x{k}xf16>, tensor<{k}x{n}xf16>) outs(%i : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %r : tensor<{m}x{n}xf32>
}}"""


@pytest.mark.parametrize(
    ("m", "n", "k"), [(70000, 40000, 8), (70001, 40003, 7), (2**31 + 5, 3, 4), (48, 2**31 + 5, 64), (2**32, 16, 16), (16, 24, 2**31 + 64)]
)
@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_contractions(m: int, n: int, k: int, target: str) -> None:
    module = lowered(MATMUL.format(m=m, n=n, k=k), target, WHOLE)
    (kernel,) = kernels_of(module)
    assert kernel.index_width() == (64 if max(m, n, k) > 2**31 else 32)
    if k > 2**20:
        return  # the loop along k takes too long here
    grid = expr.parse(kernel.grid_text()[0]).evaluate({})
    places = some_places(grid, m * n, random.Random(m))
    assert agree(recorded(kernel, [], places, LANES[target]), walked(kernel, [], places))


def test_added_moments() -> None:
    left, right = moments(100, [3], [8]), moments(124, [5], [8])
    assert added(left, right) == moments(100, [8], [8])
    assert moments(7, [2, 3], [10, 1]) == (6, 6 * 7 + 30 + 6, sum((7 + 10 * i + j) ** 2 for i in range(2) for j in range(3)))


def test_targets_exist() -> None:
    assert all(target_spec(target).subgroup_size == lanes for target, lanes in LANES.items())
