"""A module to HloModuleProto, as XLA writes it and reads it again.

What protos have no field for is left out: permission to propagate shardings, pass-through aliases. The mode of a collective is
refused where it is not what its channel says, since that would change what the program computes.
"""

from __future__ import annotations

import re
from typing import Any

from ..core.errors import XlaError
from ..hlo.entry_notes import aliases, donors, entry_layout
from ..hlo.ir import Computation, Instruction, Module
from ..hlo.schema import REQUIRED, OpSchema, schema_of
from ..opcodes.front import parse_module
from .context import Writing
from .devices import write_sharding
from .large_data import spliced
from .links import Link, link_of
from .metadata import write_metadata, write_origin, write_recovery, write_statistics, write_tables
from .schema import message_class
from .shapes import write_program_shape, write_shape
from .wire import Bytes

_NOTHING = ((), "", False, -1)
_MOST_LISTED_DEVICES = 2**16
"""Programs for more participants do not get a list of all of them."""


def write_module(module: Module) -> tuple[Any, list[Bytes]]:
    """The module as an HloModuleProto, and the large data that `wire.spliced` puts into its bytes. Raises InvalidArgument and
    UnsupportedError for what protos cannot say."""
    return _Modules(module).proto()


def serialized(module: Module) -> list[Bytes]:
    """The bytes of the module's HloModuleProto, in pieces."""
    proto, blobs = write_module(module)
    return spliced(proto.SerializeToString(), "HloModuleProto", blobs)


