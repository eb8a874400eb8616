"""Regions for tests: drawn scalar programs, reducers that are associative by construction, and texts of ops that take them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from support.reductions import entry, module, shape_text, values, without

Draw = Callable[..., Any]

INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
FLOATS = ("bf16", "f16", "f32", "f64")
TYPES = ("pred", *INTEGERS, *FLOATS, "c64")

_LOGIC = ("and", "or", "xor")
_OPS = {
    "pred": _LOGIC,
    **dict.fromkeys(INTEGERS, ("add", "subtract", "multiply", "minimum", "maximum", "divide", "remainder", "shift-left",
                               "shift-right-logical", "shift-right-arithmetic", *_LOGIC)),
    # What rounds nothing: XLA may keep half-precision steps in single precision, and join a product and a sum into one.
    **dict.fromkeys(FLOATS, ("minimum", "maximum")), "c64": ("add", "subtract"),
}
_CONSTANTS = {"pred": ("false", "true"), "c64": ("(1,2)", "(0,-1)"), **dict.fromkeys(INTEGERS, ("0", "1", "2", "3", "7")),
              **dict.fromkeys(FLOATS, ("0", "1", "-2", "0.5", "3"))}
_DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


class Regions:
    """Text of computations that are drawn; those called stand before those that call them. Without `control` they have no
    branches and loops."""

    def __init__(self, draw: Draw, control: bool = True):
        self.draw, self.control = draw, control
        self.texts: list[str] = []
        self.named = 0

    def choice(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def region(self, parameters: Sequence[str], results: Sequence[str], name: str, depth: int = 1, packed: bool = False) -> str:
        """Draw a region of scalars of these types; several results, or `packed` ones, make a tuple. Its name."""
        body = _Body(self, depth)
        if packed:  # one parameter, a tuple: what branches take
            shape = ", ".join(f"{t}[]" for t in parameters)
            body.line(f"({shape})", "parameter(0)", "packed")
            for k, t in enumerate(parameters):
                body.known.setdefault(t, []).append(body.line(f"{t}[]", f"get-tuple-element(packed), index={k}"))
        else:
            for k, t in enumerate(parameters):
                body.known.setdefault(t, []).append(body.line(f"{t}[]", f"parameter({k})"))
        for _ in range(self.number(1, 3)):
            body.grow(self.choice(parameters))
        found = [body.result(t) for t in results]
        if len(results) > 1 or packed:
            body.line(f"({', '.join(f'{t}[]' for t in results)})", f"tuple({', '.join(found)})", "root")
        else:
            body.line(f"{results[0]}[]", f"copy({found[0]})", "root")
        self.texts.append(body.text(name))
        return name

    def fresh(self) -> str:
        """A name for a computation."""
        self.named += 1
        return f"inner_{self.named}"


class _Body:
    """One computation being drawn: its lines, and the names of its values by type."""

    def __init__(self, regions: Regions, depth: int):
        self.regions, self.depth = regions, depth
        self.lines: list[str] = []
        self.known: dict[str, list[str]] = {}

    def line(self, shape: str, expression: str, name: str = "") -> str:
        name = name or f"v{len(self.lines)}"
        self.lines.append(f"  {name} = {shape} {expression}")
        return name

    def text(self, name: str) -> str:
        """The computation, whose last line is its root."""
        return f"{name} {{\n" + "\n".join(self.lines[:-1]) + f"\n  ROOT {self.lines[-1].strip()}\n}}\n"

    def value(self, text: str) -> str:
        """Some value of a type: one that is there, a constant, or another one converted."""
        known = self.known.get(text, [])
        kind = self.regions.number(0, 5)
        if known and kind < 4:
            return self.regions.choice(known)
        sources = [t for t in self.known if t != text and _converts(t, text)]
        if sources and kind == 5:
            source = self.regions.choice(sources)
            return self.line(f"{text}[]", f"convert({self.regions.choice(self.known[source])})")
        return self.line(f"{text}[]", f"constant({self.regions.choice(_CONSTANTS[text])})")

    def holds(self) -> str:
        """Some truth value."""
        compared = self.regions.choice([t for t in self.known if t not in ("pred", "c64")] or ["s32"])
        return self.line("pred[]", f"compare({self.value(compared)}, {self.value(compared)}), "
                                   f"direction={self.regions.choice(_DIRECTIONS)}")

    def result(self, text: str) -> str:
        """A value that depends on what was made."""
        return self.line(f"{text}[]", f"select({self.holds()}, {self.known[text][-1]}, {self.value(text)})") if (
            self.known.get(text) and self.regions.number(0, 1)) else (self.known.get(text) or [self.value(text)])[-1]

    def grow(self, text: str) -> None:
        """Add a value of a type."""
        kinds = ["binary", "binary", "select", "clamp"]
        if self.depth:
            kinds += ["call", "conditional", "case", "while"] if self.regions.control else ["call"]
        if text == "c64":
            kinds.remove("clamp")
        self.known.setdefault(text, []).append(getattr(self, f"_{self.regions.choice(kinds)}")(text))

    def _binary(self, text: str) -> str:
        opcode, left, right = self.regions.choice(_OPS[text]), self.value(text), self.value(text)
        if opcode in ("divide", "remainder"):  # XLA dies when it folds a division of constants by zero
            right = self.line(f"{text}[]", f"or({right}, {self.line(f'{text}[]', 'constant(1)')})")
        return self.line(f"{text}[]", f"{opcode}({left}, {right})")

    def _select(self, text: str) -> str:
        return self.line(f"{text}[]", f"select({self.holds()}, {self.value(text)}, {self.value(text)})")

    def _clamp(self, text: str) -> str:
        if text == "pred":
            return self._select(text)
        return self.line(f"{text}[]", f"clamp({', '.join(self.value(text) for _ in range(3))})")

    def _call(self, text: str) -> str:
        types = [self.regions.choice(list(self.known)) for _ in range(self.regions.number(1, 2))]
        name = self.regions.region([*types, text], [text], self.regions.fresh(), self.depth - 1)
        return self.line(f"{text}[]", f"call({', '.join(map(self.value, [*types, text]))}), to_apply={name}")

    def _branches(self, text: str, count: int) -> tuple[str, list[str]]:
        """A packed operand, and computations of it."""
        types = [self.regions.choice(list(self.known)), text]
        given = self.line(f"({', '.join(f'{t}[]' for t in types)})", f"tuple({', '.join(map(self.value, types))})")
        names = [self.regions.fresh() for _ in range(count)]
        return given, [self.regions.region(types, [text], name, self.depth - 1, packed=True) for name in names]

    def _unpacked(self, text: str, expression: str) -> str:
        return self.line(f"{text}[]", f"get-tuple-element({self.line(f'({text}[])', expression)}), index=0")

    def _conditional(self, text: str) -> str:
        given, (one, other) = self._branches(text, 2)
        return self._unpacked(text, f"conditional({self.holds()}, {given}, {given}), true_computation={one}, "
                                    f"false_computation={other}")

    def _case(self, text: str) -> str:
        given, branches = self._branches(text, 3)
        index = self.value("s32")
        return self._unpacked(text, f"conditional({index}, {given}, {given}, {given}), "
                                    f"branch_computations={{{', '.join(branches)}}}")

    def _while(self, text: str) -> str:
        """A step that is taken up to 7 times: how often depends on the data."""
        state, name = f"(s32[], s32[], {text}[])", self.regions.fresh()
        step = _Body(self.regions, 0)
        step.line(state, "parameter(0)", "state")
        i, n, x = (step.line(f"{t}[]", f"get-tuple-element(state), index={k}") for k, t in enumerate(("s32", "s32", text)))
        step.known = {text: [x]} if text == "s32" else {text: [x], "s32": [i]}
        step.grow(text)
        j = step.line("s32[]", f"add({i}, {step.line('s32[]', 'constant(1)')})")
        step.line(state, f"tuple({j}, {n}, {step.known[text][-1]})", "root")
        self.regions.texts.append(f"""{name}_goes_on {{
  state = {state} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] get-tuple-element(state), index=1
  ROOT goes_on = pred[] compare(i, n), direction=LT
}}
{step.text(f"{name}_body")}""")
        seven = self.line("s32[]", "constant(7)")
        start, count = self.line("s32[]", "constant(0)"), self.line("s32[]", f"and({self.value('s32')}, {seven})")
        given = self.line(state, f"tuple({start}, {count}, {self.value(text)})")
        found = self.line(state, f"while({given}), condition={name}_goes_on, body={name}_body")
        return self.line(f"{text}[]", f"get-tuple-element({found}), index=2")


def _converts(source: str, target: str) -> bool:
    """Whether a conversion is one of numbers that rounds nothing but what it cuts off."""
    return "c64" not in (source, target) and "pred" not in (source, target) and target not in FLOATS


# ------------------------------------------------------------------------------------------------ associative reducers


@dataclasses.dataclass(frozen=True)
class Associative:
    """An associative reducer: its operands' types, its lines over a0, a1, ... and b0, b1, ..., the results last (as many as
    operands), and its identity. `made` gives operands of a shape."""

    types: Sequence[str]
    body: str
    results: Sequence[str]
    identity: Sequence[str]
    choices: Sequence[Any] | None = None
    before: str = ""
    made: Callable[[tuple[int, ...], int], list[np.ndarray]] | None = None

    def text(self, name: str = "reducer") -> str:
        parameters = [f"  {side}{k} = {t}[] parameter({k + len(self.types) * (side == 'b')})"
                      for side in "ab" for k, t in enumerate(self.types)]
        lines = [f"  {line.strip()}" for line in self.body.strip().splitlines() if line.strip()]
        root = f"  ROOT root = {self.shape()} tuple({', '.join(self.results)})" if len(self.types) > 1 else (
            f"  ROOT root = {self.types[0]}[] copy({self.results[0]})")
        return self.before + f"{name} {{\n" + "\n".join([*parameters, *lines, root]) + "\n}\n"

    def shape(self, dims: Sequence[int] = ()) -> str:
        """The result's shape."""
        shapes = [f"{t}[{','.join(map(str, dims))}]" for t in self.types]
        return f"({', '.join(shapes)})" if len(shapes) > 1 else shapes[0]

    def operands(self, dims: Sequence[int], seed: int) -> list[np.ndarray]:
        if self.made is not None:
            return self.made(tuple(dims), seed)
        return [values(t, *dims, seed=seed + k, choices=None if t == "pred" else self.choices) for k, t in enumerate(self.types)]


