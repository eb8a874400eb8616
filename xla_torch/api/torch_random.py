"""Programs of torch.export that draw random numbers, as programs of a state that says which.

Every operator that draws is replaced in the graph as torch exported it, before it is decomposed or differentiated: by what it is
in operators that compute, and in numbers of a state (`aten/random.py`). The state is a buffer, ``rng_state``, which the program
reads and replaces.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument

from ..core.errors import InternalError, InvalidArgument, UnsupportedError
from ..storage import torch_graphs, torch_private
from . import torch_graph, torch_graph_nodes

STATE = "rng_state"
"""The name of the buffer."""

_OPS = torch.library.Library("xla_torch", "DEF")
for _signature in ("random_uniform(Tensor state, int offset, SymInt[] size, ScalarType dtype) -> Tensor",
                   "random_integers(Tensor state, int offset, SymInt[] size, int low, int last) -> Tensor",
                   "random_advance(Tensor state, int count) -> Tensor"):
    _OPS.define(_signature)
# They stand in graphs, where they are known by their rules, and nobody calls them.
torch.library.register_fake("xla_torch::random_uniform", lambda state, offset, size, dtype: state.new_empty(size, dtype=dtype))
torch.library.register_fake(
    "xla_torch::random_integers", lambda state, offset, size, low, last: state.new_empty(size, dtype=torch.int64))
torch.library.register_fake("xla_torch::random_advance", lambda state, count: torch.empty_like(state))


class Draws:
    """The draws of a program, one after another: each begins where the one before it has ended."""

    state: torch.Tensor

    def __init__(self) -> None:
        self.taken, self.copies = 0, 1
        """How many steps of the counter the draws take, and how many numbers there are for each that is asked for."""

    def _offset(self, size: Sequence[int]) -> int:
        offset = self.taken
        self.taken += max(math.prod(size), 1) * self.copies  # a draw takes as many steps of the counter at most
        return offset

    def uniform(self, size: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Numbers of [0, 1); of complex ones each part is."""
        if dtype.is_complex:
            part = dtype.to_real()
            return torch.complex(self.uniform(size, part), self.uniform(size, part))
        return torch.ops.xla_torch.random_uniform(self.state, self._offset(size), list(size), dtype)

    def between(self, size: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Numbers of (0, 1), in the middle between two of [0, 1): in F64, or else in F32."""
        dtype, digits = (dtype, 53) if dtype is torch.float64 else (torch.float32, 24)
        return self.uniform(size, dtype) + math.ldexp(0.5, -digits)

    def integers(self, size: Sequence[int], low: int, last: int) -> torch.Tensor:
        if last < low:
            raise InvalidArgument("no whole number to draw", subject="from_torch", got=f"from {low} to {last}",
                                  expected="a lower bound below the upper one")
        return torch.ops.xla_torch.random_integers(self.state, self._offset(size), list(size), low, last)

    def normal(self, size: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Numbers of mean 0 and variance 1. 2 u - 1 is odd by the number of choices, and so neither -1 nor 1."""
        if dtype.is_complex:
            part = dtype.to_real()
            return torch.complex(self.normal(size, part), self.normal(size, part)) * math.sqrt(0.5)
        wide, digits = (dtype, 53) if dtype is torch.float64 else (torch.float32, 24)
        centred = (2 * self.uniform(size, wide) - 1) + math.ldexp(1, -digits)
        return (math.sqrt(2) * torch.erfinv(centred)).to(dtype)


# ------------------------------------------------------------------------------------------- what operators draw

Way = Callable[..., Any]
_WAYS: dict[str, Way] = {}
"""What each operator is: a function of the draws and of the operator's arguments."""


def _way(*names: str) -> Callable[[Way], Way]:
    def register(way: Way) -> Way:
        _WAYS.update({name if "." in name else f"{name}.default": way for name in names})
        return way

    return register


def _in_place(*names: str) -> Callable[[Way], Way]:
    """Of a function that gives new numbers for those of `self`: the operator, and the one that writes them."""

    def register(way: Way) -> Way:
        def write(draws: Draws, self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            return self.copy_(way(draws, self, *args, **kwargs))

        for name in names:
            packet, _, overload = name.partition(".")
            _way(name)(way)
            _way(f"{packet}_.{overload or 'default'}")(write)
        return way

    return register


@_way("rand")
def _rand(draws: Draws, size: Sequence[int], *, dtype: torch.dtype | None = None, **_: Any) -> torch.Tensor:
    return draws.uniform(size, dtype or torch.get_default_dtype())


@_way("randn")
def _randn(draws: Draws, size: Sequence[int], *, dtype: torch.dtype | None = None, **_: Any) -> torch.Tensor:
    return draws.normal(size, dtype or torch.get_default_dtype())


@_way("rand_like")
def _rand_like(draws: Draws, self: torch.Tensor, *, dtype: torch.dtype | None = None, **_: Any) -> torch.Tensor:
    return draws.uniform(self.shape, dtype or self.dtype)


@_way("randn_like")
def _randn_like(draws: Draws, self: torch.Tensor, *, dtype: torch.dtype | None = None, **_: Any) -> torch.Tensor:
    return draws.normal(self.shape, dtype or self.dtype)


@_way("randint.low")
def _randint(draws: Draws, low: int, high: int, size: Sequence[int], *, dtype: torch.dtype | None = torch.int64,
             **_: Any) -> torch.Tensor:
    return draws.integers(size, low, high - 1).to(dtype or torch.int64)


@_way("randint")
def _randint_below(draws: Draws, high: int, size: Sequence[int], **options: Any) -> torch.Tensor:
    return _randint(draws, 0, high, size, **options)


@_way("randint_like.low_dtype")
def _randint_like(draws: Draws, self: torch.Tensor, low: int, high: int, *, dtype: torch.dtype | None = None,
                  **_: Any) -> torch.Tensor:
    return draws.integers(self.shape, low, high - 1).to(dtype or self.dtype)


@_way("randint_like")
def _randint_like_below(draws: Draws, self: torch.Tensor, high: int, **options: Any) -> torch.Tensor:
    return _randint_like(draws, self, 0, high, **options)


@_way("randperm")
def _randperm(draws: Draws, n: int, *, dtype: torch.dtype | None = torch.int64, **_: Any) -> torch.Tensor:
    """The order of as many random numbers."""
    return torch.argsort(draws.integers([n], 0, (1 << 63) - 1)).to(dtype or torch.int64)


@_in_place("random.to")
def _random_below(draws: Draws, self: torch.Tensor, to: int, **_: Any) -> torch.Tensor:
    return draws.integers(self.shape, 0, to - 1).to(self.dtype)


@_in_place("random")
def _random(draws: Draws, self: torch.Tensor, **_: Any) -> torch.Tensor:
    return draws.integers(self.shape, 0, _greatest(self.dtype)).to(self.dtype)


def _greatest(dtype: torch.dtype) -> int:
    """The last of the whole numbers from 0 that a type has all of."""
    if dtype.is_floating_point:
        return {torch.float64: 1 << 53, torch.float32: 1 << 24, torch.float16: 1 << 11, torch.bfloat16: 1 << 8}[dtype]
    return 1 if dtype is torch.bool else torch.iinfo(dtype).max


@_in_place("bernoulli.Tensor")
def _bernoulli_of(draws: Draws, self: torch.Tensor, p: torch.Tensor, **_: Any) -> torch.Tensor:
    wide = torch.float64 if p.dtype is torch.float64 else torch.float32
    return (draws.uniform(self.shape, wide) < p.detach()).to(self.dtype)


@_way("bernoulli")
def _bernoulli(draws: Draws, self: torch.Tensor, **_: Any) -> torch.Tensor:
    return _bernoulli_of(draws, self, self)


@_way("bernoulli.p")
def _bernoulli_number(draws: Draws, self: torch.Tensor, p: float = 0.5, **_: Any) -> torch.Tensor:
    return (draws.uniform(self.shape, torch.float32) < p).to(self.dtype)


@_way("bernoulli_.float")
def _bernoulli_write(draws: Draws, self: torch.Tensor, p: float = 0.5, **_: Any) -> torch.Tensor:
    return self.copy_(_bernoulli_number(draws, self, p))


@_way("native_dropout")
def _native_dropout(draws: Draws, input: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    if train is False or p == 0:
        return input.clone(), torch.ones_like(input, dtype=torch.bool)
    kept = draws.uniform(input.shape, torch.float32) < 1 - p
    return (torch.zeros_like(input) if p == 1 else input * kept * (1 / (1 - p))), kept


@_in_place("uniform")
def _uniform(draws: Draws, self: torch.Tensor, from_: float = 0.0, to: float = 1.0, **_: Any) -> torch.Tensor:
    """Rounding may reach the open end."""
    drawn = draws.uniform(self.shape, self.dtype)
    if from_ == 0 and to == 1:
        return drawn
    moved = drawn * (to - from_) + from_
    return moved if self.dtype.is_complex else torch.where(moved < to, moved, torch.full_like(moved, from_))


@_way("normal_functional")
def _normal(draws: Draws, self: torch.Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> torch.Tensor:
    return draws.normal(self.shape, self.dtype) * std + mean


@_way("normal_")
def _normal_write(draws: Draws, self: torch.Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> torch.Tensor:
    return self.copy_(_normal(draws, self, mean, std))


@_way("normal.Tensor_Tensor", "normal.Tensor_float", "normal.float_Tensor")
def _normal_of(draws: Draws, mean: torch.Tensor | float, std: torch.Tensor | float = 1.0, **_: Any) -> torch.Tensor:
    """To torch they have no derivative with respect to either."""
    tensors = [x.detach() if isinstance(x, torch.Tensor) else x for x in (mean, std)]
    given = [x for x in tensors if isinstance(x, torch.Tensor)]
    size = torch.broadcast_shapes(*(x.shape for x in given))
    return draws.normal(size, given[0].dtype) * tensors[1] + tensors[0]


@_way("normal.float_float")
def _normal_sized(draws: Draws, mean: float, std: float, size: Sequence[int], *, dtype: torch.dtype | None = None,
                  **_: Any) -> torch.Tensor:
    return draws.normal(size, dtype or torch.get_default_dtype()) * std + mean


@_in_place("exponential")
def _exponential(draws: Draws, self: torch.Tensor, lambd: float = 1.0, **_: Any) -> torch.Tensor:
    return (torch.log(draws.between(self.shape, self.dtype)) / -lambd).to(self.dtype)


@_in_place("geometric")
def _geometric(draws: Draws, self: torch.Tensor, p: float, **_: Any) -> torch.Tensor:
    """How many trials there are up to the first success."""
    if p == 1:
        return torch.ones_like(self)
    wide = self.dtype if self.dtype.is_floating_point else torch.float64
    tries = torch.log(draws.between(self.shape, wide)) / math.log1p(-p)
    return torch.ceil(tries).clamp(min=1).to(self.dtype)


@_in_place("cauchy")
def _cauchy(draws: Draws, self: torch.Tensor, median: float = 0.0, sigma: float = 1.0, **_: Any) -> torch.Tensor:
    return (torch.tan(math.pi * (draws.between(self.shape, self.dtype) - 0.5)) * sigma + median).to(self.dtype)


@_in_place("log_normal")
def _log_normal(draws: Draws, self: torch.Tensor, mean: float = 1.0, std: float = 2.0, **_: Any) -> torch.Tensor:
    return torch.exp(draws.normal(self.shape, self.dtype) * std + mean)


@_way("multinomial")
def _multinomial(draws: Draws, self: torch.Tensor, num_samples: int, replacement: bool = False, **_: Any) -> torch.Tensor:
    """Exponential waiting times, each as long as its weight is small: who is first is drawn as the weights say, and the order in
    which they come is a draw without replacement. Of weight 0 nobody ever comes."""
    weights = self.detach().to(torch.float64)
    *rows, count = weights.shape
    size = [*rows, num_samples, count] if replacement else [*rows, count]
    early = (weights.unsqueeze(-2) if replacement else weights).log() - (-torch.log(draws.between(size, torch.float64))).log()
    return early.argmax(-1) if replacement else early.topk(num_samples, -1).indices


@_way("rrelu_with_noise_functional")
def _rrelu(draws: Draws, self: torch.Tensor, noise: torch.Tensor, lower: float = 0.125, upper: float = 1 / 3,
           training: bool = False, **_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    if not training:
        return torch.nn.functional.leaky_relu(self, (lower + upper) / 2), noise
    slopes = torch.where(self <= 0, _uniform(draws, self, lower, upper), torch.ones_like(self))
    return self * slopes, slopes


@_way("rrelu_with_noise")
def _rrelu_with_noise(draws: Draws, self: torch.Tensor, noise: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    found, slopes = _rrelu(draws, self, noise, *rest, **named)
    noise.copy_(slopes)
    return found


@_way("rrelu_with_noise_")
def _rrelu_in_place(draws: Draws, self: torch.Tensor, noise: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    return self.copy_(_rrelu_with_noise(draws, self.clone(), noise, *rest, **named))


@functools.cache
def ways() -> dict[Any, Way]:
    """The functions by operator."""
    found = {}
    for name, way in _WAYS.items():
        packet, _, overload = name.partition(".")
        found[getattr(getattr(torch.ops.aten, packet), overload)] = way
    return found


# ------------------------------------------------------------------------------------------- programs


def with_state(exported: Any, decompositions: Mapping[Any, Callable[..., Any]]) -> Any:
    """The exported program with draws of a state in the place of all that draws, or as it is where nothing does.
    `decompositions` are for operators in which others stand that draw. Raises UnsupportedError for draws in loops and
    branches."""
    if not any(_draws(node) for module in exported.graph_module.modules() if isinstance(module, torch.fx.GraphModule)
               for node in module.graph.nodes):
        return exported
    module = torch_graphs.deep_copied(exported)
    drawing = _Drawing(module, decompositions)
    specs = exported.graph_signature.input_specs
    first = sum(spec.kind in (InputKind.PARAMETER, InputKind.BUFFER) for spec in specs)
    state = drawing.placeholder(module, first)
    drawing.draw(module, state)
    if not drawing.draws.taken:
        return exported
    if any(spec.target == STATE for spec in specs):
        raise UnsupportedError(f"the module draws random numbers and has its own buffer {STATE}", subject="from_torch",
                               hint=f"rename it: {STATE} is reserved for the random state")
    after = drawing.advanced(module, state)
    signature = copy.deepcopy(exported.graph_signature)
    signature.input_specs.insert(first, InputSpec(InputKind.BUFFER, TensorArgument(state.name), STATE, False))
    results = next(iter(reversed(module.graph.nodes))).args[0][1:]
    for spec, node in zip(signature.output_specs, results, strict=True):
        if isinstance(spec.arg, TensorArgument):
            spec.arg = TensorArgument(node.name)  # a node that was replaced had another name
    signature.output_specs.insert(0, OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(after.name), STATE))
    return torch_graphs.with_graph(exported, module, signature, {STATE: _first_state()})


def _first_state() -> torch.Tensor:
    """A key from torch's generator, and a counter that begins at 0."""
    return torch.stack([torch.empty((), dtype=torch.int64).random_(), torch.zeros((), dtype=torch.int64)]).view(torch.uint64)


def _draws(node: torch.fx.Node) -> bool:
    target: Any = node.target
    return isinstance(target, torch_private.Operator) and torch.Tag.nondeterministic_seeded in target.tags


_DRAWN = (torch.ops.xla_torch.random_uniform.default, torch.ops.xla_torch.random_integers.default)

_INLINE = ("wrap_with_set_grad_enabled", "wrap_with_autocast")
"""What runs a graph within a graph once and as it stands."""


class _Drawing:
    """The replacement of what draws in a graph and in those within it."""

    def __init__(self, module: torch.fx.GraphModule, decompositions: Mapping[Any, Callable[..., Any]]):
        self.draws = Draws()
        self._table = {**decompositions, **{op: functools.partial(_checked, way, self.draws) for op, way in ways().items()}}
        self._like = torch_graphs.state_of(module)
        self._name = f"b_{STATE}"  # as torch names what stands for a buffer
        while any(node.name == self._name for node in module.graph.nodes):
            self._name += "_"

    def placeholder(self, module: torch.fx.GraphModule, number: int) -> torch.fx.Node:
        """A new input for the state, before the one with this number."""
        nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
        place = nodes[number] if number < len(nodes) else next(n for n in module.graph.nodes if n.op != "placeholder")
        with module.graph.inserting_before(place):
            state = module.graph.placeholder(self._name)
        state.meta["val"] = self._like
        return state

    def advanced(self, module: torch.fx.GraphModule, state: torch.fx.Node) -> torch.fx.Node:
        """The state after the program, as its first result."""
        output = next(iter(reversed(module.graph.nodes)))
        with module.graph.inserting_before(output):
            after = module.graph.call_function(torch.ops.xla_torch.random_advance.default, (state, self.draws.taken))
        after.meta["val"] = self._like
        output.args = ((after, *output.args[0]),)
        module.recompile()
        return after

    def draw(self, module: torch.fx.GraphModule, state: torch.fx.Node) -> None:
        levels: list[tuple[int, str]] = []
        for node in list(module.graph.nodes):
            torch_graphs.enter_level(node, levels)
            inner = [module.get_submodule(str(n.target)) for n in node.args
                     if isinstance(n, torch.fx.Node) and n.op == "get_attr" and _is_graph(module, n)]
            if node.op == "call_function" and inner:
                self._within(node, inner, state)
            elif _draws(node):
                self._replace(module, node, state, levels)
        module.recompile()

    def _within(self, node: torch.fx.Node, inner: Sequence[Any], state: torch.fx.Node) -> None:
        if not any(_draws(n) for one in inner for part in one.modules() if isinstance(part, torch.fx.GraphModule)
                   for n in part.graph.nodes):
            return
        name = torch_graph.name_of(node.target)
        if name not in _INLINE:
            raise UnsupportedError("random numbers in a loop, a branch or a checkpointed part", subject="from_torch",
                                   got=name, hint="draw them before it, and pass them in")
        count = len([n for n in inner[0].graph.nodes if n.op == "placeholder"])
        self.draw(inner[0], self.placeholder(inner[0], count))
        node.args = (*node.args, state)

    def _replace(self, module: torch.fx.GraphModule, node: torch.fx.Node, state: torch.fx.Node,
                 levels: Sequence[tuple[int, str]]) -> None:
        """Put what the operator is in the node's place. Within levels of torch.func.vmap, each of a size and with its
        randomness, numbers are the same for all, or there are as many for each as there are examples."""
        taken = self.draws.taken
        flat, tree = torch_private.pytree.tree_flatten((node.args, node.kwargs))
        given = [leaf for leaf in flat if isinstance(leaf, torch.fx.Node)]

        def run(state: torch.Tensor, *tensors: torch.Tensor) -> Any:
            self.draws.state, rest = state, iter(tensors)
            args, kwargs = torch_private.pytree.tree_unflatten(
                [next(rest) if isinstance(leaf, torch.fx.Node) else leaf for leaf in flat], tree)
            return node.target(*args, **kwargs)  # pyright: ignore[reportCallIssue]

        values = [n.meta["val"] for n in given]
        if levels:  # a tensor of a level is none any more where that has ended
            values = [torch_graphs.beside(self._like, value) for value in values]
        apart = [(size, number) for number, (size, randomness) in enumerate(levels, 1) if randomness == "different"]
        self.draws.copies = math.prod(size for size, _ in apart)
        graph = torch_graphs.in_operators(run, [self._like, *values], self._table)
        if self.draws.taken == taken:
            return
        for drawn in [n for n in graph.graph.nodes if n.target in _DRAWN]:
            sizes = [*(size for size, _ in apart), *drawn.args[2]]
            drawn.args = (*drawn.args[:2], sizes, *drawn.args[3:])
            torch_graphs.map_over_first(graph.graph, drawn, [number for _, number in apart])
        left = [torch_graph.name_of(n.target) for n in graph.graph.nodes if _draws(n)]
        if left:
            raise InternalError("an operator draws random numbers and has no replacement",
                                subject=torch_graph.name_of(node.target), got=left[0])
        torch_graph_nodes.inline(module, node, graph, [state, *given])


def _is_graph(module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    return isinstance(getattr(module, str(node.target), None), torch.fx.GraphModule)


def _checked(way: Way, draws: Draws, *args: Any, generator: Any = None, **kwargs: Any) -> Any:
    if generator is not None:
        raise UnsupportedError("a custom random generator is not supported", subject="from_torch", got=generator,
                               expected="torch's default one")
    return way(draws, *args, **kwargs)
