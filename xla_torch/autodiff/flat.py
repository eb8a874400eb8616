"""A program as torch.autograd sees it: flat array arguments, flat array results, and the way back between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..builder import XlaOp
from ..hlo.ir import Computation
from ..shape import Shape
from ..transform.inline import Value, as_op, regrouped
from .activity import Flags
from .engine import Cotangent, materialised
from .program import Joint, frozen
from .sharing import SharingBuilder


class FlatJoint:
    """A plain program's forward part, with one parameter for each array leaf of its own parameters.

    `needs` flags the arguments that are differentiated and `demanded` the results that will have a cotangent (None: all
    that may). `arguments` and `results` are the array leaves, `varying` flags the results that depend on what is
    differentiated. Tuples are taken apart and tokens left out, as in `XlaComputation.run_flat`.
    """

    def __init__(self, name: str, entry: Computation, needs: Sequence[bool], demanded: Sequence[bool] | None = None):
        self.builder = SharingBuilder(name)
        self.arguments: list[XlaOp] = []
        self._shapes = [p.shape for p in entry.parameters]
        values = [self._parameter(shape) for shape in self._shapes]
        flags = iter(needs)
        active: list[Flags] = [_grouped(shape, flags, False) for shape in self._shapes]
        asked: Flags = True if demanded is None else _grouped(entry.root.shape, iter(demanded), False)
        self._joint = Joint(self.builder, entry, values, active, asked)
        self._arrays = [k for k, leaf in enumerate(self._joint.outputs) if leaf.shape.is_array]
        self.results = [self._joint.outputs[k] for k in self._arrays]
        self.varying = [self._joint.varying[k] for k in self._arrays]
        self.forward_part = list(self.builder.instructions)

    def _parameter(self, shape: Shape) -> Value:
        parts: list[XlaOp] = []
        for leaf in shape.leaves():
            if leaf.is_array:
                self.arguments.append(self.builder.parameter(len(self.arguments), leaf))
            parts.append(self.arguments[-1] if leaf.is_array else self.builder.add("after-all"))
        return regrouped(parts, shape)

    def cotangents(self, which: Sequence[bool]) -> list[XlaOp | None]:
        """New parameters: a cotangent for each chosen result, None for the others."""
        first = len(self.arguments)
        numbers = iter(range(first, first + len(which)))
        return [self.builder.parameter(next(numbers), result.shape.without_layout(), f"ct_{k}") if chosen else None
                for k, (result, chosen) in enumerate(zip(self.results, which, strict=True))]

    def gradients(self, cotangents: Sequence[XlaOp | None], wanted: Sequence[int]) -> list[XlaOp]:
        """The wanted arguments' gradients for the results' cotangents. Each call adds a way back to the builder."""
        whole: list[XlaOp | None] = [None] * len(self._joint.outputs)
        for k, ct in zip(self._arrays, cotangents, strict=True):
            whole[k] = ct
        found: list[Cotangent] = []
        for ct, shape in zip(self._joint.backward(whole), self._shapes, strict=True):
            found += _leaves(ct, shape)
        return [as_op(self.builder, materialised(self.builder, found[k], self.arguments[k].shape.without_layout()))
                for k in wanted]


def _grouped(shape: Shape, arrays: Any, other: bool) -> Flags:
    """Flags of array leaves, from an iterator, in the form of the shape."""
    return frozen(regrouped([next(arrays) if leaf.is_array else other for leaf in shape.leaves()], shape))


def _leaves(ct: Cotangent, shape: Shape) -> list[Cotangent]:
    """The cotangents of a parameter's array leaves."""
    if shape.is_tuple:
        parts = ct if isinstance(ct, tuple) else (None,) * len(shape.tuple_shapes)
        return [leaf for c, s in zip(parts, shape.tuple_shapes, strict=True) for leaf in _leaves(c, s)]
    return [ct] if shape.is_array else []
