# pyright: strict
"""What a user may write, checked by pyright in its strictest mode, and run."""

import numpy as np
import torch

import xla_torch
from xla_torch import F32, Shape, XlaBuilder, XlaComputation, XlaOp, ops


def larger(a: XlaOp, b: XlaOp) -> XlaOp:
    return ops.Select(ops.Gt(a, b), a, b)


def going_on(carry: tuple[XlaOp, XlaOp]) -> XlaOp:
    return carry[0] < 3


def doubled(carry: tuple[XlaOp, XlaOp]) -> tuple[XlaOp, XlaOp]:
    return carry[0] + 1, carry[1] * 2.0


def built() -> XlaComputation:
    builder = XlaBuilder("program")
    x = builder.parameter(0, Shape.array(F32, [2, 3]))
    y = ops.ConstantLiteral(builder, np.ones(3, np.float32))
    product: XlaOp = ops.DotGeneral(x, y, ((([1]), ([0])), ((), ())), ops.Precision.HIGHEST)
    total: XlaOp = ops.Reduce(x, 0.0, larger, [1]) + product * 2.0
    return builder.build(ops.Tuple(builder, [ops.Exp(total), ops.ConvertElementType(total, "s32")]))


def at_once(x: torch.Tensor) -> torch.Tensor:
    image = ops.Reshape(x, [1, 1, 2, 3])
    filtered = ops.ConvGeneral(image, ops.Pad(image, 0.0, ops.make_padding_config([(0, 0)] * 4)), [1, 1], [(0, 0), (0, 0)],
                               ("NCHW", "OIHW", "NCHW"))
    rows: torch.Tensor = ops.Sort(ops.Reduce(x, 0.0, ops.Add, [0]), ops.Gt)
    return ops.Max(ops.Add(x, rows, [1]), ops.ReduceAll(filtered, 0.0, lambda a, b: a + b)) + ops.Iota(Shape.array(F32, [3]), 0)


def main() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    value: torch.Tensor = at_once(x)
    assert value.shape == (2, 3)
    exponential, whole = built()(x)
    assert exponential.shape == whole.shape == (2,)
    mapped: torch.Tensor = ops.Map([x, x], lambda a, b: a * b)
    assert torch.equal(mapped, x * x)
    gradient = xla_torch.grad(built(), argnums=0)(x)
    assert gradient.shape == x.shape
    steps, grown = ops.While(going_on, doubled, (torch.tensor(0), x))
    assert int(steps) == 3
    assert torch.equal(grown, x * 8)
    q, r = ops.QR(torch.eye(3))
    assert torch.allclose(q @ r, torch.eye(3))


if __name__ == "__main__":
    main()
