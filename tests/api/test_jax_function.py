"""Functions over trees: how they are called, and that every entry point takes them. The oracle is JAX itself."""

from __future__ import annotations

import dataclasses
import functools
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from xla_torch import (
    XlaBuilder,
    compile,
    errors,
    from_jax,
    grad,
    jvp,
    ops,
    rebatch,
    run_replicas,
    training,
    training_step,
    value_and_grad,
    vjp,
    vmap,
)
from xla_torch.api.tree_function import TreeFunction
from xla_torch.errors import DifferentiationError, InvalidArgument
from xla_torch.nn import XlaModule

jax: Any = pytest.importorskip("jax")
jnp: Any = jax.numpy


class Pair(NamedTuple):
    left: Any
    right: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Scale:
    by: Any
    power: int = dataclasses.field(default=2, metadata={"static": True})


@pytest.fixture(autouse=True)
def as_jax_is_by_default() -> Iterator[None]:
    with jax.enable_x64(False):
        yield


# Far from where tanh is flat: its second derivative is lost to rounding there.
W, B, X = torch.randn(3, 2) / 2, torch.randn(2), torch.randn(5, 3) / 2
KEY = 7


def power(x: Any, n: int, *, mode: str = "plus") -> Any:
    return x**n + 1 if mode == "plus" else x**n - 1


def normal(key: Any, shape: tuple[int, ...]) -> Any:
    return jax.random.normal(key, shape), jax.random.split(key)


def of_scale(scale: Scale, x: Any) -> Any:
    return Scale(scale.by * x**scale.power, scale.power + 1)


def linear(params: Any, x: Any, bias: Any = None) -> Any:
    out = x @ params["w"]
    return out if bias is None else out + bias


def jax_key(kind: str | None = None) -> Any:
    return jax.random.key(KEY, impl=kind)


# name, function, arguments of trace and call, keywords, options of from_jax
CALLS: list[tuple[str, Callable[..., Any], Callable[[], tuple[Any, ...]], dict[str, Any], dict[str, Any]]] = [
    ("static by place", power, lambda: (X, 3), {}, {"static_argnums": 1}),
    ("static by name", power, lambda: (X,), {"n": 3, "mode": "minus"}, {"static_argnames": ("n", "mode")}),
    ("static name by place", power, lambda: (X, 3), {"mode": "minus"}, {"static_argnames": ["n", "mode"]}),
    ("static from behind", power, lambda: (X, 3), {}, {"static_argnums": (-1,)}),
    ("keys", normal, lambda: (jax_key(), (4,)), {}, {"static_argnums": 1}),
    ("keys of rbg", normal, lambda: (jax_key("rbg"), (4,)), {}, {"static_argnums": 1}),
    ("a tree of keys", lambda t: {k: jax.random.uniform(v, (3,)) for k, v in t.items()},
     lambda: ({"a": jax_key(), "b": jax_key()},), {}, {}),
    ("raw keys", normal, lambda: (jax.random.PRNGKey(KEY), (2,)), {}, {"static_argnums": 1}),
    ("None", linear, lambda: ({"w": W}, X, None), {}, {}),
    ("a default", linear, lambda: ({"w": W}, X), {}, {}),
    ("by name", linear, lambda: ({"w": W},), {"x": X, "bias": B}, {}),
    ("numbers", lambda x, y, z: (x * y + z, z), lambda: (X, 2.0, 3), {}, {}),
    ("booleans", lambda x, flag: jnp.where(flag, x, -x), lambda: (X, True), {}, {}),
    ("a dataclass", of_scale, lambda: (Scale(X, 3), X), {}, {}),
    ("a named tuple", lambda p: Pair(p.right, p.left), lambda: (Pair(X, W),), {}, {}),
    ("a closure", lambda x: x @ jnp.asarray(np.ones((3, 2), np.float32)), lambda: (X,), {}, {}),
    ("a partial function", functools.partial(linear, bias=1.5), lambda: ({"w": W}, X), {}, {}),
    ("jitted", jax.jit(linear), lambda: ({"w": W}, X), {}, {}),
    ("integers", lambda x: x + 1, lambda: (np.arange(3),), {}, {}),
    ("bfloat16", lambda x: x * 2, lambda: (torch.arange(3).bfloat16(),), {}, {}),
]


def to_jax(tree: Any) -> Any:
    return jax.tree_util.tree_map(lambda a: jnp.asarray(as_numpy(a)) if isinstance(a, torch.Tensor) else a, tree)


