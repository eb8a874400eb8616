"""Every rule table of the package, for reports about single ops. Programs import the tables that they need."""

from __future__ import annotations

import grad_rules  # noqa: F401  (as the imports below, for the tables that it defines)

from ..analysis import cost_rules, integer_rules, selection_rules, symbolic  # noqa: F401
from ..autodiff import structure  # noqa: F401
from ..batching import batching_table, rebatching_links  # noqa: F401
from ..codegen import arrays, elements  # noqa: F401
from ..hlo.rule_tables import TABLES
from ..lowering import body_table, host_rules  # noqa: F401
from ..partitioning import collective_table  # noqa: F401
from ..stablehlo import folding  # noqa: F401
from ..stablehlo.writing import module  # noqa: F401
from ..transform import canonical_rules  # noqa: F401
from ..transform.dynamic_sizes import resolving_tables  # noqa: F401

__all__ = ["TABLES"]
