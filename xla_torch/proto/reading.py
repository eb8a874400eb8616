"""HloModuleProto to a module: what the text's reader makes of XLA's text of the same module."""

from __future__ import annotations

import collections
import gc
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from google.protobuf.unknown_fields import UnknownFieldSet

from ..core import progress
from ..core.errors import HloSyntaxError, UnknownOpcodeError, UnsupportedError, XlaError
from ..core.shape import Shape
from ..hlo.ir import Computation, Instruction, Module, reachable
from ..hlo.scanner import nearest
from ..hlo.schema import OpSchema
from ..opcodes.front import OPS, print_module
from .context import Reading
from .devices import read_sharding
from .links import Link, link_of
from .metadata import read_metadata, read_origin, read_recovery, read_statistics, read_tables

_LOCAL = 2**32 - 1
"""Ids of instructions have their computation's in the upper half; within a computation the lower half is enough."""

_ALIAS_KINDS = ("may-alias", "may-alias", "must-alias")
_LAST_FIELD = 102
"""The greatest number of a field of instructions that is known here."""


def read_module(proto: Any, blobs: Sequence[memoryview] = ()) -> Module:
    """The module of an HloModuleProto; `blobs` are what `wire.cut` took out of it. Nothing is verified, see `front.verify`.

    Raises HloSyntaxError for what is no module, UnknownOpcodeError with all opcodes that are not known, UnsupportedError for
    element types that are not supported.
    """
    # As in reading text: millions of objects and no garbage.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _Modules(proto, blobs).module()
    finally:
        if collecting:
            gc.enable()


class _Plan(NamedTuple):
    """What is read of an opcode's instructions: the name of each attribute, its link, and whether it must be there."""

    schema: OpSchema
    links: tuple[tuple[str, Link, bool], ...]
    least: int
    most: float


