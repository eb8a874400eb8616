"""MLIR's text, read (`parser.py`) and written (`printing.py`)."""
