"""The region interface: every op with computations says what it does with them."""

from __future__ import annotations

import pytest

from xla_torch.hlo import regions
from xla_torch.hlo.codecs import RegionCodec, RegionsCodec
from xla_torch.hlo.ir import Computation, Instruction
from xla_torch.hlo.printer import print_instruction
from xla_torch.hlo.regions import Region, Role
from xla_torch.hlo.schema import OPS
from xla_torch.opcodes import front

COMPUTATIONS = """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
negate { a = f32[] parameter(0) ROOT r = f32[] negate(a) }
less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }
step { x = f32[] parameter(0) c = f32[] parameter(1) s = f32[] add(c, x) ROOT r = (f32[], f32[]) tuple(s, s) }
condition { p = (s32[], f32[]) parameter(0) i = s32[] get-tuple-element(p), index=0 n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT }
body { ROOT p = (s32[], f32[]) parameter(0) }
ENTRY main {
  x = f32[] parameter(0)
  v = f32[4] parameter(1)
  w = f32[4] parameter(2)
  k = s32[] parameter(3)
  t = pred[] parameter(4)
  m = f32[4,4] parameter(5)
  source = f32[2,2] parameter(6)
  i = s32[2,1] parameter(7)
  u = f32[2] parameter(8)
  carry = (s32[], f32[]) tuple(k, x)
  PREFIX
  ROOT op = INSTRUCTION
}
"""

ROWS: dict[str, tuple[str, list[tuple[Role, str, tuple[int, ...]]]]] = {
    "call": ("f32[] call(x), to_apply=negate", [(Role.CALLEE, "negate", (0,))]),
    "fusion": ("f32[] fusion(x, x), kind=kLoop, calls=add", [(Role.CALLEE, "add", (0, 1))]),
    "async-start": ("((f32[]), f32[], s32[]) async-start(x), calls=negate", [(Role.STARTED, "negate", (0,))]),
    "while": ("(s32[], f32[]) while(carry), condition=condition, body=body",
              [(Role.CONDITION, "condition", (0,)), (Role.BODY, "body", (0,))]),
    "conditional": ("f32[] conditional(t, x, x), true_computation=negate, false_computation=negate",
                    [(Role.BRANCH, "negate", (1,)), (Role.BRANCH, "negate", (2,))]),
    "conditional of many": ("f32[] conditional(k, x, x, x), branch_computations={negate, negate, negate}",
                            [(Role.BRANCH, "negate", (1,)), (Role.BRANCH, "negate", (2,)), (Role.BRANCH, "negate", (3,))]),
    "reduce": ("f32[] reduce(v, x), dimensions={0}, to_apply=add", [(Role.ELEMENTS, "add", ())]),
    "map": ("f32[4] map(v, w), dimensions={0}, to_apply=add", [(Role.ELEMENTS, "add", ())]),
    "sort": ("f32[4] sort(v), dimensions={0}, to_apply=less", [(Role.ELEMENTS, "less", ())]),
    "reduce-window": ("f32[3] reduce-window(v, x), window={size=2}, to_apply=add", [(Role.ELEMENTS, "add", ())]),
    "select-and-scatter": ("f32[4,4] select-and-scatter(m, source, x), window={size=2x2 stride=2x2}, select=less, scatter=add",
                           [(Role.ELEMENTS, "less", ()), (Role.ELEMENTS, "add", ())]),
    "scatter": ("f32[4] scatter(v, i, u), to_apply=add, update_window_dims={}, inserted_window_dims={0}, "
                "scatter_dims_to_operand_dims={0}, index_vector_dim=1", [(Role.ELEMENTS, "add", ())]),
    "all-reduce": ("f32[4] all-reduce(v), to_apply=add", [(Role.ELEMENTS, "add", ())]),
    "all-reduce-start": ("f32[4] all-reduce-start(v), to_apply=add", [(Role.ELEMENTS, "add", ())]),
    "reduce-scatter": ("f32[4] reduce-scatter(v), dimensions={0}, to_apply=add", [(Role.ELEMENTS, "add", ())]),
    "collective-reduce": ("f32[4] collective-reduce(v), to_apply=add", [(Role.ELEMENTS, "add", ())]),
    "scan": ("(f32[4], f32[]) scan(v, x), dimensions={0}, num_carries=1, to_apply=step", [(Role.OPAQUE, "step", ())]),
    "custom-call": ("f32[4] custom-call(v), custom_call_target=\"f\", called_computations={add, negate}",
                    [(Role.OPAQUE, "add", ()), (Role.OPAQUE, "negate", ())]),
    "async-update": ("((f32[]), f32[], s32[]) async-update(s), calls=negate", [(Role.OPAQUE, "negate", ())]),
    "async-done": ("f32[] async-done(s), calls=negate", [(Role.OPAQUE, "negate", ())]),
}
PREFIXES: dict[str, str] = dict.fromkeys(("async-update", "async-done"), f"s = {ROWS['async-start'][0]}")


