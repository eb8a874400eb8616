"""Gradients and training between processes, and training with threads: the numbers of the single-process run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.collective_rows import COUNT, ROWS, Arrays
from support.distributed_workers import Workers
from xla_torch import Shape, XlaComputation, XlaOp, ops, run_replicas, training
from xla_torch.distributed import of_process_group

Tensors = tuple[torch.Tensor, ...]
Run = Callable[[XlaComputation, Sequence[Tensors]], list[Any]]
"""Runs a program as all participants of this process, and gives the results of each."""


# ------------------------------------------------------------------------------------------- every collective


def differentiated(name: str, given: Arrays, cts: Arrays) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """In a process: the results, the gradients that `vjp` gives, and those of torch.autograd."""
    row = ROWS[name]
    program = row.program()
    leaves = [torch.from_numpy(np.asarray(a)) for a in given]
    leaves = [leaf.requires_grad_(leaf.is_floating_point()) for leaf in leaves]
    with of_process_group(num_partitions=row.partitions) as processes:
        (slopes,) = processes.run(xla_torch.vjp(program), [(*given, *cts)])
        found = program(*leaves)
        results = found if isinstance(found, tuple) else (found,)
        loss = sum(((r * torch.from_numpy(c)).sum() for r, c in zip(results, cts, strict=True)), torch.zeros(()).double())
        loss.backward()
    own = [leaf.grad.numpy() if leaf.grad is not None else np.zeros(leaf.shape) for leaf in leaves if leaf.requires_grad]
    return [r.detach().numpy() for r in results], list(slopes), own


@pytest.mark.parametrize("name", ROWS)
def test_gradients_are_those_of_one_program(four: Workers, name: str) -> None:
    """The same rows with threads: test_grad_collective.py."""
    row = ROWS[name]
    found = four.call(differentiated, [(name, a, c) for a, c in zip(row.given(), row.cotangents(), strict=True)])
    wholes, gradients = row.results(*row.stacked()), row.gradients()
    for p, (results, slopes, own) in enumerate(found):
        for got, want in zip(results, wholes, strict=True):
            np.testing.assert_allclose(got, want[p].detach().numpy(), rtol=1e-12, atol=1e-12)
        for by_vjp, by_autograd, want in zip(slopes, own, gradients[p], strict=True):
            np.testing.assert_allclose(by_vjp, want, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(by_autograd, want, rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------------------------------- the convention

EXAMPLES = [
    # The table in the documentation of xla_torch.distributed.
    (lambda w, x: w * x, [3, 6], [1, 2]),
    (lambda w, x: ops.CrossReplicaSum(w * x), [9, 9], [2, 4]),
    (lambda w, x: ops.CrossReplicaSum(w * x) / 2.0, [4.5, 4.5], [1, 2]),
    (lambda w, x: ops.CrossReplicaSum(w) / 2.0 * x, [3, 6], [1.5, 1.5]),
]


@pytest.mark.parametrize(("loss", "losses", "gradients"), EXAMPLES)
def test_the_documented_convention(loss: Callable[..., XlaOp], losses: list[float], gradients: list[float]) -> None:
    builder, (w, x) = parameters("loss", "f32[]", "f32[]")
    program = xla_torch.value_and_grad(builder.build(loss(w, x)))
    found = run_replicas(program, [(torch.tensor(3.0), torch.tensor(x)) for x in (1.0, 2.0)], num_replicas=2)
    assert [(value.item(), slope.item()) for value, slope in found] == list(zip(losses, gradients, strict=True))


# ------------------------------------------------------------------------------------------- training

STEPS = 4
RATE = 0.05


def parameters(name: str, *shapes: str) -> tuple[xla_torch.XlaBuilder, list[XlaOp]]:
    builder = xla_torch.XlaBuilder(name)
    return builder, [builder.parameter(k, Shape.parse(s)) for k, s in enumerate(shapes)]


def squares(x: XlaOp) -> XlaOp:
    builder, (a, b) = parameters("add", "f32[]", "f32[]")
    return ops.Reduce([x * x], [x.builder.constant(np.float32(0))], builder.build(ops.Add(a, b)), [0, 1])


def rows_loss() -> XlaComputation:
    """Data parallel: every participant has all weights and two of eight rows; its loss is that of its rows."""
    builder, (first, second, x, y) = parameters("rows", "f32[6,8]", "f32[8,3]", "f32[2,6]", "f32[2,3]")
    return _for_four(builder.build(squares(ops.Dot(ops.Tanh(ops.Dot(x, first)), second) - y)))


def columns_loss() -> XlaComputation:
    """Tensor parallel: columns of the first weight, rows of the second, and one sum between. All have the same loss, so that
    each has a quarter of it."""
    builder, (first, second, x, y) = parameters("columns", "f32[6,2]", "f32[2,3]", "f32[8,6]", "f32[8,3]")
    out = ops.CrossReplicaSum(ops.Dot(ops.Tanh(ops.Dot(x, first)), second))
    return _for_four(builder.build(squares(out - y) * (1 / COUNT)))


def _for_four(program: XlaComputation) -> XlaComputation:
    program.module.header["replica_count"] = COUNT
    return program


def mean_of_gradients() -> XlaComputation:
    builder, (first, second) = parameters("mean", "f32[6,8]", "f32[8,3]")
    return builder.build(ops.Tuple(builder, [ops.CrossReplicaSum(g) * (1 / COUNT) for g in (first, second)]))


def averaged(optimizer: training.Optimizer) -> training.Optimizer:
    """An optimizer of weights that all participants have: it is given the mean of their gradients."""
    def rule(parameter: XlaOp, gradient: XlaOp, kept: Sequence[XlaOp], step: XlaOp) -> tuple[XlaOp, Sequence[XlaOp]]:
        return optimizer.rule(parameter, ops.CrossReplicaSum(gradient) * (1 / COUNT), kept, step)

    return dataclasses.replace(optimizer, rule=rule)


@dataclasses.dataclass(frozen=True)
class Model:
    """`scale`: by how much the sum of the participants' losses is weighed in the loss of the single process."""

    loss: Callable[[], XlaComputation]
    split: Callable[[int, Tensors], Tensors]
    joined: Callable[[Sequence[Tensors]], Tensors]
    shared_weights: bool
    scale: float


