"""The core operators of ATen that there is no rule for, with the reasons. Tests see that the list is neither short nor stale."""

_SIZE = "the size of its result depends on values"
_MEMORY = "it is about memory: strides and storage"
_SYMBOLS = "it is about sizes that are known at run time only"

REASONS: dict[str, str] = {
    "_local_scalar_dense.default": "a value becomes a Python number",
    "resize_.default": _MEMORY,
    "sym_is_contiguous.default": _MEMORY,
    "sym_storage_offset.default": _MEMORY,
    "sym_stride.int": _MEMORY,
    "sym_numel.default": _SYMBOLS,
    "sym_size.int": "it is a number, which is read off the sizes",
    "atan2.out": "it writes into an argument; torch.export gives atan2",
    "_native_batch_norm_legit.default": "it writes into arguments; torch.export gives _native_batch_norm_legit_functional",
}
"""Why there is none, by the name of the operator."""

INSTEAD: dict[str, str] = {
    "linalg_ldl_factor_ex.default": "XLA has no such decomposition; torch.linalg.lu_factor and torch.linalg.solve take its place",
    "poisson.default": "how many numbers it draws depends on values",
    "prims.clone.default": "XlaComputation.to_pt2 writes it where gradients end; load the program itself instead, which has them",
}
"""What takes the place of some that are no core operators, or why nothing does."""
