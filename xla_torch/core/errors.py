"""Every exception of xla_torch, on one screen.

All of them print in the standard error format: one line that says what is wrong and where it happened, then, where known,
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
    """Base class of all errors that xla_torch raises; never raised itself.

    What to do: follow the line ``hint``, if there is one. `what` is the headline; the keyword arguments are the labelled lines
    below it. `subject` names the operation or instruction (``"dot (%dot.7)"``) and precedes the headline. A caller that knows
    the instruction may add it later (see `located`), so a shape function need not know it.
    """

    def __init__(self, what: str, *, subject: str = "", got: object = "", expected: object = "", where: str = "",
                 hint: str = ""):
        super().__init__(what)
        self.what, self.subject, self.got, self.expected = what, subject, got, expected
        self.where, self.hint = where, hint

    def located(self, subject: str = "", where: str = "") -> XlaError:
        """Return the error with the operation's name and place added if they were missing."""
        self.subject = self.subject or subject
        self.where = self.where or where
        return self

    def __str__(self) -> str:
        """Return the message with its fields, without control characters and at most 2 KB long."""
        what = printable(self.what, _HEADLINE)
        lines = [f"{printable(self.subject, _LABELLED)}: {what}" if self.subject else what]
        labelled = (("got", self.got), ("expected", self.expected), ("from", self.where), ("hint", self.hint))
        lines += [f"  {label:<9} {printable(str(text), _LABELLED)}" for label, text in labelled
                  if not (isinstance(text, str) and not text)]  # others may compare in ways of their own
        return within_bytes("\n".join(lines), _MOST_BYTES)


class InvalidArgument(XlaError, ValueError):
    """Raised for an invalid operand, attribute, shape or argument (XLA's InvalidArgument).

    What to do: replace the value in the line ``got`` by one that the line ``expected`` describes; the hint often has the call.
    """


class WrongKind(InvalidArgument, TypeError):
    """Raised for a value of a wrong class, such as an XlaOp in an ``if``.

    What to do: convert it, or call the function that the hint names.
    """


class HloSyntaxError(XlaError, ValueError):
    """Raised for text that is not HLO.

    `line` and `column` (both from 1) give the position of the token.

    What to do: look at that position of the text; if XLA reads it, report it.
    """

    line: int = 0
    column: int = 0


class UnsupportedError(XlaError, NotImplementedError):
    """Raised for valid XLA that xla_torch does not execute (unknown opcodes, custom-call targets, element types).

    What to do: follow the hint; `register_custom_call` gives a custom call's target a function.
    """


class UnknownOpcodeError(HloSyntaxError, UnsupportedError):
    """Raised for HLO text with opcodes that xla_torch lacks; names all of them with counts.

    What to do: let XLA expand them before it writes the text, or report them; ``python -m xla_torch ops`` lists the supported
    ones.
    """


class DeviceError(XlaError, RuntimeError):
    """Raised for arguments on several devices, or on a device that a program cannot use.

    What to do: move all arguments to one device with ``.to(device)``.
    """


class DifferentiationError(XlaError, RuntimeError):
    """Raised for a gradient that does not exist or is refused.

    What to do: follow the hint; ``python -m xla_torch ops NAME`` lists the operands of an op that have gradients.
    """


class ExecutionError(XlaError, RuntimeError):
    """Raised for a failure while a program runs: of another participant, a callback or a check.

    What to do: read the chained error (``__cause__``), which happened first.
    """


class AssumptionError(ExecutionError):
    """Raised if a call comes to a decision of Python that the program was traced without (see `from_torch`).

    What to do: convert with ``from_torch(..., assumptions="retrace")``, or with an example like the call.
    """


class LimitError(XlaError, RuntimeError):
    """Raised if a limit is exceeded: of this package (`tuning.py`), of memory, or of `limits`.

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
    """Base class of the warnings of xla_torch, never raised itself; prints like an error.

    What to do: read the hint; ``warnings.simplefilter("error", XlaWarning)`` turns them into errors.
    """

    def __init__(self, what: str, *, subject: str = "", got: object = "", expected: object = "", where: str = "",
                 hint: str = ""):
        super().__init__(str(XlaError(what, subject=subject, got=got, expected=expected, where=where, hint=hint)))


class LostDerivatives(XlaWarning):
    """Warned if differentiation ignores custom derivatives that a program has dropped.

    What to do: trace the function with `from_jax`, which keeps them, or accept the derivatives of the ops with
    ``derivatives="as written"``.
    """


class PerhapsLostDerivatives(LostDerivatives):
    """Warned if differentiation may ignore custom derivatives.

    JAX wrote the program, whose text doesn't say whether its author defined any.

    What to do: trace the function with `from_jax`, which keeps them, or accept the derivatives of the ops with
    ``derivatives="as written"``.
    """


class CallbackLeftOut(XlaWarning):
    """Warned if a program is read without its Python callbacks.

    The callbacks return nothing and belong to another process.

    What to do: nothing, if their prints or records aren't needed; otherwise trace the function here with `from_jax`.
    """


class NothingObserved(XlaWarning):
    """Warned if an observer of `xla_torch.debug` saw no instruction.

    No program ran, or no name matched.

    What to do: run the program within the block, and take names from ``print(computation.to_hlo_text())``.
    """


class MissingDependency(XlaError, ImportError):
    """Raised if a function needs an optional library that is not installed.

    What to do: install the library that the hint names.
    """


for _class in [value for value in globals().values() if isinstance(value, type) and value.__module__ == __name__]:
    _class.__module__ = "xla_torch.errors"  # the name that users import, and that a traceback shows
