"""Use XLA programs as torch modules, which any torch optimizer trains."""

from __future__ import annotations

import copy
import functools
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .api import mirrored_weights, weights
from .api.jax_function import from_jax
from .api.module_arguments import (
    FlatArguments,
    ModuleArguments,
    TreeArguments,
    arguments_of,
    missing,
    named,
    places_of,
    untrained_numbers,
)
from .api.on_mesh import placing
from .api.to_jax import as_function, tied, to_jax, with_weights
from .api.torch_exporting import takes_arguments
from .api.torch_function import from_torch
from .autodiff.options import GradientOptions
from .core.errors import InvalidArgument, NothingObserved, UnsupportedError
from .jax_interop import flax
from .jax_interop import jax as jax_arrays
from .jax_interop.jax_calls import own_array
from .lowering import numerics
from .pytree.structure import dotted, flattened
from .runtime import dynamo
from .runtime.computation import XlaComputation
from .runtime.graphs_of_fx import symbolic_call
from .runtime.steps import require_computation
from .storage.applied_functions import keep_hooks
from .storage.torch_private import (
    autocast_is_on,
    contents,
    is_traced_symbolically,
    picklable,
    pytree,
    transforms_are_active,
    unpickled,
)

Weights = Mapping[Any, Any] | Sequence[Any] | str | os.PathLike[str]
"""Values by argument number, for the first arguments, by name, in a tree, or in a file of them."""


