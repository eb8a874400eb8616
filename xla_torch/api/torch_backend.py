"""The backend of torch.compile: the graphs of AOTAutograd, forward and backward, as programs of XLA's ops."""

from __future__ import annotations

import dataclasses
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..core.errors import InvalidArgument, UnsupportedError, XlaError, XlaWarning
from ..functions.hlo_builder import XlaOp
from ..opcodes import control
from ..runtime.backends import CALL_BY_CALL, CUDAGRAPHS, EAGER, FASTEST, INDUCTOR, XLA
from ..runtime.computation import XlaComputation
from ..storage import kernel_repairs, torch_graphs, torch_private
from . import torch_graph
from .builder import XlaBuilder
from .compiling import compile
from .torch_function import operator_decompositions

_DROPOUT = torch.ops.aten.native_dropout.default
_AS_TRACED = frozenset({_DROPOUT, torch.ops.aten.unfold.default, torch.ops.aten.as_strided.default})
"""Operators that are not decomposed: one that draws, and views, by which torch.compile knows how a result lies in memory."""

_RUNTIMES = (EAGER, XLA, FASTEST, INDUCTOR, CUDAGRAPHS, CALL_BY_CALL)

Run = Callable[..., Sequence[Any]]
"""The arguments of a graph in, its results out."""


def xla_torch(graph: torch.fx.GraphModule, examples: Sequence[Any], *, options: Mapping[str, Any] | None = None,
              mode: str | None = None) -> Callable[..., Any]:
    """Compile a graph of `torch.compile`, forward and backward, as XLA programs; the backend named "xla_torch".

    `options` are ``runtime``, a backend of `xla_torch.compile` by name ("eager" by default), and ``fallback``: False raises for
    a graph that has no XLA program, which otherwise runs in eager torch, with a warning. So does ``fullgraph=True``.
    """
    settings = _Settings.of(options or {}, mode)

    def compiled(module: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        return torch_graphs.boxed(_Graph(module, settings))

    table = {target: way for target, way in operator_decompositions()[0].items() if target not in _AS_TRACED}
    with kernel_repairs.mended(), sdpa_kernel(SDPBackend.MATH):  # operators of a kernel's own have no rules
        return torch_graphs.aot_autograd(fw_compiler=compiled, decompositions=table)(graph, examples)


@dataclasses.dataclass(frozen=True)
class _Settings:
    runtime: str
    falls_back: bool

    @classmethod
    def of(cls, options: Mapping[str, Any], mode: str | None) -> _Settings:
        """The settings that `torch.compile` was given. Raises InvalidArgument for one that does not exist."""
        unknown = [key for key in options if key not in ("runtime", "fallback")]
        if mode is not None or unknown:
            raise InvalidArgument("no such option of the backend", subject="torch.compile",
                                  got=f"mode={mode!r}" if mode is not None else unknown[0],
                                  expected='options={"runtime": ..., "fallback": ...}')
        runtime, falls_back = options.get("runtime", EAGER), options.get("fallback", True)
        if runtime not in _RUNTIMES:
            raise InvalidArgument("no such runtime", subject="torch.compile", got=repr(runtime), expected=" or ".join(_RUNTIMES))
        if not isinstance(falls_back, bool):
            raise InvalidArgument("fallback is no bool", subject="torch.compile", got=repr(falls_back), expected="True or False")
        return cls(runtime, falls_back and not torch_graphs.is_full_graph())


class _Graph:
    """A graph as a function: one program, or with symbolic sizes one for all sizes that it is called with."""

    def __init__(self, module: torch.fx.GraphModule, settings: _Settings):
        self._module, self._settings = module, settings
        self._has_sizes = any(isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool))
                              for node in module.graph.find_nodes(op="placeholder"))
        self._programs = dict[Any, Run]()
        self._eager: Run | None = None
        if not self._has_sizes:
            self._programs[()] = self._converted(lambda: module)

    def __call__(self, *arguments: Any) -> Sequence[Any]:
        key = tuple(tuple(a.shape) if isinstance(a, torch.Tensor) else a for a in arguments) if self._has_sizes else ()
        if key not in self._programs:
            self._programs[key] = self._eager or self._converted(
                lambda: torch_graphs.with_numbers(self._module, arguments))
        with torch.no_grad():
            return self._programs[key](*arguments)

    def _converted(self, module: Callable[[], torch.fx.GraphModule]) -> Run:
        """The graph as a program, or as it is where it has none and may run so."""
        try:
            with torch_private.undisturbed():
                return _Program(module(), self._settings.runtime)
        except (XlaError, *torch_private.needs_data()) as error:
            refused = error if isinstance(error, XlaError) else UnsupportedError(
                "a size depends on values", subject="torch.compile", got=str(error).partition("\n")[0])
            if not self._settings.falls_back:
                raise refused from error
        reason = refused.what if refused.subject in ("", *_CALLERS) else f"{refused.subject}: {refused.what}"
        warnings.warn(XlaWarning(f"a graph runs in eager torch, not as an XLA program: {reason}", subject="torch.compile",
                                 got=refused.got, expected=refused.expected, where=refused.where,
                                 hint=refused.hint or 'options={"fallback": False} raises an error instead'), stacklevel=2)
        self._eager = self._module.forward
        return self._eager


