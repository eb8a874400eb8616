"""Runs claims (`claims.py`) through their entry points."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

import xla_torch
from support.claim_values import namespace
from support.claims import ENTRY_POINTS, Claim
from support.oracle import HAS_XLA, run_xla, run_xla_replicas, xla_accepts, xla_canonical
from xla_torch import Literal, Shape, XlaBuilder, XlaOp, ops
from xla_torch.api.emitted_ops import functions_of_ops
from xla_torch.distributed import feeds
from xla_torch.errors import XlaError
from xla_torch.hlo.ir import Instruction, Module
from xla_torch.hlo.printer import print_module
from xla_torch.hlo.schema import schema_of
from xla_torch.lowering import numerics
from xla_torch.opcodes import comparison, reduction
from xla_torch.storage.dtypes import torch_dtype, type_from_torch
from xla_torch.types import PrimitiveType, type_from_numpy

Arrays = list[np.ndarray]

NOT_COMPILED = {"Cosh", "RaggedDot", "ScaledDot", "RaggedAllToAll", "CollectiveBroadcast"}
"""Functions whose op this XLA does not compile for the CPU."""


class NotingBuilder(XlaBuilder):
    """A builder that keeps the instruction that it refused."""

    refused: Instruction | None = None

    def add(self, opcode: str, operands: Any = (), attributes: Any = None, shape: Any = None, name: str = "",
            common: Any = None) -> XlaOp:
        operands = list(operands)
        try:
            return super().add(opcode, operands, attributes, shape, name, common)
        except XlaError:
            if operands and all(isinstance(o, XlaOp) for o in operands):
                given = {n: schema_of(opcode).attributes[n].codec.normalise(v) for n, v in (attributes or {}).items()}
                self.refused = Instruction(opcode, shape or operands[0].shape, [o.instruction for o in operands], given, opcode)
            raise


class Built(NamedTuple):
    """A claim's call in a builder: the computation, and the arguments it is to run with."""

    computation: xla_torch.XlaComputation
    arguments: Arrays
    halves: bool
    """The root has the value of the call, and then as many of what it is compared with."""


def check(claim: Claim) -> None:
    """Check a claim in every entry point that applies. Raises AssertionError, or what an entry point raises."""
    if "hlo" in claim.names:
        _check_text(claim)
    elif not is_built(claim):
        assert _plain(claim.check, claim.names) is True
    elif claim.form == " ! ":
        _check_refusal(claim)
    elif claim.participants:
        _check_participants(claim)
    else:
        _check_alone(claim)


def is_built(claim: Claim) -> bool:
    """The check has documented functions in it."""
    return any(hasattr(ops, name) and not isinstance(getattr(ops, name), type) for name in claim.names)


def entry_points(claim: Claim) -> dict[str, str]:
    """For each entry point ``yes``, or why the claim is not checked in it."""
    found = dict.fromkeys(ENTRY_POINTS, "yes")
    if "hlo" in claim.names:
        found |= {"eager": "text", "built": "text"}
    elif not is_built(claim):
        found = dict.fromkeys(found, "shapes") | {"eager": "yes"}
    elif claim.form == " prints ":
        found["eager"] = "text"
    elif claim.participants:
        found["eager"] = "participants"
        if claim.participants[0] * claim.participants[1] > 4:
            found["xla"] = "has 4 devices here"
    elif claim.form != " ! " and not _has_tensors(built(claim)):
        found["eager"] = "no torch dtype"
    elif "feed" in claim.marks or "fetch" in claim.marks:
        found["xla"] = "is not fed here"
    if claim.form == " ! " and found["xla"] == "yes" and "hlo" not in claim.names and is_built(claim):
        found["xla"] = "yes" if claim.marks.get("text") is None and _infers(claim) else "no shape inference in its text"
    if found["xla"] == "yes" and claim.names & NOT_COMPILED:
        found["xla"] = "not compiled for the CPU"
    return found | {entry_point: claim.marks[entry_point] for entry_point in found if entry_point in claim.marks}


# ------------------------------------------------------------------------------------------------- evaluating


def _plain(text: str, names: set[str]) -> Any:
    return eval(text, namespace(names, lambda array: array, None))


def wanted(claim: Claim) -> Arrays:
    return _leaves(_plain(claim.want, claim.names))


def _in_operators(claim: Claim) -> bool:
    """What the call is compared with is a call too."""
    return claim.form == "==" and bool(re.search(r"\b[A-Z]\w+\(", claim.want)) and "Literal" not in claim.want


