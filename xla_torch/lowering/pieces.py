"""Pieces of a block as native code: calls that cost less than reading their operands, made one pass over them.

Inside a block (`blocking.py`) torch still reads and writes every intermediate array, if only in the cache. Arithmetic, bits,
comparisons and selects can be one loop that a C compiler makes vector code of. What torch has better code for than a C library
(exponentials, reductions) stays torch's, and divides the others into pieces. A piece computes the same bits as torch: each
operation is rounded as IEEE 754 says. (A root may differ in its last bit, where torch's library rounds it otherwise, and so may
the sign of a zero that is the larger of two, on which torch's own loops do not agree.)
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
import torch.fx
from torch.fx import Graph, Node

from ..native.elements import NAMES, number
from ..native.functions import used_in
from ..native.loops import TYPES
from ..torch_private import LoweredModule
from ..types import F32, F64, PRED, S8, S16, S32, S64, U8, PrimitiveType
from .kernels import elementwise
from .kernels.pieces import NativePiece, piece
from .memory import OUT_VARIANTS, plan_memory
from .simplify import put_in_order

_LEAST = 4
"""Calls from which a piece is worth compiling."""

_ELEMENT_TYPES = {torch.bool: PRED, torch.int8: S8, torch.int16: S16, torch.int32: S32, torch.int64: S64, torch.uint8: U8,
                  torch.float32: F32, torch.float64: F64}

_ORDERED = {operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=", operator.eq: "==", operator.ne: "!="}

_SUMS = {torch.add: "{0} + {1}", torch.sub: "{0} - {1}", torch.mul: "{0} * {1}", torch.neg: "-{0}", torch.square: "{0} * {0}",
         torch.maximum: "maximum_{t}({0}, {1})", torch.minimum: "minimum_{t}({0}, {1})",
         torch.clamp_min: "{0} < {1} ? {1} : {0}", torch.clamp_max: "{0} > {1} ? {1} : {0}"}
_FLOATS = {torch.div: "{0} / {1}", elementwise.quotient: "{0} / {1}", torch.abs: "__builtin_fabs{f}({0})",
           torch.sqrt: "__builtin_sqrt{f}({0})", torch.rsqrt: "1 / __builtin_sqrt{f}({0})",
           torch.reciprocal: "1 / {0}", torch.floor: "__builtin_floor{f}({0})",
           torch.ceil: "__builtin_ceil{f}({0})", torch.round: "__builtin_rint{f}({0})"}
_BITS = {torch.bitwise_and: "{0} & {1}", torch.bitwise_or: "{0} | {1}", torch.bitwise_xor: "{0} ^ {1}"}
_INTEGERS = {torch.bitwise_not: "~{0}", torch.bitwise_left_shift: "{0} << {1}", torch.bitwise_right_shift: "{0} >> {1}",
             torch.abs: "abs_{t}({0})"}
_PREDS = {torch.bitwise_not: "!{0}", torch.logical_not: "!{0}", torch.logical_and: "{0} & {1}", torch.logical_or: "{0} | {1}"}

_PATTERNS: dict[str, dict[Any, str]] = {"float": _SUMS | _FLOATS, "signed": _SUMS | _BITS | _INTEGERS,
                                        "unsigned": _SUMS | _BITS | _INTEGERS, "pred": _BITS | _PREDS}
"""What calls are in C, for each kind of their result."""

_SHIFTS = (torch.bitwise_left_shift, torch.bitwise_right_shift)


def gather_pieces(root: torch.nn.Module, graph: Graph) -> None:
    """Rewrite a block in place, before its results are written anywhere; sub-programs are registered on `root`."""
    for k, nodes in enumerate(_groups(graph.nodes)):
        _extract(root, graph, nodes, f"piece_{k}")
    put_in_order(graph)


def has_pieces(nodes: Iterable[Node]) -> bool:
    """Whether there is a piece among the nodes of a chain."""
    return bool(_groups(nodes))


def _groups(nodes: Iterable[Node]) -> list[list[Node]]:
    """The nodes of each piece: those with equally many calls of torch's between them and the inputs."""
    levels: dict[Node, int] = {}
    groups: dict[int, list[Node]] = {}
    members: set[Node] = set()
    for node in nodes:
        cheap = _expression(node) is not None
        levels[node] = max((levels.get(i, 0) + (not cheap and i in members) for i in node.all_input_nodes), default=0)
        if cheap:
            groups.setdefault(levels[node], []).append(node)
            members.add(node)
    return [group for group in groups.values() if len(group) >= _LEAST]