MODELS = {
    "data parallel": Model(
        rows_loss, lambda k, t: (t[0], t[1], t[2][2 * k:2 * k + 2], t[3][2 * k:2 * k + 2]),
        lambda parts: parts[0], True, 1 / COUNT),
    "tensor parallel": Model(
        columns_loss, lambda k, t: (t[0][:, 2 * k:2 * k + 2].contiguous(), t[1][2 * k:2 * k + 2], t[2], t[3]),
        lambda parts: (torch.cat([p[0] for p in parts], 1), torch.cat([p[1] for p in parts], 0)), False, 1.0),
}


def whole_problem() -> Tensors:
    generator = torch.Generator().manual_seed(4)
    first, second, x, y = (torch.randn(*dims, generator=generator) for dims in ((6, 8), (8, 3), (8, 6), (8, 3)))
    return first / 2, second / 2, x, y


def train_alone(scale: float) -> tuple[list[float], list[torch.Tensor]]:
    """The run of a single process: the loss before every step, and the weights at the end."""
    *weights, x, y = whole_problem()
    losses = []
    for _ in range(STEPS):
        weights = [w.detach().requires_grad_() for w in weights]
        loss = scale * ((torch.tanh(x @ weights[0]) @ weights[1] - y) ** 2).sum()
        losses.append(loss.item())
        weights = [w - RATE * g for w, g in zip(weights, torch.autograd.grad(loss, weights), strict=True)]
    return losses, [w.detach() for w in weights]


Trained = list[tuple[list[float], Tensors]]
"""For each participant its losses and its last weights."""


