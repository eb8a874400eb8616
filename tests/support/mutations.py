"""Programs of `acceptance_rows.py`, and what is wrong or different in them after one change: the mutants.

A change is made to one part of the instruction (a shape, the operands, an attribute, a region), so most mutants are near
the edge between what XLA takes and what it refuses.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from support.acceptance_rows import REGIONS, rows
from xla_torch.hlo.codecs import ChoiceCodec
from xla_torch.hlo.schema import OPS

_LEAF = re.compile(r"([a-z][a-z0-9]*)\[([^\]]*)\](\{[\d,]*\})?")
_SHAPE = r"(?:\((?:[^()]|\([^()]*\))*\)|[a-z][a-z0-9]*\[[^\]]*\](?:\{[\d,]*\})?)"
_INSTRUCTION = re.compile(rf"({_SHAPE}) ([a-z][a-z0-9-]*)\((.*)", re.S)
_LEAF_TEXT = re.compile(r"[a-z][a-z0-9]*\[[^\]]*\]")
_AFTER = {  # XLA wants each start to have its done, of the start's leaves 0, 1, ...
    "async-start": "{1} async-done(r)", "async-update": "{1} async-done(r)", "copy-start": "{0} copy-done(r)",
    "all-gather-start": "{1} all-gather-done(r)", "all-reduce-start": "{0} all-reduce-done(r)",
    "collective-permute-start": "{1} collective-permute-done(r)", "send": "token[] send-done(r)",
    "recv": "({0}, token[]) recv-done(r)",
}
_TYPES = ("pred", "s32", "u8", "f16", "f32", "f64", "c64")


def split_outside(text: str, separator: str = ",") -> list[str]:
    """The pieces of a text between separators that stand in no brackets and no string."""
    pieces, depth, quoted, start = [], 0, False, 0
    for at, char in enumerate(text):
        quoted ^= char == '"'
        if quoted:
            continue
        depth += (char in "({[") - (char in ")}]")
        if char == separator and not depth:
            pieces.append(text[start:at].strip())
            start = at + 1
    pieces.append(text[start:].strip())
    return [piece for piece in pieces if piece]


@dataclasses.dataclass(frozen=True)
class Case:
    """A module of one instruction over definitions p0, p1, ... (a shape alone is a parameter)."""

    definitions: tuple[str, ...]
    result: str
    """The declared shape, or "" to leave it out."""
    opcode: str
    contents: str
    """What stands in the parentheses of a parameter or a constant; of other opcodes, the operands' names."""
    attributes: tuple[tuple[str, str], ...] = ()
    regions: tuple[tuple[str, str], ...] = ()
    """Regions that differ from `REGIONS`."""
    after: str = ""
    """What makes the module's result out of the instruction, r; "" where it is the result itself."""

    @staticmethod
    def parse(definitions: str, instruction: str) -> Case:
        match = _INSTRUCTION.fullmatch(instruction)
        assert match, instruction
        result, opcode, rest = match.groups()
        depth, end = 1, 0
        while depth:
            depth += (rest[end] == "(") - (rest[end] == ")")
            end += 1
        named = (a.partition("=") for a in split_outside(rest[end:]))
        after = _AFTER.get(opcode, f"{{1}} {opcode[:-6]}-done(r)" if opcode.endswith("-start") else "")
        after = after.format(*_LEAF_TEXT.findall(result)) + "".join(
            f", {a}" for a in split_outside(rest[end:]) if opcode in ("send", "recv"))
        return Case(tuple(filter(None, definitions.split("; "))), result, opcode, rest[:end - 1],
                    tuple((name, value) for name, _, value in named), after=after)

    @property
    def operands(self) -> list[str]:
        return [] if self.opcode in ("parameter", "constant") else self.contents.split(", ") if self.contents else []

    @property
    def instruction(self) -> str:
        written = "".join(f", {name}={value}" for name, value in self.attributes)
        return f"{self.result + ' ' * bool(self.result)}{self.opcode}({self.contents}){written}"

    @property
    def text(self) -> str:
        """The module's HLO text."""
        lines = []
        for number, definition in enumerate(self.definitions):
            plain = not _INSTRUCTION.fullmatch(definition)
            parameter = sum(not _INSTRUCTION.fullmatch(d) for d in self.definitions[:number])
            lines.append(f"  p{number} = {definition}{f' parameter({parameter})' if plain else ''}\n")
        lines.append(f"  {'' if self.after else 'ROOT '}r = {self.instruction}\n")
        if self.after:
            lines.append(f"  ROOT z = {self.after}\n")
        known = REGIONS | dict(self.regions)
        words = set(re.findall(r"\w+", " ".join([*(value for _, value in self.attributes), *self.definitions])))
        regions = "".join(f"{name} {{\n  {known[name]}\n}}\n\n" for name in known if name in words)
        return f"HloModule m\n\n{regions}ENTRY e {{\n{''.join(lines)}}}\n"


