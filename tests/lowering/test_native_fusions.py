"""Fusions of blocks as native code: the same bits as torch's calls, whichever of the two runs."""

from __future__ import annotations

import operator
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx import Graph, GraphModule, Node

from xla_torch.codegen.compiled import OPTIONS, MachineCode, is_available
from xla_torch.core import tuning
from xla_torch.kernels import convert, elementwise, integers
from xla_torch.kernels.native_fusions import NativeFusion
from xla_torch.kernels.native_fusions import fusion as run_piece
from xla_torch.passes.native_fusions import form_fusions

needs_compiler = pytest.mark.skipif(not is_available(), reason="there is no C compiler")

FLOATS = [torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
HALVES = [torch.bfloat16, torch.float16]
NUMBERS = [*HALVES, *FLOATS, *INTEGERS]
COMPLEX = [torch.complex64, torch.complex128]


@pytest.fixture(autouse=True)
def at_once(tmp_path: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "NATIVE_AFTER", 0.0)
        patch.setattr(tuning, "BUNDLED_UP_TO", 0)  # these small arrays stand for large ones
        patch.setenv("XLA_TORCH_CACHE", str(tmp_path))
        yield


Call = tuple[Any, tuple[Any, ...]]
"""What is called, or the name of a method, with operands: names of inputs, and numbers."""

TABLE: list[tuple[list[Call], list[torch.dtype]]] = [
    ([(f, ("x", "y")) for f in (operator.add, operator.sub, operator.mul, torch.add, torch.maximum, torch.minimum)], NUMBERS),
    ([(f, ("x", "s")) for f in (operator.add, torch.mul, torch.maximum)] + [(operator.sub, (3, "x"))], NUMBERS),
    ([(f, ("x",)) for f in (operator.neg, torch.abs, torch.square)] + [(torch.add, ("x", 1))], NUMBERS[:-1]),
    ([(torch.clamp_min, ("x", 1)), (torch.clamp_max, ("x", 2)), (torch.where, ("c", "x", 1)), (torch.where, ("c", "x", "y"))],
     NUMBERS),
    ([(f, ("x",)) for f in (torch.sqrt, torch.reciprocal, torch.floor, torch.ceil, torch.round, torch.rsqrt)],
     [*HALVES, *FLOATS]),
    ([(torch.div, ("x", "y")), (operator.truediv, ("x", 3.0)), (operator.mul, ("x", 0.1)), (elementwise.quotient, (0.3, "x"))],
     FLOATS),
    ([(torch.div, ("x", "y")), (operator.truediv, ("x", 3.0)), (operator.mul, ("x", 0.75)), (elementwise.quotient, (0.375, "x"))],
     HALVES),
    ([(f, ("x", "y")) for f in (operator.and_, operator.or_, operator.xor, torch.bitwise_xor)], [*INTEGERS, torch.bool]),
    ([(operator.lshift, ("x", 3)), (operator.rshift, ("x", 5)), (operator.lshift, ("x", 0)), (torch.bitwise_not, ("x",))],
     INTEGERS),
    ([(f, ("x", by)) for f in (integers.divide_signed, integers.remainder_signed) for by in ("y", 7, -1, 0)]
     + [(torch.sign, ("x",))], INTEGERS[:-1]),
    *(([(f, ("x", by, bits)) for f in (integers.divide_unsigned, integers.remainder_unsigned) for by in ("y", 7, 1)], [dtype])
      for dtype, bits in ((torch.uint8, 4), (torch.uint8, 8), (torch.int16, 16), (torch.int32, 32), (torch.int64, 64))),
    ([(torch.logical_and, ("x", "y")), (torch.logical_or, ("x", "y")), (torch.logical_not, ("x",)), (torch.bitwise_not, ("x",))],
     [torch.bool]),
    ([(f, ("x", "y")) for f in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)], NUMBERS),
    ([(f, ("x", 1)) for f in (operator.lt, operator.ge, operator.eq)] + [(operator.gt, ("x", "s"))], NUMBERS),
    ([(torch.clamp, ("x", low, high)) for low, high in ((-1, 2), (2, -1), (1, 1), (-2, 7))],
     [*HALVES, *FLOATS, torch.int8, torch.int32]),
    ([(convert.reduce_precision, ("x", e, m)) for e in (1, 5, 8, 11) for m in (0, 7, 22, 23, 51, 52)], FLOATS),
    ([(torch.isfinite, ("x",)),
      *((convert.float_to_integer, ("x", torch.iinfo(d).min, torch.iinfo(d).max, d)) for d in INTEGERS)], [*HALVES, *FLOATS]),
    ([("to", ("x", d)) for d in (torch.float32, torch.float64, torch.bool)] + [(operator.ne, ("x", 0))], NUMBERS),
    ([("to", ("x", d)) for d in HALVES] * 2, [*HALVES, torch.float32, torch.int8, torch.int16, torch.uint8, torch.bool]),
    ([("to", ("x", d)) for d in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)], [*INTEGERS, torch.bool]),
    *(([(count, ("x", bits)) for count in (integers.population_count, integers.count_leading_zeros)] * 2, [dtype])
      for dtype, bits in ((torch.int8, 4), (torch.uint8, 4), *((d, torch.iinfo(d).bits) for d in INTEGERS))),
    ([(f, ("x", by)) for f in (elementwise.complex_add, elementwise.complex_subtract) for by in ("y", "s", 2.0, 1 - 2j)]
     + [(elementwise.complex_negate, ("x",)), (elementwise.complex_subtract, (3j, "x"))], COMPLEX),
    ([(operator.mul, ("x", "y")), (torch.where, ("c", "x", "y")), (torch.where, ("c", "x", "s")), (operator.eq, ("x", "y")),
      (operator.ne, ("x", 1j)), ("to", ("x", torch.complex64)), ("to", ("x", torch.complex128)), ("to", ("x", torch.bool))],
     COMPLEX),
    ([(f, ("x",)) for f in (torch.real, torch.imag)] * 2, COMPLEX),
    ([(torch.complex, ("x", "y")), ("to", ("x", torch.complex64)), ("to", ("x", torch.complex128)), (torch.square, ("x",))],
     FLOATS),
]


