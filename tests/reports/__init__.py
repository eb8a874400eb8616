"""Public reports about JAX, XLA, StableHLO and PyTorch, each as a row that all entry points must get right."""
