"""PyTorch models and functions as computations: what torch.export makes of them, in XLA's ops."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
import torch.fx
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument

from ..core.errors import InvalidArgument, UnsupportedError, XlaError
from ..functions.hlo_builder import XlaOp
from ..hlo.derivatives import AS_WRITTEN, Derivatives, Lost, check_choice
from ..hlo.ir import Computation
from ..opcodes import control
from ..pytree.nodes import Kind, Static, is_named_tuple
from ..pytree.signatures import Signature
from ..pytree.structure import Path, Structure
from ..runtime.computation import XlaComputation
from ..storage import export_repairs, inline_regions, torch_graphs, torch_private
from ..storage.applied_functions import functions_applied, hooks_of_nodes
from ..storage.value_reads import has_reads
from . import (
    decomposition_tables,
    torch_exporting,
    torch_functions,
    torch_graph,
    torch_own_backward,
    torch_random,
    torch_sizes,
    torch_stops,
)
from .builder import XlaBuilder
from .torch_composites import operator_decompositions
from .torch_derivatives import Graph, Input, TorchDerivatives
from .torch_members import RetracedFunction, TorchFunction
from .torch_verified import WRITTEN


def from_torch(module_or_function: Any, *example_args: Any, weights: Literal["arguments", "constants"] = "arguments",
               derivatives: Literal["torch", "xla", "as written"] = "torch", dynamic_shapes: Any = None,
               assumptions: Literal["check", "retrace", "trust"] = "check", **example_kwargs: Any) -> TorchFunction:
    """Export a PyTorch module, function or `torch.export.ExportedProgram` as a computation.

    Only shapes and dtypes of example tensors matter; numbers, strings and other values become part of the program. A module's
    parameters and buffers are the first argument, a pytree of dicts by name, which the result's `weights` holds. With
    ``weights="constants"`` they become part of the program::

        model = xla_torch.from_torch(network, images)
        model(model.weights, images)                 # as network(images)
        model.to_stablehlo()                         # for XLA, IREE or a TPU

    `XlaModule.from_torch` returns a module that holds the weights. If the module writes into its buffers, such as the running
    statistics of batch normalisation, or into frozen parameters, the result is a pair: the module's result and the pytree of
    their new values. An exported
    program joined with its backward pass returns a dict of gradients of `weights` and `inputs`, by name, between the two.

    `dynamic_shapes` is passed to torch.export. With it, or with an exported program that has symbolic sizes, `computation` is a
    PolymorphicComputation for all sizes that torch allows; other sizes raise InvalidArgument::

        batch = torch.export.Dim("batch", min=2, max=64)
        model = xla_torch.from_torch(network, images, dynamic_shapes={"x": {0: batch}})
        model.computation.at(batch=8).to_stablehlo()  # one of its programs

    Random numbers (dropout, ``torch.randn``) come from an additional buffer ``rng_state``, u64[2]: key and counter of
    `RngBitGenerator` with "rng_three_fry". A call returns it with an advanced counter, also with ``weights="constants"``, where
    it is the only remaining argument. The backward pass sees the same numbers. The first key comes from torch's generator, so
    `torch.manual_seed` before the conversion sets it. The numbers differ from torch's, except those that the model draws after
    it seeds torch's generator, or one of its own: these are constants. Random numbers in `torch.cond` and
    loops raise UnsupportedError. In `torch.func.vmap` they are the same for all examples or not, as `randomness` says.

    Sizes that depend on values (`nonzero`, ``x[mask]``, `unique`, `repeat_interleave`) become bounded dynamic dimensions such
    as ``f32[<=8]``. Checks of sizes and values that torch.export records run in each call (ExecutionError, with the user's
    line). StableHLO, HLO, ONNX and JAX can't express them: writing these formats warns (XlaWarning) and names the dropped
    checks. Where torch raises for a singular matrix, the result holds NaN or infinities.

    If Python asks for values (``if (x > 0).all()``, ``int(n)``), the model is traced with those of the example. Each decision is
    an assumption, which `computation.assumptions` lists. With ``assumptions="check"`` each call raises AssumptionError where one
    does not hold. "retrace" traces another program then; "trust" drops the checks and warns.

    Derivatives are those that torch has for the exported program, traced when first used. If torch can't trace them, as for
    sizes that depend on values, or with ``derivatives="xla"``, they are derived from the ops. Both respect `detach`,
    `torch.no_grad` and the padding of embeddings. The `backward` of a torch.autograd.Function is kept if the model can be
    traced a second time with its gradients; otherwise, and with "xla", a derivative warns (LostDerivatives). If the module writes
    into memory that a detached tensor shares, only torch's are right, and "xla" warns.
    ``derivatives="as written"`` accepts those of the plain ops, also in written programs (see `load`).

    Raises UnsupportedError with the names of all operators that XLA lacks; errors of torch.export are passed on.

    >>> program = xla_torch.from_torch(lambda x: torch.sin(x) * 2, torch.ones(2))
    >>> program(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 1.6829])
    """
    if weights not in ("arguments", "constants"):
        raise InvalidArgument("no such choice of weights", subject="from_torch", got=repr(weights),
                              expected='"arguments" or "constants"')
    check_choice(derivatives, ("torch", "xla", "as written"), "from_torch")
    if assumptions not in ("check", "retrace", "trust"):
        raise InvalidArgument("no such choice of assumptions", subject="from_torch", got=repr(assumptions),
                              expected='"check", "retrace" or "trust"')
    options = {"name": torch_exporting.title(module_or_function), "by_arguments": weights == "arguments",
               "derivatives": derivatives}
    reads = False

    def imported() -> TorchFunction | None:
        nonlocal reads
        seen = torch_exporting.functions()
        (exported, names), lost = functions_applied(
            lambda: torch_exporting.exported(module_or_function, example_args, example_kwargs, dynamic_shapes, seen))
        lost = (*lost, *hooks_of_nodes(module_or_function))
        make = functools.partial(_imported, names=names, functions=lost, **options)
        if torch_sizes.are_unknown(exported):
            return _of_many_sizes(exported, make)
        reads = seen.has_reads or has_reads(exported) or torch_sizes.depend_on_values(exported)
        if reads and module_or_function is not exported:
            torch_exporting.check_sizes(exported, example_args, example_kwargs)
            torch_exporting.check_results(exported, module_or_function, example_args, example_kwargs)
        found = make(exported, example=_example(lost, module_or_function, example_args, example_kwargs))
        return None if reads and module_or_function is not exported and _lacks_derivatives(found) else found

    refused: Exception | None = None
    try:
        if (found := imported()) is not None:
            return found
    except Exception as error:
        is_given = dynamic_shapes is not None or isinstance(module_or_function, torch.export.ExportedProgram)
        if is_given or (isinstance(error, XlaError) and not reads):
            known = torch_exporting.refused(error, dynamic_shapes is not None)
            if known is error:
                raise
            raise known from error
        refused = error
    make = functools.partial(_by_values, options=options, trusts=assumptions == "trust")
    with contextlib.nullcontext() if refused is None else torch_exporting.instead_of(refused):
        first = make(module_or_function, example_args, example_kwargs)
    return RetracedFunction(first, module_or_function, make) if assumptions == "retrace" else first


def _by_values(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any],
               trusts: bool) -> TorchFunction:
    """A program traced with the values of an example: with bounded sizes where that will do, or else with the example's."""

    def made(fixes_sizes: bool, fixes_numbers: bool = False) -> TorchFunction:
        (exported, names), lost = functions_applied(
            lambda: torch_exporting.exported_by_values(given, args, kwargs, fixes_sizes, fixes_numbers, trusts))
        lost = (*lost, *hooks_of_nodes(given))
        labels = torch_exporting.labels(exported, options["by_arguments"])
        function = _imported(exported, names=names, functions=lost, example=_example(lost, given, args, kwargs), **options)
        for assumption in labels - set(function.assumptions):  # torch took it for granted as it decomposed the program
            raise UnsupportedError("the program cannot check a decision of Python", subject="from_torch", got=assumption,
                                   where=assumption.where, hint="use torch.where or torch.cond")
        return function

    # The first way that has derivatives, or else the first that there is.
    found, refused = None, list[Exception]()
    for fixes_sizes, fixes_numbers in ((False, False), (True, False), (True, True)):
        if fixes_sizes and not fixes_numbers and refused and "SymFloat" in str(refused[0]):
            continue
        try:
            function = made(fixes_sizes, fixes_numbers)
        except Exception as error:
            refused.append(error)
            continue
        if not _lacks_derivatives(function):
            return function
        found = found or function
    if found is None:
        raise refused[min(1, len(refused) - 1)] from None
    return found


