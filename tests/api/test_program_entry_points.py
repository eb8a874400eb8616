"""Slow: gradients of whole programs (`support/stored_programs.py`), through every entry point; all entry points agree with
`vjp`, and that with JAX where JAX's gradients are there."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import func

import xla_torch
from support.stored_programs import FOLDERS, NEGLIGIBLE, StoredProgram, name_of
from xla_torch.errors import DifferentiationError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")]

FEW = 5_000
"""Up to how many numbers a program's arguments have if Jacobians and batches of it are wanted, too."""


class Program:
    """One program with its arguments, a cotangent for each floating result and a tangent for each floating argument."""

    def __init__(self, folder: pathlib.Path):
        stored = StoredProgram.load(folder)
        self.of_jax = stored.gradients
        self.computation = xla_torch.load(folder / "module.hlo")
        self.tensors = stored.tensors
        self.numbers = [k for k, t in enumerate(self.tensors) if t.is_floating_point()]
        random = torch.Generator().manual_seed(0)
        results = floating(self.computation(*self.tensors))
        self.cotangents = [torch.randn(r.shape, generator=random, dtype=r.dtype) for r in results]
        self.tangents = [torch.randn(self.tensors[k].shape, generator=random, dtype=self.tensors[k].dtype) for k in self.numbers]
        self.found = xla_torch.vjp(self.computation, self.numbers)(*self.tensors, *self.cotangents)

    @property
    def moving(self) -> list[torch.Tensor]:
        return [self.tensors[k] for k in self.numbers]

    @property
    def is_small(self) -> bool:
        return sum(t.numel() for t in self.tensors) <= FEW

    def __call__(self, *moving: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The floating results for the floating arguments."""
        tensors = list(self.tensors)
        for k, tensor in zip(self.numbers, moving, strict=True):
            tensors[k] = tensor
        return floating(self.computation(*tensors))

    def weighted(self, *moving: torch.Tensor) -> torch.Tensor:
        """The sum of the results, each times its cotangent."""
        return sum((r * c).sum() for r, c in zip(self(*moving), self.cotangents, strict=True))  # pyright: ignore[reportReturnType]

    def only_first(self) -> list[torch.Tensor]:
        """Cotangents that make the sum of the first result."""
        return [torch.ones_like(c) if k == 0 else torch.zeros_like(c) for k, c in enumerate(self.cotangents)]


def floating(result: Any) -> tuple[torch.Tensor, ...]:
    return tuple(r for r in (result if isinstance(result, tuple) else (result,)) if r.is_floating_point())


@pytest.fixture(scope="module", params=FOLDERS, ids=name_of)
def program(request: pytest.FixtureRequest) -> Program:
    return Program(request.param)


def agree(found: Sequence[torch.Tensor], want: Sequence[Any]) -> None:
    """Equal, each relative to its scale, as float32 allows: what is small beside the others may be the noise of a zero."""
    wanted = [np.asarray(w.detach() if isinstance(w, torch.Tensor) else w) for w in want]
    scales = [float(np.abs(w).max(initial=0.0)) for w in wanted]
    for got, expected, scale in zip(found, wanted, scales, strict=True):
        error = float(np.abs(got.detach().numpy() - expected).max(initial=0.0))
        assert error <= 2e-3 * max(scale, 1e-3 * max(scales), NEGLIGIBLE)


def dot(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> tuple[float, float]:
    """The sum of all products, and the sum of their sizes."""
    products = [a.double() * b.double() for a, b in zip(left, right, strict=True)]
    return sum(float(p.sum()) for p in products), sum(float(p.abs().sum()) for p in products)


def by_backward(p: Program) -> Sequence[torch.Tensor]:
    leaves = [t.clone().requires_grad_() for t in p.moving]
    torch.autograd.backward(p.weighted(*leaves))
    return [leaf.grad if leaf.grad is not None else torch.zeros_like(leaf) for leaf in leaves]


def by_grad_of_torch(p: Program) -> Sequence[torch.Tensor]:
    leaves = [t.clone().requires_grad_() for t in p.moving]
    results = [(r, c) for r, c in zip(p(*leaves), p.cotangents, strict=True) if r.requires_grad]
    return torch.autograd.grad([r for r, _ in results], leaves, [c for _, c in results], allow_unused=True,
                               materialize_grads=True)


ENTRY_POINTS: dict[str, Callable[[Program], Sequence[torch.Tensor]]] = {
    "backward": by_backward,
    "autograd.grad": by_grad_of_torch,
    "func.grad": lambda p: func.grad(p.weighted, tuple(range(len(p.numbers))))(*p.moving),
    "func.vjp": lambda p: func.vjp(p, *p.moving)[1](tuple(p.cotangents)),
    "with outputs": lambda p: xla_torch.vjp(p.computation, p.numbers, with_outputs=True)(
        *p.tensors, *p.cotangents)[-len(p.numbers):],
}


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_cotangents(program: Program, entry_point: str) -> None:
    agree(ENTRY_POINTS[entry_point](program), program.found)


def test_the_first_result_alone(program: Program) -> None:
    """`grad` and `value_and_grad`, which JAX's gradients are there for; refused where the first result is no float."""
    first = next(program.computation.program_shape.result.leaves())
    if not first.element_type.is_differentiable:
        with pytest.raises(DifferentiationError):
            xla_torch.grad(program.computation, program.numbers)
        return
    want = xla_torch.vjp(program.computation, program.numbers)(*program.tensors, *program.only_first())
    agree(xla_torch.grad(program.computation, program.numbers)(*program.tensors), want)
    value, found = xla_torch.value_and_grad(program.computation, program.numbers)(*program.tensors)
    agree([value], program(*program.moving)[:1])
    agree(found, want)
    agree([found[program.numbers.index(k)] for k in program.of_jax], list(program.of_jax.values()))


def test_tangents(program: Program) -> None:
    """Forward mode is the transpose of reverse mode: both weigh a tangent and a cotangent the same."""
    expected, size = dot(program.found, program.tangents)
    _, tangent = xla_torch.jvp(program.computation, program.numbers)(*program.tensors, *program.tangents)
    along = floating(tangent)
    assert abs(dot(along, program.cotangents)[0] - expected) <= 2e-3 * size + NEGLIGIBLE
    agree(func.jvp(program, tuple(program.moving), tuple(program.tangents))[1], along)


def test_second_derivatives(program: Program) -> None:
    """Forward over reverse, reverse over reverse, double backward, and torch.func's: the same product with a tangent."""
    derivative = xla_torch.vjp(program.computation, program.numbers)
    given = [*program.tensors, *program.cotangents]
    _, want = xla_torch.jvp(derivative, program.numbers)(*given, *program.tangents)
    agree(xla_torch.vjp(derivative, program.numbers)(*given, *program.tangents), want)
    leaves = [t.clone().requires_grad_() for t in program.moving]
    loss = program.weighted(*leaves)
    gradients = torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True, materialize_grads=True)
    along = sum((g * t).sum() for g, t in zip(gradients, program.tangents, strict=True))
    assert isinstance(along, torch.Tensor)
    found = torch.autograd.grad(along, leaves, allow_unused=True, materialize_grads=True) if along.requires_grad else [
        torch.zeros_like(t) for t in leaves]
    agree(found, want)
    through = func.grad(program.weighted, tuple(range(len(program.numbers))))
    agree(func.jvp(through, tuple(program.moving), tuple(program.tangents))[1], want)


def test_a_batch(program: Program) -> None:
    """Gradients of two examples at once are those of each."""
    if not program.is_small:
        pytest.skip("a large program")
    gradient = func.grad(program.weighted, tuple(range(len(program.numbers))))
    others = [1.01 * t for t in program.moving]
    found = func.vmap(gradient)(*(torch.stack(pair) for pair in zip(program.moving, others, strict=True)))
    each = [gradient(*program.moving), gradient(*others)]
    agree(found, [torch.stack(pair) for pair in zip(*each, strict=True)])


def test_jacobians(program: Program) -> None:
    """By reverse and by forward mode, of the first result with respect to the smallest argument."""
    if not program.is_small or program.cotangents[0].numel() > 256:
        pytest.skip("a large program")
    number = min(range(len(program.numbers)), key=lambda k: program.moving[k].numel())

    def first(moved: torch.Tensor) -> torch.Tensor:
        return program(*(moved if k == number else t for k, t in enumerate(program.moving)))[0]

    given = program.moving[number]
    agree([func.jacrev(first)(given)], [func.jacfwd(first)(given)])