def evaluated(claim: Claim, give: Callable[[np.ndarray], Any], builder: XlaBuilder | None) -> Any:
    """The call, or the call and what it is compared with as one tuple of two."""
    known = namespace(claim.names, give, builder)
    value = eval(claim.call, known)
    return (value, eval(claim.want, known)) if _in_operators(claim) else value


def eager(claim: Claim) -> Arrays:
    return [_numpy(t) for t in _leaves(evaluated(claim, _tensor, None)) if isinstance(t, torch.Tensor)]


def built(claim: Claim, builder: XlaBuilder | None = None) -> Built:
    builder, arguments = builder or XlaBuilder("claim"), list[np.ndarray]()

    def parameter(array: np.ndarray) -> XlaOp:
        arguments.append(array)
        shape = Literal.of(array[0] if claim.participants else array).shape
        return builder.parameter(len(arguments) - 1, shape)

    result = evaluated(claim, parameter, builder)
    leaves = _leaves(result)
    root = leaves[0] if isinstance(result, XlaOp) else ops.Tuple(builder, leaves)
    return Built(builder.build(root), arguments, _in_operators(claim))


def _leaves(value: Any) -> list[Any]:
    return [leaf for v in value for leaf in _leaves(v)] if isinstance(value, tuple | list) else [value]


def _tensor(array: np.ndarray) -> torch.Tensor:
    element_type = _type_of(array)
    if (element_type.is_narrow and element_type.is_floating) or element_type.text == "bf16":
        return torch.from_numpy(array.view(f"i{array.itemsize}").copy()).view(torch_dtype(element_type))
    return torch.from_numpy(np.array(array))


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    kind = type_from_torch(tensor.dtype)
    assert kind is not None
    return numerics.numpy_from_storage(numerics.to_storage(tensor.detach(), kind), kind)


def _type_of(array: np.ndarray) -> PrimitiveType:
    found = type_from_numpy(array.dtype)
    assert found is not None, array.dtype
    return found


def _has_tensors(program: Built) -> bool:
    result = program.computation.program_shape.result
    kinds = [_type_of(a) for a in program.arguments] + [s.element_type for s in result.leaves() if s.is_array]
    return all(_has_dtype(kind) for kind in kinds)


@functools.cache
def _has_dtype(kind: PrimitiveType) -> bool:
    try:
        return type_from_torch(torch_dtype(kind)) is kind
    except (XlaError, KeyError):
        return False


# ------------------------------------------------------------------------------------------------- the entry points


def _check_alone(claim: Claim) -> None:
    program, applies = built(claim), entry_points(claim)
    if applies["eager"] == "yes":
        _hosted(claim, lambda: eager(claim), program)
    if applies["built"] == "yes" and claim.form != " prints ":
        _hosted(claim, lambda: list(program.computation.run_numpy(*program.arguments)), program)
    if applies["text"] != "yes":
        return
    text = program.computation.to_hlo_text()
    read = xla_torch.parse_hlo(text)
    assert read.program_shape.result.without_layout() == program.computation.program_shape.result.without_layout()
    if claim.form == " prints ":
        assert claim.want in text, text
        assert not (applies["xla"] == "yes" and HAS_XLA) or xla_accepts(text) is None
        return
    _hosted(claim, lambda: list(read.run_numpy(*program.arguments)), program)
    if applies["xla"] == "yes" and HAS_XLA:
        _compare(claim, run_xla(text, *program.arguments), program)


def _hosted(claim: Claim, run: Callable[[], Arrays], program: Built) -> None:
    """Run with what the host feeds, and compare, also what it fetches."""
    if "feed" in claim.marks:
        feeds.feed(*map(_tensor, _leaves(_plain(claim.marks["feed"], _names(claim.marks["feed"])))))
    _compare(claim, run(), program)
    if "fetch" in claim.marks:
        want = _leaves(_plain(claim.marks["fetch"], _names(claim.marks["fetch"])))
        same([_numpy(t) for t in feeds.fetch()], want, None)