def _numbered(dims: tuple[int, ...], seed: int) -> list[np.ndarray]:
    """Few different keys, each with its own number."""
    keys = values("s32", *dims, seed=seed, choices=range(-5, 6))
    return [keys, np.arange(keys.size, dtype=np.int64).reshape(dims)]


def _extremes(dims: tuple[int, ...], seed: int) -> list[np.ndarray]:
    keys, numbers = _numbered(dims, seed)
    return [keys, numbers, keys, numbers]


_PRODUCT = "\n".join(
    f"p{i}{j}{k} = T[] multiply(a{2 * i + k}, b{2 * k + j})" for i in (0, 1) for j in (0, 1) for k in (0, 1)) + "\n" + "\n".join(
    f"c{2 * i + j} = T[] add(p{i}{j}0, p{i}{j}1)" for i in (0, 1) for j in (0, 1))

_GCD = """goes_on {
  p = (u32[], u32[]) parameter(0)
  y = u32[] get-tuple-element(p), index=1
  z = u32[] constant(0)
  ROOT g = pred[] compare(y, z), direction=NE
}
euclid {
  p = (u32[], u32[]) parameter(0)
  x = u32[] get-tuple-element(p), index=0
  y = u32[] get-tuple-element(p), index=1
  r = u32[] remainder(x, y)
  ROOT t = (u32[], u32[]) tuple(y, r)
}
"""
_SEGMENT = """starts {
  p = (s16[], s16[]) parameter(0)
  ROOT x = s16[] get-tuple-element(p), index=1
}
goes_on {
  p = (s16[], s16[]) parameter(0)
  x = s16[] get-tuple-element(p), index=0
  y = s16[] get-tuple-element(p), index=1
  ROOT s = s16[] add(x, y)
}
"""

