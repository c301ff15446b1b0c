"""set-dispatch-groups: the text shows what becomes one kernel, a user may say it, and what cannot be is refused at its line."""

import re
from random import Random

import numpy as np
import pytest
from transforms.tensor.dispatch_programs import Array, compare, host_ops, kernels, lower
from transforms.tensor.test_form_dispatches import example, matmul, normal
from transforms.tensor.test_random_graphs import Graph
from transforms.tensor.test_siblings import roots, sharing

from treadle.dialects import dispatch
from treadle.errors import TreadleError
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import tensor_passes


def grouped(text: str) -> str:
    """The text behind set-dispatch-groups."""
    module = parse_module(text, "test.mlir")
    passes = tensor_passes(target_spec("sm_90a"), CompileOptions())
    last = [item.name for item in passes].index("set-dispatch-groups")
    run_passes(module, passes[: last + 1])
    return print_module(module)


def groups(text: str) -> list[str]:
    """The attributes that a text has, in its order."""
    return re.findall(r"#dispatch\.group<(.*?)>", text)


def launches(text: str, *inputs: Array) -> int:
    """How many kernels a text runs, after its numbers are compared."""
    return len(host_ops(compare(text, *inputs), dispatch.LaunchOp))


def group(value: str) -> str:
    return f"{{dispatch.group = #dispatch.group<{value}>}}"


def chain(first: str, between: str, last: str, returned: str = "%u") -> str:
    """A product, two elementwise operations of its result and a product of theirs, with an attribute dictionary each ("" for none)."""
    type_ = "tensor<7x7xf32>"
    dictionaries = [value and group(value) for value in (first, between, last)]
    p, q = matmul(0, "%a", "%b", 7, 7, 7), matmul(1, "%t", "%b", 7, 7, 7)
    body = p.replace("linalg.matmul", f"linalg.matmul {dictionaries[0]}")
    body += f"  %s = math.tanh %p0 : {type_}\n  %t = arith.addf %s, %a {dictionaries[1]} : {type_}\n"
    body += q.replace("linalg.matmul", f"linalg.matmul {dictionaries[2]}") + f"  %u = arith.negf %p1 : {type_}\n"
    return f"func.func @f(%a: {type_}, %b: {type_}) -> {type_} {{\n{body}  return {returned} : {type_}\n}}"


SQUARES = normal(7, 7), normal(7, 7)


def test_the_text_shows_the_groups() -> None:
    assert groups(grouped(example("linear_bias_gelu.mlir"))) == ["g0 = root", "g0 = consumer"]
    assert groups(grouped(chain("", "", ""))) == ["g0 = root", "g0 = consumer", "g0 = consumer", "g1 = root", "g1 = consumer"]


@pytest.mark.parametrize("name", ["linear_bias_gelu.mlir", "softmax.mlir"])
def test_the_text_says_it_all(name: str) -> None:
    """Behind the pass the attributes decide alone: text that has them is grouped as it says, and lowered as what it was printed from."""
    text = grouped(example(name))
    assert grouped(text) == text
    assert print_module(lower(text)[0]) == print_module(lower(example(name))[0])


def test_what_a_user_takes_apart_stays_apart() -> None:
    assert launches(chain("", "", ""), *SQUARES) == 2
    assert launches(chain("", "mine = root", ""), *SQUARES) == 3
    assert groups(grouped(chain("", "mine = root", "")))[:3] == ["g0 = root", "g0 = consumer", "mine = root"]


def test_what_has_no_attribute_may_join_the_users_groups() -> None:
    assert groups(grouped(chain("x = root", "", "g0 = root"))) == ["x = root", "x = consumer", "x = consumer", "g0 = root", "g0 = consumer"]
    # what stands between them joins, or the last would read nothing of its group
    far = chain("x = root", "", "", "%t").replace("return", f"%v = arith.negf %t {group('x = consumer')} : tensor<7x7xf32>\n  return")
    assert groups(grouped(far.replace("return %t", "return %v"))) == ["x = root", *["x = consumer"] * 3]


def test_a_user_joins_what_the_machine_would_not() -> None:
    sizes = (640, 512, 64)
    text = sharing(2, *sizes)
    assert len(kernels(lower(text)[0])) == 1  # shared by text, two launches
    assert len(host_ops(lower(text)[0], dispatch.LaunchOp)) == 2
    asked = re.sub(r"linalg\.generic \{", "linalg.generic {dispatch.group = #dispatch.group<both = root>, ", text)
    (kernel,) = kernels(lower(asked)[0])
    assert roots(kernel) == 2
    assert launches(asked.replace("640x", "9x"), normal(9, 64), normal(512, 64), normal(512, 64)) == 1


