"""What torch.export makes of modules and functions: as it traces them, or with the values of the example."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import json
import math
import operator
import re
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.fx
from torch.export.graph_signature import InputKind

from ..core.errors import InvalidArgument, UnsupportedError, XlaError, XlaWarning
from ..hlo.checks import LABEL, Assumption
from ..storage import below_autograd, caught_errors, inline_regions, torch_private, value_texts
from ..storage.autograd_graph import autograd_nodes
from ..storage.export_repairs import repaired
from ..storage.function_modes import on_tensors
from ..storage.value_reads import Read, Reads, settled, without_report
from . import torch_asserted_sizes, torch_composites, torch_dependence, torch_functions, torch_verified


def title(given: Any) -> str:
    """What the program is called."""
    name = getattr(given, "__name__", None) or type(given).__name__
    return re.sub(r"\W", "_", str(name), flags=re.ASCII).strip("_") or "program"


def _refuse_forms(given: Any) -> None:
    """Raise UnsupportedError for TorchScript and sparse tensors, which torch.export refuses in words of its own."""
    for path, inner in given.named_modules() if isinstance(given, torch.nn.Module) else (("", given),):
        if isinstance(inner, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
            raise UnsupportedError("TorchScript is not exported", subject="from_torch",
                                   got=f"{path or 'the model'}: {type(inner).__name__}",
                                   expected="a torch.nn.Module or a function in Python",
                                   hint="give the module that was scripted or traced, with the weights of the script: "
                                        "module.load_state_dict(script.state_dict())")
        held = vars(inner) if isinstance(inner, torch.nn.Module) else {}
        for name, value in {**held, **held.get("_parameters", {}), **held.get("_buffers", {})}.items():
            refuse_sparse(f"{path}.{name}".lstrip("."), value)


def refuse_sparse(name: str, value: Any) -> None:
    """Raise UnsupportedError for a sparse tensor, which XLA has not."""
    if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
        raise UnsupportedError("a tensor of the model is sparse", subject="from_torch", got=f"{name}: {value.layout}",
                               expected="dense tensors", hint=f"keep it dense: {name}.to_dense()")


def exported(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any,
             seen: torch_functions.InOthers | None = None) -> tuple[Any, tuple[str, ...]]:
    """The program that torch exports, and the names of the arguments that are given by place."""
    if isinstance(given, torch.export.ExportedProgram):
        if args or kwargs or dynamic_shapes is not None:
            raise InvalidArgument("an exported program takes no examples or dynamic_shapes", subject="from_torch",
                                  got=f"{len(args) + len(kwargs)} arguments, dynamic_shapes={dynamic_shapes}", expected="none")
        torch_functions.check(given)
        return given, ()
    _refuse_forms(given)
    if not callable(given):
        raise InvalidArgument("not a module or a function", subject="from_torch", got=type(given).__name__,
                              expected="a torch.nn.Module, a function of tensors or a torch.export.ExportedProgram")
    module = as_module(given)
    apart, named = _copies(args, kwargs)
    names, seen = _argument_names(module), seen or functions()

    def export() -> Any:
        with seen, without_report(), value_texts.asked(), caught_errors.noted() as caught, repaired(module) as seen.changed:
            found = torch_private.quietly(lambda: torch.export.export(
                module, apart, named, dynamic_shapes=dynamic_shapes, strict=False))
        if caught:  # eager torch does not raise it, and the model took another way
            raise caught[0]
        return found

    def judged(found: Any) -> tuple[Any, tuple[str, ...]]:
        _refuse_kept(module, found)
        if torch_verified.changes_results(seen.changed, module, functools.partial(_copies, args, kwargs)):
            warnings.warn(f"from_torch: the model keeps {', '.join(seen.changed)} for its next call, which has other results. "
                          "Each call of the program has those of the first one: keep it in a buffer", XlaWarning, stacklevel=2)
        return found, names

    seen.ends_at_derivatives = True
    try:
        found = export()
        if not torch_functions.is_lost(found):
            return judged(found)
    except torch_functions.DerivativeFound:
        pass
    except Exception as error:
        if not (seen.has_derivatives or below_autograd.has_lost(error)):
            raise
    seen.ends_at_derivatives = False
    try:
        with below_autograd.tracing(module) as renamed:
            found = export()
        seen.rename(renamed)
    except RuntimeError as error:
        raise torch_functions.lost() if below_autograd.has_lost(error) else error from None
    torch_functions.check(found)
    return judged(found)


def _refuse_kept(module: torch.nn.Module, exported: Any) -> None:
    """Raise UnsupportedError for constants that an earlier call computed from weights: other weights would not change them."""
    weights = {id(parameter) for parameter in module.parameters()}
    for name, constant in exported.constants.items():
        if isinstance(constant, torch.Tensor) and constant.requires_grad and not weights.isdisjoint(_leaves(constant)):
            raise UnsupportedError("the model keeps a tensor that an earlier call computed from its weights",
                                   subject="from_torch", got=f"{name}: {constant.dtype} of {tuple(constant.shape)}",
                                   expected="a model as it was made",
                                   hint="convert the model before its first call, or clear what it keeps")


def _leaves(tensor: torch.Tensor) -> set[int]:
    """The tensors that one was computed from, by `id`."""
    # A node that adds up a leaf's gradient has the leaf.
    return {id(tensor), *(id(node.variable) for node in autograd_nodes([tensor]) if hasattr(node, "variable"))}


def check_sizes(exported: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise UnsupportedError if the example does not have a size that depends on values and that torch assumed."""
    with torch_verified.own_random_numbers(args, kwargs):
        torch_verified.check_sizes(exported, functools.partial(_copies, args, kwargs))


