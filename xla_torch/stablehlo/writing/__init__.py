"""HLO modules to MLIR operations of StableHLO: the mirror of the rules that read them."""