def cases() -> list[Case]:
    """Every row as it stands and, where its shape may be left out, without it."""
    written = [Case.parse(*row) for row in rows()]
    return [c for case in written for c in (case, *_without_shape(case))]


def _without_shape(case: Case) -> Iterator[Case]:
    definition = OPS.get(case.opcode)
    if definition is not None and definition.inferable and case.opcode != "broadcast":  # XLA infers nonsense there
        yield dataclasses.replace(case, result="")


def mutants(case: Case) -> Iterator[Case]:
    """Every case that one change makes of this one."""
    for change in (_of_shapes, _of_operands, _of_attributes, _of_regions, _of_contents):
        yield from change(case)


def all_mutants() -> list[Case]:
    """The mutants of all cases, each once."""
    found: dict[str, Case] = {}
    for case in cases():
        for mutant in (case, *mutants(case)):
            found.setdefault(mutant.text, mutant)
    return list(found.values())


# ---------------------------------------------------------------------------------------------------- shapes


def _of_shapes(case: Case) -> Iterator[Case]:
    for number, definition in enumerate(case.definitions):
        match = _INSTRUCTION.fullmatch(definition)
        shape = match[1] if match else definition
        for other in other_shapes(shape):
            changed = (*case.definitions[:number], other + definition[len(shape):], *case.definitions[number + 1:])
            yield dataclasses.replace(case, definitions=changed)
    if case.result:
        yield from (dataclasses.replace(case, result=other) for other in other_shapes(case.result))


def other_shapes(shape: str) -> Iterator[str]:
    """Shapes that differ from this one in one place."""
    for match in _LEAF.finditer(shape):
        element_type, dims, layout = match[1], [d for d in match[2].split(",") if d], match[3] or ""
        for other in _TYPES:
            if other != element_type:
                yield _replaced(shape, match, other, dims, layout)
        for other in _other_dimensions(dims):
            yield _replaced(shape, match, element_type, other)
        for other in ("{0,0}", "{1}", "{0,2}", "{" + ",".join(map(str, range(len(dims)))) + "}"):
            if other != layout:
                yield _replaced(shape, match, element_type, dims, other)
    yield from (f"({shape})", "token[]", "()")
    if shape.startswith("("):
        parts = split_outside(shape[1:-1])
        yield from (f"({', '.join(parts[:-1])})", f"({', '.join([*parts, 'f32[2]'])})", f"({', '.join(parts[::-1])})")
        yield from (parts[0] for _ in parts[:1])


def _replaced(shape: str, match: re.Match[str], element_type: str, dims: list[str], layout: str = "") -> str:
    return f"{shape[:match.start()]}{element_type}[{','.join(dims)}]{layout}{shape[match.end():]}"


def _other_dimensions(dims: list[str]) -> Iterator[list[str]]:
    for place, size in enumerate(dims):
        number = int(size.removeprefix("<="))
        for other in dict.fromkeys([str(number + 1), "0", "1", f"<={number}", "-1"]):
            if other != size:
                yield [*dims[:place], other, *dims[place + 1:]]
    if dims:
        yield dims[:-1]
    if len(dims) > 1:
        yield dims[::-1]
    yield from ([*dims, "1"], ["2", *dims])


# ---------------------------------------------------------------------------------------------------- operands and contents


def _of_operands(case: Case) -> Iterator[Case]:
    operands = case.operands
    for place in range(len(operands)):
        for other in ([], [operands[place]] * 2):
            yield dataclasses.replace(case, contents=", ".join([*operands[:place], *other, *operands[place + 1:]]))
        if place:
            swapped = [*operands[:place - 1], operands[place], operands[place - 1], *operands[place + 1:]]
            yield dataclasses.replace(case, contents=", ".join(swapped))
    if operands:
        others = ("unknown", "r", "f32[7] p0")
        yield from (dataclasses.replace(case, contents=", ".join([other, *operands[1:]])) for other in others)
    if case.definitions and not operands and case.opcode not in ("parameter", "constant"):
        yield dataclasses.replace(case, contents="p0")


_CONTENTS = {
    "parameter": ("-1", "2", "0", "x", "", "0, 1", "99999999999999999999"),
    "constant": ("", "1", "{1}", "{1,2,3}", "{{1,2}}", "{1,x}", "{300,-1}", "{1e999,0}", "{nan,inf}", "true", "(1,2)", "{(1,2)}",
                 "{1.5,2}", "{-0,0}", "{99999999999999999999,1}", "{...}", "{1,2},{3,4}", "{1,,2}", "2", "-1", "1e400",
                 "{true,false}", "({1},2)", "{1,2,}", '"x"', "nan(0x1)", "{0x1,1}"),
}


