"""Weights by name: where they come from, what they are called, and how they go back. The oracle is JAX itself."""

from __future__ import annotations

import copy
import functools
import io
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from xla_torch import from_jax, parse_hlo
from xla_torch.errors import InvalidArgument, MissingDependency
from xla_torch.nn import XlaModule
from xla_torch.pytree.parameter_paths import paths

jax: Any = pytest.importorskip("jax")
jnp: Any = jax.numpy


@pytest.fixture(autouse=True)
def as_jax_is_by_default() -> Iterator[None]:
    with jax.enable_x64(False):
        yield


RNG = np.random.default_rng(0)
TREE: dict[str, Any] = {
    "params": {"Dense_0": {"kernel": RNG.normal(size=(3, 2)).astype(np.float32), "bias": np.ones(2, np.float32)},
               "layers": [{"scale": RNG.normal(size=2).astype(jnp.bfloat16)}, {"scale": np.full(2, 0.1, jnp.bfloat16)}]},
    "stats": {"mean": np.full(2, 0.5, np.float32)}, "steps": np.int32(3),
}
NAMES = ["params.Dense_0.bias", "params.Dense_0.kernel", "params.layers.0.scale", "params.layers.1.scale", "stats.mean", "steps"]
X = torch.randn(5, 3)


def apply(variables: Any, x: Any) -> Any:
    dense, layers = variables["params"]["Dense_0"], variables["params"]["layers"]
    out = x @ dense["kernel"] + dense["bias"] - variables["stats"]["mean"]
    return (out * layers[0]["scale"] + layers[1]["scale"]) * variables["steps"]


def by_name(tree: Any = TREE) -> dict[str, Any]:
    return dict(zip(NAMES, jax.tree_util.tree_leaves(tree), strict=True))


def to_torch(array: Any) -> torch.Tensor:
    array = np.asarray(array)
    return torch.tensor(array.view(np.int16)).view(torch.bfloat16) if array.dtype == jnp.bfloat16 else torch.tensor(array)


@functools.cache
def function() -> Any:
    return from_jax(apply, TREE, X)


@functools.cache
def program() -> Any:
    """The same as a program from a file: its text, with the places of its parameters as op_names."""
    return parse_hlo(function().computation.to_hlo_text())


def made(given: Any = TREE, **options: Any) -> XlaModule:
    return XlaModule(function(), given, buffers=["stats"], **options)


def same(got: Any, expected: Any = TREE) -> None:
    ours, own = jax.tree_util.tree_flatten(got)
    theirs, treedef = jax.tree_util.tree_flatten(expected)
    assert own == treedef
    for a, b in zip(ours, theirs, strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def agrees(module: XlaModule) -> None:
    expected = apply(jax.tree_util.tree_map(jnp.asarray, TREE), jnp.asarray(X.numpy()))
    np.testing.assert_allclose(module(X).detach().numpy(), expected, rtol=1e-6, atol=1e-6)


def saved(tmp_path: Path, kind: str) -> Path:
    if kind == "safetensors":
        library = pytest.importorskip("safetensors.numpy")
        library.save_file({n: np.asarray(v) for n, v in by_name().items()}, tmp_path / "weights.safetensors")
        return tmp_path / "weights.safetensors"
    library = pytest.importorskip("orbax.checkpoint")
    with library.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "checkpoint", jax.tree_util.tree_map(jnp.asarray, TREE))
    return tmp_path / "checkpoint"


SOURCES: list[tuple[str, Callable[[Path], Any]]] = [
    ("a tree of NumPy", lambda _: TREE),
    ("a tree of JAX", lambda _: jax.tree_util.tree_map(jnp.asarray, TREE)),
    ("a tree of torch", lambda _: jax.tree_util.tree_map(to_torch, TREE)),
    ("a list of trees", lambda _: [TREE]),
    ("by number", lambda _: {0: TREE}),
    ("names", lambda _: by_name()),
    ("names of torch", lambda _: {n: to_torch(v) for n, v in by_name().items()}),
    ("a state dict", lambda _: made().state_dict()),
    ("safetensors", lambda path: saved(path, "safetensors")),
    ("orbax", lambda path: saved(path, "orbax")),
]


