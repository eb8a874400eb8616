"""What torch's own tools do with modules and programs: symbolic tracing, hooks, the meta device, vmap."""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.func import functional_call, grad, vmap

import xla_torch
from xla_torch.errors import InvalidArgument, NothingObserved, UnsupportedError
from xla_torch.nn import XlaModule
from xla_torch.storage.torch_private import pytree

TEXT = """HloModule product
ENTRY e {
  w = f32[4,3] parameter(0), metadata={op_name="params.Dense_0.kernel"}
  x = f32[2,4] parameter(1)
  d = f32[2,3] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[2,3] tanh(d)
}"""
PROGRAM = xla_torch.parse_hlo(TEXT)
FAMILY = xla_torch.from_stablehlo("""module @many { func.func public @main(%arg0: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.sine %arg0 : tensor<?xf32>
  return %0 : tensor<?xf32> } }""")
G = torch.Generator().manual_seed(0)
W, X, BATCH = (torch.randn(*s, generator=G) for s in ((4, 3), (2, 4), (5, 2, 4)))


def module() -> XlaModule:
    return XlaModule(PROGRAM, {0: W})


def of_trees() -> XlaModule:
    return XlaModule.from_jax(lambda p, d: {"y": d["x"] @ p["Dense_0"]["kernel"]}, {"Dense_0": {"kernel": W.numpy()}},
                              {"x": X.numpy()})


# ------------------------------------------------------------------------------------------------ symbolic tracing


class Net(torch.nn.Module):
    def __init__(self, call: Callable[[Net, torch.Tensor], torch.Tensor]):
        super().__init__()
        self.inner, self.trees, self.call = module(), of_trees(), call
        self.w, self.head = torch.nn.Parameter(W.clone()), torch.nn.Linear(3, 2)

    def forward(self, x):  # torch.fx pickles no annotations that are text
        return self.head(self.call(self, x))


def by_name(net: Net, x: torch.Tensor) -> torch.Tensor:
    return net.inner(x=x)


def in_a_tree(net: Net, x: torch.Tensor) -> torch.Tensor:
    return net.trees({"x": x})["y"]


def plain(net: Net, x: torch.Tensor) -> torch.Tensor:
    return PROGRAM(net.w, x) + PROGRAM(x=x * 2, w=net.w)


def of_jax(net: Net, x: torch.Tensor) -> torch.Tensor:
    return TREES([x, net.w])["y"]


def many(net: Net, x: torch.Tensor) -> torch.Tensor:
    return FAMILY(x.flatten()).view(2, 4) @ net.w


TREES = xla_torch.from_jax(lambda a: {"y": a[0] @ a[1]}, [X.numpy(), W.numpy()])


def inner(net: Net, x: torch.Tensor) -> torch.Tensor:
    return torch.relu(net.inner(x))


@pytest.mark.parametrize("call", [inner, by_name, in_a_tree, plain, of_jax, many])
@pytest.mark.parametrize("change", [lambda g: g, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))],
                         ids=["itself", "copied", "pickled"])
def test_symbolic_trace(call: Any, change: Any) -> None:
    """One call of a module in the graph, which has the values and gradients of what was traced, and trains."""
    net, names = Net(call), set(Net(call).state_dict())
    traced = change(torch.fx.symbolic_trace(net))
    assert {n.op for n in traced.graph.nodes if "xla" in n.name or n.target in ("inner", "trees")} == {"call_module"}
    torch.testing.assert_close(traced(X), net(X), rtol=0, atol=0)
    traced(X).square().sum().backward()
    found = {name: p.grad.clone() for name, p in traced.named_parameters() if p.grad is not None}
    net.zero_grad()
    net(X).square().sum().backward()
    assert set(found) == {name for name, p in net.named_parameters() if p.grad is not None}
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, net.get_parameter(name).grad, rtol=0, atol=0)
    assert set(net.state_dict()) == names
    before = traced(X).square().sum().item()
    torch.optim.SGD(traced.parameters(), 0.01).step()
    assert traced(X).square().sum().item() < before


