"""One evaluated instruction, as an observer sees it: where it stands, its operands, its value, and what can be said of them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import torch

from ..core.forks import cached_property
from ..core.shape import Shape
from ..hlo.ir import Instruction, Token
from ..hlo.printer import PrintOptions, print_instruction
from ..hlo.stacks import is_stack
from ..hlo.tree import arrays, mapped
from ..lowering import numerics
from ..lowering.values import Runner, Value
from ..visualization.rows import source_of


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Summarise an array of `count` elements.

    `least`, `greatest` and `mean` are of its finite elements (of magnitudes if complex; None if there are none). `nan`, `inf`
    and `zero` count elements.

    >>> print(xla_torch.debug.Statistics.of(torch.tensor([1.0, 0.0, float("nan")])))
    min 0, max 1, mean 0.5, 1 NaN, 1 of 3 zero
    """

    count: int
    least: float | int | None
    greatest: float | int | None
    mean: float | None
    nan: int
    inf: int
    zero: int

    def __str__(self) -> str:
        if self.least is None or self.mean is None:
            stated = "no finite element"
        else:
            stated = f"min {self.least:.6g}, max {self.greatest:.6g}, mean {self.mean:.6g}"
        marks = [f"{n} {name}" for name, n in (("NaN", self.nan), ("Inf", self.inf)) if n]
        return ", ".join([stated, *marks, f"{self.zero} of {self.count} zero"])

    @staticmethod
    def of(tensor: torch.Tensor) -> Statistics:
        """Return the statistics of a tensor in its public dtype."""
        array = tensor.detach()
        if not (array.is_floating_point() or array.is_complex()):
            return Statistics._of_integers(array.cpu().numpy())
        zero = int((array == 0).sum()) if array.dtype.itemsize > 1 else int((array.float() == 0).sum())
        wide = (array.abs() if array.is_complex() else array).to(torch.float64)
        nan, inf = int(wide.isnan().sum()), int(wide.isinf().sum())
        finite = wide if not nan + inf else wide[wide.isfinite()]
        if not finite.numel():
            return Statistics(array.numel(), None, None, None, nan, inf, zero)
        return Statistics(array.numel(), float(finite.min()), float(finite.max()), float(finite.mean()), nan, inf, zero)

    @staticmethod
    def _of_integers(array: np.ndarray) -> Statistics:
        zero = int(np.count_nonzero(array == 0))
        if not array.size:
            return Statistics(0, None, None, None, 0, 0, 0)
        return Statistics(array.size, int(array.min()), int(array.max()), float(array.mean(dtype=np.float64)), 0, 0, zero)


@dataclasses.dataclass(frozen=True)
class Step:
    """Describe one evaluated instruction.

    `program` is the program's name, `instruction` the IR, and `participant` the participant's number. `place` lists the
    enclosing loops with their iterations, outermost first, and `began` is the `time.perf_counter` at its start. `given` and
    `made` are operands and value in storage dtypes, as `runner` computed them; `operands` and `value` have the public dtypes.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> steps = []
    >>> with xla_torch.debug.observed(steps.append):
    ...     result = square(torch.tensor([1.0, 2.0]))
    >>> step = steps[-1]
    >>> step.name, step.op_name, step.source, step.value, step.operands[0]
    ('y', '', '', tensor([1., 4.]), tensor([1., 2.]))
    >>> step.label, step.hlo.strip(), step.statistics[0].greatest
    ('module_e: %y = f32[2] multiply(%x, %x)', '%y = f32[2]{0} multiply(%x, %x)', 4.0)
    """

    program: str
    instruction: Instruction
    place: tuple[tuple[str, int], ...]
    participant: int
    given: tuple[Value, ...]
    made: Value
    runner: Runner
    began: float

    @property
    def name(self) -> str:
        """Return the instruction's name, without ``%``."""
        return self.instruction.name

    @property
    def op_name(self) -> str:
        """Return the op_name that JAX recorded (``jit(loss)/dense_1/dot``), or ""."""
        return self.instruction.op_name

    @property
    def source(self) -> str:
        """Return the line of the user's program, ``file:line``, or ""."""
        return source_of(self.instruction)

    @property
    def hlo(self) -> str:
        """Return the instruction as a line of HLO text."""
        return print_instruction(self.instruction, PrintOptions(elide_above=16))

    @cached_property
    def value(self) -> Any:
        """The value, as the program would return it: a tensor, or a tuple for a tuple; None for tokens and growing stacks."""
        return outside(self.runner, self.made, self.instruction.shape)

    @cached_property
    def operands(self) -> tuple[Any, ...]:
        """The operands' values, in the same form."""
        return tuple(outside(self.runner, v, i.shape) for v, i in zip(self.given, self.instruction.operands, strict=True))

    @cached_property
    def statistics(self) -> list[Statistics]:
        """What each array of the value holds."""
        return [Statistics.of(t) for t, _ in arrays(self.value, self.instruction.shape) if t is not None]

    def __str__(self) -> str:
        return f"{self.label}: {'; '.join(map(str, self.statistics))}"

    @property
    def label(self) -> str:
        """Return the instruction's name and its position in loops."""
        inside = "".join(f"{loop}[{number}]/" for loop, number in self.place)
        return f"{self.program}: {inside}{self.instruction!r}"


def outside(runner: Runner, value: Value, shape: Shape) -> Any:
    """A value of a program as its boundary shows it."""
    def leaf(own: Shape, part: Value) -> Any:
        if not own.is_array or isinstance(part, Token) or is_stack(own):
            return None
        return numerics.from_storage(runner.materialise(part, own), own.element_type)

    return mapped(leaf, shape, value)


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether a tensor of the boundary holds neither NaN nor Inf."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    return bool(torch.isfinite(tensor if tensor.dtype.itemsize > 1 else tensor.float()).all())


def has_nan(tensor: torch.Tensor) -> bool:
    """Whether a tensor of the boundary holds a NaN."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    return bool(torch.isnan(tensor if tensor.dtype.itemsize > 1 else tensor.float()).any())


def far(a: torch.Tensor, b: torch.Tensor, relative: float, absolute: float) -> float:
    """The greatest difference of two tensors where they are not within the tolerances, NaN equal to NaN; else 0. Infinite
    where one is NaN or infinite and the other is not the same."""
    wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    x, y = a.detach().cpu().to(wide), b.detach().cpu().to(wide)
    same = (x == y) | (x.isnan() & y.isnan())
    difference = torch.where(same, 0.0, (x - y).abs())
    allowed = absolute + relative * torch.where(y.isfinite(), y.abs(), 0.0)
    beyond = ~same & ~(difference <= allowed)
    if not bool(beyond.any()):
        return 0.0
    greatest = difference[beyond]
    return math.inf if not bool(greatest.isfinite().all()) else float(greatest.max())
