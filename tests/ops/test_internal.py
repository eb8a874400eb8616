"""Ops of compiled programs: bitcast by layouts, copies in two halves, barriers, tokens, feeds and channels, custom calls."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.agreement import dtype_of
from support.oracle import HAS_XLA, needs_xla
from support.scaled_agreement import assert_close, random_array, run_one
from xla_torch import F32, S32, Layout, Shape, ops
from xla_torch.api.custom_calls import register_custom_call
from xla_torch.distributed import feeds
from xla_torch.errors import ExecutionError, InvalidArgument, UnsupportedError
from xla_torch.hlo import custom_calls
from xla_torch.hlo.backend_config import parse_config
from xla_torch.hlo.custom_calls import CustomCall

if HAS_XLA:
    import jax
    import jax.numpy as jnp
    from jax.scipy import linalg as jax_linalg

# --------------------------------------------------------------------------------------------- bitcast

BITCASTS = [
    ("f32[2,3]{1,0}", "f32[3,2]{1,0}"), ("f32[2,3]{1,0}", "f32[3,2]{0,1}"), ("f32[2,3]{1,0}", "f32[2,3]{0,1}"),
    ("f32[2,3,2]{1,2,0}", "f32[4,3]{0,1}"), ("f32[2,3]{0,1}", "f32[6]{0}"), ("f32[3,2]{1,0}", "f32[2,3,1]{0,2,1}"),
    ("f32[2,3]{1,0}", "f32[2,1,3]{0,1,2}"), ("f32[1]{0}", "f32[]"), ("f32[2,3]{0,1}", "s32[2,3]{0,1}"),
    ("s32[2]{0}", "s16[4]{0}"), ("s32[2,2]{0,1}", "s8[2,2,4]{2,0,1}"), ("bf16[4]{0}", "u16[4]{0}"),
]


def in_memory(array: np.ndarray, shape: Shape) -> np.ndarray:
    return np.ascontiguousarray(array.transpose(shape.minor_to_major[::-1])).reshape(-1)


@pytest.mark.parametrize(("given", "result"), BITCASTS)
def test_bitcast_reads_memory_in_the_results_order(given: str, result: str) -> None:
    source, target = Shape.parse(given), Shape.parse(result)
    array = random_array(given)
    got, = run_one(f"{result} bitcast(p0)", [given], array)
    assert (got.shape, got.dtype) == (target.dimensions, target.element_type.numpy)
    assert in_memory(got, target).tobytes() == in_memory(array, source).tobytes()


NARROW = [("u8[3]", "s4[6]"), ("s4[6]", "u8[3]"), ("f8e4m3fn[4]", "u8[2,2]"), ("u32[2]", "f8e5m2[8]"),
          ("f4e2m1fn[2,4]", "u16[2]"), ("s2[8]", "u16[1]"), ("s4[2,4]", "u4[8]"), ("u4[2,2]", "f8e5m2[2]"), ("c64[2]", "u8[16]")]


@pytest.mark.parametrize(("given", "result"), NARROW)
def test_bitcast_of_narrow_types(given: str, result: str) -> None:
    """As bitcast-convert, of the elements one after another: there narrow elements lie low part first."""
    source, target = Shape.parse(given), Shape.parse(result)
    size = max(source.element_type.bits // 8, 1)
    raw = np.random.default_rng(0).integers(0, 1 << min(source.element_type.bits, 8), source.element_count * size, np.uint8)
    array = raw.view(dtype_of(source.element_type.text)).reshape(source.dimensions)
    got, = run_one(f"{result} bitcast(p0)", [given], array)
    assert got.shape == target.dimensions
    assert packed_bits(got, target) == packed_bits(array, source)


def packed_bits(array: np.ndarray, shape: Shape) -> list[int]:
    """All bits of the elements, low ones first."""
    bits = np.unpackbits(np.ascontiguousarray(array).reshape(-1, 1).view(np.uint8), axis=1, bitorder="little")
    return bits[:, :shape.element_type.bits].reshape(-1).tolist()


def test_bitcast_refuses_another_size() -> None:
    with pytest.raises(InvalidArgument, match="another size"):
        run_one("f32[7] bitcast(p0)", ["f32[2,3]"])


# --------------------------------------------------------------------------------------------- identities

IDENTITIES = [
    "t = token[] after-all()\n  r = f32[4] add-dependency(p0, t)",
    "s = (f32[4], f32[4], u32[]) copy-start(p0)\n  r = f32[4] copy-done(s)",
    "r = f32[4] opt-barrier(p0)",
    "a = (f32[4], (f32[4])) tuple(p0, t0)\n  b = (f32[4], (f32[4])) opt-barrier(a)\n  r = f32[4] get-tuple-element(b), index=0",
    'r = f32[4] domain(p0), domain={kind="sharding", entry={maximal device=0}, exit={maximal device=1}}',
]


@pytest.mark.parametrize("lines", IDENTITIES)
def test_identities(lines: str) -> None:
    *before, root = lines.split("\n")
    text = "\n".join(["HloModule m", "ENTRY e {", "  p0 = f32[4] parameter(0)", "  t0 = (f32[4]) tuple(p0)", *before,
                      "  ROOT " + root.strip(), "}"])
    array = np.arange(4, dtype="f")
    np.testing.assert_array_equal(xla_torch.parse_hlo(text).run_numpy(array)[0], array)


# --------------------------------------------------------------------------------------------- tokens, feeds, channels


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "timeout", 5.0)
    feeds.clear()


def build_echo() -> xla_torch.XlaComputation:
    """Twice what is fed, to the host and as the result."""
    shape = Shape.array(F32, (3,), layout=Layout((0,)))
    builder = xla_torch.XlaBuilder("echo")
    data = ops.Infeed(builder, shape)
    doubled = ops.Add(data, data)
    ops.Outfeed(doubled, shape)
    return builder.build(doubled)


def test_infeed_and_outfeed() -> None:
    program = build_echo()
    feeds.feed(torch.tensor([1.0, 2, 3]))
    feeds.feed(torch.tensor([4.0, 5, 6]))
    assert program().tolist() == [2, 4, 6]
    assert program().tolist() == [8, 10, 12]
    assert feeds.fetch()[0].tolist() == [2, 4, 6]
    assert feeds.fetch()[0].tolist() == [8, 10, 12]


def test_infeed_of_a_tuple() -> None:
    builder = xla_torch.XlaBuilder("pair")
    both = ops.Infeed(builder, Shape.tuple([Shape.array(F32, (2,), layout=Layout((0,))), Shape.array(xla_torch.U32)]))
    feeds.feed(torch.tensor([1.0, 2]), torch.tensor(4000000000, dtype=torch.uint32))
    x, n = builder.build(both)()
    assert x.tolist() == [1, 2]
    assert n.item() == 4000000000


def test_waiting_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "timeout", 0.05)
    with pytest.raises(ExecutionError, match="infeed waited"):
        build_echo()()
    with pytest.raises(ExecutionError, match="fetch waited"):
        feeds.fetch()


def test_feeding_another_shape() -> None:
    feeds.feed(torch.zeros(4))
    with pytest.raises(ExecutionError, match="another shape or dtype"):
        build_echo()()


def test_host_channels() -> None:
    shape = Shape.array(F32, (2,), layout=Layout((0,)))
    builder = xla_torch.XlaBuilder("host")
    pair = ops.RecvFromHost(ops.CreateToken(builder), shape, ops.ChannelHandle(1, ops.ChannelType.HOST_TO_DEVICE))
    data, token = ops.GetTupleElement(pair, 0), ops.GetTupleElement(pair, 1)
    ops.SendToHost(ops.Neg(data), token, shape, ops.ChannelHandle(2, ops.ChannelType.DEVICE_TO_HOST))
    program = builder.build(data)
    feeds.send(1, torch.tensor([1.0, 2]))
    assert program().tolist() == [1, 2]
    assert feeds.receive(2).tolist() == [-1, -2]


def test_channels_between_programs() -> None:
    """Two programs on two threads: one sends, the other receives."""
    sender, receiver = xla_torch.XlaBuilder("sender"), xla_torch.XlaBuilder("receiver")
    ops.Send(sender.parameter(0, Shape.parse("u16[2]")), 7)
    taken = ops.Recv(receiver, Shape.parse("u16[2]"), 7)
    values = torch.tensor([1, 65535], dtype=torch.uint16)
    thread = threading.Thread(target=sender.build(sender.constant(0)), args=(values,))
    thread.start()
    assert receiver.build(taken)().tolist() == [1, 65535]
    thread.join()


TOKEN_REFUSALS = [
    (lambda b: ops.AfterAll(b, [b.constant(1.0)]), "operand 0 is not a token"),
    (lambda b: ops.Infeed(b, Shape.parse("f32[2]")), "must have a layout"),
    (lambda b: ops.Outfeed(b.parameter(0, Shape.parse("f32[2]")), Shape.parse("f32[2]")), "must have a layout"),
    (lambda b: ops.Outfeed(b.parameter(0, Shape.parse("f32[2]")), Shape.parse("f32[3]{0}")), "is not the operand's"),
    (lambda b: ops.Infeed(b, Shape.parse("((f32[]))")), "no flat tuple of arrays"),
    (lambda b: ops.Send(b.constant(1.0), ops.ChannelHandle(1, ops.ChannelType.DEVICE_TO_HOST)), "channel of the wrong type"),
    (lambda b: b.add("send-done", [b.constant(1.0)], {"channel_id": 1}), "not the result of a send"),
    (lambda b: b.add("recv-done", [b.constant(1.0)], {"channel_id": 1}), "not the result of a recv"),
    (lambda b: b.add("add-dependency", [b.constant(1.0), b.constant(1.0)]), "not a token"),
    (lambda b: b.add("copy-done", [b.constant(1.0)]), "not the result of copy-start"),
    (lambda b: ops.CustomCall(b, "$mine", [], Shape.parse("f32[]")), "reserved"),
]


@pytest.mark.parametrize(("build", "what"), TOKEN_REFUSALS)
def test_refusals(build, what: str) -> None:
    with pytest.raises(InvalidArgument, match=what):
        build(xla_torch.XlaBuilder("refused"))


# --------------------------------------------------------------------------------------------- custom calls


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registrations of a test end with it."""
    monkeypatch.setattr(custom_calls, "_registered", dict(custom_calls._registered))