_CALLERS = ("from_torch", "torch.compile")


class _Program:
    """A graph of known sizes as a program. torch draws its random numbers, in their order, before it runs."""

    def __init__(self, module: torch.fx.GraphModule, runtime: str):
        inputs = module.graph.find_nodes(op="placeholder")
        self._places = [k for k, node in enumerate(inputs) if isinstance(node.meta.get("val"), torch.Tensor)]
        module = torch_graphs.copied(module)
        torch_graphs.convert_by_aten(module.graph)
        self._draws = _with_draws_apart(module.graph)
        _require_one_device(module)
        torch_graph.check(module.graph)
        self._results, self._memory = list[Any](), _Memory()
        computation = self._built(module)
        self._run: Any = None if computation is None else compile(computation, runtime)

    def _built(self, module: torch.fx.GraphModule) -> XlaComputation | None:
        """The program, whose results are those that are tensors: None if there are none."""
        builder, inputs, count = XlaBuilder("graph"), {}, 0
        for node in module.graph.find_nodes(op="placeholder"):
            inputs[node.name] = value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                inputs[node.name] = builder.parameter(count, torch_graph.shape_of(value, f"argument {node.name}"))
                count += 1
        found = torch_graph.build(builder, module.graph, inputs, lambda name: operator.attrgetter(name)(module))
        nodes: Any = module.graph.output_node().args[0]
        for node, value in zip(nodes, found, strict=True):
            self._results.append(None if isinstance(value, XlaOp) else value)
            if isinstance(value, XlaOp):
                self._memory.add(node.meta["val"])
            elif isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.SymInt):
                raise UnsupportedError("a result is a size that depends on values", subject="torch.compile", got=node)
        self._tensors = [isinstance(value, XlaOp) for value in found]
        ops = [value for value in found if isinstance(value, XlaOp)]
        return builder.build(builder.add(control.tuple_, ops)) if ops else None

    def __call__(self, *arguments: Any) -> list[Any]:
        drawn = [draw() for draw in self._draws]
        if self._run is None:
            return list(self._results)
        found = iter(self._memory.laid_out(self._run(*(arguments[k] for k in self._places), *drawn)))
        return [next(found) if is_tensor else value for value, is_tensor in zip(self._results, self._tensors, strict=True)]


