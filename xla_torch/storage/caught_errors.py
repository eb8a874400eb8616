"""Errors that the user's code catches while torch.export traces it.

A model that tries a way and takes another one where the first fails (`torch.linalg.cholesky`) depends on values: traced tensors
have none, and so never fail. And a model that catches every error catches those of the trace, which eager torch does not raise.
"""

from __future__ import annotations

import ast
import contextlib
import contextvars
import inspect
import itertools
import threading
import types
from collections.abc import Iterator
from typing import Any

import torch

from ..core.errors import UnsupportedError
from . import messages
from .replaced_attributes import replacing
from .torch_private import needs_data

_outermost = contextvars.ContextVar[types.FrameType | None]("outermost", default=None)
"""The frame that calls the user's code."""

_OTHERS = str(torch.__path__[0]), __file__.rpartition("storage")[0]


def is_caught(error: type[BaseException]) -> bool:
    """Whether the model that is traced, in the block of `noted`, has an ``except`` for errors of a class around what it calls."""
    frame, outermost = inspect.currentframe(), _outermost.get()
    while outermost is not None and frame is not None and frame is not outermost:
        if _is_of_the_user(frame) and any(_takes(handler, error, frame) for handler in _handlers(frame)):
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def noted() -> Iterator[list[Exception]]:
    """A block with a list of the errors that only a trace raises and that the user's code catches, in this thread."""
    found, thread = list[Exception](), threading.get_ident()

    def noting(kind: type[Exception]) -> Any:
        before = kind.__init__

        def made(self: Exception, *args: Any, **named: Any) -> None:
            before(self, *args, **named)
            if threading.get_ident() == thread and is_caught(type(self)):
                found.append(self)

        return made

    token = _outermost.set(inspect.stack(0)[2].frame)
    with replacing() as put:
        for kind in (*needs_data(), UnsupportedError):
            put(kind, "__init__", noting(kind))
        try:
            yield found
        finally:
            _outermost.reset(token)


def _is_of_the_user(frame: types.FrameType) -> bool:
    return not frame.f_code.co_filename.startswith(_OTHERS) and not messages.is_pythons(frame)


def _handlers(frame: types.FrameType) -> list[ast.expr | None]:
    """What is caught around the place of a frame: an expression each, or None for everything."""
    position = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    found = list[ast.expr | None]()
    nodes = [] if None in position else messages.nodes_around(frame.f_code.co_filename, position)
    for node, inner in itertools.pairwise(nodes):
        if isinstance(node, ast.Try) and inner in node.body:
            found += [handler.type for handler in node.handlers]
        elif isinstance(node, ast.With) and inner in node.body:
            calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
            found += [kind for call in calls if messages.named(call.func, frame) is contextlib.suppress for kind in call.args]
    return found


def _takes(handler: ast.expr | None, error: type[BaseException], frame: types.FrameType) -> bool:
    if handler is None:
        return True
    if isinstance(handler, ast.Tuple):
        return any(_takes(one, error, frame) for one in handler.elts)
    kind = messages.named(handler, frame)
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return any(not isinstance(one, type) or issubclass(error, one) for one in kinds)
