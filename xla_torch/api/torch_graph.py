"""Graphs of torch.export in core ATen operators to computations: every operator by its rule in `aten`.

A graph is read twice: first for all that there is no rule for, so that it is named at once, then to build.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from .. import functions as ops
from ..aten.checks import require
from ..aten.control import WITH_REGIONS, Region
from ..aten.operator_rules import CHECKS, NO_VALUES, RULES, applied, check_dynamic, compared
from ..aten.refused import INSTEAD, REASONS
from ..aten.values import cast
from ..core.errors import UnsupportedError, XlaError
from ..core.shape import Shape
from ..core.types import PRED, PrimitiveType
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.checks import LABEL, Assumption
from ..hlo.literals.literal import Literal
from ..hlo.structure import CONSTANT
from ..lowering.numerics import numpy_from_storage, to_storage
from ..storage import torch_private
from ..storage.dtypes import type_from_torch
from ..storage.torch_private import Operator, arguments_of
from .torch_asserted_sizes import COMPARISONS, chosen_by, equal_sizes, is_the_same, line_of, most_chosen, written_to
from .torch_value_sizes import Symbolic, ValueSizes, depends_on_values


def shape_of(value: Any, what: str) -> Shape:
    """The shape of a tensor. Raises UnsupportedError, which calls it `what`, where XLA has none."""
    if not isinstance(value, torch.Tensor):
        raise UnsupportedError(f"{what} is no tensor", got=type(value).__name__)
    if value.layout is not torch.strided:
        raise UnsupportedError(f"{what} is sparse", got=value.layout, expected="a dense tensor")
    if not all(type(n) is int for n in value.shape):
        raise UnsupportedError(f"{what} is of unknown size", got=str(list(value.shape)),
                               hint="export for tensors of known sizes")
    return Shape.array(element_type_of(value.dtype, what), value.shape)


def element_type_of(dtype: torch.dtype, what: str) -> PrimitiveType:
    """The element type of a dtype. Raises UnsupportedError where XLA has none."""
    found = type_from_torch(dtype)
    if found is None:
        raise UnsupportedError(f"{what} has a dtype that XLA does not know", got=dtype)
    return found


def constant(builder: Builder, tensor: torch.Tensor, what: str) -> XlaOp:
    """A tensor's value as a constant."""
    shape = shape_of(tensor, what)
    stored = to_storage(tensor.detach().contiguous(), shape.element_type)
    return builder.constant(Literal(shape, numpy_from_storage(stored, shape.element_type)))


NUMBERS = (bool, int, float, complex)


def as_tensor(number: complex) -> torch.Tensor:
    """The tensor that an operator makes of a number. A trace of TorchScript has numbers in the place of tensors."""
    return torch.tensor(number, dtype={float: torch.float64, complex: torch.complex128}.get(type(number)))


def name_of(target: Any) -> str:
    """An operator's name in the table: ``add.Tensor``."""
    if not isinstance(target, Operator):
        return str(getattr(target, "__name__", target))
    name = str(target)
    return name.removeprefix("aten.")


def check(graph: torch.fx.Graph) -> None:
    """Raise UnsupportedError, which names all operators of a graph that there is no rule for."""
    called = [_operator(n) for one in _graphs(graph) for n in one.nodes if n.op == "call_function" and not is_number(n)]
    missing = collections.Counter(name_of(target) for target in called if not _is_known(target))
    if missing:
        named = ", ".join(f"{name} ({count})" if count > 1 else name for name, count in missing.items())
        known = {**REASONS, **INSTEAD}
        reasons = [f"{name}: {known[name]}" for name in missing if name in known]
        raise UnsupportedError(f"the graph has operators without an XLA equivalent: {named}", subject="from_torch",
                               got="; ".join(reasons), hint=_OF_A_LIBRARY if any(name.count(".") > 1 for name in missing) else "")


_OF_A_LIBRARY = "make operators of your own by torch.library.custom_op, and give the model itself: their Python is traced"


def _graphs(graph: torch.fx.Graph) -> list[torch.fx.Graph]:
    """A graph and those within it that it calls."""
    owner: Any = graph.owning_module
    inner = [operator.attrgetter(str(n.target))(owner) for n in graph.nodes if n.op == "get_attr"]
    return [graph, *(part for one in inner if isinstance(one, torch.fx.GraphModule) for part in _graphs(one.graph))]


def is_number(node: torch.fx.Node) -> bool:
    """Whether a node is a number that is made of sizes."""
    return isinstance(node.meta.get("val"), (*Symbolic, int))


def _operator(node: torch.fx.Node) -> Any:
    """What a node calls, be it in order with others that have effects."""
    return node.args[1] if node.target is torch_private.with_effects else node.target


