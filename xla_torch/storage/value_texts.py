"""What Python makes of traced tensors and numbers other than arithmetic: text, and whether a number is a float.

A traced tensor prints as ``FakeTensor(...)`` and a number that is read from it as ``zuf0``. In the user's code both have the text
that they have in eager torch. It depends on the values, so it is a decision of Python's (`value_reads`). Text that only goes to a
print or a log (`messages`) decides nothing.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._subclasses.fake_tensor
import torch.fx.experimental.symbolic_shapes
import torch.utils._python_dispatch

from ..core import forks
from ..core.errors import UnsupportedError
from . import messages
from .replaced_attributes import replacing
from .torch_private import is_wrapped, private

_FakeTensor: Any = private(torch, "_subclasses.fake_tensor.FakeTensor")
_NeedsData: Any = private(torch, "fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode")
_plain: Callable[[], contextlib.AbstractContextManager[Any]] = private(torch, "utils._python_dispatch._disable_current_modes")
_NUMBERS = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
_TORCH, _OWN = str(torch.__path__[0]), __file__.rpartition("storage")[0]
_exclusive = forks.Lock()


def asking_frame() -> types.FrameType | None:
    """The user's frame that asks for a text or a type, or None if torch or this package asks."""
    frame = sys._getframe(1)
    while frame is not None and (_is_own(frame) or _is_call(frame)):
        frame = frame.f_back
    while frame is not None and messages.is_pythons(frame):
        is_logged = frame.f_code is logging.LogRecord.getMessage.__code__
        frame = _logging_frame(frame) if is_logged else frame.f_back
    return None if frame is None or _is_own(frame) or frame.f_code.co_filename.startswith(_TORCH) else frame


def asking_line() -> str:
    """The user's file and line that ask for it, or nothing."""
    frame = asking_frame()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""


_CALLS = (torch.overrides.__file__, sys.modules["torch._tensor"].__file__)


def _is_call(frame: types.FrameType) -> bool:
    """Whether torch passes a call on to a mode."""
    return frame.f_code.co_filename in _CALLS or frame.f_code.co_name == "__torch_function__"


def _is_own(frame: types.FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_OWN)


def _logging_frame(frame: types.FrameType | None) -> types.FrameType | None:
    """The frame that calls a logger, below which are handlers, of other libraries too."""
    while frame is not None and frame.f_code is not logging.Logger._log.__code__:
        frame = frame.f_back
    return frame and frame.f_back


# ------------------------------------------------------------------------------------------- tensors


def of_tensor(function: Callable[..., str], tensor: torch.Tensor, *form: str,
              note: Callable[[torch.Tensor, torch.Tensor, str], None] | None = None, tensor_contents: Any = None) -> str:
    """The text that `function` makes of a traced tensor's values in the example. `note` takes the tensor, these values and the
    text; without it the model is traced without values, and an error asks for them."""
    frame = asking_frame()
    if frame is not None and is_wrapped(tensor) and not messages.takes(frame):
        raise UnsupportedError("the text of a tensor within torch.func", subject="from_torch", got=type(tensor).__name__,
                               where=f"{frame.f_code.co_filename}:{frame.f_lineno}", hint="make the text outside of torch.func")
    if frame is None or not isinstance(tensor, _FakeTensor):
        return function(tensor, *form)
    values = getattr(tensor, "real_tensor", None)
    if messages.takes(frame):
        return repr(tensor) if values is None else _text(function, values, tensor, *form)
    if values is None or note is None:
        raise _NeedsData(None, "the text of a tensor depends on its values")
    is_number = function is torch.Tensor.__format__ and not tensor.ndim
    if tensor.requires_grad and not tensor.is_leaf and not is_number:
        raise UnsupportedError("the text of a tensor names the function of its gradient", subject="from_torch",
                               got=function.__name__, where=f"{frame.f_code.co_filename}:{frame.f_lineno}",
                               hint="detach it before: str(x.detach())")
    text = _text(function, values, tensor, *form)
    note(tensor, values, text)
    return text


def or_message(function: Callable[..., Any], of_traced: Callable[..., Any]) -> Callable[..., Any]:
    """A function that reads a traced tensor's values, with the example's where they only go to a message."""
    def read(tensor: torch.Tensor, *args: Any, **named: Any) -> Any:
        values, frame = getattr(tensor, "real_tensor", None), asking_frame()
        if values is None or frame is None or not messages.takes(frame):
            return of_traced(tensor, *args, **named)
        with _plain():
            return function(values.detach(), *args, **named)

    return read


def _text(function: Callable[..., str], values: torch.Tensor, tensor: torch.Tensor, *form: str) -> str:
    """The text of values as the kind of tensor that the user has."""
    with _plain():
        if isinstance(tensor, torch.nn.Parameter):
            values = torch.nn.Parameter(values.detach(), tensor.requires_grad)
            return repr(values) if function is torch.Tensor.__repr__ else format(values, *form)
        return function(values.detach().requires_grad_(tensor.requires_grad), *form)


# ------------------------------------------------------------------------------------------- numbers


@contextlib.contextmanager
def asked() -> Iterator[None]:
    """A block in which numbers that a trace of this thread reads are as Python's own numbers to the user's code."""
    thread = threading.get_ident()

    def is_asked() -> bool:
        return threading.get_ident() == thread and asking_frame() is not None

    with _exclusive, replacing() as put:
        for kind, plain in _NUMBERS.items():
            put(kind, "__getattribute__", _attributes(plain, is_asked))
            for name in ("__repr__", "__format__"):
                put(kind, name, _read(kind, name, plain, is_asked))
        for kind, name in ((torch.SymFloat, "__float__"), (torch.SymFloat, "__round__"), (torch.SymFloat, "__int__"),
                           (torch.SymInt, "__int__"), (torch.SymInt, "__index__")):
            put(kind, name, _read(kind, name, _NUMBERS[kind], is_asked))
        yield


def _attributes(plain: type, is_asked: Callable[[], bool]) -> Callable[[Any, str], Any]:
    """Attributes of a number, whose class is Python's: `isinstance` asks for it."""
    def attribute(self: Any, name: str) -> Any:
        return plain if name == "__class__" and is_asked() else object.__getattribute__(self, name)

    return attribute


def _read(kind: type, name: str, plain: Callable[[Any], Any], is_asked: Callable[[], bool]) -> Callable[..., Any]:
    """What Python makes of a number. For a message it is made of the example's, which decides nothing."""
    function, is_text = getattr(kind, name), name in ("__repr__", "__format__")

    def made(self: Any, *args: Any) -> Any:
        frame = asking_frame() if is_asked() else None
        if frame is None:
            return function(self, *args)
        value = _value(self) if messages.takes(frame) else None
        if value is not None:
            return getattr(plain(value), name)(*args)
        if is_text:
            return str(self.node) if messages.takes(frame) else getattr(plain(self), name)(*args)
        return function(self, *args)

    return made


def _value(number: Any) -> Any:
    """What a number is in the example, where the model is traced with its values."""
    found = number.node.expr.xreplace(number.node.shape_env.real_tensor_prop_unbacked_vals)
    return None if found.free_symbols else found
