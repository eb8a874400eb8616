"""Limits that users set: on instructions, memory, time and steps of loops, while programs are loaded, lowered and run."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import xla_torch
from support import shared_programs as programs
from xla_torch.analysis.peak import peak_bytes
from xla_torch.errors import InvalidArgument, LimitError

X = torch.tensor([0.5, -1.0, 2.0, 3.0])

FOREVER = """HloModule forever
%goes_on (x: f32[4]) -> pred[] { %x = f32[4] parameter(0)
  ROOT %p = pred[] constant(true) }
%body (x: f32[4]) -> f32[4] { %x = f32[4] parameter(0)
  ROOT %r = f32[4] negate(%x) }
ENTRY %main (x: f32[4]) -> f32[4] { %x = f32[4] parameter(0)
  ROOT %r = f32[4] while(%x), condition=%goes_on, body=%body }"""

def hundred_steps() -> str:
    return """HloModule hundred
%goes_on (c: (s32[], f32[4])) -> pred[] { %c = (s32[], f32[4]) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %n = s32[] constant(100)
  ROOT %p = pred[] compare(%i, %n), direction=LT }
%body (c: (s32[], f32[4])) -> (s32[], f32[4]) { %c = (s32[], f32[4]) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %x = f32[4] get-tuple-element(%c), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %y = f32[4] sine(%x)
  ROOT %r = (s32[], f32[4]) tuple(%next, %y) }
ENTRY %main (x: f32[4]) -> f32[4] { %x = f32[4] parameter(0)
  %zero = s32[] constant(0)
  %t = (s32[], f32[4]) tuple(%zero, %x)
  %w = (s32[], f32[4]) while(%t), condition=%goes_on, body=%body
  ROOT %r = f32[4] get-tuple-element(%w), index=1 }"""


def chain(size: int = 1000) -> str:
    return (f"HloModule chain\nENTRY e {{ p = f32[{size}] parameter(0)\n a = f32[{size}] sine(p)\n b = f32[{size}] cosine(a)\n"
            f" c = f32[{size}] multiply(a, b)\n ROOT d = (f32[{size}], f32[{size}]) tuple(c, b) }}")


def dotted(size: int = 100) -> str:
    return (f"HloModule dotted\nENTRY e {{ p = f32[{size},{size}] parameter(0)\n a = f32[{size},{size}] dot(p, p), "
            f"lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n t = f32[{size},{size}] transpose(a), dimensions={{1,0}}\n"
            f" ROOT b = f32[{size},{size}] dot(a, t), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}")


def run(text: str, *arguments: torch.Tensor) -> object:
    return xla_torch.parse_hlo(text)(*arguments)


BEYOND: dict[str, tuple[dict[str, float], Callable[[], object], str]] = {
    "instructions read": ({"max_instructions": 4}, lambda: xla_torch.parse_hlo(chain()), "too many instructions"),
    "instructions opened": ({"max_instructions": 60}, lambda: run(programs.calls(6), X), "too many instructions"),
    "bytes": ({"max_bytes": 11_000}, lambda: run(chain(), torch.ones(1000)), "too much memory"),
    "steps": ({"max_loop_steps": 99}, lambda: run(hundred_steps(), X), "too many steps"),
    "steps of a loop without end": ({"max_loop_steps": 1000}, lambda: run(FOREVER, X), "too many steps"),
    "seconds of a loop without end": ({"max_seconds": 0.2}, lambda: run(FOREVER, X), "the time is over"),
    "seconds before a run": ({"max_seconds": 0}, lambda: run(chain(), torch.ones(1000)), "the time is over"),
    "bytes of a gradient": ({"max_bytes": 11_000}, lambda: run(chain(), torch.ones(1000, requires_grad=True)), "too much memory"),
}


@pytest.mark.parametrize(("given", "does", "messages"), BEYOND.values(), ids=BEYOND)
def test_beyond_a_limit(given: dict[str, float], does: Callable[[], object], messages: str) -> None:
    with xla_torch.limits(**given), pytest.raises(LimitError, match=messages):  # pyright: ignore[reportArgumentType]
        does()


@pytest.mark.parametrize(("given", "does"), [
    ({"max_instructions": 5}, lambda: run(chain(), torch.ones(1000))),
    ({"max_bytes": 12_000}, lambda: run(chain(), torch.ones(1000))),
    ({"max_loop_steps": 100}, lambda: run(hundred_steps(), X)), ({"max_seconds": 600}, lambda: run(hundred_steps(), X)),
    ({}, lambda: run(chain(), torch.ones(1000)))])
def test_within_limits(given: dict[str, float], does: Callable[[], object]) -> None:
    with xla_torch.limits(**given):  # pyright: ignore[reportArgumentType]
        within = does()
    torch.testing.assert_close(within, does())


def test_a_loop_without_end_is_stopped_from_another_thread() -> None:
    with xla_torch.limits() as block:
        timer = threading.Timer(0.3, block.stop)
        timer.start()
        with pytest.raises(LimitError, match="stopped"):
            run(FOREVER, X)
        assert block.loop_steps > 0
        timer.join()


def test_limits_end_with_their_block() -> None:
    with xla_torch.limits(max_instructions=1):
        with xla_torch.limits():
            assert run(chain(), torch.ones(1000))
        with pytest.raises(LimitError):
            run(chain(), torch.ones(1000))
    assert run(chain(), torch.ones(1000))


@pytest.mark.parametrize("given", [
    {"max_bytes": -1}, {"max_seconds": float("nan")}, {"max_loop_steps": "3"}, {"max_instructions": True}])
def test_no_limits(given: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match="is not a valid limit"), xla_torch.limits(**given):  # pyright: ignore[reportArgumentType]
        pass


class Watching(TorchDispatchMode):
    """Notes what is allocated at one time, at most."""

    def __init__(self, given: torch.Tensor):
        super().__init__()
        self.known, self.live, self.most = {given.untyped_storage().data_ptr()}, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if not isinstance(tensor, torch.Tensor):
                continue
            storage = tensor.untyped_storage()
            place, size = storage.data_ptr(), storage.nbytes()
            if place and place not in self.known:
                self.known.add(place)
                self.live += size
                self.most = max(self.most, self.live)
                weakref.finalize(storage, self._freed, place, size)
        return result

    def _freed(self, place: int, size: int) -> None:
        self.known.discard(place)
        self.live -= size


@pytest.mark.parametrize(("text", "x"), [
    (chain(), torch.ones(1000)), (dotted(), torch.ones(100, 100)), (hundred_steps(), X), (programs.conditionals(3), X)],
    ids=["chain", "dots", "loop", "branches"])
def test_bytes_that_are_predicted(text: str, x: torch.Tensor) -> None:
    """Never less than the real ones, and not much more."""
    program = xla_torch.parse_hlo(text)
    program(x)
    with Watching(x) as watched:
        program(x)
    predicted = peak_bytes(program.program.canonical)
    assert watched.most <= predicted + 64
    assert predicted <= 4 * watched.most + 256