def as_numpy(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.detach()
        return value.view(torch.int16).numpy().view(jnp.bfloat16) if value.dtype is torch.bfloat16 else value.numpy()
    is_key = jax.dtypes.issubdtype(getattr(value, "dtype", None), jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(value) if is_key else value)


def agree(got: Any, expected: Any) -> None:
    """Trees that JAX takes to be of one form, with equal leaves (keys as their data)."""
    theirs, treedef = jax.tree_util.tree_flatten(expected)
    ours, own = jax.tree_util.tree_flatten(got)
    assert own == treedef
    leaves = [as_numpy(b).astype(np.float32) for b in theirs]
    largest = max((np.abs(leaf[np.isfinite(leaf)]).max(initial=1) for leaf in leaves), default=1)
    for a, b, wanted in zip(ours, theirs, leaves, strict=True):
        assert as_numpy(a).dtype == as_numpy(b).dtype
        # Sums that cancel are as far off as their terms are large, and these are of the size of other leaves.
        np.testing.assert_allclose(as_numpy(a).astype(np.float32), wanted, rtol=3e-6, atol=1e-6 * largest)


@pytest.mark.parametrize(("function", "arguments", "named", "options"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS])
def test_calls(function: Callable[..., Any], arguments: Any, named: dict[str, Any], options: dict[str, Any]):
    args = arguments()
    expected = jax.jit(function, **options)(*to_jax(args), **to_jax(named))
    traced = from_jax(function, *args, **named, **options)
    agree(traced(*args, **named), expected)
    agree(pickle.loads(pickle.dumps(traced))(*args, **named), expected)


def test_donated_arguments_stay():
    x = X.clone()
    function = from_jax(jax.jit(lambda x: x * 2, donate_argnums=0), x)
    agree(function(x), jnp.asarray(X.numpy()) * 2)
    assert torch.equal(x, X)


ELSEWHERE: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("constants left out", (X,), {}), ("constants given", (X, 3), {"mode": "minus"}), ("by name", (), {"x": X, "n": 3}),
]


@pytest.mark.parametrize(("args", "named"), [e[1:] for e in ELSEWHERE], ids=[e[0] for e in ELSEWHERE])
def test_constants_may_be_left_out(args: tuple[Any, ...], named: dict[str, Any]):
    function = from_jax(power, X, 3, mode="minus", static_argnums=1, static_argnames="mode")
    torch.testing.assert_close(function(*args, **named), X**3 - 1)


def test_arguments_by_name_or_by_place():
    function = from_jax(linear, {"w": W}, X, B)
    for got in (function({"w": W}, X, B), function({"w": W}, bias=B, x=X), function(params={"w": W}, x=X, bias=B)):
        torch.testing.assert_close(got, X @ W + B)
    torch.testing.assert_close(from_jax(linear, {"w": W}, X, bias=B)({"w": W}, X, B), X @ W + B)


@pytest.mark.parametrize("seed", [0, 5, 2**31, 2**32 - 1])
def test_an_integer_seeds_a_key(seed: int):
    draw = lambda key: jax.random.bits(key, (4,))  # noqa: E731
    with jax.enable_x64(True):
        key = jax.random.key(np.uint32(seed))
    agree(from_jax(draw, jax_key())(seed), draw(key))
    agree(from_jax(draw, jax_key())(torch.tensor([0, seed])), draw(key))


def test_what_is_a_key_is_noted():
    function = from_jax(normal, jax_key(), (2,), static_argnums=1)
    assert function.signature.key_inputs == ((0, "threefry2x32"),)
    assert function.signature.key_results == ((1, "threefry2x32"),)


