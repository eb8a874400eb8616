"""MLIR's bytecode of every version, read (`parser.py`) and written (`writing.py`)."""
