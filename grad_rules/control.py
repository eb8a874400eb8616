"""Gradients of calls, loops, branches and tuples: the program's structure, which the engine itself walks back through.

Calls, fusions and asynchronous wrappers are opened before a program is differentiated; tuples are taken apart; loops and
branches are run backwards.
"""

from __future__ import annotations

from grad_rules._table import structural

structural("call", "fusion", "async-start", "async-update", "async-done", by="xla_torch.transform.canonical")
structural("tuple", "get-tuple-element", by="xla_torch.autodiff.structure")
structural("while", by="xla_torch.autodiff.loops")
structural("conditional", by="xla_torch.autodiff.branches")