def test_a_user_has_an_expensive_operand_recomputed() -> None:
    type_ = "tensor<7x7xf32>"
    text = f"""func.func @f(%a: {type_}, %b: {type_}) -> ({type_}, {type_}) {{
      %t = math.tanh %a ATTR : {type_}
      {matmul(0, "%t", "%b", 7, 7, 7)} {matmul(1, "%b", "%t", 7, 7, 7)}
      return %p0, %p1 : {type_}, {type_} }}"""
    assert launches(text.replace("ATTR", ""), *SQUARES) == 3
    both = text.replace("ATTR", group("x = producer, y = producer"))
    both = both.replace("linalg.matmul ins(%t", f"linalg.matmul {group('x = root')} ins(%t")
    both = both.replace("linalg.matmul ins(%b", f"linalg.matmul {group('y = root')} ins(%b")
    assert launches(both, *SQUARES) == 2
    with pytest.raises(TreadleError, match=r"TR305: dispatch.group of 'tanh': matmul \(line \d+\) reads it, where no group computes it"):
        lower(both.replace(", y = producer", ""))


def test_a_copy_that_a_user_wants_is_not_folded() -> None:
    text = f"""func.func @f(%a: tensor<5x7xf32>, %b: tensor<5x9xf32>) -> tensor<7x9xf32> {{
      %e = tensor.empty() : tensor<7x5xf32>
      %t = linalg.transpose ins(%a : tensor<5x7xf32>) outs(%e : tensor<7x5xf32>) permutation = [1, 0] ATTR
      {matmul(0, "%t", "%b", 7, 9, 5)}
      return %p0 : tensor<7x9xf32> }}"""
    arrays = normal(5, 7), normal(5, 9)
    assert launches(text.replace("ATTR", ""), *arrays) == 1
    assert launches(text.replace("ATTR", group("copy = root")), *arrays) == 2


def test_each_call_and_each_iteration_has_groups_of_its_own() -> None:
    type_ = "tensor<7x7xf32>"
    text = f"""
      func.func private @g(%x: {type_}, %b: {type_}) -> {type_} {{
        {matmul(0, "%x", "%b", 7, 7, 7).replace("linalg.matmul", f"linalg.matmul {group('m = root')}")}
        return %p0 : {type_} }}
      func.func @f(%a: {type_}, %b: {type_}) -> {type_} {{
        %c0 = arith.constant 0 : index %c1 = arith.constant 1 : index %c2 = arith.constant 2 : index
        %r = scf.for %i = %c0 to %c2 step %c1 iter_args(%v = %a) -> ({type_}) {{
          %w = func.call @g(%v, %b) : ({type_}, {type_}) -> {type_}
          scf.yield %w : {type_}
        }}
        %s = func.call @g(%r, %b) : ({type_}, {type_}) -> {type_}
        return %s : {type_} }}"""
    assert launches(text, *SQUARES) == 3
    assert sorted(groups(grouped(text))) == ["m.c0.i0 = root", "m.c0.i1 = root", "m.c1 = root"]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (
            chain("x = root", "", "x = root"),
            13,
            r"TR304.*'x' around matmul \(line 6\).*'matmul': it needs addf \(line 8\).*no kernel form builds chains",
        ),
        (chain("x = root", "", "x = consumer"), 13, "TR304.*'matmul': it is a reduction or contraction itself"),
        (chain("x = root", "x = producer", ""), 8, "TR304.*'addf': nothing in the group reads it"),
        (
            chain("x = root", "", "").replace("negf %p1", f"negf %p1 {group('x = consumer')}"),
            14,
            "TR304.*'negf': it reads nothing that the",
        ),
        (chain("", "x = consumer", ""), 8, "TR305.*'addf': group 'x' has no root"),
        (chain("", "x = root, y = consumer", ""), 8, "TR305.*both 'x' and 'y' compute it"),
    ],
)
def test_what_cannot_be_is_refused_at_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(TreadleError, match=message) as caught:
        lower(text)
    assert caught.value.location is not None
    assert caught.value.location.line == line
    assert caught.value.fix


def test_groups_that_wait_for_each_other() -> None:
    """%t is computed from %m and needed by %u; %u is asked into the kernel of %m."""
    type_ = "tensor<7x7xf32>"
    reduced = f"linalg.reduce {{ arith.addf }} ins(%p0 : {type_}) outs(%f : tensor<7xf32>) dimensions = [1]"
    text = f"""func.func @f(%a: {type_}, %b: {type_}) -> {type_} {{
{matmul(0, "%a", "%b", 7, 7, 7).replace("linalg.matmul", f"linalg.matmul {group('x = root')}")}
  %e = tensor.empty() : tensor<7xf32>
  %f = linalg.fill ins(%zero0 : f32) outs(%e : tensor<7xf32>) -> tensor<7xf32>
  %s = {reduced}
  %w = linalg.broadcast ins(%s : tensor<7xf32>) outs(%a : {type_}) dimensions = [1]
  %u = arith.subf %p0, %w {group("x = consumer")} : {type_}
  return %u : {type_} }}"""
    assert launches(text.replace(group("x = consumer"), ""), *SQUARES) == 2
    with pytest.raises(
        TreadleError, match=r"TR304.*'subf': it needs reduce \(line 10\), which is computed from results of this group elsewhere"
    ):
        lower(text)


