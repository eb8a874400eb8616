"""Results on many arrays as one native call: the same bits as torch's calls, and what stays outside."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import xla_torch
from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning
from xla_torch.kernels.native_fusions import NativeForeach
from xla_torch.runtime.computation import XlaComputation

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no C compiler")


@pytest.fixture(autouse=True)
def at_once(tmp_path: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "NATIVE_AFTER", 0.0)
        patch.setattr(tuning, "BUNDLED_UP_TO", 0)  # these small arrays stand for large ones
        patch.setenv("XLA_TORCH_CACHE", str(tmp_path))
        yield


Lines = list[str]
"""Instructions of one update; ``#`` is its number, ``T`` its shape, ``E`` its type of elements."""

MOMENTUM = ["d = E[] constant(0.9)", "ds = T broadcast(d), dimensions={}", "m# = T multiply(p#, ds)", "n# = T add(m#, q#)",
            "w# = T sqrt(n#)", "r# = T divide(p#, w#)"]
BITS = ["x# = T xor(p#, q#)", "n# = T not(x#)", "o# = T or(n#, p#)", "r# = T subtract(o#, q#)"]
CHOICE = ["c# = pred[DIMS] compare(p#, q#), direction=LT", "n# = T select(c#, p#, q#)", "a# = T negate(n#)", "r# = T abs(a#)"]
SCALED = ["ks = T broadcast(k), dimensions={}", "n# = T multiply(p#, ks)", "a# = T add(n#, q#)", "r# = T subtract(a#, p#)"]
BY_RESULT = ["n# = T multiply(p#, q#)", "a# = T add(n#, q#)", "r# = T subtract(a#, n#)", "z# = T negate(r#)"]
SIZES = [(3,), (2, 5), (1,), (4, 2, 3), (16, 16), (1000,), (7, 1), (2, 5), (3,)]


def text_of(lines: Lines, element_type: str, sizes: list[tuple[int, ...]], results: str, more: Sequence[str] = ()) -> str:
    """A program of one update for each of the sizes, of parameters `p` and `q`, and the scalar `k` that all may use."""
    shapes = [f"{element_type}[{','.join(map(str, dims))}]" for dims in sizes]
    written = [f"  k = {element_type}[] parameter({2 * len(sizes)})"]
    for number, shape in enumerate(shapes):
        given = [f"p# = T parameter({2 * number})", f"q# = T parameter({2 * number + 1})"]
        for line in (*given, *lines):
            name, _, rest = line.partition(" = ")
            # Names without a number are made in each update anew.
            name = name if "#" in name else f"{name}_#"
            rest = rest.replace("(d)", "(d_#)").replace("ds)", "ds_#)").replace("ks)", "ks_#)")
            text = f"  {name} = {rest}".replace("DIMS", ",".join(map(str, sizes[number])))
            written.append(text.replace("T ", f"{shape} ").replace("E[", f"{element_type}[").replace("#", str(number)))
    names = [f"{result}{number}" for number in range(len(sizes)) for result in results.split()]
    of = ", ".join(shapes[number] for number in range(len(sizes)) for _ in results.split())
    root = f"  ROOT all = ({of}) tuple({', '.join(names)})"
    return "\n".join(["HloModule updates", "ENTRY main {", *written, *more, root, "}"])


def drawn(program: XlaComputation, seed: int = 0) -> list[torch.Tensor]:
    rng, found = np.random.default_rng(seed), []
    for shape in program.program_shape.parameters:
        values = np.asarray(rng.normal(size=shape.dimensions) * 4).astype(shape.element_type.numpy)
        found.append(torch.from_numpy(np.array(values)))
    return found


def assert_same(got: tuple[torch.Tensor, ...], want: tuple[torch.Tensor, ...]) -> None:
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        assert one.shape == other.shape
        assert np.array_equal(one.detach().numpy(), other.detach().numpy(), equal_nan=True)


def in_torch(text: str, arguments: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "NATIVE_AFTER", math.inf)
        program = xla_torch.parse_hlo(text)
        assert not bundles_of(program)
        return program(*arguments)


