"""Programs in another precision: which op computes in what, values and gradients, modules, autocast."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import needs_xla, run_xla
from xla_torch.errors import InvalidArgument, UnsupportedError
from xla_torch.nn import XlaModule

RNG = np.random.default_rng(0)
W, B, X = (RNG.normal(size=s).astype(np.float32) for s in ((8, 8), (8,), (4, 8)))
LOW = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}


@jax.custom_vjp
def tripled(x: Any) -> Any:
    return x * 2


tripled.defvjp(lambda x: (x * 2, jnp.exp(x)), lambda kept, ct: (3 * ct + 0 * kept,))


def normed(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def scanned(w: Any, b: Any, x: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        h, total = carry
        h = jnp.tanh(h @ w + row)
        return (h, total + h.sum()), h

    return jax.lax.scan(step, (b, jnp.float32(0)), x)


def cached(w: Any, b: Any, x: Any) -> Any:
    return jax.lax.dynamic_update_slice(x, (b @ w)[None], (1, 0)).max(0)


def until(w: Any, b: Any, x: Any) -> Any:
    return jax.lax.while_loop(lambda h: jnp.abs(h).max() > 0.5, lambda h: 0.25 * (h @ w) / (1 + jnp.abs(h).sum()), b) + x


def convolved(w: Any, b: Any, x: Any) -> Any:
    image = jnp.broadcast_to(x.reshape(1, 1, 4, 8), (2, 1, 4, 8))
    found = jax.lax.conv_general_dilated(image, w[:4].reshape(4, 1, 2, 4) + b[0], (1, 1), "SAME")
    return jax.lax.reduce_window(found, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "dense": lambda w, b, x: jax.nn.gelu(x @ w + b) @ w.T,
    "softmax": lambda w, b, x: jax.nn.softmax(jax.nn.relu(x @ w) + b),
    "losses": lambda w, b, x: -jax.nn.log_softmax(x @ w)[jnp.arange(4), jnp.array([1, 2, 3, 0])].mean(),
    "norm": lambda w, b, x: normed(x @ w) * b,
    "an author's derivative": lambda w, b, x: tripled(x @ w) + b,
    "scan": scanned,
    "cache": cached,
    "while": until,
    "convolution and pooling": convolved,
    "branches": lambda w, b, x: jax.lax.cond(b[0] > 0, lambda: x @ w, lambda: jnp.exp(x) @ w.T),
    "sort and gather": lambda w, b, x: jnp.sort(x @ w, axis=-1)[:, ::2] + b[jnp.array([0, 3, 5, 1])],
    "a mask of large numbers": lambda w, b, x: jax.nn.softmax(jnp.where(x > 0, x @ w, -1e30)),
    "complex": lambda w, b, x: jnp.abs(jnp.fft.fft(x @ w)),
    "counted positions": lambda w, b, x: x @ w + jnp.arange(300, 308, dtype=jnp.float32),
}


def flat(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in jax.tree.leaves(result) if isinstance(leaf, torch.Tensor)]


def run(function: Any, dtype: torch.dtype) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Results and gradients by all arguments of the sum of all results' squares."""
    arguments = [torch.tensor(a, dtype=dtype, requires_grad=True) for a in (W, B, X)]
    results = [r for r in flat(function(*arguments)) if r.is_floating_point()]
    torch.stack([(r.double()**2).sum() for r in results]).sum().backward()
    return results, [torch.zeros_like(a) if a.grad is None else a.grad for a in arguments]


@pytest.mark.filterwarnings("ignore::xla_torch.errors.LostDerivatives")
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_programs(name: str, dtype: torch.dtype) -> None:
    """As near to the program in float32 as the precision allows, of that precision, with the gradients that it has there."""
    program = xla_torch.from_jax(FUNCTIONS[name], W, B, X)
    wanted, found = run(program, torch.float32), run(program.to(dtype), dtype)
    for results, others in zip(wanted, found, strict=True):
        for want, have in zip(results, others, strict=True):
            assert have.dtype is dtype
            bound = 40 * LOW.get(dtype, 2.0**-20)
            assert (have.double() - want.double()).abs().max() <= bound * max(1.0, want.abs().max().item()), name


@needs_xla
@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in ("complex",)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_programs_on_real_xla(name: str, dtype: torch.dtype) -> None:
    program = xla_torch.from_jax(FUNCTIONS[name], W, B, X).to(dtype)
    arguments = [torch.tensor(a, dtype=dtype) for a in (W, B, X)]
    numpy = jnp.bfloat16 if dtype is torch.bfloat16 else np.float64
    for want, have in zip(run_xla(program.to_hlo_text(), *(a.to(torch.float64).numpy().astype(numpy) for a in arguments)),
                          flat(program(*arguments)), strict=True):
        np.testing.assert_allclose(np.asarray(want, np.float64), have.double().numpy(), rtol=0.05 if dtype in LOW else 1e-9,
                                   atol=0.05 if dtype in LOW else 1e-9)


