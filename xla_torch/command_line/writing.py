"""What makes other programs, or other files, of a program: `grad`, `convert`, `partition`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..api.gradients import grad as gradient
from ..api.gradients import value_and_grad
from ..api.partition import partition as partitioned
from ..core import progress
from ..core.errors import InvalidArgument
from ..runtime.computation import XlaComputation
from ..runtime.polymorphic import of_unknown_sizes
from .commands import FORMS
from .inputs import Sizes, program_of
from .messages import Message


def grad(file: Path, argnums: tuple[int, ...] | None, value: bool, out: Path | None, sizes: Sizes) -> Message:
    """The gradient program."""
    computation = program_of(file, sizes)
    every = tuple(n for n, shape in enumerate(computation.program_shape.parameters) if shape.element_type.is_differentiable)
    with progress.doing("differentiating"):
        found = (value_and_grad if value else gradient)(computation, argnums=every if argnums is None else argnums)
        unknown = of_unknown_sizes(found)
        text = found.to_hlo_text() if unknown is None else unknown.to_hlo_text(sizes)
    if out is None:
        return Message(lambda: text, lambda: {"hlo": text})
    out.write_text(text)
    return _written(out)


def _written(out: Path) -> Message:
    return Message(lambda: "", lambda: {"written": str(out), "bytes": out.stat().st_size})


def _whole(text_of: Callable[[XlaComputation], str | bytes]) -> Callable[[XlaComputation, Path], None]:
    def write(computation: XlaComputation, out: Path) -> None:
        text = text_of(computation)
        out.write_bytes(text if isinstance(text, bytes) else text.encode())

    return write


_WRITERS: dict[str, Callable[[XlaComputation, Path], None]] = dict(zip(FORMS, (
    _whole(XlaComputation.to_hlo_text), _whole(XlaComputation.to_hlo_text), _whole(XlaComputation.to_stablehlo),
    _whole(XlaComputation.to_stablehlo_bytecode), _whole(XlaComputation.to_hlo_proto), _whole(XlaComputation.to_html),
    _whole(XlaComputation.to_dot), lambda computation, out: computation.to_pt2(out),
    lambda computation, out: computation.to_onnx(out)), strict=True))


def convert(file: Path, out: Path, sizes: Sizes) -> Message:
    """The program in another form."""
    write = _writer(out, "convert")
    computation = program_of(file, sizes)
    unknown = of_unknown_sizes(computation)
    with progress.doing(f"writing {out.name}"):
        write(computation if unknown is None else unknown.at(sizes), out)
    return _written(out)


def partition(file: Path, mesh: dict[str, int] | None, shard: Sequence[tuple[str, Any]], result: Any, out: Path) -> Message:
    """The program of one participant."""
    write = _writer(out, "partition")
    with progress.doing("partitioning"):
        write(partitioned(file, mesh, dict(shard), result), out)
    return _written(out)


def _writer(out: Path, subject: str) -> Callable[[XlaComputation, Path], None]:
    write = _WRITERS.get(out.suffix)
    if write is None:
        raise InvalidArgument("unknown output format", subject=subject, got=out, expected=", ".join(FORMS))
    return write
