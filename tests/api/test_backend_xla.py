"""`compile(computation, "xla")`: XLA runs the program on torch's tensors, with its gradients; "fastest" keeps the faster way."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing import assert_close

import xla_torch
from support.oracle import needs_xla
from support.torch_programs import LOOP, build, check_gradients, complex_square, dense, f64, several
from xla_torch import compile, from_torch, parse_hlo
from xla_torch.errors import ExecutionError, InvalidArgument, UnsupportedError, XlaWarning
from xla_torch.storage.dtypes import torch_dtype

pytestmark = [needs_xla, pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")]  # torch's own, in forward mode

TYPES = ["PRED", "S8", "S16", "S32", "S64", "U8", "U16", "U32", "U64", "F16", "BF16", "F32", "F64", "C64", "C128",
         "F8E5M2", "F8E4M3FN", "F8E4M3FNUZ", "F8E5M2FNUZ", "F8E8M0FNU"]


def reversal(name: str) -> xla_torch.XlaComputation:
    text = getattr(xla_torch, name).text
    return parse_hlo(f"HloModule m\nENTRY e {{ a = {text}[2,3] parameter(0) ROOT r = {text}[2,3] reverse(a), dimensions={{1}} }}")


@pytest.mark.parametrize("name", TYPES)
def test_element_types(name: str):
    program, dtype = reversal(name), torch_dtype(getattr(xla_torch, name))
    x = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]).to(dtype)
    got, expected = compile(program, "xla")(x), program(x)
    assert got.dtype is dtype
    assert bytes(got.contiguous().view(torch.uint8).numpy()) == bytes(expected.contiguous().view(torch.uint8).numpy())


@pytest.mark.parametrize("name", ["S4", "U2", "F8E4M3", "F8E3M4", "F4E2M1FN"])
def test_element_types_without_a_dtype_are_refused(name: str):
    program = compile(reversal(name), "xla")
    with pytest.raises(UnsupportedError, match="no dtype of its own"):
        program(torch.zeros(2, 3, dtype=torch_dtype(getattr(xla_torch, name))))


FORMS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: torch.arange(6.0).reshape(2, 3),
    "transposed": lambda: torch.arange(6.0).reshape(3, 2).T,
    "in the middle": lambda: torch.arange(9.0)[1:7].reshape(2, 3),
    "expanded": lambda: torch.arange(3.0).expand(2, 3),
    "strided": lambda: torch.arange(12.0).reshape(2, 6)[:, ::2],
    "parameter": lambda: torch.nn.Parameter(torch.ones(2, 3)),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_tensors(form: str):
    x = FORMS[form]()
    before = x.detach().clone()
    assert_close(compile(reversal("F32"), "xla")(x), x.flip(1))
    assert_close(x.detach(), before, rtol=0, atol=0)


SHARED = """HloModule m, input_output_alias={ {0}: (0, {}, must-alias) }
ENTRY e { a = f32[64] parameter(0) b = f32[64] add(a, a) ROOT t = (f32[64], f32[64], f32[64]) tuple(b, b, a) }"""


def test_nothing_shares_memory():
    """Neither results among themselves, nor with arguments, which are never written, whatever the program says."""
    program, x = compile(parse_hlo(SHARED), "xla"), torch.ones(64)
    results = program(x)
    more = [program(torch.full((64,), float(k))) for k in range(4)]  # what was freed is used again
    for k, result in enumerate(results):
        assert_close(result, torch.full((64,), 1.0 if k == 2 else 2.0))
        result.fill_(7.0)
        assert all(bool((r != 7.0).all()) for r in results[k + 1:])
    assert_close(x, torch.ones(64))
    assert_close([m[2] for m in more], [torch.full((64,), float(k)) for k in range(4)])


@pytest.mark.parametrize("row", [(dense, (2, 3), (3, 4)), (complex_square, (3,), (3,)), (several, (3,), (3,))],
                         ids=["dense", "complex", "several"])
def test_gradients(row: tuple[Any, ...]):
    function, *dims = row
    compiled = compile(build(function, *dims), "xla")
    inputs = tuple(f64(*d, seed=k) for k, d in enumerate(dims))
    check_gradients(compiled, inputs)


def test_programs_of_gradients_and_batches():
    program, x, w = build(dense, (4, 3), (3, 2)), f64(4, 3).detach(), f64(3, 2).detach()
    compiled = compile(program, "xla")
    assert_close(torch.func.jacrev(compiled)(x, w), torch.func.jacrev(program)(x, w))
    assert_close(torch.func.jvp(compiled, (x, w), (x, w)), torch.func.jvp(program, (x, w), (x, w)))
    assert_close(xla_torch.vmap(compiled, 5, (0, None))(x.expand(5, 4, 3), w), program(x, w).expand(5, 4, 2))
    assert "compiled by xla" in repr(compiled)
    assert_close(pickle.loads(pickle.dumps(compiled))(x, w), program(x, w))


def test_a_loop_of_unknown_length():
    """Its way back is plain HLO for XLA."""
    program, found = parse_hlo(LOOP, derivatives="as written"), []
    for each in (program, compile(program, "xla")):
        x = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
        each((0.1 * x, x))[0].backward()
        found.append(x.grad)
    assert_close(found[0], found[1])


def test_unknown_sizes_are_compiled_once_each(caplog: pytest.LogCaptureFixture):
    text = """func.func @main(%x: tensor<?x3xf32>) -> tensor<?x3xf32> {
      %0 = stablehlo.sine %x : tensor<?x3xf32>
      return %0 : tensor<?x3xf32> }"""
    compiled = compile(xla_torch.from_stablehlo(text), "xla")
    caplog.set_level("INFO", "xla_torch.runtime.backends")
    for size in (2, 5, 2, 5):
        x = torch.randn(size, 3)
        assert_close(compiled(x), x.sin())
    assert sum("XLA compiled" in r.message for r in caplog.records) == 2


def test_threads(caplog: pytest.LogCaptureFixture):
    """Compiled once, by whichever comes first; each has its own results."""
    compiled, x = compile(build(dense, (4, 3), (3, 2)), "xla"), f64(4, 3).detach()
    caplog.set_level("INFO", "xla_torch.runtime.backends")
    found: dict[int, bool] = {}

    def run(k: int) -> None:
        w = f64(3, 2, seed=k).detach()
        found[k] = all(torch.allclose(compiled(x, w), torch.tanh(x @ w)) for _ in range(20))

    threads = [threading.Thread(target=run, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(6), True)
    assert sum("XLA compiled" in r.message for r in caplog.records) == 1


def test_empty_and_constant():
    program = parse_hlo("""HloModule m
