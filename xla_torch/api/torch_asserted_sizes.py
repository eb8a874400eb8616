"""What graphs of torch.export say of sizes that depend on values: which are equal, what chooses them, and in which line."""

from __future__ import annotations

import math
import operator
import re
import traceback
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.fx

from ..storage import torch_private

_CHOOSING = {"masked_select.default": (1,), "nonzero.default": (0,), "_unique2.default": (0,), "unique_dim.default": (0, 1),
             "unique_consecutive.default": (0, 3), "repeat_interleave.Tensor": (0,)}
"""Operators whose results have sizes that values say, and the numbers of the arguments that say them."""

_WRITING = {"index_put.default": (1, 2), "masked_scatter.default": (1, 2)}
"""Operators that write values, as many as indices or a mask say, and the numbers of these two arguments."""

COMPARISONS = frozenset({operator.eq, operator.ne, operator.le, operator.lt, operator.ge, operator.gt})

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>[^\n]+)(\n\s*(?P<code>[^\n]+))?')
_OWN = str(Path(__file__).parents[1])
_TORCHS = re.compile(r"(^|[/\\])torch[/\\]|^<eval_with_key>")


def chosen_by(node: torch.fx.Node) -> Hashable | None:
    """What says how many elements there are in an operator's result, equal for equal masks. None for operators whose results
    have sizes of their operands."""
    given = _choosing(node)
    if len(given) == 1 and _is_mask(given[0]):
        return _form(given[0], {})
    return (str(node.target), _form(given, {})) if given else None


def most_chosen(node: torch.fx.Node) -> int | None:
    """How many elements such a result has at most, where the sizes of what says it are known."""
    given = _choosing(node)
    sizes: Any = given[0].meta["val"].shape if given and isinstance(given[0], torch.fx.Node) else [None]
    known = all(type(n) is int for n in sizes) and str(node.target) != "aten.repeat_interleave.Tensor"
    return None if not known else sizes[given[1]] if "unique_dim" in str(node.target) else math.prod(sizes)


def _choosing(node: torch.fx.Node) -> list[Any]:
    """The arguments that say how many elements an operator's result has, where values do."""
    name = str(node.target).removeprefix("aten.")
    if name == "index.Tensor":
        return [m for m in node.args[1] if _is_mask(m)][:1]  # pyright: ignore[reportGeneralTypeIssues, reportOptionalIterable]
    return [node.args[k] for k in _CHOOSING.get(name, ()) if k < len(node.args)]


def written_to(node: torch.fx.Node) -> tuple[Sequence[Any], list[Any]]:
    """The sizes of the values that an operator writes, and what says how many places it writes them to: sizes of indices, and of
    masks what is equal for equal ones. Both are empty for other operators."""
    name = str(node.target).removeprefix("aten.")
    if name not in _WRITING:
        return (), []
    given: list[Any] = [node.args[k] for k in _WRITING[name]]
    indices = given[0] if isinstance(given[0], (list, tuple)) else given[:1]
    places = [_form(one, {}) if _is_mask(one) else one.meta["val"].shape[0] for one in indices
              if isinstance(one, torch.fx.Node) and one.meta["val"].dim()]
    return given[1].meta["val"].shape, places


def _is_mask(given: Any) -> bool:
    value = given.meta.get("val") if isinstance(given, torch.fx.Node) else None
    return isinstance(value, torch.Tensor) and value.dtype in (torch.bool, torch.uint8)


def _form(given: Any, known: dict[torch.fx.Node, Hashable]) -> Hashable:
    """How a value is computed, equal for values that are computed in the same way."""
    if isinstance(given, (list, tuple)):
        return tuple(_form(part, known) for part in given)
    if not isinstance(given, torch.fx.Node):
        return str(given)
    if given not in known:
        repeats = given.op == "call_function" and not _draws(given.target)
        known[given] = (str(given.target), _form(given.args, known), _form(tuple(given.kwargs.items()), known)) if (
            repeats) else given.name
    return known[given]


def _draws(target: Any) -> bool:
    return not isinstance(target, torch_private.Operator) or torch.Tag.nondeterministic_seeded in target.tags


def equal_sizes(graph: torch.fx.Graph, held: Mapping[str, torch.Tensor]) -> dict[Any, Any]:
    """The symbols that are asserted to be numbers or other symbols, and those that the values `held` by placeholders say."""
    found: dict[Any, Any] = {}
    for node in graph.nodes:
        if str(node.target).startswith("aten._assert_scalar") and isinstance(node.args[0], torch.fx.Node):
            _join(found, node.args[0])
    values: dict[torch.fx.Node, Any] = {}
    for node in graph.nodes:
        if node.op == "call_function" and chosen_by(node) is not None:
            found |= _counted(node, held, values)
    return found