def instruction_of(name: str) -> Instruction:
    text = COMPUTATIONS.replace("INSTRUCTION", ROWS[name][0]).replace("PREFIX", PREFIXES.get(name, ""))
    module = front.parse_module(text)
    front.verify(module)
    return module.entry.root


def test_every_op_with_a_computation_has_a_row() -> None:
    taking = {o for o, s in OPS.items() if any(isinstance(a.codec, RegionCodec | RegionsCodec) for a in s.attributes.values())}
    assert taking <= {name.split()[0] for name in ROWS}


@pytest.mark.parametrize("name", ROWS)
def test_roles_and_arguments(name: str) -> None:
    instruction = instruction_of(name)
    found = regions.regions(instruction)
    assert [(r.role, r.computation.name, r.arguments) for r in found] == ROWS[name][1]
    assert tuple(r.computation for r in found) == instruction.called_computations
    assert regions.has_regions_of_values(instruction) == all(r.arguments for r in found)
    for region in found:
        assert region.gives_result == (region.role in (Role.CALLEE, Role.BRANCH, Role.BODY))
        assert region.is_repeated == (region.role in (Role.CONDITION, Role.BODY))
        parameters = region.computation.program_shape.parameters
        if region.arguments:
            given = [instruction.operands[k].shape for k in region.arguments]
            assert [str(p) for p in parameters] == [str(g) for g in given]
        if region.gives_result:
            assert region.computation.root.shape.compatible(instruction.shape)


@pytest.mark.parametrize("name", ROWS)
def test_regions_are_put_back_where_they_were(name: str) -> None:
    instruction = instruction_of(name)
    before = print_instruction(instruction)
    assert regions.with_regions(instruction, lambda region: region.computation) == instruction.attributes

    def renamed(region: Region) -> Computation:
        return Computation(f"new_{region.computation.name}", region.computation.instructions, region.computation.root)

    attributes = regions.with_regions(instruction, renamed)
    clone = Instruction(instruction.opcode, instruction.shape, instruction.operands, attributes, instruction.name)
    assert [c.name for c in clone.called_computations] == [f"new_{c}" for _, c, _ in ROWS[name][1]]
    assert print_instruction(clone).replace("%new_", "%") == before
    assert print_instruction(instruction) == before


def test_kinds_of_control() -> None:
    kinds = {name: (regions.is_call(i), regions.is_start(i), regions.is_loop(i), regions.is_branching(i))
             for name, i in ((name, instruction_of(name)) for name in ROWS)}
    assert {name for name, kind in kinds.items() if kind[0]} == {"call", "fusion"}
    assert {name for name, kind in kinds.items() if kind[1]} == {"async-start"}
    assert {name for name, kind in kinds.items() if kind[2]} == {"while"}
    assert {name for name, kind in kinds.items() if kind[3]} == {"conditional", "conditional of many"}
    assert max(map(sum, kinds.values())) == 1


def test_what_is_run_by_name() -> None:
    loop = regions.loop_of(instruction_of("while"))
    assert (loop.condition.name, loop.body.name) == ("condition", "body")
    assert regions.callee(instruction_of("fusion")).name == "add"
    assert [c.name for c in regions.branches_of(instruction_of("conditional of many"))] == ["negate"] * 3
