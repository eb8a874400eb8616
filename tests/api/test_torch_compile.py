"""Programs in graphs that torch makes of code that calls them: torch.compile as one graph, torch.export, packages."""

import io
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import export

import xla_torch
from support.graphed_programs import PROGRAMS, W, assert_same, case, drawn, leaves, sevenfold
from xla_torch import from_jax, parse_hlo
from xla_torch.api.custom_calls import unregister_custom_call
from xla_torch.errors import InvalidArgument, UnsupportedError
from xla_torch.nn import XlaModule

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, of its compiler and its files


@jax.custom_vjp
def scaled_back(x, c):
    return jnp.sin(x)


scaled_back.defvjp(lambda x, c: (jnp.sin(x), (x, c)), lambda kept, ct: (jnp.cos(kept[0]) * ct * kept[1], None))
CONSTANTS = (0.3, np.float32(0.3), np.full((4, 4), 0.3, np.float32), drawn(4, 4), drawn(4, 4).copy(), drawn(4), drawn(4, 4).T,
             np.arange(16, dtype=np.int32).reshape(4, 4), np.eye(4, dtype=bool), drawn(4, 4).astype(jnp.bfloat16), np.int32(2),
             np.zeros((4, 4), np.float32), np.array([np.inf, -0.0, 1e-40, -1], np.float32), np.empty((0, 4), np.float32))
PLACES = {
    "straight": lambda x, c: jnp.sin(x * c) + c,
    "in a loop": lambda x, c: jax.lax.fori_loop(0, 40, lambda _, h: jnp.tanh(h * c * 0.05) + x, x) * c,
    "in loops": lambda x, c: jax.lax.fori_loop(0, 6, lambda i, h: jax.lax.fori_loop(
        0, 12, lambda _, g: jnp.sin(g * c * 0.05) + h, h), x),
    "in a branch": lambda x, c: jax.lax.cond(x.sum() > 0, lambda a: a * c, lambda a: jnp.sin(a) * c + c, x) * c,
    "in a branch in a loop": lambda x, c: jax.lax.fori_loop(0, 12, lambda i, h: jax.lax.cond(
        i % 2 == 0, lambda a: jnp.sin(a * c * 0.05), lambda a: a - c, h), x),
    "in a scan": lambda x, c: jax.lax.scan(lambda h, r: (jnp.sin(h * c * 0.05) + r, h * c), x, x),
    "before a loop": lambda x, c: jax.lax.fori_loop(0, 12, lambda _, h: jnp.sin(h) + x, c + jnp.zeros_like(x)),
    "on the way back": scaled_back,
    "as the result": lambda x, c: (jnp.asarray(c), x * 2, jnp.asarray(c)),
}
"""Where constants stand; each becomes a program that has all of them there, and shrinks
what it carries, as differences would grow."""


def of_constants(place: str):
    given = [c for c in CONSTANTS if np.ndim(c) < 2 or np.shape(c)[0] or place in ("as the result",)]
    x = np.abs(drawn(4, 4)) + 0.1
    return from_jax(lambda x: [PLACES[place](x, c) for c in given], x), [torch.from_numpy(x)]


class Calling(torch.nn.Module):
    def __init__(self, program):
        super().__init__()
        self.program = program

    def forward(self, *arguments):
        return self.program(*arguments)


def values_and_gradients(function, arguments) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    given = [t.clone().requires_grad_(t.is_floating_point()) for t in arguments]
    results = leaves(function(*given))
    loss = sum((t * torch.arange(1.0, t.numel() + 1).reshape(t.shape)).sum() for t in results if t.requires_grad)
    if isinstance(loss, torch.Tensor):
        loss.backward()
    return [t.detach() for t in results], [t.grad for t in given]


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()


def ahead_of_time(program, arguments, folder):
    exported = torch.export.export(Calling(program), tuple(arguments))
    package = torch._inductor.aoti_compile_and_package(exported, package_path=str(folder / "model.pt2"))
    return leaves(torch._inductor.aoti_load_package(package)(*arguments))


SLOWLY = [backend if backend == "aot_eager" else pytest.param(backend, marks=pytest.mark.slow)
          for backend in ("eager", "aot_eager", "inductor")]