def _lacks_derivatives(function: TorchFunction) -> bool:
    """Whether a program has none that it would have where numbers are the example's."""
    found = getattr(function.computation, "entry", None)
    return found is not None and isinstance(found.derivatives, TorchDerivatives) and found.derivatives.are_refused()


def _example(functions: Sequence[str], given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
             ) -> torch_own_backward.Example | None:
    """What is converted, where a torch.autograd.Function may say other derivatives than its operators do."""
    return torch_own_backward.Example(torch_exporting.as_module(given), args, kwargs) if functions else None


def _imported(exported: Any, **options: Any) -> TorchFunction:
    for name, tensor in {**exported.state_dict, **exported.constants}.items():
        torch_exporting.refuse_sparse(name, tensor)
    if torch_functions.has_whole(exported):
        with torch_functions.InOthers(torch_functions.WHOLE):
            exported = torch_sizes.exported_again(exported)
    try:
        return _Import(exported, **options).function()
    except torch_graphs.DataDependent as error:
        raise UnsupportedError("torch knows no decomposition of an operator for a size that depends on values",
                               subject="from_torch", got=str(error).partition("\n")[0], expected="arrays of known sizes",
                               hint="use torch.where(mask, x, 0), which keeps all elements and static sizes") from error


def _of_many_sizes(exported: Any, make: Callable[[Any], TorchFunction]) -> TorchFunction:
    family = torch_sizes.TorchFamily(exported, make)
    one: TorchFunction = family.function
    return TorchFunction(family, one.in_tree, one.out_tree, one.signature, one.places, one.weights, one.buffers, one.replaced,
                         one.unsaved)


