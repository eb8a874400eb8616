"""One model, tried: what xla_torch makes of it against what its own library says, values and gradients."""

from __future__ import annotations

import copy
import re
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree

TOLERANCE = 1e-6
"""The largest relative difference that is rounding, where all is computed in float64."""

TOLERANCE_F32 = 2e-3
"""The same for models that keep to float32 inside."""

Found = dict[str, Any]
Build = Callable[[], tuple[Any, Sequence[Any]]]
"""Makes a function, or a torch module, and its arguments."""


def judged(build: Build, way: str) -> Found:
    """What is said of a model on the page. Whatever it raises passes through, and so do lost derivatives, whose gradients would
    agree only where they happen to be those of the ops."""
    from xla_torch.errors import LostDerivatives

    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", LostDerivatives)
        found = {"in": _of_jax, "out": _of_torch, "use": _of_torch, "train": _of_training, "iree": _of_iree}[way](build)
    return found | {"seconds": round(time.perf_counter() - started, 1)}


# ---- from JAX


def _of_jax(build: Build) -> Found:
    """A JAX function through `from_jax`, its values and gradients against `jax.vjp`; the StableHLO it writes, on real XLA."""
    import jax

    import xla_torch

    jax.config.update("jax_enable_x64", True)
    function, arguments = build()
    leaves, tree = jax.tree_util.tree_flatten(tuple(arguments))
    leaves = [_widened(leaf) for leaf in leaves]
    moving = [k for k, leaf in enumerate(leaves) if np.issubdtype(_dtype(leaf), np.floating)]

    @jax.jit
    def flat(*given: Any) -> tuple[Any, ...]:
        results = jax.tree_util.tree_leaves(function(*jax.tree_util.tree_unflatten(tree, given)))
        return tuple(r for r in results if hasattr(r, "dtype") and not jax.dtypes.issubdtype(r.dtype, jax.dtypes.extended))

    theirs = flat(*leaves)
    floating = [k for k, r in enumerate(theirs) if np.issubdtype(_dtype(r), np.floating)]

    def active(*given: Any) -> list[Any]:
        whole = list(leaves)
        for k, value in zip(moving, given, strict=True):
            whole[k] = value
        results = flat(*whole)
        return [results[k] for k in floating]

    ours = xla_torch.from_jax(flat, *leaves)
    given = [_tensor(leaf, k in moving) for k, leaf in enumerate(leaves)]
    results = ours(*given)
    cotangents = _drawn([np.shape(theirs[k]) for k in floating])
    expected = _or_none(lambda: jax.jit(jax.vjp(active, *(leaves[k] for k in moving))[1])(
        [jax.numpy.asarray(ct, theirs[k].dtype) for ct, k in zip(cotangents, floating, strict=True)]))
    found: Found = {"values": _furthest(results, theirs)}
    if expected is not None:
        gradients = torch.autograd.grad([results[k] for k in floating], [given[k] for k in moving],
                                        [torch.tensor(ct, dtype=results[k].dtype) for ct, k in zip(
                                            cotangents, floating, strict=True)], allow_unused=True)
        found["gradients"] = _furthest(gradients, expected, together=True)
    return found | _of_xla(ours, [_array(leaf) for leaf in leaves], theirs)


def _or_none(make: Callable[[], Any]) -> Any:
    """None where JAX has no such derivative (that of a loop of unknown length)."""
    try:
        return make()
    except ValueError as error:
        if "Reverse-mode differentiation does not work" in str(error):
            return None
        raise


def _widened(leaf: Any) -> Any:
    """A leaf of an argument, in float64 where it is of floats."""
    import jax

    if jax.dtypes.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.extended):
        return leaf
    array = jax.numpy.asarray(leaf)
    return array.astype(np.float64) if array.dtype == np.float32 else array


def _dtype(leaf: Any) -> Any:
    kind = getattr(leaf, "dtype", None)
    return kind if isinstance(kind, np.dtype) else np.dtype(bool)