@pytest.mark.parametrize("backend", SLOWLY)
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiles_into_one_graph(name, backend):
    program, arguments = case(name)
    compiled = torch.compile(Calling(program), fullgraph=True, backend=backend)
    if name in ("while", "while in a loop"):  # JAX has no way back through these, and torch's is not asked for one
        assert_same(leaves(compiled(*arguments)), leaves(program(*arguments)))
    assert_same(values_and_gradients(compiled, arguments), values_and_gradients(program, arguments))


def test_inductor_keeps_cotangents_that_are_read_after_a_loop():
    program = from_jax(lambda x: jax.lax.fori_loop(0, 40, lambda _, h: jnp.tanh(h @ W * 0.3), x) + x @ W, drawn(4, 4))
    x = [torch.from_numpy(drawn(4, 4))]
    assert_same(values_and_gradients(torch.compile(program, fullgraph=True), x), values_and_gradients(program, x))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("place", PLACES)
def test_constants(place, backend):
    program, arguments = of_constants(place)
    compiled = torch.compile(Calling(program), fullgraph=True, backend=backend)
    assert_same(values_and_gradients(compiled, arguments), values_and_gradients(program, arguments))


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_constants_ahead_of_time(place, tmp_path):
    program, arguments = of_constants(place)
    assert_same(ahead_of_time(program, arguments, tmp_path), leaves(program(*arguments)))


@pytest.mark.parametrize("strict", [pytest.param(True, marks=pytest.mark.slow), False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_exports(name, strict):
    program, arguments = case(name)
    exported = torch.export.export(Calling(program), tuple(arguments), strict=strict)
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    module = torch.export.load(file).module()
    with torch.no_grad():
        assert_same(leaves(module(*arguments)), leaves(program(*arguments)))
    if any(t.is_floating_point() for t in arguments):
        with pytest.raises(RuntimeError, match=r"Trying to backward through prims\.clone\.default"):
            values_and_gradients(module, arguments)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiles_ahead_of_time(name, tmp_path):
    program, arguments = case(name)
    assert_same(ahead_of_time(program, arguments, tmp_path), leaves(program(*arguments)))


def modules() -> dict[str, torch.nn.Module]:
    weights = {"w": drawn(4, 4), "b": drawn(4)}
    module = XlaModule.from_jax(lambda p, x: jnp.tanh(x @ p["w"] + p["b"]), weights, drawn(2, 4))
    torch.manual_seed(0)
    return {"alone": module, "inside": torch.nn.Sequential(torch.nn.Linear(4, 4), module, torch.nn.Linear(4, 2))}


@pytest.mark.parametrize("backend", SLOWLY)
@pytest.mark.parametrize("which", ["alone", "inside"])
def test_modules_compile(which, backend):
    module, x = modules()[which], torch.from_numpy(drawn(2, 4))

    def gradients(call):
        module.zero_grad()
        call(x).square().sum().backward()
        return {name: p.grad for name, p in module.named_parameters()}

    assert_same(gradients(torch.compile(module, fullgraph=True, backend=backend)), gradients(module))


@pytest.mark.parametrize("backend", SLOWLY)
@pytest.mark.parametrize("training", [True, False])
def test_modules_whose_calls_replace_buffers(training, backend):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3, momentum=0.3)).double().train(training)
    plain, compiled = (XlaModule.from_torch(model, torch.randn(5, 4).double()) for _ in range(2))
    call = torch.compile(compiled, fullgraph=True, backend=backend)
    for k in range(3):
        x = torch.from_numpy(drawn(5, 4)).double() + k  # what the statistics leave of the gradients is small
        for result in (plain(x), call(x)):
            result.pow(3).sum().backward()
        assert_same(dict(compiled.named_buffers()), dict(plain.named_buffers()))  # which Dynamo puts back in an order of its own
        assert_same([p.grad for p in compiled.parameters()], [p.grad for p in plain.parameters()])
    assert int(compiled.get_buffer("1.num_batches_tracked")) == 3 * training


def partly(x):
    return x.detach() * x + torch.relu(x)


