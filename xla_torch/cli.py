"""``xla_torch`` and ``python -m xla_torch``: see `command_line`."""

from __future__ import annotations

from .command_line.main import main

__all__ = ["main"]