ASSOCIATIVE = {
    "affine maps": Associative(("u32", "u32"), """
        m = u32[] multiply(a0, b0)
        n = u32[] multiply(a1, b0)
        o = u32[] add(n, b1)""", ("m", "o"), ("1", "0")),
    "matrix product": Associative(("s64",) * 4, _PRODUCT.replace("T[]", "s64[]"), ("c0", "c1", "c2", "c3"), ("1", "0", "0", "1")),
    "complex product of pairs": Associative(("s8", "s8"), """
        rr = s8[] multiply(a0, b0)
        ii = s8[] multiply(a1, b1)
        ri = s8[] multiply(a0, b1)
        ir = s8[] multiply(a1, b0)
        re = s8[] subtract(rr, ii)
        im = s8[] add(ri, ir)""", ("re", "im"), ("1", "0")),
    "first that is not zero": Associative(("s16",), """
        z = s16[] constant(0)
        t = pred[] compare(a0, z), direction=NE
        s = s16[] select(t, a0, b0)""", ("s",), ("0",), range(-1, 2)),
    "last that is not zero": Associative(("f64",), """
        z = f64[] constant(0)
        t = pred[] compare(b0, z), direction=NE
        s = f64[] select(t, b0, a0)""", ("s",), ("0",), (-2.5, 0, 0, 0, 1)),
    "last": Associative(("c64",), "s = c64[] copy(b0)", ("s",), ("(0,0)",)),
    "sum up to the limit": Associative(("u8",), """
        wa = s32[] convert(a0)
        wb = s32[] convert(b0)
        w = s32[] add(wa, wb)
        m = s32[] constant(255)
        n = s32[] minimum(w, m)
        s = u8[] convert(n)""", ("s",), ("0",), range(9)),
    "exclusive or": Associative(("u64",), "s = u64[] xor(a0, b0)", ("s",), ("0",)),
    "circle product": Associative(("u16",), """
        m = u16[] multiply(a0, b0)
        n = u16[] add(a0, b0)
        s = u16[] add(m, n)""", ("s",), ("0",)),
    "largest by key": Associative(("s32", "s64"), """
        five = s32[] constant(5)
        ka = s32[] remainder(a0, five)
        kb = s32[] remainder(b0, five)
        more = pred[] compare(ka, kb), direction=GT
        same = pred[] compare(ka, kb), direction=EQ
        older = pred[] compare(a1, b1), direction=LT
        tie = pred[] and(same, older)
        keep = pred[] or(more, tie)
        v = s32[] select(keep, a0, b0)
        k = s64[] select(keep, a1, b1)""", ("v", "k"), ("-2147483644", "9223372036854775807"), made=_numbered),
    "both extremes and where": Associative(("s32", "s64", "s32", "s64"), """
        less = pred[] compare(a0, b0), direction=LE
        v = s32[] select(less, a0, b0)
        i = s64[] select(less, a1, b1)
        more = pred[] compare(a2, b2), direction=GT
        w = s32[] select(more, a2, b2)
        j = s64[] select(more, a3, b3)""", ("v", "i", "w", "j"), ("2147483647", "-1", "-2147483648", "-1"), made=_extremes),
    "brackets": Associative(("u32", "u32"), """
        m = u32[] minimum(a0, b1)
        ra = u32[] subtract(a0, m)
        open = u32[] add(ra, b0)
        rb = u32[] subtract(b1, m)
        close = u32[] add(a1, rb)""", ("open", "close"), ("0", "0"), (0, 0, 1)),
    "sum within segments": Associative(("pred", "s16"), """
        f = pred[] or(a0, b0)
        t = (s16[], s16[]) tuple(a1, b1)
        s = s16[] conditional(b0, t, t), true_computation=starts, false_computation=goes_on""",
        ("f", "s"), ("false", "0"), before=_SEGMENT),
    "greatest common divisor": Associative(("u32",), """
        t = (u32[], u32[]) tuple(a0, b0)
        w = (u32[], u32[]) while(t), condition=goes_on, body=euclid
        s = u32[] get-tuple-element(w), index=0""", ("s",), ("0",), [12 * k for k in range(40)], before=_GCD),
}
"""Reducers that give one result in whatever order neighbours meet, so that it must be XLA's whatever XLA does."""

