"""Values that Python asks for while torch.export traces a model: answered from the example, noted, and asserted in the graph.

torch.export refuses `if (x > 0).all()`: its tensors have no data. Its draft mode lets every tensor carry the example's data, and
asserts what it decides by them. This module runs an export in that mode and notes each decision with the user's line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import linecache
import logging
import math
import re
import sys
import threading
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._functorch.config
import torch._subclasses.meta_utils
import torch.export._trace
import torch.fx
import torch.fx.experimental.symbolic_shapes
import torch.utils._sympy.interp
import torch.utils._sympy.reference

from ..core import forks
from . import inline_regions, messages
from .torch_graphs import in_operators
from .torch_private import READING, private, pytree

_export: Any = private(torch, "export._trace")
_symbols: Any = torch.fx.experimental.symbolic_shapes
_Environment: Any = private(_symbols, "ShapeEnv")
_canonical: Callable[[Any], Any] = private(_symbols, "canonicalize_bool_expr")
_assert, _note = (private(_Environment, name) for name in ("guard_or_defer_runtime_assert", "_log_real_tensor_propagation"))
private(_Environment, "_maybe_guard_rel")
_configured: Callable[..., Any] = private(torch, "_functorch.config.patch")
_copies: Any = private(torch, "_subclasses.meta_utils")
_copy, _clone = private(_copies, "_safe_copy"), private(_copies, "_safe_clone")
_TORCH, _NUMPY = (str(Path(str(library.__file__)).parent) for library in (torch, np))
_OWN = str(Path(__file__).parents[1])
_true: Any = private(_symbols, "sympy.true")
_sympify: Callable[[Any], Any] = private(_symbols, "sympy.sympify")
_differ: Callable[[Any, Any], Any] = private(_symbols, "sympy.Ne")
ASSERTIONS = (torch.ops.aten._assert_async.msg, torch.ops.aten._assert_scalar.default)
"""The operators that assert in exported graphs."""
_LONG = 200
"""How many letters of a text an assumption names."""
_NEVER = 1 << 40
"""A number that keeps what is compared with it in the graph, until `settled` asserts it otherwise."""
_ANSWERED = "propagate_real_tensors"
_exclusive = forks.Lock()


@contextlib.contextmanager
def without_report() -> Iterator[None]:
    """A block in which torch.export prints no part of a graph, and logs nothing, when it refuses a value."""
    def is_other(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith("Unable to find user code")

    logger = private(_symbols, "log")
    with _exclusive:
        logger.addFilter(is_other)
        _export.print = lambda *words, **options: None  # pyright: ignore[reportAttributeAccessIssue]
        try:
            yield
        finally:
            logger.removeFilter(is_other)
            del _export.print  # pyright: ignore[reportAttributeAccessIssue]


def _plain(tensor: Any) -> Any:
    return tensor.data if type(tensor) is torch.nn.Parameter else tensor


@contextlib.contextmanager
def _copied_parameters() -> Iterator[None]:
    """A block in which traced parameters carry their data. torch copies the data of plain tensors only, and leaves the memory of
    others as it finds it."""
    _copies._safe_copy = lambda to, tensor: _copy(to, _plain(tensor))
    _copies._safe_clone = lambda tensor: _clone(_plain(tensor))
    try:
        yield
    finally:
        _copies._safe_copy, _copies._safe_clone = _copy, _clone


@dataclasses.dataclass(frozen=True)
class Read:
    """One decision: the expression in the user's code, its value, where it stands, and the condition that torch asserts."""

    expression: str
    value: bool | int | float | str
    file: str
    line: int
    condition: Any