ONE = lambda a: a + 1  # noqa: E731
I64, BIG = torch.tensor([1, 2]), torch.tensor([1, 2**31])
ERRORS: list[tuple[str, Callable[[], Any], str]] = [
    ("static", lambda: from_jax(power, X, 3, static_argnums=1)(X, 4), r"(?s)argument n is static.*got +4.*expected +3"),
    ("static by name", lambda: from_jax(power, X, 3, mode="a", static_argnums=1, static_argnames="mode")(X, 3, mode="b"),
     r"argument mode is static"),
    ("kind of key", lambda: from_jax(normal, jax_key(), (2,), static_argnums=1)(jax_key("rbg")), "a PRNG key of another kind"),
    ("too few", lambda: from_jax(linear, {"w": W}, X)({"w": W}), r"(?s)wrong number of arguments.*got +1.*2: params, x"),
    ("too many", lambda: from_jax(linear, {"w": W}, X)({"w": W}, X, B), r"wrong number of arguments"),
    ("unknown name", lambda: from_jax(linear, {"w": W}, X)({"w": W}, X, scale=1), r"argument scale is not expected"),
    ("missing leaf", lambda: from_jax(linear, {"w": W}, X)({"v": W}, X), r"argument params\.w is missing"),
    ("shape", lambda: from_jax(linear, {"w": W}, X)({"w": W.T}, X), r"(?s)argument params\.w has another shape.*f32\[2,3\]"),
    ("dtype", lambda: from_jax(linear, {"w": W}, X)({"w": W}, X.half()), r"(?s)argument x has another dtype.*f16\[5,3\]"),
    ("no array", lambda: from_jax(linear, {"w": W}, X)({"w": W}, "x"), r"(?s)argument x is not an array.*got +str"),
    ("typed key for a raw one", lambda: from_jax(jax.random.normal, jax.random.PRNGKey(0))(jax.random.key(0)),
     r"(?s)argument key is not an array.*got +key<fry>.*expected +u32\[2\].*hint +pass jax\.random\.key_data"),
    ("kind of number", lambda: from_jax(ONE, 1)(1.5), r"(?s)argument a has another kind of number.*1\.5"),
    ("range of number", lambda: from_jax(ONE, 1)(2**40), r"argument a is out of range"),
    ("too large", lambda: from_jax(ONE, I64)(BIG), r"(?s)argument a has integers that do not fit in 32 bits.*2147483648"),
    ("too large in numpy", lambda: from_jax(ONE, I64)(BIG.numpy()), r"argument a has integers that do not fit"),
    ("too large in a batch", lambda: torch.func.vmap(from_jax(ONE, I64[0]))(BIG), r"argument a has integers that do not fit"),
    ("strict", lambda: from_jax(ONE, I64).with_narrowing(False)(I64), r"(?s)argument a is wider.*hint.*torch\.int32"),
    ("strict in numpy", lambda: from_jax(ONE, I64).with_narrowing(False)(I64.numpy()), r"argument a is wider"),
    ("argnums", lambda: grad(from_jax(linear, {"w": W}, X), 2), r"argnums names argument 2"),
    ("axes", lambda: vmap(from_jax(linear, {"w": W}, X), 2, (0,)), r"in_axes has the wrong length"),
]


@pytest.mark.parametrize(("call", "message"), [e[1:] for e in ERRORS], ids=[e[0] for e in ERRORS])
def test_errors_name_the_argument(call: Callable[[], Any], message: str):
    with pytest.raises(InvalidArgument, match=message):
        call()


def test_a_leaf_without_gradient_is_named():
    function = from_jax(lambda p: (p["w"] * p["n"]).sum(), {"w": W, "n": 3})
    with pytest.raises(DifferentiationError, match=r"argument p\.n has no gradient"):
        grad(function)


# ------------------------------------------------------------------------------------------------ every entry point


def loss(params: Any, x: Any, *, scale: Any = 1.0) -> Any:
    return ((jnp.tanh(x @ params["w"]) + params["b"]) ** 2).sum() * scale


PARAMS = {"w": W, "b": B}
TANGENT = {"w": torch.randn(3, 2), "b": torch.randn(2)}
XS = torch.randn(4, 5, 3)


@functools.cache
def traced() -> TreeFunction:
    return from_jax(loss, PARAMS, X, scale=2.0)


def of_jax(transform: Callable[[Any], Any]) -> Any:
    """What JAX gives for the loss of scale 2, transformed."""
    return transform(lambda params, x: loss(params, x, scale=2.0))


def vjp_of_jax(function: Any) -> Any:
    value, back = jax.vjp(function, *to_jax((PARAMS, X)))
    return value, back(jnp.ones(()))