@pytest.mark.filterwarnings("ignore:Sharding info not provided")  # orbax says so of every restored array
@pytest.mark.parametrize("source", [s[1] for s in SOURCES], ids=[s[0] for s in SOURCES])
def test_sources(source: Callable[[Path], Any], tmp_path: Path):
    module = made(source(tmp_path))
    assert {*module.state_dict()} == {*NAMES}
    agrees(module)
    same(module.to_jax())
    same(module.to_numpy())


@pytest.mark.filterwarnings("ignore:Sharding info not provided")
@pytest.mark.parametrize("source", [s[1] for s in SOURCES if s[0] not in ("a list of trees", "by number")],
                         ids=[s[0] for s in SOURCES if s[0] not in ("a list of trees", "by number")])
def test_sources_of_a_program_from_a_file(source: Callable[[Path], Any], tmp_path: Path):
    module = XlaModule(program(), source(tmp_path), buffers=["stats"])
    assert {*module.state_dict()} == {*NAMES}
    agrees(module)
    same(module.to_numpy())


def test_a_file_of_numpy(tmp_path: Path):
    np.savez(tmp_path / "w.npz", **{"a/kernel": np.ones((3, 2), np.float32), "a/bias": np.ones(2, np.float32)})
    dense = from_jax(lambda p, x: x @ p["a"]["kernel"] + p["a"]["bias"], {"a": {"kernel": torch.ones(3, 2), "bias": X[0, :2]}}, X)
    module = XlaModule(dense, tmp_path / "w.npz")
    assert {*module.state_dict()} == {"a.kernel", "a.bias"}
    torch.testing.assert_close(module(X), X @ torch.ones(3, 2) + 1)


def test_what_is_trained():
    module = made()
    assert [n for n, _ in module.named_parameters()] == NAMES[:4]
    assert [n for n, _ in module.named_buffers()] == ["steps", "stats.mean"]
    assert {n: t.dtype for n, t in module.state_dict().items()}["params.layers.0.scale"] is torch.bfloat16
    module(X).sum().backward()
    assert all(p.grad is not None and p.grad.dtype is p.dtype for p in module.parameters())
    assert not [n for n, _ in XlaModule(function(), TREE, buffers=[0]).named_parameters()]


def test_state_is_saved_and_loaded():
    first, file = made(), io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = made(jax.tree_util.tree_map(np.zeros_like, TREE))
    second.load_state_dict(torch.load(file))
    for module in (second, copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        agrees(module)
        same(module.to_jax())


def test_without_jax_the_tree_is_of_numpy(monkeypatch: pytest.MonkeyPatch):
    module = made()
    monkeypatch.setitem(sys.modules, "jax.numpy", None)
    tree = module.to_jax()
    assert type(tree["params"]["Dense_0"]["kernel"]) is np.ndarray
    same(tree)


def test_one_parameter_in_two_places_is_one():
    tied = torch.nn.Parameter(torch.randn(3, 3))
    both = from_jax(lambda p, x: x @ p["in"] @ p["out"].T, {"in": tied.detach(), "out": tied.detach()}, X)
    module = XlaModule(both, {"in": tied, "out": tied})
    assert len([*module.parameters()]) == 1
    assert {*module.state_dict()} == {"in", "out"}
    module(X).sum().backward()
    one = tied.detach().clone().requires_grad_()
    (X @ one @ one.T).sum().backward()
    torch.testing.assert_close(module.get_parameter("in").grad, one.grad)
    apart = XlaModule(both, {"in": tied.detach(), "out": tied.detach()})
    assert len([*apart.parameters()]) == 2


def changed(name: str, value: Any) -> dict[str, Any]:
    return by_name() | {name: value}


def without(name: str) -> dict[str, Any]:
    return {n: v for n, v in by_name().items() if n != name}


ERRORS: list[tuple[str, Any, str]] = [
    ("shape", changed(NAMES[1], np.ones((2, 3), np.float32)),
     r"(?s)weight params\.Dense_0\.kernel has another shape.*f32\[2,3\]"),
    ("dtype", changed(NAMES[0], np.ones(2)), r"(?s)weight params\.Dense_0\.bias .*f64\[2\].*f32\[2\]"),
    ("narrower", changed(NAMES[0], torch.ones(2).half()), r"weight params\.Dense_0\.bias has another dtype"),
    ("no array", changed(NAMES[0], "x"), r"weight params\.Dense_0\.bias is not an array"),
    ("missing", without(NAMES[0]), r"weight params\.Dense_0\.bias is missing"),
    ("unknown", without(NAMES[0]) | {"params.Dense_0.bia": np.ones(2)},
     r"(?s)there is no weight params\.Dense_0\.bia\n.*did you mean params\.Dense_0\.bias\?"),
    ("another tree", {**TREE, "params": {"Dense_0": TREE["params"]["Dense_0"]}}, r"weight params\.layers is missing"),
    ("a file", "weights.bin", r"not a file of weights"),
]


@pytest.mark.parametrize(("given", "message"), [e[1:] for e in ERRORS], ids=[e[0] for e in ERRORS])
def test_errors_name_the_weight(given: Any, message: str):
    with pytest.raises(InvalidArgument, match=message):
        made(given)
    if "missing" not in message:  # of a program from a file, what is not given is an argument of the call
        with pytest.raises(InvalidArgument, match=message):
            XlaModule(program(), given)


def test_buffers_that_nothing_is_called():
    with pytest.raises(InvalidArgument, match="no weight has this name"):
        XlaModule(function(), TREE, buffers=["batch_stats"])


@pytest.mark.parametrize(("library", "name"), [("safetensors.torch", "w.safetensors"), ("orbax.checkpoint", "folder")])
def test_without_a_library_the_error_says_what_to_install(library: str, name: str, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, library, None)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "_METADATA").touch()
    with pytest.raises(MissingDependency, match=r"(?s)needs (safetensors|orbax-checkpoint).*xla_torch\[weights\]"):
        made(tmp_path / name)