def check_results(exported: Any, given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise UnsupportedError if a program that reads numbers has other results than the model on the example, if both run:
    Python sees that a number which is being traced is none of its own, by its type for one."""
    with torch_verified.own_random_numbers(args, kwargs):
        torch_verified.verify(exported, as_module(given), functools.partial(_copies, args, kwargs), must_run=False)


def _copies(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return torch_private.pytree.tree_map_only(torch.Tensor, _apart, (tuple(args), dict(kwargs)))


def _apart(example: torch.Tensor) -> torch.Tensor:
    """An example in memory of its own: torch.export takes arguments that are one tensor, or one of the module's, for one."""
    return example.detach().clone().requires_grad_(example.requires_grad)


def as_module(function: Callable[..., Any]) -> torch.nn.Module:
    """A module, or one whose call is a function."""
    if isinstance(function, torch.nn.Module):
        return function
    module = torch.nn.Module()
    try:
        inspect.signature(function)
    except ValueError:  # a function that is built in
        def forward(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        module.forward = forward
    else:
        module.forward = _called_forward(function)
    return module


def _called_forward(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function by the name by which torch.export knows frames of the user's, whose lines it then notes."""
    if not isinstance(function, types.FunctionType):
        return function
    code = function.__code__.replace(co_name="forward")
    found = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    found.__kwdefaults__, found.__annotations__ = function.__kwdefaults__, function.__annotations__
    found.__dict__.update(function.__dict__)
    return found


def _argument_names(module: torch.nn.Module) -> tuple[str, ...]:
    """The names of the arguments that may be given by place, as far as Python knows."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))


def takes_arguments(given: Any) -> bool:
    """Whether a module or function may be given arguments, as far as Python knows."""
    if isinstance(given, (torch.export.ExportedProgram, torch.jit.ScriptModule, torch.jit.ScriptFunction)) or not callable(given):
        return False
    try:
        return bool(inspect.signature(given.forward if isinstance(given, torch.nn.Module) else given).parameters)
    except (TypeError, ValueError):
        return True


def refused(error: Exception, has_dynamic_sizes: bool = False) -> Exception:
    """What `from_torch` raises for an error of torch.export."""
    if (known := _by_words(error)) is not None:
        return known
    if not isinstance(error, torch_private.needs_data()):
        return error
    if has_dynamic_sizes:
        return UnsupportedError("Python asks for a value, which a program for many sizes cannot assume", subject="from_torch",
                                got=_asked(error), where=torch_asserted_sizes.line_of_error(error),
                                hint="convert without dynamic_shapes: the program then checks the values that Python asked for")
    return UnsupportedError("torch.export needs a static value for something that depends on data", subject="from_torch",
                            got=_asked(error), expected="arrays of known sizes, and no `if` about values",
                            where=torch_asserted_sizes.line_of_error(error),
                            hint="torch.where or torch.cond for an `if`; tensor.item() for int(tensor); torch._check(n <= 8) "
                                 "says what is so")


_BY_WORDS = (
    (r"Found <class '([\w.]+)'> in output", "a result is not a tensor or number", "tensors in tuples, lists and dicts",
     "return it beside the program, not from the model"),
    (r"Creating a new Tensor subclass (\w+)", "the model makes a tensor of a subclass", "plain tensors",
     "leave out `as_subclass` and compute with the plain tensor"),
    (r"__torch__\.torch\.classes\.([\w.]+)", "the model holds an object of a class in C++", "modules of tensors",
     "convert the model as it was before torch packed or quantized its weights"))
"""Words of torch's errors, of which a group is what was got, and what is raised for them: rule, expected and hint."""


def _by_words(error: Exception) -> UnsupportedError | None:
    for words, what, expected, hint in _BY_WORDS:
        if found := re.search(words, str(error)):
            return UnsupportedError(what, subject="from_torch", got=found[1], expected=expected, hint=hint,
                                    where=torch_asserted_sizes.line_of_error(error))
    return None


_OWN_FRAME = "__torch_function__"
"""The frame of our own that torch names in the place of the user's line."""


def _asked(error: Exception) -> str:
    """What torch asks for, and of which operator or line."""
    lines = str(error).splitlines()
    cause = next((line for line in lines if line.startswith("Caused by") and _OWN_FRAME not in line), "")
    return f"{lines[0]} {cause}".strip() if lines else ""


@contextlib.contextmanager
def instead_of(error: Exception) -> Iterator[None]:
    """A block that does in another way what torch.export refused. It raises why that fails, too."""
    try:
        yield
    except XlaError as second:
        raise second from error
    except Exception as second:
        if (known := _by_words(second)) is not None:
            raise known from error
        if torch_asserted_sizes.is_of_the_user(second):  # the model itself raises it
            raise second from error
        if (known := refused(second)) is not second:
            raise known from error
        got = f"{type(second).__name__}: {str(second).strip().partition(_LINE)[0]}"
        raise UnsupportedError("torch.export fails as it traces the model with the values of the example", subject="from_torch",
                               got=got, where=torch_asserted_sizes.line_of_error(second), hint=_DECIDED) from error


_LINE = "\n"
_DECIDED = "call the model with the example; if it runs, use torch.where or torch.cond here"


# ------------------------------------------------------------------------------------------- values that Python asks for


def exported_by_values(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any],
                       fixes_sizes: bool, fixes_numbers: bool, trusts: bool) -> tuple[Any, tuple[str, ...]]:
    """As `exported`, where Python may ask for values: it gets those of the example. Each decision that depends on one is asserted
    with a label (`hlo.checks`), unless `trusts`. With `fixes_sizes`, sizes and integers that depend on values are decisions, too,
    and with `fixes_numbers` the floats, for functions of other libraries that take no symbols."""
    reads = Reads()
    module, examples = as_module(given), functools.partial(_copies, args, kwargs)
    with torch_verified.own_random_numbers(args, kwargs):
        with reads.answering():
            found, names = exported(module, args, kwargs, None, _ByValues(reads, fixes_sizes, fixes_numbers))
        left = torch_private.quietly(lambda: settled(found, reads, _label))
        torch_verified.verify(found, module, examples)
    if trusts and (reads.found or reads.texts):
        _drop(found.graph_module, reads)
    elif left:
        raise UnsupportedError("torch.export keeps no assertion of a value that Python asked for", subject="from_torch",
                               got=left[0].expression, where=f"{left[0].file}:{left[0].line}",
                               hint="use torch.where or torch.cond")
    count = sum(node.op == "call_function" for node in found.graph.nodes)
    if count > _MANY:
        warnings.warn(f"from_torch: loops of Python are unrolled as in the example: the program has {count} operators",
                      XlaWarning, stacklevel=4)
    return found, names


_MANY = 1000


def _drop(module: torch.fx.GraphModule, reads: Reads) -> None:
    """Leave out what asserts decisions, and warn."""
    for one in inline_regions.with_regions(module):
        for node in list(one.graph.nodes):
            if any(isinstance(given, str) and given.startswith(LABEL) for given in node.args):
                one.graph.erase_node(node)
    inline_regions.without_dead_code(module)
    named = dict.fromkeys(f"{r.expression} is {r.value} ({r.file}:{r.line})" for r in (*reads.found.values(), *reads.texts))
    warnings.warn(f"from_torch: the program trusts, and does not check, that {'; '.join(named)}", XlaWarning, stacklevel=5)


def labels(exported: Any, by_arguments: bool) -> set[Assumption]:
    """The assumptions that an exported program asserts of its arguments, among which weights may be. Those about constants are
    decided for good."""
    kinds = {InputKind.USER_INPUT, *((InputKind.PARAMETER, InputKind.BUFFER) if by_arguments else ())}
    specs, tensors = exported.graph_signature.input_specs, {**exported.constants, **exported.state_dict}
    given = {spec.arg.name for spec in specs if spec.kind in kinds}
    held = {spec.arg.name: tensors[spec.target] for spec in specs if spec.target in tensors}
    words = [word for node in torch_dependence.dependent(exported.graph_module, given, held) for word in node.args]
    return {a for word in words if isinstance(word, str) and (a := Assumption.of_label(word)) is not None}


def with_weights(given: Any, weights: Mapping[str, Any]) -> Any:
    """A copy of a module with these weights, given in dicts by name. Those of a function, or that are not given, stay."""
    if not isinstance(given, torch.nn.Module):
        return given
    made = copy.deepcopy(given)
    with torch.no_grad():
        for name, held in (*made.named_parameters(remove_duplicate=False), *made.named_buffers(remove_duplicate=False)):
            found = functools.reduce(lambda tree, part: (tree or {}).get(part), name.split("."), weights)
            if found is not None:
                held.copy_(torch.as_tensor(found))
    return made


def _label(read: Read) -> str:
    return LABEL + json.dumps({key: value for key, value in dataclasses.asdict(read).items() if key != "condition"})


def functions() -> torch_functions.InOthers:
    """Functions in others, while torch.export traces a model without values."""
    return torch_functions.InOthers({**torch_composites.FUNCTIONS, **_texts()}, torch_composites.WITHIN)


def _texts(note: Callable[[torch.Tensor, torch.Tensor, str], None] | None = None) -> dict[Any, Callable[..., Any]]:
    """The functions that make text of a tensor."""
    return {function: functools.partial(value_texts.of_tensor, function, note=note)
            for function in (torch.Tensor.__repr__, torch.Tensor.__format__)}


def _messages() -> dict[Any, Callable[..., Any]]:
    """The functions that read values, which a message may show."""
    return {function: value_texts.or_message(function, _ASKING.get(function, function))
            for function in (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__float__, torch.Tensor.__int__)}


class _ByValues(torch_functions.InOthers):
    """Functions that ask for values in a way that torch.export cannot follow, by others that ask for a truth or an integer."""

    def __init__(self, reads: Reads, fixes_sizes: bool, fixes_numbers: bool):
        super().__init__({**torch_composites.FUNCTIONS, **_ASKING, **_messages(),
                          **_texts(functools.partial(reads.note_text, _label))}, torch_composites.WITHIN)
        self._reads, self._fixes_sizes, self._fixes_numbers = reads, fixes_sizes, fixes_numbers

    def __enter__(self) -> Any:
        self._reads.texts.clear()
        self._reads.found.clear()  # of an export that is done again
        return super().__enter__()

    def rename(self, symbols: Mapping[Any, Any]) -> None:
        self._reads.rename(symbols)

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        found = super().__torch_function__(func, types, args, kwargs)
        if self._fixes_numbers and isinstance(found, torch.SymFloat):
            return float(found)
        if not self._fixes_sizes:
            return found
        found = on_tensors(self._fixed, found)
        return int(found) if isinstance(found, torch.SymInt) else found

    def _fixed(self, tensor: torch.Tensor) -> torch.Tensor:
        sizes = []
        for self._reads.dimension, size in enumerate(tensor.shape):
            sizes.append(int(size))
        self._reads.dimension, unknown = None, [size for size in tensor.shape if isinstance(size, torch.SymInt)]
        # torch never takes the size of a result for 0 or 1, unless an operator says it.
        return tensor.reshape(sizes) if unknown and min(sizes) < 2 else tensor


def _equal(input: torch.Tensor, other: torch.Tensor) -> bool:
    return input.shape == other.shape and bool((input == other).all())


def _allclose(input: torch.Tensor, other: torch.Tensor, *options: Any, **named: Any) -> bool:
    return bool(torch.isclose(input, other, *options, **named).all())


def _truth(tensor: torch.Tensor) -> bool:
    """A truth is one decision; torch would ask which number it is that is not 0."""
    return torch.Tensor.__bool__(tensor if tensor.dtype is torch.bool else tensor != 0)


def _integer(tensor: torch.Tensor) -> int:
    """As few decisions as the integer needs: 2.5 and 2.75 are the same one."""
    return int(tensor.to(torch.int64).item())


def _unbind(input: torch.Tensor, dim: int = 0) -> Sequence[torch.Tensor]:
    """As torch's, which takes a size that values say for 2 or more."""
    return input.unbind(dim) if not input.ndim or int(input.shape[dim]) else ()


def _list(tensor: torch.Tensor) -> Any:
    if tensor.ndim:
        return [_list(part) for part in _unbind(tensor)]
    value = tensor.item()
    return int(value) if isinstance(value, torch.SymInt) else bool(value) if isinstance(value, torch.SymBool) else value


def _array(tensor: torch.Tensor, dtype: Any = None, **named: Any) -> np.ndarray[Any, Any]:
    """A NumPy array of the example's values, each of which is a decision."""
    sizes = [int(size) for size in tensor.shape]
    found = np.array([] if 0 in sizes else _list(tensor), str(tensor.dtype).removeprefix("torch.")).reshape(sizes)
    return found if dtype is None else found.astype(dtype)


def _arange(start: Any = None, end: Any = None, step: Any = 1, *, dtype: torch.dtype | None = None, **named: Any) -> torch.Tensor:
    """How many there are is a decision where a number that was read from a tensor says it: torch takes it for no size."""
    given = (0, end if start is None else start, step) if start is None or end is None else (start, end, step)
    ends: list[Any] = [n.item() if isinstance(n, torch.Tensor) and n.is_floating_point() else n for n in given]
    first, last, step = ends
    if "out" in named or not any(isinstance(n, torch.SymFloat) for n in ends):
        return torch.arange(first, last, step, dtype=dtype, **named)
    count, kind = operator.index(math.ceil((last - first) / step)), dtype or torch.get_default_dtype()
    if not kind.is_floating_point:
        first, step = int(first), int(step)
    return (torch.arange(count, dtype=torch.float64 if kind.is_floating_point else kind, **named) * step + first).to(kind)


_ASKING: dict[Any, Callable[..., Any]] = {
    torch.equal: _equal, torch.Tensor.equal: _equal, torch.allclose: _allclose, torch.Tensor.allclose: _allclose,
    torch.Tensor.__bool__: _truth, torch.Tensor.__int__: _integer, torch.arange: _arange, torch.unbind: _unbind,
    torch.Tensor.unbind: _unbind,
    torch.Tensor.tolist: _list, torch.Tensor.numpy: _array, torch.Tensor.__array__: _array}
