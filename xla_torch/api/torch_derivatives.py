"""torch's own derivatives of an exported program, as programs: what its graph says of gradients and its values do not.

`detach`, `torch.no_grad`, the padding of an embedding, the norm at 0: autograd knows of them while the program is as torch
exported it, before it is decomposed. So the way back is traced from that, when a derivative is first asked for, and becomes a
computation by the same rules. Second derivatives are those of its ops: torch's own of such a graph would be wrong, since it
keeps statistics beside what they are statistics of, as if the one did not depend on the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from ..autodiff.given import GivenPullback
from ..core.errors import DifferentiationError, UnsupportedError
from ..core.shape import Shape
from ..core.types import PRED
from ..functions import Broadcast
from ..functions.hlo_builder import XlaOp
from ..hlo.derivatives import Lost, Mask, Pullback, Pushforward, Stored, bringing
from ..hlo.inference import has_effect
from ..hlo.ir import Computation
from ..opcodes import control
from ..storage import torch_graphs, torch_private
from . import torch_graph, torch_stops
from .builder import XlaBuilder
from .torch_composites import becomes_composite
from .torch_value_sizes import depends_on_values


@dataclasses.dataclass(frozen=True)
class Input:
    """What a graph takes: a tensor's stand-in or a constant of the trace, the number of the program's parameter that it is, or
    the tensor that it always is, and whether there is a gradient of it."""

    value: Any
    parameter: int | None = None
    tensor: torch.Tensor | None = None
    active: bool = False
    is_buffer: bool = False


@dataclasses.dataclass(frozen=True)
class Graph:
    """A program as torch has it: a module over flat inputs, and for each of the program's results the number of the module's own
    that it is, or None where no gradient comes from there. Those are buffers that the module replaces: `after` says whether it
    writes into its input, and the number of that, or of the module's result."""

    module: torch.fx.GraphModule
    inputs: Sequence[Input]
    results: Sequence[int | None]
    after: Mapping[int, tuple[bool, int]] = dataclasses.field(default_factory=dict)

    def vjp(self, decompositions: dict[Any, Callable[..., Any]], first: dict[Any, Callable[..., Any]]) -> tuple[Graph, Graph]:
        """The way forward, from the inputs to the results, and the way back, from the inputs and a cotangent for each result to a
        gradient for each parameter: both of one trace, so that what the way back needs of the way forward is the same op. What
        is in `first` is decomposed before it is differentiated. Whatever torch raises passes through."""
        if self.depends_on_values():
            raise UnsupportedError("torch cannot trace a backward pass through sizes that depend on values")
        values = [one.value for one in self.inputs]
        active = [k for k, one in enumerate(self.inputs) if one.active]
        outputs: list[Any] = [output.meta["val"] if isinstance(output, torch.fx.Node) else None for output in self._outputs()]
        moving = {k: r for k, r in enumerate(self.results) if r is not None and outputs[r].is_floating_point()}
        flat = torch_graphs.Decomposing(self.module, {**first, **torch_stops.without_autograd()})

        vjp: Any = torch.func.vjp

        def back(*given: Any) -> Any:
            def forward(*moved: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
                arguments = [v.clone() if isinstance(v, torch.Tensor) else v for v in given[:len(values)]]
                for k, value in zip(active, moved, strict=True):
                    arguments[k] = value.clone()
                results = flat.run(*arguments)
                places = [self.after[k] if r is None else (False, r) for k, r in enumerate(self.results)]
                every = [(arguments if is_written else results)[number] for is_written, number in places]
                return [results[r] for r in moving.values()], every

            _, pull, every = vjp(forward, *(given[k] for k in active), has_aux=True)
            return [*every, *pull(list(given[len(values):]))]

        cotangents = [torch_graphs.stand_in(outputs[r]) for r in moving.values()]
        has_composites = any(becomes_composite(node.target) for node in self.module.graph.nodes)
        module = torch_graphs.traced(back, [*values, *cotangents], decompositions, has_composites)
        count = sum(one.parameter is not None for one in self.inputs)
        inputs = [*self.inputs, *(Input(ct, count + k) for ct, k in zip(cotangents, moving, strict=True))]
        place = {self.inputs[k].parameter: number for number, k in enumerate(active)}
        ends = torch_graphs.split_results(module, len(self.results), len(values))
        return (Graph(ends[0], inputs, range(len(self.results))),
                Graph(ends[1], inputs, [place.get(k) for k in range(count)]))

    def depends_on_values(self) -> bool:
        """Whether sizes or numbers in it depend on values."""
        return any(map(depends_on_values, self._every()))

    def has_numbers(self) -> bool:
        """Whether numbers in it depend on values, and no sizes do."""
        found = [value for value in self._every() if depends_on_values(value)]
        return bool(found) and not any(isinstance(value, torch.Tensor) for value in found)

    def _every(self) -> Iterator[Any]:
        """All values in it, as far as they are known."""
        return (value for node in self.module.graph.nodes for value in torch_private.pytree.tree_leaves(node.meta.get("val")))

    def without_buffers(self) -> Graph:
        """The same graph, in which buffers have no gradients."""
        inputs = [dataclasses.replace(one, active=one.active and not one.is_buffer) for one in self.inputs]
        return dataclasses.replace(self, inputs=inputs)

    def _outputs(self) -> Sequence[Any]:
        return next(iter(reversed(self.module.graph.nodes))).args[0]  # pyright: ignore[reportReturnType]

    def computation(self, name: str, parameters: Sequence[Shape], results: Sequence[Shape]) -> Computation:
        """The graph as a computation in canonical form; results that no gradient comes to are 0."""
        torch_graph.check(self.module.graph)
        builder = XlaBuilder(name)
        given = [builder.parameter(k, shape) for k, shape in enumerate(parameters)]
        nodes = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        inputs = {node.name: self._input(builder, one, given) if node.users else None
                  for node, one in zip(nodes, self.inputs, strict=True)}
        found = torch_graph.build(builder, self.module.graph, inputs, lambda name: getattr(self.module, name))
        made = [Broadcast(builder.constant(0, shape.element_type), shape.dimensions) if place is None else found[place]
                for place, shape in zip(self.results, results, strict=True)]
        return builder.build(builder.add(control.tuple_, made)).program.authored

    def _input(self, builder: XlaBuilder, one: Input, given: Sequence[XlaOp]) -> Any:
        if one.parameter is not None:
            return given[one.parameter]
        return one.value if one.tensor is None else torch_graph.constant(builder, one.tensor, "a constant")


class TorchDerivatives(GivenPullback):
    """The derivatives of a computation that torch exported, as torch has them. `rules` are the operators among its own that say
    of gradients what their values do not, and `unmarked` those of them that the computation does not know of (see `torch_stops`).
    Where there are none of these, and torch's way back is not to be had, the ops' is as good.
    `functions` are classes of torch.autograd.Function whose `backward` torch did not export, `reason` says why it could not be
    traced: derivatives are those of what their `forward` does, with a warning."""

    rules: tuple[str, ...] = ()
    _missing: frozenset[int | None] = frozenset()
    """The parameters that torch has no derivatives with respect to, though the results depend on them."""
    _ahead: Computation | None = None
    """The way forward as it was traced with the way back. None where the computation has checks, which that trace has not."""

    def __init__(self, computation: Computation, graph: Graph, rules: Sequence[str], unmarked: Sequence[str],
                 decompositions: Callable[[], tuple[dict[Any, Any], dict[Any, Any]]], functions: Sequence[str] = (),
                 reason: str = ""):
        super().__init__(computation, self._traced)
        self._graph, self.rules, self._decompositions = graph, (*functions, *rules), decompositions
        self._unmarked, self._functions, self._reason = tuple(unmarked), tuple(functions), reason

    def _traced(self) -> Computation:
        arguments, results = self._arguments, self._results
        floating = [s if s.element_type.is_floating else s.with_element_type(PRED) for s in arguments]
        cotangents = [s if s.element_type.is_floating else s.with_element_type(PRED) for s in results]
        with torch_private.undisturbed():
            try:
                ahead, back = self._graph.vjp(*self._decompositions())
            except RuntimeError:  # a batch normalisation has no derivative with respect to its running statistics
                ahead, back = self._graph.without_buffers().vjp(*self._decompositions())
                self._missing = frozenset(one.parameter for one in self._graph.inputs if one.is_buffer and one.active)
            found = back.computation(f"{self._computation.name}_back", [*arguments, *cotangents], floating)
            made = ahead.computation(self._computation.name, arguments, results)
            is_same = [leaf.without_layout() for leaf in made.root.shape.leaves()] == results
            if is_same and not any(map(has_effect, self._computation.instructions)):
                self._ahead = made
        unsaid = (*self._functions, *self._unmarked)
        return bringing(found, Lost(unsaid, "the way back of a module that torch exported") if unsaid else None)

    def pullback(self, needed: Mask, demanded: Mask) -> Pullback | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._warn()
        if not self._is_there():
            return None
        self._require(needed)
        return super().pullback(needed, demanded)

    def pushforward(self, present: Mask) -> Pushforward | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._warn()
        if not self._is_there():
            return None
        self._require(present)
        return super().pushforward(present)

    def _forward(self) -> Computation:
        return super()._forward() if self._ahead is None else bringing(self._ahead, self)

    def _warn(self) -> None:
        if self._functions:
            why = f", and it cannot be traced: {self._reason}" if self._reason else ""
            Lost(self._functions, f"torch.export keeps nothing of the backward of a torch.autograd.Function{why}",
                 "where it says what its forward says, ignore xla_torch.core.errors.LostDerivatives").warn(self._computation.name)

    def _require(self, flags: Mask) -> None:
        """Raise DifferentiationError where torch has no derivative with respect to one of these arguments."""
        for number, flag in enumerate(flags):
            if flag and number in self._missing:
                name = self._computation.parameters[number].name
                raise DifferentiationError(f"torch has no derivative with respect to the buffer {name}",
                                           subject=self._computation.name, hint=_BY_OPS)

    def are_refused(self) -> bool:
        """Whether numbers that depend on values are the reason for which there are neither torch's nor those of the ops."""
        return bool(self._unmarked) and self._graph is not None and self._graph.has_numbers()

    def _is_there(self) -> bool:
        try:
            return self._back is not None
        except Exception as error:  # whatever torch raises, or an operator that has no rule
            if not self._unmarked:
                return False
            raise DifferentiationError(
                "torch's derivative of the program is not to be had", subject=self._computation.name,
                got=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}",
                hint=f"{_BY_OPS}, which do not know of: {', '.join(self._unmarked)}") from error

    def __getstate__(self) -> dict[str, Any]:
        back = Stored.of_computation(self._back) if self._is_there() else None
        ahead = None if self._ahead is None else Stored.of_computation(self._ahead)
        return {"computation": Stored.of_computation(self._computation), "back": back, "ahead": ahead, "rules": self.rules,
                "unmarked": self._unmarked, "missing": self._missing, "functions": self._functions,
                "reason": self._reason}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._computation, self.rules, back = state["computation"].entry(), state["rules"], state["back"]
        self._missing, self._functions, self._unmarked = state["missing"], state["functions"], state["unmarked"]
        self._reason = state["reason"]
        self._given = _lost if back is None else back.entry
        self._ahead = None if state["ahead"] is None else state["ahead"].entry()


_BY_OPS = "from_torch(..., derivatives='xla') differentiates the ops"


def _lost() -> Computation:
    raise DifferentiationError("the backward pass was not traced before the program was pickled")
