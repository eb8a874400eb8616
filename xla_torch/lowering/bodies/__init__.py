"""The op bodies: one decorated function for each HLO opcode, a file for each family. `BODIES` imports the files on first use."""