class XlaModule(torch.nn.Module):
    """Wrap a computation as a torch module that holds some of its arguments.

    `parameters` gives the initial values (tensors, NumPy or JAX arrays): by argument number, as a list for the first arguments,
    by name (``params.Conv_0.bias``), as a pytree, or as the path of a file (formats: `weights.py`). Floating and complex arrays
    become parameters, all others buffers. `buffers` lists numbers, names or name prefixes (``batch_stats``) of arrays to keep
    without training. The remaining arguments are passed to the call, in order or by name::

        model = XlaModule(load("loss.hlo"), parameters=weights)      # loss(weights..., tokens, targets)
        optimizer = torch.optim.Adam(model.parameters())
        model(tokens, targets).backward()

    For a `TreeFunction` (see `XlaModule.from_jax`), arguments are pytrees: `parameters` as a pytree is the first argument, as a
    list the first ones. Names in `state_dict` are dotted paths in these pytrees. For other programs they are the paths that JAX
    recorded or the parameter names, with anything but letters, digits and ``_`` replaced. One `torch.nn.Parameter` given twice
    is one shared parameter, and one that doesn't require grad is frozen. `gradient_options` control how loops are
    differentiated.

    Unless `narrows`, 64-bit arguments for 32-bit parameters are refused; otherwise integers must fit. Arguments whose leading
    size differs from the program's, as in the last batch of a DataLoader, run a program for that size (`xla_torch.rebatch`), if
    it treats examples independently; `strict` turns this off.

    With a `mesh`, a torch DeviceMesh of all processes, each process holds and computes its part (`xla_torch.on_mesh`).
    `shardings` are the `in_shardings` there, for example ``"fully_sharded"``. Parameters, buffers and results are DTensors;
    arguments are whole tensors or DTensors. All processes create the module together, from the same values.

    Raises InvalidArgument, with the name, for an argument that the program lacks and for a value of another shape or dtype.

    >>> product = xla_torch.parse_hlo('''ENTRY e {
    ...   w = f32[2] parameter(0)
    ...   x = f32[2] parameter(1)
    ...   ROOT y = f32[2] multiply(w, x)
    ... }''')
    >>> model = xla_torch.nn.XlaModule(product, parameters=[torch.tensor([1.0, 2.0])])
    >>> model(torch.tensor([3.0, 4.0])).sum().backward()
    >>> [(name, weight.grad) for name, weight in model.named_parameters()]
    [('w', tensor([3., 4.]))]
    >>> model, model.extra_repr(), model.to_numpy()          # `to_jax` gives arrays of JAX; a call is `forward`
    (XlaModule((x: f32[2]) -> f32[2]), '(x: f32[2]) -> f32[2]', {'w': array([1., 2.], dtype=float32)})
    """

    def __init__(self, computation: XlaComputation, parameters: Weights = (), buffers: Sequence[int | str] = (),
                 gradient_options: GradientOptions | None = None, narrows: bool = True, strict: bool = False,
                 mesh: Any = None, shardings: Any = None):
        super().__init__()
        self.strict, self.narrows = strict, narrows
        require_computation(computation, "XlaModule")
        computation = computation if gradient_options is None else computation.with_gradient_options(gradient_options)
        binding = arguments_of(computation, narrows)
        self._under_autocast: dict[torch.dtype, FlatArguments | TreeArguments] = {}
        self._replaced: tuple[str, ...] | None = None
        given = weights.read(parameters) if isinstance(parameters, (str, os.PathLike)) else parameters
        held = binding.held(given)
        self._place = placing(mesh, shardings, binding.arguments_with(held))
        self._binding = binding if mesh is None else arguments_of(self._place(computation), narrows)
        self.computation = self._binding.computation
        places = named(self, {number: binding.path(number) for number in held}, binding.strips)
        self._names: list[str | None] = [places.get(k) for k in range(len(binding.shapes))]
        untrained = untrained_numbers(buffers, places, binding)
        tied: dict[int, torch.nn.Parameter] = {}
        for number, value in sorted(held.items()):
            tensor = binding.tensor(number, value, places[number])
            if torch.get_default_device().type == "meta":  # as of modules that make their weights themselves
                tensor = tensor.to("meta")
            self._keep(places[number], self.computation.placed(number, tensor), number not in untrained, value, tied)
        self._runs_in = self._dtype()
        self._as_written, self._whole = (computation, self._runs_in), computation
        self.register_load_state_dict_post_hook(_loaded)

    @classmethod
    def from_jax(cls, function: Callable[..., Any], parameters: Any, *example_args: Any, buffers: Sequence[int | str] = (),
                 gradient_options: GradientOptions | None = None, narrows: bool = True, **example_kwargs: Any) -> XlaModule:
        """Wrap a JAX function whose first argument is the pytree `parameters`::

            model = XlaModule.from_jax(network.apply, variables, images, buffers=["batch_stats"])

        `example_args` and `example_kwargs` are as in `xla_torch.from_jax`, other arguments as in the class. Variables of
        flax.nnx that are not Params become buffers.

        >>> import jax
        >>> scale = np.ones(2, np.float32)
        >>> model = xla_torch.nn.XlaModule.from_jax(lambda p, x: p["scale"] * x, {"scale": scale}, scale)
        >>> model.forward(torch.tensor([3.0, 4.0])), model.to_jax()
        (tensor([3., 4.], grad_fn=<...>), {'scale': Array([1., 1.], dtype=float32)})
        """
        traced = from_jax(function, parameters, *example_args, **example_kwargs)
        return cls(traced, [parameters], buffers, gradient_options, narrows)

    @classmethod
    def from_nnx(cls, model: Any, *example_args: Any, buffers: Sequence[int | str] = (),
                 gradient_options: GradientOptions | None = None, narrows: bool = True, **example_kwargs: Any) -> XlaModule:
        """Wrap a flax.nnx model: Params become parameters, all other variables buffers.

        State that a call changes in the model, such as running means and random counters, changes in the buffers.
        `example_args` and `example_kwargs` are those of ``model(...)``; set the model to training or evaluation first.
        ``nnx.update(model, module.to_jax())`` copies the state back.

        >>> import jax
        >>> from flax import nnx
        >>> module = xla_torch.nn.XlaModule.from_nnx(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), np.ones((4, 2), np.float32))
        >>> sorted(module.state_dict()), module(torch.ones(4, 2)).shape
        (['bias', 'kernel'], torch.Size([4, 3]))
        """
        function, state, replaced = flax.as_function(model)
        module = cls.from_jax(function, state, *example_args, buffers=buffers, gradient_options=gradient_options,
                              narrows=narrows, **example_kwargs)
        module._replaced = tuple(str(module._names[k]) for k in replaced)
        return module

    @classmethod
    def from_torch(cls, module: Any, *example_args: Any, gradient_options: GradientOptions | None = None,
                   **example_kwargs: Any) -> XlaModule:
        """Convert a PyTorch module (`xla_torch.from_torch`) and hold copies of its weights.

        The result is called like the original. Names and order of parameters and buffers are the same, so `state_dict`s of both
        modules and of their optimizers are interchangeable. Frozen, tied and non-persistent weights and evaluation mode are
        preserved, and so are hooks of parameters. Buffers that a call updates are updated here. Without example arguments, the
        first call converts the module, with its arguments as examples and in the mode (training or evaluation) that it then has.

        >>> module = xla_torch.nn.XlaModule.from_torch(torch.nn.Linear(2, 3), torch.ones(4, 2))
        >>> sorted(module.state_dict()), module(torch.ones(4, 2)).shape
        (['bias', 'weight'], torch.Size([4, 3]))
        """
        if not example_args and not example_kwargs.keys() - _OPTIONS and takes_arguments(module):
            return _Unconverted(cls, module, gradient_options, example_kwargs)
        return cls._converted(module, example_args, example_kwargs, gradient_options)

    @classmethod
    def _converted(cls, module: Any, args: Sequence[Any], kwargs: Mapping[str, Any],
                   gradient_options: GradientOptions | None) -> XlaModule:
        exported = from_torch(module, *args, **kwargs)
        held = [exported.weights] if exported.weights else []
        made = cls(exported, held, exported.buffers, gradient_options, narrows=False)
        made._replaced = tuple(sorted(exported.replaced, key=lambda name: name.split("."))) or None
        for name in exported.unsaved:
            group, last = _parted(name)
            made.get_submodule(group).register_buffer(last, made._at(name), persistent=False)
        if isinstance(module, torch.nn.Module):
            made._resemble(module)
            copies = dict((*made.named_parameters(remove_duplicate=False), *made.named_buffers(remove_duplicate=False)))
            keep_hooks((*module.named_parameters(), *module.named_buffers()), copies)
        return made

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """Run the program with `arguments` for the parameters that the module doesn't hold."""
        if not torch.compiler.is_dynamo_compiling() and is_traced_symbolically() and (
                call := symbolic_call(self, arguments, named)) is not None:
            return call
        held = self._bound_values()
        binding = self._binding
        arguments, named = binding.in_order(held, arguments, named)
        if (dtype := self._autocast_dtype(held, arguments)) is not None:
            binding = self._cast_products(dtype)
            arguments = tuple(a.float() if isinstance(a, torch.Tensor) and a.dtype is dtype else a for a in arguments)
        if not binding.takes(held, arguments):
            raise InvalidArgument("wrong number of arguments", subject="XlaModule", got=len(arguments),
                                  expected=f"{missing(held)}: {self.extra_repr()}")
        if torch.compiler.is_dynamo_compiling():
            return self._after(dynamo.called(binding, (held, arguments), named))
        try:
            return self._after(binding(held, arguments, **named))
        except InvalidArgument as error:
            other = None if self.strict else self._for_batch(binding, held, arguments, named, error)
            if other is None:
                raise
        return self._after(other(held, arguments, **named))

    def _for_batch(self, binding: ModuleArguments, held: Sequence[Any], arguments: Sequence[Any], named: Mapping[str, Any],
                   error: InvalidArgument) -> ModuleArguments | None:
        """The program for a batch of another size, where the arguments have one and the program allows it."""
        try:
            return binding.for_batch(held, arguments, named)
        except UnsupportedError as refusal:
            error.hint = f"{refusal.hint}. xla_torch.rebatch found that {refusal.what}"
            return None

    # ---- precision

    def _dtype(self) -> torch.dtype:
        """The precision of the module: that of its first floating parameter."""
        return next((p.dtype for p in (*self.parameters(), *self.buffers()) if p.is_floating_point()), torch.float32)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> XlaModule:
        """As of any module; where the precision of what it holds changes, so does that of its program (`XlaComputation.to`)."""
        self._run_in(fn(torch.empty(0, dtype=self._dtype())).dtype)
        return super()._apply(fn, recurse)

    def _run_in(self, dtype: torch.dtype) -> None:
        """Let the program be in a precision, that of what the module holds from now on."""
        if dtype is not self._runs_in:
            computation, own = self._as_written
            self._whole = computation if dtype is own else computation.to(dtype)
            binding = arguments_of(self._place(self._whole), self.narrows)
            self._binding, self.computation, self._runs_in = binding, binding.computation, dtype
            self._under_autocast = {}

    def _autocast_dtype(self, held: Sequence[Any], arguments: Sequence[Any]) -> torch.dtype | None:
        """The precision of products under torch's autocast; None where it is off, or the module is of another than float32."""
        device = next((t.device.type for t in (*held, *arguments) if isinstance(t, torch.Tensor)), "cpu")
        if not autocast_is_on(device) or self._dtype() is not torch.float32:
            return None
        dtype = torch.get_autocast_dtype(device)
        return dtype if dtype in (torch.float16, torch.bfloat16) else None

    def _cast_products(self, dtype: torch.dtype) -> FlatArguments | TreeArguments:
        """The program as autocast runs it, made once."""
        if dtype not in self._under_autocast:
            if torch.compiler.is_dynamo_compiling():
                raise UnsupportedError("the first call of a module under autocast builds its program, which a graph cannot "
                                       "contain",
                                       subject="XlaModule", hint="call the module once under autocast before torch.compile does")
            computation = self._place(self._whole.under_autocast(dtype))
            self._under_autocast[dtype] = arguments_of(computation, self.narrows)
        return self._under_autocast[dtype]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_buffers": picklable(self.__dict__["_buffers"])}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_buffers": unpickled(state["_buffers"])})

    def _after(self, result: Any) -> Any:
        """The result proper, of one that also has what the call replaces. Inside a transform of torch.func nothing is kept,
        because there it would be one example's or a tangent's."""
        if self._replaced is None:
            return result
        *own, state = result
        result = own[0] if len(own) == 1 else tuple(own)
        if transforms_are_active():
            return result
        # torch.compile looks through torch's own trees; where a class of others' holds the arrays, what it finds does not fit.
        after = pytree.tree_leaves(state) if torch.compiler.is_dynamo_compiling() else flattened(state)[0]
        for name, tensor in zip(self._replaced, after, strict=True):
            group, last = _parted(name)
            # In a new tensor: the way back may still read the old one.
            new, of = mirrored_weights.usable_in_autograd(tensor.detach()), self.get_submodule(group)
            setattr(of, last, torch.nn.Parameter(new, requires_grad=False) if last in of._parameters else new)
        return result

    def _resemble(self, module: torch.nn.Module) -> None:
        """Let the groups be as the modules that they stand for: one where these are one, in training or not, in their order."""
        first: dict[int, torch.nn.Module] = {id(module): self}
        groups: dict[str, torch.nn.Module] = {"": self}
        for path, own in module.named_modules(remove_duplicate=False):
            outer, last = _parted(path)
            around = contents(groups[outer])[2] if path and outer in groups else {}
            if path and last not in around:
                continue  # it holds nothing
            if path:
                groups[path] = around[last] = first.setdefault(id(own), around[last])
            group = groups[path]
            group.training = own.training
            for kept, names in zip(contents(group), contents(own), strict=True):
                kept.update({name: kept.pop(name) for name in names if name in kept})
        buffers: dict[int, str] = {}
        for name, tensor in module.named_buffers(remove_duplicate=False):
            one, (outer, last) = buffers.setdefault(id(tensor), name), _parted(name)
            if one != name:
                setattr(self._at(outer), last, self._at(one))

    def extra_repr(self) -> str:
        """Return the arguments of `forward` and the result, as in ``(tokens: s32[8,32]) -> f32[]``."""
        shape = self.computation.program_shape
        names = [dotted(path) for path in places_of(self.computation)]
        passed = (f"{name}: {part}" for name, part, held in zip(names, shape.parameters, self._names, strict=True)
                  if held is None)
        return f"({', '.join(passed)}) -> {shape.result}"

    def to_numpy(self) -> Any:
        """Return the weights as the pytree they were given as, with NumPy arrays.

        Narrow types use ml_dtypes. A `TreeFunction` with several such arguments returns a tuple; other programs return dicts
        and lists by name.
        """
        return self._tree(lambda array, _: array)

    def to_jax(self) -> Any:
        """Return `to_numpy` with JAX arrays and typed PRNG keys, if jax is installed."""
        return self._tree(jax_arrays.as_jax_array)

    def _tree(self, make: Callable[[np.ndarray, str | None], Any]) -> Any:
        shapes = self.computation.program_shape.parameters
        named = [(k, name, shapes[k].element_type) for k, name in enumerate(self._names) if name is not None]
        arrays = {k: numerics.numpy_from_storage(numerics.to_storage(self._at(name).detach(), kind), kind)
                  for k, name, kind in named}
        return self._binding.trees(arrays, {k: name for k, name, _ in named}, make)

    def _bound_values(self) -> list[Any]:
        """For each of the program's parameters what the module holds of it, or None."""
        parts = [None if name is None else name.rpartition(".") for name in self._names]
        groups = {group: self._at(group) for group in {part[0] for part in parts if part is not None}}
        return [None if part is None else getattr(groups[part[0]], part[2]) for part in parts]

    def _at(self, name: str) -> Any:
        return functools.reduce(getattr, name.split("."), self) if name else self

    def _keep(self, name: str, tensor: torch.Tensor, trained: bool, given: Any, tied: dict[int, torch.nn.Parameter]) -> None:
        """Keep a tensor under a name with dots, in modules that are named as its parts."""
        *groups, last = name.split(".")
        place: torch.nn.Module = self
        for group in groups:
            if group not in dict(place.named_children()):
                place.add_module(group, Group())
            place = place.get_submodule(group)
        if trained and isinstance(given, torch.nn.Parameter):
            place.register_parameter(last, tied.setdefault(id(given), torch.nn.Parameter(tensor, given.requires_grad)))
        elif trained and (tensor.is_floating_point() or tensor.is_complex()):
            place.register_parameter(last, torch.nn.Parameter(tensor))
        else:
            place.register_buffer(last, tensor)