def _join(found: dict[Any, Any], truth: torch.fx.Node) -> None:
    """Take what an equality of a symbol with a number or another symbol says. Of two symbols the later is the earlier."""
    if truth.target is not operator.eq:
        return
    given: list[Any] = [a.meta.get("val") if isinstance(a, torch.fx.Node) else a for a in truth.args]
    sides: list[Any] = [v.node.expr.subs(found) if isinstance(v, torch.SymInt) else v for v in given]
    symbols = [side for side in sides if not isinstance(side, (int, float)) and side.is_Symbol]
    numbers = [side for side in sides if isinstance(side, int) or getattr(side, "is_Integer", False)]
    if len(symbols) == 2:
        first, last = sorted(symbols, key=lambda symbol: (len(str(symbol)), str(symbol)))
        found[last] = first
    elif symbols and numbers:
        found[symbols[0]] = int(numbers[0])


def _counted(node: torch.fx.Node, held: Mapping[str, torch.Tensor], values: dict[torch.fx.Node, Any]) -> dict[Any, Any]:
    """The sizes of a result that is the same in each call."""
    stated = [v for v in torch_private.pytree.tree_leaves(node.meta.get("val")) if isinstance(v, torch.Tensor)]
    if not any(isinstance(n, torch.SymInt) and n.node.expr.is_Symbol for v in stated for n in v.shape):
        return {}
    try:
        actual = torch_private.pytree.tree_leaves(_with_stand_ins(node, held, values))
    except _Unknown:
        return {}
    return {n.node.expr: size for v, a in zip(stated, actual, strict=True) for n, size in zip(v.shape, a.shape, strict=True)
            if isinstance(n, torch.SymInt) and n.node.expr.is_Symbol}


def is_the_same(node: torch.fx.Node, held: Mapping[str, torch.Tensor], values: dict[torch.fx.Node, Any]) -> bool:
    """Whether what says the sizes of a node's result is computed of these values alone."""
    try:
        return bool(_value(_choosing(node), held, values))
    except _Unknown:
        return False


def _with_stand_ins(node: torch.fx.Node, held: Mapping[str, torch.Tensor], values: dict[torch.fx.Node, Any]) -> Any:
    """An operator's result for its values that say sizes, and for others of the same shapes."""
    _value(_choosing(node), held, values)
    others = {}
    for given in node.all_input_nodes:
        try:
            others[given] = _value(given, held, values)
        except _Unknown:
            like = given.meta.get("val")
            if not isinstance(like, torch.Tensor) or not all(type(n) is int for n in like.shape):
                raise
            others[given] = torch.zeros((), dtype=like.dtype).expand(like.shape)
    target: Any = node.target
    return target(*torch.fx.map_arg(node.args, others.__getitem__), **torch.fx.map_arg(node.kwargs, others.__getitem__))


class _Unknown(Exception):
    """Raised for a value that calls may change."""


def _value(given: Any, held: Mapping[str, torch.Tensor], values: dict[torch.fx.Node, Any]) -> Any:
    """What a graph computes of the held values alone."""
    if isinstance(given, (list, tuple)):
        return type(given)(_value(part, held, values) for part in given)
    if not isinstance(given, torch.fx.Node):
        return given
    if given not in values:
        values[given] = _computed(given, held, values)
    if values[given] is _Unknown:
        raise _Unknown
    return values[given]


def _computed(node: torch.fx.Node, held: Mapping[str, torch.Tensor], values: dict[torch.fx.Node, Any]) -> Any:
    if node.op == "placeholder":
        return held.get(node.name, _Unknown)
    if node.op != "call_function" or not (node.target is operator.getitem or not _draws(node.target)):
        return _Unknown
    try:
        target: Any = node.target
        with torch.no_grad():
            return target(*_value(node.args, held, values), **{k: _value(v, held, values) for k, v in node.kwargs.items()})
    except _Unknown:
        return _Unknown


# ------------------------------------------------------------------------------------------- the user's code


def line_of(node: torch.fx.Node) -> str:
    """Where a node stands in the user's code: ``model.py:12, in forward: y = x[mask]``; empty where torch does not say. What
    torch inserts stands where the values that it is about do."""
    seen, waiting = set[torch.fx.Node](), [node]
    while waiting:
        one = waiting.pop(0)
        seen.add(one)
        frames = [m for m in _FRAME.finditer(one.meta.get("stack_trace") or "") if not _TORCHS.search(m["file"])]
        if frames:
            return _written(frames[-1]["file"], frames[-1]["line"], frames[-1]["name"], frames[-1]["code"])
        waiting += [n for n in one.all_input_nodes if n not in seen]
    return ""


def line_of_error(error: BaseException) -> str:
    """The innermost line of the user's code that an error of torch's passed through, as `line_of` writes it."""
    found = [frame for frame in traceback.extract_tb(error.__traceback__)
             if not (_TORCHS.search(frame.filename) or frame.filename.startswith(_OWN))]
    return _written(found[-1].filename, found[-1].lineno, found[-1].name, found[-1].line) if found else ""


def is_of_the_user(error: BaseException) -> bool:
    """Whether code outside of torch and this package raised an error."""
    *_, last = traceback.extract_tb(error.__traceback__)
    return not (_TORCHS.search(last.filename) or last.filename.startswith(_OWN))


def _written(file: str, line: Any, name: str, code: str | None) -> str:
    return f"{file}:{line}, in {name}" + (f": {code.strip()}" if code else "")
