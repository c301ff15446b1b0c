"""Grouped contractions: rows of one matrix belong to groups one after the other, each of which has a matrix of its own.

Groups are the iterations of a `scf.forall`; where a group's rows begin, and how many they are, are sums of steps of the group's number.
"""

from collections.abc import Sequence
from itertools import accumulate


def _table(name: str, values: Sequence[int]) -> list[str]:
    """Operations whose last result, `%name`, is the value of group `%g`."""
    found = [f"    %{name}{'_0' if len(values) > 1 else ''} = arith.constant {values[0]} : index"]
    for at in range(1, len(values)):
        last = f"%{name}" if at == len(values) - 1 else f"%{name}_{at}"
        found += [
            f"    %{name}_number_{at} = arith.constant {at - 1} : index",
            f"    %{name}_change_{at} = arith.constant {values[at] - values[at - 1]} : index",
            f"    %{name}_past_{at} = arith.subi %g, %{name}_number_{at} : index",
            f"    %{name}_some_{at} = arith.maxsi %{name}_past_{at}, %zero : index",
            f"    %{name}_one_{at} = arith.minsi %{name}_some_{at}, %one : index",
            f"    %{name}_step_{at} = arith.muli %{name}_one_{at}, %{name}_change_{at} : index",
            f"    {last} = arith.addi %{name}_{at - 1}, %{name}_step_{at} : index",
        ]
    return found


def _entry(name: str, values: Sequence[int], index: str) -> list[str]:
    """Operations whose last result, `%name`, is the number of group `%g` in a table of the text, of type `index`."""
    kind = f"tensor<{len(values)}x{index}>"
    found = [f"    %{name}_table = arith.constant dense<{list(values)}> : {kind}"]
    if index == "index":
        return [*found, f"    %{name} = tensor.extract %{name}_table[%g] : {kind}"]
    taken = f"    %{name}_number = tensor.extract %{name}_table[%g] : {kind}"
    return [*found, taken, f"    %{name} = arith.index_cast %{name}_number : {index} to index"]


def grouped_text(rows: Sequence[int], n: int, k: int, dtype: str = "f16", *, tables: str = "") -> str:
    """Y = the groups' rows of X (sum of `rows`, k) times their own W (groups, k, n).

    `tables`: the element type of tables that tell where groups begin and how long they are; "" where sums of steps do.
    """
    starts, groups, m = [0, *accumulate(rows)], len(rows), sum(rows)
    body = [
        "    %zero = arith.constant 0 : index",
        "    %one = arith.constant 1 : index",
        *(_entry("start", starts[:-1], tables) if tables else _table("start", starts[:-1])),
        *(_entry("count", rows, tables) if tables else _table("count", rows)),
    ]
    x, w, y = f"tensor<{m}x{k}x{dtype}>", f"tensor<{groups}x{k}x{n}x{dtype}>", f"tensor<{m}x{n}x{dtype}>"
    part, own, result = f"tensor<?x{k}x{dtype}>", f"tensor<{k}x{n}x{dtype}>", f"tensor<?x{n}x{dtype}>"
    return "\n".join(
        [
            f"func.func @grouped(%x: {x}, %w: {w}) -> {y} {{",
            f"  %none = arith.constant 0.0 : {dtype}",
            f"  %e = tensor.empty() : {y}",
            f"  %y = scf.forall (%g) in ({groups}) shared_outs(%o = %e) -> ({y}) {{",
            *body,
            f"    %a = tensor.extract_slice %x[%start, 0] [%count, {k}] [1, 1] : {x} to {part}",
            f"    %b = tensor.extract_slice %w[%g, 0, 0] [1, {k}, {n}] [1, 1, 1] : {w} to {own}",
            f"    %own = tensor.empty(%count) : {result}",
            f"    %f = linalg.fill ins(%none : {dtype}) outs(%own : {result}) -> {result}",
            f"    %c = linalg.matmul ins(%a, %b : {part}, {own}) outs(%f : {result}) -> {result}",
            "    scf.forall.in_parallel {",
            f"      tensor.parallel_insert_slice %c into %o[%start, 0] [%count, {n}] [1, 1] : {result} into {y}",
            "    }",
            "  }",
            f"  return %y : {y}",
            "}",
        ]
    )


