"""Calls after one whose arguments are known: what differs from that one is checked and run as if it were the first."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import pytest
import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import xla_torch
from support.native_programs import native_after
from xla_torch.errors import DeviceError, InvalidArgument
from xla_torch.storage.tensor_guards import KnownTensors

TEXT = "HloModule m\nENTRY e {\n a = f32[2,3] parameter(0)\n b = f32[2,3] parameter(1)\n ROOT r = f32[2,3] multiply(a, b)\n}"
Call = Callable[..., torch.Tensor]

X, Y = torch.arange(6.0).reshape(2, 3), torch.full((2, 3), 3.0)


def of_text() -> Call:
    return xla_torch.parse_hlo(TEXT)


def of_jax() -> Call:
    return xla_torch.from_jax(lambda a, b: a * b, *[jnp.zeros((2, 3), jnp.float32)] * 2)


@pytest.fixture(params=[of_text, of_jax], ids=["text", "from_jax"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Call:
    """A program that has been called three times with plain tensors, natively where there is a compiler."""
    with native_after(0.0, tmp_path):
        made = request.param()
        for _ in range(3):
            assert torch.equal(made(X, Y), X * Y)
        return made


REFUSED = {
    "another size": (lambda: (X[:, :2], Y), InvalidArgument),
    "another dtype": (lambda: (X.int(), Y), InvalidArgument),
    "one more": (lambda: (X, Y, Y), InvalidArgument),
    "one less": (lambda: (X,), InvalidArgument),
    "another device": (lambda: (X, Y.to("meta")), DeviceError),
    "sparse": (lambda: (X.to_sparse(), Y), InvalidArgument),
    "no tensor": (lambda: (X.tolist(), Y), InvalidArgument),
}

EQUAL = {
    "other values": lambda: (X + 1, Y - 2),
    "the same tensor twice": lambda: (X, X),
    "turned": lambda: (X.t().contiguous().t(), Y),
    "expanded": lambda: (X, torch.tensor([[2.0]]).expand(2, 3)),
    "a view with an offset": lambda: (torch.arange(8.0)[2:].reshape(2, 3), Y),
    "the negative of what is in memory": lambda: (torch._neg_view(X), Y),
    "a parameter": lambda: (torch.nn.Parameter(X), Y),
    "made in inference mode": lambda: (in_inference_mode(), Y),
}


def in_inference_mode() -> torch.Tensor:
    with torch.inference_mode():
        return X + 0


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str, program: Call) -> None:
    arguments, error = REFUSED[name]
    with pytest.raises(error):
        program(*arguments())


@pytest.mark.parametrize("name", EQUAL)
def test_other_tensors_that_fit_give_their_result(name: str, program: Call) -> None:
    a, b = EQUAL[name]()
    for _ in range(3):
        assert torch.equal(program(a, b), a * b)
    assert torch.equal(program(X, Y), X * Y)


@pytest.mark.parametrize("known_before", [True, False], ids=["known without gradients", "known with them"])
def test_gradients_follow_what_requires_grad_now(known_before: bool, program: Call) -> None:
    x = X.clone().requires_grad_()
    if not known_before:
        with torch.no_grad():
            assert not program(x, Y).requires_grad
    result = program(x, Y)
    result.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, Y)
    assert not program(X, Y).requires_grad
    with torch.no_grad():
        assert not program(x, Y).requires_grad
    assert program(x, Y).requires_grad


def test_a_tensor_resized_in_place_is_looked_at_again(program: Call) -> None:
    x = X.clone()
    program(x, Y)
    with pytest.raises(InvalidArgument):
        program(x.resize_(3, 2), Y)


def test_a_tensor_that_is_another_one_now_is_looked_at_again(program: Call) -> None:
    x = X.clone()
    program(x, Y)
    x.data = X.int()
    with pytest.raises(InvalidArgument):
        program(x, Y)


def test_transforms_see_arguments_that_they_do_not_change(program: Call) -> None:
    assert torch.equal(torch.func.vmap(lambda k: program(X, Y) * k)(torch.ones(2)), torch.stack([X * Y] * 2))
    assert torch.equal(torch.func.grad(lambda x: program(x, Y).sum())(X), Y)
    assert torch.equal(torch.func.jvp(lambda x: program(x, Y), (X,), (X,))[1], X * Y)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(program(forward_ad.make_dual(X, X), Y)).tangent
    assert tangent is not None
    assert torch.equal(tangent, X * Y)


def test_calls_within_transforms_leave_what_is_remembered_alone() -> None:
    program = of_text()
    for k in range(20):
        torch.func.vmap(program, (0, None))(torch.ones(k + 1, 2, 3), Y)
        torch.func.grad(lambda x: program(x, Y).sum())(X)
    program(X, Y)
    assert program._known.needs_grad([X, Y]) is False  # pyright: ignore[reportAttributeAccessIssue, reportFunctionMemberAccess]


def test_graphs_contain_calls_with_known_arguments(program: Call) -> None:
    graph = make_fx(lambda x: program(x, Y))(X)
    assert torch.equal(graph(X + 1), (X + 1) * Y)


def test_autocast_leaves_known_arguments_alone(program: Call) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(program(X, Y), X * Y)


def test_limits_and_profiles_see_known_calls(program: Call) -> None:
    with xla_torch.limits(max_bytes=8), pytest.raises(xla_torch.errors.LimitError):
        program(X, Y)
    with torch.profiler.profile() as profile:
        program(X, Y)
    assert any(program.name in event.name for event in profile.events() or [])


def test_threads_with_tensors_of_their_own_kind(program: Call) -> None:
    wrong = list[int]()

    def calls(k: int) -> None:
        x = X.clone().requires_grad_(k % 2 == 0)
        wrong.extend(k for _ in range(100) if program(x, Y).requires_grad is not x.requires_grad)

    threads = [threading.Thread(target=calls, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_copies_of_known_programs(program: Call) -> None:
    for copied in (copy.deepcopy(program), pickle.loads(pickle.dumps(program))):
        assert torch.equal(copied(X, Y), X * Y)


def test_what_is_remembered_keeps_no_tensor_alive() -> None:
    x = torch.ones(3)
    known = KnownTensors()
    known.remember([x])
    storage = torch.multiprocessing.reductions.StorageWeakRef(x.untyped_storage())
    assert known.needs_grad([x]) is False
    del x
    assert storage.expired()


def test_so_many_kinds_are_remembered_and_no_more() -> None:
    known = KnownTensors()
    for size in range(40):
        known.remember([torch.ones(size)])
    assert known.needs_grad([torch.ones(39)]) is None
    assert known.needs_grad([torch.ones(15)]) is False