DERIVATIVES = {  # at -1, 0, 2: of what is written, of the ops, of what was vouched for
    "torch": (lambda x: xla_torch.from_torch(partly, x), [-1, 0, 3]),
    "torch's ops": (lambda x: xla_torch.from_torch(partly, x, derivatives="xla"), [-1, 0, 3]),  # which know of detach
    "torch's, vouched": (lambda x: xla_torch.from_torch(partly, x, derivatives="as written"), [-2, 0, 5]),
    "jax": (lambda x: from_jax(sevenfold, x.numpy()), [-7, 0, 14]),
    "jax's ops": (lambda x: from_jax(sevenfold, x.numpy(), derivatives="xla"), np.cos([-1, 0, 2])),
    "jax's, vouched": (lambda x: from_jax(sevenfold, x.numpy(), derivatives="as written"), np.cos([-1, 0, 2])),
}


@pytest.mark.parametrize("backend", SLOWLY)
@pytest.mark.parametrize("whose", DERIVATIVES)
def test_derivatives(whose, backend):
    make, expected = DERIVATIVES[whose]
    x = torch.tensor([-1.0, 0, 2], requires_grad=True)
    torch.compile(make(x.detach()), fullgraph=True, backend=backend)(x).sum().backward()
    assert_same(x.grad, torch.tensor(np.asarray(expected, np.float32)))


def with_numpy(*given):
    return torch.from_numpy(np.sin(given[0].numpy()))


CUSTOM = {  # the function, its vjp, whether it can be part of a graph, and of one with the way back
    "torch": (torch.sin, None, True, True),
    "with a vjp": (torch.sin, lambda ct, result, x: 7 * ct * x, True, True),
    "another's autograd": (lambda x: x * torch.nn.functional.silu(x), None, True, True),
    "numpy": (with_numpy, lambda ct, result, x: 7 * ct * x, False, False),
    "a vjp in numpy": (torch.sin, lambda ct, result, x: with_numpy(ct) + x, True, False),
    "a number": (lambda x: x * float(x.sum()), lambda ct, result, x: ct * x, False, False),
    "a choice": (lambda x: x if x.sum() > 0 else -x, None, False, False),
}


@pytest.mark.parametrize("backend", SLOWLY)
@pytest.mark.parametrize("name", CUSTOM)
def test_custom_calls(name, backend):
    function, vjp, fits, fits_with_way_back = CUSTOM[name]
    xla_torch.register_custom_call("tests.graphed", function, vjp)
    try:
        program = parse_hlo("HloModule m\nENTRY e {\n x = f32[3] parameter(0)\n"
                            ' y = f32[3] custom-call(x), custom_call_target="tests.graphed"\n ROOT z = f32[3] multiply(x, y)\n}')
        x, module = torch.tensor([0.1, 0.2, 0.3]), Calling(program)
        parted = torch.compile(module, backend=backend)
        assert_same(parted(x), program(x))
        assert_same(values_and_gradients(parted, [x]), values_and_gradients(program, [x]))
        torch.compiler.reset()  # else what was compiled in parts is found
        whole = torch.compile(module, fullgraph=True, backend=backend)
        for run, in_one in ((lambda f: leaves(f(x)), fits), (lambda f: values_and_gradients(f, [x]), fits_with_way_back)):
            if in_one:
                assert_same(run(whole), run(program))
            else:
                with pytest.raises(Exception, match="cannot be part of a graph"):
                    run(whole)
    finally:
        unregister_custom_call("tests.graphed")


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("which", ["alone", "inside"])
def test_modules_export_with_their_weights(which, strict, tmp_path):
    module, x = modules()[which], torch.from_numpy(drawn(2, 4))
    exported = torch.export.export(module, (x,), strict=strict)
    assert set(exported.state_dict) == set(module.state_dict())
    assert {s.target for s in exported.graph_signature.input_specs if s.kind.name == "PARAMETER"} == set(module.state_dict())
    torch.export.save(exported, tmp_path / "m.pt2")
    torch.save(x, tmp_path / "x.pt")
    script = ("import sys, torch; x = torch.load('x.pt'); y = torch.export.load('m.pt2').module()(x); torch.save(y, 'y.pt')\n"
              "assert 'xla_torch' not in sys.modules")
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, cwd=tmp_path, timeout=300)
    assert_same(torch.load(tmp_path / "y.pt"), module(x))


RANDOM = parse_hlo("HloModule m\nENTRY e {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
                   " ROOT noise = f32[3] rng(a, b), distribution=rng_uniform\n}")
