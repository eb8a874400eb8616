"""A program for one example as a program for a batch: the engine, and the rules by opcode."""

from . import batching_rules, calls  # noqa: F401  (importing fills the table)
