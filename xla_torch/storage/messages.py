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
from collections.abc import Iterator
from typing import Any

_LOGS = {"debug", "info", "warning", "warn", "error", "exception", "critical", "log"}
_MAKE_TEXT = {"str", "repr", "format", "float", "int", "bool", "round", "abs", "len", "min", "max", "sum", "list", "tuple"}
_METHODS = {"format", "item", "tolist", "numpy"}
_PASS_ON = (ast.JoinedStr, ast.FormattedValue, ast.Tuple, ast.List, ast.Dict, ast.Starred, ast.BinOp, ast.UnaryOp, ast.keyword,
            ast.Name, ast.Attribute, ast.Subscript, ast.Constant)


def takes(frame: types.FrameType) -> bool:
    """Whether the source proves that what a frame evaluates only becomes part of a message."""
    position = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    path = [] if None in position else _path(frame.f_code.co_filename, position)
    if len(path) < 2 or not isinstance(path[0], ast.Expr) or not isinstance(call := path[1], ast.Call):
        return False
    inner = path[2:]
    is_argument = not inner or inner[0] in (*call.args, *call.keywords)
    return is_argument and _is_message(call, frame) and all(_makes_text(node, frame) for node in inner)


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


def _path(file: str, position: tuple[Any, ...]) -> list[ast.AST]:
    """The innermost statement around a position, and the nodes from it to the position."""
    node: ast.AST | None = _tree("".join(linecache.getlines(file)))
    path: list[ast.AST] = []
    while node is not None:
        path = [node] if isinstance(node, ast.stmt) else [*path, node]
        node = next((one for one in _placed(node) if _holds(one, position)), None)
    return path


def _placed(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes directly within one that have a place."""
    for child in ast.iter_child_nodes(node):
        yield from [child] if hasattr(child, "lineno") else _placed(child)


def _holds(node: Any, position: tuple[Any, ...]) -> bool:
    first, last, start, end = position
    return (node.lineno, node.col_offset) <= (first, start) and (last, end) <= (node.end_lineno, node.end_col_offset)


def _is_message(call: ast.Call, frame: types.FrameType) -> bool:
    found = _named(call.func, frame)
    if found is print:
        return all(_is_shown(one, frame) for one in call.keywords) and not isinstance(sys.stdout, io.StringIO)
    if found is warnings.warn:
        return True
    return getattr(found, "__module__", None) == logging.__name__ and getattr(found, "__name__", None) in _LOGS


def _is_shown(option: ast.keyword, frame: types.FrameType) -> bool:
    return option.arg in ("sep", "end", "flush") or (
        option.arg == "file" and _named(option.value, frame) in (sys.stdout, sys.stderr))


def _makes_text(node: ast.AST, frame: types.FrameType) -> bool:
    """Whether a node keeps nothing of what it is given, and only gives it on."""
    if not isinstance(node, ast.Call):
        return isinstance(node, _PASS_ON)
    if isinstance(node.func, ast.Attribute):
        return node.func.attr in _METHODS
    found = _named(node.func, frame)
    return isinstance(node.func, ast.Name) and node.func.id in _MAKE_TEXT and found is getattr(builtins, node.func.id)


def _named(node: ast.AST, frame: types.FrameType) -> Any:
    """What a name, with attributes, stands for in a frame. All loggers have the methods of one class."""
    if isinstance(node, ast.Name):
        return {**vars(builtins), **frame.f_globals, **frame.f_locals}.get(node.id)
    if isinstance(node, ast.Attribute):
        return getattr(_named(node.value, frame), node.attr, None)
    if isinstance(node, ast.Call) and _named(node.func, frame) is logging.getLogger:
        return logging.Logger
    return None
