"""Programs for the tests of several processes, and the functions that run them there."""

from __future__ import annotations

from typing import Any

import numpy as np

import xla_torch
from support.distributed_workers import Workers
from xla_torch import run_replicas
from xla_torch.distributed import of_process_group

LARGE = 1 << 12
"""Elements that do not fit into the message that announces them, whatever their type: 4096 of 4 bytes."""


def reducer(opcode: str, element_type: str) -> str:
    return (f"f {{\n  a = {element_type}[] parameter(0)\n  b = {element_type}[] parameter(1)\n"
            f"  ROOT r = {element_type}[] {opcode}(a, b)\n}}")


HALF_SUM = ("f {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  h = f32[] constant(0.5)\n  m = f32[] multiply(a, h)\n"
            "  ROOT r = f32[] add(m, b)\n}")
ADD = reducer("add", "f32")


def text_of(instruction: str, shape: str, regions: str = ADD, header: str = "") -> str:
    return f"HloModule m{header}\n{regions}\nENTRY e {{\n  p = {shape} parameter(0)\n  ROOT r = {instruction}\n}}"


def run_here(text: str, arguments: tuple[np.ndarray, ...], options: dict[str, Any]) -> list[np.ndarray]:
    """In a process: the flat results of its participant."""
    with of_process_group(**options) as processes:
        return list(processes.run(xla_torch.parse_hlo(text), [arguments])[0])


def on_processes(group: Workers, text: str, arguments: list[tuple[np.ndarray, ...]], **options: Any) -> list[list[np.ndarray]]:
    return group.call(run_here, [(text, given, options) for given in arguments])


def same_as_threads(group: Workers, text: str, arguments: list[tuple[np.ndarray, ...]], partitions: int = 1) -> None:
    got = on_processes(group, text, arguments, num_partitions=partitions)
    replicas = len(arguments) // partitions
    want = run_replicas(xla_torch.parse_hlo(text), arguments, num_replicas=replicas, num_partitions=partitions)
    for own, expected in zip(got, want, strict=True):
        assert [r.tobytes() for r in own] == [r.tobytes() for r in expected]


def host_several(text: str, arguments: list[tuple], options: dict[str, Any]) -> tuple[tuple[int, ...], list]:
    with of_process_group(**options) as processes:
        given = [arguments[n] for n in processes.numbers]
        return processes.numbers, processes.run(xla_torch.parse_hlo(text), given)