def custom(result: str, operands: list[str], target: str, config: str = "") -> xla_torch.XlaComputation:
    builder = xla_torch.XlaBuilder("custom")
    parameters = [builder.parameter(k, Shape.parse(s)) for k, s in enumerate(operands)]
    return builder.build(ops.CustomCall(builder, target, parameters, Shape.parse(result), config))


@pytest.mark.usefixtures("registered")
def test_myfunc_of_the_document() -> None:
    """z[i][j] = x[1] + y[1][0], as in the document's example."""
    register_custom_call("myfunc", lambda x, y: (x[1] + y[1][0]).expand(3, 3))
    x, y = torch.tensor([1.0, 2]), torch.tensor([[10.0, 20, 30], [40, 50, 60]])
    assert custom("f32[3,3]", ["f32[2]", "f32[2,3]"], "myfunc")(x, y)[0, 0] == 42


@pytest.mark.usefixtures("registered")
def test_functions_see_boundary_types_and_the_call() -> None:
    seen = []

    def function(x: torch.Tensor, *, call: CustomCall) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append((x.dtype, call.target, call.config))
        return x, x.to(torch.float32)

    register_custom_call("both", function)
    program = custom("(u32[2], f32[2])", ["u32[2]"], "both", "{k = 3 : i64}")
    first, second = program(torch.tensor([1, 4000000000], dtype=torch.uint32))
    assert seen == [(torch.uint32, "both", {"k": 3})]
    assert first.tolist() == second.tolist() == [1, 4000000000]