def _array(leaf: Any) -> np.ndarray:
    import jax

    key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended)
    return np.asarray(jax.random.key_data(leaf) if key else leaf)


def _tensor(leaf: Any, moves: bool) -> Any:
    if not isinstance(leaf.dtype, np.dtype):
        return leaf  # a PRNG key
    return torch.from_numpy(np.array(leaf)).requires_grad_(moves)


# ---- from torch


def _of_torch(build: Build) -> Found:
    """A torch module through `from_torch`, its values and gradients against its own; the StableHLO it writes, on real XLA."""
    dtype = _widest(build)
    module, arguments = _made(build, dtype=dtype)
    found = _beside_itself(module.eval(), arguments, _made(build, seed=1, dtype=dtype)[1])
    return found if dtype is torch.float64 else found | {"narrow": True}


def _widest(build: Build) -> torch.dtype:
    """float64, or float32 for modules that compute with tensors of their own in it."""
    module, arguments = _made(build)
    try:
        module.eval()(*arguments)
    except RuntimeError as error:
        if "dtype" not in str(error) and "scalar type" not in str(error):
            raise
        return torch.float32
    return torch.float64


def _of_training(build: Build) -> Found:
    """A module in training mode. Its random numbers are ours, not torch's: so without any it is compared with itself, buffers
    included, and with all that it draws real XLA is compared with us."""
    import xla_torch

    module, arguments = _made(build)
    module.train()
    found = _beside_itself(_undropped(copy.deepcopy(module)), arguments)
    ours = xla_torch.from_torch(module, *arguments)
    weights = ours.weights
    if "rng_state" not in weights:
        return found | {"note": "draws nothing"}
    drawn = _of_draws(ours, arguments)
    return found | drawn | {k: max(found[k], drawn[k]) for k in ("back",) if k in found and k in drawn}


def _of_draws(ours: Any, arguments: Sequence[Any]) -> Found:
    """A program that draws random numbers: others in the next call, and on real XLA the same."""
    first, after = _results(ours, ours.weights, arguments)
    second, _ = _results(ours, {**ours.weights, "rng_state": after["rng_state"]}, arguments)
    assert any(not torch.equal(a, b) for a, b in zip(first, second, strict=True)), "it draws the same again"
    flat = [_of_arrays(t) for t in ours.tensors(ours.weights, *arguments)]
    return _of_xla(ours, flat, first, [_of_arrays(t) for t in after.values()])


def _of_iree(build: Build) -> Found:
    """A module in float32, as StableHLO compiled and run by IREE."""
    import iree.compiler  # pyright: ignore[reportMissingImports]
    import iree.runtime  # pyright: ignore[reportMissingImports]

    import xla_torch

    torch.manual_seed(0)
    module, arguments = build()
    theirs = _tensors(module.eval()(*arguments))
    ours = xla_torch.from_torch(module, *arguments)
    results, _ = _results(ours, ours.weights, arguments)
    code = iree.compiler.compile_str(ours.to_stablehlo(), target_backends=["llvm-cpu"], input_type="stablehlo",
                                     extra_args=["--iree-llvmcpu-target-cpu=host"])
    run = iree.runtime.load_vm_flatbuffer(code, driver="local-task").main
    device = iree.runtime.get_device("local-task")
    given = [iree.runtime.asdevicearray(device, t.detach().numpy()) for t in ours.tensors(ours.weights, *arguments)]
    found = run(*given)
    arrays = [np.asarray(r) for r in (found if isinstance(found, (list, tuple)) else [found])]
    return {"narrow": True, "values": _furthest(results, theirs), "back": _furthest(arrays[:len(theirs)], theirs)}


