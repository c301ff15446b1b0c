"""Taking regions out of a graph: each is written, compiled, and replaced by one operator.

What is refused, or not worth it, stays as it is, to the last view: regions are brought into their shapes and judged in a copy of the graph.
"""

import operator
from collections.abc import Mapping, Sequence

import torch
from torch import fx

from treadle.errors import TORCH_STRICT, TreadleError
from treadle.records import dataclass
from treadle.torch import programs
from treadle.torch.channels_last import lay_back, lay_out
from treadle.torch.choice import Verdict, verdict
from treadle.torch.flattening import flatten
from treadle.torch.fused import fused_nodes
from treadle.torch.kept_reports import keep
from treadle.torch.library import flop_of
from treadle.torch.memory import memory_order, shape_of
from treadle.torch.padded import pad_before_permutations
from treadle.torch.programs import Recipe, recipe_of
from treadle.torch.recovered import put_back, recover
from treadle.torch.region_calls import REGION, declare
from treadle.torch.regions import Region, find, operands, outside_of, permuted, subgraph, values_of
from treadle.torch.reports import RegionRecord
from treadle.torch.returned_views import erase_views, returned, shown_as
from treadle.torch.settings import Settings
from treadle.torch.shown_results import text_of
from treadle.torch.unsupported import Unsupported
from treadle.torch.writer import write


@dataclass(slots=True)
class _Candidate:
    """A region on its way: which of its operands its program reads and what it is compiled from once it is written, or why it is left."""

    region: Region
    arguments: tuple[int, ...] = ()
    recipe: Recipe | None = None
    reason: str = ""
    verdict: Verdict = Verdict()


def take(graph: fx.Graph, settings: Settings) -> list[RegionRecord]:
    """Replace the graph's regions by programs; what became of each. Raises TR121 for one that is left where the settings are strict."""
    fused = fused_nodes(graph)
    for node, reason in fused if settings.strict else ():
        raise TreadleError(TORCH_STRICT, node=node.name, reason=reason)
    pad_before_permutations(graph)
    recovered = recover(graph)
    laid = lay_out(graph, as_inductor=settings.rest == "inductor")
    trial = _copy(graph)
    candidates = [_candidate(region, settings) for region in _flat(trial, find(trial))]
    programs.build(candidate.recipe for candidate in candidates if candidate.recipe is not None)
    for candidate in candidates:
        if candidate.recipe is not None:
            candidate.reason = programs.refusal(candidate.recipe.digest) or ""
            _judge(candidate, settings)
        if candidate.reason and settings.strict:
            lay_back(laid, ())
            put_back(graph, recovered, ())
            raise TreadleError(TORCH_STRICT, node=candidate.region.anchor.name, reason=candidate.reason)
    records = [*map(_record, candidates), *(_left_whole(node, reason) for node, reason in fused)]
    name = keep(records) if records else ""
    chosen = [pair for pair in zip(candidates, find(graph), strict=True) if not pair[0].reason]
    regions = _flat(graph, [region for _, region in chosen])
    read = [list(operands(region)) for region in regions]
    now: dict[fx.Node, fx.Node] = {}
    for (candidate, _), region, outside in zip(chosen, regions, read, strict=True):
        if candidate.recipe is not None:
            inputs = [outside[number] for number in candidate.arguments]
            now.update(_replace(graph, region, inputs, f"{candidate.recipe.digest}.{name}", now))
    taken = {region.anchor for region in regions}
    lay_back(laid, taken)
    put_back(graph, recovered, taken)
    graph.eliminate_dead_code()
    return records


def _copy(graph: fx.Graph) -> fx.Graph:
    """A graph of the same nodes, in the same order."""
    copy = fx.Graph()
    copy.output(copy.graph_copy(graph, {}))
    return copy


def _flat(graph: fx.Graph, regions: Sequence[Region]) -> list[Region]:
    """Regions in their anchors' shapes: all of them before any is looked at, as one reads what another one shows."""
    return [flatten(graph, region) for region in regions]


def _judge(candidate: _Candidate, settings: Settings) -> None:
    """Leave what the settings' choice is against."""
    if candidate.recipe is None or candidate.reason:
        return
    candidate.verdict = verdict(candidate.region, programs.program(candidate.recipe.digest), candidate.recipe, settings)
    candidate.reason = candidate.verdict.reason


def _candidate(region: Region, settings: Settings) -> _Candidate:
    found = _Candidate(region)
    try:
        target = _target(region, settings)
        written = write(subgraph(region)[0])
        found.arguments = written.arguments
        found.recipe = recipe_of(written.module, target, settings.compile_options())
        programs.begin(found.recipe)
    except Unsupported as refused:
        found.reason = str(refused)
    return found