def is_piece(node: Node) -> bool:
    """Whether a node is a result of a piece."""
    return node.target is operator.getitem and isinstance(node.args[0], Node) and node.args[0].target is piece


def write_into(node: Node, target: Node) -> None:
    """Let a piece write one of its results into `target`."""
    call: Any = node.args[0]
    module, inputs, targets = call.args
    place: Any = node.args[1]
    call.args = (module, inputs, tuple(target if k == place else t for k, t in enumerate(targets)))
    call.meta["owned"] -= {place}


def _extract(root: torch.nn.Module, graph: Graph, nodes: list[Node], name: str) -> None:
    members = set(nodes)
    inputs = list(dict.fromkeys(i for n in nodes for i in n.all_input_nodes if i not in members))
    results = [n for n in nodes if not n.users or any(u not in members for u in n.users)]
    body = Graph()
    inside = {i: body.placeholder(i.name) for i in inputs}
    for node in nodes:
        inside[node] = body.node_copy(node, inside.__getitem__)
    body.output(tuple(inside[n] for n in results))
    plan_memory(body, fresh_outputs=False, large=1)
    dtypes = tuple(n.meta["array"][1] for n in results)
    arrays = [bool(i.meta["array"][0]) for i in inputs]
    module = LoweredModule(torch.nn.Module(), body, "Piece")
    root.add_module(name, NativePiece(_source(nodes, inputs, results), module, arrays, dtypes))
    with graph.inserting_after(nodes[-1]):
        call = graph.call_function(piece, (graph.create_node("get_attr", name), tuple(inputs), (None,) * len(results)))
    call.meta["owned"] = frozenset(range(len(results)))
    for k, node in enumerate(results):
        with graph.inserting_after(call):
            made = graph.call_function(operator.getitem, (call, k))
        made.meta["array"] = node.meta["array"]
        node.replace_all_uses_with(made)
    for node in reversed(nodes):
        graph.erase_node(node)


# ------------------------------------------------------------------------------------------- the source


def _source(nodes: Sequence[Node], inputs: Sequence[Node], results: Sequence[Node]) -> str:
    """The source of a piece: ``run(count, places)`` with the addresses of inputs and results, the number of threads, and OpenMP's
    functions of torch's own threads (`kernels/pieces.py`)."""
    names = {node: f"v{k}" for k, node in enumerate([*inputs, *nodes])}
    first, each, last = [], [], []
    for k, node in enumerate(inputs):
        of = _type_of(node)
        if node.meta["array"][0]:
            first.append(f"    const {of} *a{k} = (const {of} *)places[{k}];")
            each.append(f"        const {of} {names[node]} = a{k}[i];")
        else:
            first.append(f"    const {of} {names[node]} = *(const {of} *)places[{k}];")
    for node in nodes:
        each.append(f"        const {_type_of(node)} {names[node]} = {_expression(node, names)};")
    for k, node in enumerate(results):
        first.append(f"    {_type_of(node)} *r{k} = ({_type_of(node)} *)places[{len(inputs) + k}];")
        last.append(f"        r{k}[i] = {names[node]};")
    lines = ["static void part(s64 from, s64 to, char **places) {", *first, "    #pragma GCC ivdep",
             "    for (s64 i = from; i < to; i++) {", *each, *last, "    }", "}"]
    body = "\n".join(lines)
    return "\n".join([TYPES, *used_in(body, NAMES), body, _THREADS.replace("FIRST", str(len(inputs) + len(results)))])


