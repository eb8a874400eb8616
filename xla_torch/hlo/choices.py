"""Words and small records that operations are configured with, as classes under the names that XLA's client library gives them.

The words are texts as well (``FftType.RFFT == "RFFT"``), so wherever one is expected the plain text is taken too.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from ..core.errors import InvalidArgument
from .attributes import PrecisionCodec
from .canonical_values import integers_of, sequence_of


class FftType(enum.StrEnum):
    """Which Fourier transform: complex to complex (back: IFFT), or real to half a spectrum (back: IRFFT).

    >>> ops.Fft(torch.tensor([1.0, 2.0]), ops.FftType.RFFT, [2])
    tensor([ 3.+0.j, -1.+0.j])
    """

    FFT = "FFT"
    IFFT = "IFFT"
    RFFT = "RFFT"
    IRFFT = "IRFFT"


class RandomAlgorithm(enum.StrEnum):
    """How `RngBitGenerator` makes bits of its state: by Threefry (u64[2]), by Philox (u64[3], or u64[2]), or as XLA's CPU does by
    default.

    >>> state, bits = ops.RngBitGenerator(ops.RandomAlgorithm.RNG_THREE_FRY, torch.tensor([1, 2], dtype=torch.uint64),
    ...                                   Shape.parse("u32[4]"))
    >>> bits.shape, bits.dtype
    (torch.Size([4]), torch.uint32)
    """

    RNG_DEFAULT = "rng_default"
    RNG_THREE_FRY = "rng_three_fry"
    RNG_PHILOX = "rng_philox"


class TriangularSolveTranspose(enum.StrEnum):
    """What `TriangularSolve` solves with: the matrix, its transpose, or that conjugated.

    >>> lower, b = torch.tensor([[1.0, 0.0], [2.0, 1.0]]), torch.tensor([[1.0], [1.0]])
    >>> ops.TriangularSolve(lower, b, True, True, False, ops.TriangularSolveTranspose.TRANSPOSE)
    tensor([[-1.],
            [ 1.]])
    """

    NO_TRANSPOSE = "NO_TRANSPOSE"
    TRANSPOSE = "TRANSPOSE"
    ADJOINT = "ADJOINT"


class ComparisonDirection(enum.StrEnum):
    """Which relation a comparison asks for: equal, not equal, greater or equal, greater, less or equal, less. The words are
    HLO's, and strings do for members.

    >>> ops.Compare(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 2.0]), ops.ComparisonDirection.LT)
    tensor([ True, False])
    """

    EQ = "EQ"
    NE = "NE"
    GE = "GE"
    GT = "GT"
    LE = "LE"
    LT = "LT"


class ComparisonType(enum.StrEnum):
    """In which order numbers are compared; see `Compare`. FLOAT is IEEE's, in which NaN is unordered; TOTALORDER puts -NaN first,
    -0 before 0 and NaN last; SIGNED and UNSIGNED are those of integers.

    >>> nan = torch.tensor([float("nan")])
    >>> orders = ops.ComparisonType.FLOAT, ops.ComparisonType.TOTALORDER
    >>> [ops.Compare(nan, nan, ops.ComparisonDirection.EQ, compare_type=order).item() for order in orders]
    [False, True]
    """

    FLOAT = "FLOAT"
    TOTALORDER = "TOTALORDER"
    SIGNED = "SIGNED"
    UNSIGNED = "UNSIGNED"


class CustomCallSchedule(enum.StrEnum):
    """When XLA schedules a custom call: as it likes, as late or as early as it can. A hint, kept and written.

    >>> ops.CustomCallSchedule.SCHEDULE_LATEST == "SCHEDULE_LATEST"
    True
    """

    SCHEDULE_NONE = "SCHEDULE_NONE"
    SCHEDULE_LATEST = "SCHEDULE_LATEST"
    SCHEDULE_EARLIEST = "SCHEDULE_EARLIEST"


class CustomCallApiVersion(enum.StrEnum):
    """How a custom call's function in C is called: by pointers alone, with a status to write to, by one convention for CPU and
    GPU, or by XLA's typed FFI. It is kept and written; a function in Python is called in one way.

    >>> ops.CustomCallApiVersion("API_VERSION_TYPED_FFI") is ops.CustomCallApiVersion.API_VERSION_TYPED_FFI
    True
    """

    API_VERSION_ORIGINAL = "API_VERSION_ORIGINAL"
    API_VERSION_STATUS_RETURNING = "API_VERSION_STATUS_RETURNING"
    API_VERSION_STATUS_RETURNING_UNIFIED = "API_VERSION_STATUS_RETURNING_UNIFIED"
    API_VERSION_TYPED_FFI = "API_VERSION_TYPED_FFI"


class Precision(enum.StrEnum):
    """How precisely an operand of a product counts; a hint, which hardware with fewer bits in its products follows.

    >>> matrix = torch.eye(2)
    >>> ops.Dot(matrix, matrix, precision_config=[ops.Precision.HIGHEST, ops.Precision.HIGHEST])
    tensor([[1., 0.],
            [0., 1.]])
    """

    DEFAULT = "default"
    HIGH = "high"
    HIGHEST = "highest"
    PACKED_NIBBLE = "packed_nibble"


@dataclasses.dataclass(frozen=True, slots=True)
class PrecisionConfig:
    """A precision for each operand of a product: `operand_precision` has a Precision for each, in order. A sequence of words
    stands for it. Raises InvalidArgument for another word.

    >>> [str(precision) for precision in ops.PrecisionConfig(["default", "highest"])]
    ['default', 'highest']
    """

    operand_precision: Sequence[str] = ()

    Precision: ClassVar[type[Precision]] = Precision

    def __post_init__(self) -> None:
        words = PrecisionCodec().normalise(self.operand_precision)
        object.__setattr__(self, "operand_precision", tuple(map(Precision, words)))

    def __iter__(self) -> Iterator[str]:
        return iter(self.operand_precision)

    def __len__(self) -> int:
        return len(self.operand_precision)


class PaddingConfigDimension(NamedTuple):
    """How one dimension is padded, in elements: before the first (`edge_padding_low`) and after the last (`edge_padding_high`;
    both cut off where they are negative), and between neighbours (`interior_padding`, 0 or more).

    >>> between = ops.PaddingConfigDimension(0, 0, 1)
    >>> ops.Pad(torch.tensor([1.0, 2.0]), torch.tensor(0.0), [between])
    tensor([1., 0., 2.])
    """

    edge_padding_low: int = 0
    edge_padding_high: int = 0
    interior_padding: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class PaddingConfig:
    """How each dimension is padded: `dimensions` has a PaddingConfigDimension for each, in order. A sequence of
    (low, high, interior) stands for it. Raises InvalidArgument for an entry that is not two or three integers.

    >>> config = ops.PaddingConfig([(1, 0, 0)])
    >>> ops.Pad(torch.tensor([1.0, 2.0]), torch.tensor(0.0), config), len(config)
    (tensor([0., 1., 2.]), 1)
    """

    dimensions: Sequence[Any] = ()

    def __post_init__(self) -> None:
        entries = [integers_of(entry) for entry in sequence_of(self.dimensions, "a sequence of (low, high, interior)")]
        for entry in entries:
            if not 2 <= len(entry) <= 3:
                raise InvalidArgument("an entry is not (low, high, interior)", subject="PaddingConfig", got=entry)
        object.__setattr__(self, "dimensions", tuple(PaddingConfigDimension(*entry) for entry in entries))

    def __iter__(self) -> Iterator[PaddingConfigDimension]:
        return iter(self.dimensions)

    def __len__(self) -> int:
        return len(self.dimensions)


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """Participants that exchange with one another: `replica_ids`, integers from 0. A sequence of them stands for it. Raises
    InvalidArgument for what is no integer.

    >>> builder = XlaBuilder("sums of pairs")
    >>> x = builder.parameter(0, Shape.parse("f32[]"))
    >>> total = builder.build(ops.CrossReplicaSum(x, [ops.ReplicaGroup([0, 1]), ops.ReplicaGroup([2, 3])]))
    >>> run_replicas(total, [(torch.tensor(float(k)),) for k in range(4)], num_replicas=4)
    [tensor(1.), tensor(1.), tensor(5.), tensor(5.)]
    """

    replica_ids: Sequence[int] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "replica_ids", integers_of(self.replica_ids))

    def __iter__(self) -> Iterator[int]:
        return iter(self.replica_ids)

    def __len__(self) -> int:
        return len(self.replica_ids)
