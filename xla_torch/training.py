"""Build a training step as one program: loss, gradients and optimizer update in HLO.

::

    optimizer = training.adamw(1e-3)
    step = training.training_step(loss, optimizer, argnums=(0, 1))       # loss(w, b, x, y) -> f32[]
    state = optimizer.init([w, b])
    for x, y in batches:
        value, (w, b), state = step(w, b, x, y, *state)
    step.to_hlo_text()                                                   # the same for XLA

Updates agree with torch.optim (`SGD`, `Adam`, `AdamW`) up to rounding. Define your own optimizer as an `Optimizer` with another
rule.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from . import functions as ops
from .api import tree_gradients
from .api.gradients import value_and_grad
from .autodiff.derivatives import finished
from .core.errors import InvalidArgument
from .core.shape import Shape
from .core.types import F32, S32, PrimitiveType
from .functions.hlo_builder import Builder, XlaOp
from .pytree.structure import flattened
from .runtime.computation import XlaComputation
from .runtime.static import StaticComputation
from .runtime.steps import entry_point
from .transform.rewriter import Rewriter
from .transform.values import Value, elements_of, leaves, regrouped

Rule = Callable[[XlaOp, XlaOp, Sequence[XlaOp], XlaOp], tuple[XlaOp, Sequence[XlaOp]]]
"""From an array of parameters, its gradient, the arrays kept for it and the number of steps made so far (a float scalar) to
its new value and the new arrays kept. All are of one type, at least F32."""

C = TypeVar("C", bound=XlaComputation)

LearningRate = float | Callable[[XlaOp], XlaOp]
"""A number, or a schedule: a function of ops from the number of steps made so far to the rate, both float scalars."""


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """Define an optimizer by its update `rule`, with `slots` state arrays for each parameter.

    A rule takes XlaOps: parameter, gradient, list of state arrays, and step number. All are in the parameter's precision, at
    least f32. It returns the new parameter and the new list.

    >>> [s for s in xla_torch.training.sgd(0.1, momentum=0.9).init([torch.zeros(2)])]
    [tensor(0, dtype=torch.int32), tensor([0., 0.])]
    >>> builder = XlaBuilder("step")
    >>> p, g = (builder.parameter(k, Shape.parse("f32[2]")) for k in range(2))
    >>> (new,), _ = xla_torch.training.sgd(0.5).update([p], [g], [builder.constant(0, xla_torch.S32)])
    >>> builder.build(new)(torch.ones(2), torch.ones(2))
    tensor([0.5000, 0.5000])
    """

    rule: Rule
    slots: int

    def init(self, parameters: Any) -> tuple[torch.Tensor, ...]:
        """Return the initial state for a pytree of parameters: step number (s32[]) and zeros."""
        arrays: list[torch.Tensor] = flattened(parameters)[0]
        device = arrays[0].device if arrays else None
        kept = [torch.zeros_like(p, requires_grad=False) for p in arrays for _ in range(self.slots)]
        return torch.zeros((), dtype=torch.int32, device=device), *kept

    def update(self, parameters: Sequence[XlaOp], gradients: Sequence[XlaOp], state: Sequence[XlaOp]) -> tuple[
            list[XlaOp], list[XlaOp]]:
        """Build the update and return new parameters and state. Raises InvalidArgument if complex."""
        step, *kept = state
        after, kept_after = [], [ops.Add(step, step.builder.constant(1, S32))]
        for k, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
            own = kept[k * self.slots:(k + 1) * self.slots]
            new, new_own = self._update_one(parameter, gradient, own, step)
            after.append(new)
            kept_after += new_own
        return after, kept_after

    def _update_one(self, parameter: XlaOp, gradient: XlaOp, kept: Sequence[XlaOp], step: XlaOp) -> tuple[XlaOp, list[XlaOp]]:
        own = parameter.element_type
        if not own.is_floating:
            raise InvalidArgument("an optimizer's parameters are real floating arrays", got=parameter.shape)
        wide = own if own.bits >= 32 else F32
        new, new_kept = self.rule(_as(parameter, wide), _as(gradient, wide), [_as(k, wide) for k in kept], _as(step, wide))
        return _as(new, own), [_as(k, own) for k in new_kept]


def _as(x: XlaOp, element_type: PrimitiveType) -> XlaOp:
    return x if x.element_type is element_type else ops.ConvertElementType(x, element_type)


@entry_point(over_trees=tree_gradients.stepped)
def training_step(loss: C, optimizer: Optimizer, argnums: int | Sequence[int] = 0) -> C:
    """Return the program of one training step.

    It takes the arguments of `loss`, then the optimizer's state (`Optimizer.init` of the parameters `argnums` in order). It
    returns ``(loss, parameters, state)``: the (first) result, the updated parameters (for a sequence a tuple), and the new
    state as a tuple. For a function over pytrees (`TreeFunction`), `argnums` are positional arguments. Raises the errors of
    `value_and_grad`.

    >>> loss = xla_torch.parse_hlo("ENTRY e { x = f32[] parameter(0) ROOT y = f32[] multiply(x, x) }")
    >>> sgd = xla_torch.training.sgd(0.25)
    >>> value, x, state = xla_torch.training_step(loss, sgd)(torch.tensor(2.0), *sgd.init([torch.tensor(2.0)]))
    >>> value, x
    (tensor(4.), tensor(1.))
    """
    if not isinstance(optimizer, Optimizer):
        raise InvalidArgument("not an optimizer", subject="training_step", got=type(optimizer).__name__,
                              expected="an Optimizer, as training.adamw(1e-3)")
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)
    differentiated = value_and_grad(loss, numbers).program.differentiable
    builder = Builder(f"train_{loss.name}")
    shape = loss.program_shape
    arguments = [builder.parameter(k, s.without_layout(), name) for k, (s, name) in enumerate(
        zip(shape.parameters, shape.parameter_names, strict=True))]
    given = [elements_of(argument) for argument in arguments]
    value, gradients = _pair(Rewriter(builder).run(differentiated, given))
    parameters = [leaf for k in numbers for leaf in leaves(given[k])]
    state = _state_parameters(builder, len(arguments), parameters, optimizer.slots)
    after, state_after = optimizer.update(parameters, list(leaves(gradients)), state)
    rest = iter(after)
    updated: list[Value] = [regrouped([next(rest) for _ in shape.parameters[k].leaves()], shape.parameters[k]) for k in numbers]
    result: Value = [value, updated[0] if isinstance(argnums, int) else updated, list(state_after)]
    step: Any = StaticComputation(loss.program.derived(finished(builder, result)))
    return step


def _pair(value: Value) -> tuple[Value, Value]:
    assert isinstance(value, list)
    first, second = value
    return first, second


def _state_parameters(builder: Builder, first: int, parameters: Sequence[XlaOp], slots: int) -> list[XlaOp]:
    kept = [(p.shape, f"kept_{n}_{p.instruction.name}") for p in parameters for n in range(slots)]
    return [builder.parameter(first + k, shape.without_layout(), name)
            for k, (shape, name) in enumerate([(Shape.array(S32), "step"), *kept])]


# ------------------------------------------------------------------------------------------------ optimizers


def sgd(learning_rate: LearningRate = 1e-3, momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0,
        nesterov: bool = False) -> Optimizer:
    """Return stochastic gradient descent as in `torch.optim.SGD`.

    It keeps one array for each parameter if `momentum` is nonzero. Raises InvalidArgument for numbers out of range, and for
    nesterov without momentum or with dampening.

    >>> xla_torch.training.sgd(0.1, momentum=0.9).slots
    1
    """
    _require("sgd", learning_rate, momentum=momentum, weight_decay=weight_decay)
    if nesterov and (momentum <= 0 or dampening):
        raise InvalidArgument("nesterov needs momentum and no dampening", subject="sgd", got=(momentum, dampening))

    def rule(parameter: XlaOp, gradient: XlaOp, kept: Sequence[XlaOp], step: XlaOp) -> tuple[XlaOp, Sequence[XlaOp]]:
        if weight_decay:
            gradient = gradient + weight_decay * parameter
        if kept:
            velocity = momentum * kept[0] + (1 - dampening) * gradient
            if dampening:  # the first gradient counts in full
                velocity = ops.Select(_everywhere(ops.Eq(step, 0.0), gradient), gradient, velocity)
            gradient, kept = gradient + momentum * velocity if nesterov else velocity, [velocity]
        return parameter - _rate(learning_rate, step) * gradient, kept

    return Optimizer(rule, 1 if momentum else 0)


def adam(learning_rate: LearningRate = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
         weight_decay: float = 0.0, amsgrad: bool = False) -> Optimizer:
    """Return Adam as in `torch.optim.Adam`, with weight decay added to the gradient.

    It keeps two arrays for each parameter, three with `amsgrad`. Raises InvalidArgument for numbers out of range.

    >>> len(xla_torch.training.adam(1e-3).init([torch.zeros(2)]))
    3
    """
    _require("adam", learning_rate, betas, eps=eps, weight_decay=weight_decay)
    return _adam(learning_rate, betas, eps, weight_decay, amsgrad, decoupled=False)


def adamw(learning_rate: LearningRate = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
          weight_decay: float = 1e-2, amsgrad: bool = False) -> Optimizer:
    """Return AdamW as in `torch.optim.AdamW`, with decoupled weight decay.

    Raises InvalidArgument for numbers out of range.

    >>> len(xla_torch.training.adamw(1e-3).init([torch.zeros(2)]))
    3
    """
    _require("adamw", learning_rate, betas, eps=eps, weight_decay=weight_decay)
    return _adam(learning_rate, betas, eps, weight_decay, amsgrad, decoupled=True)


def _adam(learning_rate: LearningRate, betas: tuple[float, float], eps: float, weight_decay: float, amsgrad: bool,
          decoupled: bool) -> Optimizer:
    first, second = betas

    def rule(parameter: XlaOp, gradient: XlaOp, kept: Sequence[XlaOp], step: XlaOp) -> tuple[XlaOp, Sequence[XlaOp]]:
        rate = _rate(learning_rate, step)
        if weight_decay and decoupled:
            parameter = parameter * (1 - rate * weight_decay)
        elif weight_decay:
            gradient = gradient + weight_decay * parameter
        mean = first * kept[0] + (1 - first) * gradient
        square = second * kept[1] + (1 - second) * (gradient * gradient)
        largest = [ops.Max(kept[2], square)] if amsgrad else []
        count = step + 1.0
        spread = ops.Sqrt(largest[0] if amsgrad else square) / ops.Sqrt(_unbiased(second, count)) + eps
        return parameter - rate / _unbiased(first, count) * (mean / spread), [mean, square, *largest]

    return Optimizer(rule, 3 if amsgrad else 2)


def _unbiased(beta: float, count: XlaOp) -> XlaOp:
    """1 - beta**count, exactly also where beta is close to 1."""
    return -ops.Expm1(count * math.log(beta)) if beta > 0 else count * 0.0 + 1.0


def _require(subject: str, learning_rate: object, betas: object = (0.0, 0.0), **others: object) -> None:
    """Raise InvalidArgument for numbers that torch's optimizers refuse."""
    rates = {} if callable(learning_rate) else {"learning_rate": learning_rate}
    for name, value in {**rates, **others}.items():
        if not isinstance(value, numbers.Real) or not float(value) >= 0:
            what = "a number, 0 or more" + ", or a function of the number of steps" * (name in rates)
            raise InvalidArgument(f"not a {name.replace('_', ' ')}", subject=subject, got=repr(value), expected=what)
    if (not isinstance(betas, (tuple, list)) or len(betas) != 2
            or not all(isinstance(beta, numbers.Real) and 0 <= float(beta) < 1 for beta in betas)):
        raise InvalidArgument("not betas", subject=subject, got=repr(betas), expected="two numbers from 0 to below 1")


def _rate(learning_rate: LearningRate, step: XlaOp) -> XlaOp:
    if callable(learning_rate):
        return learning_rate(step)
    return step.builder.constant(learning_rate, step.element_type)


def _everywhere(pred: XlaOp, like: XlaOp) -> XlaOp:
    return ops.Broadcast(pred, like.shape.dimensions)
