"""A computation as torch.autograd sees it: flat array arguments, flat array results, and the way back between them.

Tuples are taken apart and tokens are left out, as where a program runs on tensors.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ..core.shape import Shape
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo import tree
from ..hlo.checks import is_check
from ..hlo.ir import Computation, Instruction
from ..opcodes import token
from ..transform.values import Value, as_op, regrouped
from .calls import OpeningBuilder
from .cotangents import Cotangent, materialised
from .derivatives import Joint, finished, tangent_leaves
from .flags import Flags
from .forward import Forward
from .options import GradientOptions
from .residuals import effects
from .sharing import SharingBuilder

T = TypeVar("T")


class FlatJoint:
    """A computation's forward part, with one parameter for each array leaf of its own parameters.

    `needs` flags the arguments that are differentiated and `demanded` the results that will have a cotangent (None: all
    that may). If it `opens` calls, what is called stands in their places. `arguments` and `results` are the array leaves,
    `varying` flags the results that depend on what is differentiated.
    """

    def __init__(self, name: str, entry: Computation, needs: Sequence[bool], demanded: Sequence[bool] | None,
                 options: GradientOptions, opens: bool = False):
        self.builder = (OpeningBuilder if opens else SharingBuilder)(name)
        self._shapes = [p.shape for p in entry.parameters]
        self.arguments, values = flat_parameters(self.builder, self._shapes)
        flags = iter(needs)
        active: list[Flags] = [_grouped(shape, flags, False) for shape in self._shapes]
        asked: Flags = True if demanded is None else _grouped(entry.root.shape, iter(demanded), False)
        self._joint = Joint(self.builder, entry, values, active, asked, options)
        self._arrays = [k for k, leaf in enumerate(self._joint.outputs) if leaf.shape.is_array]
        self.results = [self._joint.outputs[k] for k in self._arrays]
        varying = self._joint.varying
        self.varying = [varying[k] for k in self._arrays]
        self.forward_part = list(self.builder.instructions)
        self.effects: list[Instruction] = []
        """What the last way back does besides, such as checks that a `backward` makes of its cotangents."""

    def cotangents(self, which: Sequence[bool]) -> list[XlaOp | None]:
        """New parameters: a cotangent for each chosen result, None for the others."""
        first = len(self.arguments)
        numbers = iter(range(first, first + len(which)))
        return [self.builder.parameter(next(numbers), result.shape.without_layout(), f"ct_{k}") if chosen else None
                for k, (result, chosen) in enumerate(zip(self.results, which, strict=True))]

    def gradients(self, cotangents: Sequence[XlaOp | None], wanted: Sequence[int]) -> list[XlaOp]:
        """The wanted arguments' gradients for the results' cotangents. Each call adds a way back to the builder."""
        whole: list[XlaOp | None] = [None] * len(self._joint.outputs)
        start, checked = len(self.builder.instructions), {i.operands[0] for i in self.forward_part if is_check(i)}
        for k, ct in zip(self._arrays, cotangents, strict=True):
            whole[k] = ct
        found: list[Cotangent] = []
        for ct, shape in zip(self._joint.backward(whole), self._shapes, strict=True):
            found += [leaf for leaf, _ in tree.arrays(tree.filled(ct, shape), shape)]
        self.effects = [i for i in effects(self.builder.instructions[start:])
                        if not (is_check(i) and i.operands[0] in checked)]
        return [as_op(self.builder, materialised(self.builder, found[k], self.arguments[k].shape.without_layout()))
                for k in wanted]


def flat_parameters(builder: Builder, shapes: Sequence[Shape],
                    given: Callable[[Shape], Shape] | None = None) -> tuple[list[XlaOp], list[Value]]:
    """New parameters, one for each array leaf of these shapes (of the shape that `given` makes of it), and the values that
    they make up; tokens are made anew."""
    arguments: list[XlaOp] = []
    values: list[Value] = []
    for shape in shapes:
        parts: list[XlaOp] = []
        for leaf in shape.leaves():
            if leaf.is_array:
                arguments.append(builder.parameter(len(arguments), given(leaf) if given else leaf))
            parts.append(arguments[-1] if leaf.is_array else builder.add(token.after_all))
        values.append(regrouped(parts, shape))
    return arguments, values


def _grouped(shape: Shape, arrays: Iterator[T], other: T) -> Any:
    """What array leaves have, from an iterator, in the form of the shape; `other` for tokens."""
    return tree.grouped((next(arrays) if leaf.is_array else other for leaf in shape.leaves()), shape)


def flat_tangents(name: str, entry: Computation, present: Sequence[bool]) -> Computation:
    """From flat array arguments, and tangents for those of them that `present` flags, to the tangents of the floating and
    complex ones among the flat array results."""
    builder, shapes = SharingBuilder(name), [p.shape for p in entry.parameters]
    arguments, values = flat_parameters(builder, shapes)
    numbers = itertools.count(len(arguments))
    given = iter([builder.parameter(next(numbers), a.shape.without_layout(), f"t_{k}") if flag else None
                  for k, (a, flag) in enumerate(zip(arguments, present, strict=True))])
    run = Forward(builder, entry, values, [_grouped(shape, given, None) for shape in shapes])
    return finished(builder, list(tangent_leaves(builder, run.tangent, entry.root.shape)))
