"""XLA's own compiler as jaxlib brings it: how a program is partitioned, which is XLA's to decide, and executables. No jax."""
