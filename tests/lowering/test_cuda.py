"""Every op runs on CUDA: results, and all that happens on the way, stay on the device, and CUDA has the kernels.

Where there is no GPU, programs run on fake tensors (`fake_device.py`), which tells all but the values; where there is one,
the same rows are compared with the CPU. What is done differently on CUDA is a function that runs on the CPU as well, where it
is compared with what is done there.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.agreement import ALIKE, dtype_of, element_type, special_values
from support.cuda_rows import ROWS, Row
from support.fake_device import CUDA, DeviceFault, fake_cuda, run_on_fake_cuda
from support.stored_programs import DATA, SHARED
from xla_torch.core import tuning
from xla_torch.errors import DifferentiationError
from xla_torch.hlo.schema import OPS
from xla_torch.hlo.tree import from_arrays
from xla_torch.kernels import contraction, convolution, linalg, sorting
from xla_torch.runtime.automatic_graphs import Automatic
from xla_torch.runtime.cuda_graphs import captured
from xla_torch.runtime.graphs import does_more
from xla_torch.runtime.program import SplitPlan
from xla_torch.runtime.static import StaticComputation, numpy_from_tensor, tensor_from_numpy
from xla_torch.storage import torch_private

ALONE = [row for row in ROWS if not row.feeds]

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="what is to be on a fake device would be on the real one")
with_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def programs(row: Row, groups: Sequence[Sequence[str]] | None = None) -> list[tuple[str, xla_torch.XlaComputation]]:
    """The row's program for each element type that its op takes, or for the first of each group."""
    found = []
    for group in groups or [(kind,) for kind in row.kinds]:
        fitting = ((kind, program) for kind in group if kind in row.kinds and (program := row.program(kind)) is not None)
        found.extend(itertools.islice(fitting, 1))
    assert found, f"no element type fits {row.text(row.kinds[0])}"
    return found


# ------------------------------------------------------------------------------------------- without a GPU


def test_every_opcode_has_a_row() -> None:
    """An opcode is found in the programs, as some stand in others' rows only."""
    written = " ".join(row.lines for row in ROWS) + " ".join(row.opcode for row in ROWS)
    assert sorted(o for o in OPS if o not in written) == []


