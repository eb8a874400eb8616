"""HLO text in, a checked program of the IR out, and text again: all that can be had of a program without torch."""

# pyright: reportUnusedImport=false

from __future__ import annotations

from .. import opcodes  # noqa: F401  (fills the table of schemas)
from ..hlo.ir import Computation, Instruction, Module
from ..hlo.parser import parse_hlo as parse_module
from ..hlo.printer import print_module
from ..hlo.schema import OPS, schema_of
from ..hlo.verifier import verify

__all__ = ["OPS", "Computation", "Instruction", "Module", "parse_module", "print_module", "schema_of", "verify"]
