"""Every exception of xla_torch, on one screen.

All of them print in the house form: one line that says what is wrong and where it happened, then, where known,
what was got, what was expected, where in the program it stands, and what to do::

    dot (%dot.7): contracting dimensions differ
      got       lhs f32[2,3,5] dimension 2 (5), rhs f32[2,4,6] dimension 1 (4)
      expected  equal sizes
      from      jit(loss)/dense_1
      hint      ...
"""

from __future__ import annotations

from .printable import printable, within_bytes

_HEADLINE, _LABELLED, _MOST_BYTES = 800, 480, 2048
"""Characters of an error's parts, and bytes of the whole."""


class XlaError(Exception):
    """Base of all errors raised by xla_torch.

    `what` is the headline; the keyword arguments are the labelled lines below it. `subject` names the operation or
    instruction (``"dot (%dot.7)"``) and is put in front of the headline. It may be filled in later by a caller that
    knows more (see `located`), which is how a shape function needs not know the instruction it runs for.
    """

    def __init__(self, what: str, *, subject: str = "", got: object = "", expected: object = "", where: str = "",
                 hint: str = ""):
        super().__init__(what)
        self.what, self.subject, self.got, self.expected = what, subject, got, expected
        self.where, self.hint = where, hint

    def located(self, subject: str = "", where: str = "") -> XlaError:
        """The same error with the operation's name and place filled in where they were missing."""
        self.subject = self.subject or subject
        self.where = self.where or where
        return self

    def __str__(self) -> str:
        """At most 2 KB, of which a terminal obeys nothing: much of it is from files (`printable.py`)."""
        what = printable(self.what, _HEADLINE)
        lines = [f"{printable(self.subject, _LABELLED)}: {what}" if self.subject else what]
        labelled = (("got", self.got), ("expected", self.expected), ("from", self.where), ("hint", self.hint))
        lines += [f"  {label:<9} {printable(str(text), _LABELLED)}" for label, text in labelled
                  if not (isinstance(text, str) and not text)]  # others may compare in ways of their own
        return within_bytes("\n".join(lines), _MOST_BYTES)


class InvalidArgument(XlaError, ValueError):
    """An operand, attribute or shape that XLA refuses (XLA's InvalidArgument)."""


class WrongKind(InvalidArgument, TypeError):
    """A value of a class that cannot stand where it stands."""


class HloSyntaxError(XlaError, ValueError):
    """Text that is not HLO. Carries `line` and `column` (both from 1) of the offending token."""

    line: int = 0
    column: int = 0


class UnsupportedError(XlaError, NotImplementedError):
    """Valid XLA that xla_torch does not execute (unknown opcodes, custom-call targets, element types)."""


class UnknownOpcodeError(HloSyntaxError, UnsupportedError):
    """HLO text with opcodes that xla_torch does not have. Names all of them, with counts."""


class DeviceError(XlaError, RuntimeError):
    """Arguments on several devices, or on a device that a program cannot use."""


class DifferentiationError(XlaError, RuntimeError):
    """A gradient that does not exist or is refused; the hint says what to do instead."""


class ExecutionError(XlaError, RuntimeError):
    """A failure while a program runs."""


class LimitError(XlaError, RuntimeError):
    """More than a limit allows: of this package (`tuning.py`), of the machine's memory, or set by the user (`limits`)."""


class InternalError(XlaError, RuntimeError):
    """A defect of xla_torch itself; the error behind it is chained."""

    def __init__(self, what: str, *, subject: str = "", got: object = "", expected: object = "", where: str = "",
                 hint: str = "this is a defect of xla_torch: please report it with this message and the program"):
        super().__init__(what, subject=subject, got=got, expected=expected, where=where, hint=hint)


class XlaWarning(UserWarning):
    """Base of xla_torch's warnings. They print as the errors do."""

    def __init__(self, what: str, *, subject: str = "", got: object = "", expected: object = "", where: str = "",
                 hint: str = ""):
        super().__init__(str(XlaError(what, subject=subject, got=got, expected=expected, where=where, hint=hint)))


class LostDerivatives(XlaWarning):
    """A program is differentiated by its ops' rules, and shows that its author wrote others. Said in one line, once."""


class PerhapsLostDerivatives(LostDerivatives):
    """A program is differentiated by its ops' rules, and its author may have written others: JAX wrote it, and does not say."""


class CallbackLeftOut(XlaWarning):
    """A program is read without the Python callbacks in it that give it no values, which another process had."""


class NothingObserved(XlaWarning):
    """An observer of `xla_torch.debug` has seen nothing: no program ran meanwhile, or no instruction has such a name."""


class MissingDependency(XlaError, ImportError):
    """A front end that needs an optional library; the hint says what to install."""


for _class in [value for value in globals().values() if isinstance(value, type) and value.__module__ == __name__]:
    _class.__module__ = "xla_torch.errors"  # the name that users import, and that a traceback shows
