"""Programs in other formats (StableHLO, HLO protos, JAX functions) to HLO modules. Knows neither torch nor how a module runs."""