def _is_known(target: Any) -> bool:
    if isinstance(target, torch_private.HigherOrderOperator):
        return name_of(target) in WITH_REGIONS
    return target is operator.getitem or (isinstance(target, Operator) and name_of(target) in {*RULES, *NO_VALUES, *CHECKS})


def build(builder: Builder, graph: torch.fx.Graph, inputs: Mapping[str, Any],
          attribute: Callable[[str], Any], held: Mapping[str, torch.Tensor] | None = None) -> list[Any]:
    """The results of a graph that was `check`ed, given a value (an op, or a constant as it is) for each placeholder by name.
    `held` are tensors that placeholders have in each call: sizes that they say are known."""
    values: dict[torch.fx.Node, Any] = {}
    sizes = ValueSizes(builder, equal_sizes(graph, held or {}))
    sizes.are_assumed = any(isinstance(a, str) and a.startswith(LABEL) for node in graph.nodes for a in node.args)
    fixed = {name: tensor for name, tensor in (held or {}).items() if inputs[name].instruction.opcode == CONSTANT}
    for node in graph.nodes:
        if node.op == "output":
            results = [node.args[0]] if isinstance(node.args[0], torch.fx.Node) else node.args[0]
            return [values[result] if isinstance(result, torch.fx.Node) else result for result in results]
        values[node] = _Reading(builder, values, attribute, sizes, fixed).value(node, inputs)
    raise AssertionError("a graph ends in its output")


class _Reading:
    """One node of a graph."""

    def __init__(self, builder: Builder, values: Mapping[torch.fx.Node, Any], attribute: Callable[[str], Any],
                 sizes: ValueSizes, fixed: Mapping[str, torch.Tensor]):
        self.builder, self._values, self._attribute, self._sizes = builder, values, attribute, sizes
        self._fixed = fixed

    def value(self, node: torch.fx.Node, inputs: Mapping[str, Any]) -> Any:
        if node.op == "placeholder":
            return inputs[node.name]
        if node.op == "get_attr":
            found = self._attribute(str(node.target))
            is_graph = isinstance(found, torch.fx.GraphModule)
            return _region(found) if is_graph else constant(self.builder, found, f"constant {node.target}")
        if node.target is operator.getitem:
            source, number = node.args
            return self._values[source][number]  # pyright: ignore[reportArgumentType]
        if name_of(node.target) == "_local_scalar_dense.default":
            return self._sizes.take(node.meta["val"], self._values[node.args[0]], _line(node))  # pyright: ignore
        if is_number(node):
            number = node.meta["val"]
            return number if isinstance(number, int) else self._sizes.number(number)
        if name_of(_operator(node)) in CHECKS:
            self._check(node, name_of(_operator(node)))
        if name_of(_operator(node)) in {*NO_VALUES, *CHECKS}:
            return [None] if node.target is torch_private.with_effects else None
        before = len(self.builder.instructions)
        try:
            return self._called(node)
        except XlaError as error:
            raise error.located(subject=name_of(node.target), where=_place(node)) from None
        finally:
            for instruction in self.builder.instructions[before:]:
                instruction.common.setdefault("metadata", {"op_name": _place(node)})

    def _check(self, node: torch.fx.Node, name: str) -> None:
        """What torch asserts when the program runs."""
        given, *more = node.args[2:] if node.target is torch_private.with_effects else node.args
        where = _line(node)
        assumption = Assumption.of_label(str(more[0])) if more else None
        if name.startswith("_assert_async"):
            holds = ops.Reshape(cast(self._argument(given, name), PRED), [])
            require(holds, str(more[0]) if more else "the assertion", {}, where, assumption)
        elif name == "_assert_scalar.default":
            self._sizes.require(self._asserted(given), where, assumption)
        else:
            named = [argument.name for argument in arguments_of(node.target)]
            ends = {**dict(zip(named[1:], more, strict=False)), **node.kwargs}
            number = given.meta["val"] if isinstance(given, torch.fx.Node) else given
            for function, end in ((operator.ge, ends.get("min")), (operator.le, ends.get("max"))):
                if end is not None:
                    self._sizes.require(self._sizes.relation(function, number, end), where)

    def _asserted(self, given: Any) -> Any:
        """A truth about numbers, as it stands in the graph: torch takes what it asserts for true."""
        if not isinstance(given, torch.fx.Node):
            return given
        if given.target not in COMPARISONS:
            return self._sizes.truth(given.meta["val"])
        sides = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in given.args]
        return self._sizes.relation(given.target, *sides)  # pyright: ignore[reportArgumentType]

    def _called(self, node: torch.fx.Node) -> Any:
        target, name = node.target, name_of(node.target)
        if isinstance(target, torch_private.HigherOrderOperator):
            shapes = [shape_of(value, f"a result of {name}") for value in node.meta["val"]]
            given = [self._argument(a, name) for a in node.args]
            if not all(self._sizes.is_known(a.meta.get("val")) for a in node.all_input_nodes):
                raise UnsupportedError("a branch or a loop takes a value whose size depends on data", got=name,
                                       expected="arrays of known sizes")
            return compared(name, WITH_REGIONS[name](*given, shapes), shapes)
        assert isinstance(target, Operator)
        arguments, defaults = {}, {}
        for place, argument in enumerate(arguments_of(target)):
            if argument.has_default_value():
                defaults[argument.name] = argument.default_value
            given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name, argument.default_value)
            arguments[argument.name] = self._argument(given, name)
            if not node.all_input_nodes and str(argument.type) == "Tensor" and isinstance(given, NUMBERS):
                arguments[argument.name] = constant(self.builder, as_tensor(given), f"an argument of {name}")
        stated = node.meta["val"]
        several = isinstance(stated, (list, tuple))
        tensors: list[Any] = list(stated) if several else [stated]
        shapes = [None if v is None else self._shape(v, f"the result of {name}") for v in tensors]
        taken = [n.meta.get("val") for n in node.all_input_nodes]
        known = all(self._sizes.is_known(v) for v in (*tensors, *(v for v in taken if isinstance(v, torch.Tensor))))
        if not known and torch.Tag.pointwise not in node.target.tags:  # pyright: ignore
            check_dynamic(name, arguments)
        expected = shapes if several else shapes[0]
        assert expected is not None
        found = applied(name, self.builder, arguments, defaults, expected, *_in_memory(node),
                        where=lambda: None if self._is_sure(node) else _line(node),
                        assumed=self._sizes.assumed)
        found = found if known else self._fitted(found, tensors, node, name)
        return found if several else found[0]

    def _is_sure(self, node: torch.fx.Node) -> bool:
        """Whether the sizes that values say need no check: they are the same in each call, or one mask says all of them."""
        if is_the_same(node, self._fixed, {}):
            return True
        sizes, places = written_to(node)
        return any(self._sizes.is_count(n, chosen) for n in sizes for chosen in places)

    def _shape(self, value: Any, what: str) -> Shape:
        if not depends_on_values(value):
            return shape_of(value, what)
        return self._sizes.shape(element_type_of(value.dtype, what), value.shape)

    def _fitted(self, found: Sequence[XlaOp | None], values: Sequence[Any], node: torch.fx.Node,
                name: str) -> list[XlaOp | None]:
        mask, fitted = chosen_by(node), list[XlaOp | None]()
        for one, value in zip(found, values, strict=True):
            if one is not None:
                self._sizes.learn(one, value.shape, mask, most_chosen(node), _line(node))
                one = self._sizes.fitted(one, value.shape, name)
                mask = None  # the results of one operator have one size
            fitted.append(one)
        return fitted

    def _argument(self, given: Any, name: str) -> Any:
        if isinstance(given, torch.fx.Node):
            return self._values[given]
        if isinstance(given, (list, tuple)):
            return [self._argument(part, name) for part in given]
        return element_type_of(given, name) if isinstance(given, torch.dtype) else given


