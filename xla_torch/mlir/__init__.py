"""MLIR as StableHLO programs use it: text and bytecode to one small IR of operations. Knows neither HLO nor torch."""