class _Memory:
    """How results lie in memory, in what torch traced: with which strides, and which of them share theirs. What follows a graph
    is traced for these strides, and who writes into a result changes those that are views of it."""

    def __init__(self):
        self._likes, self._owners = list[torch.Tensor](), dict[int, list[int]]()

    def add(self, like: torch.Tensor) -> None:
        """Note the next result. Raises UnsupportedError for one whose size depends on values."""
        if not all(type(n) is int for n in like.shape):
            raise UnsupportedError("a result's size depends on values", subject="torch.compile", got=str(list(like.shape)),
                                   expected="arrays of known sizes")
        numbers = self._owners.setdefault(torch_graphs.storage_key(like), [])
        if numbers and self._likes[numbers[0]].dtype is not like.dtype:
            raise UnsupportedError("results of different dtypes share memory", subject="torch.compile",
                                   got=f"{self._likes[numbers[0]].dtype}, {like.dtype}")
        numbers.append(len(self._likes))
        self._likes.append(like)

    def laid_out(self, found: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The results as they lie."""
        made = list(found)
        for numbers in self._owners.values():
            if len(numbers) == 1 and made[numbers[0]].stride() == self._likes[numbers[0]].stride():
                continue
            first = self._likes[numbers[0]]
            whole = max(self._likes[k].storage_offset() + _extent(self._likes[k]) for k in numbers)
            memory = torch.empty(whole, dtype=first.dtype, device=made[numbers[0]].device)
            for k in numbers:
                made[k] = _written(memory, made[k], self._likes[k])
        return made


def _extent(like: torch.Tensor) -> int:
    """How many elements of memory a tensor reaches over."""
    if not like.numel():
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(like.shape, like.stride(), strict=True))


def _written(memory: torch.Tensor, value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The part of the memory where a tensor lies, with this value."""
    view = memory.as_strided(like.shape, like.stride(), like.storage_offset())
    if not _overlaps(like):
        return view.copy_(value)
    places = torch.arange(len(memory), device=memory.device).as_strided(like.shape, like.stride(), like.storage_offset())
    memory[places.reshape(-1)] = value.reshape(-1)
    return view


def _overlaps(like: torch.Tensor) -> bool:
    """Whether elements of a tensor may share their memory, as those of an expanded one do."""
    reach = 0
    for stride, size in sorted((stride, size) for size, stride in zip(like.shape, like.stride(), strict=True) if size > 1):
        if stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def _require_one_device(module: torch.fx.GraphModule) -> None:
    found = {v.device for node in module.graph.nodes for v in torch_private.pytree.tree_leaves(node.meta.get("val"))
             if isinstance(v, torch.Tensor)}
    if len(found) > 1:
        raise UnsupportedError("the tensors of a graph are on several devices", subject="torch.compile",
                               got=", ".join(sorted(map(str, found))), expected="one device")


# ------------------------------------------------------------------------------------------- random numbers

_DRAWN_BY_SHAPE = frozenset({
    "bernoulli.p", "cauchy.default", "exponential.default", "geometric.default", "log_normal.default", "native_dropout.default",
    "normal.float_float", "normal_functional.default", "rand.default", "rand_like.default", "randint.default", "randint.low",
    "randint_like.default", "randint_like.low_dtype", "randn.default", "randn_like.default", "random.default", "random.from",
    "random.to", "randperm.default", "uniform.default"})
"""Operators that draw random numbers that depend on no value of a tensor."""


def _with_draws_apart(graph: torch.fx.Graph) -> list[Callable[[], torch.Tensor]]:
    """Make the random numbers of a graph further arguments, and return the functions that draw these in torch.

    Raises UnsupportedError for a draw that depends on values."""
    nodes = [node for node in graph.nodes if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())]
    unknown = [name for node in nodes if (name := torch_graph.name_of(node.target)) not in _DRAWN_BY_SHAPE]
    if unknown:
        raise UnsupportedError("random numbers are drawn in a way that depends on values", subject="torch.compile",
                               got=", ".join(dict.fromkeys(unknown)), hint="draw them outside of the compiled function")
    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        places = [graph.placeholder(f"drawn_{node.name}") for node in nodes]
    draws = [_apart(node, drawn) for node, drawn in zip(nodes, places, strict=True)]
    graph.eliminate_dead_code()
    return draws


def _apart(node: torch.fx.Node, drawn: torch.fx.Node) -> Callable[[], torch.Tensor]:
    """Put an argument in the place of a node that draws; what draws as it does, from torch's generator, is returned."""
    target: Any = node.target
    given: Any = (node.args, node.kwargs)
    args, kwargs = torch.fx.map_arg(given, lambda one: _Like(one.meta["val"]))  # pyright: ignore[reportArgumentType]

    def draw() -> Any:
        given, named = torch_private.pytree.tree_map_only(_Like, _Like.empty, (tuple(args), dict(kwargs)))
        return target(*given, **named)

    drawn.meta["val"] = node.meta["val"]
    if target is not _DROPOUT:
        node.replace_all_uses_with(drawn)
        node.graph.erase_node(node)
        return draw
    drawn.meta["val"] = node.meta["val"][1]
    _drop(node, drawn)
    return lambda: draw()[1]


def _drop(node: torch.fx.Node, kept: torch.fx.Node) -> None:
    """Put what a dropout computes of the numbers drawn in its place."""
    x, p, train = (*node.args, True)[:3]
    scale = 1 if train is False else 0 if p == 1 else 1 / (1 - p)  # pyright: ignore[reportOperatorIssue]
    with node.graph.inserting_before(node):
        whole = node.graph.call_function(torch.ops.aten.mul.Tensor, (x, kept))
        scaled = node.graph.call_function(torch.ops.aten.mul.Tensor, (whole, scale))
    whole.meta["val"] = scaled.meta["val"] = node.meta["val"][0]
    for user in list(node.users):  # operator.getitem
        user.replace_all_uses_with((scaled, kept)[user.args[1]])  # pyright: ignore[reportArgumentType, reportCallIssue]
        node.graph.erase_node(user)
    node.graph.erase_node(node)


class _Like:
    """A tensor's form without its values."""

    def __init__(self, like: torch.Tensor):
        self._size, self._stride, self._dtype, self._device = tuple(like.shape), like.stride(), like.dtype, like.device

    def empty(self) -> torch.Tensor:
        return torch.empty_strided(self._size, self._stride, dtype=self._dtype, device=self._device)
