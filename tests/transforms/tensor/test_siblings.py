"""Contractions that share an operand in one kernel: when they are fused, when not and why, and that the numbers stay."""

import pytest
from transforms.tensor.dispatch_programs import Array, body_generics, compare, host_ops, kernels, lower
from transforms.tensor.test_form_dispatches import normal

from treadle.analysis.loop_nest import loop_nest
from treadle.bench.suite import find
from treadle.dialects import dispatch
from treadle.errors import TreadleError


def contraction(name: str, a: str, b: str, maps: str, shapes: tuple[str, str, str], element: str = "f32") -> str:
    """`name` = sum of products of `a` and `b` by index letters; shapes as "7x5"."""
    read, written = maps.split("->")
    first, second = read.split(",")
    summed = "".join(sorted((set(first) & set(second)) - set(written)))
    loops = ", ".join(written + summed)
    kinds = ", ".join(['"parallel"'] * len(written) + ['"reduction"'] * len(summed))
    attributes = ", ".join(f"affine_map<({loops}) -> ({', '.join(one)})>" for one in (first, second, written))
    left, right, result = (f"tensor<{shape}x{element}>" for shape in shapes)
    dynamic = ", ".join(f"%d{letter}" for letter, size in zip(written, shapes[2].split("x"), strict=True) if size == "?")
    return f"""
      {name}_z = arith.constant 0.0 : {element}
      {name}_e = tensor.empty({dynamic}) : {result}
      {name}_f = linalg.fill ins({name}_z : {element}) outs({name}_e : {result}) -> {result}
      {name} = linalg.generic {{indexing_maps = [{attributes}], iterator_types = [{kinds}]}}
          ins({a}, {b} : {left}, {right}) outs({name}_f : {result}) {{
      ^bb0(%l: {element}, %h: {element}, %o: {element}):
        %v = arith.mulf %l, %h : {element}
        %u = arith.addf %o, %v : {element}
        linalg.yield %u : {element}
      }} -> {result}"""


def combination(name: str, values: list[str], shape: str, op: str = "arith.mulf", maps: list[str] | None = None, dynamic: str = "") -> str:
    """`name`: the values joined element by element; `maps` say how each is read."""
    loops = "ijl"[: shape.count("x") + 1]
    dims = ", ".join(loops)
    type_ = f"tensor<{shape}xf32>"
    attributes = ", ".join(f"affine_map<({dims}) -> ({', '.join(one)})>" for one in [*(maps or [loops] * len(values)), loops])
    kinds = ", ".join(['"parallel"'] * len(loops))
    body = "".join(f"%t{i} = {op} %t{i - 1}, %x{i} : f32\n" for i in range(1, len(values))).replace("%t0", "%x0")
    block = ", ".join(f"%x{i}: f32" for i in range(len(values)))
    return f"""
      {name}_e = tensor.empty({dynamic}) : {type_}
      {name} = linalg.generic {{indexing_maps = [{attributes}], iterator_types = [{kinds}]}}
          ins({", ".join(values)} : {", ".join([type_] * len(values))}) outs({name}_e : {type_}) {{
      ^bb0({block}, %o: f32):
        {body}
        linalg.yield %t{len(values) - 1} : f32
      }} -> {type_}"""


def function(body: str, arguments: dict[str, str], results: dict[str, str]) -> str:
    """A function of f32 tensors."""
    given = ", ".join(f"{name}: tensor<{shape}xf32>" for name, shape in arguments.items())
    types = ", ".join(f"tensor<{shape}xf32>" for shape in results.values())
    return f"func.func @f({given}) -> ({types}) {{ {body}\n return {', '.join(results)} : {types} }}"


def gated(m: str = "7", n: str = "9", k: str = "5", first: str = "mk,kn->mn", second: str = "mk,kn->mn") -> str:
    """(x a) * (x b); the weights' shapes follow from the letters."""
    sizes = {"m": m, "n": n, "k": k}
    shapes = ["x".join(sizes[letter] for letter in maps.split("->")[0].split(",")[1]) for maps in (first, second)]
    parts = [
        contraction(name, "%x", f"%w{i}", maps, (f"{m}x{k}", shapes[i], f"{m}x{n}"))
        for i, (name, maps) in enumerate((("%p", first), ("%q", second)))
    ]
    body = "".join(parts) + combination("%r", ["%p", "%q"], f"{m}x{n}")
    return function(body, {"%x": f"{m}x{k}", "%w0": shapes[0], "%w1": shapes[1]}, {"%r": f"{m}x{n}"})


def texts(text: str) -> list[str]:
    """The remarks of set-dispatch-groups."""
    return [remark.text for remark in lower(text)[1] if remark.pass_name == "set-dispatch-groups"]


def roots(kernel: dispatch.KernelOp) -> int:
    """How many roots a kernel has."""
    return sum(dispatch.ROOT in op.attributes for op in body_generics(kernel))


