"""Large exchanges: in pieces, in memory that is used again, over operands that die; and large messages that are taken late."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from ml_dtypes import bfloat16

import xla_torch
from support.collective_programs import INNER, ROWS
from support.distributed_programs import ADD, LARGE, reducer, run_here, text_of
from support.distributed_workers import Workers
from xla_torch import run_replicas
from xla_torch.core import tuning
from xla_torch.core.tuning import POOL_KEEPS
from xla_torch.distributed import of_process_group
from xla_torch.distributed.buffers import BufferPool
from xla_torch.distributed.executor import SerialExecutor
from xla_torch.passes import memory
from xla_torch.types import type_from_text

# ------------------------------------------------------------------------------------------- pieces


def run_in_pieces(text: str, arguments: tuple[np.ndarray, ...], size: int) -> list[np.ndarray]:
    """In a process: the results where pieces have so many bytes, and small arrays are no exception."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tuning, "INLINE_BYTES", 0)
        patched.setattr(tuning, "CHUNK_BYTES", size)
        patched.setattr(tuning, "DIRECT_BYTES", 0)
        return run_here(text, arguments, {})


def same_in_pieces(four: Workers, text: str, arguments: list[tuple[np.ndarray, ...]], size: int) -> None:
    got = four.call(run_in_pieces, [(text, given, size) for given in arguments])
    want = run_replicas(xla_torch.parse_hlo(text), arguments, num_replicas=4)
    for own, expected in zip(got, want, strict=True):
        for one, other in zip(own, expected, strict=True):
            np.testing.assert_array_equal(*(r.astype("f") if r.dtype == bfloat16 else r for r in (one, other)))


