"""Whether what runs in the user's code only makes a message: an argument of a statement that prints, logs or warns."""

from __future__ import annotations

import ast
import builtins
import functools
import io
import linecache
import logging
import sys
import sysconfig
import types
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

_LOGS = {"debug", "info", "warning", "warn", "error", "exception", "critical", "log"}
_MAKE_TEXT = {"str", "repr", "format", "float", "int", "bool", "round", "abs", "len", "min", "max", "sum", "list", "tuple"}
_METHODS = {"format", "item", "tolist", "numpy"}
_PASS_ON = (ast.JoinedStr, ast.FormattedValue, ast.Tuple, ast.List, ast.Dict, ast.Starred, ast.BinOp, ast.UnaryOp, ast.keyword,
            ast.Name, ast.Attribute, ast.Subscript, ast.Constant)


def takes(frame: types.FrameType) -> bool:
    """Whether the source proves that what a frame evaluates only becomes part of a message, there or by way of a name."""
    position = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    function, path = (None, []) if None in position else _path(frame.f_code.co_filename, position)
    if path and isinstance(path[0], ast.Assign):
        return _is_kept_for_messages(path, function, frame)
    return _is_in_message(path, frame)


def _is_in_message(path: Sequence[ast.AST], frame: types.FrameType) -> bool:
    """Whether the last of the nodes within a statement is an argument of a message, or part of one."""
    if len(path) < 2 or not isinstance(path[0], ast.Expr) or not isinstance(call := path[1], ast.Call):
        return False
    inner = path[2:]
    is_argument = not inner or inner[0] in (*call.args, *call.keywords)
    return is_argument and _is_message(call, frame) and all(_makes_text(node, frame) for node in inner)


def _is_kept_for_messages(path: Sequence[Any], function: ast.AST | None, frame: types.FrameType) -> bool:
    """Whether a text gets a name of the function's own that it only uses in messages, errors that it raises among them."""
    targets, inner = path[0].targets, path[1:]
    if function is None or len(targets) != 1 or not isinstance(target := targets[0], ast.Name) or not inner:
        return False
    if not isinstance(inner[0], ast.JoinedStr) or target.id not in frame.f_code.co_varnames:
        return False
    uses = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == target.id
            and isinstance(node.ctx, ast.Load)]
    ways = [_path_within(function, _place_of(node))[1] for node in uses]
    return all(_makes_text(node, frame) for node in inner) and all(
        isinstance(way[0], ast.Raise) or _is_in_message(way, frame) for way in ways)


def _place_of(node: Any) -> tuple[int, int, int, int]:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def is_pythons(frame: types.FrameType) -> bool:
    """Whether code is of Python's standard library."""
    name = frame.f_code.co_filename
    return name.startswith(_LIBRARY) and "site-packages" not in name


_LIBRARY = (sysconfig.get_paths()["stdlib"], "<frozen")


@functools.lru_cache(maxsize=8)
def _tree(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


def _path(file: str, position: tuple[Any, ...]) -> tuple[ast.AST | None, list[ast.AST]]:
    """The function around a position, and its innermost statement there, with the nodes from that to the position."""
    return _path_within(_tree("".join(linecache.getlines(file))), position)


def _path_within(node: ast.AST | None, position: tuple[Any, ...]) -> tuple[ast.AST | None, list[ast.AST]]:
    function: ast.AST | None = None
    path: list[ast.AST] = []
    for one in _around(node, position):
        function = one if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
        path = [one] if isinstance(one, ast.stmt) else [*path, one]
    return function, path


def nodes_around(file: str, position: tuple[Any, ...]) -> list[ast.AST]:
    """The nodes of a file's source that hold a position, the outermost first; none without source."""
    return [*_around(_tree("".join(linecache.getlines(file))), position)]


def _around(node: ast.AST | None, position: tuple[Any, ...]) -> Iterator[ast.AST]:
    while node is not None:
        yield node
        node = next((one for one in _placed(node) if _holds(one, position)), None)


def _placed(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes directly within one that have a place."""
    for child in ast.iter_child_nodes(node):
        yield from [child] if hasattr(child, "lineno") else _placed(child)


def _holds(node: Any, position: tuple[Any, ...]) -> bool:
    first, last, start, end = position
    return (node.lineno, node.col_offset) <= (first, start) and (last, end) <= (node.end_lineno, node.end_col_offset)


def _is_message(call: ast.Call, frame: types.FrameType) -> bool:
    found = named(call.func, frame)
    if found is print:
        return all(_is_shown(one, frame) for one in call.keywords) and not isinstance(sys.stdout, io.StringIO)
    if found is warnings.warn:
        return True
    return getattr(found, "__module__", None) == logging.__name__ and getattr(found, "__name__", None) in _LOGS


def _is_shown(option: ast.keyword, frame: types.FrameType) -> bool:
    return option.arg in ("sep", "end", "flush") or (
        option.arg == "file" and named(option.value, frame) in (sys.stdout, sys.stderr))


def _makes_text(node: ast.AST, frame: types.FrameType) -> bool:
    """Whether a node keeps nothing of what it is given, and only gives it on."""
    if not isinstance(node, ast.Call):
        return isinstance(node, _PASS_ON)
    if isinstance(node.func, ast.Attribute):
        return node.func.attr in _METHODS
    found = named(node.func, frame)
    return isinstance(node.func, ast.Name) and node.func.id in _MAKE_TEXT and found is getattr(builtins, node.func.id)


def named(node: ast.AST, frame: types.FrameType) -> Any:
    """What a name, with attributes, stands for in a frame. All loggers have the methods of one class."""
    if isinstance(node, ast.Name):
        return {**vars(builtins), **frame.f_globals, **frame.f_locals}.get(node.id)
    if isinstance(node, ast.Attribute):
        return getattr(named(node.value, frame), node.attr, None)
    if isinstance(node, ast.Call) and named(node.func, frame) is logging.getLogger:
        return logging.Logger
    return None
