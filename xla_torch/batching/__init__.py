"""Programs for a batch: of a program for one example, and of one for a batch of another size; the rules by opcode."""

from . import batching_rules, calls  # noqa: F401  (importing fills the tables)
from . import rebatching_link_rules as rebatching_link_rules