_OPTIONS = frozenset({"weights", "derivatives", "dynamic_shapes", "assumptions"})
"""What `from_torch` takes besides example arguments."""


class _Unconverted(XlaModule):
    """An XlaModule that `XlaModule.from_torch` made without example arguments; its first call makes it an XlaModule.

    It holds a copy of the module's weights, which optimizers keep, and pickles if the module does.
    """

    def __init__(self, becomes: type[XlaModule], given: Any, gradient_options: GradientOptions | None, options: dict[str, Any]):
        torch.nn.Module.__init__(self)
        given = copy.deepcopy(given)
        self.__dict__["_given"] = given, (becomes, gradient_options, options)
        self.register_load_state_dict_post_hook(_loaded)
        if isinstance(given, torch.nn.Module):
            mirrored_weights.mirror(given, self, Group)

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """Convert the module, and run the program."""
        if torch.compiler.is_compiling() or is_traced_symbolically() or transforms_are_active():
            raise UnsupportedError("the first call converts the module, which neither a graph nor a transform can contain",
                                   subject="XlaModule", hint="call it once before, or give from_torch example arguments")
        given, (becomes, gradient_options, options) = self.__dict__["_given"]
        if isinstance(given, torch.nn.Module):
            mirrored_weights.restore(given, self)
        with mirrored_weights.converting():
            made = becomes._converted(given, arguments, {**named, **options}, gradient_options)
        mirrored_weights.add(self, made)
        self.__class__ = becomes
        self.__dict__ = {**made.__dict__, **self.__dict__}
        del self.__dict__["_given"]
        return self.forward(*arguments, **named)

    def train(self, mode: bool = True) -> _Unconverted:
        """Choose the mode in which the first call converts the module."""
        given = self.__dict__["_given"][0]
        if isinstance(given, torch.nn.Module):
            given.train(mode)
        return super().train(mode)

    def extra_repr(self) -> str:
        """Say that there is no program yet."""
        return "converts on its first call"

    def _run_in(self, dtype: torch.dtype) -> None:
        """There is no program yet, whose precision could change."""

    def __getattr__(self, name: str) -> Any:
        if name in ("computation", "_binding", "_names"):
            raise AttributeError("an XlaModule without example arguments has no program before its first call: call it once, or "
                                 "give from_torch example arguments")
        return super().__getattr__(name)