class Reads:
    """The decisions of one export, in order."""

    def __init__(self) -> None:
        self.found: dict[str, Read] = {}
        self.texts: list[Read] = []
        """Of tensors: these are asserted when they are made."""
        self.dimension: int | None = None
        """The dimension whose size is being read."""
        self._answer: Any = None

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Answer from the example what this thread's exports ask for."""
        thread = threading.get_ident()

        def note(environment: Any, asked: Any, answer: Any) -> None:
            if threading.get_ident() == thread:
                self._answer = answer
            else:
                _note(environment, asked, answer)

        def decide(environment: Any, condition: Any, message: str, fx_node: Any = None) -> Any:
            if threading.get_ident() != thread or not message.startswith(_ANSWERED):
                return _assert(environment, condition, message, fx_node)
            return self._decide(environment, condition, message)

        with _exclusive, _copied_parameters(), _configured(fake_tensor_propagate_real_tensors=True):
            _Environment._log_real_tensor_propagation, _Environment.guard_or_defer_runtime_assert = note, decide
            try:
                yield
            finally:
                _Environment._log_real_tensor_propagation, _Environment.guard_or_defer_runtime_assert = _note, _assert

    def note_text(self, label: Callable[[Read], str], tensor: torch.Tensor, values: torch.Tensor, text: str) -> None:
        """Note that Python made a text of a tensor, and assert that it has the example's values."""
        if any(isinstance(size, torch.SymInt) for size in tensor.shape):
            tensor = tensor.reshape([int(size) for size in tensor.shape])
        expression, file, line = _asked()
        read = Read(expression, " ".join(text.split())[:_LONG], file, line, None)
        self.texts.append(read)
        expected = torch.tensor(values.tolist(), dtype=values.dtype, device=values.device).reshape(values.shape)
        if values.is_floating_point() or values.is_complex():
            precision = 4 * torch.finfo(values.dtype).eps
            same = torch.isclose(tensor, expected, rtol=precision, atol=0, equal_nan=True)
        else:
            same = tensor == expected
        torch.ops.aten._assert_async.msg(same.all(), label(read))

    def rename(self, symbols: Mapping[Any, Any]) -> None:
        """Take the symbols of a trace of the operators of the first trace, or the numbers that it asked for again."""
        first, self.found = self.found, {}
        symbols = {symbol: _sympify(after) for symbol, after in symbols.items()}
        for read in first.values():
            condition = read.condition.xreplace(symbols)
            if condition != _true:
                self.found.setdefault(str(condition), dataclasses.replace(read, condition=condition))

    def _decide(self, environment: Any, condition: Any, message: str) -> Any:
        answer, self._answer = self._answer, None
        if answer is None:  # a size of an operator's result
            answer = condition.args[1]
        value = _number(answer)
        expression, file, line = _asked()
        asserted = _canonical(condition)
        if self.dimension is not None:
            expression += f".shape[{self.dimension}]"
        self.found.setdefault(str(asserted), Read(expression, value, file, line, asserted))
        if self.dimension is not None:
            return _assert(environment, condition, message)
        # Torch would also assert the ranges that follow from the condition, as assertions of their own.
        environment._maybe_guard_rel = lambda known: None
        try:
            for symbol in asserted.free_symbols:  # torch drops bounds, and then what it takes for unread
                _assert(environment, _differ(symbol, _NEVER), message)
            return _assert(environment, condition, message)
        finally:
            del environment._maybe_guard_rel


def _number(answer: Any) -> bool | int | float:
    if answer.is_Boolean:
        return bool(answer)
    return int(answer) if answer.is_Integer else float(answer)


def _keep_alive(graph: torch.fx.Graph, symbols: Collection[Any], label: str) -> None:
    """Let something read each value whose size is one of these: the size is checked where the value is computed."""
    for symbol in symbols:
        node = next((n for n in graph.nodes if isinstance(v := n.meta.get("val"), torch.Tensor) and any(
            isinstance(size, torch.SymInt) and symbol in size.node._expr.free_symbols for size in v.shape)), None)
        if node is None:  # a graph around this one computes it
            continue

        def run(value: torch.Tensor) -> None:
            torch.ops.aten._assert_async.msg((value != 0).sum() >= 0, label)

        _insert(graph, in_operators(run, [node.meta["val"]], {}), [node], node)


def has_reads(exported: Any) -> bool:
    """Whether an exported program reads numbers from tensors."""
    return any(_symbols_of(node) for one in inline_regions.with_regions(exported.graph_module) for node in one.graph.nodes)


def settled(exported: Any, reads: Reads, label: Callable[[Read], str]) -> list[Read]:
    """Let an exported program assert each decision by an assertion with a label, in place. Returns those that it cannot assert.

    torch asserts them by symbols, which neither its decompositions nor its derivatives keep well. Decisions about values become
    assertions about tensors; those about sizes keep their symbols.
    """
    left = _without_implied(reads.found)
    graphs = [one.graph for one in inline_regions.with_regions(exported.graph_module)]
    sources = {graph: {symbol: node for node in graph.nodes for symbol in _symbols_of(node)} for graph in graphs}
    read_ones = {symbol: node for one in sources.values() for symbol, node in one.items()}
    for graph in graphs:
        _forget_data(graph, left)
    for graph in graphs:
        _relabel(graph, read_ones, left, label)
    for graph, own in sources.items():
        for key, read in list(left.items()):
            given = [own[symbol] for symbol in own if symbol in read.condition.free_symbols]
            if given and len(given) == len(read.condition.free_symbols):
                _assert_tensors(graph, given, left.pop(key), label(read))
        for node in {node.name: node for node in own.values()}.values():
            _keep_as_tensor(graph, node)
    inline_regions.without_dead_code(exported.graph_module)
    return list(left.values())