def bundles_of(program: XlaComputation) -> list[NativeForeach]:
    return [m for m in program.lowered().modules() if isinstance(m, NativeForeach)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("lines", "results", "types"), [
    (MOMENTUM, "r", ["f32", "f64"]), (MOMENTUM, "m n r", ["f32"]), (BITS, "r", ["s32", "s8", "s64"]),
    (CHOICE, "r n", ["f32", "s32"]), (SCALED, "r", ["f32", "s32"]),
])
def test_same_bits(lines: Lines, results: str, types: list[str], threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for element_type in types:
            sizes = [*SIZES, *[(40, 400)] * 4] if threads == 2 else SIZES
            text = text_of(lines, element_type, sizes, results)
            program = xla_torch.parse_hlo(text)
            arguments = drawn(program)
            found = program(*arguments)
            assert [b.seconds for b in bundles_of(program)] == [0]
            assert all(one.is_contiguous() for one in found)
            if lines is MOMENTUM:  # a root, which torch's library may round otherwise
                torch.testing.assert_close(found, in_torch(text, arguments), rtol=3e-7, atol=0, equal_nan=True)
            else:
                assert_same(found, in_torch(text, arguments))
    finally:
        torch.set_num_threads(before)


def test_several_kinds_and_what_stays_outside() -> None:
    """One call for all; what others use is computed where it stands, and what is computed of it too."""
    more = ["  far = f32[3] exponential(r0)", "  lone = f32[3] add(far, p0)"]
    text = text_of(BY_RESULT, "f32", SIZES, "r z", more).replace("tuple(r0", "tuple(lone")
    program = xla_torch.parse_hlo(text)
    arguments = drawn(program)
    code = program.lowered().code
    assert code.count("foreach(") == 1
    assert code.count(" * ") == 1  # of the first update, whose result goes through an exponential
    assert_same(program(*arguments), in_torch(text, arguments))


@pytest.mark.parametrize(("sizes", "lines", "calls"), [
    (SIZES[:3], BY_RESULT, 12), ([(1024, 1025)] * 9, BY_RESULT, 24), ([()] * 9, BY_RESULT, 24), (SIZES, BY_RESULT, 1000),
    ([(128, 128)] * 9, ["e# = T exponential(p#)", *BY_RESULT[:-1], "z# = T multiply(r#, e#)"], 24),
])
def test_what_others_compute(sizes: list[tuple[int, ...]], lines: Lines, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few arrays, large ones, numbers, few calls, and what belongs to a longer chain that runs in a block."""
    monkeypatch.setattr(tuning, "FOREACH_CALLS", calls)
    program = xla_torch.parse_hlo(text_of(lines, "f32", sizes, "z"))
    assert not bundles_of(program)


def test_arguments_that_lie_otherwise() -> None:
    text = text_of(SCALED, "f32", [(4, 6)] * 9, "r")
    program = xla_torch.parse_hlo(text)
    arguments = drawn(program)
    turned = [a.t().contiguous().t() if a.dim() else a for a in arguments]
    assert_same(program(*turned), in_torch(text, arguments))
    assert bundles_of(program)[0].seconds == 0
    assert_same(program(*[torch.nn.Parameter(a) for a in arguments]), in_torch(text, arguments))


STEP = ["g# = T dot(p#, q#), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "ks = T broadcast(k), dimensions={}",
        "n# = T multiply(g#, ks)", "a# = T add(n#, q#)", "m# = T subtract(a#, n#)", "r# = T subtract(p#, n#)"]


def test_results_are_written_over_what_dies() -> None:
    """The products, of which each fusion reads its own; not one that two fusions read, nor arguments."""
    text = text_of(STEP, "f32", [(6, 6)] * 7, "r m").replace("multiply(g6", "subtract(g5")
    program = xla_torch.parse_hlo(text)
    arguments = drawn(program)
    (call,) = [n for n in program.lowered().graph.nodes if "into" in n.kwargs]
    assert [k is not None for k in call.kwargs["into"]] == [True, False] * 5 + [False, False] * 2
    before = [a.clone() for a in arguments]
    found = program(*arguments)
    assert_same(tuple(arguments), tuple(before))
    assert_same(found, in_torch(text, arguments))
    assert len({one.data_ptr() for one in found}) == len(found)


def test_gradients_and_maps() -> None:
    text = text_of(BY_RESULT, "f64", SIZES, "z")
    program = xla_torch.parse_hlo(text)
    arguments = [a.requires_grad_() for a in drawn(program)]
    torch.autograd.gradcheck(lambda *a: program(*a)[:3], arguments)
    twice = torch.func.vmap(lambda a, b: program(a, b, *arguments[2:])[0])
    batch = [torch.stack([a.detach(), 2 * a.detach()]) for a in arguments[:2]]
    for k, found in enumerate(twice(*batch)):
        torch.testing.assert_close(found, program(batch[0][k], batch[1][k], *arguments[2:])[0])


def test_roots_are_the_same_from_the_first_call_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other arithmetic runs in torch until there is code for it, with the same bits; of roots these may be other ones."""
    monkeypatch.setattr(tuning, "NATIVE_AFTER", 1e9)
    for lines, waits in ((MOMENTUM, True), (SCALED, False)):
        program = xla_torch.parse_hlo(text_of(lines, "f32", SIZES, "r"))
        arguments = [a.abs() for a in drawn(program)]
        program(*arguments)
        (foreach,) = bundles_of(program)
        assert (foreach.seconds == 0) == waits
        if waits:
            for found, p, q in zip(program(*arguments), arguments[::2], arguments[1::2], strict=False):
                want = p.numpy() / np.sqrt(p.numpy() * np.float32(0.9) + q.numpy())
                assert np.array_equal(found.numpy(), want)
