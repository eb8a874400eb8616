"""Functions that `jax.export` wrote, as functions over trees, without jax."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..autodiff.given import GivenPullback
from ..core.errors import DifferentiationError, InvalidArgument
from ..hlo.derivatives import AS_WRITTEN, Derivatives, Lost, Vouched, bringing, vouched
from ..hlo.ir import Computation, Module
from ..jax_interop.exported import Aval, ExportedFile, read_exported
from ..jax_interop.exported_main import key_kind, module_of
from ..pytree.signatures import Signature
from ..runtime.computation import XlaComputation
from ..runtime.polymorphic import PolymorphicComputation
from ..runtime.static import StaticComputation
from ..stablehlo.convert import UnknownSizes, to_module
from .tree_function import TreeFunction


def from_exported(exported: Any, platform: str | None = None, *, derivatives: Vouched = None) -> TreeFunction:
    """Load a function that `jax.export` wrote, from a path, bytes or a `jax.export.Exported`.

    The result takes the pytrees that the function was exported for, like the result of `from_jax`. If sizes are dimension
    variables, leaves may have any sizes, and `computation` is a PolymorphicComputation. `platform` is one of the exported
    platforms; the default is ``cpu`` or else the first.

    Derivatives are JAX's for as many orders as the file has (``exported.serialize(vjp_order=1)``), and for all orders of an
    `Exported` in memory. Beyond these, they are derived from the ops, with a warning (LostDerivatives) unless ``derivatives="as
    written"`` accepts them.

    Raises HloSyntaxError with the byte offset for a damaged file, InvalidArgument for another platform, and UnsupportedError
    for unknown calling conventions and operations.

    >>> import jax
    >>> exported = jax.export.export(jax.jit(lambda x: x * x))(jax.ShapeDtypeStruct((2,), np.float32))
    >>> xla_torch.from_exported(exported.serialize())(torch.tensor([1.0, 2.0]))
    tensor([1., 4.])
    """
    program = _program(exported, platform, AS_WRITTEN if vouched(derivatives, "from_exported") else _LOST)
    file, found = program.file, to_module(module_of(program.file, platform))
    if isinstance(found, UnknownSizes):
        computation: XlaComputation = PolymorphicComputation(found, program)
    else:
        assert isinstance(found, Module), found  # main is there
        computation = StaticComputation(found)
        computation.entry.derivatives = program.derivatives(computation.program.canonical)
    signature = Signature(key_inputs=_keys(file.in_avals), key_results=_keys(file.out_avals))
    return TreeFunction(computation, file.in_tree, file.out_tree, signature)


def _keys(avals: Sequence[Aval]) -> tuple[tuple[int, str], ...]:
    """Which leaves are PRNG keys, and of which kind."""
    return tuple([(k, key_kind(aval)) for k, aval in enumerate(avals) if key_kind(aval)])


@dataclasses.dataclass(frozen=True, eq=False)
class _Program:
    """A program that jax.export wrote, and how the next one is found: the way back of this one, if there is one. It is what
    says, of a program of unknown sizes, which derivatives the program for certain sizes brings."""

    file: ExportedFile
    platform: str | None
    next: Callable[[], _Program] | None
    data: Callable[[], bytes]
    """The bytes of a file that holds it."""
    last: Lost
    """What is said of derivatives where there is no next program."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _program, (self.data(), self.platform, self.last)

    def derivatives(self, computation: Computation) -> Derivatives | Lost:
        """What this program, in canonical form and for certain sizes, brings of derivatives."""
        return self.last if self.next is None else GivenPullback(computation, _Called(self.next, computation))

    def computation(self, arguments: Sequence[Any]) -> Computation:
        """The program in canonical form for arguments of these shapes, with the derivatives that it brings."""
        found = to_module(module_of(self.file, self.platform))
        if isinstance(found, UnknownSizes):
            found = found.specialised([(shape.dimensions, None) for shape in arguments])
        assert isinstance(found, Module), found
        canonical = StaticComputation(found).program.canonical
        return bringing(canonical, self.derivatives(canonical))


@dataclasses.dataclass(frozen=True, eq=False)
class _Called:
    """The way back of a computation, as it is called: its arguments are the computation's, then a cotangent for each result."""

    program: Callable[[], _Program]
    of: Computation

    def __call__(self) -> Computation:
        arguments = [p.shape for p in self.of.parameters]
        return self.program().computation([*arguments, *self.of.root.shape.leaves()])


def _program(exported: Any, platform: str | None, last: Lost) -> _Program:
    """The program of a file, of bytes or of an `Exported`."""
    if isinstance(exported, (str, os.PathLike)):
        exported = Path(exported).read_bytes()
    if isinstance(exported, (bytes, bytearray, memoryview)):
        data = bytes(exported)
        return _in_file(read_exported(data), platform, lambda: data, last)
    if hasattr(exported, "serialize") and hasattr(exported, "has_vjp"):
        return _in_memory(exported, platform, last)
    raise InvalidArgument("not a function of jax.export", subject="from_exported", got=type(exported).__name__,
                          expected="a path, the bytes of a file, or a jax.export.Exported")


def _in_file(file: ExportedFile, platform: str | None, data: Callable[[], bytes], last: Lost) -> _Program:
    back = file.vjp
    return _Program(file, platform, None if back is None else lambda: _in_file(back, platform, data, last), data, last)


def _in_memory(exported: Any, platform: str | None, last: Lost) -> _Program:
    """An `Exported` in memory makes its way back when that is first asked for, and the way back of that."""

    def following() -> _Program:
        try:
            back = exported.vjp()
        except Exception as error:  # whatever JAX, or a rule of the function's author, raises
            raise DifferentiationError("JAX has no such derivative of the function", subject=str(exported.fun_name),
                                       got=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}",
                                       hint="pass exported.mlir_module_serialized, the program alone, to from_stablehlo"
                                       ) from error
        return _in_memory(back, platform, last)

    def data() -> bytes:
        return bytes(exported.serialize(vjp_order=1 if exported.has_vjp() else 0))

    return _Program(read_exported(bytes(exported.serialize())), platform, following if exported.has_vjp() else None, data, last)


_LOST = Lost((), "a function of jax.export, of which it wrote no further derivative",
             "write more of them, exported.serialize(vjp_order=1), or keep the function: from_jax; where those of the ops "
             'are meant, read it with derivatives="as written"')