HORNER = Associative(("s64",), """
    k = s64[] constant(3)
    m = s64[] multiply(a0, k)
    s = s64[] add(m, b0)""", ("s",), ("5",))
"""Not associative: the order of elements matters, and how often the init value takes part."""

HORNER_OF_TWO = Associative(("s64", "f64"), """
    k = s64[] constant(3)
    m = s64[] multiply(a0, k)
    s = s64[] add(m, b0)
    odd = s64[] and(s, k)
    zero = s64[] constant(0)
    p = pred[] compare(odd, zero), direction=EQ
    v = f64[] select(p, a1, b1)""", ("s", "v"), ("5", "-1"))


# ------------------------------------------------------------------------------------------------ texts of ops


def dims_text(dims: Sequence[int]) -> str:
    return ",".join(map(str, dims))


def tuple_text(types: Sequence[str], dims: Sequence[int]) -> str:
    shapes = [shape_text(t, dims) for t in types]
    return shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"


def inits_text(types: Sequence[str], inits: Sequence[str]) -> tuple[list[str], str]:
    """Constants, and their names."""
    lines = [f"i{k} = {t}[] constant({init})" for k, (t, init) in enumerate(zip(types, inits, strict=True))]
    return lines, ", ".join(f"i{k}" for k in range(len(types)))


def numbered(count: int, first: int = 0) -> str:
    return ", ".join(f"p{first + k}" for k in range(count))


def reduce_hlo(region: str, types: Sequence[str], inits: Sequence[str], dims: Sequence[int], reduced: Sequence[int]) -> str:
    lines, names = inits_text(types, inits)
    return module(region, entry([shape_text(t, dims) for t in types], *lines,
                                f"r = {tuple_text(types, without(dims, reduced))} reduce({numbered(len(types))}, {names}), "
                                f"dimensions={{{dims_text(reduced)}}}, to_apply=reducer"))