@pytest.mark.parametrize("second", ["mk,kn->mn", "mk,nk->mn"])
def test_two_products_that_are_combined_are_one_kernel(second: str) -> None:
    other = normal(5, 9) if second == "mk,kn->mn" else normal(9, 5)
    (kernel,) = kernels(compare(gated(second=second), normal(7, 5), normal(5, 9), other))
    assert roots(kernel) == 2
    assert len(body_generics(kernel)) == 3
    assert any("they share an operand" in text for text in texts(gated(second=second)))


def test_the_shared_operand_may_be_the_second() -> None:
    parts = [contraction(name, w, "%x", "mk,kn->mn", ("7x5", "5x9", "7x9")) for name, w in (("%p", "%a"), ("%q", "%b"))]
    text = function("".join(parts) + combination("%r", ["%p", "%q"], "7x9"), {"%x": "5x9", "%a": "7x5", "%b": "7x5"}, {"%r": "7x9"})
    (kernel,) = kernels(compare(text, normal(5, 9), normal(7, 5), normal(7, 5)))
    assert roots(kernel) == 2


def test_batches_and_several_results() -> None:
    parts = [contraction(name, "%x", w, "bmk,bnk->bmn", ("3x7x5", "3x9x5", "3x7x9")) for name, w in (("%p", "%a"), ("%q", "%b"))]
    body = "".join(parts) + combination("%r", ["%p", "%q"], "3x7x9")
    text = function(body, {"%x": "3x7x5", "%a": "3x9x5", "%b": "3x9x5"}, {"%p": "3x7x9", "%q": "3x7x9", "%r": "3x7x9"})
    (kernel,) = kernels(compare(text, normal(3, 7, 5), normal(3, 9, 5), normal(3, 9, 5)))
    assert roots(kernel) == 2
    assert len(kernel.function_type.outputs) == 3


def test_products_meet_through_other_elementwise_operations() -> None:
    p, q = (contraction(name, "%x", w, "mk,kn->mn", ("7x5", "5x9", "7x9")) for name, w in (("%p", "%a"), ("%q", "%b")))
    # The first consumer stands between the two products.
    body = p + combination("%s", ["%p", "%p"], "7x9", "arith.addf") + q + combination("%r", ["%s", "%q"], "7x9")
    (kernel,) = kernels(
        compare(function(body, {"%x": "7x5", "%a": "5x9", "%b": "5x9"}, {"%r": "7x9"}), normal(7, 5), normal(5, 9), normal(5, 9))
    )
    assert roots(kernel) == 2
    assert len(body_generics(kernel)) == 4


def sharing(count: int, m: int, n: int, k: int) -> str:
    """Several products of one operand that do not meet."""
    parts = [contraction(f"%p{i}", "%x", f"%w{i}", "mk,nk->mn", (f"{m}x{k}", f"{n}x{k}", f"{m}x{n}")) for i in range(count)]
    weights = {f"%w{i}": f"{n}x{k}" for i in range(count)}
    return function("".join(parts), {"%x": f"{m}x{k}", **weights}, {f"%p{i}": f"{m}x{n}" for i in range(count)})


def test_three_narrow_products_of_one_operand_are_one_kernel() -> None:
    arrays: list[Array] = [normal(70, 50), *(normal(9, 50) for _ in range(3))]
    (kernel,) = kernels(compare(sharing(3, 70, 9, 50), *arrays))
    assert roots(kernel) == 3


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [((64, 512, 64), "bytes of memory traffic only"), ((8192, 1024, 4096), "wait for arithmetic")],
)
def test_products_that_do_not_meet_are_fused_for_memory_traffic_only(sizes: tuple[int, int, int], reason: str) -> None:
    module, remarks = lower(sharing(3, *sizes))
    assert len(host_ops(module, dispatch.LaunchOp)) == 3
    assert sum(reason in remark.text for remark in remarks) >= 2


def test_a_fifth_product_starts_a_kernel_of_its_own() -> None:
    module, remarks = lower(sharing(5, 700, 9, 50))
    assert [roots(kernel) for kernel in kernels(module)] == [4, 1]
    assert any("would not fit the registers" in remark.text for remark in remarks)


def test_results_of_other_sizes_are_not_fused() -> None:
    p = contraction("%p", "%x", "%a", "mk,nk->mn", ("7x5", "9x5", "7x9"))
    q = contraction("%q", "%x", "%b", "mk,nk->mn", ("7x5", "3x5", "7x3"))
    text = function(p + q, {"%x": "7x5", "%a": "9x5", "%b": "3x5"}, {"%p": "7x9", "%q": "7x3"})
    assert len(kernels(compare(text, normal(7, 5), normal(9, 5), normal(3, 5)))) == 2
    assert any("its result is tensor<7x3xf32>, not tensor<7x9xf32>" in t for t in texts(text))


