"""Compare a program that was traced with the values of an example with the model itself, on that example."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument

from ..core.errors import UnsupportedError
from ..hlo.checks import Assumption
from ..storage import inline_regions
from ..storage.kept_state import keeping_nothing
from ..storage.torch_private import Operator, pytree
from ..storage.value_reads import ASSERTIONS
from .torch_asserted_sizes import line_of

_HINT = "use torch.where or torch.cond for the decisions, or convert in eval mode"


def own_random_numbers(*examples: Any) -> contextlib.AbstractContextManager[Any]:
    """A block after which torch's generators are as they were before."""
    return torch.random.fork_rng(
        devices={leaf.get_device() for leaf in pytree.tree_leaves(examples) if isinstance(leaf, torch.Tensor) and leaf.is_cuda})


def verify(exported: Any, model: torch.nn.Module, examples: Callable[[], tuple[Sequence[Any], Mapping[str, Any]]],
           must_run: bool = True) -> None:
    """Raise UnsupportedError unless the example fulfils all that a program asserts, and has the model's results.

    Both run once in eager torch, on copies. What depends on random numbers is left out. Without `must_run`, an example on which
    one of them raises is left out as well.
    """
    states = [_state(model) for _ in range(2)]
    try:
        run, given, found = _checked(exported, states[0], examples)
        if run.draws:
            return
        args, kwargs = examples()
        with keeping_nothing(model):
            made = torch.func.functional_call(model, states[1], tuple(args), dict(kwargs))
    except Exception:
        if must_run:
            raise
        return
    expected = iter(pytree.tree_leaves(made))
    for spec, value in zip(exported.graph_signature.output_specs, found, strict=True):
        if spec.kind is OutputKind.USER_OUTPUT:
            _compare(value, next(expected), spec.arg.name)
        elif spec.kind in WRITTEN:
            _compare(value, states[1][spec.target], spec.target)
    for spec, value in zip(exported.graph_signature.input_specs, given, strict=True):
        if spec.kind is InputKind.BUFFER and isinstance(spec.arg, TensorArgument):
            _compare(value, states[1][spec.target], spec.target)


def _state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Copies of the weights and buffers by all their names. Names of one tensor share a copy."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    copies = {id(held): _copied(held) for _, held in named}
    return {name: copies[id(held)] for name, held in named}


def changes_results(changed: Sequence[str], model: torch.nn.Module,
                    examples: Callable[[], tuple[Sequence[Any], Mapping[str, Any]]]) -> bool:
    """Whether a second call of a model with the same arguments, buffers and random numbers has other results, as a call has
    changed these attributes."""
    if not changed or any(name in changed for name, _ in model.named_parameters()):
        return bool(changed)
    made = list[Any]()
    try:
        with keeping_nothing(model):
            for _ in range(2):
                state = _state(model)
                args, kwargs = examples()
                with own_random_numbers(args, kwargs):
                    made.append(pytree.tree_leaves(torch.func.functional_call(model, state, tuple(args), dict(kwargs))))
        for found, expected in zip(*made, strict=True):
            _compare(found, expected, "")
    except UnsupportedError:
        return True
    except Exception:  # whatever the model raises without the trace
        return False
    return False


WRITTEN = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)
"""Results that are weights after the call."""


def check_sizes(exported: Any, examples: Callable[[], tuple[Sequence[Any], Mapping[str, Any]]]) -> None:
    """Raise UnsupportedError if the example does not have a size that torch took for another: torch knows of a size that a value
    says neither that it is 1 nor how many there are, so that it never broadcasts or squeezes it."""
    is_known = any(known.lower == known.upper for known in exported.range_constraints.values())
    if is_known or any(map(_squeezes, inline_regions.with_regions(exported.graph_module))):
        _checked(exported, {}, examples)


def _squeezes(module: torch.fx.GraphModule) -> bool:
    """Whether a graph drops dimensions of size 1 of values that have sizes which values say."""
    return any(isinstance(size, torch.SymInt) for node in module.graph.nodes if str(node.target).startswith("aten.squeeze.")
               for size in node.args[0].meta["val"].shape)


def _checked(exported: Any, state: Mapping[str, Any], examples: Callable[[], tuple[Sequence[Any], Mapping[str, Any]]]
             ) -> tuple[_Run, list[Any], Any]:
    """A run of the program on copies of its example, which checks what it asserts; what was given, and the results."""
    args, kwargs = examples()
    leaves = iter(pytree.tree_leaves((tuple(args), dict(kwargs))))
    held = {**exported.constants, **exported.state_dict, **state}
    given = [next(leaves) if spec.kind is InputKind.USER_INPUT else _copied(held[spec.target])
             for spec in exported.graph_signature.input_specs]
    run = _Run(exported.graph_module)
    return run, given, run.run(*given, enable_io_processing=False)


def _copied(value: Any) -> Any:
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(value.detach().clone(), value.requires_grad)
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def _compare(found: Any, expected: Any, name: str) -> None:
    if not isinstance(expected, torch.Tensor) or not isinstance(found, torch.Tensor):
        return
    try:
        torch.testing.assert_close(found.detach(), expected.detach(), equal_nan=True, check_stride=False)
    except AssertionError as error:
        raise UnsupportedError("the traced program has another result than the model on its own example", subject="from_torch",
                               got=f"{name}: {str(error).splitlines()[-1]}", hint=_HINT) from error


class _Run(torch.fx.Interpreter):
    """A run of an exported graph in eager torch, which reads assertions itself: on a GPU a failed one would end the process."""

    def __init__(self, module: torch.fx.GraphModule, drawn: Sequence[bool] = ()):
        super().__init__(module)
        inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._drawn = {node for node, is_drawn in zip(inputs, drawn, strict=False) if is_drawn}
        for node in module.graph.nodes:
            draws = isinstance(node.target, Operator) and torch.Tag.nondeterministic_seeded in node.target.tags
            within = inline_regions.is_region(node) and self._within(node).draws
            if draws or within or self._drawn.intersection(node.all_input_nodes):
                self._drawn.add(node)
        self.draws = bool(self._drawn)

    def _within(self, node: torch.fx.Node) -> _Run:
        """A run of the graph that a node runs."""
        inner, given = inline_regions.parted(self.module, node)  # pyright: ignore[reportArgumentType]
        return _Run(inner, [one in self._drawn for one in given])

    def run_node(self, n: torch.fx.Node) -> Any:
        if inline_regions.is_region(n):
            args, _ = self.fetch_args_kwargs_from_env(n)
            return n.target(*(self._within(n).run if isinstance(one, torch.fx.GraphModule) else one  # pyright: ignore
                              for one in args))
        if n.target not in ASSERTIONS:
            return self._of_known_rank(n, super().run_node(n))
        (holds, label), _ = self.fetch_args_kwargs_from_env(n)
        if n not in self._drawn and not bool(holds):
            assumption = Assumption.of_label(label)
            raise UnsupportedError("the example does not fulfil an assumption of its own trace", subject="from_torch",
                                   got=assumption or label, where=assumption.where if assumption else "", hint=_HINT)
        return None

    def _of_known_rank(self, node: torch.fx.Node, found: Any) -> Any:
        traced = node.meta.get("val")
        if isinstance(found, torch.Tensor) and isinstance(traced, torch.Tensor) and found.ndim != traced.ndim:
            raise UnsupportedError("the example has a size of 1 where its own trace has another", subject="from_torch",
                                   got=f"{list(found.shape)} of {node.target}", where=line_of(node), hint=_HINT)
        return found