PLACES: list[tuple[str, str, tuple[Any, ...]]] = [
    ("p__a__.1", "p['params']['Conv_0']['bias']", ("p", "params", "Conv_0", "bias")),
    ("p", "p[0]['it\\'s'].w", ("p", 0, "it's", "w")),
    ("s", "state['lin']['kernel'].value", ("state", "lin", "kernel")),
    ("s", "c[<flat index 1>]", ("c", 1)),
    ("p", "params['mlp/~/linear_0']['w']", ("params", "mlp/~/linear_0", "w")),
    ("p__params____Conv_0____bias__.1", "", ("p", "params", "Conv_0", "bias")),
    ("p__layers___0___w___1", "", ("p", "layers", 0, "w")),
    ("state__l___0_.1", "", ("state", "l", 0)),
    ("x.1", "x", ("x",)),
    ("x.1", "", ("x_1",)),
    ("Arg_0.1", "", ("Arg_0_1",)),
    ("w", "jit(f)/dot", ("w",)),
    ("w", "p[__import__('os')]", ("w",)),
    ("w", "p['a'", ("w",)),
]


@pytest.mark.parametrize(("name", "op_name", "path"), PLACES, ids=[f"{n} {o}" for n, o, _ in PLACES])
def test_places_of_parameters(name: str, op_name: str, path: tuple[Any, ...]):
    assert paths([name], [op_name]) == [path]


def test_places_that_are_not_unique_are_not_used():
    assert paths(["a", "b"], ["p['w']", "p['w']"]) == [("a",), ("b",)]


CLASHES: list[tuple[Any, list[str]]] = [
    ({"training": 1.0, "forward": 2.0, "x.y": 3.0, "": 4.0}, ["_", "forward_", "training_", "x_y"]),
    ({"computation": {"weight": 1.0}, "a": [{"train": 2.0}]}, ["a.0.train_", "computation_.weight"]),
    ({"a.b": 1.0, "a_b": 2.0, "a": {"b": 3.0}}, ["a.b", "a_b", "a_b_"]),
]


@pytest.mark.parametrize(("tree", "names"), CLASHES, ids=[str(n) for _, n in CLASHES])
def test_names_that_modules_have_already(tree: Any, names: list[str]):
    module = XlaModule(from_jax(lambda p: sum(jax.tree_util.tree_leaves(p)), tree), [jax.tree_util.tree_map(np.float32, tree)])
    assert sorted(module.state_dict()) == names
    assert module().item() == sum(jax.tree_util.tree_leaves(tree))
    assert jax.tree_util.tree_map(float, module.to_numpy()) == tree


