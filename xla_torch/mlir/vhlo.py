"""VHLO, the versioned copy of StableHLO that portable artifacts hold, as StableHLO: the names of operations and their attributes.

VHLO has one operation for each version that an operation ever had. Its attributes are flat (``lhs_batching_dimensions`` beside
``lhs_contracting_dimensions``), none may be missing, and lists of numbers are elements. Source:
stablehlo/transforms/VhloLegalizeToStablehlo.cpp, and VhloToVersion.cpp for what later versions added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.errors import HloSyntaxError, InvalidArgument, UnsupportedError
from . import ir
from .vhlo_table import DEFAULTS, LISTS, SYMBOLS, VERSIONS, is_default

Attributes = dict[str, ir.Attribute]

_FUNCTIONS = {"vhlo.func": "func.func", "vhlo.call": "func.call"}
_COLLECTIVES = frozenset({"stablehlo.all_gather", "stablehlo.all_reduce", "stablehlo.all_to_all",
                          "stablehlo.collective_broadcast", "stablehlo.collective_permute", "stablehlo.collective_reduce",
                          "stablehlo.reduce_scatter"})


def legalize(name: str, attributes: Attributes, offset: int = 0) -> tuple[str, Attributes]:
    """The name and attributes that an operation of VHLO has in StableHLO; those of other operations as they are.

    What is as StableHLO has it by itself is left out, as it is in text. ``vhlo.return_v1`` becomes ``stablehlo.return``; in a
    function it has to be ``func.return``. Raises UnsupportedError for versions that are not known, InvalidArgument for
    attributes that are missing or of another kind. `offset` is where the operation stands in a file.
    """
    if not name.startswith("vhlo."):
        return name, attributes
    base, _, version = name.rpartition("_v")
    if version not in VERSIONS.get(base, ()):
        known = ", ".join(f"{base}_v{v}" for v in VERSIONS.get(base, ()))
        raise UnsupportedError("unknown VHLO operation", subject=name, where=f"byte {offset}", expected=known,
                               hint="write it with an older version of StableHLO")
    try:
        text = _FUNCTIONS.get(base) or f"stablehlo.{base.removeprefix('vhlo.')}"
        return text, _attributes(text, dict(attributes))
    except KeyError as error:
        raise HloSyntaxError("an attribute is missing", subject=name, expected=error.args[0], where=f"byte {offset}") from None
    except InvalidArgument as error:
        raise error.located(name, f"byte {offset}") from None


def _attributes(name: str, given: Attributes) -> Attributes:
    for key, default in DEFAULTS.get(name, {}).items():
        if key in given and is_default(given[key], default):
            del given[key]
    for key in LISTS.get(name, ()):
        if key in given:
            given[key] = _numbers(key, given[key])
    for key in SYMBOLS.get(name, ()):
        if key in given:
            given[key] = _symbols(key, given[key])
    if name in _COLLECTIVES and "channel_id" in given:
        given["channel_handle"] = ir.Struct("stablehlo.channel_handle", {"handle": given.pop("channel_id"), "type": 0})
    if name in _SPECIAL:
        _SPECIAL[name](given)
    return given


def _numbers(key: str, value: ir.Attribute) -> tuple[Any, ...]:
    """A list that VHLO keeps as elements."""
    if not isinstance(value, ir.Elements) or value.value.ndim != 1 or value.value.dtype.kind not in "bi":
        raise InvalidArgument("invalid list of numbers", got=f"{key} = {value}")
    if not value.value.strides[0] and value.value.size > 64:
        raise InvalidArgument("the list of dimensions is too long", got=f"{key}, {value.value.size} numbers")
    return tuple(np.asarray(value.value).tolist())


def _symbols(key: str, value: ir.Attribute) -> ir.Attribute:
    if isinstance(value, tuple):
        return tuple([_symbols(key, part) for part in value])
    if not isinstance(value, str):
        raise InvalidArgument("invalid name", got=f"{key} = {value}")
    return ir.Symbol(value)


# ---------------------------------------------------------------------------------------------------------------- structs


def _gathered(given: Attributes, kind: str, lists: tuple[str, ...], numbers: tuple[str, ...] = ()) -> ir.Struct:
    """A struct of flat attributes, which are taken away. Empty lists are left out, as in text."""
    fields: Attributes = {}
    for key in lists:
        value = _numbers(key, given.pop(key))
        if value or kind == "stablehlo.conv":
            fields[key] = value
    for key in numbers:
        value = given.pop(key)
        if type(value) is not int:
            raise InvalidArgument("invalid number", got=f"{key} = {value}")
        if value or key != "index_vector_dim":
            fields[key] = value
    return ir.Struct(kind, fields)


_CONV_LISTS = tuple(f"{side}_spatial_dimensions" for side in ("input", "kernel", "output"))
_CONV_NUMBERS = ("input_batch_dimension", "input_feature_dimension", "kernel_input_feature_dimension",
                 "kernel_output_feature_dimension", "output_batch_dimension", "output_feature_dimension")
_DOT = ("lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions", "rhs_contracting_dimensions")
_ALGORITHM = ("lhs_precision_type", "rhs_precision_type", "accumulation_type", "lhs_component_count", "rhs_component_count",
              "num_primitive_operations", "allow_imprecise_accumulation")
_GATHER_BATCH = ("operand_batching_dims", "start_indices_batching_dims")  # since 1.1.0
_SCATTER_BATCH = ("input_batching_dims", "scatter_indices_batching_dims")
_NO_TYPE = ir.OtherType("none")


def _convolution(given: Attributes) -> None:
    given["dimension_numbers"] = _gathered(given, "stablehlo.conv", _CONV_LISTS, _CONV_NUMBERS)


def _dynamic_convolution(given: Attributes) -> None:
    """Its padding is an operand since 0.20.0; before, there was an attribute beside it, which has to say nothing."""
    if "padding" in given:
        raise InvalidArgument("a dynamic convolution has padding twice", got=given["padding"])
    _convolution(given)


def _dot(given: Attributes) -> None:
    given["dot_dimension_numbers"] = _gathered(given, "stablehlo.dot", _DOT)
    algorithm = {key: given.pop(key) for key in _ALGORITHM if key in given}  # since 1.6.0
    if algorithm and algorithm["lhs_precision_type"] != _NO_TYPE:
        given["algorithm"] = ir.Struct("stablehlo.dot_algorithm", algorithm)


def _present(given: Attributes, *keys: str) -> list[str]:
    return [key for key in keys if key in given]


def _gather(given: Attributes) -> None:
    lists = ("offset_dims", "collapsed_slice_dims", "start_index_map", *_present(given, *_GATHER_BATCH))
    given["dimension_numbers"] = _gathered(given, "stablehlo.gather", lists, ("index_vector_dim",))


def _scatter(given: Attributes) -> None:
    lists = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims", *_present(given, *_SCATTER_BATCH))
    given["scatter_dimension_numbers"] = _gathered(given, "stablehlo.scatter", lists, ("index_vector_dim",))


def _transfer(given: Attributes) -> None:
    handle = {"handle": given.pop("channel_id"), "type": given.pop("channel_type")}
    given["channel_handle"] = ir.Struct("stablehlo.channel_handle", handle)


_SPECIAL: dict[str, Callable[[Attributes], None]] = {
    "stablehlo.convolution": _convolution, "stablehlo.dynamic_conv": _dynamic_convolution, "stablehlo.dot_general": _dot,
    "stablehlo.gather": _gather, "stablehlo.dynamic_gather": _gather, "stablehlo.scatter": _scatter, "stablehlo.send": _transfer,
    "stablehlo.recv": _transfer}
