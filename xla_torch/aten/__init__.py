"""torch's ATen operators in documented functions: a table of rules, a file for each family. Knows no torch.

A rule is a function whose parameters have the names of the operator's arguments (`operator_rules.py`); `from_torch` reads
the graph and calls them. `refused.py` lists the operators without a rule, and why.
"""

from . import (  # noqa: F401  (fill the table)
    attention,
    chosen,
    contraction,
    control,
    convolution,
    creation,
    detection,
    distinct,
    indexing,
    linalg,
    losses,
    normalisation,
    pointwise,
    polynomials,
    pooling,
    random,
    recurrent,
    reductions,
    resampling,
    sorting,
    special,
    spectra,
    views,
)
