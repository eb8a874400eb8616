"""StableHLO's operations to HLO: `convert.py` makes a module of what a reader of MLIR gives, by rules for its ops."""