REGIONS = """
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }
less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }
"""

OPS = [  # instruction on p and q: f32[4,4], bits: u32[4,4], n: s32[4,4]; the type that its own result then has
    ("f32[4,4] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "bf16"),
    ("f32[4,4] add(p, q)", "bf16"),
    ("f32[4,4] multiply(p, q)", "bf16"),
    ("f32[4,4] multiply(p, p)", "f32"),
    ("f32[4,4] power(p, q)", "f32"),
    ("f32[4,4] exponential(p)", "f32"),
    ("f32[4,4] tanh(p)", "f32"),
    ("f32[4,4] asin(p)", "f32"),
    ("f32[4,4] sqrt(p)", "f32"),
    ("f32[4,4] negate(p)", "bf16"),
    ("f32[4,4] maximum(p, zeros)", "bf16"),
    ("f32[4,4] maximum(p, huge)", "bf16"),
    ("f32[4,4] add(p, table)", "f32"),
    ("f32[4,4] add(product, bias)", "bf16"),
    ("f32[4,4] add(bias, product)", "bf16"),
    ("f32[4,4] multiply(product, bias)", "f32"),
    ("f32[4,4] add(p, bias)", "f32"),
    ("f32[4,4] add(p, wide)", "f32"),
    ("f32[4] reduce(p, zero), dimensions={1}, to_apply=add", "f32"),
    ("f32[4] reduce(p, zero), dimensions={1}, to_apply=max", "bf16"),
    ("f32[4,4] reduce-window(p, zero), window={size=1x2 pad=0_0x0_1}, to_apply=max", "bf16"),
    ("f32[4,4] reduce-window(p, zero), window={size=1x2 pad=0_0x0_1}, to_apply=add", "f32"),
    ("f32[4,4] sort(p), dimensions={1}, to_apply=less", "bf16"),
    ("f32[4,4] transpose(p), dimensions={1,0}", "bf16"),
    ("f32[8,4] concatenate(p, q), dimensions={0}", "bf16"),
    ("f32[8,4] concatenate(p, wide), dimensions={0}", "f32"),
    ("f32[4,4] dynamic-update-slice(p, wide, i, i)", "bf16"),
    ("f32[4,4] dynamic-update-slice(zeros, p, i, i)", "bf16"),
    ("f32[4,4] select(yes, p, q)", "bf16"),
    ("f32[4,4] select(yes, p, wide)", "f32"),
    ("f32[4,4] clamp(zero, p, zero)", "bf16"),
    ("f32[4,4] convert(n)", "f32"),
    ("f32[4,4] bitcast-convert(bits)", "f32"),
    ("f32[4,4] iota(), iota_dimension=0", "f32"),
    ("f32[4,4] custom-call(p), custom_call_target=\"unknown\"", "f32"),
    ("f32[4,4] reduce-precision(p), exponent_bits=8, mantissa_bits=3", "bf16"),
    ("f32[4,4] cholesky(p)", "f32"),
]


@pytest.mark.parametrize(("instruction", "element_type"), OPS)
def test_what_each_op_computes_in(instruction: str, element_type: str) -> None:
    shape = instruction.split("(", maxsplit=1)[0].split(maxsplit=1)[0]
    text = f"""HloModule m
{REGIONS}
ENTRY e {{
  p = f32[4,4] parameter(0)
  q = f32[4,4] parameter(1)
  bits = u32[4,4] parameter(2)
  n = s32[4,4] parameter(3)
  zero = f32[] constant(0)
  one = f32[] constant(3e38)
  huge = f32[4,4] broadcast(one), dimensions={{}}
  zeros = f32[4,4] broadcast(zero), dimensions={{}}
  table = f32[4,4] constant({{{{1,2,3,4}},{{1,2,3,4}},{{1,2,3,4}},{{1,2,3,5}}}})
  wide = f32[4,4] exponential(q)
  product = f32[4,4] dot(p, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  flat = f32[16] reshape(wide)
  row = f32[4] slice(flat), slice={{[0:4]}}
  bias = f32[4,4] broadcast(row), dimensions={{1}}
  yes = pred[4,4] compare(p, q), direction=LT
  i = s32[] constant(0)
  r = {instruction}
  ROOT whole = {shape} copy(r)
}}"""
    module = xla_torch.parse_hlo(text, derivatives="as written").to(torch.bfloat16).module
    (found,) = [i for i in module.entry.instructions if i.name == "r"]
    assert found.shape.element_type.text == element_type


def test_float16_has_no_number_for_a_large_one() -> None:
    """What float16 would make infinite decides that its op computes in float32; bfloat16 has it."""
    text = "HloModule m ENTRY e { p = f32[4] parameter(0) c = f32[] constant(1e9) b = f32[4] broadcast(c), dimensions={} " \
           "ROOT r = f32[4] minimum(p, b) }"
    programs = {dtype: xla_torch.parse_hlo(text, derivatives="as written").to(dtype) for dtype in LOW}
    kinds = {dtype: program.to_hlo_text() for dtype, program in programs.items()}
    assert "= f16[4]{0} minimum(" not in kinds[torch.float16]
    assert "= bf16[4]{0} minimum(" in kinds[torch.bfloat16]
    assert programs[torch.float16](torch.ones(4, dtype=torch.float16)).tolist() == [1] * 4


@pytest.mark.parametrize(("dtype", "error", "words"), [
    (torch.int32, InvalidArgument, "unknown precision"),
    (torch.float8_e4m3fn, InvalidArgument, "unknown precision"),
    ("bfloat16", InvalidArgument, "unknown precision"),
    (torch.float64, UnsupportedError, "a custom call cannot change its precision"),
])
def test_refusals(dtype: Any, error: type[Exception], words: str) -> None:
    text = 'HloModule m ENTRY e { p = f32[4] parameter(0) ROOT r = f32[4] custom-call(p), custom_call_target="unknown" }'
    with pytest.raises(error, match=words):
        xla_torch.parse_hlo(text, derivatives="as written").to(dtype)


# ------------------------------------------------------------------------------------------------ modules


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.last(torch.relu(self.norm(self.first(x)))), -1)