@pytest.mark.usefixtures("registered")
def test_a_wrong_result_is_an_error() -> None:
    register_custom_call("wrong", lambda x: x[:1])
    with pytest.raises(ExecutionError, match="another result than the program declares"):
        custom("f32[2]", ["f32[2]"], "wrong")(torch.zeros(2))


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("vjp", [None, lambda ct, out, x, n: (3 * ct * x * x, None)])
def test_gradients_of_custom_calls(vjp) -> None:
    """By torch's autograd through the function, or by the registered rule."""
    register_custom_call("cube", lambda x, n: x ** 3, vjp)
    builder = xla_torch.XlaBuilder("loss")
    x, n = builder.parameter(0, Shape.parse("f64[3]")), builder.parameter(1, Shape.parse("s32[]"))
    program = builder.build(ops.CustomCall(builder, "cube", [x, n], Shape.parse("f64[3]")))
    leaf = torch.tensor([1.0, 2, 3], dtype=torch.float64, requires_grad=True)
    program(leaf, torch.tensor(1, dtype=torch.int32)).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [3, 12, 27]


def test_unknown_targets_are_listed_at_once() -> None:
    builder = xla_torch.XlaBuilder("unknown")
    x = builder.parameter(0, Shape.parse("f32[2]"))
    y = ops.CustomCall(builder, "second", [ops.CustomCall(builder, "first", [x], x.shape)], x.shape)
    program = builder.build(y)
    with pytest.raises(UnsupportedError, match="no function is registered for these custom calls") as raised:
        program(torch.zeros(2))
    assert raised.value.got == "first (1 call), second (1 call)"