def _without_implied(found: Mapping[str, Read]) -> dict[str, Read]:
    """The decisions without those that follow from others, which say which number a size or value is."""
    known = {read.condition.args[k]: read.condition.args[1 - k] for read in found.values() for k in (0, 1)
             if type(read.condition).__name__ == "Equality" and read.condition.args[k].is_Symbol
             and read.condition.args[1 - k].is_Integer}
    return {key: read for key, read in found.items()
            if type(read.condition).__name__ == "Equality" or read.condition.xreplace(known) != _true}


def _relabel(graph: torch.fx.Graph, sources: Mapping[Any, torch.fx.Node], left: dict[str, Read],
             label: Callable[[Read], str]) -> None:
    """Give the assertions of decisions about sizes their labels, and leave out those of decisions about values."""
    truths = {str(symbol) for symbol, node in sources.items() if isinstance(node.meta["val"], torch.SymBool)}
    for node in list(graph.nodes):
        asserted = _ASSERTED.match(str(node.args[1])) if "_assert_scalar" in str(node.target) else None
        if asserted is None:
            continue
        if f", {_NEVER}" in asserted[1]:
            graph.erase_node(node)
            continue
        read = left.get(asserted[1])
        if read is not None and not read.condition.free_symbols <= sources.keys():
            node.args = (node.args[0], label(left.pop(asserted[1])))
            _keep_alive(graph, read.condition.free_symbols, label(read))
        elif read is not None or set(_SYMBOL.findall(asserted[1])) <= truths:  # or that a truth is 0 or 1
            graph.erase_node(node)


_ARITHMETIC = tuple(getattr(torch.ops.aten, name).Tensor for name in ("add", "sub", "mul", "div"))


def _keep_as_tensor(graph: torch.fx.Graph, read: torch.fx.Node) -> None:
    """Let arithmetic take the tensor that a number was read from, without its gradient: torch has no derivative of symbols."""
    source: Any = read.args[0]
    tensor, detached = source.meta["val"], None
    for user in list(read.users):
        other: Any = user.args[0]
        if user.target not in _ARITHMETIC or user.args[1] is not read or not _is_as_a_number(tensor, other.meta["val"]):
            continue
        if detached is None:
            with graph.inserting_after(read):
                detached = graph.call_function(torch.ops.aten.detach.default, (source,))
            detached.meta = {**{k: read.meta[k] for k in _PLACES if k in read.meta}, "val": tensor}
        user.args = (other, detached)


