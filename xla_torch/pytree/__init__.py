"""Trees of arguments and results as JAX has them, without JAX and without torch."""