ENTRY e { a = f32[0,4] parameter(0) i = s32[3] iota(), iota_dimension=0 ROOT t = (f32[0,4], s32[3]) tuple(a, i) }""")
    assert_close(compile(program, "xla")(torch.zeros(0, 4)), (torch.zeros(0, 4), torch.arange(3, dtype=torch.int32)))


WITHOUT_JAX = """
import sys
sys.modules["jax"] = None
import torch, xla_torch
program = xla_torch.load(sys.argv[1])
a = torch.randn(4, 4) + 4 * torch.eye(4)
torch.testing.assert_close(xla_torch.compile(program, "xla")(a), program(a), rtol=1e-4, atol=1e-4)
"""


def test_lapack_without_jax(tmp_path: Any):
    import jax.numpy as jnp
    program = xla_torch.from_jax(jnp.linalg.inv, torch.zeros(4, 4))
    (tmp_path / "program.hlo").write_text(program.to_hlo_text())
    subprocess.run([sys.executable, "-c", WITHOUT_JAX, str(tmp_path / "program.hlo")], check=True)


@pytest.mark.parametrize(("text", "words"), [
    ("ENTRY e { a = f32[] constant(0) b = f32[] constant(1) ROOT r = f32[3] rng(a, b), distribution=rng_uniform }", "effect"),
    ("""s { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e { a = f32[3] parameter(0) ROOT r = f32[3] all-reduce(a), to_apply=s }""", "several devices"),
    ('ENTRY e { a = f32[3] parameter(0) ROOT r = f32[3] custom-call(a), custom_call_target="mine" }', "mine"),
])
def test_refused(text: str, words: str):
    with pytest.raises(UnsupportedError, match=words):
        compile(parse_hlo(f"HloModule m\n{text}"), "xla")


def test_arguments_are_checked():
    with pytest.raises(InvalidArgument, match="shape"):
        compile(reversal("F32"), "xla")(torch.ones(3, 3))


# -------------------------------------------------------------------------------------------------------------- fastest


def test_fastest():
    program, x, w = build(dense, (4, 3), (3, 2)), f64(4, 3), f64(3, 2)
    compiled = compile(program, "fastest")
    assert compiled.chosen is None
    assert_close(compiled(x.detach(), w.detach()), program(x, w).detach())
    assert compiled.chosen in ("eager", "xla")
    assert f"compiled by fastest: {compiled.chosen} (eager" in repr(compiled)
    found = torch.autograd.grad(compiled(x, w).square().sum(), (x, w))
    assert_close(found, torch.autograd.grad(program(x, w).square().sum(), (x, w)))


def test_fastest_keeps_what_is_faster():
    from xla_torch.runtime.backends import Choice, Fastest
    counts, reported = {"slow": 0, "quick": 0}, []

    def candidate(name: str, steps: int) -> Callable[..., tuple[torch.Tensor, ...]]:
        def run(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            counts[name] += 1
            for _ in range(steps):
                x = x + 0
            return (x,)
        return run

    fastest = Fastest({"slow": candidate("slow", 2000), "quick": candidate("quick", 1)}, "", reported.append)
    for _ in range(5):
        fastest(torch.ones(3))
    assert [c.backend for c in reported] == ["quick"]
    assert isinstance(reported[0], Choice)
    assert counts == {"slow": 4, "quick": 9}


def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0]


def squares(x: torch.Tensor) -> torch.Tensor:
    return (positive(x) ** 2).sum()


@pytest.mark.parametrize("function", [positive, squares])
def test_results_of_unknown_sizes_and_derivatives_that_keep_them(function: Callable[[torch.Tensor], torch.Tensor]):
    x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    program, want = xla_torch.from_torch(function, x.detach()), function(x)
    compiled = compile(program, "fastest")
    assert_close(compiled(x), want)
    assert_close(torch.autograd.grad(compiled(x).sum(), x), torch.autograd.grad(want.sum(), x))
    with pytest.raises(UnsupportedError, match=r"does not support results of dynamic size(.|\n)*hint +use compile"):
        compile(program, "xla")(x)


def test_xla_runs_what_has_unknown_sizes_inside_alone():
    x = torch.tensor([1.0, -2.0, 3.0])
    assert_close(compile(xla_torch.from_torch(squares, x), "xla")(x), squares(x))


def test_fastest_drops_what_fails_when_it_runs():
    from xla_torch.runtime.backends import Fastest
    reported = []

    def fails(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        raise ExecutionError("XLA does not run the program")

    fastest = Fastest({"eager": lambda x: (x + 1,), "xla": fails}, "", reported.append)
    assert_close(fastest(torch.ones(3))[0], torch.full((3,), 2.0))
    assert str(reported[0]).startswith("eager (eager ")
    assert str(reported[0]).endswith("; no XLA: XLA does not run the program")


def test_a_runtime_error_of_xla_names_the_program():
    from xla_torch.xla_backend.client import executable

    run = executable(reversal("F32").to_stablehlo_bytecode(), "reversal")
    with pytest.raises(ExecutionError, match="reversal: XLA does not run the program"):
        run([])


def test_fastest_keeps_checks_of_values():
    """XLA leaves them out, and says so."""
    x, two, three = torch.arange(3.0), torch.tensor([True, False, True]), torch.ones(3, dtype=torch.bool)
    program = from_torch(lambda x, m: x[m] + torch.tensor([10.0, 20.0]), x, two)
    compiled = compile(program, "fastest")
    assert_close(compiled(x, two), torch.tensor([10.0, 22.0]))
    assert compiled.chosen == "eager"
    assert "no XLA: XLA does not run the program's checks of values" in repr(compiled.computation)
    with pytest.raises(ExecutionError, match="size 2"):
        compiled(x, three)
    with pytest.warns(XlaWarning, match="does not check .* has size 2"):
        compile(program, "xla")(x, two)


def test_fastest_without_xla():
    """What XLA would not do once may be done once only."""
    program = compile(parse_hlo("""HloModule m
ENTRY e { a = f32[] constant(0) b = f32[] constant(1) ROOT r = f32[3] rng(a, b), distribution=rng_uniform }"""), "fastest")
    assert program().shape == (3,)
    assert program.chosen == "eager"
    assert "no XLA: an instruction with an effect" in repr(program)
