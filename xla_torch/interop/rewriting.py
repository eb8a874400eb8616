"""What is done to a StableHLO program that XLA's converter refuses as it stands, though the specification has it."""

from __future__ import annotations

import functools

from jaxlib.mlir import ir

from ..computation import XlaComputation
from ..errors import HloSyntaxError, InvalidArgument
from ..loading import parse_hlo
from .canonical import canonicalise
from .entries import ENTRY, Library, entry_names, make_entry
from .modules import bytecode, has_unknown_sizes, new_context, parse
from .polymorphic import PolymorphicComputation
from .quantized import remove_quantized_types
from .stablehlo import load_stablehlo, refine_shapes


def rewritten(program: str | bytes, entry: str | None) -> XlaComputation | PolymorphicComputation | Library:
    """A computation for the function `entry`, for ``main``, or for the only public function; of several a Library.

    Quantized types are rewritten in terms of storage integers and floats. Raises HloSyntaxError for what is no module or is
    refused all the same, InvalidArgument for an entry that does not exist, UnsupportedError for unknown quantized types.
    """
    with new_context() as context, ir.Location.unknown():
        module = parse(program, context)
        names = entry_names(module)
        if entry is None and len(names) > 1:
            return Library(names, functools.partial(rewritten, program))
        entry = entry or (names[0] if names else ENTRY)
        if entry != ENTRY:
            make_entry(module, entry)
        canonicalise(module)
        remove_quantized_types(module)
        program, unknown = bytecode(module), has_unknown_sizes(module)
    if not unknown:
        return parse_hlo(load_stablehlo(program))
    try:
        return parse_hlo(load_stablehlo(refine_shapes(program)))
    except (HloSyntaxError, InvalidArgument):
        return PolymorphicComputation(program)