@pytest.fixture
def pair() -> tuple[Net, XlaModule]:
    torch.manual_seed(0)
    net = Net()
    return net, XlaModule.from_torch(net, torch.tensor(X))


CONVERSIONS: dict[str, tuple[Callable[[torch.nn.Module], Any], torch.dtype]] = {
    "half": (lambda m: m.half(), torch.float16),
    "bfloat16": (lambda m: m.bfloat16(), torch.bfloat16),
    "double": (lambda m: m.double(), torch.float64),
    "to": (lambda m: m.to(torch.bfloat16), torch.bfloat16),
    "there and back": (lambda m: m.bfloat16().float(), torch.float32),
    "a copy": (lambda m: copy.deepcopy(m.half()), torch.float16),
    "pickled": (lambda m: pickle.loads(pickle.dumps(m.double())), torch.float64),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_modules(name: str, pair: tuple[Net, XlaModule]) -> None:
    """As torch's own module in that precision, with gradients."""
    change, dtype = CONVERSIONS[name]
    own, made = (change(module) for module in pair)
    x = torch.tensor(X, dtype=dtype)
    want, have = own(x), made(x)
    assert have.dtype is want.dtype is dtype
    bound = 8 * LOW.get(dtype, 2.0**-20)
    torch.testing.assert_close(have, want, rtol=bound, atol=bound)
    for result in (want, have):
        (result.double()**2).sum().backward()
    for name, parameter in own.named_parameters():
        grad = made.get_parameter(name).grad
        assert grad is not None
        assert grad.dtype is dtype
        torch.testing.assert_close(grad, parameter.grad, rtol=8 * bound, atol=8 * bound)


def test_a_module_in_another_precision_refuses_what_is_of_the_old_one(pair: tuple[Net, XlaModule]) -> None:
    with pytest.raises(InvalidArgument, match=r"f32\[4,8\]|float32"):
        pair[1].half()(torch.tensor(X))


@pytest.mark.parametrize("dtype", list(LOW))
def test_autocast(dtype: torch.dtype, pair: tuple[Net, XlaModule]) -> None:
    """Parameters and their gradients stay float32, and outside of it all is as before. A softmax gives float32, as in torch on
    CUDA (on the CPU torch's gives the lower precision)."""
    own, made = pair
    x = torch.tensor(X)
    with torch.autocast("cpu", dtype):
        want, have = own(x), made(x)
        assert (made(x.to(dtype)) - have).abs().max() <= 8 * LOW[dtype]
    assert have.dtype is torch.float32
    torch.testing.assert_close(have, want.float(), rtol=8 * LOW[dtype], atol=8 * LOW[dtype])
    (have.double()**2).sum().backward()
    (want.double()**2).sum().backward()
    for name, parameter in own.named_parameters():
        grad = made.get_parameter(name).grad
        assert grad is not None
        torch.testing.assert_close(grad, parameter.grad, rtol=64 * LOW[dtype], atol=64 * LOW[dtype])
    assert torch.equal(made(x), XlaModule.from_torch(own, x)(x))


def test_autocast_gives_what_products_give(pair: tuple[Net, XlaModule]) -> None:
    linear = torch.nn.Linear(8, 3)
    made = XlaModule.from_torch(linear, torch.tensor(X))
    with torch.autocast("cpu", torch.bfloat16):
        assert made(torch.tensor(X)).dtype is linear(torch.tensor(X)).dtype is torch.bfloat16
    assert made(torch.tensor(X)).dtype is torch.float32
