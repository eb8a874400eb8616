"""See inside programs while they run: values, the first NaN, where two programs part, breakpoints, checks, time; runs in files.

All of it is one evaluator with an observer (`evaluation.py`): the op bodies that a program is lowered with run on tensors, one
instruction after another. Derived programs (forward and backward parts, tangents, batches) are seen as any other.
"""

from __future__ import annotations

from .divergence import Divergence, first_divergence
from .exchange_trace import ExchangeEvent, ExchangeTrace, Waiting, exchanges
from .nans import Finding, find_nan
from .observing import CheckFailed, break_at, check, observed
from .profile_rows import Machine
from .profiling import Profile, profile
from .recording import Replay, record, replay
from .steps import Statistics, Step
from .tracing import Row, Trace, trace

__all__ = ["CheckFailed", "Divergence", "ExchangeEvent", "ExchangeTrace", "Finding", "Machine", "Profile", "Replay", "Row",
           "Statistics", "Step", "Trace", "Waiting", "break_at", "check", "exchanges", "find_nan",
           "first_divergence", "observed", "profile", "record", "replay", "trace"]