@without_gpu
@pytest.mark.parametrize("groups", [pytest.param(ALIKE, id="some types"), pytest.param(None, id="all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("row", ALONE, ids=str)
def test_rows_stay_on_the_device(row: Row, groups: Sequence[Sequence[str]] | None) -> None:
    """With every element type that the op takes. Programs wait for the device where the row says why, and only there."""
    waits = {kind: run_on_fake_cuda(program) > 0 for kind, program in programs(row, groups)}
    assert waits == dict.fromkeys(waits, bool(row.why))




def differentiated() -> list[Any]:
    """Rows and types; of each opcode the first row is in the fast tests."""
    found, seen = [], set()
    for row in ALONE:
        for kind in sorted({"f32", "c64"} & {*row.kinds}, reverse=True) if row.opcode != "custom-call" else ():
            found.append(pytest.param(row, kind, id=f"{row} {kind}", marks=[pytest.mark.slow] if row.opcode in seen else []))
            seen.add(row.opcode)
    return found


@without_gpu
@pytest.mark.parametrize(("row", "kind"), differentiated())
def test_gradients_stay_on_the_device(row: Row, kind: str) -> None:
    """As programs: `vjp`, and the two halves that `loss.backward()` runs. (Custom calls are differentiated by autograd.)"""
    program = row.program(kind)
    if program is None:
        return
    inputs = [s for p in program.program_shape.parameters for s in p.leaves()]
    needs = tuple(s.element_type.is_differentiable for s in inputs)
    if not any(needs) or not all(s.is_static for s in (*inputs, *program.program_shape.result.leaves())):
        return  # gradients of sizes that are data read these
    try:
        plan = SplitPlan(program.program, needs, differentiated_again=False)
        backward = plan.backward(tuple(ct is not None for ct in plan.cotangents), tuple(plan.wanted))
        halves = [xla_torch.vjp(program), *map(StaticComputation, (plan.forward, backward))]
    except DifferentiationError:
        return
    for half in halves:
        waits = run_on_fake_cuda(half)
        assert row.why or not waits


STORED = [(DATA, "*"), (SHARED, "programs/*"), *((SHARED, f"conformance/cases/{name}/*")
                                                 for name in ("interpret", "testdata", "dynamic"))]


@without_gpu
@pytest.mark.slow
@pytest.mark.parametrize(("root", "pattern"), [(root, pattern) for root, pattern in STORED if root.exists()])
def test_stored_programs_stay_on_the_device(root: Path, pattern: str) -> None:
    faults = {}
    for path in sorted(root.glob(f"{pattern}/module.hlo")):
        program = xla_torch.load(path)
        try:
            waits = run_on_fake_cuda(program)
        except (DeviceFault, RuntimeError) as error:
            faults[path.parent.name] = str(error)
            continue
        if waits and "while(" not in path.read_text():
            faults[path.parent.name] = f"waits {waits} times"
    assert faults == {}


def _subscript(x: torch.Tensor) -> Any:
    return x[torch.tensor([0, 1])]


FAULTS: list[tuple[Callable[[torch.Tensor], Any], str]] = [
    (lambda x: x.cpu(), "to the host"),
    (lambda x: torch.ones(2) + 1, "on the host"),
    (lambda x: x + torch.ones(3), "on the host"),
    (lambda x: x + torch.tensor([1.0, 2.0, 3.0], device=CUDA), "host"),
    (_subscript, "host"),
    (lambda x: x.to(torch.int32) @ x.to(torch.int32), "no aten.mm"),
    (lambda x: x / 3.0, "rounds twice"),
    (lambda x: torch.conv1d(x, x[:, :, None]), "TF32"),
    (lambda x: torch.fft.rfft(x.half()), "no aten._fft"),
    (torch.unique, "waits"),
    (lambda x: x.to(torch.float8_e5m2) == 1, "no aten.eq"),
]


@without_gpu
@pytest.mark.parametrize(("function", "message"), FAULTS)
def test_faults_are_found(function: Callable[[torch.Tensor], Any], message: str) -> None:
    """What the tests above rely on."""
    with fake_cuda() as watch:
        x = torch.empty(3, 3, device=CUDA)
        watch.running = True
        with pytest.raises(DeviceFault, match=message):
            function(x)
        watch.running = False


@without_gpu
def test_waits_are_counted() -> None:
    with fake_cuda() as watch:
        x = torch.empty(3, device=CUDA)
        watch.running = True
        assert bool((x > 0).all())
        assert not bool((x > 0).all())
        x.sum().to(torch.int32).item()
        x.nonzero()
    assert watch.waits == 4


# ------------------------------------------------------------------------------------------- what CUDA does differently


@pytest.mark.parametrize("kind", ["s8", "u8", "s16", "u16", "s32", "u32", "s64"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integer_products(kind: str, dtype: torch.dtype) -> None:
    bits = element_type(kind).bits
    if bits > torch.iinfo(dtype).bits:
        return
    values = torch.from_numpy(np.resize(special_values(kind), (3, 4, 50)).astype(np.int64)).to(dtype)
    rhs = values.transpose(-2, -1).flip(0)
    assert contraction.integer_matmul(values, rhs, bits).equal(values @ rhs)
    assert contraction.integer_matmul(values[0], rhs[0], bits).equal(values[0] @ rhs[0])
    assert contraction.integer_matmul(values[0], rhs[0, :, 0], bits).equal(values[0] @ rhs[0, :, 0])


def test_integer_products_are_exact_for_long_sums() -> None:
    values = torch.full((2, (1 << 20) + 3), -(2**31) + 1, dtype=torch.int64)
    assert contraction.integer_matmul(values, values.t(), 32).equal(values @ values.t())


@pytest.mark.parametrize("equation", ["abc,bd->acd", "abc,ade->abcde", "abcd,acbe->abde", "ab,cd->abcd", "ab,ab->a"])
def test_integer_einsum(equation: str) -> None:
    sizes = dict(zip("abcde", (2, 3, 4, 5, 2), strict=True))
    operands = equation.partition("->")[0].split(",")
    lhs, rhs = (torch.randint(-(2**31), 2**31, [sizes[c] for c in letters]) for letters in operands)
    assert contraction.integer_einsum(equation, lhs, rhs).equal(torch.einsum(equation, lhs, rhs))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolutions(dims: int) -> None:
    forward = (torch.conv1d, torch.conv2d, torch.conv3d)[dims - 1]
    transposed = (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)[dims - 1]
    x, weight = torch.randn([2, 4] + [6] * dims), torch.randn([4, 2] + [3] * dims)
    one, two = [1] * dims, [2] * dims
    torch.testing.assert_close(convolution.convolve(x, weight, two, one, two, 2), forward(x, weight, None, two, one, two, 2))
    torch.testing.assert_close(convolution.convolve(x, weight, two, one, one, 2, one, highest=True),
                               transposed(x, weight, None, two, one, one, 2, one))


@pytest.mark.parametrize(("precision", "highest", "tf32"), [
    ("highest", False, False), ("high", False, True), ("high", True, False)])
def test_convolutions_use_tf32_where_matrix_products_do(precision: str, highest: bool, tf32: bool,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(torch_private, "convolution", lambda *arguments: asked.append(arguments[-1]))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        convolution.convolve(torch.zeros(1, 1, 1), torch.zeros(1, 1, 1), [1], [0], [1], 1, highest=highest)
    finally:
        torch.set_float32_matmul_precision(before)
    assert asked == [tf32]


@pytest.mark.parametrize("lengths", [(1,), (7,), (8,), (4, 5), (3, 8), (2, 3, 6)])
def test_inverse_real_fft(lengths: tuple[int, ...]) -> None:
    """Of any complex numbers, also where the transform of real ones has real ones."""
    spectrum = torch.randn(3, *lengths[:-1], lengths[-1] // 2 + 1, dtype=torch.complex128)
    want = torch.fft.irfftn(spectrum, s=lengths, dim=list(range(-len(lengths), 0)))
    torch.testing.assert_close(linalg.inverse_real_fft(spectrum, lengths), want)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
def test_order_of_floats(kind: str, descending: bool) -> None:
    """Also of NaNs with the sign bit, which CUDA may sort first."""
    values = torch.from_numpy(special_values(kind))
    values = torch.cat([-values, values, torch.tensor([-math.nan, -0.0, math.nan, 0.0], dtype=values.dtype).copysign(values[:4])])
    want = torch.sort(values, descending=descending, stable=True).indices
    assert torch.sort(sorting.order_key(values), descending=descending, stable=True).indices.equal(want)


# ------------------------------------------------------------------------------------------- with a GPU


def arguments(program: xla_torch.XlaComputation, seed: int = 0) -> list[np.ndarray]:
    """Ordinary numbers for a program's flat parameters: floats around 0, integers from 0 to 4."""
    rng = np.random.default_rng(seed)
    leaves = [s for p in program.program_shape.parameters for s in p.leaves() if s.is_array]

    def drawn(kind: Any, dims: tuple[int, ...]) -> np.ndarray:
        if kind.is_complex:
            return rng.normal(size=dims) + 1j * rng.normal(size=dims)
        if kind.is_floating:
            return np.abs(rng.normal(size=dims)) if kind.text == "f8e8m0fnu" else rng.normal(size=dims)
        return rng.integers(0, min(5, 1 << (kind.bits - kind.is_signed)) or 1, dims)

    return [np.asarray(drawn(s.element_type, s.dimensions)).astype(dtype_of(s.element_type.text)) for s in leaves]


def assert_near(got: np.ndarray, want: np.ndarray) -> None:
    """Equal, but for what a sum in another order and the last places of functions make of floats."""
    assert got.dtype == want.dtype
    if want.dtype.kind in "biu" or element_type_is_integral(want):
        assert np.array_equal(got, want)
        return
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    bits = want.dtype.itemsize * 8 // (2 if want.dtype.kind == "c" else 1)
    tolerance = {64: 1e-12, 32: 2e-5, 16: 2e-2, 8: 0.3}[bits]
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance)


def element_type_is_integral(array: np.ndarray) -> bool:
    kind = xla_torch.types.type_from_numpy(array.dtype)
    return kind is not None and kind.is_integral


@pytest.mark.cuda
@with_gpu
@pytest.mark.parametrize("row", ALONE, ids=str)
def test_rows_agree_with_the_cpu(row: Row) -> None:
    for _, program in programs(row):
        given = iter(arguments(program))
        shaped = [from_arrays(given, p) for p in program.program_shape.parameters]
        got = program.run_numpy(*shaped, device="cuda")
        if row.random:
            continue
        for ours, theirs in zip(got, program.run_numpy(*shaped), strict=True):
            assert_near(ours, theirs)


@pytest.mark.cuda
@with_gpu
@pytest.mark.parametrize("row", ALONE, ids=str)
def test_gradients_agree_with_the_cpu(row: Row) -> None:
    """By `backward()`, of the sum of the results' magnitudes."""
    program = row.program("f32") if "f32" in row.kinds and not row.random else None
    if program is None or not all(p.is_array for p in program.program_shape.parameters):
        return
    found = []
    for device in ("cpu", "cuda"):
        given = [torch.from_numpy(a).to(device) if a.dtype.kind in "biufc" else None for a in arguments(program)]
        if any(a is None for a in given):
            return
        for a in given:
            if a is not None:
                a.requires_grad_(a.is_floating_point() or a.is_complex())
        results = program(*given)
        of_floats = (r.abs() if r.is_complex() else r.double().abs()
                     for r in (results if isinstance(results, tuple) else (results,)) if r.requires_grad)
        loss = sum(r.sum() for r in of_floats)
        if not isinstance(loss, torch.Tensor):
            return
        try:
            loss.backward()
        except DifferentiationError:
            return
        found.append([a.grad.cpu().numpy() for a in given if a is not None and a.grad is not None])
    for ours, theirs in zip(*found, strict=True):
        assert_near(theirs, ours)


def on_cuda(program: xla_torch.XlaComputation, seed: int = 0) -> list[torch.Tensor]:
    """Tensors for a program's flat parameters."""
    leaves = [s for p in program.program_shape.parameters for s in p.leaves() if s.is_array]
    return [tensor_from_numpy(a, s, 0).cuda() for a, s in zip(arguments(program, seed), leaves, strict=True)]


@pytest.mark.cuda
@with_gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("row", [row for row in ALONE if not row.why], ids=str)
def test_rows_do_not_wait(row: Row) -> None:
    """torch itself raises where the host waits."""
    for _, program in programs(row, ALIKE):
        given = on_cuda(program)
        run = program.program.runner(CUDA)
        run(*given)  # some libraries wait when they are first used
        torch.cuda.set_sync_debug_mode("error")
        try:
            run(*given)
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.cuda
@with_gpu
@pytest.mark.parametrize("row", [row for row in ALONE if not row.random], ids=str)
def test_rows_as_cuda_graphs(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """With arguments that stay where they are, and then others. What waits, or does more than compute, runs call by call."""
    monkeypatch.setattr(tuning, "GRAPH_FROM", 1)
    (_, program), *_ = programs(row, ALIKE)
    run, plain = xla_torch.compile(program, "cudagraphs").program.runner, xla_torch.compile(program, "no-cudagraphs")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        asked, by_itself, want = run(CUDA), program.program.runner(CUDA), plain.program.runner(CUDA)
        places = [on_cuda(program, seed) for seed in range(3)]
        for given in (places[0], places[0], places[0], places[1], places[2], places[0]):
            for found in (asked(*given), by_itself(*given)):
                for ours, theirs, shape in zip(found, want(*given), program.program_shape.result.leaves(), strict=True):
                    assert_near(numpy_from_tensor(ours, shape), numpy_from_tensor(theirs, shape))
    stays = row.why or any(does_more(i) for i in program.program.canonical.instructions)
    assert [str(w.message) for w in warned if "call by call" in str(w.message)] == [] or stays


@pytest.mark.cuda
@with_gpu
@pytest.mark.parametrize("backend", ["cudagraphs", "eager"])
def test_training_as_cuda_graphs(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss and gradients by steps, in which parameters stay where they are and batches move; from another stream as well."""
    monkeypatch.setattr(tuning, "GRAPH_FROM", 1)
    program = xla_torch.parse_hlo("""ENTRY e {
      w = f32[64,64] parameter(0)
      x = f32[8,64] parameter(1)
      y = f32[8,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT z = f32[8,64] tanh(y)
    }""")
    recorded = xla_torch.compile(program, backend)
    found = []
    for step in (recorded, xla_torch.compile(program, "no-cudagraphs")):
        torch.manual_seed(0)
        w = torch.randn(64, 64).cuda().requires_grad_()
        for number in range(6):
            with torch.cuda.stream(torch.cuda.Stream() if number % 3 == 2 else torch.cuda.current_stream()):
                torch.cuda.synchronize()
                step(w, torch.randn(8, 64).cuda()).square().sum().backward()
                assert w.grad is not None
                with torch.no_grad():
                    w -= 0.01 * w.grad
                w.grad = None
                torch.cuda.synchronize()
        found.append(w.detach().cpu())
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


LAYERS = " ".join(["ENTRY e { y0 = f32[64] parameter(0)", *(f"y{k + 1} = f32[64] tanh(y{k})" for k in range(12)),
                   "ROOT r = f32[64] negate(y12) }"])


@pytest.mark.cuda
@with_gpu
def test_a_program_is_recorded_by_itself_and_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the third call, whatever the stream; not while torch records, which it does with the program's calls."""
    monkeypatch.setattr(tuning, "GRAPH_FROM", 1)
    programs = [xla_torch.parse_hlo(LAYERS) for _ in range(2)]
    plain, x, kept = xla_torch.compile(programs[0], "no-cudagraphs"), torch.randn(64).cuda(), []
    for program in programs:
        for number in range(6):
            given = x + number
            with torch.cuda.stream(torch.cuda.Stream() if number % 2 else torch.cuda.current_stream()):
                torch.cuda.synchronize()
                kept.append((program(given), plain(given)))
        run = program.program.runner(x.device)
        assert isinstance(run, Automatic)
        assert 0 < run.nbytes <= tuning.GRAPHS_LIMIT
        monkeypatch.setattr(tuning, "GRAPHS_LIMIT", run.nbytes + 1024)  # for one of them
    torch.cuda.synchronize()
    for got, want in kept:
        torch.testing.assert_close(got, want)
    assert programs[0].program.runner(x.device).nbytes == 0  # pyright: ignore[reportFunctionMemberAccess]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = programs[1](x)
    x.fill_(0.5)
    graph.replay()
    torch.testing.assert_close(result, plain(x))


@pytest.mark.cuda
@with_gpu
def test_torch_is_as_before_where_recording_fails() -> None:
    """What waits only when it is recorded: random numbers of torch's can be drawn afterwards, and programs recorded."""
    x = torch.ones(3).cuda()
    with pytest.raises(RuntimeError):
        captured(x.device, lambda: (x * x.sum().item(),))
    torch.rand(3, device="cuda")
    (result,), again, held = captured(x.device, lambda: (x + 1,))
    again()
    assert result.tolist() == [2, 2, 2]
    assert held >= result.nbytes


@pytest.mark.cuda
@with_gpu
@pytest.mark.parametrize("values", [(3.0, None), (None, 3.0), (None, 13.0)])
def test_quotients_by_numbers_are_rounded_once(values: tuple[float | None, float | None]) -> None:
    number = next(v for v in values if v is not None)
    operands = "b, p0" if values[1] is None else "p0, b"
    program = xla_torch.parse_hlo(f"""ENTRY e {{
      p0 = f32[1000] parameter(0)
      c = f32[] constant({number})
      b = f32[1000] broadcast(c), dimensions={{}}
      ROOT r = f32[1000] divide({operands})
    }}""")
    x = torch.rand(1000)
    assert program(x.cuda()).cpu().equal(program(x))


@pytest.mark.cuda
@with_gpu
def test_convolutions_have_the_precision_of_float32() -> None:
    program = xla_torch.parse_hlo("""ENTRY e {
      p0 = f32[4,64,32,32] parameter(0)
      p1 = f32[64,64,3,3] parameter(1)
      ROOT r = f32[4,64,30,30] convolution(p0, p1), window={size=3x3}, dim_labels=bf01_oi01->bf01
    }""")
    x, weight = torch.randn(4, 64, 32, 32), torch.randn(64, 64, 3, 3)
    want = torch.conv2d(x.double(), weight.double())
    assert (program(x.cuda(), weight.cuda()).cpu() - want).abs().max() < 1e-3


@pytest.mark.cuda
@with_gpu
def test_nans_are_sorted_last() -> None:
    program = xla_torch.parse_hlo("""
    less {
      a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT r = pred[] compare(a, b), direction=LT
    }
    ENTRY e {
      p0 = f32[1000] parameter(0)
      ROOT r = f32[1000] sort(p0), dimensions={0}, to_apply=less
    }""")
    x = torch.randn(1000)
    x[::7] = -math.nan
    torch.testing.assert_close(program(x.cuda()).cpu(), program(x), equal_nan=True, rtol=0, atol=0)