def _made(build: Build, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[torch.nn.Module, list[Any]]:
    torch.manual_seed(seed)
    module, arguments = build()
    module = module.double() if dtype is torch.float64 else module.float()  # complex ones stay
    return module, [a.to(dtype) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in arguments]


def _undropped(module: torch.nn.Module) -> torch.nn.Module:
    """The module with every rate at which something is left out at nothing."""
    for part in module.modules():
        if isinstance(part, torch.nn.modules.dropout._DropoutNd):
            part.p = 0.0
        for name, value in vars(part).items():
            if isinstance(value, float) and ("drop" in name or (name == "p" and type(part).__name__ == "StochasticDepth")):
                setattr(part, name, 0.0)
    return module


def _of_arrays(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach()
    return tensor.view(torch.int64).numpy().view(np.uint64) if tensor.dtype is torch.uint64 else tensor.numpy()


def _beside_itself(module: torch.nn.Module, arguments: Sequence[Any], others: Sequence[Any] | None = None) -> Found:
    """A module against itself; with `others`, its values for a second input, too, unless it writes into buffers."""
    import xla_torch

    untouched = copy.deepcopy(module)  # some keep what they compute of their weights, and torch.export takes that for constants
    inputs = [a.clone().requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in arguments]
    theirs = _tensors(module(*inputs))
    floating = [k for k, r in enumerate(theirs) if r.requires_grad]
    cotangents = [torch.from_numpy(ct).to(theirs[k].dtype) for k, ct in zip(
        floating, _drawn([tuple(theirs[k].shape) for k in floating]), strict=True)]
    tied: dict[torch.Tensor, list[str]] = {}  # a parameter may have several names, and is a weight under each of them
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if parameter.requires_grad:
            tied.setdefault(parameter, []).append(name)
    moving = [*tied, *(a for a in inputs if isinstance(a, torch.Tensor) and a.requires_grad)]
    expected = torch.autograd.grad([theirs[k] for k in floating], moving, cotangents, allow_unused=True)

    ours = xla_torch.from_torch(untouched, *arguments)
    if others is not None and "rng_state" in ours.weights:  # its numbers are not torch's
        return _of_draws(ours, arguments) | {"note": "draws random numbers: only compared with XLA"}
    weights = pytree.tree_map(lambda t: t.detach().clone(), ours.weights)
    given = [a.detach().clone().requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a
             for a in arguments]
    owned = [[leaf for n in names if (leaf := _leaf(weights, n)) is not None] for names in tied.values()]
    owned += [[a] for a in given if isinstance(a, torch.Tensor) and a.requires_grad]
    results, replaced = _results(ours, weights, given)
    flat = iter(torch.autograd.grad([results[k] for k in floating], [leaf for leaves in owned for leaf in leaves], cotangents,
                                    allow_unused=True))
    gradients = [_sum([next(flat) for _ in leaves]) for leaves in owned]
    buffers = _furthest([*replaced.values()], [module.get_buffer(name) for name in replaced], together=True)
    found: Found = {"values": max(_furthest(results, theirs), buffers)}
    found["gradients"] = _furthest(gradients, expected, together=True)
    if others is not None and not replaced:
        found |= _of_others(module, ours, weights, others, found["values"])
    flat = [t.detach().numpy() for t in ours.tensors(*_given(ours.weights, arguments))]
    return found | _of_xla(ours, flat, results, [*replaced.values()])


def _of_others(module: torch.nn.Module, ours: Any, weights: Any, arguments: Sequence[Any], values: float) -> Found:
    """The values for a second input. A program may refuse it, where Python decided by the values of the first one."""
    from xla_torch.errors import AssumptionError

    try:
        results, _ = _results(ours, weights, arguments)
    except AssumptionError:
        return {"note": "refuses a second input, for which Python decides otherwise"}
    return {"values": max(values, _furthest(results, _tensors(module(*arguments))))}


def _results(function: Any, weights: Any, arguments: Sequence[Any]) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """What the call gives, and what it leaves in buffers, by name, in the order of the program's results."""
    given = _given(weights, arguments)
    if not function.replaced:
        return _tensors(function(*given)), {}
    result, after = function(*given)
    return _tensors(result), _flat(after)


def _given(weights: Any, arguments: Sequence[Any]) -> Sequence[Any]:
    """What a program is called with."""
    return (weights, *arguments) if weights else arguments


def _flat(tree: Any, prefix: str = "") -> dict[str, torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        return {prefix[:-1]: tree}
    return {name: t for key, part in tree.items() for name, t in _flat(part, f"{prefix}{key}.").items()}


def _leaf(weights: dict[str, Any], name: str) -> torch.Tensor | None:
    """The weight of a name, to be differentiated; None where the program has it under another one."""
    found: Any = weights
    for key in name.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return None if found is None else found.requires_grad_()


def _sum(gradients: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    there = [g for g in gradients if g is not None]
    return sum(there[1:], there[0]) if there else None


def _tensors(tree: Any) -> list[torch.Tensor]:
    """The tensors in a result, in torch's order."""
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


# ---- both


_CALLBACK = "xla_torch.callback"


def _of_xla(program: Any, arrays: Sequence[np.ndarray], theirs: Sequence[Any], buffers: Sequence[Any] = ()) -> Found:
    """What real XLA makes of the HLO text of a program, which gives values and what buffers become, or why it makes nothing of
    it; and whether something in the text is not as precise as float64."""
    import jax

    from support.oracle import executable

    text = program.to_hlo_text()
    narrow = {"narrow": re.search(r"\b(f32|bf16|f16|c64)\[", text) is not None}
    if _CALLBACK in text:
        return narrow | {"note": "not on XLA: it calls Python functions, and a text has none"}
    try:
        run = executable(text)
    except jax.errors.JaxRuntimeError as error:
        if not (found := re.match(r"UNIMPLEMENTED: ([\w-]+)\s*(\n|$)", str(error))):
            raise
        return narrow | {"note": f"not on XLA, whose compiler for CPUs has no kernel for the opcode `{found[1]}`"}
    results = [np.asarray(r) for r in run([jax.device_put(a) for a in arrays])]
    count = len(theirs)
    return narrow | {"back": max(_furthest(results[:count], theirs), _furthest(results[count:], buffers, together=True))}


def _drawn(shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Cotangents."""
    rng = np.random.default_rng(0)
    return [np.asarray(rng.normal(size=shape)) for shape in shapes]


def _furthest(ours: Any, theirs: Any, together: bool = False) -> float:
    """The largest difference of two lists of arrays, relative to each array's largest value. Of gradients and of running
    statistics, an array whose own is below a thousandth of the largest of all is measured by that: beside a sum that cancels
    there is only rounding."""
    pairs = [(_numpy(o), _numpy(t)) for o, t in zip(ours, theirs, strict=True)]
    pairs = [(np.zeros_like(t) if o is None else o, np.zeros_like(o) if t is None else t)  # no gradient is a gradient of zero
             for o, t in pairs if o is not None or t is not None]
    for o, t in pairs:
        assert o.shape == t.shape, f"{o.shape} in place of {t.shape}"
    least = 1e-3 * max((_largest(t) for _, t in pairs), default=0.0) if together else 0.0
    return max((_difference(o, t, least) for o, t in pairs if t.size), default=0.0)


def _largest(array: np.ndarray) -> float:
    if not array.size:
        return 0.0
    whole = np.abs(np.asarray(array, np.complex128))
    return float(whole[np.isfinite(whole)].max(initial=0.0))


def _difference(ours: np.ndarray, theirs: np.ndarray, least: float) -> float:
    """Infinities and NaNs must be the same."""
    if not np.issubdtype(theirs.dtype, np.inexact):
        return float(np.any(ours != theirs))
    nowhere, beyond = np.isnan(theirs), np.isinf(theirs)
    if not np.array_equal(np.isnan(ours), nowhere) or not np.array_equal(ours[beyond], theirs[beyond]):
        return float("inf")
    here = np.isfinite(theirs)
    return float(np.abs(ours - theirs)[here].max(initial=0.0)) / max(_largest(theirs), least, 1e-300)


def _numpy(value: Any) -> np.ndarray | None:
    if value is None:
        return None
    if not isinstance(value, torch.Tensor):
        if str(value.dtype) == "float0":
            return None
        value = np.asarray(value)
        return value.astype(np.float32) if value.dtype.name == "bfloat16" else value
    value = value.detach()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