_THREADS = """typedef struct { s64 count, threads; char **places; } job;
static void share(void *given) {
    job *of = given;
    int (*number)(void) = (int (*)(void))of->places[FIRST + 2], (*team)(void) = (int (*)(void))of->places[FIRST + 3];
    s64 each = ((of->count + of->threads - 1) / of->threads + 63) / 64 * 64;
    for (s64 k = number(); k * each < of->count; k += team())
        part(k * each, k * each + each < of->count ? k * each + each : of->count, of->places);
}
int run(s64 count, char **places) {
    job whole = { count, (s64)places[FIRST], places };
    if (whole.threads < 2) part(0, count, places);
    else ((void (*)(void (*)(void *), void *, unsigned, unsigned))places[FIRST + 1])(share, &whole, whole.threads, 0);
    return 0;
}
"""


def _type_of(node: Node) -> str:
    return NAMES[_ELEMENT_TYPES[node.meta["array"][1]]]


def _expression(node: Node, names: dict[Node, str] | None = None) -> str | None:
    """A call as an expression of its operands' names; None where it is no part of a piece."""
    if node.op not in ("call_function", "call_method") or node.kwargs or not _has_one_form(node):
        return None
    if node.op == "call_method":
        return _converted(node, names) if node.target == "to" else None
    element_type = _ELEMENT_TYPES[node.meta["array"][1]]
    if node.target in _ORDERED:
        common = _ELEMENT_TYPES.get(torch.result_type(*map(_stand_in, node.args)))  # pyright: ignore[reportArgumentType]
        code = None if common is None else f"{{0}} {_ORDERED[node.target]} {{1}}"  # pyright: ignore[reportArgumentType]
        return code and _formatted(code, node.args, common, names)
    function = OUT_VARIANTS.get(node.target, node.target)
    if function is torch.where:
        condition, *others = node.args
        if not isinstance(condition, Node) or condition.meta["array"][1] is not torch.bool:
            return None
        chosen = _formatted("{0} : {1}", others, element_type, names)
        return chosen and f"{names[condition] if names else ''} ? {chosen}"
    code = _PATTERNS[element_type.kind.value].get(function)
    if code is None or (function in _SHIFTS and node.args[1] not in range(element_type.bits)):
        return None
    return _formatted(code, node.args, element_type, names)


def _has_one_form(node: Node) -> bool:
    """Whether operands are numbers, scalars, or dense arrays of the result's dimensions, all of types that are here."""
    nodes = (node, *node.all_input_nodes)
    dims = node.meta["array"][0] if "array" in node.meta else ()
    return bool(dims) and all("array" in n.meta and n.meta["array"][1] in _ELEMENT_TYPES and n.meta["array"][0] in (dims, ())
                              and not (n.op == "call_method" and n.target == "expand") for n in nodes)


def _converted(node: Node, names: dict[Node, str] | None) -> str | None:
    """A change of type; from a float to an integer each processor does what it likes where the number does not fit."""
    (operand, _), target = node.args, _ELEMENT_TYPES[node.meta["array"][1]]
    if not isinstance(operand, Node) or (operand.meta["array"][1].is_floating_point and target.is_integral):
        return None
    return f"{names[operand] if names else ''} != 0" if target is PRED else _formatted("{0}", [operand], target, names)


def _formatted(code: str, operands: Sequence[Any], element_type: PrimitiveType | None,
               names: dict[Node, str] | None) -> str | None:
    """The pattern with its operands in one type; None where one of them is nothing that can be here."""
    assert element_type is not None
    if not all(isinstance(o, (Node, bool, int, float)) for o in operands):
        return None
    made = [_operand(o, element_type, names or {}) for o in operands]
    return code.format(*made, t=NAMES[element_type], f="f" * (element_type is F32))


def _operand(operand: Any, element_type: PrimitiveType, names: dict[Node, str]) -> str:
    if not isinstance(operand, Node):
        wide = np.float64(operand) if element_type.is_floating else np.int64(operand)
        return number(wide, element_type)
    name = names.get(operand, "")
    return name if _ELEMENT_TYPES[operand.meta["array"][1]] is element_type else f"(({NAMES[element_type]}){name})"


def _stand_in(operand: Any) -> Any:
    if not isinstance(operand, Node):
        return operand
    dims, dtype = operand.meta["array"]
    return torch.empty(dims, dtype=dtype, device="meta")