SUMMED = parse_hlo("HloModule m\nadd { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
                   "ENTRY e {\n x = f32[3] parameter(0)\n ROOT total = f32[3] all-reduce(x), replica_groups={}, to_apply=add\n}")
REFUSED = {"random": (RANDOM, (torch.tensor(0.0), torch.tensor(1.0)), "noise"), "exchange": (SUMMED, (torch.ones(3),), "total")}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_more_than_compute_stays_out_of_graphs(name, tmp_path):
    program, arguments, op = REFUSED[name]
    with pytest.raises(UnsupportedError, match=op):
        program.to_pt2(tmp_path / "m.pt2")
    with pytest.raises(Exception, match=op):
        torch.compile(Calling(program), fullgraph=True, backend="eager")(*arguments)
    assert torch.compile(lambda *given: program(*given) * 1, backend="eager")(*arguments).shape == (3,)


def test_gradients_of_gradients_are_refused():
    program, (x,) = case("custom_vjp")
    x.requires_grad_()
    first, = torch.autograd.grad(torch.compile(program, fullgraph=True, backend="aot_eager")(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        first.sum().backward()


def unknown():
    sizes = jax.ShapeDtypeStruct(export.symbolic_shape("b,3"), np.float32)
    return xla_torch.from_exported(export.export(jax.jit(lambda x: jnp.sin(x) * x.shape[0]))(sizes))


def test_unknown_sizes():
    program = unknown()
    compiled = torch.compile(Calling(program), fullgraph=True, backend="aot_eager")
    for size in (2, 3, 4):  # torch.compile makes the size a symbol with the second
        x = torch.from_numpy(drawn(size, 3))
        assert_same(values_and_gradients(compiled, [x]), values_and_gradients(program, [x]))
    x = torch.ones(4, 3)
    assert_same(torch.export.export(Calling(program), (x,)).module()(x), program(x))
    dynamic = ({0: torch.export.Dim("b")},),
    with pytest.raises(UnsupportedError, match="stand for many"):
        torch.export.export(Calling(program), (x,), dynamic_shapes=dynamic)
    for write in (program.to_pt2, program.to_onnx):
        with pytest.raises(InvalidArgument, match=r"at\(b=4\)"):
            write(io.BytesIO())


def test_files_for_torch_have_the_trees_of_the_program(tmp_path):
    program = from_jax(lambda p, x, *, s: {"a": jnp.tanh(x @ p["w"]) * s, "b": x[0]}, {"w": W}, drawn(2, 4), s=np.float32(2))
    program.to_pt2(tmp_path / "m.pt2")
    given = {"w": torch.from_numpy(W)}, torch.from_numpy(drawn(2, 4))
    found = torch.export.load(tmp_path / "m.pt2").module()(*given, s=torch.tensor(3.0))
    assert found.keys() == {"a", "b"}
    assert_same(found, program(*given, s=torch.tensor(3.0)))


def test_files_for_torch_are_not_read_back_without_their_gradients(tmp_path):
    program = parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")
    program.to_pt2(tmp_path / "m.pt2")
    with pytest.raises(UnsupportedError, match=r"prims\.clone(.|\n)*to_pt2 writes it where gradients end"):
        xla_torch.from_torch(torch.export.load(tmp_path / "m.pt2"))
    with pytest.raises(InvalidArgument, match=r"this is a zip file(.|\n)*from_torch\(torch\.export\.load\(path\)\)"):
        xla_torch.load(tmp_path / "m.pt2")


def test_files_for_torch_refuse_gradients_wherever_they_are_written():
    program, arguments = case("custom_vjp")
    with torch.no_grad():
        program.to_pt2(file := io.BytesIO())
    file.seek(0)
    with pytest.raises(RuntimeError, match=r"Trying to backward through prims\.clone\.default"):
        values_and_gradients(torch.export.load(file).module(), arguments)


def test_the_command_line_writes_them(tmp_path):
    from xla_torch.cli import main
    (tmp_path / "p.hlo").write_text(from_jax(jnp.tanh, drawn(3)).to_hlo_text())
    assert not main(["convert", str(tmp_path / "p.hlo"), str(tmp_path / "p.pt2")])
    found = torch.export.load(tmp_path / "p.pt2").module()(torch.ones(3))
    assert_same(leaves(found), [torch.ones(3).tanh()])
