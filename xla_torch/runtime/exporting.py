"""Programs as `torch.export` has them: graphs of torch's own operators, which other tools of torch's read, and ONNX of these."""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import torch

from ..core.errors import MissingDependency, UnsupportedError
from ..core.shape import Shape
from ..hlo.tree import mapped
from ..storage.dtypes import torch_dtype
from ..storage.torch_private import quietly, unknown_to_onnx

Out = str | os.PathLike[str] | IO[bytes]


class _Calling(torch.nn.Module):
    """A module that is one call."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self._function = function

    def forward(self, *arguments: Any, **named: Any) -> Any:
        return self._function(*arguments, **named)


def _exported(function: Callable[..., Any], arguments: Sequence[Any], named: dict[str, Any]) -> torch.export.ExportedProgram:
    return quietly(lambda: torch.export.export(_Calling(function), tuple(arguments), named, strict=False))


def save_exported(function: Callable[..., Any], arguments: Sequence[Any], named: dict[str, Any], out: Out) -> None:
    """Write what `torch.export.export` makes of a call on arguments like these, which refuses gradients."""
    with torch.enable_grad():
        exported = _exported(function, arguments, named)
    with _whole(out) as file:
        quietly(lambda: torch.export.save(exported, file))


def save_onnx(function: Callable[..., Any], arguments: Sequence[torch.Tensor], names: Sequence[str], results: Sequence[Shape],
              subject: str, out: Out) -> None:
    """Write what `torch.onnx.export` makes of a call on arguments like these, which ONNX's checker has nothing against. Raises
    MissingDependency without onnx, UnsupportedError with the names of all operators that ONNX has nothing for."""
    onnx = _onnx()
    with torch.no_grad():  # ONNX has no gradients, which the operator that refuses them is for
        exported = _exported(function, arguments, {})
    others = list(_others_in_onnx(exported))
    try:
        if others:
            raise torch.onnx.errors.OnnxExporterError(", ".join(others))
        outputs = [f"out{k}" for k in range(len(results))]
        made = quietly(lambda: torch.onnx.export(exported, dynamo=True, verbose=False, input_names=names, output_names=outputs))
        _require_types(made.model.graph.outputs, results)
        with _whole(out) as file:
            made.save(file)
            onnx.checker.check_model(file if isinstance(file, str) else onnx.load_model_from_string(file.getvalue()),
                                     full_check=True)
    except (torch.onnx.errors.OnnxExporterError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise UnsupportedError("ONNX has nothing for what the program is in torch", subject=subject,
                               got=", ".join([*unknown_to_onnx(exported), *others]) or _innermost(error),
                               expected="operators that torch.onnx translates for these element types",
                               hint="use to_pt2(path) to write a graph of torch's operators") from error


def _others_in_onnx(exported: torch.export.ExportedProgram) -> Iterator[str]:
    """What torch.onnx translates to something else: powers of integers, which run as powers of floats and do not wrap around, and
    complex arguments and results, which become pairs of numbers."""
    nodes = [node for module in exported.graph_module.modules() if isinstance(module, torch.fx.GraphModule)
             for node in module.graph.nodes]
    values = [(node, node.meta["val"]) for node in nodes if isinstance(node.meta.get("val"), torch.Tensor)]
    if any("aten.pow" in str(node.target) and not (value.is_floating_point() or value.is_complex()) for node, value in values):
        yield "aten.pow of integers"
    ends = {id(node) for node in (*exported.graph.find_nodes(op="placeholder"), *exported.graph.output_node().all_input_nodes)}
    if any(id(node) in ends and value.is_complex() for node, value in values):
        yield "complex arguments or results"


def _require_types(outputs: Sequence[Any], results: Sequence[Shape]) -> None:
    """Raise OnnxExporterError for a result that torch.onnx gives another type: it computes some ops on narrow floats in F32."""
    for output, shape in zip(outputs, results, strict=True):
        found, expected = f"torch.{output.dtype.numpy()}", torch_dtype(shape.element_type)
        if found != str(expected):
            raise torch.onnx.errors.OnnxExporterError(f"{output.name} would be {found} in the place of {expected}")


def _onnx() -> Any:
    try:
        importlib.import_module("onnxscript")
        return importlib.import_module("onnx")
    except ImportError as error:
        raise MissingDependency("writing ONNX needs onnx and onnxscript", got=error, expected="both installed",
                                hint="pip install 'xla_torch[onnx]'") from error


def _innermost(error: BaseException) -> str:
    """What began it, in its first line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


@contextlib.contextmanager
def _whole(out: Out) -> Iterator[Any]:
    """Where to write: the file in the place of `out`, and all that is written beside it, come to their places when they are
    whole; after an error nothing has changed."""
    if not isinstance(out, (str, os.PathLike)):
        yield out
        return
    path = Path(out)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        written = Path(folder, path.name)
        yield str(written)
        for file in sorted(Path(folder).iterdir(), key=lambda file: file == written):
            os.replace(file, path.parent / file.name)


def zeros(shape: Shape) -> Any:
    """An argument of this shape."""
    return mapped(lambda own: torch.zeros(own.dimensions, dtype=torch_dtype(own.element_type)), shape)