def values(dtype: torch.dtype, count: int, seed: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    if dtype is torch.bool:
        return torch.from_numpy(rng.random(count) > 0.5)
    if dtype.is_complex:
        return torch.complex(*(values(dtype.to_real(), count, seed + k) for k in (0, 5)))
    if dtype.is_floating_point:
        drawn = torch.from_numpy(rng.normal(size=count) * 3).to(dtype)
        few = 8 if count < 100 else None
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, 2.5, -1.5, 127.9, -300, 3e9, -1e19, 9.3e18][:few]
        drawn[:len(special)] = torch.tensor(special, dtype=dtype).roll(seed)
        return drawn
    limits = torch.iinfo(dtype)
    drawn = torch.from_numpy(rng.integers(limits.min, limits.max, count, dtype=np.int64, endpoint=True)).to(dtype)
    drawn[:3] = torch.tensor([limits.min, limits.max, 0], dtype=dtype).roll(seed)
    return drawn


def inputs_of(dtype: torch.dtype, count: int) -> dict[str, torch.Tensor]:
    return {"x": values(dtype, count, 0), "y": values(dtype, count, 1), "s": values(dtype, 9, 2)[8],
            "c": values(torch.bool, count, 3)}


def call_by_call(calls: list[Call], inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    made = []
    for target, names in calls:
        operands: list[Any] = [inputs.get(n, n) if isinstance(n, str) else n for n in names]
        made.append(operands[0].to(operands[1]) if target == "to" else target(*operands))
    return made


def block(calls: list[Call], inputs: dict[str, torch.Tensor]) -> GraphModule:
    """A module whose results are those of the calls, gathered in fusions."""
    graph, root, results = Graph(), torch.nn.Module(), []
    inside = {name: graph.placeholder(name) for name in inputs}
    for name, node in inside.items():
        node.meta["array"] = (tuple(inputs[name].shape), inputs[name].dtype)
    for (target, names), made in zip(calls, call_by_call(calls, inputs), strict=True):
        operands = tuple(inside.get(n, n) if isinstance(n, str) else n for n in names)
        node = graph.call_method(target, operands) if target == "to" else graph.call_function(target, operands)
        node.meta["array"] = (tuple(made.shape), made.dtype)
        results.append(node)
    graph.output(tuple(results))
    form_fusions(root, graph)
    return GraphModule(root, graph)


def assert_same_bits(got: torch.Tensor, want: torch.Tensor, call: Call) -> None:
    """But for what torch leaves open itself: which of two zeros is the larger one, which its own loops answer differently, and
    how a root is rounded, which depends on the library that it was built with."""
    assert got.dtype == want.dtype
    if call[0] in (torch.maximum, torch.minimum):
        got, want = got + 0, want + 0
    if call[0] in (torch.sqrt, torch.rsqrt):
        torch.testing.assert_close(got, want, rtol=torch.finfo(got.dtype).eps, atol=0, equal_nan=True)
        return
    if got.dtype.is_complex:
        got, want = torch.view_as_real(got).contiguous(), torch.view_as_real(want).contiguous()
    if not got.dtype.is_floating_point:
        assert torch.equal(got, want), call
        return
    assert torch.equal(got.isnan(), want.isnan()), call
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[got.dtype.itemsize]
    assert torch.equal(got.nan_to_num().view(bits), want.nan_to_num().view(bits)), call


@needs_compiler
@pytest.mark.parametrize("calls", [pytest.param(calls, id=str(k)) for k, (calls, _) in enumerate(TABLE)])
def test_pieces_compute_torch_s_bits(calls: list[Call]) -> None:
    for dtype in next(dtypes for c, dtypes in TABLE if c is calls):
        inputs = inputs_of(dtype, 1000)
        module = block(calls, inputs)
        assert {n.target for n in module.graph.nodes if n.op == "call_function"} == {run_piece, operator.getitem}
        for call, got, want in zip(calls, module(*inputs.values()), call_by_call(calls, inputs), strict=True):
            assert_same_bits(got, want, call)
        (native,) = [m for m in module.modules() if isinstance(m, NativeFusion)]
        assert native.seconds == 0


ROTATION = [(operator.lshift, ("x", 13)), (operator.rshift, ("x", 19)), (operator.and_, (1, (1 << 13) - 1)),
            (operator.or_, (0, 2)), (operator.add, ("y", 3)), (operator.xor, (3, 4))]
"""Calls that read inputs and the results of calls before them: a round of ThreeFry."""

DROPOUT = [(operator.gt, ("x", 0.0)), (torch.div, ("y", 0.9)), (torch.where, ("c", 1, 0.0)), (torch.where, (0, 2, 0.0))]
"""A mask from memory, and one that is made."""


@pytest.mark.skipif(not shutil.which("gcc"), reason="what is asked is GCC's report")
@pytest.mark.parametrize(("calls", "dtype"), [(ROTATION, torch.int32), (DROPOUT, torch.float32)], ids=["rotation", "dropout"])
def test_gcc_makes_vectors(calls: list[tuple[Any, tuple[Any, ...]]], dtype: torch.dtype, tmp_path: Path) -> None:
    graph, root = Graph(), torch.nn.Module()
    nodes: dict[str, Node] = {name: graph.placeholder(name) for name in "xyc"}
    for name, node in nodes.items():
        node.meta["array"] = ((1 << 16,), torch.bool if name == "c" else dtype)
    made: list[Node] = []
    for target, names in calls:
        operands: list[Any] = [made[n] if type(n) is int and n < len(made) else nodes.get(str(n), n) for n in names]
        made.append(graph.call_function(target, tuple(operands)))
        made[-1].meta["array"] = ((1 << 16,), torch.bool if target is operator.gt else dtype)
    graph.output((made[-1], *([made[0]] if calls is DROPOUT else [])))
    form_fusions(root, graph)
    (native,) = [m for m in root.modules() if isinstance(m, NativeFusion)]
    found = subprocess.run(["gcc", *OPTIONS, "-mavx2", "-fopt-info-vec", "-", "-o", str(tmp_path / "fusion.so")], check=True,
                           input=native.text, text=True, capture_output=True)
    assert "loop vectorized" in found.stdout + found.stderr, native.text


@needs_compiler
@pytest.mark.parametrize(("spoil", "is_native"), [
    (lambda x: x, True), (lambda x: x.repeat_interleave(2)[::2], True),
    (lambda x: torch.nn.Parameter(x, requires_grad=False), True),
    (lambda x: x.clone().requires_grad_(x.is_floating_point()), False),
])
@pytest.mark.parametrize(("count", "threads"), [(100_000, 3), (7, 1)])
def test_whoever_computes_a_piece(spoil: Callable[[torch.Tensor], torch.Tensor], is_native: bool, count: int,
                                  threads: int) -> None:
    calls, _ = TABLE[0]
    inputs = inputs_of(torch.float32, max(count, 9))
    module, before = block(calls, inputs), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = module(*map(spoil, inputs.values()))
    finally:
        torch.set_num_threads(before)
    for call, got, want in zip(calls, found, call_by_call(calls, inputs), strict=True):
        assert_same_bits(got.detach(), want, call)
    (native,) = [m for m in module.modules() if isinstance(m, NativeFusion)]
    assert (native.seconds == 0) == is_native


@pytest.mark.parametrize("calls", [
    [(operator.add, ("x", "y"))] * 3,
    [(torch.sin, ("x",)), (torch.cos, ("x",)), (torch.pow, ("x", 3)), (torch.add, ("x", 1j))],
    [("to", ("x", torch.int32)), ("to", ("i", torch.bfloat16)), (operator.lshift, ("i", 32)), (operator.lshift, ("i", "i"))],
    [(operator.mul, ("h", 0.1)), (elementwise.quotient, (0.3, "h")), (operator.add, ("h", "x")), (torch.sum, ("h", (0,)))],
])
def test_what_torch_computes(calls: list[Call]) -> None:
    inputs = inputs_of(torch.float32, 1000)
    inputs |= {"i": values(torch.int32, 1000, 4) & 15, "h": values(torch.bfloat16, 1000, 5)}
    module = block(calls, inputs)
    assert not any(isinstance(m, NativeFusion) for m in module.modules())


@needs_compiler
def test_a_select_alone_is_a_piece() -> None:
    """Torch's own goes by the mask an element at a time."""
    calls: list[Call] = [(torch.where, ("c", "x", 0.0))]
    inputs = inputs_of(torch.float32, 1000)
    module = block(calls, inputs)
    assert any(isinstance(m, NativeFusion) for m in module.modules())
    (got,), (want,) = module(*inputs.values()), call_by_call(calls, inputs)
    assert_same_bits(got, want, calls[0])


def test_a_piece_that_does_not_compile_warns_and_falls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str, options: tuple[str, ...]) -> MachineCode:
        return MachineCode(text, (sys.executable, "-c", "raise SystemExit('no compiler today')"), tmp_path)

    monkeypatch.setattr("xla_torch.kernels.native.machine_code", broken)
    calls, _ = TABLE[0]
    inputs = inputs_of(torch.float32, 1000)
    module = block(calls, inputs)
    with pytest.warns(RuntimeWarning, match="no compiler today"):
        first = module(*inputs.values())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = module(*inputs.values())
    for call, one, other, want in zip(calls, first, second, call_by_call(calls, inputs), strict=True):
        assert_same_bits(one, want, call)
        assert_same_bits(other, want, call)