def _target(region: Region, settings: Settings) -> str:
    """What to compile for. Raises Unsupported where the tensors are not where programs for it run, or are laid out otherwise."""
    kind = values_of(region.anchor)[0].device.type
    if (settings.target == "sim") != (kind == "cpu") or kind not in ("cpu", "cuda"):
        advice = '; the option "treadle.target": "sim" runs them there' if kind == "cpu" else ""
        raise Unsupported(f"its tensors are on '{kind}', programs for '{settings.target}' run elsewhere{advice}")
    if any(memory_order(node.meta["val"]) is None for node in region.results):
        raise Unsupported("a result that is laid out neither densely in the order of its dimensions nor with channels last")
    return settings.target


def _record(candidate: _Candidate) -> RegionRecord:
    region, anchor = candidate.region, candidate.region.anchor
    has_program = candidate.recipe is not None and programs.refusal(candidate.recipe.digest) is None
    digest = candidate.recipe.digest if candidate.recipe is not None and has_program else ""
    kernels = tuple(kernel.name for kernel in programs.program(digest).manifest.kernels) if digest else ()
    operators = [node for node in region.nodes if node.target is not operator.getitem]
    names = tuple(str(node.target).removeprefix("aten.").removesuffix(".default") for node in operators)
    times = (candidate.verdict.modelled_us, candidate.verdict.replaced_us, candidate.verdict.measured_us)
    said = (not candidate.reason, candidate.reason, kernels, digest)
    return RegionRecord(anchor.name, _where(anchor), names, _shapes(anchor), *said, flop_of(anchor), *times)


def _left_whole(node: fx.Node, reason: str) -> RegionRecord:
    name = str(node.target).removeprefix("aten.").removesuffix(".default")
    return RegionRecord(node.name, _where(node), (name,), _shapes(node), taken=False, reason=reason)


def _shapes(anchor: fx.Node) -> str:
    """`3x17, 17x21 f32`"""
    values = [node.meta["val"] for node in anchor.all_input_nodes if isinstance(node.meta.get("val"), torch.Tensor)]
    return ", ".join("x".join(map(str, shape_of(value))) for value in values) + f" {str(values[-1].dtype).removeprefix('torch.')}"


def _where(node: fx.Node) -> str:
    """The user's line that a node comes from: the last one of its stack that PyTorch kept."""
    frames = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines() if line.strip().startswith("File ")]
    if not frames:
        return ""
    file, line, *_ = frames[-1].removeprefix("File ").split(", ")
    return file.strip('"') + ":" + line.removeprefix("line ")


def _replace(
    graph: fx.Graph, region: Region, inputs: Sequence[fx.Node], name: str, now: Mapping[fx.Node, fx.Node]
) -> dict[fx.Node, fx.Node]:
    """One call in place of the region's nodes, behind the last of them. `name`: the program's and the graph's. `now`: what stands for nodes
    that have given way; those added.
    """
    tensors = [now.get(node, node) for node in inputs]
    added: dict[fx.Node, fx.Node] = {}
    orders = [memory_order(node.meta["val"]) or () for node in region.results]
    results = [node.meta["val"].permute(order) for node, order in zip(region.results, orders, strict=True)]
    declare(name.partition(".")[0], [node.meta["val"] for node in tensors], results)
    views = [returned(node, result) for node, result in zip(region.results, results, strict=True)]
    seen = [result if view is None else view.meta["val"] for view, result in zip(views, results, strict=True)]
    name = ".".join(filter(None, [name, text_of(shown_as(views))]))
    with graph.inserting_after(region.nodes[-1]):
        call = graph.call_function(REGION, (tensors, name))
    call.meta = {**region.nodes[-1].meta, "val": seen}
    call.meta.pop("eager_input_vals", None)  # of the node whose place it takes
    with graph.inserting_before(call.next):
        for number, (node, view, order) in enumerate(zip(region.results, views, orders, strict=True)):
            shown = graph.call_function(operator.getitem, (call, number))
            shown.meta = {**node.meta, "val": seen[number]}
            if view is not None:
                view.replace_all_uses_with(shown)
                erase_views(graph, view, node)
                continue
            if list(order) != sorted(order):
                shown = permuted(graph, shown, [order.index(dim) for dim in range(len(order))])
            added[node] = shown
            node.replace_all_uses_with(shown, delete_user_cb=outside_of(region.nodes))
    for node in reversed(region.nodes):
        graph.erase_node(node)
    return added