def _of_contents(case: Case) -> Iterator[Case]:
    yield from (dataclasses.replace(case, contents=contents) for contents in _CONTENTS.get(case.opcode, ()))


# ---------------------------------------------------------------------------------------------------- attributes

_FOREIGN = ("dimensions={0}", "index=0", "to_apply=add", "channel_id=1", "foo=1", 'metadata={op_name="x"}',
            "sharding={replicated}", 'backend_config="x"', 'frontend_attributes={a="b"}', "control-predecessors={p0}",
            "operand_precision={high}", "window={size=2}", "is_stable=true", "calls=add", "direction=LT")


def _of_attributes(case: Case) -> Iterator[Case]:
    attributes = case.attributes
    for place, (name, value) in enumerate(attributes):
        before, after = attributes[:place], attributes[place + 1:]
        yield dataclasses.replace(case, attributes=before + after)
        yield dataclasses.replace(case, attributes=(*attributes, (name, value)))
        yield dataclasses.replace(case, attributes=(*before, (name + "x", value), *after))
        for other in dict.fromkeys(other_values(case.opcode, name, value)):
            if other != value:
                yield dataclasses.replace(case, attributes=(*before, (name, other), *after))
    if case.result:
        for foreign in _FOREIGN:
            name, _, value = foreign.partition("=")
            if name not in dict(attributes):
                yield dataclasses.replace(case, attributes=(*attributes, (name, value)))


def other_values(opcode: str, name: str, value: str) -> Iterator[str]:
    """Other texts for an attribute, by what its value looks like."""
    definition = OPS.get(opcode)
    codec = definition.attributes[name].codec if definition and name in definition.attributes else None
    yield from ("", "{}", "x")
    if name in ("to_apply", "calls", "condition", "body", "select", "scatter", "true_computation", "false_computation"):
        yield from (*REGIONS, "unknown", "{add}")
    elif name == "branch_computations":
        names = split_outside(value[1:-1])
        yield from (_braced(names[:-1]), _braced([*names, names[0]]), _braced(names[::-1]), _braced(["unknown"]), names[0])
    elif isinstance(codec, ChoiceCodec):
        yield from codec.words
        yield value.swapcase()
    elif name == "window":
        yield from _other_windows(value[1:-1])
    elif name == "slice":
        yield from _other_slices(split_outside(value[1:-1]))
    elif name == "padding":
        yield from _other_crossed(value, ("0_0_-1", "-9_0", "1_1_2", "1", "0_0_0_0", "-1_-1_3"))
    elif name == "dim_labels":
        yield from _other_labels(value)
    elif re.fullmatch(r"\{\s*(\{[\d,]*\},?)*\}", value) and "{" in value[1:]:
        yield from ("{{0,0}}", "{{0},{0}}", "{{1}}", "{{0,1},{2,3}}", "{{0},{1,2}}", "{{-1}}", "{0}", "{{}}", "{{0,1,2}}",
                    "{{0,2}}", "[1,2]<=[2]", "[2,2]<=[3]", "{{0,1},{0,2}}", "{{0,1},{2,1}}")
    elif value.startswith("{") and re.fullmatch(r"[-\d,\s]*", value[1:-1]):
        yield from _other_lists([int(n) for n in split_outside(value[1:-1])])
    elif re.fullmatch(r"-?\d+", value):
        number = int(value)
        yield from map(str, (0, -1, 1, 2, number + 1, number - 1, 2**31, 2**40, 10**20))
        yield from ("1.5", "{1}")
    elif re.fullmatch(r"-?\d+\.\d*", value):
        yield from ("-1", "0", "nan", "inf", "1e40", "1e-60", "{0.1}")
    elif value in ("true", "false"):
        yield from ("true", "false", "1", "2", "TRUE")
    elif value.startswith("{"):
        yield from ("{mode=highest}", "{mode=x}", "{tolerance={ulps=1.5}}", "{high}", "{high,high,high}", "{maximal device=0}",
                    "{kind=x}")
    elif value.startswith("["):
        yield from ("[1,2]<=[2]", "[1,1]<=[2]", "[0]<=[0]", "[1,1]<=[1]T(0)", "[-1,1]<=[1]")


def _braced(parts: list[str]) -> str:
    return "{" + ",".join(parts) + "}"


def _other_lists(numbers: list[int]) -> Iterator[str]:
    for place, number in enumerate(numbers):
        for other in (-1, number + 1, number - 1, 9, 0, 2**40):
            yield _braced([str(n) for n in (*numbers[:place], other, *numbers[place + 1:])])
    texts = [str(n) for n in numbers]
    yield from (_braced(texts[:-1]), _braced(texts[::-1]), _braced([*texts, "0"]), _braced([*texts, "1"]),
                _braced([*texts, str(max(numbers, default=-1) + 1)]), "{" + ",".join(texts) + ",}", "0")


