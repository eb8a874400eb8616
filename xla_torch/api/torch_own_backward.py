"""Derivatives of modules that apply a torch.autograd.Function, whose `backward` torch.export does not keep.

The way back is a program of its own: that of a module which runs the first one and calls `torch.autograd.grad` on it. Such
modules are traced below autograd (`storage/below_autograd.py`), where each `backward` is called before operators are recorded.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..autodiff.given import GivenPullback
from ..core.errors import DifferentiationError, XlaError
from ..hlo.checks import is_check
from ..hlo.derivatives import Lost, Mask, Pushforward, bringing
from ..hlo.ir import Computation
from ..storage import torch_private
from ..storage.applied_functions import hooking, hooks_of
from ..storage.dtypes import torch_dtype

pytree = torch_private.pytree


@dataclasses.dataclass(frozen=True)
class Example:
    """The module that is converted, and what it is called with."""

    module: torch.nn.Module
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


class OwnBackward(GivenPullback):
    """The derivatives of a computation that say what each `backward` says. `rules` are the names of their classes."""

    def __init__(self, computation: Computation, back: Computation, rules: Sequence[str]):
        lost = Lost(tuple(rules), "the way back of a module that torch exported")
        super().__init__(computation, lambda: bringing(back, lost))
        self.rules = tuple(rules)

    def pushforward(self, present: Mask) -> Pushforward:
        if self._decides():
            raise DifferentiationError("a `backward` decides by its cotangent, so that it says nothing of tangents",
                                       subject=self._computation.name, got=", ".join(self.rules),
                                       hint="use torch.where in its `backward`, or xla_torch.grad")
        return super().pushforward(present)

    def _decides(self) -> bool:
        """Whether the way back checks an assumption about its cotangents."""
        moving = set(self._back.parameters[len(self._arguments):])
        for instruction in self._back.instructions:
            if any(operand in moving for operand in instruction.operands):
                if is_check(instruction):
                    return True
                moving.add(instruction)
        return False


class _Run(torch.nn.Module):
    """The module and its way back, in one call: a `backward` may call the module again, with the weights that it was given."""

    def __init__(self, model: torch.nn.Module, call: Callable[..., Any], results: Sequence[int | None]):
        super().__init__()
        self.model, self._call, self._results, self._hooks = model, call, tuple(results), hooks_of(model)

    def forward(self, active: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor],
                cotangents: Sequence[torch.Tensor]) -> Sequence[torch.Tensor | None]:
        with hooking(self.model, self._hooks):  # of the way back those hooks are, which the tensors themselves have
            found = pytree.tree_leaves(self._call(self.model, tensors))
        moving = [(found[k], ct) for k, ct in zip(self._results, cotangents, strict=True)
                  if k is not None and found[k].is_floating_point() and found[k].requires_grad]
        if not moving:
            return [None] * len(active)
        ends, given = zip(*moving, strict=True)
        # The way forward of tangents is what differentiates this by the cotangents.
        return torch.autograd.grad(ends, active, given, create_graph=True, allow_unused=True)


class _Gradients(torch.nn.Module):
    """From weights, tensors of the arguments and a cotangent for each result to a gradient for each weight and tensor. Integers
    and truths have a truth in the place of a gradient, and weights that are `fixed` have zeros."""

    def __init__(self, run: _Run, fixed: Sequence[str]):
        super().__init__()
        self.run, self._fixed = run, set(fixed)

    def forward(self, weights: Mapping[str, torch.Tensor], tensors: Sequence[torch.Tensor],
                cotangents: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        moving = [*(t for name, t in weights.items() if name not in self._fixed), *tensors]
        active = [t for t in moving if t.is_floating_point()]
        held = {f"model.{name}": t.clone() if name in self._fixed else t for name, t in weights.items()}
        found = torch.func.functional_call(self.run, held, (active, tensors, cotangents))
        by_tensor = {id(t): gradient for t, gradient in zip(active, found, strict=True)}
        return [_filled(by_tensor.get(id(t)), t) for t in (*weights.values(), *tensors)]


def _filled(gradient: torch.Tensor | None, tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point():
        return torch.zeros_like(tensor, dtype=torch.bool)
    return torch.zeros_like(tensor) if gradient is None else gradient


def way_back(example: Example, computation: Computation, weights: Mapping[str, torch.Tensor], fixed: Sequence[str],
             order: Sequence[int], results: Sequence[int | None], convert: Callable[..., Any]) -> Computation | str:
    """The program of the gradients, or why it cannot be traced.

    `weights` are the program's first parameters by name, those of them that the module writes into are `fixed`; the others are
    the leaves of the arguments at the places in `order`. `results` says which of the module's results each of the program's is.
    """
    leaves, tree = pytree.tree_flatten((tuple(example.args), dict(example.kwargs)))

    def call(model: torch.nn.Module, tensors: Sequence[torch.Tensor]) -> Any:
        whole = list(leaves)
        for place, tensor in zip(order, tensors, strict=True):
            whole[place] = tensor
        args, kwargs = pytree.tree_unflatten(whole, tree)
        return model(*args, **kwargs)

    def moving(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().clone().requires_grad_(tensor.is_floating_point())

    # Ones as `backward` of a scalar gives them: decisions by cotangents are those for them, which each call checks.
    cotangents = [torch.ones(shape.dimensions, dtype=torch_dtype(shape.element_type) if shape.element_type.is_floating
                              else torch.bool) for shape in computation.root.shape.leaves()]
    module = _Gradients(_Run(example.module, call, results), fixed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function = convert(module, {name: moving(t) for name, t in weights.items()}, [moving(leaves[k]) for k in order],
                               cotangents)
    except Exception as error:  # whatever torch raises, or an operator that has no rule
        return _reason(error)
    if function.weights or function.replaced:
        return "it draws random numbers or writes into buffers"
    return function.computation.program.authored


def _reason(error: Exception) -> str:
    """An error in one line."""
    if not isinstance(error, XlaError):
        return f"{type(error).__name__}: {str(error).strip().partition(_LINE)[0]}"
    return ", ".join(str(part) for part in (error.what, error.got, error.where) if not (isinstance(part, str) and not part))


_LINE = "\n"