def routed_text(
    rows: int, groups: int, n: int, k: int, dtype: str = "f16", *, index: str = "i32", form: str = "offsets", epilogue: bool = False
) -> str:
    """The same where the runtime knows the groups: into Y, whose other rows stay, go the rows of each.

    `form`: what `%table` holds, "offsets" where each group begins, and the last one ends; "counts" where they begin, then their sizes.
    `epilogue`: a bias of each group is added, and what is below zero becomes zero.
    """
    x, w, y, bias = (f"tensor<{shape}x{dtype}>" for shape in (f"{rows}x{k}", f"{groups}x{k}x{n}", f"{rows}x{n}", f"{groups}x{n}"))
    part, own, result, line = (f"tensor<{shape}x{dtype}>" for shape in (f"?x{k}", f"{k}x{n}", f"?x{n}", f"{n}"))
    table = f"tensor<{groups + 1}x{index}>" if form == "offsets" else f"tensor<2x{groups}x{index}>"
    places = ("%g", "%next") if form == "offsets" else ("%zero, %g", "%one, %g")
    size = "%count = arith.subi %second, %start : index" if form == "offsets" else "%count = arith.addi %second, %zero : index"
    body = [
        f"    %s = tensor.extract %table[{places[0]}] : {table}",
        f"    %t = tensor.extract %table[{places[1]}] : {table}",
        f"    %start = arith.index_cast %s : {index} to index",
        f"    %second = arith.index_cast %t : {index} to index",
        f"    {size}",
        f"    %a = tensor.extract_slice %x[%start, 0] [%count, {k}] [1, 1] : {x} to {part}",
        f"    %b = tensor.extract_slice %w[%g, 0, 0] [1, {k}, {n}] [1, 1, 1] : {w} to {own}",
        f"    %own = tensor.empty(%count) : {result}",
        f"    %f = linalg.fill ins(%none : {dtype}) outs(%own : {result}) -> {result}",
        f"    %c = linalg.matmul ins(%a, %b : {part}, {own}) outs(%f : {result}) -> {result}",
    ]
    if epilogue:
        body += [
            f"    %line = tensor.extract_slice %bias[%g, 0] [1, {n}] [1, 1] : {bias} to {line}",
            "    %r = linalg.generic {indexing_maps = [",
            "        affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],",
            f'        iterator_types = ["parallel", "parallel"]}} ins(%c, %line : {result}, {line}) outs(%own : {result}) {{',
            f"    ^bb0(%p: {dtype}, %q: {dtype}, %u: {dtype}):",
            f"      %sum = arith.addf %p, %q : {dtype}",
            f"      %top = arith.maximumf %sum, %none : {dtype}",
            f"      linalg.yield %top : {dtype}",
            f"    }} -> {result}",
        ]
    return "\n".join(
        [
            f"func.func @routed(%x: {x}, %w: {w}, %table: {table}, %y: {y}{f', %bias: {bias}' if epilogue else ''}) -> {y} {{",
            f"  %none = arith.constant 0.0 : {dtype}",
            "  %zero = arith.constant 0 : index",
            "  %one = arith.constant 1 : index",
            f"  %z = scf.forall (%g) in ({groups}) shared_outs(%o = %y) -> ({y}) {{",
            "    %next = arith.addi %g, %one : index",
            *body,
            "    scf.forall.in_parallel {",
            f"      tensor.parallel_insert_slice {'%r' if epilogue else '%c'} into %o[%start, 0] [%count, {n}] [1, 1] : {result} into {y}",
            "    }",
            "  }",
            f"  return %z : {y}",
            "}",
        ]
    )


def diagonal_text(rows: Sequence[int], columns: Sequence[int], k: int, outer: int = 1, dtype: str = "f16") -> str:
    """Blocks along a diagonal: of each of `outer` matrices Y those of all groups are products of the groups' rows of X and columns of W."""
    m, n, groups = sum(rows), sum(columns), len(rows)
    x, w, y = f"tensor<{outer}x{m}x{k}x{dtype}>", f"tensor<{outer}x{k}x{n}x{dtype}>", f"tensor<{outer}x{m}x{n}x{dtype}>"
    part, own, result = f"tensor<?x{k}x{dtype}>", f"tensor<{k}x?x{dtype}>", f"tensor<?x?x{dtype}>"
    tables = [
        *_table("row", [0, *accumulate(rows)][:-1]),
        *_table("count", rows),
        *_table("column", [0, *accumulate(columns)][:-1]),
        *_table("width", columns),
    ]
    return "\n".join(
        [
            f"func.func @diagonal(%x: {x}, %w: {w}, %y: {y}) -> {y} {{",
            f"  %none = arith.constant 0.0 : {dtype}",
            "  %zero = arith.constant 0 : index",
            "  %one = arith.constant 1 : index",
            f"  %z = scf.forall (%u, %g) in ({outer}, {groups}) shared_outs(%o = %y) -> ({y}) {{",
            *tables,
            f"    %a = tensor.extract_slice %x[%u, %row, 0] [1, %count, {k}] [1, 1, 1] : {x} to {part}",
            f"    %b = tensor.extract_slice %w[%u, 0, %column] [1, {k}, %width] [1, 1, 1] : {w} to {own}",
            f"    %own = tensor.empty(%count, %width) : {result}",
            f"    %f = linalg.fill ins(%none : {dtype}) outs(%own : {result}) -> {result}",
            f"    %c = linalg.matmul ins(%a, %b : {part}, {own}) outs(%f : {result}) -> {result}",
            "    scf.forall.in_parallel {",
            f"      tensor.parallel_insert_slice %c into %o[%u, %row, %column] [1, %count, %width] [1, 1, 1] : {result} into {y}",
            "    }",
            "  }",
            f"  return %z : {y}",
            "}",
        ]
    )