class _Import:
    """An exported program on its way to a computation."""

    def __init__(self, given: Any, name: str, names: Sequence[str], by_arguments: bool, derivatives: str,
                 functions: tuple[str, ...], example: torch_own_backward.Example | None = None):
        self._example = example
        exported = torch_private.quietly(lambda: torch_random.with_state(
            decomposition_tables.opened(export_repairs.with_conversions(given)), operator_decompositions()[1]))
        self._lost, self._unmarked = torch_stops.of_gradients(exported.graph_module), ()
        self._derivatives, self._functions = derivatives, functions
        if derivatives != "as written":
            drawn = exported
            exported, self._unmarked = torch_private.quietly(lambda: torch_stops.marked(drawn))
        self._exported = exported
        with inline_regions.keeping_lines(exported.graph_module):
            self._core = torch_private.quietly(lambda: torch_private.with_unread_regions(
                lambda: exported.run_decompositions(dict(operator_decompositions()[0]))))
        self._name, self._names = name, tuple(names)
        signature = self._core.graph_signature
        kinds = {InputKind.PARAMETER, InputKind.BUFFER}
        self._weights = [spec for spec in signature.input_specs
                         if spec.kind in kinds and (by_arguments or spec.target == torch_random.STATE)]
        self._given = [spec for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
        self._outputs = signature.output_specs

    def function(self) -> TorchFunction:
        torch_graph.check(self._core.graph)
        in_tree, signature, order = self._arguments()
        builder = XlaBuilder(self._name)
        inputs = self._inputs(builder, in_tree, signature, order)
        graph = self._core.graph_module
        results = torch_graph.build(builder, graph.graph, inputs, lambda name: functools.reduce(getattr, name.split("."), graph),
                                    self._held())
        out_tree, leaves = self._results(builder, results)
        whole = leaves[0] if out_tree.kind is Kind.LEAF else builder.add(control.tuple_, leaves)
        weights = _nested({spec.target: self._weight(spec) for spec in self._weights})
        buffers = [spec for spec in self._weights if spec.kind is InputKind.BUFFER]
        places = {name: k for k, name in enumerate(self._parameters())}
        computation = builder.build(whole)
        computation.entry.derivatives = self._own_derivatives(computation)
        return TorchFunction(computation, in_tree, out_tree, signature, [places[name] for name in order],
                             weights, [spec.target for spec in buffers], self._replaced(),
                             [spec.target for spec in buffers if not spec.persistent])

    # ---- derivatives

    def _own_derivatives(self, computation: XlaComputation) -> Derivatives | Lost | None:
        joint = any(spec.kind in _GRADIENTS for spec in self._outputs)
        shape = computation.program_shape
        has_complex = any(s.element_type.is_complex for s in (*shape.parameters, *shape.result.leaves()))
        if self._derivatives == "torch" and not joint and not has_complex:
            back = self._own_backward(computation)
            if isinstance(back, Computation):
                return torch_own_backward.OwnBackward(computation.program.authored, back, (*self._functions, *self._lost))
            return TorchDerivatives(computation.program.authored, self._graph(), self._lost, self._unmarked,
                                    operator_decompositions, self._functions, back)
        if self._derivatives == "as written":
            return AS_WRITTEN
        lost = (*self._functions, *self._unmarked)
        return Lost(lost, "a module that torch exported") if lost else None

    def _own_backward(self, computation: XlaComputation) -> Computation | str:
        """The way back that a torch.autograd.Function says, or why there is none."""
        if self._example is None:
            return ""
        if any(spec.target == torch_random.STATE for spec in self._weights):
            return "the model draws random numbers"
        number = iter(range(len(self._given)))
        args, kwargs = torch_private.pytree.tree_unflatten([*number], self._core.call_spec.in_spec)
        asked = (args, {name: kwargs[name] for name in self._example.kwargs})
        places = {k: place for place, k in enumerate(torch_private.pytree.tree_leaves(asked))}
        own = [k for k, spec in enumerate(self._exported.graph_signature.output_specs) if spec.kind in _OWN]
        return torch_own_backward.way_back(
            self._example, computation.program.authored, {str(spec.target): self._weight(spec) for spec in self._weights},
            self._replaced(), [places[k] for k, spec in enumerate(self._given) if isinstance(spec.arg, TensorArgument)],
            [None if k is None else own.index(k) for k in self._order],
            functools.partial(from_torch, weights="constants", derivatives="xla"))

    def _graph(self) -> Graph:
        """The program as torch exported it, before it was decomposed."""
        module, parameters = self._exported.graph_module, self._parameters()
        nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
        inputs = []
        for node, spec in zip(nodes, self._exported.graph_signature.input_specs, strict=True):
            value, held = node.meta["val"], spec.kind is not InputKind.USER_INPUT
            number = parameters.index(node.name) if node.name in parameters else None
            active = number is not None and spec.target not in self._replaced() and value.is_floating_point()
            tensor = self._weight(spec) if held and number is None else None
            inputs.append(Input(value, number, tensor, active, spec.kind is InputKind.BUFFER))
        signature = self._exported.graph_signature
        ends = {str(spec.target): (True, k) for k, spec in enumerate(signature.input_specs) if spec.target}
        ends |= {str(spec.target): (False, k) for k, spec in enumerate(signature.output_specs)
                 if spec.kind in WRITTEN}
        return Graph(module, inputs, self._order, {k: ends[target] for k, target in self._after.items()})

    # ---- arguments

    def _parameters(self) -> list[str]:
        """The placeholders that are the program's parameters."""
        held = [spec.arg.name for spec in self._weights]
        return held + [spec.arg.name for spec in self._given if isinstance(spec.arg, TensorArgument)]

    def _arguments(self) -> tuple[Structure, Signature, list[str]]:
        """The form of the arguments, how they are called, and the placeholder of each leaf."""
        args, kwargs = torch_private.pytree.tree_unflatten([spec.arg for spec in self._given], self._core.call_spec.in_spec)
        first = 1 if self._weights else 0
        static: list[tuple[int | str, Static]] = [
            (k + first, Static(a.value)) for k, a in enumerate(args) if _is_static(a)]
        static += [(name, Static(a.value)) for name, a in kwargs.items() if _is_static(a)]
        args = [_without_nones(a) for a in args if not _is_static(a)]
        kwargs = {name: _without_nones(a) for name, a in kwargs.items() if not _is_static(a)}
        names = self._names
        if first:
            args.insert(0, _nested({spec.target: spec.arg for spec in self._weights}))
            names = ("weights", *names)
        tree = (tuple(args), kwargs)
        in_tree = Structure.of(tree)
        return in_tree, Signature(names, tuple(static)), [_name(leaf) for leaf in in_tree.flatten(tree)]

    def _inputs(self, builder: XlaBuilder, in_tree: Structure, signature: Signature, order: Sequence[str]) -> dict[str, Any]:
        """A value for each placeholder."""
        nodes = {node.name: node for node in self._core.graph.nodes if node.op == "placeholder"}
        places = dict(zip(order, in_tree.paths(), strict=True))
        inputs: dict[str, Any] = {}
        for number, name in enumerate(self._parameters()):
            written = _written(signature, places[name])
            parameter = builder.parameter(number, torch_graph.shape_of(nodes[name].meta["val"], name), name)
            parameter.instruction.common["metadata"] = {"op_name": written}
            inputs[name] = parameter
        for spec in self._core.graph_signature.input_specs:
            if spec.arg.name in inputs:
                continue
            if spec.kind in (InputKind.USER_INPUT, InputKind.TOKEN):
                inputs[spec.arg.name] = getattr(spec.arg, "value", None)
            elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                inputs[spec.arg.name] = torch_graph.constant(builder, self._weight(spec), str(spec.target))
            else:
                raise UnsupportedError("the program takes an argument that is not a tensor", subject="from_torch",
                                       got=spec.kind.name)
        return inputs

    def _held(self) -> dict[str, torch.Tensor]:
        """Buffers that are not written into and constants, by their placeholders."""
        return {spec.arg.name: self._weight(spec) for spec in self._core.graph_signature.input_specs
                if spec.kind in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR) and spec.target not in self._replaced()}

    def _weight(self, spec: Any) -> torch.Tensor:
        held, constants = self._core.state_dict, self._core.constants
        return held[spec.target] if spec.target in held else constants[spec.target]

    # ---- results

    def _replaced(self) -> list[str]:
        return [str(spec.target) for spec in self._outputs if spec.kind in WRITTEN]

    def _results(self, builder: XlaBuilder, results: Sequence[Any]) -> tuple[Structure, list[XlaOp]]:
        """The form of the result, and its leaves. Numbers are scalars: a float keeps Python's precision."""
        own, after = [], {}
        gradients: dict[str, dict[str, Any]] = {}
        places = [k for k, spec in enumerate(self._exported.graph_signature.output_specs) if spec.kind in _OWN]
        for spec, result in zip(self._outputs, results, strict=True):
            if spec.kind in _OWN:
                if isinstance(result, torch_graph.NUMBERS):
                    result = torch_graph.constant(builder, torch_graph.as_tensor(result), "result")
                own.append(None if _is_none(spec.arg) else _Leaf(result, places[len(own)]))
            elif spec.kind in WRITTEN:
                if spec.kind is OutputKind.PARAMETER_MUTATION:
                    self._refuse_trained(str(spec.target))
                after[str(spec.target)] = _Leaf(result, None, str(spec.target))
            elif spec.kind is OutputKind.TOKEN:
                continue
            elif spec.kind in _GRADIENTS:
                gradients.setdefault(_GRADIENTS[spec.kind], {})[str(spec.target)] = _Leaf(result, None)
            else:
                raise UnsupportedError("the module writes into its arguments", subject="from_torch", got=str(spec.target),
                                       expected="results alone", hint="clone the argument before you write into it")
        tree = _plain(torch_private.pytree.tree_unflatten(own, self._core.call_spec.out_spec))
        parts = [tree, *([{of: _nested(named) for of, named in gradients.items()}] if gradients else []),
                 *([_nested(dict(sorted(after.items(), key=lambda item: item[0].split("."))))] if after else [])]
        tree = tuple(parts) if len(parts) > 1 else tree
        structure = Structure.of_torch(tree)
        leaves = structure.flatten(tree)
        for leaf in leaves:
            if not isinstance(leaf, _Leaf) or not isinstance(leaf.value, XlaOp):
                found = leaf.value if isinstance(leaf, _Leaf) else leaf
                raise UnsupportedError("a result is not a tensor or number", subject="from_torch", got=repr(found)[:80],
                                       expected=_TENSORS, hint="return it beside the program, not from the model")
        self._order = [leaf.number for leaf in leaves]
        self._after = {k: leaf.buffer for k, leaf in enumerate(leaves) if leaf.buffer}
        return structure, [leaf.value for leaf in leaves]


    def _refuse_trained(self, name: str) -> None:
        """Raise UnsupportedError if a parameter is written into that has gradients: autograd takes the new value for the leaf."""
        if self._core.state_dict[name].requires_grad:
            raise UnsupportedError("the module writes into a parameter that requires gradients", subject="from_torch", got=name,
                                   expected="writes into buffers and frozen parameters",
                                   hint="freeze it (requires_grad_(False)), or write into it outside the model")