class _Modules:
    def __init__(self, proto: Any, blobs: Sequence[memoryview]):
        self.proto, self.reading = proto, Reading(blobs, proto.payloads)
        self.plans: dict[str, _Plan | None] = {}
        self.unknown: collections.Counter[str] = collections.Counter()
        self.unknown_fields: set[int] = set()
        self.by_id: dict[int, Instruction] = {}

    def module(self) -> Module:
        proto = self.proto
        total, done = len(proto.computations), progress.meter(len(proto.computations), "reading")
        sequences = {s.key: s.value.instruction_ids for s in proto.schedule.sequences} if proto.HasField("schedule") else {}
        for number, computation in enumerate(proto.computations):
            if computation.id in self.reading.computations:
                raise _wrong("two computations have one id", f"{computation.name}: id {computation.id}")
            found = self._computation(computation, sequences.get(computation.id))
            self.reading.computations[computation.id] = found
            done(number)
        done(total)
        if self.unknown:
            raise self._unknown_opcodes()
        if self.unknown_fields:
            warnings.warn(f"the HLO proto has fields of instructions that are not known here, and not heeded: numbers "
                          f"{', '.join(map(str, sorted(self.unknown_fields)))}", UserWarning, stacklevel=5)
        entry = self._entry()
        reached = set(map(id, reachable([entry])))
        unreachable = [c for c in self.reading.computations.values() if id(c) not in reached]
        tables = read_tables(proto.stack_frame_index) if proto.HasField("stack_frame_index") else {}
        return Module(proto.name or f"module_{entry.name}", entry, self._header(bool(sequences)),
                      {title: rows for title, rows in tables.items() if rows}, unreachable)

    def _entry(self) -> Computation:
        computations = self.reading.computations
        if not computations:
            raise _wrong("the module has no computation", "", "a computation")
        named = (c for c in computations.values() if c.name == self.proto.entry_computation_name)
        found = computations.get(self.proto.entry_computation_id) or next(named, None)
        if found is None:
            raise _wrong("the module's entry does not exist", f"id {self.proto.entry_computation_id}")
        return found

    # ---- header

    def _header(self, is_scheduled: bool) -> dict[str, Any]:
        proto = self.proto
        header: dict[str, Any] = {"is_scheduled": True} if is_scheduled else {}
        if proto.input_output_alias.entries:
            entries = [f"{_index(e.output_shape_index)}: ({e.parameter_number}, {_index(e.parameter_shape_index)}, {_alias(e)})"
                       for e in proto.input_output_alias.entries]
            header["input_output_alias"] = f"{{ {', '.join(entries)} }}"
        if proto.buffer_donor.entries:
            entries = [f"({e.parameter_number}, {_index(e.parameter_shape_index)})" for e in proto.buffer_donor.entries]
            header["buffer_donor"] = f"{{ {', '.join(entries)} }}"
        if proto.HasField("host_program_shape"):
            header["entry_computation_layout"] = self._layout(proto.host_program_shape)
        if proto.HasField("device_assignment"):
            assigned = proto.device_assignment
            counts = {"replica_count": assigned.replica_count, "num_partitions": assigned.computation_count}
            header |= {name: count for name, count in counts.items() if count > 1}
        if proto.frontend_attributes.map:
            header["frontend_attributes"] = {entry.key: entry.value for entry in proto.frontend_attributes.map}
        if proto.original_value_recovery_table.entries:
            header["origin_recovery_table"] = read_recovery(
                proto.original_value_recovery_table, lambda module: print_module(read_module(module, self.reading.blobs)))
        return header

    def _layout(self, proto: Any) -> str:
        texts = [self.reading.shapes.read(p).to_text() for p in proto.parameters]
        listed = ", ".join(f"/*index={n}*/{text}" if n and n % 5 == 0 else text for n, text in enumerate(texts))
        return f"{{({listed})->{self.reading.shapes.read(proto.result).to_text()}}}"

    # ---- computations

    def _computation(self, proto: Any, sequence: Sequence[int] | None) -> Computation:
        self.by_id = {}
        found: list[Instruction] = []
        try:
            for instruction in proto.instructions:
                read = self._instruction(instruction)
                if self.by_id.setdefault(instruction.id & _LOCAL, read) is not read:
                    raise _wrong("two instructions have one id", f"id {instruction.id}")
                found.append(read)
            root = self._by_id(proto.root_id, "the root")
        except XlaError as error:
            raise error.located(where=f"computation {proto.name}") from None
        numbers = sorted(i.attributes.get("parameter_number", 0) for i in found if i.is_parameter)
        if numbers != list(range(len(numbers))):
            raise _wrong(f"the parameter numbers of {proto.name} are not dense", str(numbers),
                         f"each of 0 to {len(numbers) - 1} once")
        ordered = found if sequence is None else self._scheduled(proto, found, sequence)
        return Computation(proto.name, ordered, root, "" if proto.execution_thread == "main" else proto.execution_thread)

    def _scheduled(self, proto: Any, found: list[Instruction], sequence: Sequence[int]) -> list[Instruction]:
        """The instructions in the order of the schedule."""
        ordered = [self._by_id(number, "an instruction of the schedule") for number in sequence]
        place = {id(instruction): number for number, instruction in enumerate(ordered)}
        if len(place) != len(ordered) or len(ordered) != len(found) or any(
                place[id(o)] >= place[id(i)] for i in ordered for o in i.operands):
            raise _wrong(f"the schedule of {proto.name} is no order of its instructions", f"{len(ordered)} of {len(found)}",
                         "each once, behind its operands")
        return ordered

    def _by_id(self, number: int, what: str) -> Instruction:
        found = self.by_id.get(number & _LOCAL)
        if found is None:
            raise _wrong(f"{what} does not exist, or not before its user", f"id {number}", "the id of an earlier instruction")
        return found

    # ---- instructions

    def _instruction(self, proto: Any) -> Instruction:
        opcode = proto.opcode
        plan = self.plans[opcode] if opcode in self.plans else self._plan(opcode)
        if len(unknown := UnknownFieldSet(proto)):
            self.unknown_fields.update(f.field_number for f in unknown if f.field_number > _LAST_FIELD)
        if proto.block_scaling_config:
            raise UnsupportedError("HLO protos cannot express block-scaled products", subject=f"{opcode} (%{proto.name})",
                                   got="a block_scaling_config", expected="a product without one")
        if plan is None:
            self.unknown[opcode] += 1
            return Instruction(opcode, Shape.token(), (), {}, proto.name)
        try:
            return self._known(proto, plan)
        except XlaError as error:
            raise error.located(f"{opcode} (%{proto.name})") from None

    def _known(self, proto: Any, plan: _Plan) -> Instruction:
        reading = self.reading
        operands = [self._by_id(number, "an operand") for number in proto.operand_ids]
        if not self.unknown and not plan.least <= len(operands) <= plan.most:
            raise _wrong(f"{plan.schema.opcode} has {len(operands)} operands", "", f"{plan.least} or more")
        if not proto.HasField("shape"):
            raise _wrong("the instruction has no shape")
        reading.schema, reading.operands, reading.shape = plan.schema, operands, reading.shapes.read(proto.shape)
        attributes: dict[str, Any] = {}
        for name, link, required in plan.links:
            value = link.read(proto, reading)
            if value is not None:
                attributes[name] = value
            elif required:
                raise _wrong(f"attribute {name} is expected but not there")
        return Instruction(plan.schema.opcode, reading.shape, operands, attributes, proto.name, self._common(proto))

    def _plan(self, opcode: str) -> _Plan | None:
        schema = OPS.get(opcode)
        plan = schema and _Plan(schema, tuple((n, link_of(a), a.required) for n, a in schema.attributes.items()),
                                len(schema.operands) - schema.optional_operands,
                                float("inf") if schema.variadic else len(schema.operands))
        self.plans[opcode] = plan
        return plan

    def _common(self, proto: Any) -> dict[str, Any]:
        reading, found = self.reading, {}
        if metadata := read_metadata(proto.metadata, reading):
            found["metadata"] = metadata
        if proto.HasField("sharding"):
            sharding = read_sharding(proto.sharding, reading)
            found["sharding"] = sharding.of_tuple(reading.shape) if reading.shape.is_tuple else sharding
        if proto.frontend_attributes.map:
            found["frontend_attributes"] = {entry.key: entry.value for entry in proto.frontend_attributes.map}
        if config := self._config(proto):
            found["backend_config"] = config.decode("utf-8", "surrogateescape")
        if proto.control_predecessor_ids:
            found["control_predecessors"] = [self._by_id(n, "a control predecessor") for n in proto.control_predecessor_ids]
        if replicated := proto.parameter_replication.replicated_at_leaf_buffers:
            found["parameter_replication"] = "{" + ",".join(str(flag).lower() for flag in replicated) + "}"
        if proto.statistics_viz.statistics:
            found["statistics"] = read_statistics(proto.statistics_viz)
        if proto.HasField("original_value"):
            found["origin"] = read_origin(proto.original_value, reading.shape)
        return found

    def _config(self, proto: Any) -> bytes:
        if proto.HasField("backend_config_payload") and not proto.backend_config:
            return self.reading.payload(proto.backend_config_payload)
        return proto.backend_config or proto.custom_call_opaque

    def _unknown_opcodes(self) -> HloSyntaxError:
        counted = ", ".join(f"{opcode!r} ({n} time{'s' * (n > 1)})" for opcode, n in self.unknown.most_common())
        hints = (near and f"{opcode}: {near}" for opcode in self.unknown if (near := nearest(opcode, OPS)))
        return UnknownOpcodeError(f"unknown opcode{'s' * (len(self.unknown) > 1)} {counted}", subject="HLO proto",
                                  expected="opcodes of XLA", hint="; ".join(hints))


def _index(indices: Sequence[int]) -> str:
    return "{" + ",".join(map(str, indices)) + "}"


def _alias(entry: Any) -> str:
    return _ALIAS_KINDS[entry.kind] if 0 <= entry.kind < len(_ALIAS_KINDS) else _ALIAS_KINDS[0]


def _wrong(what: str, got: str = "", expected: str = "") -> HloSyntaxError:
    return HloSyntaxError(what, got=got, expected=expected)


