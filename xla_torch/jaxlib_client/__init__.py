"""XLA's own compiler as jaxlib brings it, for what is XLA's to decide: how a program is partitioned. No devices, and no jax."""