def _plain(tree: Any) -> Any:
    """A tree of results, in which torch's own tuples (``torch.return_types.topk``) are tuples, and other dicts are dicts."""
    if isinstance(tree, dict):
        kind = OrderedDict if type(tree) is OrderedDict else dict
        return kind((key, _plain(part)) for key, part in tree.items())
    if type(tree) in (list, tuple):
        return type(tree)(map(_plain, tree))
    if is_named_tuple(tree):
        return type(tree)(*map(_plain, tree))
    if dataclasses.is_dataclass(type(tree)):
        return dataclasses.replace(tree, **{f.name: _plain(getattr(tree, f.name)) for f in dataclasses.fields(type(tree))})
    return tuple(map(_plain, tree)) if type(tree).__module__ == "torch.return_types" else tree


_TENSORS = "tensors in tuples, lists and dicts"


_OWN = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
_GRADIENTS = {OutputKind.GRADIENT_TO_PARAMETER: "weights", OutputKind.GRADIENT_TO_USER_INPUT: "inputs"}
"""Results of a graph that torch has joined with its way back, and what they are gradients of."""


class _Leaf:
    """A result as a leaf, whatever it is, and which of the module's own results it is, or the buffer that is replaced by it."""

    def __init__(self, value: Any, number: int | None, buffer: str = ""):
        self.value, self.number, self.buffer = value, number, buffer