ENTRY_POINTS: list[tuple[str, Callable[[TreeFunction], Any], Callable[[], Any]]] = [
    ("call", lambda f: f(PARAMS, X, scale=2.0), lambda: of_jax(lambda f: f(*to_jax((PARAMS, X))))),
    ("grad", lambda f: grad(f)(PARAMS, X, scale=2.0), lambda: of_jax(lambda f: jax.grad(f)(*to_jax((PARAMS, X))))),
    ("grad of several", lambda f: grad(f, (1, 0))(PARAMS, X, scale=2.0),
     lambda: of_jax(lambda f: jax.grad(f, (1, 0))(*to_jax((PARAMS, X))))),
    ("value and grad", lambda f: value_and_grad(f)(PARAMS, X, scale=2.0),
     lambda: of_jax(lambda f: jax.value_and_grad(f)(*to_jax((PARAMS, X))))),
    ("vjp", lambda f: vjp(f, (0, 1), with_outputs=True)(PARAMS, X, torch.ones(()), scale=2.0), lambda: of_jax(vjp_of_jax)),
    ("jvp", lambda f: jvp(f, 0)(PARAMS, X, TANGENT, scale=2.0),
     lambda: of_jax(lambda f: jax.jvp(lambda p: f(p, to_jax(X)), (to_jax(PARAMS),), (to_jax(TANGENT),)))),
    ("second order", lambda f: jvp(grad(f), 0)(PARAMS, X, TANGENT, scale=2.0)[1],
     lambda: of_jax(lambda f: jax.jvp(lambda p: jax.grad(f)(p, to_jax(X)), (to_jax(PARAMS),), (to_jax(TANGENT),))[1])),
    ("vmap", lambda f: vmap(f, 4, (None, 0))(PARAMS, XS, scale=torch.full((4,), 2.0)),
     lambda: of_jax(lambda f: jax.vmap(f, (None, 0))(*to_jax((PARAMS, XS))))),
    ("vmap of a part",
     lambda f: vmap(f, 4, ({"w": None, "b": 0}, 0))({"w": W, "b": XS[:, 0, :2]}, XS, scale=torch.full((4,), 2.0)),
     lambda: of_jax(lambda f: jax.vmap(f, ({"w": None, "b": 0}, 0))(*to_jax(({"w": W, "b": XS[:, 0, :2]}, XS))))),
    ("compile", lambda f: grad(compile(f, "aot_eager"))(PARAMS, X, scale=2.0),
     lambda: of_jax(lambda f: jax.grad(f)(*to_jax((PARAMS, X))))),
    ("torch.func.grad", lambda f: torch.func.grad(lambda p: f(p, X, scale=2.0))(PARAMS),
     lambda: of_jax(lambda f: jax.grad(f)(*to_jax((PARAMS, X))))),
    ("torch.func.vmap", lambda f: torch.func.vmap(lambda x: f(PARAMS, x, scale=2.0))(XS),
     lambda: of_jax(lambda f: jax.vmap(f, (None, 0))(*to_jax((PARAMS, XS))))),
    ("torch.compile", lambda f: torch.compile(lambda p: f(p, X, scale=2.0) * 1, backend="eager")(PARAMS),
     lambda: of_jax(lambda f: f(*to_jax((PARAMS, X))))),
    ("double precision", lambda f: f(*jax.tree_util.tree_map(torch.Tensor.double, (PARAMS, X)), scale=2.0),
     lambda: of_jax(lambda f: f(*to_jax((PARAMS, X))))),
    ("a training step", lambda f: training_step(f, training.sgd(0.1))(PARAMS, X, *training.sgd(0.1).init(PARAMS), scale=2.0)[:2],
     lambda: of_jax(lambda f: (f(*to_jax((PARAMS, X))), jax.tree_util.tree_map(
         lambda p, g: p - 0.1 * g, to_jax(PARAMS), jax.grad(f)(*to_jax((PARAMS, X))))))),
]


@pytest.mark.parametrize(("ours", "theirs"), [d[1:] for d in ENTRY_POINTS], ids=[d[0] for d in ENTRY_POINTS])
def test_every_entry_point_takes_it(ours: Callable[[TreeFunction], Any], theirs: Callable[[], Any]):
    agree(ours(traced()), theirs())


def test_every_entry_point_takes_a_pickled_one():
    function = pickle.loads(pickle.dumps(traced()))
    for name, ours, theirs in ENTRY_POINTS:
        if name in ("grad", "jvp", "vmap"):
            agree(ours(function), theirs())


def test_leaves_without_gradients_are_none_in_vjp():
    function = from_jax(lambda p: {"out": p["w"] * p["n"], "n": p["n"]}, {"w": W, "n": 3})
    gradients, = vjp(function)({"w": W, "n": 3}, {"out": W, "n": None})
    assert gradients["n"] is None
    torch.testing.assert_close(gradients["w"], W * 3)


WITHOUT_JAX = """
import pickle, sys
for name in ("jax", "jaxlib", "flax"):
    sys.modules[name] = None
import torch
from xla_torch import grad
function, module, params, x = pickle.load(sys.stdin.buffer)
x = torch.tensor(x)
module(x, scale=2.0).backward()
params = {k: torch.tensor(v, requires_grad=True) for k, v in params.items()}
value = function(params, x, scale=2.0)
value.backward()
torch.testing.assert_close(grad(function)(params, x, scale=2.0)["w"], params["w"].grad)
torch.testing.assert_close(module.w.grad, params["w"].grad)
assert type(module.to_jax()["w"]).__name__ == "ndarray"
print(f"{value.item():.4f}")
try:
    function({"w": 1}, x, scale=2.0)
except ValueError as error:
    print(error.what)
"""


