"""HLO modules to modules of MLIR: the one way out for StableHLO."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...core.errors import UnsupportedError
from ...hlo.ir import Module
from ...mlir.bytecode.writing import write_module
from ...mlir.ir import Block, Location, Operation, Region
from ...mlir.text.printing import print_module
from . import (  # noqa: F401  (fill the table)
    asynchronous,
    collective,
    compiled,
    contraction,
    control,
    custom_calls,
    elementwise,
    movement,
    reduction,
)
from .headers import argument_attributes, module_attributes, result_attributes
from .scope import Functions, function_of

T = TypeVar("T")


def to_stablehlo_bytecode(module: Module) -> bytes:
    """The module as MLIR bytecode: the operations that `to_stablehlo` writes."""
    return _written(module, write_module)


def to_stablehlo(module: Module) -> str:
    """The module as StableHLO text: a function ``main``, whose arguments and results are the leaves of the entry's parameters and
    result. Raises UnsupportedError, with the instruction, for what StableHLO has no word for or what is not written yet."""
    return _written(module, print_module)


def _written(module: Module, write: Callable[[Operation], T]) -> T:
    try:
        return write(_operation(module))
    except RecursionError:
        raise UnsupportedError("the program is nested too deeply", subject="StableHLO") from None


def _operation(module: Module) -> Operation:
    functions = Functions()
    main = function_of(functions, module.entry, "main", {"sym_visibility": "public"})
    _name_arguments(main, module)
    for name, stated in (("arg_attrs", argument_attributes(module)), ("res_attrs", result_attributes(module))):
        if any(stated):
            main.attributes[name] = tuple(stated)
    return Operation("builtin.module", [], (), module_attributes(module), [Region([Block((), [main, *functions.written])])])


def _name_arguments(main: Operation, module: Module) -> None:
    """Locations say what the arguments are called, as JAX writes them: the place of each in the trees of its function, where that
    is known, otherwise the parameter's name."""
    names = (p.op_name or p.name for p in module.entry.parameters for _ in p.shape.leaves())
    for argument, name in zip(main.regions[0].blocks[0].arguments, names, strict=True):
        argument.location = Location(name)
