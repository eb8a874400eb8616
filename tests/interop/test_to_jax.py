"""`to_jax`: a program is to JAX what the function that it was traced from is, under all of JAX's transformations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import needs_xla
from support.torch_programs import LOOP
from xla_torch import from_jax, from_torch, load, nn, parse_hlo, to_jax, to_jax_export
from xla_torch.errors import DifferentiationError, InvalidArgument, UnsupportedError

pytestmark = needs_xla

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax


def numbers(*dims: int, seed: int = 0, dtype: Any = np.float64) -> Any:
    drawn = np.random.default_rng(seed).uniform(-1, 1, (2, *dims))
    return jnp.asarray(drawn[0] + 1j * drawn[1] if np.dtype(dtype).kind == "c" else drawn[0], dtype)


def leaves(tree: Any) -> list[Any]:
    return jax.tree_util.tree_leaves(tree)


def agree(got: Any, expected: Any, tolerance: float = 1e-6) -> None:
    assert jax.tree_util.tree_structure(got) == jax.tree_util.tree_structure(expected)
    for a, b in zip(leaves(got), leaves(expected), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        if a.dtype == jax.dtypes.float0:
            continue
        wide = a.dtype if a.dtype.kind in "biuc" else np.float64
        np.testing.assert_allclose(np.asarray(a, wide), np.asarray(b, wide), tolerance, tolerance)


# ----------------------------------------------------------------------------------------------------------- programs


def stepping(x: Any) -> Any:
    """A loop whose length is known, a branch that values choose."""
    def body(k: Any, c: Any) -> Any:
        return lax.cond(c[0] > 0, jnp.sin, lambda v: v * 1.5 - 0.1, c) + 0.1 * k

    return lax.fori_loop(0, 4, body, x)


def until(x: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < 3.0, lambda c: (c[0] + c[1] ** 2 + 0.1, jnp.cos(c[1])), (x.sum() * 0.0, x[0]))[0] * x


def convolution(x: Any, w: Any) -> Any:
    return jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME"))


def moved(x: Any, k: Any) -> Any:
    return jnp.sort(x)[k], x.at[k].add(2.0 * x[::-1][k]), jnp.cumsum(x)


def drawn(key: Any, x: Any) -> Any:
    bits = jax.random.bits(key, (3,), jnp.uint32)
    return jax.random.normal(key, (3,), x.dtype) * x, bits, jax.random.split(key)[0]


@jax.custom_vjp
def doubled(x: Any) -> Any:
    return x * x


doubled.defvjp(lambda x: (doubled(x), x), lambda x, ct: (7.0 * x * ct,))


@jax.custom_jvp
def tripled(x: Any) -> Any:
    return x * x


tripled.defjvp(lambda primals, tangents: (tripled(primals[0]), 5.0 * primals[0] * tangents[0]))


class Row(NamedTuple):
    function: Callable[..., Any]
    args: tuple[Any, ...]
    without: tuple[str, ...] = ()
    """Entry points that JAX refuses for the function."""
    tolerance: float = 1e-6


REVERSE = ("grad", "vjp", "second order", "third order", "remat", "in a scan", "vmap of grad", "grad of vmap",
           "jit of value and grad")
FORWARD = ("jvp", "jvp of grad", "linearize")

ROWS: dict[str, Row] = {
    "elementwise": Row(lambda x, y: jnp.tanh(x) * jnp.exp(y) + x / (2.0 + y), (numbers(3), numbers(2, 3, seed=1))),
    "mlp": Row(lambda p, x: jnp.tanh(x @ p["w"] + p["b"]), ({"w": numbers(3, 2), "b": numbers(2)}, numbers(4, 3, seed=1))),
    "convolution": Row(convolution, (numbers(1, 2, 5, 5), numbers(3, 2, 3, 3, seed=1))),
    "loops": Row(stepping, (numbers(3),)),
    "loop of unknown length": Row(until, (numbers(3),), (*REVERSE, "jvp of grad")),
    "scan": Row(lambda x: lax.scan(lambda c, a: (jnp.sin(c * a), c), x[0], x), (numbers(4),)),
    "sort, gather, scatter": Row(moved, (numbers(5), jnp.asarray([1, 3]))),
    "random bits": Row(drawn, (jax.random.key(3), numbers(3))),
    "complex": Row(lambda z, x: (z * z).sum() * x + jnp.sin(z) * jnp.conj(z), (numbers(3, dtype=np.complex128), numbers(3))),
    "real of complex": Row(lambda z: jnp.abs(z) ** 2 + jnp.real(jnp.exp(z)), (numbers(3, dtype=np.complex64),), (), 1e-4),
    "fft": Row(jnp.fft.rfft, (numbers(6),)),
    "bf16": Row(lambda x, y: jnp.sin(x) @ y, (numbers(2, 3, dtype=jnp.bfloat16), numbers(3, 2, dtype=jnp.bfloat16)), (), 0.1),
    "f16": Row(lambda x: x * x + 1, (numbers(3, dtype=np.float16),), (), 1e-2),
    "trees": Row(lambda t: ({"a": t[0]["x"] * 2, "b": [t[1], None]}, t[0]["y"].sum()), (({"x": numbers(2), "y": numbers(3)},
                 numbers(2, seed=2)),)),
    "integers and booleans": Row(lambda k, x, flag: (k * 2, x * k, x > 0, jnp.where(flag, x, -x)),
                                 (jnp.asarray([1, 2, 3]), numbers(3), jnp.asarray([True, False, True]))),
    "small integers": Row(lambda k, x: (k.astype(jnp.int4), x * k.astype(x.dtype)), (jnp.asarray([1, -3], jnp.int8), numbers(2))),
    "solve": Row(lambda a, b: jnp.linalg.solve(a @ a.T + 3 * jnp.eye(3), b), (numbers(3, 3), numbers(3))),
    "eigh": Row(lambda a: jnp.linalg.eigh(a + a.T)[0], (numbers(3, 3),)),
    "custom_vjp": Row(doubled, (numbers(3),), FORWARD),
    "custom_jvp": Row(tripled, (numbers(3),)),
    "stop_gradient": Row(lambda x: x * lax.stop_gradient(jnp.sin(x)), (numbers(3),)),
    "constant": Row(lambda x: (jnp.arange(3.0), x * 2), (numbers(3),)),
}


# -------------------------------------------------------------------------------------------------------------- entry points


def active(args: Any) -> list[Any]:
    """The floating and complex leaves."""
    return [a for a in leaves(args) if jnp.issubdtype(a.dtype, jnp.inexact)]


def with_active(args: Any, values: Any) -> Any:
    given = iter(values)
    flat, tree = jax.tree_util.tree_flatten(args)
    return jax.tree_util.tree_unflatten(tree, [next(given) if jnp.issubdtype(a.dtype, jnp.inexact) else a for a in flat])


def total(function: Callable[..., Any], args: Any) -> Callable[..., Any]:
    """A real number of the active arguments, in which each result counts differently."""
    def of(values: Any) -> Any:
        results = [r for r in leaves(function(*with_active(args, values))) if jnp.issubdtype(r.dtype, jnp.inexact)]
        parts = [jnp.abs(r) ** 2 + jnp.real(r * (1 + 2j)) if jnp.iscomplexobj(r) else jnp.sin(r) for r in results]
        return sum(((k + 1.0) * p.astype(np.float64)).sum() for k, p in enumerate(parts))
    return of


def grad(f: Any, args: Any) -> Any:
    return jax.grad(total(f, args))(active(args))


def gradient_norm(f: Any, args: Any) -> Callable[..., Any]:
    return lambda values: sum((jnp.abs(g) ** 2).astype(np.float64).sum() for g in leaves(jax.grad(total(f, args))(values)))


def vjp(f: Any, args: Any) -> Any:
    results, back = jax.vjp(f, *args)
    return back(jax.tree_util.tree_map(
        lambda r: jnp.ones_like(r) * (2 - 1j if jnp.iscomplexobj(r) else 2) if jnp.issubdtype(r.dtype, jnp.inexact)
        else np.zeros(r.shape, jax.dtypes.float0), results))


def jvp(f: Any, args: Any) -> Any:
    return jax.jvp(lambda values: f(*with_active(args, values)), (active(args),), ([jnp.cos(a) for a in active(args)],))


def batch(args: Any) -> Any:
    return jax.tree_util.tree_map(lambda a: jnp.stack([a, a * 0 + a[..., ::-1] if a.ndim else a], axis=a.ndim and 1), args)


def of_batch(f: Any, args: Any) -> Callable[..., Any]:
    """The function of a batch of its active arguments, at axis 1, with the others shared."""
    def run(values: Any) -> Any:
        return jax.vmap(lambda v: f(*with_active(args, v)), ([min(a.ndim, 1) for a in active(args)],))(values)
    return run


def vmap(f: Any, args: Any) -> Any:
    return of_batch(f, args)(batch(active(args)))


def vmap_of_grad(f: Any, args: Any) -> Any:
    return jax.vmap(jax.grad(total(f, args)), ([min(a.ndim, 1) for a in active(args)],))(batch(active(args)))


def grad_of_vmap(f: Any, args: Any) -> Any:
    def of(values: Any) -> Any:
        results = [r for r in leaves(of_batch(f, args)(values)) if jnp.issubdtype(r.dtype, jnp.inexact)]
        return sum((jnp.abs(r) ** 2).astype(np.float64).sum() for r in results)
    return jax.grad(of)(batch(active(args)))


def in_a_scan(f: Any, args: Any) -> Any:
    def step(values: Any, _: Any) -> Any:
        return [(v - 0.1 * g).astype(v.dtype) for v, g in zip(values, jax.grad(total(f, args))(values), strict=True)], None
    return jax.grad(lambda values: sum(jnp.real(v).astype(np.float64).sum() for v in lax.scan(step, values, None, length=2)[0]))(
        active(args))


ENTRY_POINTS: dict[str, Callable[[Any, Any], Any]] = {
    "call": lambda f, args: f(*args),
    "jit": lambda f, args: jax.jit(f)(*args),
    "grad": grad,
    "vjp": vjp,
    "jvp": jvp,
    "jit of value and grad": lambda f, args: jax.jit(jax.value_and_grad(total(f, args)))(active(args)),
    "linearize": lambda f, args: jax.linearize(total(f, args), active(args))[1]([jnp.cos(a) for a in active(args)]),
    "second order": lambda f, args: jax.grad(gradient_norm(f, args))(active(args)),
    "third order": lambda f, args: jax.grad(lambda x: sum((jnp.abs(g) ** 2).sum() for g in jax.grad(gradient_norm(f, args))(x)))(
        active(args)),
    "jvp of grad": lambda f, args: jax.jvp(jax.grad(total(f, args)), (active(args),), ([jnp.cos(a) for a in active(args)],)),
    "vmap": vmap,
    "vmap of grad": vmap_of_grad,
    "grad of vmap": grad_of_vmap,
    "remat": lambda f, args: jax.grad(jax.checkpoint(total(f, args)))(active(args)),
    "in a scan": in_a_scan,
}


@functools.cache
def made(name: str) -> Any:
    return to_jax(from_jax(ROWS[name].function, *ROWS[name].args))


ALL_ENTRY_POINTS = ("mlp", "custom_vjp")
"""Programs that go through every entry point in the fast tests; the others go through some."""
FEW = ("jit of value and grad", "vmap of grad")


def rows() -> list[Any]:
    return [pytest.param(name, entry_point, id=f"{name}-{entry_point}",
                         marks=[] if name in ALL_ENTRY_POINTS or entry_point in FEW else [pytest.mark.slow])
            for name in ROWS for entry_point in ENTRY_POINTS]


@pytest.mark.parametrize(("name", "entry_point"), rows())
def test_like_the_function(name: str, entry_point: str) -> None:
    row = ROWS[name]
    if entry_point in row.without:
        with pytest.raises((DifferentiationError, ValueError, TypeError)):
            ENTRY_POINTS[entry_point](row.function, row.args)
        return
    expected = ENTRY_POINTS[entry_point](row.function, row.args)
    agree(ENTRY_POINTS[entry_point](made(name), row.args), expected, row.tolerance)


# -------------------------------------------------------------------------------------------------- programs of others


def test_gradients_that_jax_has_not():
    """Of a loop of unknown length, backwards: as torch has them of the program."""
    program = parse_hlo(LOOP, derivatives="as written")
    x = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    program((torch.zeros_like(x), x))[0].backward()
    function = to_jax(program)
    got = jax.jit(jax.grad(lambda x: function((0.0 * x, x))[0]))(0.7)
    agree(got, jnp.asarray(x.grad.numpy()))  # pyright: ignore


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.GELU(), torch.nn.Linear(4, 2))


@pytest.mark.parametrize("entry_point", [from_torch, nn.XlaModule.from_torch])
def test_a_torch_model_trains_in_jax(entry_point: Any):
    """By optax as by torch.optim, the running statistics, too."""
    optax = pytest.importorskip("optax")
    model, x = network(), torch.randn(5, 3)
    function, parameters = to_jax(entry_point(model, x))
    optimizer, theirs = torch.optim.SGD(model.parameters(), 0.1), optax.sgd(0.1)
    state, buffers = theirs.init(parameters), function.buffers

    @jax.jit
    def step(parameters: Any, state: Any, buffers: Any, x: Any) -> Any:
        def loss(parameters: Any) -> Any:
            result, after = function(parameters, x, buffers=buffers)
            return (result ** 2).mean(), after
        (value, buffers), gradients = jax.value_and_grad(loss, has_aux=True)(parameters)
        updates, state = theirs.update(gradients, state)
        return optax.apply_updates(parameters, updates), state, buffers, value

    for _ in range(3):
        optimizer.zero_grad()
        value = model(x).square().mean()
        value.backward()
        optimizer.step()
        parameters, state, buffers, own = step(parameters, state, buffers, x.numpy())
        np.testing.assert_allclose(own, value.detach(), 1e-5)
    for name, tensor in model.state_dict().items():
        found = [tree for tree in (parameters, buffers) for group, last in [name.split(".")] if tree[group][last] is not None
                 for tree in [tree[group][last]]]
        np.testing.assert_allclose(found[0], tensor, 1e-4, 1e-6)
        assert len(found) == 1


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        self.b.weight = self.a.weight
        self.a.bias.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x))


@pytest.mark.parametrize("entry_point", [from_torch, nn.XlaModule.from_torch])
def test_tied_and_frozen_weights(entry_point: Any):
    model, x = Tied(), torch.randn(2, 3)
    function, parameters = to_jax(entry_point(model, x))
    assert jax.tree_util.tree_map(np.shape, parameters) == {
        "a": {"bias": None, "weight": (3, 3)}, "b": {"bias": (3,), "weight": None}}
    model(x).square().sum().backward()
    got = jax.grad(lambda p: (function(p, x.numpy()) ** 2).sum())(parameters)
    np.testing.assert_allclose(got["a"]["weight"], model.a.weight.grad, 1e-5, 1e-6)  # pyright: ignore


def test_weights_are_copies():
    model = torch.nn.Linear(3, 2)
    _, parameters = to_jax(nn.XlaModule.from_torch(model, torch.ones(1, 3)))
    module = nn.XlaModule(from_jax(lambda p, x: p["w"] * x, {"w": np.ones(3)}, np.ones(3)), [{"w": np.ones(3)}])
    function, held = to_jax(module)
    with torch.no_grad():
        module.get_parameter("w").add_(1.0)
        model.weight.add_(1.0)
    agree(held, {"w": jnp.ones(3)})
    agree(function(held, np.full(3, 2.0)), jnp.full(3, 2.0))
    np.testing.assert_allclose(parameters["weight"] + 1, model.weight.detach(), 1e-6)


def test_unknown_sizes():
    from jax import export
    shape = export.symbolic_shape("b, 3")
    data = export.export(jax.jit(lambda x: jnp.sin(x).sum(0)))(jax.ShapeDtypeStruct(shape, np.float64)).serialize(vjp_order=1)
    function = to_jax(xla_torch.from_exported(data))
    for b in (2, 5):
        agree(jax.jit(function)(numbers(b, 3)), jnp.sin(numbers(b, 3)).sum(0))
        agree(jax.grad(lambda x: function(x).sum())(numbers(b, 3)), jnp.cos(numbers(b, 3)))


@pytest.mark.parametrize("wide", [False, True])
def test_integers_of_64_bits(wide: bool):
    """Narrower ones are widened, also where JAX has none of 64 bits; and so are the integers that a way back keeps."""
    model, tokens = torch.nn.Embedding(5, 2), torch.tensor([0, 3, 3])
    function, parameters = to_jax(from_torch(model, tokens))
    with jax.enable_x64(wide):
        given = jnp.asarray([0, 3, 3], np.int32)
        agree(jax.jit(function)(parameters, given), jnp.asarray(model(tokens).detach().numpy()))
        got = jax.jit(jax.grad(lambda p: (function(p, given) ** 2).sum()))(parameters)
    model(tokens).square().sum().backward()
    np.testing.assert_allclose(got["weight"], model.weight.grad, 1e-6)  # pyright: ignore


@pytest.mark.parametrize("checks", [True, False])
def test_shard_map_of_one_device(checks: bool):
    function = lambda w, x: jnp.sin(x) * w  # noqa: E731
    mesh = jax.make_mesh((2,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec
    w, x = numbers(4), numbers(4, 4, seed=1)

    def spread(f: Any) -> Any:
        return jax.shard_map(f, mesh=mesh, in_specs=(spec(), spec("i")), out_specs=spec("i"), check_vma=checks)

    ours = to_jax(from_jax(function, w, x[:2]))
    agree(spread(ours)(w, x), function(w, x))
    for each in (jax.jit, lambda f: f):
        agree(each(jax.grad(lambda w, x: (spread(ours)(w, x) ** 2).sum(), (0, 1)))(w, x),
              jax.grad(lambda w, x: (function(w, x) ** 2).sum(), (0, 1))(w, x))
    agree(jax.pmap(ours, in_axes=(None, 0))(w, x.reshape(2, 2, 4)), function(w, x).reshape(2, 2, 4))


def test_explicit_meshes_are_refused():
    mesh = jax.make_mesh((2,), ("i",))
    x = jax.device_put(numbers(4), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i")))
    with pytest.raises(UnsupportedError, match="auto_axes"):
        jax.jit(to_jax(from_jax(jnp.sin, numbers(4))))(x)


def test_partial_sums_on_explicit_meshes_are_refused():
    mesh = jax.make_mesh((2,), ("i",), axis_types=(jax.sharding.AxisType.Explicit,))
    spec = jax.sharding.PartitionSpec
    a, b = (jax.device_put(numbers(*sizes), jax.sharding.NamedSharding(mesh, s))
            for sizes, s in (((4, 4), spec(None, "i")), ((4,), spec("i"))))

    def summed(a: Any, b: Any) -> Any:
        partial = jnp.dot(a, b, out_sharding=jax.sharding.NamedSharding(mesh, spec(None, unreduced=frozenset({"i"}))))
        return to_jax(from_jax(jnp.sin, numbers(4)))(partial)

    with pytest.raises(UnsupportedError, match="got partial sums"):
        jax.jit(summed)(a, b)


RNG = """HloModule m
ENTRY e { a = f32[] constant(0) b = f32[] constant(1) ROOT r = f32[3] rng(a, b), distribution=rng_uniform }"""
SUM = """HloModule m
s { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e { a = f32[3] parameter(0) ROOT r = f32[3] all-reduce(a), to_apply=s }"""
CALL = """HloModule m
ENTRY e { a = f32[3] parameter(0) ROOT r = f32[3] custom-call(a), custom_call_target="mine" }"""
BOUNDED = """HloModule m
ENTRY e { a = f32[3] parameter(0) n = s32[] parameter(1) ROOT r = f32[<=3] set-dimension-size(a, n), dimensions={0} }"""
SINE = from_jax(jnp.sin, numbers(3))


@pytest.mark.parametrize(("thunk", "error", "words"), [
    (lambda: to_jax(jnp.sin), InvalidArgument, "not a computation"),
    (lambda: to_jax(parse_hlo(RNG)), UnsupportedError, "effect"),
    (lambda: to_jax(parse_hlo(SUM)), UnsupportedError, "several devices"),
    (lambda: to_jax(parse_hlo(SUM.replace("HloModule m", "HloModule m, replica_count=2"))), UnsupportedError, "replica_count"),
    (lambda: to_jax(parse_hlo(CALL)), UnsupportedError, "mine"),
    (lambda: to_jax(parse_hlo(BOUNDED))(np.ones(3, np.float32), np.int32(2)), UnsupportedError, "size depends on values"),
    (lambda: to_jax(SINE)(numbers(4)), InvalidArgument, "another shape"),
    (lambda: to_jax(SINE)(jnp.ones(3, np.float32)), InvalidArgument, "another dtype"),
    (to_jax(SINE), InvalidArgument, "number of arguments"),
    (lambda: jax.jvp(to_jax(from_jax(doubled, numbers(3))), (numbers(3),), (numbers(3),)), DifferentiationError, "custom_vjp"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_refused(thunk: Callable[[], Any], error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        thunk()


# ---------------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("name", ["mlp", "trees", "complex", "random bits", "integers and booleans", "custom_vjp"])
def test_files_of_jax_export(name: str, tmp_path: Path):
    """What is written runs in JAX, with its way back, and comes back to us."""
    from jax import export
    row = ROWS[name]
    to_jax_export(from_jax(row.function, *row.args), tmp_path / "program.bin")
    data = (tmp_path / "program.bin").read_bytes()
    call = export.deserialize(bytearray(data)).call
    agree(call(*row.args), row.function(*row.args), row.tolerance)
    agree(grad(call, row.args), grad(row.function, row.args), row.tolerance)
    again = load(tmp_path / "program.bin")
    agree(grad(to_jax(again), row.args), grad(row.function, row.args), row.tolerance)