def by_value_and_grad(run: Run, model: Model, given: list[Tensors]) -> Trained:
    program = xla_torch.value_and_grad(model.loss(), (0, 1))
    mean = mean_of_gradients()
    weights, data, losses = [g[:2] for g in given], [g[2:] for g in given], [[] for _ in given]
    for _ in range(STEPS):
        found = run(program, [(*w, *d) for w, d in zip(weights, data, strict=True)])
        gradients = [tuple(slopes) for _, slopes in found]
        if model.shared_weights:
            gradients = run(mean, gradients)
        weights = [tuple(a - RATE * b for a, b in zip(w, g, strict=True)) for w, g in zip(weights, gradients, strict=True)]
        for own, (loss, _) in zip(losses, found, strict=True):
            own.append(loss.item())
    return list(zip(losses, weights, strict=True))


def by_training_step(run: Run, model: Model, given: list[Tensors]) -> Trained:
    """One program, which went through a file's text."""
    optimizer = training.sgd(RATE)
    step = training.training_step(model.loss(), averaged(optimizer) if model.shared_weights else optimizer, (0, 1))
    step = xla_torch.parse_hlo(step.to_hlo_text())
    assert step.module.replica_count == COUNT
    weights, losses = [g[:2] for g in given], [[] for _ in given]
    states = [optimizer.init(w) for w in weights]
    for _ in range(STEPS):
        found = run(step, [(*w, *g[2:], *s) for w, g, s in zip(weights, given, states, strict=True)])
        weights, states = [w for _, w, _ in found], [s for _, _, s in found]
        for own, (loss, _, _) in zip(losses, found, strict=True):
            own.append(loss.item())
    return list(zip(losses, weights, strict=True))


def by_backward(run: Run, model: Model, given: list[Tensors]) -> Trained:
    """The way of torch, in a process that is one participant."""
    loss_of, mean = model.loss(), mean_of_gradients()
    (own,) = given
    weights = [w.clone().requires_grad_() for w in own[:2]]
    optimizer, losses = torch.optim.SGD(weights, lr=RATE), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(*weights, *own[2:])
        loss.backward()
        if model.shared_weights:
            with torch.no_grad():
                for weight, gradient in zip(weights, mean(*(w.grad for w in weights)), strict=True):
                    weight.grad = gradient
        optimizer.step()
        losses.append(loss.item())
    return [(losses, tuple(w.detach() for w in weights))]


WAYS: dict[str, Callable[[Run, Model, list[Tensors]], Trained]] = {
    "value_and_grad": by_value_and_grad, "training_step": by_training_step, "backward": by_backward}


def train_here(way: str, name: str, given: Tensors) -> tuple[list[float], Tensors]:
    with of_process_group() as processes:
        return WAYS[way](processes.run, MODELS[name], [given])[0]


def check_trained(name: str, trained: Trained) -> None:
    model = MODELS[name]
    losses, weights = train_alone(model.scale)
    assert losses[-1] < 0.9 * losses[0]
    sums = [model.scale * sum(each) for each in zip(*(own for own, _ in trained), strict=True)]
    np.testing.assert_allclose(sums, losses, rtol=1e-5)
    for got, want in zip(model.joined([own for _, own in trained]), weights, strict=True):
        torch.testing.assert_close(got, want)
    if model.shared_weights:
        assert all(torch.equal(a, b) for _, own in trained for a, b in zip(own, trained[0][1], strict=True))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("way", WAYS)
def test_training_with_processes(four: Workers, way: str, name: str) -> None:
    given = [MODELS[name].split(k, whole_problem()) for k in range(COUNT)]
    check_trained(name, four.call(train_here, [(way, name, g) for g in given]))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("way", ["value_and_grad", "training_step"])
def test_training_with_threads(way: str, name: str) -> None:
    given = [MODELS[name].split(k, whole_problem()) for k in range(COUNT)]

    def run(program: XlaComputation, arguments: Sequence[Tensors]) -> list[Any]:
        return run_replicas(program, arguments, num_replicas=COUNT)

    check_trained(name, WAYS[way](run, MODELS[name], given))