def _region(module: torch.fx.GraphModule) -> Region:
    """A graph within a graph, as a function."""
    names = [node.name for node in module.graph.nodes if node.op == "placeholder"]

    def built(builder: Builder, given: Sequence[XlaOp]) -> list[XlaOp]:
        found = build(builder, module.graph, dict(zip(names, given, strict=True)), lambda name: operator.attrgetter(name)(module))
        for value in found:
            if not isinstance(value, XlaOp):
                raise UnsupportedError("a result of a branch or a loop body is not a tensor", got=repr(value)[:80])
        return found

    return built


def _in_memory(node: torch.fx.Node) -> tuple[bool, bool]:
    """Whether the first tensor that a node takes lies in memory as it stands, and whether by rows at all."""
    value = node.args[0].meta.get("val") if node.args and isinstance(node.args[0], torch.fx.Node) else None
    if depends_on_values(value):
        return False, False
    by_rows = isinstance(value, torch.Tensor) and value.is_contiguous()
    return isinstance(value, torch.Tensor) and by_rows and value.storage_offset() == 0, by_rows


def _line(node: torch.fx.Node) -> str:
    """Where a node stands in the user's code, or in the module where torch does not say."""
    return line_of(node) or _place(node)


def _place(node: torch.fx.Node) -> str:
    """Where a node stands in the module that was exported: ``layer1.0.conv1/convolution``."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = str(stack[-1][0]) if stack else ""
    return f"{path}/{name_of(node.target).removesuffix('.default')}".removeprefix("/")