def test_it_runs_where_jax_is_not_installed():
    given = pickle.dumps((traced(), XlaModule(traced(), PARAMS), {k: v.tolist() for k, v in PARAMS.items()}, X.tolist()))
    ran = subprocess.run([sys.executable, "-c", WITHOUT_JAX], input=given, capture_output=True, check=False)
    expected = float(loss(to_jax(PARAMS), to_jax(X), scale=2.0))
    printed = ran.stdout.decode().split("\n")
    assert printed[1:] == ["argument params.b is missing", ""], ran.stderr.decode()
    assert float(printed[0]) == pytest.approx(expected, abs=2e-4)


def test_states_of_flax_go_in_and_out():
    nnx = pytest.importorskip("flax.nnx")
    model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    graph, state = nnx.split(model)
    function = from_jax(lambda state, x: (nnx.merge(graph, state)(x), state), state, X)
    result, after = function(state, X)
    agree(result, model(to_jax(X)))
    assert type(after) is nnx.State
    kernel = torch.tensor(np.asarray(state["kernel"][...]), requires_grad=True)
    result, _ = function({"kernel": kernel, "bias": torch.zeros(2)}, X)
    result.sum().backward()
    assert kernel.grad is not None
    agree(from_jax(lambda model, x: model(x), model, X)(model, X), model(to_jax(X)))


def test_rebatching_an_argument():
    function = rebatch(from_jax(linear, {"w": W}, X, bias=B), 1, 7)
    x = torch.randn(7, 3)
    torch.testing.assert_close(function({"w": W}, x, bias=B), x @ W + B)


def test_keys_by_name_stay_keys_behind_more_arguments():
    function = from_jax(lambda x, *, key: x * jax.random.normal(key, x.shape), X, key=jax_key())
    noise = function(torch.ones_like(X), key=KEY)
    torch.testing.assert_close(vjp(function)(X, torch.ones_like(X), key=KEY)[0], noise)
    torch.testing.assert_close(vmap(function, 2)(torch.stack([X, X]), key=jax.random.split(jax_key()))[0],
                               function(X, key=jax.random.split(jax_key())[0]))


def test_other_entry_points_take_it():
    function = from_jax(linear, {"w": W}, X)
    assert torch.equal(run_replicas(function, [({"w": W}, X), ({"w": W}, 2 * X)], num_replicas=2)[1], 2 * function({"w": W}, X))
    builder = XlaBuilder("calls")
    operands = [builder.parameter(k, shape) for k, shape in enumerate(function.program_shape.parameters)]
    assert torch.equal(builder.build(ops.Call(builder, function, operands))(W, X), function({"w": W}, X))
    result, = function.run_numpy(W.numpy(), X.numpy())
    np.testing.assert_array_equal(result, function({"w": W}, X).numpy())


def test_a_static_value_that_a_pickle_loses():
    function = from_jax(lambda x, act: act(x), X, twice := lambda x: x * 2, static_argnums=1)
    agree(function(X, twice), 2 * to_jax(X))
    again = pickle.loads(pickle.dumps(function))
    agree(again(X), 2 * to_jax(X))
    with pytest.raises(InvalidArgument, match=r"(?s)argument act is static.*was not pickled.*leave it out"):
        again(X, lambda x: x * 3)


def test_a_train_state_of_flax_steps():
    train_state, optax = pytest.importorskip("flax.training.train_state"), pytest.importorskip("optax")

    def step(state: Any, x: Any) -> Any:
        value, gradients = jax.value_and_grad(lambda p: (state.apply_fn(p, x) ** 2).mean())(state.params)
        return state.apply_gradients(grads=gradients), value

    state = train_state.TrainState.create(apply_fn=linear, params={"w": jnp.asarray(W.numpy())}, tx=optax.adam(1e-2))
    function = from_jax(step, state, X)
    ours, theirs = state, state
    for _ in range(3):
        ours, value = function(ours, X)
        theirs, expected = step(theirs, to_jax(X))
        agree((value, ours.params), (expected, theirs.params))
    assert type(ours) is train_state.TrainState
    assert pickle.loads(pickle.dumps(function))(theirs, X)[0].params.keys() == {"w"}


def test_a_tree_that_does_not_fit_its_program():
    function = traced()
    with pytest.raises(errors.InvalidArgument, match="does not match the program"):
        TreeFunction(function.computation, function.out_tree, function.out_tree)
