"""JAX functions as torch functions: trees of arrays become trees of tensors. The only file that imports jax.

jax is needed to trace and to flatten trees; what runs is the traced program, in PyTorch.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..computation import XlaComputation, tensor_from_numpy
from ..errors import InvalidArgument, MissingDependency
from ..loading import from_stablehlo
from ..shape import Shape
from ..types import C64, C128, F32, F64, S32, S64, U32, U64, type_from_torch

if TYPE_CHECKING:
    from jax.stages import Lowered

_NARROWED = {F64: F32, S64: S32, U64: U32, C128: C64}


def from_jax(function: Callable[..., Any], *example_args: Any, **example_kwargs: Any) -> JaxFunction:
    """Trace a JAX function once, for arguments like the examples, and return it as a function of torch tensors.

    Arguments may be trees (tuples, lists, dicts, registered classes) whose leaves are torch tensors, NumPy or JAX
    arrays, `jax.ShapeDtypeStruct`s or Python numbers; only shapes and dtypes of the examples count. `function` may be
    jitted. Raises MissingDependency where jax is not installed; whatever JAX raises while it traces passes through.
    """
    jax = _jax("from_jax")
    args, kwargs = jax.tree_util.tree_map(_abstract, (example_args, example_kwargs))
    # Unused arguments are kept, so that the program takes all that the function takes.
    lowered = jax.jit(function, keep_unused=True).lower(*args, **kwargs)
    return JaxFunction(from_stablehlo(_bytecode(lowered)), lowered.in_tree, lowered.out_tree)


class JaxFunction:
    """What `from_jax` returns. Call it with trees of tensors; `computation` is the program over the flat leaves.

    As in JAX without 64-bit mode, a 64-bit argument is narrowed where the traced parameter has 32 bits. Gradients flow
    to every floating leaf, as for any torch function.
    """

    def __init__(self, computation: XlaComputation, in_tree: Any, out_tree: Any):
        self.computation, self.in_tree, self.out_tree = computation, in_tree, out_tree

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, tree = _jax("from_jax").tree_util.tree_flatten((args, kwargs))
        if tree != self.in_tree:
            raise InvalidArgument("arguments are not the tree that was traced", subject="from_jax", got=tree,
                                  expected=self.in_tree, hint="trace once for each structure of arguments")
        device = next((leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)), torch.device("cpu"))
        shapes = self.computation.program_shape.parameters
        result = self.computation(*(_tensor(leaf, number, shape, device)
                                    for number, (leaf, shape) in enumerate(zip(leaves, shapes, strict=True))))
        return self.out_tree.unflatten(result if isinstance(result, tuple) else (result,))

    def __repr__(self) -> str:
        return f"JaxFunction({self.computation.program_shape})"


def _jax(what: str) -> Any:
    try:
        import jax
    except ImportError as error:
        raise MissingDependency(f"{what} needs jax", got=error, expected="jax 0.10.2 or newer",
                                hint="pip install 'xla_torch[jax]'") from None
    return jax


def _abstract(leaf: Any) -> Any:
    """An example as JAX may see it: a tensor by its shape and dtype, all else as it is."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    element_type = type_from_torch(leaf.dtype)
    if element_type is None or element_type.numpy is None:
        raise InvalidArgument("JAX has no dtype for this tensor", subject="from_jax", got=leaf.dtype)
    jax = _jax("from_jax")
    return jax.ShapeDtypeStruct(tuple(leaf.shape), jax.dtypes.canonicalize_dtype(element_type.numpy))


def _bytecode(lowered: Lowered) -> bytes:
    """The traced module with its locations, from which the HLO gets its op_name metadata."""
    buffer = io.BytesIO()
    lowered.compiler_ir("stablehlo").operation.write_bytecode(buffer)  # pyright: ignore[reportOptionalMemberAccess]
    return buffer.getvalue()


def _tensor(leaf: Any, number: int, shape: Shape, device: torch.device) -> torch.Tensor:
    """Leaf `number` as a tensor of the parameter's type, narrowed from 64 bits where the trace was."""
    if not isinstance(leaf, torch.Tensor):
        return tensor_from_numpy(np.asarray(leaf, shape.element_type.numpy), shape, number).to(device)
    given = type_from_torch(leaf.dtype)
    narrowed = given is not None and _NARROWED.get(given) is shape.element_type
    return leaf.to(shape.element_type.torch) if narrowed else leaf
