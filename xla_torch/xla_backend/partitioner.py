"""XLA's partitioner: from a program about whole arrays, with ``sharding=`` at parameters and root, to one participant's.

Of XLA's compiler only what comes before the partitioner and itself is wanted. The compiler has no way to be stopped there, so
the program is given one instruction that the partitioner lets through and that XLA refuses in a pass soon behind it: what the
partitioner wrote is in a file by then, and nothing is optimised and no code generated, which would take ten times as long. Should
another version take the instruction, the compilation goes on to its end, with the same file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import UnsupportedError
from ..core.shape import Shape
from ..core.types import F32
from ..hlo.ir import Computation, Instruction, Module, free_name, unique_names
from ..hlo.literals.literal import Literal
from ..hlo.sharding import Sharding
from ..hlo.structure import CONSTANT
from ..opcodes.internal import custom_call
from ..proto.containers import read_proto
from ..proto.context import Reading
from ..proto.devices import read_sharding
from ..proto.writing import serialized
from .child import compile_in_child
from .known_defects import avoid

_PASS = "spmd-partitioning"
_END = "xla_torch.end_of_partitioning"
_REFUSED = "Qr"
"""A decomposition that XLA expands by itself, and refuses to where its operand is no matrix."""


def partitioned(module: Module, partitions: int, propagates: Sequence[bool], shardy: bool = False) -> Module:
    """One participant's part of a program, whose parameters and root say how they lie.

    `propagates` says for each result whether XLA may choose how it lies, and `shardy` whether the program is annotated
    in Shardy's words; then it is compiled to its end, which takes longer. The module is used up: XLA wants names that no two of
    its computations share. Raises UnsupportedError, with XLA's words, where it does not partition the program.
    """
    avoid(module)
    _name_apart(module)
    with tempfile.TemporaryDirectory(prefix="xla_torch_") as folder:
        debug = {"xla_dump_to": folder, "xla_dump_hlo_pass_re": _PASS, "xla_dump_hlo_as_text": False,
                 "xla_dump_hlo_as_proto": True, "xla_backend_optimization_level": 0}
        given = b"".join(serialized(module if shardy else _with_end(module)))
        refusal = compile_in_child(given, partitions, list(propagates), debug, shardy)
        written = sorted(Path(folder).glob(f"*.after_{_PASS}.*.hlo.pb"))
        if not written:
            raise UnsupportedError("XLA does not partition the program", subject=module.name, got=refusal or "no program",
                                   hint="the words are XLA's")
        found = read_proto(written[-1].read_bytes())
        part = found.module()
    proto, reading = found.message.hlo_module, Reading([], [])
    inputs = [read_sharding(sharding, reading) for sharding in proto.spmd_parameters_shardings]
    _name_as(part, module, inputs, read_sharding(proto.spmd_output_sharding, reading))
    return part


def _name_apart(module: Module) -> None:
    """Names that no two instructions, and no two computations, share; parameters of the entry keep theirs."""
    called = [c for c in module.computations if c is not module.entry]
    unique_names([i for c in (module.entry, *called) for i in c.instructions])
    taken, counts = {module.entry.name}, {}
    for computation in called:
        computation.name = free_name(computation.name, taken, counts)
        taken.add(computation.name)


def _with_end(module: Module) -> Module:
    """The program with the instruction that XLA refuses. Manual: the partitioner leaves it as it is. Its operand is not: XLA
    makes one of constants that are equal, and how that lies counts for all who read it."""
    entry, common = module.entry, {"sharding": Sharding.parse("{replicated}"), "metadata": {"op_name": _END}}
    shape = Shape.array(F32, (1,))
    both = Shape.tuple((shape, shape))
    operand = Instruction(CONSTANT, shape, (), {"literal": Literal(shape, np.zeros(1, np.float32))}, _END, common)
    attributes = {"custom_call_target": _REFUSED, "custom_call_has_side_effect": True}
    end = Instruction(custom_call, both, (operand,), attributes, f"{_END}.1",
                      {**common, "sharding": Sharding.parse("{manual}").of_tuple(both)})
    longer = Computation(entry.name, [operand, end, *entry.instructions], entry.root)
    return Module(module.name, longer, module.header, module.tables, module.unreachable)


def _name_as(part: Module, whole: Module, inputs: Sequence[Sharding], output: Sharding) -> None:
    """Take the end out again, and give parameters their names and shardings and the root its sharding. XLA keeps shardings in the
    module; those of parameters only there from jaxlib 0.12 on."""
    entry = part.entry
    ends = [i for i in entry.instructions if i.op_name == _END]
    others = [i for i in entry.instructions if i not in ends]
    used = {id(o) for i in others for o in i.operands}
    unused = {id(o) for i in ends for o in i.operands} - used
    entry.instructions = [i for i in others if id(i) not in unused]
    taken = {i.name for i in entry.instructions if not i.is_parameter}
    for own, given in zip(entry.parameters, whole.entry.parameters, strict=True):
        own.name = given.name if given.name not in taken else own.name
        _keep(own.common, given.common, "metadata")
    for own, sharding in zip(entry.parameters, inputs, strict=bool(inputs)):
        own.common.setdefault("sharding", sharding)
    root = entry.root
    root.common.setdefault("sharding", output.of_tuple(root.shape) if root.shape.is_tuple else output)


def _keep(own: dict[str, Any], given: dict[str, Any], name: str) -> None:
    if name in given:
        own[name] = given[name]
    else:
        own.pop(name, None)