@pytest.mark.parametrize("size", [1000, 1 << 15], ids=["in many pieces", "in one or two"])
@pytest.mark.parametrize("name", ROWS)
def test_collectives_in_pieces(four: Workers, name: str, size: int) -> None:
    instruction, region, _ = ROWS[name]
    n = LARGE + 8
    text = text_of(instruction.format(n=n, n2=2 * n, n4=4 * n, h=n // 2, q=n // 4), f"f32[{n}]", region)
    same_in_pieces(four, text, [(np.random.default_rng(k).integers(-8, 8, n).astype("f"),) for k in range(4)], size)


@pytest.mark.parametrize("size", [100, 1 << 13], ids=["parts of rows", "several rows"])
@pytest.mark.parametrize("instruction", INNER)
def test_inner_dimensions_in_pieces(four: Workers, instruction: str, size: int) -> None:
    """Of the 40 rows of 300 elements a member's part is not in one place."""
    instruction = instruction.format(m=100, q=25).replace("[2,", "[40,").replace("f32[8,", "f32[160,")
    values = [np.random.default_rng(k).integers(-8, 8, (40, 100, 3)).astype("f") for k in range(4)]
    same_in_pieces(four, text_of(instruction, "f32[40,100,3]"), [(v,) for v in values], size)


@pytest.mark.parametrize(("opcode", "kind"), [
    ("add", "s16"), ("maximum", "u16"), ("minimum", "u64"), ("or", "pred"), ("xor", "s8"), ("add", "c64"), ("maximum", "f32"),
    ("add", "bf16"), ("subtract", "f32")])
def test_reducers_in_pieces(four: Workers, opcode: str, kind: str) -> None:
    """What a member folds is what threads fold: NaN and the order of roundings included. The members' blocks are
    of unequal size, and of three elements the last block is empty."""
    n = LARGE + 1
    text = (f"HloModule m\n{reducer(opcode, kind)}\nENTRY e {{\n  p = {kind}[{n}] parameter(0)\n"
            f"  r = {kind}[{n}] all-reduce(p), to_apply=f, replica_groups={{}}\n  q = {kind}[3] slice(p), slice={{[0:3]}}\n"
            f"  t = {kind}[3] all-reduce(q), to_apply=f, replica_groups={{}}\n"
            f"  ROOT both = ({kind}[{n}], {kind}[3]) tuple(r, t)\n}}")
    dtype: Any = getattr(type_from_text(kind), "numpy", None)
    limit, size = 2 if kind == "pred" else 256, n * np.dtype(dtype).itemsize
    values = [np.random.default_rng(k).integers(0, limit, size, "u1").view(dtype) for k in range(4)]
    same_in_pieces(four, text, [(v,) for v in values], 1000)


# ------------------------------------------------------------------------------------------- in place

IN_PLACE: dict[str, tuple[str, bool]] = {
    # what follows "square = multiply(p, p)", and whether the sum may be stored in its operand
    "dies": ("ROOT r = f32[{n}] all-reduce(square), to_apply=f, replica_groups={{}}", True),
    "an argument": ("ROOT r = f32[{n}] all-reduce(p), to_apply=f, replica_groups={{}}", False),
    "read later": ("s = f32[{n}] all-reduce(square), to_apply=f, replica_groups={{}}\n  ROOT r = f32[{n}] add(s, square)", False),
    "read meanwhile": ("s = f32[{n}] all-reduce(square), to_apply=f, replica_groups={{}}\n  u = f32[{n}] sine(square)\n"
                       "  ROOT r = f32[{n}] add(s, u)", False),
    "dies, something beside": ("s = f32[{n}] all-reduce(square), to_apply=f, replica_groups={{}}\n  u = f32[{n}] sine(p)\n"
                               "  ROOT r = f32[{n}] add(s, u)", True),
    "a result too": ("s = f32[{n}] all-reduce(square), to_apply=f, replica_groups={{}}\n"
                     "  ROOT r = (f32[{n}], f32[{n}]) tuple(s, square)", False),
    "in another shape": ("v = f32[2,{h}] reshape(square)\n  s = f32[2,{h}] all-reduce(v), to_apply=f, replica_groups={{}}\n"
                         "  ROOT r = f32[{n}] reshape(s)", True),
    "an equal number everywhere": (
        "part = f32[1] slice(p), slice={{[0:1]}}\n  one = f32[] reshape(part)\n  two = f32[] add(one, one)\n"
        "  all = f32[{n}] broadcast(two), dimensions={{}}\n  s = f32[{n}] all-reduce(all), to_apply=f, replica_groups={{}}\n"
        "  ROOT r = f32[{n}] add(s, p)", True),
}


def in_place_program(name: str, n: int) -> str:
    rest, _ = IN_PLACE[name]
    return (f"HloModule m\n{ADD}\nENTRY e {{\n  p = f32[{n}] parameter(0)\n  square = f32[{n}] multiply(p, p)\n"
            f"  {rest.format(n=n, h=n // 2)}\n}}")


@pytest.mark.parametrize("name", IN_PLACE)
def test_sums_over_operands_that_die(four: Workers, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = in_place_program(name, 5 * LARGE)
    arguments = [(np.random.default_rng(k).standard_normal(5 * LARGE).astype("f"),) for k in range(4)]
    before = [a.copy() for a, in arguments]
    program = xla_torch.parse_hlo(text)
    code = program.python_code()
    assert ("all_reduce_(" in code) is IN_PLACE[name][1]
    got = run_replicas(program, arguments, num_replicas=4)
    in_processes = four.call(run_in_pieces, [(text, given, 1000) for given in arguments])
    monkeypatch.setattr(memory, "_IN_PLACE", {})
    monkeypatch.setattr(memory, "_BEGUN_IN_PLACE", {})
    want = run_replicas(xla_torch.parse_hlo(text), arguments, num_replicas=4)
    for one, other, expected in zip(got, in_processes, want, strict=True):
        assert [r.tobytes() for r in one] == [r.tobytes() for r in other] == [r.tobytes() for r in expected]
    assert all(np.array_equal(a, b) for (a,), b in zip(arguments, before, strict=True))


@pytest.mark.parametrize("name", ROWS)
def test_large_exchanges_of_threads(name: str) -> None:
    """What is reduced and copied block by block."""
    instruction, region, formula = ROWS[name]
    n = 20 * LARGE
    values = [np.random.default_rng(k).integers(-8, 8, n).astype("f") for k in range(4)]
    text = text_of(instruction.format(n=n, n2=2 * n, n4=4 * n, h=n // 2, q=n // 4), f"f32[{n}]", region)
    got = run_replicas(xla_torch.parse_hlo(text), [(v,) for v in values], num_replicas=4)
    for one, expected in zip(got, formula(values), strict=True):
        np.testing.assert_array_equal(one[0], expected)


# ------------------------------------------------------------------------------------------- memory

CPU = torch.device("cpu")
MIB = 1 << 20


def test_memory_is_used_again_when_nobody_holds_it() -> None:
    buffers = BufferPool()
    first = buffers.empty((2, MIB), torch.uint8, CPU)
    place = first.data_ptr()
    view = first.t()[1:].view(torch.int8)
    array = view.numpy()
    del first
    assert buffers.empty((2 * MIB,), torch.uint8, CPU).data_ptr() != place
    del view
    assert buffers.empty((2 * MIB,), torch.uint8, CPU).data_ptr() != place
    del array
    again = {buffers.empty((MIB // 2,), torch.float32, CPU).data_ptr() for _ in range(2)}
    assert len(again) == 1
    buffers.clear()


def test_small_memory_is_torchs() -> None:
    assert BufferPool().empty((3,), torch.bfloat16, CPU).shape == (3,)
    assert BufferPool().empty((0, 5), torch.float32, CPU).numel() == 0


@pytest.mark.parametrize(("left", "size", "kept"), [
    ([4, 4, 4, 4], 4, 2), ([4, 4, 4, 4], 1, 2), ([1, 1, 1, 1], 4, 4), ([8, 1, 1, 1], 1, 3), ([4, 3, 2], 5, 3), ([], 4, 0)])
def test_little_unused_memory_is_kept(left: list[int], size: int, kept: int) -> None:
    """Blocks that are left, in MiB, the longest unused first; how many of them are kept when one of another size is taken, or
    of theirs, which is the last one."""
    buffers = BufferPool()
    held = [buffers.empty((n * MIB,), torch.uint8, CPU) for n in left]
    while held:
        held.pop(0)
    taken = buffers.empty((size * MIB,), torch.uint8, CPU)
    assert len(buffers._free) == kept
    assert buffers.unused_bytes <= POOL_KEEPS * max([size, *left]) * MIB
    assert taken.nbytes == size * MIB


def test_memory_comes_back_from_any_thread_at_any_time() -> None:
    """Also from a thread that is about to take some: what ends a lease takes no lock."""
    buffers = BufferPool()
    held = [buffers.empty((MIB,), torch.uint8, CPU)]
    with buffers._lock:
        held.clear()
    held = [buffers.empty((MIB,), torch.uint8, CPU) for _ in range(2)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert buffers.unused_bytes == 2 * MIB


def test_a_cleared_pool_takes_nothing_back() -> None:
    buffers = BufferPool()
    held = buffers.empty((MIB,), torch.uint8, CPU)
    assert buffers.empty((MIB,), torch.uint8, CPU).numel() == MIB
    buffers.clear()
    held.fill_(1)
    del held
    assert buffers.unused_bytes == 0


def test_an_executor_keeps_no_result() -> None:
    executor = SerialExecutor("test")
    future = executor.submit(lambda: torch.ones(3))
    left = weakref.ref(future.result())
    failed = executor.submit(lambda: torch.ones(3) @ torch.ones(2))
    with pytest.raises(RuntimeError):
        failed.result()
    assert executor.idle
    del future
    assert left() is None
    executor.shutdown()


# ------------------------------------------------------------------------------------------- messages


def post_and_take(late: float, n: int) -> float:
    """Process 0 posts a large message and is done; process 1 takes it `late` seconds later."""
    with of_process_group() as processes:
        me: Any = processes.participants[0]
        if processes.rank == 0:
            me.send(7, 1, torch.ones(n))
            return 0.0
        if processes.rank > 1:
            return 0.0
        time.sleep(late)
        return float(me.receive(7, 0, (n,), torch.float32).sum())


def test_a_large_message_may_be_taken_late(four: Workers) -> None:
    """Later than a wait for an operation lasts at once."""
    assert four.call(post_and_take, [(0.6, LARGE)] * 4)[1] == LARGE
