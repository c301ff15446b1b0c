"""Gradients of `treadle.op`'s operators, of the joint graph of a function that says what the operator computes."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.autograd.function import once_differentiable

from treadle.errors import KERNEL_CALL, TreadleError
from treadle.torch.compiled_function import Arguments, CompiledFunction, Differentiable


class Formula:
    """The formula of an operator that computes what a compiled function does: its gradients are an operator of their own, so that PyTorch's
    compiler sees one call.
    """

    def __init__(self, library: torch.library.Library, operator: Any, compiled: CompiledFunction) -> None:
        schema = operator._schema
        self._space, _, short = schema.name.partition("::")
        self._name = f"{short}_backward"
        self._forward, self._compiled = short, compiled
        _, _, arguments = str(schema).partition("(")
        arguments = arguments.rpartition(") -> ")[0]
        library.define(f"{self._name}(Tensor[] results, Tensor[] gradients, int[] wanted, {arguments}) -> Tensor[]")
        library.impl(self._name, self._run, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{self._space}::{self._name}", _shapes_of_gradients, lib=library)

    def _run(self, results: Sequence[Any], gradients: Sequence[Any], wanted: Sequence[int], *arguments: Any, **named: Any) -> list[Any]:
        """The gradients of the wanted tensors among the arguments. Raises TR125, and TR738 for results of another kind than its."""
        given = Arguments(arguments, named)
        found = self._compiled.gradients(given, tuple(wanted))
        if (problem := found.objection(results)) is not None:
            raise TreadleError(KERNEL_CALL, name=self._forward, problem=f"its definition gives {problem}")
        made = dict(zip(found.tensors, found(found.saved(given.tensors, results, ()), gradients), strict=True))
        return [made[number] if number in made else torch.zeros_like(given.tensors[number]) for number in wanted]

    def setup_context(self, ctx: Any, inputs: Any, output: Any, keyword_only_inputs: Any = None) -> None:
        """Keep the arguments and the results."""
        leaves, ctx.inputs = pytree.tree_flatten((tuple(inputs), dict(keyword_only_inputs or {})))
        results = pytree.tree_leaves(output)
        ctx.constants = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        ctx.places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        ctx.save_for_backward(*[leaves[place] for place in ctx.places], *results)

    def backward(self, ctx: Any, *gradients: Any) -> Any:
        """The gradients of the arguments."""
        count, saved = len(ctx.places), ctx.saved_tensors
        leaves = list(ctx.constants)
        for place, tensor in zip(ctx.places, saved[:count], strict=True):
            leaves[place] = tensor
        arguments, named = pytree.tree_unflatten(leaves, ctx.inputs)
        needed = pytree.tree_leaves(tuple(ctx.needs_input_grad))
        wanted = [number for number, place in enumerate(ctx.places) if place < len(needed) and needed[place]]
        operator = getattr(getattr(torch.ops, self._space), self._name)
        flat = [gradient for gradient in pytree.tree_leaves(gradients) if isinstance(gradient, torch.Tensor)]
        made = operator(list(saved[count:]), flat, wanted, *arguments, **named)
        leaves = [None] * len(leaves)
        for number, gradient in zip(wanted, made, strict=True):
            leaves[ctx.places[number]] = gradient
        return tuple(pytree.tree_unflatten(leaves, ctx.inputs)[0])


def _shapes_of_gradients(
    results: Sequence[Any], gradients: Sequence[Any], wanted: Sequence[int], *arguments: Any, **named: Any
) -> list[Any]:
    tensors = [leaf for leaf in pytree.tree_leaves((arguments, named)) if isinstance(leaf, torch.Tensor)]
    return [torch.empty(tensors[number].shape, dtype=tensors[number].dtype, device=tensors[number].device) for number in wanted]


class _Apart(torch.autograd.Function):
    """A call of a compiled function that keeps what is cheaper to keep than to compute again."""

    @staticmethod
    def forward(ctx: Any, made: Differentiable, *tensors: Any) -> Any:
        """The results."""
        values = made.forward(tensors)
        results, kept = values[: made.results], values[made.results :]
        ctx.made, ctx.count = made, len(tensors)
        ctx.save_for_backward(*made.backward.saved(tensors, results, kept))
        ctx.mark_non_differentiable(*[result for number, result in enumerate(results) if number not in made.graded])
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The gradients of the tensors that have them."""
        made: list[Any] = [None] * ctx.count
        backward = ctx.made.backward
        for number, gradient in zip(backward.tensors, backward(ctx.saved_tensors, gradients), strict=True):
            made[number] = gradient
        return None, *made


def apart(compiled: CompiledFunction) -> Callable[..., Any]:
    """Calls of a compiled function that want gradients, on plain tensors."""

    def call(*arguments: Any, **named: Any) -> Any:
        given = Arguments(arguments, named)
        wanted = tuple(number for number, tensor in enumerate(given.tensors) if tensor.requires_grad)
        made = compiled.differentiable(given, wanted)
        return pytree.tree_unflatten(list(_Apart.apply(made, *given.tensors)), made.structure)  # pyright: ignore

    return call