def test_a_module_alone_is_no_graph() -> None:
    with pytest.raises(UnsupportedError, match=r"(?s)stands alone.*XlaModule.*lowered"):
        torch.fx.symbolic_trace(module())


# ------------------------------------------------------------------------------------------------ hooks


KINDS = ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
         "register_full_backward_pre_hook", "register_backward_hook"]


def group(model: XlaModule) -> torch.nn.Module:
    return next(child for name, child in model.named_modules() if name.endswith("Dense_0"))


@pytest.mark.parametrize("kind", KINDS)
def test_hooks_of_groups_warn_that_they_are_not_called(kind: str) -> None:
    model = of_trees()
    with pytest.warns(NothingObserved, match=r"(?s)never called.*xla_torch\.debug\.trace"):
        handle = getattr(group(model), kind)(lambda *_: None)
    handle.remove()
    getattr(model, kind)(lambda *_: None)  # without a word


def test_hooks_of_the_module_and_of_tensors_are_called() -> None:
    model, seen = module(), []
    parameter = next(model.parameters())
    model.register_forward_pre_hook(lambda _, given: (given[0] * 2,))
    model.register_forward_hook(lambda _, given, result: seen.append("forward") or result + 1)
    model.register_full_backward_pre_hook(lambda _, ct: seen.append("before"))
    model.register_full_backward_hook(lambda _, into, ct: seen.append(("back", into[0].shape, ct[0].shape)))
    parameter.register_hook(lambda gradient: gradient * 3)
    x = X.clone().requires_grad_()
    y = model(x)
    torch.testing.assert_close(y, torch.tanh(X * 2 @ W) + 1)
    y.sum().backward()
    assert seen == ["forward", "before", ("back", (2, 4), (2, 3))]
    own, given = W.clone().requires_grad_(), X.clone().requires_grad_()
    torch.tanh(given * 2 @ own).sum().backward()
    assert own.grad is not None
    torch.testing.assert_close(parameter.grad, 3 * own.grad)
    torch.testing.assert_close(x.grad, given.grad)


# ------------------------------------------------------------------------------------------------ the meta device


@contextlib.contextmanager
def empty_weights() -> Iterator[None]:
    """As accelerate's init_empty_weights does it."""
    before = torch.nn.Module.register_parameter

    def register(self: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None) -> None:
        before(self, name, parameter)
        if parameter is not None:
            self._parameters[name] = torch.nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)

    torch.nn.Module.register_parameter = register  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = before


def moved() -> XlaModule:
    return module().to("meta")


def under_device() -> XlaModule:
    with torch.device("meta"):
        return module()


def emptied() -> XlaModule:
    with empty_weights():
        return module()


def given() -> XlaModule:
    return XlaModule(PROGRAM, {0: W.to("meta")})


@pytest.mark.parametrize("make", [moved, under_device, emptied, given])
@pytest.mark.parametrize("fill", [
    lambda m, state: m.to_empty(device="cpu").load_state_dict(state),
    lambda m, state: m.load_state_dict(state, assign=True),
], ids=["to_empty", "assign"])
def test_modules_without_data(make: Any, fill: Any) -> None:
    model = make()
    name, parameter = next(iter(model.named_parameters()))
    assert parameter.is_meta
    x = X.to("meta").requires_grad_()
    y = model(x)
    assert (y.device.type, y.shape, y.dtype) == ("meta", (2, 3), torch.float32)
    y.sum().backward()
    assert x.grad is not None
    assert parameter.grad is not None
    assert (x.grad.shape, parameter.grad.shape, parameter.grad.device.type) == ((2, 4), (4, 3), "meta")
    fill(model, {name: W})
    model.zero_grad()
    model(X).sum().backward()
    torch.testing.assert_close(model(X), torch.tanh(X @ W))
    torch.testing.assert_close(model.get_parameter(name).grad, grad(lambda w: torch.tanh(X @ w).sum())(W))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_what_is_assigned_says_the_precision(dtype: torch.dtype) -> None:
    model = torch.nn.Sequential(moved())
    model.load_state_dict({"0." + name: W.to(dtype) for name in moved().state_dict()}, assign=True)
    found = model(X.to(dtype))
    assert found.dtype is dtype
    torch.testing.assert_close(found.float(), torch.tanh(X @ W), rtol=2e-2, atol=2e-2)
    model.float()
    assert model(X).dtype is torch.float32