CONFIGS = [
    ("", {}), ("opaque", {}), ('{"a": [1, 2]}', {"a": [1, 2]}), ("{}", {}),
    ("{uplo = 76 : ui8}", {"uplo": 76}),
    ('{name = "x, y", flag, deep = {k = 1.5 : f32}}', {"name": "x, y", "flag": True, "deep": {"k": 1.5}}),
    ("{dims = array<i64: 1, 2>, list = [3 : i32, true], other = dense<1>}",
     {"dims": [1, 2], "list": [3, True], "other": "dense<1>"}),
]


@pytest.mark.parametrize(("text", "config"), CONFIGS)
def test_configurations(text: str, config: dict) -> None:
    assert parse_config(text) == config


# --------------------------------------------------------------------------------------------- LAPACK, as JAX calls it


def jax_rows() -> list:
    """JAX functions of well-conditioned matrices, in forms that do not depend on signs of eigenvectors."""
    if not HAS_XLA:
        return []
    a = random_array("f32[4,4]")
    s = (a @ a.T + 4 * np.eye(4)).astype("f")
    c = (a + 1j * random_array("f32[4,4]", 1)).astype("c8")
    b = random_array("f32[2,5,3]")

    def singular(x: Any) -> Any:
        u, d, v = jnp.linalg.svd(x, full_matrices=False)
        return d, (u * d[..., None, :]) @ v

    def hermitian(x: Any) -> Any:
        w, v = jnp.linalg.eigh(x)
        return w, (v * w) @ v.T

    def general(x: Any) -> Any:
        w, v = jnp.linalg.eig(x)
        return (v * w[jnp.newaxis]) @ jnp.linalg.inv(v)

    return [
        ("cholesky", jnp.linalg.cholesky, (np.stack([s, -s]),)),
        ("qr", jnp.linalg.qr, (b,)), ("qr complex", jnp.linalg.qr, (c,)),
        ("svd", singular, (b,)),
        ("svd whole", lambda x: jnp.linalg.svd(x, full_matrices=True)[1], (b,)),
        ("svd values", lambda x: jnp.linalg.svd(x, compute_uv=False), (b,)),
        ("eigh", hermitian, (s,)),
        ("eigvalsh", jnp.linalg.eigvalsh, (c + c.conj().T,)),
        ("lu", jax_linalg.lu_factor, (np.stack([a, s]),)),
        ("solve", jnp.linalg.solve, (a, np.ones(4, "f"))), ("inv", jnp.linalg.inv, (c,)), ("slogdet", jnp.linalg.slogdet, (s,)),
        ("eig", general, (a,)),
        ("triangular", lambda x, y: jax_linalg.solve_triangular(x, y, trans=2, lower=True, unit_diagonal=True), (c, c)),
        ("triangular right", lambda x, y: jax.lax.linalg.triangular_solve(x, y, transpose_a=True, conjugate_a=True), (c, c)),
        ("tridiagonal", jax.lax.linalg.tridiagonal_solve,
         (np.array([0, 1, 2, 1], "f"), np.full(4, 4, "f"), np.array([1, 3, 1, 0], "f"), np.ones((4, 2), "f"))),
        ("top k", lambda x: jax.lax.top_k(x, 2), (b,)),
    ]