WIDE = "ENTRY main { w = f32[8] parameter(0)\n i = s32[2] parameter(1)\n ROOT r = f32[2] gather(w, i), offset_dims={}, " \
       "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1} }"


def test_indices_of_data_loaders_are_narrowed():
    module = XlaModule(parse_hlo(WIDE), [torch.arange(8.0)])
    assert module(torch.tensor([3, 5])).tolist() == [3, 5]
    assert torch.compile(module, backend="eager")(torch.tensor([3, 5])).tolist() == [3, 5]
    with pytest.raises(InvalidArgument, match=r"argument 1 \(i\) has integers that do not fit"):
        module(torch.tensor([3, 2**40]))
    with pytest.raises(InvalidArgument, match=r"argument 1 \(i\) is wider"):
        XlaModule(parse_hlo(WIDE), [torch.arange(8.0)], narrows=False)(torch.tensor([3, 5]))
    with pytest.raises(InvalidArgument, match="has another dtype"):
        module(torch.tensor([3.0, 5.0]))


def test_modules_are_called_with_other_weights():
    module, other = made(), {n: torch.zeros_like(t) for n, t in made().state_dict().items()}
    assert torch.equal(torch.func.functional_call(module, other, (X,)), torch.zeros(5, 2))
    parameters, buffers = torch.func.stack_module_state([module, module])  # pyright: ignore[reportArgumentType]
    both = torch.func.vmap(lambda p, b: torch.func.functional_call(module, (p, b), (X,)))(parameters, buffers)
    torch.testing.assert_close(both[1], module(X))
    torch.testing.assert_close(torch.compile(module, backend="eager")(X), module(X))


# --------------------------------------------------------------------------------------------------- flax


def test_a_model_of_linen_trains_as_with_optax():
    linen, optax = pytest.importorskip("flax.linen"), pytest.importorskip("optax")

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            return linen.Dense(2)(linen.tanh(linen.Dense(4)(x)))

    net, x = Net(), jnp.asarray(X.numpy())
    variables = net.init(jax.random.key(0), x)

    def loss(variables: Any, x: Any) -> Any:
        return (net.apply(variables, x) ** 2).mean()

    module = XlaModule.from_jax(loss, variables, X)
    ours, theirs = torch.optim.SGD(module.parameters(), 0.1), optax.sgd(0.1)
    state = theirs.init(variables)
    for _ in range(3):
        ours.zero_grad()
        module(x=X).backward()
        ours.step()
        updates, state = theirs.update(jax.grad(loss)(variables, x), state)
        variables = optax.apply_updates(variables, updates)
    got = module.to_jax()
    assert next(n for n, _ in module.named_parameters()) == "params.Dense_0.bias"
    jax.tree_util.tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, variables)


def test_a_model_of_nnx_keeps_its_state():
    nnx = pytest.importorskip("flax.nnx")
    rngs = nnx.Rngs(0)
    model = nnx.Sequential(nnx.Linear(3, 4, rngs=rngs), nnx.BatchNorm(4, rngs=rngs), nnx.Dropout(0.5, rngs=nnx.Rngs(1)))
    module = XlaModule.from_nnx(model, X)
    assert [n for n, _ in module.named_parameters()] == [f"layers.{n}" for n in ("0.bias", "0.kernel", "1.bias", "1.scale")]
    assert [n for n, _ in module.named_buffers()] == [f"layers.{n}" for n in ("1.mean", "1.var", "2.rngs.count", "2.rngs.key")]
    for _ in range(2):
        result = module(X)
        np.testing.assert_allclose(result.detach().numpy(), model(jnp.asarray(X.numpy())), rtol=1e-5, atol=1e-5)
        result.sum().backward()
    np.testing.assert_allclose(module.get_buffer("layers.1.mean").numpy(), model.layers[1].mean[...], rtol=1e-5, atol=1e-6)
    assert module.get_buffer("layers.2.rngs.count").item() == 2
    state = module.to_jax()
    assert jax.tree_util.tree_structure(state) == jax.tree_util.tree_structure(nnx.state(model))
    nnx.update(model, state)