LOOP = """HloModule d
b { t = (s32[], s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(t), index=0 n = s32[] get-tuple-element(t), index=1
  x = f32[4] get-tuple-element(t), index=2 o = s32[] constant(1) j = s32[] add(i, o) y = f32[4] add(x, x)
  ROOT r = (s32[], s32[], f32[4]) tuple(j, n, y) }
c { t = (s32[], s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(t), index=0 n = s32[] get-tuple-element(t), index=1
  ROOT p = pred[] compare(i, n), direction=LT }
ENTRY e { n = s32[] parameter(0) x = f32[4] parameter(1) z = s32[] constant(0) i = (s32[], s32[], f32[4]) tuple(z, n, x)
  w = (s32[], s32[], f32[4]) while(i), condition=c, body=b ROOT r = f32[4] get-tuple-element(w), index=2 }"""
DRAWS = """HloModule r
ENTRY e { x = f32[3] parameter(0) a = f32[] constant(0) b = f32[] constant(1)
  u = f32[3] rng(a, b), distribution=rng_uniform ROOT r = f32[3] add(x, u) }"""
TWO = """HloModule t
ENTRY e { x = f32[2,4] parameter(0) s = s32[2,4] convert(x) p = pred[2,4] compare(x, x), direction=EQ
  q = (pred[2,4], f32[2,4]) tuple(p, x) ROOT r = (s32[2,4], (pred[2,4], f32[2,4])) tuple(s, q)
}"""


@pytest.mark.parametrize(("text", "given"), [
    (TEXT, (W, X)), (LOOP, (torch.tensor(3, dtype=torch.int32), torch.ones(4))), (DRAWS, (torch.ones(3),)), (TWO, (X,))],
    ids=["product", "a loop until a number says so", "draws", "trees"])
def test_shapes_and_types_of_any_program(text: str, given: tuple[torch.Tensor, ...]) -> None:
    program = xla_torch.parse_hlo(text)
    found, want = program(*(a.to("meta") for a in given)), program(*given)
    for have, real in zip(pytree.tree_leaves(found), pytree.tree_leaves(want), strict=True):
        assert (have.device.type, have.shape, have.dtype) == ("meta", real.shape, real.dtype)


# ------------------------------------------------------------------------------------------------ vmap


def reference(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ w)


WS = torch.randn(5, 4, 3, generator=G)
VMAPS: list[tuple[tuple[torch.Tensor, torch.Tensor], Any, dict[str, Any]]] = [
    ((W, BATCH), (None, 0), {}),
    ((WS, BATCH.movedim(0, 1)), (0, 1), {"out_dims": 1}),
    ((W, BATCH.movedim(0, -1)), (None, -1), {"out_dims": -1}),
    ((WS.movedim(0, 2), BATCH.movedim(0, 1)), (-1, -2), {}),
    ((WS, BATCH), 0, {"chunk_size": 2}),
    ((WS, X), (0, None), {"chunk_size": 1, "out_dims": 2}),
]


