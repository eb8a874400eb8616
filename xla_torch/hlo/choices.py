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
    """Which Fourier transform: complex to complex (back: IFFT), or real to half a spectrum (back: IRFFT)."""

    FFT = "FFT"
    IFFT = "IFFT"
    RFFT = "RFFT"
    IRFFT = "IRFFT"


class RandomAlgorithm(enum.StrEnum):
    """How `RngBitGenerator` makes bits of its state."""

    RNG_DEFAULT = "rng_default"
    RNG_THREE_FRY = "rng_three_fry"
    RNG_PHILOX = "rng_philox"


class TriangularSolveTranspose(enum.StrEnum):
    """What `TriangularSolve` solves with: the matrix, its transpose, or that conjugated."""

    NO_TRANSPOSE = "NO_TRANSPOSE"
    TRANSPOSE = "TRANSPOSE"
    ADJOINT = "ADJOINT"


class ComparisonDirection(enum.StrEnum):
    """Which relation a comparison asks for."""

    EQ = "EQ"
    NE = "NE"
    GE = "GE"
    GT = "GT"
    LE = "LE"
    LT = "LT"


class ComparisonType(enum.StrEnum):
    """In which order numbers are compared; see `Compare`."""

    FLOAT = "FLOAT"
    TOTALORDER = "TOTALORDER"
    SIGNED = "SIGNED"
    UNSIGNED = "UNSIGNED"


class CustomCallSchedule(enum.StrEnum):
    """When a custom call is scheduled."""

    SCHEDULE_NONE = "SCHEDULE_NONE"
    SCHEDULE_LATEST = "SCHEDULE_LATEST"
    SCHEDULE_EARLIEST = "SCHEDULE_EARLIEST"


class CustomCallApiVersion(enum.StrEnum):
    """How a custom call's function in C is called."""

    API_VERSION_ORIGINAL = "API_VERSION_ORIGINAL"
    API_VERSION_STATUS_RETURNING = "API_VERSION_STATUS_RETURNING"
    API_VERSION_STATUS_RETURNING_UNIFIED = "API_VERSION_STATUS_RETURNING_UNIFIED"
    API_VERSION_TYPED_FFI = "API_VERSION_TYPED_FFI"


class Precision(enum.StrEnum):
    """How precisely an operand of a product counts; a hint."""

    DEFAULT = "default"
    HIGH = "high"
    HIGHEST = "highest"
    PACKED_NIBBLE = "packed_nibble"


@dataclasses.dataclass(frozen=True, slots=True)
class PrecisionConfig:
    """A precision for each operand of a product: what stands for it is also a sequence of words."""

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
    """How one dimension is padded: at its edges (negative: cropped), and between neighbours."""

    edge_padding_low: int = 0
    edge_padding_high: int = 0
    interior_padding: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class PaddingConfig:
    """How each dimension is padded; what stands for it is also a sequence of (low, high, interior)."""

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
    """The ids of the participants that exchange with one another; what stands for it is also a sequence of ids."""

    replica_ids: Sequence[int] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "replica_ids", integers_of(self.replica_ids))

    def __iter__(self) -> Iterator[int]:
        return iter(self.replica_ids)

    def __len__(self) -> int:
        return len(self.replica_ids)
