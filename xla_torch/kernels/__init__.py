"""Helper kernels that stand as one call in generated programs, a file for each op family. Plain functions on tensors."""