Side = tuple[int, int, int, int, int, int]
"""A window's size, stride, low and high padding, base and window dilation along one dimension."""


def window_text(window: Sequence[Side]) -> str:
    size, stride, base, dilation = ("x".join(str(w[k]) for w in window) for k in (0, 1, 4, 5))
    padding = "x".join(f"{w[2]}_{w[3]}" for w in window)
    return f"window={{size={size} stride={stride} pad={padding} lhs_dilate={base} rhs_dilate={dilation}}}"


def window_counts(dims: Sequence[int], window: Sequence[Side]) -> list[int]:
    extents = [((n - 1) * w[4] + 1 if n else 0) + w[2] + w[3] for n, w in zip(dims, window, strict=True)]
    reaches = [(w[0] - 1) * w[5] + 1 for w in window]
    return [max(0, (e - r) // w[1] + 1) if e >= r else 0 for e, r, w in zip(extents, reaches, window, strict=True)]


def reduce_window_hlo(region: str, types: Sequence[str], inits: Sequence[str], dims: Sequence[int],
                      window: Sequence[Side]) -> str:
    lines, names = inits_text(types, inits)
    return module(region, entry([shape_text(t, dims) for t in types], *lines,
                                f"r = {tuple_text(types, window_counts(dims, window))} reduce-window({numbered(len(types))}, "
                                f"{names}), {window_text(window)}, to_apply=reducer"))


def scatter_hlo(region: str, types: Sequence[str], dims: Sequence[int], updates: int) -> str:
    """Rows of the operands are updated."""
    count, window = len(types), list(dims[1:])
    return module(region, entry(
        [*(shape_text(t, dims) for t in types), f"s32[{updates},1]", *(shape_text(t, [updates, *window]) for t in types)],
        f"r = {tuple_text(types, dims)} scatter({numbered(count)}, p{count}, {numbered(count, count + 1)}), "
        f"update_window_dims={{{dims_text(range(1, len(dims)))}}}, inserted_window_dims={{0}}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=reducer"))


def scan_hlo(region: str, inputs: Sequence[str], outputs: Sequence[str], carries: Sequence[str], dims: Sequence[int], dim: int,
             flags: str) -> str:
    """A scan along one dimension by the region "step"."""
    element = without(dims, [dim])
    shapes = [*(shape_text(t, dims) for t in outputs), *(shape_text(t, element) for t in carries)]
    return module(region, entry(
        [*(shape_text(t, dims) for t in inputs), *(shape_text(t, element) for t in carries)],
        f"r = ({', '.join(shapes)}) scan({numbered(len(inputs) + len(carries))}), dimensions={{{dim}}}, "
        f"num_carries={len(carries)}{flags}, to_apply=step"))


def select_and_scatter_hlo(regions: str, text: str, init: str, dims: Sequence[int], window: Sequence[Side]) -> str:
    """Regions "chooser" and "reducer"; the window is not dilated."""
    return module(regions, entry(
        [shape_text(text, dims), shape_text(text, window_counts(dims, window))], f"i = {text}[] constant({init})",
        f"r = {shape_text(text, dims)} select-and-scatter(p0, p1, i), {window_text(window)}, select=chooser, scatter=reducer"))


def sort_hlo(region: str, types: Sequence[str], dims: Sequence[int], dim: int) -> str:
    return module(region, entry([shape_text(t, dims) for t in types],
                                f"r = {tuple_text(types, dims)} sort({numbered(len(types))}), dimensions={{{dim}}}, "
                                "is_stable=true, to_apply=less"))


def scan_body(rule: Associative) -> str:
    """The reducer as a scan's body: of elements and carries, whose carries are its outputs."""
    count = len(rule.types)
    parameters = [f"  {side}{k} = {t}[] parameter({k + count * (side == 'c')})"
                  for side in "xc" for k, t in enumerate(rule.types)]
    given = ", ".join(f"{side}{k}" for side in "cx" for k in range(count))
    lines = [f"  done = {rule.shape()} call({given}), to_apply=reducer"]
    lines += [f"  y{k} = {t}[] get-tuple-element(done), index={k}" for k, t in enumerate(rule.types)] if count > 1 else [
        f"  y0 = {rule.types[0]}[] copy(done)"]
    results = ", ".join(f"y{k}" for k in range(count))
    shapes = ", ".join(f"{t}[]" for t in rule.types)
    lines.append(f"  ROOT root = ({shapes}, {shapes}) tuple({results}, {results})")
    return rule.text() + "step {\n" + "\n".join([*parameters, *lines]) + "\n}\n"