def test_a_product_that_needs_the_other_is_not_fused() -> None:
    p = contraction("%p", "%x", "%a", "mk,kn->mn", ("7x7", "7x7", "7x7"))
    q = contraction("%q", "%x", "%p", "mk,kn->mn", ("7x7", "7x7", "7x7"))
    between = combination("%s", ["%p", "%p"], "7x7")
    far = contraction("%q", "%x", "%s", "mk,kn->mn", ("7x7", "7x7", "7x7"))
    for body in (p + q, p + between + far):
        text = function(body + combination("%r", ["%p", "%q"], "7x7"), {"%x": "7x7", "%a": "7x7"}, {"%r": "7x7"})
        assert len(kernels(compare(text, normal(7, 7), normal(7, 7)))) == 2
        assert any("it needs the other's result" in t for t in texts(text))


def test_products_that_meet_transposed_are_not_fused() -> None:
    parts = [contraction(name, "%x", w, "mk,kn->mn", ("64x512", "512x64", "64x64")) for name, w in (("%p", "%a"), ("%q", "%b"))]
    body = "".join(parts) + combination("%r", ["%p", "%q"], "64x64", maps=["ij", "ji"])
    text = function(body, {"%x": "64x512", "%a": "512x64", "%b": "512x64"}, {"%r": "64x64"})
    module = compare(text, normal(64, 512), normal(512, 64), normal(512, 64))
    assert all(len(body_generics(kernel)) < 3 for kernel in kernels(module) if roots(kernel) == 2)


def test_transposed_products_are_not_fused() -> None:
    p = contraction("%p", "%x", "%a", "mk,kn->mn", ("7x5", "5x7", "7x7"))
    q = contraction("%q", "%x", "%a", "nk,km->mn", ("7x5", "5x7", "7x7"))
    text = function(p + q + combination("%r", ["%p", "%q"], "7x7"), {"%x": "7x5", "%a": "5x7"}, {"%r": "7x7"})
    assert len(kernels(compare(text, normal(7, 5), normal(5, 7)))) == 2


def dynamic(meet: bool) -> str:
    """Two products whose column counts are two arguments' own; they agree where the results meet."""
    sizes = "%c0 = arith.constant 0 : index\n %dm = tensor.dim %x, %c0 : tensor<?x5xf32>\n"
    parts = ""
    for name, w in (("%p", "%a"), ("%q", "%b")):
        size = f"%n_{name[1:]}"
        parts += f"\n{size} = tensor.dim {w}, %c0 : tensor<?x5xf32>"
        parts += contraction(name, "%x", w, "mk,nk->mn", ("?x5", "?x5", "?x?")).replace("%dn", size)
    met = combination("%r", ["%p", "%q"], "?x?", dynamic="%dm, %n_p") if meet else ""
    results = {"%r": "?x?"} if meet else {"%p": "?x?", "%q": "?x?"}
    return function(sizes + parts + met, {"%x": "?x5", "%a": "?x5", "%b": "?x5"}, results)


def test_dynamic_sizes_agree_where_results_meet() -> None:
    (kernel,) = kernels(compare(dynamic(meet=True), normal(7, 5), normal(9, 5), normal(9, 5)))
    assert roots(kernel) == 2
    assert len(kernel.symbols) == 2


def test_dynamic_sizes_that_may_differ_are_not_fused() -> None:
    module = compare(dynamic(meet=False), normal(7, 5), normal(9, 5), normal(3, 5))
    assert all(roots(kernel) == 1 for kernel in kernels(module))
    assert any("not known to be of one size" in t for t in texts(dynamic(meet=False)))


def test_initial_values_that_are_no_fill() -> None:
    p = contraction("%p", "%x", "%a", "mk,kn->mn", ("7x5", "5x9", "7x9")).replace("outs(%p_f", "outs(%c")
    q = contraction("%q", "%x", "%b", "mk,kn->mn", ("7x5", "5x9", "7x9"))
    text = function(p + q + combination("%r", ["%p", "%q"], "7x9"), {"%x": "7x5", "%a": "5x9", "%b": "5x9", "%c": "7x9"}, {"%r": "7x9"})
    (kernel,) = kernels(compare(text, normal(7, 5), normal(5, 9), normal(5, 9), normal(7, 9)))
    assert roots(kernel) == 2


@pytest.mark.parametrize("name", ["swiglu", "mlp-horizontal-3", "mlp-horizontal-1"])
def test_the_suites_gated_layers_are_one_kernel(name: str) -> None:
    workload = find(name)
    assert workload is not None
    (kernel,) = kernels(lower(workload.text)[0])
    assert roots(kernel) == 2


def test_roots_that_share_nothing_are_stated_and_not_built() -> None:
    (kernel,) = kernels(lower(gated())[0])
    second = [op for op in body_generics(kernel) if dispatch.ROOT in op.attributes][1]
    second.operands[0] = second.inputs[1]
    kernel.verify_()
    with pytest.raises(TreadleError, match=r"TR304.*it shares no operand with"):
        loop_nest(kernel)
