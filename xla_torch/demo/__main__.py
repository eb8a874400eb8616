"""The demo: a JAX model in a file, checked, trained and read in PyTorch. No jax anywhere.

    python -m xla_torch.demo
"""

from __future__ import annotations

import time

import numpy as np
import torch

from ..api.loading import load
from ..nn import XlaModule
from ..runtime.computation import XlaComputation
from . import PROGRAM, Stored, stored
from .text import batches

STEPS, PRINT_EVERY, LEARNING_RATE = 400, 50, 3e-3


def main() -> None:
    """All of it, in order."""
    started = time.perf_counter()
    torch.set_num_threads(1)  # arrays as small as these gain nothing from more
    loss, given = load(PROGRAM), stored()
    print(f"{PROGRAM.name}: a transformer's loss, lowered from the JAX function in gpt.py; "
          f"{len(loss.entry.instructions)} instructions, {sum(p.numel() for p in given.parameters):,} parameters")
    check(loss, given)
    train(XlaModule(loss, parameters=given.parameters))
    show_code(loss)
    print(f"\nall in {time.perf_counter() - started:.0f} s")


def check(loss: XlaComputation, given: Stored) -> None:
    """Compare loss and gradients with JAX's. Raises AssertionError where they differ by more than rounding."""
    leaves = [p.clone().requires_grad_() for p in given.parameters]
    value = loss(*leaves, given.characters)
    gradients = torch.autograd.grad(value, leaves)
    worst = max(float((g - w).abs().max() / w.abs().max()) for g, w in zip(gradients, given.gradients, strict=True))
    print(f"\nloss       {value.item():.6f}, in JAX {given.loss:.6f}")
    print(f"gradients  differ from JAX's by {worst:.1e} at most, relative to each array's largest")
    assert abs(value.item() - given.loss) < 1e-4 * given.loss, "the loss is not JAX's"
    assert worst < 1e-3, "the gradients are not JAX's"


def train(model: torch.nn.Module, steps: int = STEPS) -> list[float]:
    """Train on random excerpts of the text; prints and returns the losses."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    losses: list[float] = []
    print(f"\ntraining with torch.optim.AdamW, {steps} steps")
    for step, batch in zip(range(steps + 1), batches(seed=1), strict=False):
        value = model(torch.from_numpy(batch))
        losses.append(value.item())
        if step % PRINT_EVERY == 0:
            recent = np.mean(losses[-PRINT_EVERY // 2:])
            print(f"  step {step:4d}   loss {recent:6.3f}   {'#' * round(float(recent) * 12)}")
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return losses


def show_code(loss: XlaComputation, lines: int = 24) -> None:
    """The beginning of the PyTorch program that ran."""
    code = loss.python_code().splitlines()
    print(f"\nwhat ran, the first {lines} of {len(code)} lines of PyTorch:\n")
    print("\n".join(f"    {line if len(line) <= 110 else line[:107] + '...'}" for line in code[:lines]))


if __name__ == "__main__":
    main()
