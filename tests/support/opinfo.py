"""torch's own database of calls of its operators (OpInfo), and what becomes of them by way of `from_torch`.

What is known of each operator and dtype stands in `tests/data/opinfo.txt`, a line each: nothing where its calls give what torch
gives, values and gradients, and otherwise why not. `make opinfo` writes the file anew.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

import xla_torch
from xla_torch.errors import XlaError

SAMPLES = 4
"""How many calls of an operator are compared, spread over those of the database."""

FILE = Path(__file__).parents[1] / "data" / "opinfo.txt"
DTYPES = (torch.float32, torch.complex64)
RTOL, ATOL = 2e-3, 2e-4


@functools.cache
def database() -> dict[str, Any]:
    """The operators by name, those apart whose results nobody has defined, which run on other devices only, or which read what
    lies in memory beside their argument."""
    from torch.testing._internal.common_methods_invocations import op_db

    named = {f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name: op for op in op_db}
    return {name: op for name, op in named.items()
            if "empty" not in name and not name.startswith("jiterator") and name != "as_strided.partial_views"}


def questions() -> list[tuple[str, str]]:
    """Each operator with each dtype that it has."""
    return [(name, str(dtype).removeprefix("torch.")) for name, op in sorted(database().items()) for dtype in DTYPES
            if op.supports_dtype(dtype, "cpu")]


def known() -> dict[tuple[str, str], str]:
    """What the file says of each."""
    lines = [line.partition(":") for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {(name, dtype): reason.strip() for messages, _, reason in lines for name, dtype in [messages.split()]}


def written(found: dict[tuple[str, str], str]) -> str:
    """The text of the file."""
    good = sum(not reason for reason in found.values())
    head = f"# torch {torch.__version__.partition('+')[0]}: {good} of {len(found)} give what torch gives"
    lines = [f"{name} {dtype}: {reason}".removesuffix(": ") for (name, dtype), reason in sorted(found.items())]
    return "\n".join([head, *lines, ""])


def cases(op: Any, dtype: torch.dtype) -> Iterator[tuple[Callable[..., Any], list[torch.Tensor]]]:
    """Calls of an operator: a function of tensors alone, and these. What is arbitrary of a result (the sign of an
    eigenvector) is taken from it, as the database says."""
    torch.manual_seed(0)
    samples = list(op.sample_inputs("cpu", dtype))
    for sample in samples[::max(len(samples) // SAMPLES, 1)][:SAMPLES]:
        leaves, tree = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        yield _call(op, sample, leaves, tree, places), [leaves[k].detach().clone() for k in places]


def _call(op: Any, sample: Any, leaves: list[Any], tree: Any, places: list[int]) -> Callable[..., Any]:
    def call(*tensors: torch.Tensor) -> list[torch.Tensor]:
        filled = list(leaves)
        for k, tensor in zip(places, tensors, strict=True):
            filled[k] = tensor
        given, args, kwargs = pytree.tree_unflatten(filled, tree)
        found = sample.output_process_fn_grad(op.op(given, *args, **kwargs))
        return [leaf for leaf in pytree.tree_leaves(found) if leaf is not None]

    return call


def fault(name: str, dtype: str) -> str:
    """Why an operator's calls do not all give what torch gives, values and gradients; empty where they do."""
    op = database()[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call, tensors in cases(op, getattr(torch, dtype)):
            found = _fault(call, tensors, op.supports_autograd)
            if found:
                return found
    return ""


def _fault(call: Callable[..., Any], tensors: list[torch.Tensor], differentiates: bool) -> str:
    expected = _values(call, tensors, 0)
    if not all(isinstance(leaf, torch.Tensor) for leaf in expected):
        return "out of scope: it gives what is no tensor"
    if not _equal(_values(call, tensors, 1), expected):
        return "out of scope: it draws"
    try:
        ours = xla_torch.from_torch(call, *tensors)
        if "rng_state" in (ours.weights or {}):  # the database sets torch's own seed
            return "out of scope: it draws"
        found = ours(*tensors)
    except XlaError as error:
        return f"refused: {str(error).splitlines()[0].removeprefix('from_torch: ')}"
    except Exception as error:  # what torch.export raises passes through
        return f"torch.export: {type(error).__name__}"
    if not _equal(found, expected):
        return "other values"
    if not differentiates:
        return ""
    active = tensors
    try:
        wanted = _gradients(call, tensors, active)
    except RuntimeError as error:
        if "not differentiable with respect to" not in str(error):
            raise
        active = [tensor for tensor in tensors if _is_differentiable(call, tensors, tensor)]
        wanted = _gradients(call, tensors, active)
    try:
        own = _gradients(ours, tensors, active)
    except Exception as error:
        return f"no gradients: {type(error).__name__}: {str(error).splitlines()[0]}"
    return "" if _equal(own, wanted) else f"other gradients: {_whose(call, tensors, active, own, wanted)}"


def _whose(call: Callable[..., Any], tensors: list[torch.Tensor], active: list[torch.Tensor], own: list[torch.Tensor],
           wanted: list[torch.Tensor]) -> str:
    """Which of two gradients is that of the values. torch's of a Hermitian matrix goes to both triangles, also where the operator
    reads one."""
    if any(w.isnan().logical_and(~g.isnan()).any() for g, w in zip(own, wanted, strict=True)):
        return "torch has NaN where these are numbers"
    quotients = [_quotients(call, tensors, one) for one in active]
    ours, torchs = (sum(torch.dist(g, q).item() for g, q in zip(given, quotients, strict=True)) for given in (own, wanted))
    if ours * 100 < torchs:
        return "these are the difference quotients, torch's are not"
    return "torch's are the difference quotients" if torchs * 100 < ours else "neither are the difference quotients"


def _quotients(call: Callable[..., Any], tensors: list[torch.Tensor], one: torch.Tensor, step: float = 1e-6) -> torch.Tensor:
    """The gradient of `_gradients` with respect to one of the tensors, by differences in double precision."""
    double = {torch.float32: torch.float64, torch.complex64: torch.complex128}
    wide = [t.to(double.get(t.dtype, t.dtype)) for t in tensors]
    place = next(k for k, t in enumerate(tensors) if t is one)
    found = torch.zeros_like(wide[place]).flatten()
    for k in range(found.numel()):
        for unit in (1, 1j) if found.is_complex() else (1,):
            ends = [_by_cotangents(call, [*wide[:place], _moved(wide[place], k, sign * step * unit), *wide[place + 1:]])
                    for sign in (1, -1)]
            found[k] += unit * (ends[0] - ends[1]) / (2 * step)
    return found.reshape(one.shape)


def _moved(x: torch.Tensor, k: int, by: complex) -> torch.Tensor:
    return x.flatten().index_add(0, torch.tensor([k]), torch.tensor([by], dtype=x.dtype)).reshape(x.shape)


def _by_cotangents(call: Callable[..., Any], tensors: list[torch.Tensor]) -> float:
    results = [r for r in call(*(t.clone() for t in tensors)) if r.is_floating_point() or r.is_complex()]
    return sum((r * torch.linspace(-1, 1, r.numel()).reshape(r.shape)).sum().real.item() for r in results)


def _values(call: Callable[..., Any], tensors: list[torch.Tensor], seed: int) -> list[Any]:
    torch.manual_seed(seed)
    return call(*(t.clone() for t in tensors))


def _is_differentiable(call: Callable[..., Any], tensors: list[torch.Tensor], one: torch.Tensor) -> bool:
    """Whether torch has derivatives with respect to one of the tensors."""
    try:
        _gradients(call, tensors, [one])
    except RuntimeError:
        return False
    return True


def _gradients(call: Callable[..., Any], tensors: list[torch.Tensor], of: list[torch.Tensor]) -> list[torch.Tensor]:
    """The gradients of some tensors by a fixed cotangent for each result that has one; 0 where there is none."""
    chosen = {id(t) for t in of}
    given = [t.clone().requires_grad_(id(t) in chosen and (t.dtype.is_floating_point or t.dtype.is_complex)) for t in tensors]
    active = [t for t in given if t.requires_grad]
    results = [r for r in call(*given) if r.requires_grad]
    cotangents = [torch.linspace(-1, 1, r.numel()).reshape(r.shape).to(r.dtype) for r in results]
    found = torch.autograd.grad(results, active, cotangents, allow_unused=True) if results else [None] * len(active)
    return [torch.zeros_like(t) if g is None else g for g, t in zip(found, active, strict=True)]


def _equal(found: Any, expected: Any) -> bool:
    try:
        torch.testing.assert_close(list(found), list(expected), equal_nan=True, rtol=RTOL, atol=ATOL)
    except AssertionError:
        return False
    return True


if __name__ == "__main__":
    FILE.write_text(written({question: fault(*question) for question in questions()}), encoding="utf-8")