def _other_windows(fields: str) -> Iterator[str]:
    given = dict(field.split("=") for field in fields.split())
    for name in dict.fromkeys([*given, "stride", "lhs_dilate", "rhs_dilate", "pad", "rhs_reversal"]):
        count = given["size"].count("x") + 1
        plain = given.get(name, "x".join(["0_0" if name == "pad" else "0" if name == "rhs_reversal" else "1"] * count))
        others = ("0_0", "-1_-1", "1_0", "-9_0", "1") if name == "pad" else ("0", "-1", "1", "2", "1_1", str(2**40))
        for other in _other_crossed(plain, others):
            changed = given | {name: other}
            yield "{" + " ".join(f"{k}={v}" for k, v in changed.items()) + "}"
        if name in given:
            yield "{" + " ".join(f"{k}={v}" for k, v in given.items() if k != name) + "}"
    yield "{" + fields + " sizes=1}"
    yield "{" + fields + " " + fields + "}"


def _other_crossed(value: str, others: tuple[str, ...]) -> Iterator[str]:
    parts = value.split("x") if value else []
    for place in range(len(parts)):
        yield from ("x".join([*parts[:place], other, *parts[place + 1:]]) for other in others)
    yield from ("x".join(parts[:-1]), "x".join([*parts, *parts[:1]]), value + "x", "1_0")


def _other_slices(parts: list[str]) -> Iterator[str]:
    for place, part in enumerate(parts):
        start, limit = map(int, part[1:-1].split(":")[:2])
        for other in (f"[{limit + 1}:{limit}]", f"[{start}:{limit + 9}]", f"[{start}:{limit}:0]", f"[{start}:{limit}:2]",
                      f"[{start}:{limit}:-1]", f"[-1:{limit}]", f"[{start}:{limit}:{2**40}]", f"[{limit}:{limit}]", f"[{start}]"):
            yield _braced([*parts[:place], other, *parts[place + 1:]])
    yield from (_braced(parts[:-1]), _braced([*parts, "[0:1]"]), _braced(parts[::-1]), parts[0])


def _other_labels(value: str) -> Iterator[str]:
    for place, char in enumerate(value):
        for other in {"b": "f1", "f": "b", "i": "o0", "o": "i", "0": "1b?", "1": "0"}.get(char, ""):
            yield value[:place] + other + value[place + 1:]
        if char.isalnum():
            yield value[:place] + value[place + 1:]
        if place and char.isalnum() and value[place - 1].isalnum():
            yield value[:place - 1] + char + value[place - 1] + value[place + 1:]
    yield value.replace("_", "")


# ---------------------------------------------------------------------------------------------------- regions


def _of_regions(case: Case) -> Iterator[Case]:
    if not case.result:
        return
    words = [w for _, value in case.attributes for w in re.findall(r"\w+", value) if w in REGIONS]
    for name in dict.fromkeys(words):
        for other in dict.fromkeys(_other_regions(REGIONS[name])):
            if other != REGIONS[name]:
                yield dataclasses.replace(case, regions=((name, other),))


def _other_regions(region: str) -> Iterator[str]:
    lines = region.split("\n  ")
    swapped = region.replace("parameter(0)", "parameter(#)").replace("parameter(1)", "parameter(0)")
    yield swapped.replace("parameter(#)", "parameter(1)") if "parameter(1)" in region else region
    yield region.replace("parameter(1)", "parameter(0)")
    yield region.replace("parameter(0)", "parameter(9)")
    yield region.replace("ROOT ", "")
    yield "\n  ".join(lines[::-1])
    for element_type in ("f32", "s32", "pred"):
        yield from (region.replace(f"{element_type}[", f"{other}[") for other in ("f16", "f64", "s64", "u32", "c64"))
    for place, line in enumerate(lines):
        yield "\n  ".join(lines[:place] + lines[place + 1:])
        for match in _LEAF.finditer(line):
            for other in ("s32", "f16", "f32"):
                changed = _replaced(line, match, other, [d for d in match[2].split(",") if d])
                yield "\n  ".join([*lines[:place], changed, *lines[place + 1:]])
            changed = _replaced(line, match, match[1], [*[d for d in match[2].split(",") if d], "2"])
            yield "\n  ".join([*lines[:place], changed, *lines[place + 1:]])
    yield "\n  ".join([*lines[:-1], "z = f32[] parameter(9)", lines[-1]])
    yield "\n  ".join([f"z = f32[] parameter({region.count('parameter(')})", *lines])
