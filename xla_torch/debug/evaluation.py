"""The evaluator with an observer: on tensors, one instruction after another, loops by iteration."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence

import torch

from ..core.budget import stepwise
from ..core.shape import Shape
from ..distributed.participant import current_participant
from ..hlo.ir import Computation, Instruction
from ..hlo.literals.literal import Literal
from ..hlo.regions import branches_of, callee, is_branching, is_call, is_loop, loop_of
from ..hlo.stacks import is_stack
from ..hlo.tree import arrays, from_arrays
from ..kernels import loops, stack
from ..lowering import numerics
from ..lowering.custom_calls import check_custom_calls
from ..lowering.evaluator import Evaluator
from ..lowering.values import Host, Splat, Value
from ..storage.dtypes import storage_dtype
from ..storage.torch_private import without_autocast
from .steps import Step

Observer = Callable[[Step], None]


class Watched(Evaluator):
    """Evaluates on tensors, and shows each instruction's value to an observer. Regions of elements (reducers, comparators) are
    one instruction: theirs."""

    def __init__(self, device: torch.device | str, program: str, observer: Observer | None):
        super().__init__(device)
        self.program, self.observer = program, observer
        self.place: tuple[tuple[str, int], ...] = ()
        self._literals: dict[int, tuple[Literal, Value]] = {}

    def instruction(self, instruction: Instruction, operands: Sequence[Value]) -> Value:
        began = time.perf_counter()
        value = self._evaluated(instruction, operands)
        self.show(instruction, operands, value, began)
        return value

    def show(self, instruction: Instruction, operands: Sequence[Value], value: Value, began: float) -> None:
        """Let the observer see it, unless it is of a region that is evaluated on arrays."""
        if self.observer is not None and self.shapes_hold:
            participant = current_participant().number
            self.observer(Step(self.program, instruction, self.place, participant, tuple(operands), value, self, began))

    def _evaluated(self, instruction: Instruction, operands: Sequence[Value]) -> Value:
        # What runs computations is not left to op bodies: an observer's errors would be taken for theirs.
        if self.shapes_hold and is_loop(instruction):
            return self._loop(instruction, operands[0])
        if self.shapes_hold and is_branching(instruction):
            index, branches = self._integer(operands[0], instruction.operands[0].shape), branches_of(instruction)
            number = loops.branch_index(index, len(branches))
            return self.run(branches[number], [operands[1 + number]])
        if self.shapes_hold and is_call(instruction):
            return self.run(callee(instruction), operands)
        return super().instruction(instruction, operands)

    def _loop(self, instruction: Instruction, carry: Value) -> Value:
        condition, body = loop_of(instruction)
        outside = self.place
        try:
            for number in stepwise(itertools.count()):
                self.place = (*outside, (instruction.name, number))
                if not self._integer(self.run(condition, [carry]), condition.root.shape):
                    break
                carry = self.run(body, [carry])
        finally:
            self.place = outside
        return carry

    def _integer(self, value: Value, shape: Shape) -> int | bool:
        """A scalar of integers or truth, as a Python value."""
        return self.materialise(value, shape).item()

    def literal(self, literal: Literal, instruction: Instruction) -> Value:
        if id(literal) not in self._literals:  # a loop asks again in each iteration
            self._literals[id(literal)] = literal, super().literal(literal, instruction)
        return self._literals[id(literal)][1]

    def inside(self) -> Evaluator:
        return Watched(self.device, self.program, None)


def run_watched(program: str, computation: Computation, tensors: Sequence[torch.Tensor], device: torch.device,
                observer: Observer) -> tuple[torch.Tensor, ...]:
    """The flat results of a canonical computation for flat arguments, each instruction shown to the observer."""
    check_custom_calls(computation)
    flat = iter(tensors)
    evaluator = Watched(device, program, observer)
    with torch.no_grad(), without_autocast(device.type):
        arguments: list[Value] = []
        for parameter in computation.parameters:
            began = time.perf_counter()
            leaves = [numerics.to_storage(next(flat), leaf.element_type) for leaf in parameter.shape.leaves() if leaf.is_array]
            arguments.append(from_arrays(leaves, parameter.shape))
            evaluator.show(parameter, (), arguments[-1], began)
        result = evaluator.run(computation, arguments)
        return tuple(_own(evaluator, v, s) for v, s in arrays(result, computation.root.shape))


def _own(evaluator: Evaluator, value: Value, shape: Shape) -> torch.Tensor:
    """A leaf of the result in the boundary's dtype, as a tensor that nothing else holds."""
    if is_stack(shape):
        value = stack.packed(value, shape.dimensions[1:], storage_dtype(shape.element_type), evaluator.device)
    elif isinstance(value, Splat) and isinstance(value.scalar, Host):
        value = torch.full(value.dims, value.scalar.value, dtype=storage_dtype(shape.element_type), device=evaluator.device)
    whole = evaluator.materialise(value, shape).clone(memory_format=torch.contiguous_format)
    return numerics.from_storage(whole, shape.element_type)
