"""A program on one screen: what it takes and gives, its ops, what it costs, and what cannot run or be derived. And all ops."""

from __future__ import annotations

import dataclasses
import keyword
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from grad_rules import TABLE, GradientKind

from ..analysis.cost import computation_cost
from ..hlo.custom_calls import described, target_of
from ..hlo.ir import Instruction, Module
from ..hlo.schema import OPS, OpSchema
from ..hlo.structure import CONSTANT
from ..lowering.custom_calls import is_known, why_not
from ..lowering.emit import comment
from ..runtime.computation import XlaComputation
from ..runtime.polymorphic import of_unknown_sizes
from .all_rule_tables import TABLES

ROWS = 40
"""Parameters and results listed before the rest is summed up."""

_WIDTH = 118


def summary(computation: XlaComputation, sizes: Mapping[str, int] | None = None) -> str:
    """The summary as text, without a newline at its end. Of a program of unknown sizes it is about these, and small ones for
    the names that are left out."""
    unknown = of_unknown_sizes(computation)
    if unknown is not None:
        return f"{unknown.headline(sizes)}\n\n{summary(unknown.at(sizes))}"
    return "\n".join(_lines(computation))


def facts(computation: XlaComputation, sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
    """What the summary says, for programs: all parameters and results, and bytes and flops as whole numbers."""
    unknown = of_unknown_sizes(computation)
    if unknown is not None:
        return {"headline": unknown.headline(sizes), **facts(unknown.at(sizes))}
    module, signature = computation.module, computation.program_shape
    instructions = [i for c in module.computations for i in c.instructions]
    counts, constants = Counter(i.opcode for i in instructions), _all_constants(instructions)
    return {
        "name": module.name, "instructions": len(instructions), "computations": len(module.computations),
        "replicas": module.replica_count, "partitions": module.num_partitions,
        "parameters": [{"number": n, "shape": str(p.shape), "name": p.name, "op_name": p.op_name, "bytes": p.shape.byte_size}
                       for n, p in enumerate(module.entry.parameters)],
        "results": [{"number": n, "shape": str(s), "bytes": s.byte_size} for n, s in enumerate(signature.result.leaves())],
        "ops": dict(counts.most_common()), "cost": dataclasses.asdict(computation_cost(module.entry)),
        "constants": {"count": len(constants), "bytes": sum(i.shape.byte_size for i in constants),
                      "elided": [i.name for i in constants if i.attributes["literal"].elided]},
        "custom_calls": [{"target": target, "count": count, "unsupported": reasons}
                         for target, count, reasons in _targets(instructions)],
        "no_gradient": {opcode: TABLE[opcode].because for opcode in _without_gradient(counts)}}


def _lines(computation: XlaComputation) -> Iterator[str]:
    module, signature = computation.module, computation.program_shape
    computations = module.computations
    instructions = [i for c in computations for i in c.instructions]
    headline = f"{comment(module.name)}: {len(instructions)} instructions in {_count(len(computations), 'computation')}"
    if module.replica_count * module.num_partitions > 1:
        headline += f", for {module.replica_count} replicas x {module.num_partitions} partitions"
    yield headline
    if computation.partitioning.about:
        yield str(computation.partitioning)

    parameters = [(f"{number}", str(p.shape), f"%{comment(p.name)}", comment(p.op_name), *_lies(computation, p))
                  for number, p in enumerate(module.entry.parameters)]
    yield from _section("parameters", sum(s.byte_size for s in signature.parameters), _table(parameters))
    leaves, tilings = list(signature.result.leaves()), _lies(computation, module.entry.root, each=True)
    results = [(f"{n}", str(s), *tilings[n:n + 1]) for n, s in enumerate(leaves)]
    yield from _section("results", signature.result.byte_size, _table(results))

    counts = Counter(i.opcode for i in instructions)
    yield from _section("ops", None, _wrap(f"{opcode} {count}" for opcode, count in counts.most_common()))
    yield from _section("cost", None, _cost(module))
    yield from _section("constants", None, _constants(instructions))
    yield from _section("custom calls", None, _custom_calls(instructions))
    yield from _section("no gradient", None, _refused(counts))


def _lies(computation: XlaComputation, instruction: Instruction, each: bool = False) -> list[str]:
    """How a parameter, or each result, of a program for several partitions lies; nothing of another program."""
    if not computation.partitioning.about:
        return []
    sharding = instruction.common.get("sharding")
    if not each:
        return ["" if sharding is None else str(sharding)]
    count = len(list(instruction.shape.leaves()))
    return [""] * count if sharding is None else [str(s) for s in sharding.leaves(instruction.shape)]


def _section(title: str, size: int | None, lines: Iterable[str]) -> Iterator[str]:
    lines = list(lines)
    if lines:
        yield f"\n{title}" + (f", {_bytes(size)}" if size is not None else "")
        yield from (f"  {line}".rstrip() for line in lines)


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows with aligned columns; only the first and a count of the others where there are many."""
    shown = rows[:ROWS]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]
    return lines + [f"... and {len(rows) - ROWS} more"] * (len(rows) > ROWS)


def _wrap(words: Iterable[str]) -> list[str]:
    """Words separated by commas, in lines of bounded width."""
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) > _WIDTH:
            lines.append("")
        lines[-1] += f"{word}, "
    lines[-1] = lines[-1].removesuffix(", ")
    return [line.rstrip() for line in lines if line]


def _cost(module: Module) -> list[str]:
    cost = computation_cost(module.entry)
    lines = [f"{_scaled(cost.flops)} flops, {_scaled(cost.transcendentals)} transcendentals, "
             f"{_bytes(cost.bytes)} read and written"]
    if cost.unknown_loops:
        lines.append(f"with {_count(cost.unknown_loops, 'loop')} whose length depends on data, taken once")
    return lines


def _constants(instructions: list[Instruction]) -> list[str]:
    found = _all_constants(instructions)
    if not found:
        return []
    largest = max(found, key=lambda i: i.shape.byte_size)
    elided = [f"%{comment(i.name)}" for i in found if i.attributes["literal"].elided]
    lines = [f"{len(found)}, {_bytes(sum(i.shape.byte_size for i in found))}; "
             f"the largest is %{comment(largest.name)}, {largest.shape}"]
    if elided:
        lines += ["printed as constant({...}), so that the program cannot run:", *_wrap(elided)]
    return lines


def _all_constants(instructions: list[Instruction]) -> list[Instruction]:
    return [i for i in instructions if i.opcode == CONSTANT]


def _unknown_calls(instructions: list[Instruction]) -> list[tuple[str, Instruction]]:
    return [(target_of(i), i) for i in instructions if target_of(i) and not is_known(i)]


def _targets(instructions: list[Instruction]) -> Iterator[tuple[str, int, list[str]]]:
    """Each target of custom calls with its count, and why it cannot run."""
    unknown = _unknown_calls(instructions)
    for target, count in Counter(filter(None, map(target_of, instructions))).most_common():
        yield target, count, sorted({why_not(i) for name, i in unknown if name == target})


def _custom_calls(instructions: list[Instruction]) -> list[str]:
    """Each target with its count; of those that cannot run why, and the lines that would let them."""
    unknown = _unknown_calls(instructions)
    lines = [f"{comment(target)} {count}" + (f"   UNSUPPORTED: {comment('; '.join(reasons))}" if reasons else "")
             for target, count, reasons in _targets(instructions)]
    if unknown:
        lines += ["", "to run it, register a function on tensors for each that is unsupported:"]
        lines += [line for _, i in dict(reversed(unknown)).items() for line in _registration(i)]
    return lines


def _registration(instruction: Instruction) -> list[str]:
    """What to write for a custom call that is not known: its operands, its result, and its configuration."""
    call = described(instruction)
    name = re.sub(r"\W+", "_", call.target).strip("_") or "function"
    name = f"call_{name}" if name[0].isdigit() or keyword.iskeyword(name) else name
    operands = [f"x{k}" for k in range(len(call.operands))]
    shapes = ", ".join(map(str, call.operands))
    opaque = f"; call.config is {_shortened(str(call.config))}" if call.config else (
        f"; call.opaque is {_shortened(repr(call.opaque))}" if call.opaque else "")
    return ["", f"def {name}({', '.join([*operands, '*', 'call'])}):",
            comment(f"    ...  # {_shortened(f'({shapes}) -> {call.shape}')}{opaque}"),
            f"xla_torch.register_custom_call({call.target!r}, {name})"]


def _shortened(text: str) -> str:
    return text if len(text) <= _WIDTH else text[:_WIDTH] + " ..."


def _refused(counts: Counter[str]) -> list[str]:
    return [f"{opcode}: {TABLE[opcode].because}" for opcode in _without_gradient(counts)]


def _without_gradient(counts: Counter[str]) -> list[str]:
    return [opcode for opcode in counts if opcode in TABLE and TABLE[opcode].kind is GradientKind.REFUSED]


# ------------------------------------------------------------------------------------------------- all ops


def ops_table() -> str:
    """All ops as text: their operands, the kind of their gradient, and the tables that have a rule for them; then what the
    tables lack."""
    tables = sorted(TABLES.items())
    titles = "opcode", "family", "operands", "gradient", "rules"
    cells = [titles, *((*(op[title] for title in titles[:-1]), ", ".join(op["rules"])) for op in ops_facts())]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    lacking = [f"the {name} table lacks {', '.join(table.lacking())}" for name, table in tables if table.lacking()]
    kinds = Counter(entry.kind.value for entry in TABLE.values())
    gradients = ", ".join(f"{kinds[kind.value]} {kind.value}" for kind in GradientKind)
    return "\n".join([lines[0], "", *lines[1:], "", f"{len(OPS)} ops. Gradients: {gradients}.", *lacking])


def ops_facts() -> list[dict[str, Any]]:
    """What the table of all ops says, for programs."""
    return [{"opcode": opcode, "family": schema.family, "operands": operands_of(schema),
             "gradient": TABLE[opcode].kind.value if opcode in TABLE else "",
             "rules": [name for name, table in sorted(TABLES.items()) if opcode in table]}
            for opcode, schema in sorted(OPS.items(), key=lambda item: (item[1].family, item[0]))]


def operands_of(schema: OpSchema) -> str:
    """``lhs, rhs``; ``init_values?`` may be left out, and ``*operands`` are any number."""
    needed = len(schema.operands) - schema.optional_operands
    names = [name + "?" * (number >= needed) for number, name in enumerate(schema.operands)]
    return ", ".join([*names, *([f"*{schema.variadic}"] if schema.variadic else [])])


# ------------------------------------------------------------------------------------------------- words


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)


def _bytes(size: int) -> str:
    """``1.5 MiB``."""
    value, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.1f} {unit}" if unit != "B" else f"{size} B"


def _scaled(number: int) -> str:
    """``1.5 M``; small numbers as they are."""
    value = float(number)
    for prefix in ("", "k", "M", "G", "T"):
        if value < 1000 or prefix == "T":
            break
        value /= 1000
    return f"{value:.1f} {prefix}" if prefix else str(number)
