"""Traits agree with what ops do, where running them can tell; and every trait is asked for somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import xla_torch
from xla_torch.hlo.inference import forwarded, origin, splat_of
from xla_torch.hlo.schema import OPS, Trait

ROOT = Path(__file__).parents[2]

FLOATS = torch.tensor([0.0, -1.5, 2.0, 3.25, float("nan"), 7.0])
INTEGERS = torch.tensor([0, -1, 2, 3, -7, 5], dtype=torch.int32)
PREDICATES = torch.tensor([False, True, False, True, True, False])
ORDERS = torch.arange(6).expand(6, 6).reshape(-1), torch.arange(6).repeat_interleave(6)
"""Places that pair each element with each other one."""


def having(trait: Trait) -> list[str]:
    return [opcode for opcode, schema in OPS.items() if schema.has(trait)]


def samples(opcode: str) -> list[torch.Tensor]:
    """Values of every kind of type that an elementwise op of two operands takes."""
    taken = []
    for tensor, text in ((FLOATS, "f32[6]"), (INTEGERS, "s32[6]"), (PREDICATES, "pred[6]")):
        try:
            xla_torch.parse_hlo(f"r = {text} {opcode}({text} a, {text} b)")
        except xla_torch.errors.InvalidArgument:
            continue
        taken.append(tensor)
    return taken


def text_of(tensor: torch.Tensor) -> str:
    return {torch.float32: "f32", torch.int32: "s32", torch.bool: "pred"}[tensor.dtype] + str(list(tensor.shape)).replace(" ", "")


def applied(opcode: str, a: torch.Tensor, b: torch.Tensor) -> np.ndarray:
    shape = text_of(a)
    return xla_torch.parse_hlo(f"r = {shape} {opcode}({shape} a, {shape} b)")(a, b).numpy()


@pytest.mark.parametrize("opcode", having(Trait.COMMUTATIVE))
def test_operands_of_a_commutative_op_may_change_places(opcode: str) -> None:
    assert samples(opcode)
    for values in samples(opcode):
        a, b = values[ORDERS[0]], values[ORDERS[1]]
        np.testing.assert_array_equal(applied(opcode, a, b), applied(opcode, b, a))


@pytest.mark.parametrize("opcode", [
    o for o, s in OPS.items() if s.elementwise and s.operands == ("lhs", "rhs") and not s.has(Trait.COMMUTATIVE)
    and o not in ("compare", "complex")])
def test_others_may_not(opcode: str) -> None:
    values = samples(opcode)[0]
    a, b = values[ORDERS[0]], values[ORDERS[1]]
    assert not np.array_equal(applied(opcode, a, b), applied(opcode, b, a), equal_nan=values.is_floating_point())


@pytest.mark.parametrize("opcode", having(Trait.ASSOCIATIVE))
def test_an_associative_op_may_be_grouped_either_way(opcode: str) -> None:
    for values in samples(opcode):
        a, b, c = values[ORDERS[0]], values[ORDERS[1]], values[ORDERS[0]].flip(0)
        left = applied(opcode, torch.from_numpy(applied(opcode, a, b)), c)
        right = applied(opcode, a, torch.from_numpy(applied(opcode, b, c)))
        np.testing.assert_allclose(left.astype(np.float64), right.astype(np.float64), rtol=1e-6)


FORWARDING = {
    "reshape": "f32[6] reshape(p)", "copy": "f32[6] copy(p)", "bitcast": "f32[6] bitcast(p)",
    "opt-barrier": "f32[6] opt-barrier(p)", "add-dependency": "f32[6] add-dependency(p, t)",
    "domain": 'f32[6] domain(p), domain={kind="sharding", entry={replicated}, exit={replicated}}'}
"""Instructions that only forward their operand, an f32[6]."""


@pytest.mark.parametrize("opcode", having(Trait.FORWARDS))
def test_what_forwards_is_its_operand(opcode: str) -> None:
    program = xla_torch.parse_hlo("HloModule m\nENTRY e { p = f32[6] parameter(0) t = token[] after-all() "
                                  f"ROOT r = {FORWARDING[opcode]} }}")
    root, (parameter,) = program.module.entry.root, program.module.entry.parameters
    assert forwarded(root) is parameter
    assert origin(root) is parameter
    np.testing.assert_array_equal(program(FLOATS).numpy(), FLOATS.numpy())


@pytest.mark.parametrize(("opcode", "result", "forwards"), [
    ("bitcast", "f32[2,2]{0,1}", False), ("bitcast", "f32[2,2]{1,0}", True), ("copy", "f32[2,2]{0,1}", True),
    ("reshape", "f32[4]{0}", False)])
def test_a_bitcast_between_layouts_forwards_nothing(opcode: str, result: str, forwards: bool) -> None:
    """It reads memory: between layouts it is a transpose, while a copy keeps each element in its place."""
    program = xla_torch.parse_hlo(f"HloModule m\nENTRY e {{ p = f32[2,2]{{1,0}} parameter(0) ROOT r = {result} {opcode}(p) }}")
    assert (forwarded(program.module.entry.root) is not None) == forwards
    given = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    found = program(given)
    assert found.shape != given.shape or torch.equal(found, given) == forwards


REARRANGING = {
    "broadcast": "f32[3,6] broadcast(c), dimensions={1}", "reshape": "f32[2,3] reshape(c)", "copy": "f32[6] copy(c)",
    "transpose": "f32[6] transpose(c), dimensions={0}", "reverse": "f32[6] reverse(c), dimensions={0}",
    "slice": "f32[2] slice(c), slice={[1:5:2]}", "bitcast": "f32[3,2] bitcast(c)",
    "dynamic-slice": "f32[4] dynamic-slice(c, i), dynamic_slice_sizes={4}"}
"""Instructions over an f32[6] whose elements are all 7."""


@pytest.mark.parametrize("opcode", having(Trait.REARRANGES))
def test_what_rearranges_keeps_equal_elements_equal(opcode: str) -> None:
    program = xla_torch.parse_hlo("HloModule m\nENTRY e { i = s32[] parameter(0) s = f32[] constant(7) "
                                  f"c = f32[6] broadcast(s), dimensions={{}} ROOT r = {REARRANGING[opcode]} }}")
    literal = splat_of(program.module.entry.root)
    assert literal is not None
    assert literal.array == 7
    assert set(program(torch.tensor(1, dtype=torch.int32)).reshape(-1).tolist()) == {7.0}


@pytest.mark.parametrize("text", ["f32[] constant(7)", "f32[2] constant({7, 7})", "f32[2,2] constant({{7, 7}, {7, 7}})",
                                  "f32[2] constant({nan, nan})", "pred[2] constant({1, 1})"])
def test_constants_of_equal_elements_are_splats(text: str) -> None:
    program = xla_torch.parse_hlo(f"HloModule m\nENTRY e {{ ROOT r = {text} }}")
    literal = splat_of(program.module.entry.root)
    assert literal is not None
    np.testing.assert_array_equal(np.broadcast_to(literal.array, program.run_numpy()[0].shape), program.run_numpy()[0])


@pytest.mark.parametrize("text", ["f32[6] parameter(0)", "f32[2] constant({7, 8})", "f32[3] constant({7, 8, 7})",
                                  "f32[2] constant({0, -0})", "f32[0] constant({})", "s32[6] iota(), iota_dimension=0",
                                  "s32[] bitcast-convert(f)"])
def test_others_are_no_known_splat(text: str) -> None:
    program = xla_torch.parse_hlo(f"HloModule m\nENTRY e {{ f = f32[] constant(7) ROOT r = {text} }}")
    assert splat_of(program.module.entry.root) is None


def test_every_trait_is_asked_for() -> None:
    """A flag that no analysis, transform or lowering asks for says nothing."""
    asked: set[str] = set()
    for folder in ("xla_torch", "grad_rules"):
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith("xla_torch/opcodes/") or name.endswith("reducer_kinds.py"):
                text = path.read_text(encoding="utf-8")
                asked.update(re.findall(r"Trait\.([A-Z_]+)", text))
                asked.update({"ELEMENTWISE"} if ".elementwise" in text else ())
    assert [t.name for t in Trait if t.name not in asked] == []


def test_traits_go_together() -> None:
    """What follows from what: an op with the first trait has the second."""
    for stronger, weaker in ((Trait.REARRANGES, Trait.MOVES_DATA), (Trait.FORWARDS, Trait.MOVES_DATA),
                             (Trait.READS_LAYOUT, Trait.FORWARDS)):
        assert [o for o in having(stronger) if not OPS[o].has(weaker)] == [], f"{stronger} without {weaker}"