def _loaded(module: XlaModule, _: Any) -> None:
    """What is assigned, and not copied, may be of another precision."""
    module._run_in(module._dtype())


def _parted(name: str) -> tuple[str, str]:
    """The group that a name with dots stands in, and its name there."""
    group, _, last = name.rpartition(".")
    return group, last


def _unheard(name: str) -> Callable[..., Any]:
    """The method of that name, with a warning."""
    register = getattr(torch.nn.Module, name)

    @functools.wraps(register)
    def warned(self: Group, *args: Any, **kwargs: Any) -> Any:
        warnings.warn(NothingObserved(
            "the hook is never called: the program reads the weights of this group without calling it",
            subject=name, hint="xla_torch.debug.trace(computation, ..., names=...) sees values inside a program, and so does "
            "xla_torch.debug.observed; hooks on the XlaModule, and on tensors, are called"), stacklevel=2)
        return register(self, *args, **kwargs)

    return warned


class Group(torch.nn.Module):
    """Group weights of an XlaModule by a common name prefix.

    A Group is never called, so registering a call hook warns (NothingObserved).

    >>> network = torch.nn.Sequential(torch.nn.Linear(2, 3))
    >>> group = xla_torch.nn.XlaModule.from_torch(network, torch.ones(4, 2)).get_submodule("0")
    >>> group, group.extra_repr()
    (Group(weight: float32[3, 2], bias: float32[3]), 'weight: float32[3, 2], bias: float32[3]')
    """

    register_forward_hook, register_forward_pre_hook, register_full_backward_hook, register_full_backward_pre_hook, \
        register_backward_hook = map(_unheard, (
            "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
            "register_full_backward_pre_hook", "register_backward_hook"))

    def extra_repr(self) -> str:
        """Return the weights of the group with element types and sizes."""
        own = {**self._parameters, **self._buffers}
        return ", ".join(f"{n}: {str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for n, t in own.items() if t is not None)


@to_jax.register
def _(module: XlaModule) -> Any:
    """The function of a module's program and what the module holds, copied."""
    names = {k: name for k, name in enumerate(module._names) if name is not None}
    order, weights = flattened(module._binding.trees({k: k for k in names}, names, lambda number, _: number))
    tensors, run = [module._at(names[k]) for k in order], as_function(module.computation)
    values = weights.flatten(module._tree(own_array))

    def call(leaves: Sequence[Any], *arguments: Any, **named: Any) -> Any:
        held: list[Any] = [None] * len(module._names)
        for number, leaf in zip(order, leaves, strict=True):
            held[number] = leaf
        arguments, named = module._binding.in_order(held, arguments, named)
        if not module._binding.takes(held, arguments):
            raise InvalidArgument("wrong number of arguments", subject="to_jax", got=len(arguments),
                                  expected=f"{missing(held)}: {module.extra_repr()}")
        return run(*module._binding.placed(held, arguments), **named)

    trained = [isinstance(t, torch.nn.Parameter) and t.requires_grad for t in tensors]
    replaced = [order.index(k) for name in module._replaced or () for k, own in names.items() if own == name]
    return with_weights(call, module.computation.name, weights, values, trained, tied(tensors), replaced)