def _is_as_a_number(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether arithmetic with a tensor of one element has the type that it has with the element as a number."""
    if not tensor.ndim and other.ndim:
        return other.is_floating_point() and not tensor.is_complex()
    return not tensor.ndim and tensor.dtype is other.dtype


def _forget_data(graph: torch.fx.Graph, decisions: Collection[str]) -> None:
    """Let nothing more be answered from the example, or be asserted a second time, when the program is traced again."""
    values = [v for node in graph.nodes for v in pytree.tree_leaves(node.meta.get("val")) if hasattr(v, "fake_mode")]
    for value in values:
        value.real_tensor = None
    for mode in {id(value.fake_mode): value.fake_mode for value in values}.values():
        mode.propagate_real_tensors = False
        if (environment := mode.shape_env) is not None:
            environment.real_tensor_prop_unbacked_vals.clear()
            for asserted in environment.deferred_runtime_asserts.values():
                asserted[:] = [one for one in asserted if str(one.expr) not in decisions]


def _symbols_of(node: torch.fx.Node) -> list[Any]:
    """The symbol that stands for the number that a node reads from a tensor."""
    value: Any = node.meta.get("val")
    return list(value.node._expr.free_symbols) if node.target in READING and hasattr(value, "node") else []


def _assert_tensors(graph: torch.fx.Graph, given: list[torch.fx.Node], read: Read, label: str) -> None:
    """Assert a decision about the numbers that these nodes read, after the last of them."""
    symbols = [_symbols_of(node)[0] for node in given]

    def run(*tensors: torch.Tensor) -> None:
        wide = [t.to(torch.float64 if t.is_floating_point() else torch.int64) for t in tensors]
        numbers = dict(zip(symbols, wide, strict=True))
        if isinstance(read.value, float):
            frozen, value = sorted(read.condition.args, key=lambda side: not side.free_symbols)  # both may be negated
            precision = max(torch.finfo(t.dtype).eps for t in tensors if t.is_floating_point())
            holds = _is_near(_interpreted(_Tensors, numbers, frozen), float(value), precision)
        else:
            holds = _interpreted(_Tensors, numbers, read.condition)
        torch.ops.aten._assert_async.msg(holds, label)

    tensors: list[Any] = [node.args[0] for node in given]
    made = in_operators(run, [t.meta["val"] for t in tensors], _CONVERTED)  # pyright: ignore
    _insert(graph, made, tensors, max(given))


_CONVERTED = {private(torch.ops, "prims.convert_element_type.default"): lambda tensor, dtype: tensor.to(dtype)}


def _insert(graph: torch.fx.Graph, made: torch.fx.GraphModule, given: Sequence[Any], last: torch.fx.Node) -> None:
    """Put the operators of another graph after a node."""
    known = dict(zip((n for n in made.graph.nodes if n.op == "placeholder"), given, strict=True))
    with graph.inserting_before(last.next):
        for part in made.graph.nodes:
            if part.op == "call_function":
                known[part] = graph.node_copy(part, known.__getitem__)
                known[part].meta = {**part.meta, **{k: last.meta[k] for k in _PLACES if k in last.meta}}


_PLACES = ("nn_module_stack", "stack_trace")
_Reference: Any = private(torch.utils, "_sympy.reference.TensorReferenceAnalysis")


class _Tensors(_Reference):
    """As torch's, which knows no truth that is taken for a number, ``Piecewise((1, u0), (0, True))``, and no remainder."""

    @staticmethod
    def python_mod(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.remainder(a, b)

    @staticmethod
    def expr_cond_pair(value: torch.Tensor, holds: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return value, holds

    @staticmethod
    def piecewise(*pairs: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        (found, _), *others = reversed(pairs)
        for value, holds in others:
            found = torch.where(holds, value, found)
        return found


_interpreted: Any = private(torch.utils, "_sympy.interp.sympy_interp")


def _is_near(found: torch.Tensor, value: float, precision: float) -> torch.Tensor:
    """Whether a number is the frozen one, but for the rounding of the operators that compute it."""
    if math.isfinite(value):
        return (found - value).abs() <= 4 * precision * abs(value)
    return found.isnan() if math.isnan(value) else found == value


_SYMBOL = re.compile(r"\b(?:u|zuf)\d+\b")
_ASSERTED = re.compile(r"Runtime assertion failed for expression (.*) on node")


# ------------------------------------------------------------------------------------------- the user's code


def _asked() -> tuple[str, str, int]:
    """The expression that asks for a value, and the user's file and line: the innermost outside of torch and this package."""
    frame, library = sys._getframe(1), None
    while frame is not None and (_is_own(frame) or _is_torchs(frame)):
        if library is None and _is_library(frame):
            library = frame
        frame = frame.f_back
    place = frame or library
    if place is None:
        return "a value", "", 0
    return _code(library or place), place.f_code.co_filename, place.f_lineno


def _is_own(frame: types.FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_OWN)


def _is_torchs(frame: types.FrameType) -> bool:
    return frame.f_code.co_filename.startswith((_TORCH, _NUMPY, "<")) or messages.is_pythons(frame)


def _is_library(frame: types.FrameType) -> bool:
    """Whether code of torch computes, as torch.distributions does, and does not trace."""
    path = Path(frame.f_code.co_filename)
    parts = path.relative_to(_TORCH).parts if path.is_relative_to(_TORCH) else ("_",)
    return parts[0] in ("distributions", "nn")


def _code(frame: types.FrameType) -> str:
    """The source of the expression whose value a frame asks for, or the line."""
    code, place = frame.f_code, frame.f_lasti // 2
    name = dis.opname[code.co_code[frame.f_lasti]]
    if "JUMP" in name or name in ("TO_BOOL", "UNARY_NOT"):
        place -= 1  # what it tests, and not the statement that it belongs to
    first, last, start, end = list(code.co_positions())[place]
    if first is None or last is None or start is None or end is None:
        return linecache.getline(code.co_filename, frame.f_lineno).strip()
    lines = [linecache.getline(code.co_filename, n).encode() for n in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    return " ".join(line.decode().strip() for line in lines)[:200]