def _is_static(argument: Any) -> bool:
    """Whether an argument is a constant of the program. None is a tree without leaves."""
    return isinstance(argument, ConstantArgument) and argument.value is not None


def _without_nones(tree: Any) -> Any:
    return torch_private.pytree.tree_map(lambda leaf: None if _is_none(leaf) else leaf, tree)


def _is_none(argument: Any) -> bool:
    return isinstance(argument, ConstantArgument) and argument.value is None


def _name(leaf: Any) -> str:
    if not isinstance(leaf, TensorArgument):
        kind = type(leaf.value if isinstance(leaf, ConstantArgument) else leaf).__name__
        raise UnsupportedError("an argument holds a value that is not a tensor", subject="from_torch", got=kind,
                               expected=_TENSORS, hint="pass numbers as separate arguments")
    return leaf.name


def _nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """The tree of dicts whose leaves have these names, at whose dots it divides."""
    tree: dict[str, Any] = {}
    for name, leaf in leaves.items():
        *groups, last = name.split(".")
        functools.reduce(lambda inner, group: inner.setdefault(group, {}), groups, tree)[last] = leaf
    return tree


def _written(signature: Signature, place: Path) -> str:
    """A parameter's place as JAX writes it: ``weights['layer1']['0']['bias']``."""
    names, first = signature.traced_names(), place[1]
    argument = names[first] if place[0] == 0 and first < len(names) else first if isinstance(first, str) else f"arg{first}"
    return argument + "".join(f"[{step!r}]" for step in place[2:])
