"""Dimension numbers and paddings in the forms that people write them in, as the records that the documents name.

Where a documented function takes such a record, it takes these forms too; the `make_*` functions, which XLA's client library has
as well, give the records themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..hlo.attributes import ConvDimsCodec, ConvolutionDimensionNumbers
from ..hlo.canonical_values import integers_of
from ..hlo.choices import PaddingConfig
from ..opcodes.contraction import DotDimensionNumbers

__all__ = ["make_convolution_dimension_numbers", "make_dot_dimension_numbers", "make_padding_config"]

ConvolutionNumbers = ConvolutionDimensionNumbers | str | Sequence[Any]
"""The record; HLO's ``"bf01_oi01->bf01"``; ``("NCHW", "OIHW", "NCHW")``; or JAX's three lists of dimensions."""

DotNumbers = DotDimensionNumbers | Sequence[Any]
"""The record; JAX's ``((lhs contracting, rhs contracting), (lhs batch, rhs batch))``; or the first pair alone, as in
torch.tensordot."""

CONVOLUTION_WORDS = 'a ConvolutionDimensionNumbers, ("NCHW", "OIHW", "NCHW"), or "bf01_oi01->bf01"'
DOT_WORDS = "a DotDimensionNumbers, ((lhs contracting, rhs contracting), (lhs batch, rhs batch)), or the first pair alone"


def make_convolution_dimension_numbers(dimension_numbers: ConvolutionNumbers | None = None,
                                       num_spatial_dimensions: int = 2) -> ConvolutionDimensionNumbers:
    """Which dimension plays which part, of what says so in a shorter form; None stands for batch, feature, spatial ... and for
    output feature, input feature, spatial ... .

    In ``("NCHW", "HWIO", "NHWC")`` a letter stands for each dimension of lhs, rhs and result: N and C for batch and feature, O
    and I for output and input feature, any others for spatial dimensions, which come in the order of the rhs. Lists of integers
    in their place are (batch, feature, spatial ...) and (output feature, input feature, spatial ...), as in JAX. Raises
    InvalidArgument for anything else.

    >>> ops.make_convolution_dimension_numbers(("NHWC", "HWIO", "NHWC")).kernel_spatial_dimensions
    (0, 1)
    """
    given = dimension_numbers
    if isinstance(given, ConvolutionDimensionNumbers):
        return given
    if given is None:
        spatial = tuple(range(2, 2 + num_spatial_dimensions))
        return ConvolutionDimensionNumbers(0, 1, spatial, 1, 0, spatial, 0, 1, spatial)
    if isinstance(given, str):
        return ConvDimsCodec().normalise(given)
    parts = list(given) if isinstance(given, (list, tuple)) else []
    if len(parts) != 3 or len({isinstance(part, str) for part in parts}) != 1:
        raise InvalidArgument("not the dimension numbers of a convolution", got=repr(given), expected=CONVOLUTION_WORDS)
    lhs, rhs, out = _of_letters(*parts) if isinstance(parts[0], str) else map(integers_of, parts)
    if not len(lhs) == len(rhs) == len(out) >= 2:
        raise InvalidArgument("not the dimension numbers of a convolution", got=repr(given),
                              expected="equally many dimensions of lhs, rhs and result, at least 2")
    return ConvolutionDimensionNumbers(lhs[0], lhs[1], tuple(lhs[2:]), rhs[1], rhs[0], tuple(rhs[2:]),
                                       out[0], out[1], tuple(out[2:]))


def _of_letters(lhs: str, rhs: str, out: str) -> list[list[int]]:
    spatial = [letter for letter in rhs if letter not in "OI"]
    wanted = [["N", "C", *spatial], ["O", "I", *spatial], ["N", "C", *spatial]]
    for given, letters in zip((lhs, rhs, out), wanted, strict=True):
        if sorted(given) != sorted(letters) or len(set(given)) != len(given):
            raise InvalidArgument(f"{given!r} does not name the dimensions of a convolution", got=repr((lhs, rhs, out)),
                                  expected=f"each of {' '.join(letters)} once, as in (\"NCHW\", \"OIHW\", \"NCHW\")")
    return [[given.index(letter) for letter in letters] for given, letters in zip((lhs, rhs, out), wanted, strict=True)]


def make_dot_dimension_numbers(dimension_numbers: DotNumbers) -> DotDimensionNumbers:
    """Which dimensions are summed over and which run in parallel, of nested pairs: ``((lhs contracting, rhs contracting), (lhs
    batch, rhs batch))`` as in JAX, or the first pair alone. Raises InvalidArgument for anything else.

    >>> dims = ops.make_dot_dimension_numbers((([2], [1]), ([0], [0])))
    >>> dims.lhs_contracting_dimensions, dims.rhs_contracting_dimensions, dims.lhs_batch_dimensions
    ((2,), (1,), (0,))
    """
    given = dimension_numbers
    if isinstance(given, DotDimensionNumbers):
        return given
    if not isinstance(given, (list, tuple)) or len(given) != 2 or not all(isinstance(part, (list, tuple)) for part in given):
        raise InvalidArgument("not the dimension numbers of a dot", got=repr(given), expected=DOT_WORDS)
    nested = [all(isinstance(part, (list, tuple)) for part in pair) and len(pair) == 2 for pair in given]
    contracting, batch = given if all(nested) else (given, ((), ()))
    return DotDimensionNumbers(contracting[0], contracting[1], batch[0], batch[1])


def make_padding_config(padding_config: PaddingConfig | Sequence[Sequence[int]]) -> PaddingConfig:
    """The padding of each dimension, (low, high, interior) or (low, high). Raises InvalidArgument for anything else.

    >>> ops.make_padding_config([(1, 2), (0, 0, 3)]).dimensions[1]
    PaddingConfigDimension(edge_padding_low=0, edge_padding_high=0, interior_padding=3)
    """
    return padding_config if isinstance(padding_config, PaddingConfig) else PaddingConfig(padding_config)
