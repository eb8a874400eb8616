"""What users may choose about gradients: how much is kept for the way back, and how much is computed again."""

from __future__ import annotations

import dataclasses
from typing import Final, Literal

from ..core.errors import InvalidArgument

SQRT: Final = "sqrt"
AUTO: Final = "auto"
Checkpoint = int | Literal["sqrt", "auto"] | None


@dataclasses.dataclass(frozen=True)
class GradientOptions:
    """Options for differentiating loops.

    `loop_checkpoint` (None, int, "sqrt" or "auto") trades memory for recomputation. None keeps the residuals of every
    iteration. An integer k keeps only the carries of every k-th iteration and runs the iterations in between again in the
    backward pass. "sqrt" uses segments of about the square root of the trip count. "auto" is None while the residuals of one
    loop fit in `memory_bound` bytes, and "sqrt" beyond. Loops with random numbers or other effects are never run again.

    `loop_bound` (int or None) is an upper bound for the trip count of every loop of unknown length. Residuals then have that
    many rows, so the gradient is plain HLO that XLA runs. The gradient of a loop that runs longer is NaN.

    `portable` (bool) writes gradients in plain HLO even if no bound is known. The backward pass of a loop with n iterations
    then recomputes its residuals in n log n steps. Texts and protos of `grad`, `value_and_grad` and `vjp` always use this form.

    Raises InvalidArgument if a number of iterations is below 1.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> options = xla_torch.GradientOptions(loop_checkpoint=None)
    >>> xla_torch.grad(square, options=options)(torch.tensor([1.0, 2.0]))
    tensor([2., 4.])
    """

    loop_checkpoint: Checkpoint = AUTO
    memory_bound: int = 1 << 30
    loop_bound: int | None = None
    portable: bool = False

    def __post_init__(self) -> None:
        checkpoint = self.loop_checkpoint
        if not (checkpoint is None or checkpoint in (SQRT, AUTO) or _is_count(checkpoint)):
            raise InvalidArgument("loop_checkpoint is invalid", got=repr(checkpoint),
                                  expected="'auto', 'sqrt', None, or every how many iterations (1 or more)")
        if self.loop_bound is not None and not _is_count(self.loop_bound):
            raise InvalidArgument("loop_bound is not a number of iterations", got=repr(self.loop_bound), expected="1 or more")
        if isinstance(self.memory_bound, bool) or not isinstance(self.memory_bound, int) or self.memory_bound < 0:
            raise InvalidArgument("memory_bound is not a number of bytes", got=repr(self.memory_bound), expected="0 or more")


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


DEFAULT = GradientOptions()
