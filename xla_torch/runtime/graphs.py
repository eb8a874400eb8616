"""Programs in graphs that torch makes of the code that calls them: for torch.compile, torch.export and make_fx.

There a program is what it is in torch's operators, loops and branches too. What reads numbers while it runs, or does more than
compute, cannot be: it is refused, and nothing of it is carried out while the graph is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from ..core.errors import UnsupportedError, XlaError
from ..core.shape import ProgramShape
from ..custom_calls.callbacks import CALLBACK
from ..hlo.checks import is_check
from ..hlo.inference import is_pure
from ..hlo.ir import Computation, Instruction, reachable
from ..hlo.stacks import is_stack_call
from ..kernels.portable import constants, with_constants
from ..lowering.custom_calls import check_custom_calls
from ..lowering.programs import lower
from ..storage.dtypes import torch_dtype
from ..storage.torch_private import needs_data, stand_ins, without_autocast
from .caches import Cache


class Program(Protocol):
    """What graphs need of a `Program` (see there)."""

    @property
    def name(self) -> str: ...

    @property
    def program_shape(self) -> ProgramShape: ...

    @property
    def canonical(self) -> Computation: ...

    @property
    def portable(self) -> Any: ...

    def run(self, tensors: Sequence[torch.Tensor], device: torch.device) -> tuple[torch.Tensor, ...]: ...

    def plan(self, needed: tuple[bool, ...], sized: bool) -> Any: ...


def into_graph(program: Program, kept: Cache[torch.device, torch.fx.GraphModule], tensors: Sequence[torch.Tensor],
               device: torch.device) -> tuple[torch.Tensor, ...]:
    """The program's results, by calls that torch has in its graphs. Raises UnsupportedError, naming the op, where it has none."""
    module = kept.get(device, lambda device: _lowered(program, device))
    held = constants(module)
    given = [torch.ops.aten.lift_fresh_copy.default(array) for array in held]
    run = with_constants(module, held, given).forward
    try:
        with without_autocast(device.type):
            return run(*tensors)
    except needs_data() as error:
        raise UnsupportedError("the program cannot be part of a graph", subject=program.name, got=str(error).partition("\n")[0],
                               expected="ops whose results' sizes, and what is computed of them, depend on no number",
                               hint="call it outside of torch.compile's fullgraph and of torch.export") from error


def reason_not_capturable(program: Program, needed: tuple[bool, ...]) -> str:
    """Why torch can have no graph of the program, and of the way back to the inputs that are `needed`; empty where it can: it is
    gone through with arrays without data."""
    try:
        with stand_ins():
            given = _stand_ins_for(program)
            results = program.run(given, CPU)
            if any(needed):
                plan = program.plan(needed, True)
                results = plan.forward.run(given, CPU)
                kept = [*(given[k] for k in plan.read), *(results[k] for k in plan.kept)]
                varying = [k for k in range(plan.outputs) if k not in plan.constant]
                if varying and plan.wanted:
                    present = tuple(k in varying for k in range(plan.returned))
                    plan.backward(present, tuple(plan.wanted)).run([*kept, *(results[k] for k in varying)], CPU)
    except XlaError as error:
        return str(error)
    return ""


CPU = torch.device("cpu")


def _stand_ins_for(program: Program) -> list[torch.Tensor]:
    leaves = [leaf for p in program.program_shape.parameters for leaf in p.leaves() if leaf.is_array]
    return [torch.empty(leaf.dimensions, dtype=torch_dtype(leaf.element_type)) for leaf in leaves]


def without_gradient(results: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The same numbers, through which no gradient goes back: torch raises where one comes. The graph that torch.export writes
    down has not the program's gradients, and torch's own of what stands in it may be others. ONNX has no gradients."""
    if torch.onnx.is_in_onnx_export():
        return tuple(results)
    return tuple(r if not (r.is_floating_point() or r.is_complex()) else torch.ops.prims.clone.default(r) for r in results)


def _lowered(program: Program, device: torch.device) -> torch.fx.GraphModule:
    entry = program.portable.canonical
    check_custom_calls(entry)
    for instruction in (i for c in reachable([entry]) for i in c.instructions):
        if does_more(instruction) and not is_check(instruction):
            raise UnsupportedError("the program cannot be part of a graph", subject=program.name, got=instruction,
                                   where=instruction.where, expected="ops that only compute a value of their operands",
                                   hint="call it outside of torch.compile's fullgraph and of torch.export")
    return lower(entry, device, blocks=False, overwrites=False, portable=True)


def does_more(instruction: Instruction) -> bool:
    """Whether an instruction exchanges, feeds or draws something, or calls a function of Python, or grows without end."""
    target = instruction.attributes.get("custom_call_target", "")
    return (not is_pure(instruction) or is_stack_call(instruction) or not instruction.shape.is_static
            or CALLBACK.fullmatch(target) is not None)