@needs_xla
@pytest.mark.parametrize(("name", "function", "arguments"), jax_rows(), ids=[row[0] for row in jax_rows()])
@pytest.mark.parametrize("optimised", [False, True])
def test_linear_algebra_of_jax(name: str, function: Any, arguments: tuple, optimised: bool) -> None:
    lowered: Any = jax.jit(function).lower(*arguments)
    compiled = lowered.compile()
    if optimised:
        text = compiled.runtime_executable().hlo_modules()[0].to_string()
    else:
        text = lowered.compiler_ir("hlo").as_hlo_text(True)
    got = xla_torch.parse_hlo(text).run_numpy(*arguments)
    for ours, theirs in zip(got, jax.tree.leaves(compiled(*arguments)), strict=True):
        assert_close(np.asarray(ours), np.asarray(theirs), relative=2e-4)


def potrf(lower: bool, size: int = 3) -> xla_torch.XlaComputation:
    shape = f"f64[{size},{size}]"
    return custom(f"({shape}, s32[])", [shape], "lapack_dpotrf_ffi", f"{{uplo = {76 if lower else 85} : ui8}}")


@pytest.mark.parametrize("lower", [True, False])
def test_potrf_keeps_the_other_triangle_and_says_what_failed(lower: bool) -> None:
    a = torch.eye(3, dtype=torch.float64) * 4 + 1
    factor, info = potrf(lower)(a)
    want = torch.linalg.cholesky(a, upper=not lower)
    torch.testing.assert_close(factor, want + (a.triu(1) if lower else a.tril(-1)))
    assert info.item() == 0
    assert potrf(lower)(-a)[1].item() != 0


def test_known_calls_are_differentiable() -> None:
    a = (torch.eye(3, dtype=torch.float64) * 4 + 1).requires_grad_()
    potrf(True)(a)[0].tril().sum().backward()
    b = a.detach().clone().requires_grad_()
    torch.linalg.cholesky(b).sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    torch.testing.assert_close(a.grad + a.grad.mT, b.grad + b.grad.mT)


@pytest.mark.parametrize("target", ["Sharding", "annotate_device_placement"])
def test_annotations_are_identities(target: str) -> None:
    assert custom("f32[2]", ["f32[2]"], target)(torch.tensor([1.0, 2])).tolist() == [1, 2]


def test_lapack_tolerates_what_it_cannot_solve() -> None:
    """Failures are an info, not an error."""
    program = custom("(f32[2,2], s32[2], s32[])", ["f32[2,2]"], "lapack_sgetrf_ffi")
    assert program(torch.zeros(2, 2))[2].item() > 0


def test_documented_forms_of_custom_calls() -> None:
    builder = xla_torch.XlaBuilder("forms")
    x = builder.parameter(0, Shape.parse("f32[2]"))
    scalar = xla_torch.XlaBuilder("add")
    region = scalar.build(ops.Add(scalar.parameter(0, Shape.parse("f32[]")), scalar.parameter(1, Shape.parse("f32[]"))))
    laid_out = Shape.parse("f32[2]{0}")
    y = ops.CustomCallWithLayout(builder, "a", [x], laid_out, [laid_out], "config")
    z = ops.CustomCallWithComputation(builder, "b", [y], region, x.shape)
    w = ops.CustomCall(builder, "c", [z], Shape.tuple([x.shape, Shape.array(S32)]), has_side_effect=True,
                       output_operand_aliasing=[((0,), (0, ()))], api_version="API_VERSION_TYPED_FFI")
    text = builder.build(w).to_hlo_text()
    for part in ('custom_call_target="a"', "operand_layout_constraints={f32[2]{0}}", 'backend_config="config"', "to_apply=%add",
                 "custom_call_has_side_effect=true", "output_to_operand_aliasing={{0}: (0, {})}",
                 "api_version=API_VERSION_TYPED_FFI"):
        assert part in text
    assert xla_torch.parse_hlo(text).to_hlo_text() == text
    with pytest.raises(InvalidArgument, match="a layout is missing"):
        ops.CustomCallWithLayout(builder, "a", [x], x.shape, [laid_out])
