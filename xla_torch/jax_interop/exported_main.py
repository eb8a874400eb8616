"""The program of a `jax.export` file as a function of the exported function's own arguments.

The file's ``main`` takes, in this order: an index into the platforms where there are several, a token for each ordered effect,
and those arguments that the program uses; it gives the tokens back in front of the results. (Dimension variables it computes
itself.) Here each of them is put right: the index is a constant, tokens are made, arguments that are not used are there again.
Convention: docs.jax.dev/en/latest/export/export.html#module-calling-convention, versions 9 and 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.errors import InvalidArgument, UnsupportedError
from ..core.types import PRED, S32, S64, U32, PrimitiveType
from ..mlir import ir
from ..mlir.bytecode import parser as bytecode
from ..mlir.bytecode.elements import numpy_type
from .exported import Aval, ExportedFile
from .flatbuffer import malformed

CONVENTIONS = range(9, 11)
"""The versions of the calling convention that are known."""

_KEY_SIZES = {"key<fry>": 2, "key<rbg>": 4, "key<unsafe_rbg>": 4}
_INDICES = (ir.Tensor((), S32), ir.Tensor((), S64))


def key_kind(aval: Aval) -> str:
    """What a PRNG key is called (``fry``); "" for all else."""
    return aval.dtype[4:-1] if isinstance(aval.dtype, str) and aval.dtype in _KEY_SIZES else ""


def module_of(exported: ExportedFile, platform: str | None = None) -> ir.Operation:
    """The file's program, whose ``main`` takes all arguments of the function, in order, and gives its results.

    `platform` is one of `exported.platforms`; without it that is ``cpu`` where it is among them, otherwise the first. PRNG keys
    are their data, as U32; arguments of type float0 are PRED. Raises InvalidArgument for another platform, UnsupportedError for
    calling conventions that are not known, HloSyntaxError for a program that does not fit what the file says.
    """
    if exported.calling_convention_version not in CONVENTIONS:
        raise UnsupportedError("unknown calling convention", subject=exported.fun_name,
                               got=exported.calling_convention_version, expected=", ".join(map(str, CONVENTIONS)))
    module = bytecode.parse(exported.module)
    _adapt(_main(module), exported, _index(exported, platform))
    return module


def without_tokens(module: ir.Operation) -> ir.Operation:
    """What JAX lowers in memory, whose ``main`` takes and gives tokens in front: they are made, and not given back."""
    main = _main(module)
    block, last = main.regions[0].blocks[0], main.regions[0].blocks[0].operations[-1]
    effects = sum(a.type == ir.TOKEN for a in block.arguments)
    if effects:
        arguments = _listed(main.attributes.get("arg_attrs"), len(block.arguments))[effects:]
        results = _listed(main.attributes.get("res_attrs"), len(last.operands))[effects:]
        made = _tokens(effects)
        _replace(block, dict(zip(block.arguments, [o.results[0] for o in made], strict=False)))
        block.operations[:0] = made
        del block.arguments[:effects], last.operands[:effects]
        _retype(main, arguments, results)
    return module


def _tokens(count: int) -> list[ir.Operation]:
    return [ir.Operation("stablehlo.create_token", [], [ir.TOKEN]) for _ in range(count)]


def _main(module: ir.Operation) -> ir.Operation:
    main = next((o for r in module.regions for b in r.blocks for o in b.operations if o.symbol == "main"), None)
    if main is None or len(main.regions) != 1 or len(main.regions[0].blocks) != 1 or not main.regions[0].blocks[0].operations:
        raise malformed("the program has no main function", 0)
    return main


def _retype(main: ir.Operation, arguments: Sequence[dict[str, ir.Attribute]], results: Sequence[dict[str, ir.Attribute]]) -> None:
    """Say of a function what arguments and results it has now, with their attributes."""
    block = main.regions[0].blocks[0]
    for number, value in enumerate(block.arguments):
        value.number = number
    types = [value.type for value in block.arguments], [value.type for value in block.operations[-1].operands]
    main.attributes |= {"function_type": ir.FunctionType(tuple(types[0]), tuple(types[1])), "arg_attrs": tuple(arguments),
                        "res_attrs": tuple(results)}


def _index(exported: ExportedFile, platform: str | None) -> int:
    """The number of the platform to run for."""
    names = exported.platforms
    if platform is None:
        return names.index("cpu") if "cpu" in names else 0
    if platform not in names:
        raise InvalidArgument("the function was not exported for this platform", subject=exported.fun_name, got=platform,
                              expected=", ".join(names))
    return names.index(platform)


def _adapt(main: ir.Operation, exported: ExportedFile, index: int) -> None:
    block, effects, kept = main.regions[0].blocks[0], len(exported.ordered_effects), exported.module_kept_var_idx
    has_index = len(exported.platforms) > 1
    if len(block.arguments) != has_index + effects + len(kept):
        raise malformed("the program's arguments are not those that the file names", 0, len(block.arguments),
                        f"{has_index + effects + len(kept)}")
    made = [_constant(index, block.arguments[0].type)] if has_index else []
    made += _tokens(effects)
    given, used = block.arguments, dict(zip(kept, block.arguments[len(made):], strict=True))
    _replace(block, dict(zip(given, [o.results[0] for o in made], strict=False)))
    types = [used[k].type if k in used else _type_of(aval) for k, aval in enumerate(exported.in_avals)]
    attributes = _listed(main.attributes.get("arg_attrs"), len(given))
    by_argument = dict(zip(kept, attributes[len(made):], strict=True))
    block.arguments = [used.get(k) or ir.Value(t, block, k) for k, t in enumerate(types)]
    block.operations[:0] = made
    last = block.operations[-1]
    results = _listed(main.attributes.get("res_attrs"), len(last.operands))[effects:]
    del last.operands[:effects]
    if len(last.operands) != len(exported.out_avals):
        raise malformed("the program's results are not those that the file names", 0, len(last.operands), len(exported.out_avals))
    _retype(main, [by_argument.get(k, {}) for k in range(len(types))], results)


def _listed(attributes: Any, count: int) -> tuple[dict[str, ir.Attribute], ...]:
    """The attributes of arguments or results, which may be missing altogether."""
    fits = isinstance(attributes, tuple) and len(attributes) == count and all(isinstance(a, dict) for a in attributes)
    return attributes if fits else ({},) * count


def _constant(value: int, of: ir.Type) -> ir.Operation:
    if of not in _INDICES:
        raise malformed("the index of the platform is no integer", 0, of)
    assert isinstance(of, ir.Tensor)
    return ir.Operation("stablehlo.constant", [], [of], {"value": ir.Elements(of, np.array(value, numpy_type(of.element)))})


def _replace(block: ir.Block, values: dict[ir.Value, ir.Value]) -> None:
    """Use other values in all operations of a function."""
    if not values:
        return
    for top in block.operations:
        for operation in ir.walk(top):
            operation.operands[:] = [values.get(v, v) for v in operation.operands]


def _type_of(aval: Aval) -> ir.Tensor:
    """The type of an argument that the program does not use."""
    sizes: tuple[int | None, ...] = tuple([size if isinstance(size, int) else None for size in aval.shape])
    if isinstance(aval.dtype, PrimitiveType):
        return ir.Tensor(sizes, aval.dtype)
    return ir.Tensor((*sizes, _KEY_SIZES[aval.dtype]), U32) if aval.dtype in _KEY_SIZES else ir.Tensor(sizes, PRED)
