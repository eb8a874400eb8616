"""What looks into programs and ops: `show`, `code`, `ops`."""

from __future__ import annotations

from pathlib import Path

from ..api.all_rule_tables import TABLES
from ..api.dumps import listing, stages
from ..api.op_view import view, view_facts
from ..api.summary import facts, ops_facts, ops_table, summary
from ..passes.passes import Change, recorded
from ..runtime.polymorphic import of_unknown_sizes
from .inputs import Sizes, device_of, program_of
from .messages import Message

_SHOWN = 40
"""Lines of each pass's changes that `show --passes` prints."""


def show(file: Path, passes: bool, sizes: Sizes) -> Message:
    """A summary; of a folder its programs."""
    if file.is_dir():
        return Message(lambda: listing(file), lambda: [{"module": s.module, "stage": s.stage, "file": s.path.name,
                                                        "bytes": s.size,
                                                     "form": s.form.title} for s in stages(file)])
    computation = program_of(file, sizes)
    if not passes:
        return Message(lambda: summary(computation, sizes), lambda: facts(computation, sizes))
    unknown = of_unknown_sizes(computation)
    with recorded() as log:
        (computation if unknown is None else unknown.at(sizes)).lowered()
    return Message(lambda: "\n".join(line for change in log for line in _changed(change)),
                lambda: [{"graph": c.graph, "pass": c.name, "nodes": list(c.calls), "lines": list(c.lines)} for c in log])


def _changed(change: Change) -> list[str]:
    """What a pass took out of a graph (``-``) and put into it (``+``)."""
    before, after = change.calls
    return [f"{change.graph}: {change.name}, {before} nodes to {after}", *(f"    {line}" for line in change.lines[:_SHOWN]),
            *[f"    ... and {len(change.lines) - _SHOWN} more"] * (len(change.lines) > _SHOWN)]


def code(file: Path, device: str, sizes: Sizes) -> Message:
    """The PyTorch that the program becomes."""
    computation, where = program_of(file, sizes), device_of(device)
    unknown = of_unknown_sizes(computation)
    text = computation.python_code(where) if unknown is None else unknown.python_code(where, sizes)
    return Message(lambda: text, lambda: {"code": text, "device": str(where)})


def ops(names: tuple[str, ...]) -> Message:
    """All ops, or all that is known of some."""
    if names:
        return Message(lambda: "\n\n\n".join(map(view, names)), lambda: [op for name in names for op in view_facts(name)])
    lacking = {name: table.lacking() for name, table in sorted(TABLES.items()) if table.lacking()}
    return Message(ops_table, lambda: {"ops": ops_facts(), "lacking": lacking})