def _names(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", text))


def _compare(claim: Claim, got: Arrays, program: Built | None) -> None:
    if claim.form == " where ":
        result = got[0] if len(got) == 1 else tuple(got)
        assert np.all(eval(claim.want, namespace(_names(claim.want), lambda a: a, None) | {"r": result})), result
    elif claim.form == " -> ":
        shapes = [leaf for leaf in Shape.parse(claim.want).leaves() if leaf.is_array]
        assert program is None or str(program.computation.program_shape.result.without_layout()) == claim.want
        assert [(_type_of(a), a.shape) for a in got if a is not None] == [
            (s.element_type, a.shape if not s.is_static else s.dimensions) for s, a in zip(shapes, got, strict=True)]
    elif program is not None and program.halves:
        half = len(got) // 2
        same(got[:half], got[half:], claim.marks.get("rtol"))
    else:
        same(got, wanted(claim), claim.marks.get("rtol"))


def same(got: Sequence[Any], want: Sequence[Any], rtol: str | None) -> None:
    """The same types, sizes and values, up to the last places of floats; zeros have their signs."""
    assert len(got) == len(want), f"{len(got)} results"
    for a, b in zip(got, want, strict=True):
        if not isinstance(b, np.ndarray):
            b = np.asarray(b, a.dtype)
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"got {a!r}, wanted {b!r}"
        if not (_type_of(b).is_floating or _type_of(b).is_complex):
            assert np.array_equal(a, b), f"got {a!r}, wanted {b!r}"
            continue
        wide = np.complex128 if _type_of(b).is_complex else np.float64
        bits = b.dtype.itemsize * 8 // (2 if _type_of(b).is_complex else 1)
        near = float(rtol) if rtol else {64: 1e-12, 32: 2e-6, 16: 4e-3}.get(bits, 0.0)
        with np.errstate(all="ignore"):
            wide_a, wide_b = a.astype(wide), b.astype(wide)
            assert np.allclose(wide_a, wide_b, rtol=near, atol=near if rtol or near < 1e-3 else 0.0, equal_nan=True), \
                f"got {a!r}, wanted {b!r}"
        if wide is np.float64:
            assert (np.signbit(wide_a) == np.signbit(wide_b))[wide_b == 0].all() or rtol, f"got {a!r}, wanted {b!r}"


def _check_refusal(claim: Claim) -> None:
    applies = entry_points(claim)
    if applies["eager"] == "yes":
        _refused(claim, lambda: evaluated(claim, _tensor, None))
    builder = NotingBuilder("claim")
    if applies["built"] == "yes":
        _refused(claim, lambda: built(claim, builder))
    if applies["text"] != "yes":
        return
    text = _text_of_refused(builder) if builder.refused else _text_of_call(claim, builder)
    _refused(claim, lambda: xla_torch.parse_hlo(text), text)
    if applies["xla"] == "yes" and HAS_XLA:
        assert xla_accepts(text) is not None, f"XLA takes {text}"


def _refused(claim: Claim, run: Callable[[], Any], text: str = "") -> None:
    message = ""
    try:
        run()
    except XlaError as error:
        message = str(error)
    assert message, f"taken {text}"
    assert claim.want in message, message


def _infers(claim: Claim) -> bool:
    """XLA's parser infers the shape of the op that is refused, so it can refuse it too."""
    builder = NotingBuilder("claim")
    with contextlib.suppress(XlaError):
        built(claim, builder)
    name = claim.call.partition("(")[0]
    return _is_inferred(builder.refused.opcode if builder.refused else next(iter(functions_of_ops()[name].results)))


def _text_of_refused(builder: NotingBuilder) -> str:
    """The refused instruction as a program. Its result shape is left out where the parser can infer it."""
    refused = builder.refused
    assert refused is not None
    root = builder.append(refused)
    text = print_module(Module("claim", builder.finish(root)))
    text = re.sub(r", entry_computation_layout=.*", "", text)
    text = re.sub(r"(ENTRY [^\n]*?) \(.*\) -> [^\n]*\{\n", r"\1 {\n", text)
    if not _is_inferred(refused.opcode):
        return text
    before, entry, rest = text.rpartition("ENTRY ")
    return before + entry + re.sub(r"(ROOT \S+ = )(?:\([^=]*?\)|\S+) (?=[a-z][\w-]*\()", r"\1", rest)


def _text_of_call(claim: Claim, builder: NotingBuilder) -> str:
    """The call of a function that refused before it made an instruction: its one opcode, of the parameters."""
    name = claim.call.partition("(")[0]
    opcode, = functions_of_ops()[name].results
    rest = f", direction={name[:2].upper()}" if opcode == comparison.compare else ""
    parameters = [i for i in builder.instructions if i.is_parameter]
    lines = [f"  p{k} = {i.shape} parameter({k})\n" for k, i in enumerate(parameters)]
    operands = ", ".join(f"p{k}" for k in range(len(lines)))
    return f"HloModule claim\n\nENTRY e {{\n{''.join(lines)}  ROOT r = {opcode}({operands}){rest}\n}}\n"


def _is_inferred(opcode: str) -> bool:
    """The shape may be left out of the text. XLA's parser dies where it cannot infer that of a scan."""
    return schema_of(opcode).inferable and opcode != reduction.scan


def _check_participants(claim: Claim) -> None:
    program, applies = built(claim), entry_points(claim)
    assert claim.participants is not None
    replicas, partitions = claim.participants
    count = replicas * partitions
    arguments = [tuple(a[k] for a in program.arguments) for k in range(count)]
    text = program.computation.to_hlo_text()
    counts = f"HloModule claim, replica_count={replicas}, num_partitions={partitions}"
    text = text.replace("HloModule claim", counts, 1)
    for computation in (program.computation, xla_torch.parse_hlo(text)):
        results = xla_torch.run_replicas(computation, arguments, num_replicas=replicas, num_partitions=partitions)
        _compare(claim, _stacked(results), None)
    if applies["xla"] == "yes" and HAS_XLA:
        _compare(claim, _stacked(run_xla_replicas(text, [list(a) for a in arguments], replicas, partitions)), None)


def _stacked(results: Sequence[Sequence[Any]]) -> Arrays:
    return [np.stack(each) for each in zip(*([np.asarray(leaf) for leaf in _leaves(r)] for r in results), strict=True)]


# ------------------------------------------------------------------------------------------------- text


class _Text(NamedTuple):
    text: str
    arguments: Arrays


_REGION = re.compile(r"\b(add|multiply|subtract|maximum|minimum|and|or|lt|gt|ge|ne)_(\w+)\b")


def hlo(instructions: str, *arrays: np.ndarray) -> _Text:
    """A program of instructions, which ``;`` separates, on parameters p0, p1, ...; a whole module is left as it is. They may
    apply ``add_f32`` and its like, and ``lt_f32_s32``, which compares the first of pairs."""
    if instructions.startswith("HloModule"):
        return _Text(instructions, list(arrays))
    regions = ""
    for name, kinds in dict.fromkeys(_REGION.findall(instructions)):
        opcode, rest = (name, "") if len(name) > 2 or name == "or" else ("compare", f", direction={name.upper()}")
        first, *others = kinds.split("_")
        more = "".join(f"  {one}{k} = {kind}[] parameter({2 * k + place})\n"
                       for k, kind in enumerate(others, 1) for place, one in enumerate("ab"))
        regions += (f"{name}_{kinds} {{\n  a = {first}[] parameter(0)\n  b = {first}[] parameter(1)\n{more}"
                    f"  ROOT r = {'pred' if rest else first}[] {opcode}(a, b){rest}\n}}\n\n")
    lines = [f"p{k} = {Literal.of(a).shape} parameter({k})" for k, a in enumerate(arrays)]
    *before, last = instructions.split("; ")
    lines += [*before, last if " = " in last.split("(")[0] else f"ROOT r = {last}"]
    return _Text("HloModule claim\n\n" + regions + "ENTRY e {\n" + "".join(f"  {line}\n" for line in lines) + "}\n", list(arrays))


def _check_text(claim: Claim) -> None:
    known = namespace(claim.names, lambda array: array, None) | {"hlo": hlo}
    text, arguments = eval(claim.call, known)
    asks_xla = entry_points(claim)["xla"] == "yes" and HAS_XLA
    if claim.form == " ! ":
        _refused(claim, lambda: xla_torch.parse_hlo(text), text)
        assert not asks_xla or xla_accepts(text) is not None, f"XLA takes {text}"
        return
    program = xla_torch.parse_hlo(text)
    if claim.form == " prints ":
        assert claim.want in program.to_hlo_text(), program.to_hlo_text()
        assert not asks_xla or claim.want in xla_canonical(text), xla_canonical(text)
    elif claim.form == " -> ":
        assert str(program.program_shape.result.without_layout()) == claim.want
        assert not asks_xla or xla_accepts(text) is None
    else:
        _compare(claim, list(program.run_numpy(*arguments)), None)
        if asks_xla:
            _compare(claim, run_xla(text, *arguments), None)
