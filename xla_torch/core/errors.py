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
    """Base of all errors raised by xla_torch: never raised itself, caught where any of them is meant.

    What to do: what the line ``hint`` says, where there is one. `what` is the headline; the keyword arguments are the labelled
    lines below it. `subject` names the operation or instruction (``"dot (%dot.7)"``) and is put in front of the headline. It may
    be filled in later by a caller that knows more (see `located`), which is how a shape function needs not know the instruction
    it runs for.
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
    """Raised for an operand, attribute, shape or argument that XLA or a function here refuses (XLA's InvalidArgument).

    What to do: give what the line ``expected`` says in the place of what ``got`` says; the hint often has the call.
    """


class WrongKind(InvalidArgument, TypeError):
    """Raised for a value of a class that cannot stand where it stands, such as an XlaOp in an ``if``.

    What to do: convert it, or call the function that the hint names.
    """


class HloSyntaxError(XlaError, ValueError):
    """Raised for text that is not HLO. Carries `line` and `column` (both from 1) of the offending token.

    What to do: look at that place of the text; if XLA reads it, report it.
    """

    line: int = 0
    column: int = 0


class UnsupportedError(XlaError, NotImplementedError):
    """Raised for valid XLA that xla_torch does not execute (unknown opcodes, custom-call targets, element types).

    What to do: follow the hint; `register_custom_call` gives a custom call's target a function.
    """


class UnknownOpcodeError(HloSyntaxError, UnsupportedError):
    """Raised for HLO text with opcodes that xla_torch does not have. Names all of them, with counts.

    What to do: have XLA expand them before it writes the text, or report them; ``python -m xla_torch ops`` lists those that are
    there.
    """


class DeviceError(XlaError, RuntimeError):
    """Raised for arguments on several devices, or on a device that a program cannot use.

    What to do: move all arguments to one device with ``.to(device)``.
    """


class DifferentiationError(XlaError, RuntimeError):
    """Raised for a gradient that does not exist or is refused.

    What to do: what the hint says instead; ``python -m xla_torch ops NAME`` says which operands of an op have gradients.
    """


class ExecutionError(XlaError, RuntimeError):
    """Raised for a failure while a program runs: of another participant, a callback, a check.

    What to do: read the error that is chained to it (``__cause__``), which is what happened first.
    """


class LimitError(XlaError, RuntimeError):
    """Raised for more than a limit allows: of this package (`tuning.py`), of the machine's memory, or set by the user (`limits`).

    What to do: run the program in a block of `limits` that allows more, or make it smaller.
    """


class InternalError(XlaError, RuntimeError):
    """Raised for a defect of xla_torch itself; the error behind it is chained.

    What to do: report it with its message and the program.
    """

    def __init__(self, what: str, *, subject: str = "", got: object = "", expected: object = "", where: str = "",
                 hint: str = "this is a defect of xla_torch: please report it with this message and the program"):
        super().__init__(what, subject=subject, got=got, expected=expected, where=where, hint=hint)


class XlaWarning(UserWarning):
    """Warned of what xla_torch did that may not be what was meant: the base of its warnings, which print as the errors do.

    What to do: read its hint; ``warnings.simplefilter("error", XlaWarning)`` makes errors of them.
    """

    def __init__(self, what: str, *, subject: str = "", got: object = "", expected: object = "", where: str = "",
                 hint: str = ""):
        super().__init__(str(XlaError(what, subject=subject, got=got, expected=expected, where=where, hint=hint)))


class LostDerivatives(XlaWarning):
    """Warned where a program is differentiated by its ops' rules, and shows that its author wrote others. Said in one line, once.

    What to do: trace the function with `from_jax`, which keeps them, or accept these with ``derivatives="as written"``.
    """


class PerhapsLostDerivatives(LostDerivatives):
    """Warned where a program is differentiated by its ops' rules, and its author may have written others: JAX wrote it, and does
    not say.

    What to do: trace the function with `from_jax`, which keeps them, or accept these with ``derivatives="as written"``.
    """


class CallbackLeftOut(XlaWarning):
    """Warned where a program is read without the Python callbacks in it that give it no values, which another process had.

    What to do: nothing, if what they print or record is not missed; otherwise trace the function here with `from_jax`.
    """


class NothingObserved(XlaWarning):
    """Warned where an observer of `xla_torch.debug` has seen nothing: no program ran meanwhile, or no instruction has such a
    name.

    What to do: run the program within the block, and take names from ``print(computation.to_hlo_text())``.
    """


class MissingDependency(XlaError, ImportError):
    """Raised by a front end that needs an optional library which is not installed.

    What to do: install what the hint says.
    """


for _class in [value for value in globals().values() if isinstance(value, type) and value.__module__ == __name__]:
    _class.__module__ = "xla_torch.errors"  # the name that users import, and that a traceback shows
