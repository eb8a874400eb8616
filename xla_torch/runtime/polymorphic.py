"""Programs whose sizes are known only when they are called, and what is derived from them.

Such a program is a family of static ones, one for each combination of sizes. Whatever is made of it (a gradient, a batch, a
compiled form) is the family of what is made of each, so all that an XlaComputation can do works here too.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
import torch.fx

from ..analysis.author_rules import note_author
from ..autodiff.options import GradientOptions
from ..core.errors import HloSyntaxError, InvalidArgument, UnsupportedError, XlaError
from ..core.forks import Lock, cached_property
from ..core.shape import ProgramShape, Shape
from ..core.sizes import Size, Unknowns
from ..hlo.derivatives import Derivatives, Lost
from ..hlo.ir import Computation
from ..lowering import numerics
from ..lowering.emit import comment
from ..mlir.flat import flattened, restored
from ..partitioning.state import Partitioning
from ..stablehlo.convert import Fact, UnknownSizes, functions_of
from ..stablehlo.symbols import Symbols, symbols_of
from ..storage.dtypes import torch_dtype, type_from_torch
from ..storage.torch_private import is_graphed, is_traced_symbolically
from . import dynamo
from .computation import Step, XlaComputation
from .graphs_of_fx import symbolic_call
from .members import General, Member
from .static import StaticComputation
from .symbolic_text import all_leaves, leaf_text, text_of, with_unknown

Argument = torch.Tensor | np.ndarray
Names = Mapping[str, int]

CACHED_SIZES = 128
"""How many combinations of sizes each program remembers."""

MOST_GENERAL = 8
"""How many programs for many sizes each program has, made for one combination of sizes each."""

MOST_REFUSED = 2
"""After so many combinations of sizes for which there was none, no more are made."""

_SAMPLES = ((2, 3, 5, 7, 11, 13, 17, 19), (4,), (8,), (6,), (16,), (1,), (12,), (64,), (128,), (3,), (7,), (224,))
"""Sizes to try, the last of a row for all names that are left."""


class Author(Protocol):
    """What knows the derivatives that the author of a program of unknown sizes wrote. It can be pickled."""

    def derivatives(self, computation: Computation) -> Derivatives | Lost:
        """Those that the program for certain sizes, in canonical form, brings."""
        ...


class PolymorphicComputation(XlaComputation):
    """A program for arguments of many shapes: an XlaComputation whose shape has symbols, as in ``f32[b,3]``.

    Each combination of shapes becomes a static program, made on first use and kept (the last 128 of them). Call it like one,
    differentiate, batch, compile, pickle it. `specialised` gives the static program for certain arguments, `at` the one for
    certain sizes; `author` knows which derivatives these bring. What prints one program (`to_hlo_text`, `python_code`) takes
    sizes as well, and small ones for all others.
    """

    def __init__(self, program: UnknownSizes, author: Author | None = None):
        self._source, self._author = program, author
        self._start(program.entry)

    def _start(self, name: str) -> None:
        self._name = name
        self._values_of_rank = -1  # the highest rank of arguments whose values make sizes
        self._computation = functools.lru_cache(maxsize=CACHED_SIZES)(self._make)
        self._lock = Lock()
        self._generals: list[General] = []
        self._refused = 0

    # ---- one of its programs

    def specialised(self, *arguments: Argument) -> XlaComputation:
        """The static program for arguments of these shapes (and, where sizes depend on them, integers of these
        values). Takes the same arguments as this program. Raises InvalidArgument where the shapes do not fit it."""
        first = self._values_of_rank
        ranks = [first, *(r for r in range(first + 1, 3) if any(a.ndim == r and _value(a, r) for a in arguments))]
        return self._specialised(arguments, ranks)

    def of_shapes(self, dimensions: Sequence[Sequence[int]]) -> XlaComputation:
        """The static program for arguments of these shapes, whatever their values are. Raises InvalidArgument or HloSyntaxError
        where the shapes do not fit it or sizes depend on values."""
        return self._computation(tuple((tuple(sizes), None) for sizes in dimensions))

    def at(self, sizes: Names | None = None, /, **more: int) -> XlaComputation:
        """The static program for these sizes, ``at(b=4)``; small ones for the names that are left out. Raises InvalidArgument for
        a name that the program does not have and for sizes that do not fit."""
        return self._at(self._sizes(dict(sizes or {}) | more))

    def _specialised(self, arguments: Sequence[Argument], ranks: Sequence[int]) -> XlaComputation:
        """With the values of integers up to the first of these ranks or, where that does not do, the next."""
        try:
            computation = self._computation(tuple((tuple(a.shape), _value(a, ranks[0])) for a in arguments))
        except (InvalidArgument, HloSyntaxError):
            if len(ranks) == 1:
                raise
            return self._specialised(arguments, ranks[1:])
        # Remembered, because reading a value waits for the device and each value makes another program.
        self._values_of_rank = ranks[0]
        return computation

    def _make(self, facts: Sequence[Fact]) -> XlaComputation:
        """The program for arguments of which this is known."""
        return self._shared(facts, lambda: self._static(facts))

    def _static(self, facts: Sequence[Fact]) -> XlaComputation:
        computation = StaticComputation(note_author(self._source.specialised(facts)))
        if self._author is not None:
            computation.entry.derivatives = self._author.derivatives(computation.program.canonical)
        return computation

    # ---- programs that share their code

    def _shared(self, facts: Sequence[Fact], alone: Callable[[], XlaComputation]) -> XlaComputation:
        """The program for these arguments: by one that was made for many sizes where there is such or can be, else `alone`."""
        own = self._own_facts(facts)
        names = self.symbols.bound([dimensions for dimensions, _ in own], self.name)
        if any(value is not None for _, value in own) or not _follow(self.symbols, names, own):
            return alone()
        with self._lock:
            general = next((g for g in self._generals if g.unknowns.holds(names)), None)
            if general is None and len(self._generals) < MOST_GENERAL and self._refused < MOST_REFUSED:
                general = self._make_general(names)
            if general is not None:
                return StaticComputation(Member(general, names, lambda: alone().program))
            found = alone()
            self._refused += 1
            return found

    def _make_general(self, names: Names) -> General | None:
        """A program for many sizes, made for these; None where it cannot be made, or is another's affair to share."""
        unknowns = Unknowns(names)
        try:
            made = General(self._of_sizes({name: unknowns.size(name) for name in names}).program, unknowns)
        except Exception:  # whatever it is: the program for these sizes alone says it, if anything is wrong with that
            return None
        if not made.runs or not unknowns.holds(names):
            return None
        self._generals.append(made)
        return made

    def _own_facts(self, facts: Sequence[Fact]) -> Sequence[Fact]:
        """What is known of the arguments of the program that all is made of."""
        return facts

    def _of_sizes(self, names: Mapping[str, Size]) -> XlaComputation:
        """The program for sizes that stand for many."""
        return self._static([(d, None) for d in self.symbols.dimensions(names)])

    def _at(self, names: Names) -> XlaComputation:
        facts = [(dimensions, None) for dimensions in self.symbols.dimensions(names)]
        try:
            return self._computation(tuple(facts))
        except (InvalidArgument, HloSyntaxError):  # sizes may depend on integers
            if not any(_is_size(shape) for shape in self._source.parameters):
                raise
            sizes = itertools.chain(names.values(), itertools.repeat(2))
            facts = [(d, np.full(d, next(sizes), s.element_type.numpy).tobytes() if _is_size(s) else None)
                     for (d, _), s in zip(facts, self._source.parameters, strict=True)]
            return self._computation(tuple(facts))

    # ---- sizes

    @cached_property
    def symbols(self) -> Symbols:
        """What the unknown sizes of the arguments are called."""
        return symbols_of(functions_of(self._source.operation), self._source.entry)

    def _sizes(self, given: Names) -> dict[str, int]:
        """A size for every name, for which there is a program."""
        names = self.symbols.names
        unknown = given.keys() - set(names)
        if unknown:
            raise InvalidArgument(f"the program has no size {sorted(unknown)[0]!r}", subject=self.name, expected=", ".join(names))
        if all(n in given for n in names):
            return dict(given)
        refused: XlaError | None = None
        first = ""
        for row in _SAMPLES:
            tried = {n: given.get(n, row[min(k, len(row) - 1)]) for k, n in enumerate(names)}
            try:
                self._at(tried)
            except XlaError as error:
                first = first or ", ".join(f"{n}={size}" for n, size in tried.items())
                refused = refused or error
            else:
                return tried
        raise InvalidArgument("no sizes were found that fit the program", subject=self.name, expected=", ".join(names),
                              got=f"at {first}: {refused}", hint="pass sizes that the program accepts, as in at(b=4)"
                              ) from refused

    @cached_property
    def _sample(self) -> dict[str, int]:
        return self._sizes({})

    @cached_property
    def _signature(self) -> tuple[ProgramShape, str]:
        """The program's shape with unknown sizes, and as text with their names."""
        points = self._points()
        shapes = [self._at(p).program_shape for p in points]
        first, all_vary = shapes[0], all(any(p[n] != points[0][n] for p in points) for n in points[0])
        texts = iter([leaf_text(column, points, all_vary) for column in zip(*map(all_leaves, shapes), strict=True)])
        parameters = [text_of(p, texts) for p in first.parameters]
        names = first.parameter_names or tuple(f"arg{k}" for k in range(len(parameters)))
        words = ", ".join(f"{name}: {text}" for name, text in zip(names, parameters, strict=True))
        columns = zip(*(s.parameters for s in shapes), strict=True)
        unknown = ProgramShape(tuple(map(with_unknown, columns)), with_unknown([s.result for s in shapes]), first.parameter_names)
        return unknown, f"({words}) -> {text_of(first.result, texts)}"

    def _points(self) -> list[dict[str, int]]:
        """Sizes that show how others follow from them: some, each of them changed, and all changed."""
        start, found = self._sample, [self._sample]
        changes = [{n: start[n]} for n in start] + [start]
        for change in changes:
            for step in (lambda n: n + 1, lambda n: 2 * n):
                point = start | {n: step(v) for n, v in change.items()}
                try:
                    self._at(point)
                except XlaError:
                    continue
                found.append(point)
                break
        return found

    # ---- looking

    @property
    def name(self) -> str:
        return self._name

    @property
    def program_shape(self) -> ProgramShape:
        """Parameter shapes and names, and the result shape; sizes that differ between its programs are unknown (``f32[?,3]``)."""
        parameters, results = self._source.parameters, self._source.results
        return ProgramShape(parameters, results[0] if len(results) == 1 else Shape.tuple(results),
                            self._source.parameter_names)

    @property
    def program(self) -> Any:
        raise InvalidArgument("a program of unknown sizes cannot be exported as one program", subject=self.name,
                              got=self._signature[1],
                              hint="use at(b=4) or specialised(*arguments) to get one of them")

    @property
    def family(self) -> PolymorphicComputation:
        return self

    @property
    def gradient_options(self) -> GradientOptions | None:
        return None

    @property
    def partitioning(self) -> Partitioning:
        return self._at(self._sample).partitioning

    @property
    def participants(self) -> dict[str, int]:
        return self._at(self._sample).participants

    def _repr_html_(self) -> str | None:
        return None  # the text says what there is to say without sizes

    def to_hlo_text(self, sizes: Names | None = None, /, **more: int) -> str:
        """One of its programs as HLO text, which begins with a comment that says which."""
        return self._headline(sizes, more, "//") + self.at(sizes, **more).to_hlo_text()

    def python_code(self, device: torch.device | str = "cpu", sizes: Names | None = None, **more: int) -> str:
        """The PyTorch that runs for certain sizes."""
        return self._headline(sizes, more, "#") + self.at(sizes, **more).python_code(device)

    def lowered(self, device: torch.device | str = "cpu", sizes: Names | None = None, **more: int) -> torch.fx.GraphModule:
        """The program for certain sizes as a torch.fx GraphModule."""
        return self.at(sizes, **more).lowered(device)

    def _headline(self, sizes: Names | None, more: Names, mark: str) -> str:
        return f"{mark} {comment(self.headline(sizes, **more))}\n"

    def headline(self, sizes: Names | None = None, /, **more: int) -> str:
        """What the program is, and for which sizes it is shown."""
        found = self._sizes(dict(sizes or {}) | more)
        here = ", ".join(f"{n} = {v}" for n, v in found.items())
        return f"{self.name}" + (f" with {here}" if here else "") + f", of unknown sizes: {self._signature[1]}"

    def __repr__(self) -> str:
        try:
            shape = self._signature[1]
        except XlaError:  # no sizes were found for which there is a program
            shape = ", ".join(f"[{', '.join(map(str, sizes))}]" for sizes in self.symbols.sizes)
        return f"PolymorphicComputation({comment(self.name)}: {shape})"

    # ---- running

    def __call__(self, *arguments: Any, device: torch.device | str | None = None, **named: Any) -> Any:
        """Run on torch tensors; see `XlaComputation`. Raises InvalidArgument in words for sizes that do not fit together."""
        if named:
            arguments = self.in_order(arguments, named)
        if torch.compiler.is_dynamo_compiling():
            return dynamo.called(self, arguments, {} if device is None else {"device": str(device)})
        if is_traced_symbolically() and (call := symbolic_call(self, arguments, {})) is not None:
            return call
        tensors = [self._as_tensor(a, number) for number, a in enumerate(arguments)]
        if is_graphed():
            tensors = [t if all(type(size) is int for size in t.shape) else self._of_known_size(t) for t in tensors]
        return self.specialised(*tensors)(*tensors, device=device)

    def _of_known_size(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor whose sizes torch holds open, with those that it has now: torch.compile makes a graph for each of them."""
        if torch.compiler.is_exporting():
            raise UnsupportedError("sizes that stand for many cannot be part of an exported graph", subject=self.name,
                                   got=list(tensor.shape), expected="arguments whose sizes are known",
                                   hint="leave out dynamic_shapes: export for each size")
        return tensor.reshape([int(size) for size in tensor.shape])

    def run_fitting(self, tensors: Sequence[torch.Tensor]) -> Any:
        return self.specialised(*tensors).run_fitting(tensors)

    def run_numpy(self, *arguments: Any, device: torch.device | str = "cpu") -> tuple[np.ndarray, ...]:
        """Run on NumPy arrays; see `XlaComputation.run_numpy`."""
        arrays = tuple(map(np.asarray, arguments))
        return self.specialised(*arrays).run_numpy(*arrays, device=device)

    def _as_tensor(self, value: Any, number: int) -> torch.Tensor:
        if isinstance(value, torch.Tensor):
            return value
        parameters = self.program_shape.parameters
        if not isinstance(value, (bool, int, float, complex)) or number >= len(parameters) or parameters[number].dimensions:
            raise InvalidArgument(f"argument {number} is not a tensor", subject=self.name, got=type(value).__name__,
                                  hint="use run_numpy for NumPy arrays")
        return torch.tensor(value, dtype=torch_dtype(parameters[number].element_type))

    # ---- what is made of it

    def derived(self, step: Step) -> PolymorphicComputation:
        """The family of what a step makes of each of its programs."""
        return _Derived(self, step)

    def with_gradient_options(self, options: GradientOptions) -> PolymorphicComputation:
        return self.derived(Step(_with_options, {"options": options}))

    @property
    def argument_count(self) -> int:
        """How many arguments the program takes."""
        return len(self.symbols.sizes)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as the operations that it was made of."""
        return _unpickled, (flattened(self._source.operation), self._source.entry, self._author)


def _follow(symbols: Symbols, names: Names, facts: Sequence[Fact]) -> bool:
    """Whether all sizes of the arguments follow from those that have names."""
    try:
        return symbols.dimensions(names) == [dimensions for dimensions, _ in facts]
    except InvalidArgument:
        return False


def of_unknown_sizes(computation: XlaComputation) -> PolymorphicComputation | None:
    """The program of unknown sizes that a computation is, or that stands behind a function over trees; otherwise None."""
    family: Any = computation.family
    return family


def _unpickled(flat: Any, entry: str, author: Author | None = None) -> PolymorphicComputation:
    return PolymorphicComputation(UnknownSizes(restored(flat), entry), author)


# ------------------------------------------------------------------------------------------------------ derived programs

class _Derived(PolymorphicComputation):
    """The family of what a step makes of each program of another one."""

    def __init__(self, inner: PolymorphicComputation, step: Step):
        self._inner, self._step = inner, step
        self._start(f"{getattr(step.function, '__name__', 'derived').strip('_')}_{inner.name}")

    @cached_property
    def symbols(self) -> Symbols:
        return self._inner.symbols

    @property
    def program_shape(self) -> ProgramShape:
        return self._signature[0]

    @cached_property
    def argument_count(self) -> int:
        return len(self.program_shape.parameters)

    @property
    def gradient_options(self) -> GradientOptions | None:
        if self._step.function is _with_options:
            return self._step.given["options"]
        return self._inner.gradient_options

    def _make(self, facts: Sequence[Fact]) -> XlaComputation:
        count = self._inner.argument_count
        if len(facts) < count:
            raise InvalidArgument("wrong number of arguments", subject=self.name, got=len(facts), expected=f"{count} or more")
        inner = tuple(self._step.of_arguments(self._step, facts, count))
        return self._shared(facts, lambda: self._step(self._inner._computation(inner)))

    def _own_facts(self, facts: Sequence[Fact]) -> Sequence[Fact]:
        return self._inner._own_facts(self._step.of_arguments(self._step, facts, self._inner.argument_count))

    def _of_sizes(self, names: Mapping[str, Size]) -> XlaComputation:
        return self._step(self._inner._of_sizes(names))

    def _sizes(self, given: Names) -> dict[str, int]:
        return self._inner._sizes(given)

    def _points(self) -> list[dict[str, int]]:
        return self._inner._points()

    def _at(self, names: Names) -> XlaComputation:
        return self._kept(tuple(sorted(names.items())))

    @cached_property
    def _kept(self) -> Callable[[tuple[tuple[str, int], ...]], XlaComputation]:
        return functools.lru_cache(maxsize=CACHED_SIZES)(lambda names: self._step(self._inner._at(dict(names))))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what it was derived from, and how; which must be picklable, as an optimizer's schedule may not be."""
        return _Derived, (self._inner, self._step)


def _with_options(computation: XlaComputation, options: GradientOptions) -> XlaComputation:
    return computation.with_gradient_options(options)


# ------------------------------------------------------------------------------------------------------ values that are sizes

_SHORT = 64
"""The most elements of an argument that may hold sizes."""


def _is_size(shape: Shape) -> bool:
    """Whether an argument of this shape may be a size."""
    return shape.is_array and shape.is_static and shape.rank < 2 and shape.element_type.is_integral and (
        shape.element_count <= _SHORT)


def _value(argument: Argument, rank: int) -> bytes | None:
    """The bytes of a short integer array of at most this rank, None for anything else."""
    if argument.ndim > rank or math.prod(argument.shape) > _SHORT:
        return None
    if isinstance(argument, torch.Tensor):
        kind = type_from_torch(argument.dtype)
        if kind is None or not kind.is_integral:
            return None
        argument = numerics.numpy_from_storage(numerics.to_storage(argument, kind), kind)
    return argument.tobytes() if argument.dtype.kind in "iu" else None