@pytest.mark.parametrize(("given", "in_dims", "options"), VMAPS)
def test_vmap_of_torch(given: tuple[torch.Tensor, torch.Tensor], in_dims: Any, options: dict[str, Any]) -> None:
    found, want = (vmap(f, in_dims=in_dims, **options) for f in (PROGRAM, reference))
    torch.testing.assert_close(found(*given), want(*given))
    back, expected = (grad(lambda w, x, f=f: f(w, x).square().sum(), argnums=(0, 1))(*given) for f in (found, want))
    torch.testing.assert_close(back, expected)


@pytest.mark.parametrize(("given", "in_axes"), [(g, d) for g, d, o in VMAPS[:5]])
def test_vmap_of_ours(given: tuple[torch.Tensor, torch.Tensor], in_axes: Any) -> None:
    torch.testing.assert_close(xla_torch.vmap(PROGRAM, 5, in_axes)(*given), vmap(reference, in_axes)(*given))


@pytest.mark.parametrize("axis", [3, -4])
def test_axes_that_are_none(axis: int) -> None:
    with pytest.raises(InvalidArgument, match="-3 to 2"):
        xla_torch.vmap(PROGRAM, 5, (None, axis))


def test_negative_axes_of_trees() -> None:
    found = xla_torch.vmap(TREES, 5, ([-1, None],))([BATCH.movedim(0, -1), W])["y"]
    torch.testing.assert_close(found, BATCH @ W)


def test_vmap_of_modules() -> None:
    model = module()
    torch.testing.assert_close(vmap(model, in_dims=-1)(BATCH.movedim(0, -1)), reference(W, BATCH))
    trees = of_trees()
    found = vmap(trees, in_dims=({"x": 1},))({"x": BATCH.movedim(0, 1)})
    torch.testing.assert_close(found["y"], BATCH @ W)


def test_gradients_of_each_example_and_ensembles() -> None:
    model = module()
    name, _ = next(iter(model.named_parameters()))

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return functional_call(model, parameters, (x,)).square().sum()

    found = vmap(grad(loss), in_dims=(None, 0))({name: W}, BATCH)[name]
    want = torch.stack([grad(lambda w, x=x: reference(w, x).square().sum())(W) for x in BATCH])
    torch.testing.assert_close(found, want)
    several = vmap(lambda p, x: functional_call(model, p, (x,)), in_dims=({name: 0}, None))({name: WS}, X)
    torch.testing.assert_close(several, torch.stack([reference(w, X) for w in WS]))


OWN = """HloModule o
ENTRY e { b = f32[] parameter(0) a = f32[] constant(0) ROOT u = f32[3] rng(a, b), distribution=rng_uniform }"""


@pytest.mark.parametrize(("text", "given", "randomness", "rows"), [
    (DRAWS, torch.zeros(4, 3), "same", 1), (DRAWS, torch.zeros(4, 3), "different", 4), (OWN, torch.ones(4), "different", 4),
    (DRAWS, torch.zeros(4, 3), "error", "was not told"), (OWN, torch.ones(4), "same", "of its own"),
    (OWN, torch.ones(4), "error", "was not told")])
def test_whose_random_numbers(text: str, given: torch.Tensor, randomness: str, rows: int | str) -> None:
    call = vmap(xla_torch.parse_hlo(text), randomness=randomness)
    if isinstance(rows, str):
        with pytest.raises(UnsupportedError, match=f"(?s){rows}.*randomness="):
            call(given)
    else:
        assert len(np.unique(call(given).numpy(), axis=0)) == rows


# ------------------------------------------------------------------------------------------------ ExecuTorch


@pytest.mark.filterwarnings("ignore")  # their own
def test_executorch() -> None:
    """Exported without gradients, which ExecuTorch has no words for."""
    exir, runtime = pytest.importorskip("executorch.exir"), pytest.importorskip("executorch.runtime")
    with torch.no_grad():
        exported = torch.export.export(module(), (X,))
    program = runtime.Runtime.get().load_program(exir.to_edge(exported).to_executorch().buffer)
    torch.testing.assert_close(program.load_method("forward").execute([X]), [torch.tanh(X @ W)])
