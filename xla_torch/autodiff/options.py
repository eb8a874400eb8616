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
    """How loops are walked back.

    `loop_checkpoint`: None keeps what each iteration's way back needs. A number k keeps only the carries of every k-th
    iteration, and runs the k iterations after it once more on the way back. ``"sqrt"`` does so with segments of about the
    square root of the number of iterations; where that number is known only at run time, with segments that grow by one
    iteration each. ``"auto"`` is None up to `memory_bound` bytes for one loop's residuals and ``"sqrt"`` beyond, as far as
    they are known before the loop runs. Loops that draw random numbers or have other effects are never run again.

    `loop_bound`: the most iterations that any loop of unknown length runs. Residuals then stand in arrays of that many rows,
    so that the gradient is plain HLO for XLA to run. A loop that runs longer has NaN as its gradients.

    `portable`: gradients are plain HLO also where no bound is known: what a loop of unknown length keeps on stacks, which only
    xla_torch has, is computed again, n iterations in n log n steps. Texts and protos of `grad`, `value_and_grad` and `vjp` are
    written so in any case.

    Raises InvalidArgument for a number of iterations below 1.

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
            raise InvalidArgument("loop_checkpoint is no way to keep carries", got=repr(checkpoint),
                                  expected="'auto', 'sqrt', None, or every how many iterations (1 or more)")
        if self.loop_bound is not None and not _is_count(self.loop_bound):
            raise InvalidArgument("loop_bound is not a number of iterations", got=repr(self.loop_bound), expected="1 or more")
        if isinstance(self.memory_bound, bool) or not isinstance(self.memory_bound, int) or self.memory_bound < 0:
            raise InvalidArgument("memory_bound is not a number of bytes", got=repr(self.memory_bound), expected="0 or more")


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


DEFAULT = GradientOptions()