@pytest.mark.parametrize(
    "op",
    [
        f"%r = linalg.fill {group('x = root')} ins(%z : f32) outs(%e : tensor<7x7xf32>) -> tensor<7x7xf32>\n"
        "%s = linalg.matmul ins(%a, %a : tensor<7x7xf32>, tensor<7x7xf32>) outs(%r : tensor<7x7xf32>) -> tensor<7x7xf32>",
        f"%r = tensor.collapse_shape %a [[0, 1]] {group('x = root')} : tensor<7x7xf32> into tensor<49xf32>\n"
        "%s = tensor.expand_shape %r [[0, 1]] output_shape [7, 7] : tensor<49xf32> into tensor<7x7xf32>",
        f"%s = tensor.concat dim(0) %h, %h {group('x = root')} : (tensor<7x7xf32>, tensor<7x7xf32>) -> tensor<14x7xf32>",
        "%s = arith.addf %a, %a {dispatch.group = 3 : i64} : tensor<7x7xf32>",
    ],
)
def test_attributes_where_no_kernel_is_formed(op: str) -> None:
    result = "tensor<14x7xf32>" if "concat" in op else "tensor<7x7xf32>"
    text = f"""func.func @f(%a: tensor<7x7xf32>) -> {result} {{
      %z = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<7x7xf32>
      %h = arith.negf %a : tensor<7x7xf32>
      {op}
      return %s : {result} }}"""
    with pytest.raises(TreadleError, match="TR305") as caught:
        lower(text)
    assert caught.value.location is not None
    assert caught.value.location.line == 5


def test_a_softmax_asked_into_one_kernel_is_one() -> None:
    """All its steps carry the attribute, the elementwise ones too."""
    text = f"""func.func @f(%a: tensor<7x9xf32>) -> tensor<7x9xf32> {{
      %e = tensor.empty() : tensor<7x9xf32>
      %s = linalg.softmax {group("all = root")} dimension(1) ins(%a : tensor<7x9xf32>) outs(%e : tensor<7x9xf32>) -> tensor<7x9xf32>
      return %s : tensor<7x9xf32> }}"""
    assert launches(text, normal(7, 9)) == 1


def test_a_contraction_between_reductions_is_refused() -> None:
    text = f"""func.func @f(%a: tensor<7x7xf32>, %b: tensor<7x7xf32>) -> tensor<7xf32> {{
{matmul(0, "%a", "%b", 7, 7, 7).replace("linalg.matmul", f"linalg.matmul {group('x = root')}")}
  %e = tensor.empty() : tensor<7xf32>
  %f = linalg.fill ins(%zero0 : f32) outs(%e : tensor<7xf32>) -> tensor<7xf32>
  %s = linalg.reduce {{ arith.addf }} ins(%p0 : tensor<7x7xf32>) outs(%f : tensor<7xf32>) dimensions = [1] {group("x = root")}
  return %s : tensor<7xf32> }}"""
    with pytest.raises(TreadleError, match=r"TR304.*it is computed from line \d+, another root: no kernel form builds such chains"):
        lower(text)


@pytest.mark.parametrize("role", ["owner", "root, x = root", "root y = root", ""])
def test_roles_that_there_are_not(role: str) -> None:
    with pytest.raises(TreadleError, match="TR101"):
        parse_module(chain(f"x = {role}", "", ""), "test.mlir")


def test_the_machine_says_what_waits_for_memory() -> None:
    """Three products of one narrow operand: 205 operations for each byte, which an sm_90a computes while it waits, a gfx950 does not."""
    text = sharing(3, 2048, 96, 1024).replace("f32", "f16")
    counts = {target: len(host_ops(lower(text, target)[0], dispatch.LaunchOp)) for target in ("sm_90a", "gfx950")}
    assert counts == {"sm_90a": 2, "gfx950": 1}


@pytest.mark.parametrize("seed", range(60))
def test_any_attributes_are_right_or_refused(seed: int) -> None:
    """Attributes strewn over a random program: it is refused with a line, or computes what it did."""
    random = Random(seed)
    graph = Graph(seed, dynamic=False)
    text = graph.text(steps=4 + seed % 9)

    def strewn(match: re.Match[str]) -> str:
        if random.random() < 0.5:
            return match.group(0)
        names = random.sample(["x", "y", "z"], random.choice((1, 1, 1, 2)))
        role = random.choice(("root", "root", "consumer", "producer"))
        memberships = ", ".join(f"{name} = {role if number == 0 else 'producer'}" for number, name in enumerate(names))
        return f"{match.group(0)} {group(memberships)}"

    text = re.sub(r"(?<== )linalg\.matmul|(?<== )(arith\.(addf|mulf|subf|maximumf)|math\.tanh|arith\.negf) %\w+(, %\w+)?", strewn, text)
    inputs = [np.random.default_rng(seed + i).standard_normal(shape) * 0.5 for i, (_, shape) in enumerate(graph.arguments)]
    try:
        compare(text, *inputs)
    except TreadleError as error:
        assert error.code in ("TR304", "TR305")
        assert error.location is not None