class _Modules:
    def __init__(self, module: Module):
        self.module, self.writing = module, Writing()
        self.ids: dict[int, int] = {}
        self.links: dict[str, dict[str, Link]] = {}

    def proto(self) -> tuple[Any, list[Bytes]]:
        module, proto = self.module, message_class("HloModuleProto")()
        proto.name, proto.entry_computation_name = module.name, module.entry.name
        computations = module.computations
        fused = {id(c) for caller in computations for i in caller.instructions if "kind" in i.attributes
                 for c in i.called_computations}
        for number, computation in enumerate(computations):
            self.writing.computations[id(computation)] = number
            into = proto.computations.add(id=number, is_fusion_computation=id(computation) in fused)
            self._computation(computation, number, into)
        proto.entry_computation_id = self.writing.computations[id(module.entry)]
        self._header(proto)
        if module.header.get("is_scheduled"):
            self._schedule([c for c in computations if id(c) not in fused], proto)
        if module.tables:
            write_tables(module.tables, proto.stack_frame_index)
        return proto, self.writing.blobs

    # ---- header

    def _header(self, proto: Any) -> None:
        module, header = self.module, self.module.header
        write_program_shape(entry_layout(module), proto.host_program_shape)
        for alias in aliases(module):
            proto.input_output_alias.entries.add(output_shape_index=alias.output, parameter_number=alias.number,
                                                 parameter_shape_index=alias.place, kind=2 if alias.must else 1)
        for number, index in donors(module):
            proto.buffer_donor.entries.add(parameter_number=number, parameter_shape_index=index)
        for key, value in sorted((header.get("frontend_attributes") or {}).items()):
            proto.frontend_attributes.map.add(key=key, value=value)
        if recovery := header.get("origin_recovery_table"):
            write_recovery(recovery, proto.original_value_recovery_table, self._recovery_module)
        replicas, partitions = module.replica_count, module.num_partitions
        if 1 < replicas * partitions <= _MOST_LISTED_DEVICES:
            # Text says how many participants there are, and protos on which devices they run: here one after another.
            assigned = proto.device_assignment
            assigned.replica_count, assigned.computation_count = replicas, partitions
            for partition in range(partitions):
                assigned.computation_devices.add(replica_device_ids=[r * partitions + partition for r in range(replicas)])

    def _recovery_module(self, text: str, proto: Any) -> None:
        inner = _Modules(parse_module(text))
        inner.writing.blobs = self.writing.blobs
        proto.CopyFrom(inner.proto()[0])

    def _schedule(self, computations: list[Computation], proto: Any) -> None:
        for computation in computations:
            entry = proto.schedule.sequences.add(key=self.writing.computations[id(computation)])
            entry.value.instruction_ids.extend(self.ids[id(i)] for i in computation.instructions)

    # ---- computations and instructions

    def _computation(self, computation: Computation, number: int, proto: Any) -> None:
        proto.name, proto.execution_thread = computation.name, computation.execution_thread or "main"
        for place, instruction in enumerate(computation.instructions):
            self.ids[id(instruction)] = number << 32 | place
        for instruction in computation.instructions:
            try:
                self._instruction(instruction, proto.instructions.add())
            except XlaError as error:
                raise error.located(instruction.subject, instruction.where) from None
        proto.root_id = self.ids[id(computation.root)]
        write_program_shape(computation.program_shape, proto.program_shape)

    def _instruction(self, instruction: Instruction, proto: Any) -> None:
        writing, schema = self.writing, schema_of(instruction.opcode)
        writing.schema, writing.instruction, writing.calls = schema, instruction, {}
        proto.name, proto.opcode, proto.id = instruction.name, instruction.opcode, self.ids[id(instruction)]
        write_shape(instruction.shape, proto.shape)
        proto.operand_ids.extend(self.ids[id(o)] for o in instruction.operands)
        links = self.links.get(instruction.opcode) or self._links(schema)
        for name, link in links.items():
            # Protos have no defaults of their own, so that those that are not 0 or nothing are written.
            value = instruction.attributes.get(name, schema.attributes[name].default)
            if value is not REQUIRED and (name in instruction.attributes or value not in _NOTHING) and value is not None:
                link.write(proto, value, writing)
        proto.called_computation_ids.extend(called for _, called in sorted(writing.calls.items()))
        self._implied(instruction, schema, proto)
        self._common(instruction.common, proto)

    def _links(self, schema: OpSchema) -> dict[str, Link]:
        self.links[schema.opcode] = {name: link_of(attribute) for name, attribute in schema.attributes.items()}
        return self.links[schema.opcode]

    def _implied(self, instruction: Instruction, schema: OpSchema, proto: Any) -> None:
        """What XLA's reader wants to see also where there is nothing in it."""
        names = schema.attributes
        if "operand_precision" in names and not proto.precision_config.operand_precision:
            proto.precision_config.operand_precision.extend([0] * len(instruction.operands))
        for numbers, present in (("dot_dimension_numbers", "lhs_ragged_dims" not in names and "lhs_contracting_dims" in names),
                                 ("window", "window" in names and "custom_call_target" not in names),
                                 ("padding_config", "padding" in names), ("cholesky_options", names.keys() == {"lower"})):
            if present:
                getattr(proto, numbers).SetInParent()

    def _common(self, common: dict[str, Any], proto: Any) -> None:
        if metadata := common.get("metadata"):
            write_metadata(metadata, proto.metadata)
        if sharding := common.get("sharding"):
            proto.sharding.SetInParent()
            write_sharding(sharding, proto.sharding)
        for key, value in sorted((common.get("frontend_attributes") or {}).items()):
            proto.frontend_attributes.map.add(key=key, value=value)
        proto.backend_config = (common.get("backend_config") or "").encode("utf-8", "surrogateescape")
        proto.control_predecessor_ids.extend(self.ids[id(p)] for p in common.get("control_predecessors") or ())
        if replicated := common.get("parameter_replication"):
            flags = [word == "true" for word in re.findall(r"true|false", replicated)]
            proto.parameter_replication.replicated_at_leaf_buffers.extend(flags)
        if statistics := common.get("statistics"):
            write_statistics(statistics, proto.statistics_viz)
        if origin := common.get("origin"):
            write_origin(origin, proto.original_value)


def _indices(text: str) -> list[int]:
    return [int(word) for word in text.replace(",", " ").split()]
