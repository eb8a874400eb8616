"""Inspect running programs: values, NaNs, divergence, breakpoints, profiles, recordings.

All functions use one evaluator with an observer (`evaluation.py`). It runs the same op bodies as the lowered program on
tensors, one instruction after another. Derived programs (forward and backward passes, tangents, batches) are observed like any
other.
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
