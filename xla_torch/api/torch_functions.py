"""Functions of torch that torch.export cannot take, or takes as a whole, in others: what they are while it exports."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch.overrides import TorchFunctionMode

from ..core.errors import UnsupportedError, XlaWarning
from ..storage import caught_errors, custom_operators, own_generators, torch_graphs, torch_private, value_texts
from ..storage.torch_private import Operator

Lengths = torch.Tensor | Sequence[int]


class DerivativeFound(BaseException):
    """Ends an export that would make constants of a derivative: a model that catches every Exception does not catch it."""


class InOthers(TorchFunctionMode):
    """While it is on, functions are what they are in others: those `within` where the model may differentiate. It sees whether
    something is differentiated."""

    def __init__(self, ways: Mapping[Any, Callable[..., Any]], within: Mapping[Any, Callable[..., Any]] | None = None):
        super().__init__()
        self._ways = ways
        self._within: Mapping[Any, Callable[..., Any]] = {**ways, **(within or {})}
        self.has_derivatives = self.ends_at_derivatives = self.has_reads = False
        self.changed: list[str] = []
        """The attributes that the model has changed."""

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if not torch.compiler.is_dynamo_compiling():
            self._see(func)
        if (generator := own_generators.of_call(func, kwargs or {})) is not None:
            return own_generators.drawn(func, args, {**(kwargs or {}), "generator": generator})
        ways = self._ways if self.ends_at_derivatives else self._within
        way = ways.get(func) or custom_operators.in_python(func) or func
        return way(*args, **(kwargs or {}))

    def rename(self, symbols: Mapping[Any, Any]) -> None:
        """Take other symbols for the numbers that were read from tensors."""

    def _see(self, func: Any) -> None:
        if func in (torch.autograd.backward, torch.Tensor.backward):
            raise UnsupportedError("backward() within the model", subject="from_torch", expected="torch.autograd.grad")
        self.has_reads |= func in (torch.Tensor.item, torch.Tensor.tolist)
        is_derivative = func is torch.autograd.grad or not all(torch_private.transforms_are_vmap())
        self.has_derivatives |= is_derivative or torch_private.transforms_are_active()
        if is_derivative and self.ends_at_derivatives:
            raise DerivativeFound


def _set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Refuse what torch.export forgets. A module that moves itself to where it is assigns tensors to themselves."""
    if value is not tensor:
        raise UnsupportedError("the model assigns to `.data` of a tensor", subject="from_torch",
                               got=f"{tensor.dtype} of {tuple(tensor.shape)}", where=value_texts.asking_line(),
                               hint="write into the tensor within torch.no_grad: tensor.copy_(value)")


def _lstsq(input: torch.Tensor, b: torch.Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """By QR, of the matrix or of its transpose, whichever is tall. Where the rank is not full, which QR has no answer for, the
    solution is NaN."""
    rows, columns = input.shape[-2:]
    is_vector = b.ndim == 1 or (b.ndim == input.ndim - 1 and b.shape == input.shape[:-1])
    right = b.unsqueeze(-1) if is_vector else b
    if rows >= columns:
        q, r = torch.linalg.qr(input)
        solution = torch.linalg.solve_triangular(r, q.mH @ right, upper=True)
    else:
        q, r = torch.linalg.qr(input.mH)
        solution = q @ torch.linalg.solve_triangular(r.mH, right, upper=False)
    values = torch.linalg.svdvals(input.detach())
    least = torch.finfo(input.dtype).eps * max(rows, columns) if rcond is None else max(rcond, 0.0)
    rank = (values > least * values[..., :1]).sum(-1)
    is_full = (rank == min(rows, columns))[..., None, None]
    solution = torch.where(is_full, solution, torch.full_like(solution, math.nan))
    residuals = input.new_zeros(0, dtype=values.dtype)
    if rows > columns and driver != "gelsy" and not (driver is None and input.device.type == "cpu"):
        residuals = (input @ solution - right).abs().square().sum(-2)
    nothing = values.new_zeros(0)
    return torch.return_types.linalg_lstsq((  # pyright: ignore[reportAttributeAccessIssue]
        solution.squeeze(-1) if is_vector else solution, residuals,
        rank.new_zeros(0) if driver == "gels" else rank, values if driver in ("gelsd", "gelss") else nothing))


# ------------------------------------------------------------------------------------------- paths through labels


def lengths(given: Lengths, like: torch.Tensor) -> torch.Tensor:
    """Lengths of sequences as a tensor of int64."""
    found = given if isinstance(given, torch.Tensor) else torch.tensor(list(given))
    return found.to(device=like.device, dtype=torch.int64).reshape(-1)


def _added(terms: torch.Tensor) -> torch.Tensor:
    """The logarithm of the sum of exponentials along the first dimension, whose gradient is 0 where all are -inf."""
    highest = terms.detach().amax(0)
    highest = torch.where(highest == -math.inf, torch.zeros_like(highest), highest)
    total = (terms - highest).exp().sum(0)
    is_there = total > 0
    found = torch.where(is_there, total, torch.ones_like(total)).log() + highest
    return torch.where(is_there, found, torch.full_like(found, -math.inf))


def ctc_loss(log_probs: torch.Tensor, targets: torch.Tensor, input_lengths: Lengths, target_lengths: Lengths, blank: int = 0,
              reduction: int = 1, zero_infinity: bool = False, scan: Callable[..., Any] | None = None) -> torch.Tensor:
    """The paths of each step forwards, blanks between the labels. Its gradient is torch's, that of what comes before a
    `log_softmax`. With a `scan`, the steps are a loop of it."""
    is_one = log_probs.ndim == 2
    steps = log_probs.unsqueeze(1) if is_one else log_probs
    count, batch, _ = steps.shape
    ends, labels = lengths(input_lengths, steps), lengths(target_lengths, steps)
    longest = targets.shape[-1] if targets.ndim == 2 or is_one else targets.shape[0]
    at = torch.arange(longest, device=steps.device)
    if targets.ndim == 2:
        own = targets
    elif not longest:
        own = targets.new_zeros(batch, 0)
    else:
        own = targets[((labels.cumsum(0) - labels)[:, None] + at).clamp(max=longest - 1)]
    own = torch.where(at < labels[:, None], own.to(torch.int64), torch.full((), blank, device=steps.device))
    states = torch.full((batch, 2 * longest + 1), blank, dtype=torch.int64, device=steps.device)
    if longest:
        between = torch.stack([own, torch.full_like(own, blank)], 2).flatten(1)
        states = torch.cat([states[:, :1], between], 1)
    far = states.new_zeros(states.shape, dtype=torch.bool)
    if longest > 1:
        skips = (states[:, 2:] != blank) & (states[:, 2:] != states[:, :-2])
        far = torch.cat([far[:, :2], skips], 1)
    number = torch.arange(states.shape[1], device=steps.device)
    emitted = steps.gather(2, states.expand(count, *states.shape))
    never = steps.new_full((), -math.inf)
    begins = number < torch.where(labels > 0, 2, 1)[:, None]
    before_all = torch.where(number == 0, torch.zeros_like(emitted[0]), never)
    alpha = torch.where((ends > 0)[:, None], torch.where(begins, emitted[0], never), before_all)
    alpha = (scan or _scan)(_ctc_step, alpha, (emitted[1:], torch.arange(1, count, device=steps.device)), (far, ends))
    last = torch.where((number == 2 * labels[:, None]) | ((number == 2 * labels[:, None] - 1) & (labels > 0)[:, None]),
                       alpha, never)
    loss = -_added(last.T)
    is_inside = (torch.arange(count, device=steps.device)[:, None] < ends)[:, :, None]
    inside = torch.where(is_inside, steps.exp(), torch.zeros_like(steps))
    share = inside.sum((0, 2))
    is_finite = loss.detach() < math.inf
    loss = torch.where(is_finite, loss + (share - share.detach()), torch.zeros_like(loss) if zero_infinity else loss)
    if reduction == 1:
        return (loss / labels.clamp(min=1).to(loss.dtype)).mean()
    return loss.sum() if reduction == 2 else loss[0] if is_one else loss


def _ctc_step(alpha: torch.Tensor, emitted: torch.Tensor, k: torch.Tensor, far: torch.Tensor,
              ends: torch.Tensor) -> torch.Tensor:
    """The logarithms of the sums over the paths that end in each state after one more step."""
    never = alpha.new_full((), -math.inf)
    before = torch.cat([never.expand(alpha.shape[0], 2), alpha], 1)
    ways = torch.stack([alpha, before[:, 1:-1], torch.where(far, before[:, :-2], never)])
    return torch.where((k < ends)[:, None], _added(ways) + emitted, alpha)


def _scan(step: Callable[..., torch.Tensor], first: torch.Tensor, slices: Sequence[torch.Tensor],
          others: Sequence[torch.Tensor]) -> torch.Tensor:
    """The last of a chain of steps, each of which takes the next slices."""
    for each in zip(*(s.unbind() for s in slices), strict=True):
        first = step(first, *each, *others)
    return first


def _ctc_loss_by_name(log_probs: torch.Tensor, targets: torch.Tensor, input_lengths: Lengths, target_lengths: Lengths,
                      blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> torch.Tensor:
    number = {"none": 0, "mean": 1, "sum": 2}[reduction]
    return ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, number, zero_infinity)


# ------------------------------------------------------------------------------------------- attention with functions of scores


class _OfAll(torch.fx.Interpreter):
    """A graph of scalars, run for the elements of arrays of four dimensions at once. That is the same where each operator goes
    element by element, or reads elements of a table; others are refused."""

    def __init__(self, module: torch.fx.GraphModule, what: str):
        super().__init__(module)
        self._what = what

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.op == "call_function" and not self._goes_by_elements(n):
            raise UnsupportedError(f"its {self._what} does more than compute with single elements", subject="flex_attention",
                                   got=str(n.target), expected="operators that go element by element, tables read at all places",
                                   hint="use scaled_dot_product_attention with the mask or bias as a tensor")
        if _reads_a_table(n):
            given: list[Any] = [self.env[a] if isinstance(a, torch.fx.Node) else a for a in n.args[3:]]
            found = given[0][tuple(given[1:])]
        else:
            found = super().run_node(n)
        if not isinstance(found, torch.Tensor):
            return found
        return found.reshape(1, 1, 1, 1) if found.ndim == 0 else found

    def _goes_by_elements(self, node: torch.fx.Node) -> bool:
        if _reads_a_table(node):
            return True
        value = node.meta.get("val")
        target: Any = node.target
        if not isinstance(value, torch.Tensor) or value.ndim or not isinstance(target, Operator):
            return False
        if target is torch.ops.aten.index.Tensor:
            given: Any = node.args
            return len(given[1]) == given[0].meta["val"].ndim and None not in given[1]
        read = [a for a in node.all_input_nodes if isinstance(v := a.meta.get("val"), torch.Tensor) and v.ndim]
        return not read and (torch.Tag.pointwise in target.tags or target in _OF_ELEMENTS)


def _reads_a_table(node: torch.fx.Node) -> bool:
    """Whether a node is what torch.export makes of ``table[h, i]``: an element of each dimension."""
    kind = node.args[2:3] if getattr(node.target, "__name__", "") == "flat_apply" else ()
    if kind != ("torch._dynamo._trace_wrapped_higher_order_op.ModIndex",):
        return False
    given: list[Any] = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in node.args[3:]]
    table, *at = given
    return len(at) == table.ndim and all(type(a) is int or (isinstance(a, torch.Tensor) and not a.ndim) for a in at)


_OF_ELEMENTS = frozenset(getattr(getattr(torch.ops.aten, name), overload) for name, overload in (
    *((name, kind) for name in ("__and__", "__or__", "__xor__") for kind in ("Tensor", "Scalar")), ("to", "dtype"),
    *((name, "default") for name in ("new_ones", "new_zeros", "new_full", "full", "full_like", "ones_like", "zeros_like",
                                     "scalar_tensor", "_to_copy", "detach", "clone", "alias", "lift_fresh_copy"))))
"""Operators that give a scalar of a scalar, or one of no other's value."""


def _flex_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, score_mod: Any, block_mask: Sequence[Any],
                    scale: float, kernel_options: Any, score_buffers: Sequence[Any] = (), mask_buffers: Sequence[Any] = ()
                    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The attention, and the logarithms of sums and the greatest scores, both to base 2. Blocks of a mask are what its function
    says, so that this is asked alone. Rows that are masked as a whole are 0."""
    dtype = torch.float64 if query.dtype is torch.float64 else torch.float32
    batch, heads = query.shape[:2]
    key, value = (x.repeat_interleave(heads // key.shape[1], 1).expand(batch, -1, -1, -1) for x in (key, value))
    scores = (query.to(dtype) @ key.to(dtype).transpose(-2, -1)) * scale
    places = [torch.arange(n, device=query.device).reshape([-1 if d == k else 1 for d in range(4)])
              for k, n in enumerate(scores.shape)]
    weights = _OfAll(score_mod, "score_mod").run(scores, *places, *score_buffers).expand(scores.shape)
    is_seen = _OfAll(block_mask[-1], "mask_mod").run(*places, *mask_buffers).expand(scores.shape)
    weights = torch.where(is_seen, weights, torch.full_like(weights, -math.inf))
    highest = weights.detach().amax(-1, keepdim=True)
    level = torch.where(highest == -math.inf, torch.zeros_like(highest), highest)
    powers = (weights - level).exp()
    total = powers.sum(-1, keepdim=True)
    is_there = total > 0
    total = torch.where(is_there, total, torch.ones_like(total))
    sums = torch.where(is_there, total.log() + level, torch.full_like(level, -math.inf))
    found = (powers / total).to(query.dtype) @ value.to(query.dtype)
    return found, sums[..., 0] / math.log(2), weights.amax(-1) / math.log(2)


def _cov(input: torch.Tensor, *, correction: int = 1, fweights: torch.Tensor | None = None,
         aweights: torch.Tensor | None = None) -> torch.Tensor:
    """Without torch's checks of weights, which are about values."""
    rows = input if input.ndim > 1 else input.reshape(1, -1)
    weights = fweights if aweights is None else aweights if fweights is None else fweights * aweights
    if weights is None:
        mean, norm = rows.sum(1, keepdim=True) / rows.shape[1], torch.full((), rows.shape[1] - correction)
        centred = weighted = rows - mean
    else:
        total = weights.sum()
        centred = rows - (rows * weights).sum(1, keepdim=True) / total
        weighted = centred * weights
        norm = total - correction * (1 if aweights is None else (weights * aweights).sum() / total)
    return (centred @ weighted.mH / norm.clamp(min=0)).squeeze()


def _corrcoef(input: torch.Tensor) -> torch.Tensor:
    found = _cov(input)
    if not found.ndim:
        return found / found
    scale = found.diagonal().real.sqrt() if found.is_complex() else found.diagonal().sqrt()
    found = found / scale[:, None] / scale
    return found if found.is_complex() else found.clamp(-1, 1)


def _combinations(input: torch.Tensor, r: int = 2, with_replacement: bool = False) -> torch.Tensor:
    chosen = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = [*chosen(range(input.shape[0]), r)]
    return input[torch.tensor(places)] if r and places else input.new_zeros((0, r) if r else (0,))


def _deepcopy(input: torch.Tensor, memo: dict[Any, Any]) -> torch.Tensor:
    """A new tensor that passes no gradient on, as torch makes of a leaf. torch asks for an address, which a traced one lacks."""
    if type(input) in (torch.Tensor, torch.nn.Parameter) and not torch_private.is_wrapped(input):
        return torch.Tensor.__deepcopy__(input, memo)
    storage = ("copied storage", id(input.untyped_storage()))
    if memo.setdefault(storage, input) is not input:
        raise UnsupportedError("copy.deepcopy copies several views of one tensor", subject="from_torch",
                               got=f"views of {tuple(memo[storage].shape)} and {tuple(input.shape)}",
                               expected="tensors with memory of their own",
                               hint="copy the base tensor and form the views of the copy")
    return input.detach().clone().requires_grad_(input.requires_grad)


def _requires_grad(self: torch.Tensor) -> bool:
    found, frame = self.requires_grad, value_texts.asking_frame()
    if not found and frame is not None and self.is_floating_point():
        line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        warnings.warn(f"from_torch: the model asks whether a tensor requires a gradient ({line}); the program does what it does "
                      "if not, as in the example. Let the example require one, if calls will", XlaWarning, stacklevel=2)
    return found


_tensor: Callable[..., torch.Tensor] = torch_private.private(torch, "_refs.tensor")
"""In Python, which takes tensors and numbers that were read from tensors."""


def _tensor_of(data: Any, **options: Any) -> torch.Tensor:
    return (_tensor if _holds_traced(data) else torch.tensor)(data, **options)


def _as_tensor(data: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
    make = _tensor if _holds_traced(data) else torch.as_tensor
    return make(data, dtype=dtype, device=device)


def _new_tensor(self: torch.Tensor, data: Any, *, dtype: torch.dtype | None = None, device: Any = None, **options: Any
                ) -> torch.Tensor:
    if not _holds_traced(data):
        return self.new_tensor(data, dtype=dtype, device=device, **options)
    return _tensor(data, dtype=dtype or self.dtype, device=device or self.device, **options)


def _holds_traced(data: Any) -> bool:
    """Whether there are numbers that were read from tensors, or tensors in lists, whose memory torch would read."""
    kinds = (torch.SymInt, torch.SymFloat, torch.SymBool, torch.Tensor)
    is_whole = isinstance(data, torch.Tensor)
    return not is_whole and any(isinstance(one, kinds) for one in torch_private.pytree.tree_leaves(data))


def _failing(function: Callable[..., Any], with_info: Callable[..., tuple[torch.Tensor, torch.Tensor]]) -> Callable[..., Any]:
    """A function of matrices that fails for some. Where the model catches that, whether it fails is a decision of Python's;
    otherwise the program gives NaN or infinity."""
    def apply(*args: Any, **named: Any) -> Any:
        if not caught_errors.is_caught(torch.linalg.LinAlgError) or named.get("out") is not None:
            return function(*args, **named)
        found, info = with_info(*args, **named)
        if (info != 0).any():
            raise torch.linalg.LinAlgError(f"{function.__name__}: the matrix of the example is singular or not positive definite")
        return found

    return apply


_FAILING: dict[Any, Callable[..., Any]] = {
    torch.linalg.cholesky: torch.linalg.cholesky_ex,
    torch.cholesky: lambda input, upper=False: torch.linalg.cholesky_ex(input, upper=upper),
    torch.linalg.inv: torch.linalg.inv_ex, torch.inverse: torch.linalg.inv_ex,
    torch.linalg.solve: torch.linalg.solve_ex}
_FAILING |= {torch.Tensor.cholesky: _FAILING[torch.cholesky], torch.Tensor.inverse: torch.linalg.inv_ex}


def _quantized(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def refuse(*given: Any, **named: Any) -> torch.Tensor:
        dtype = next((one for one in (*given, *named.values()) if isinstance(one, torch.dtype)), "")
        raise UnsupportedError(f"torch.{function.__name__} makes a quantized tensor", subject="from_torch", got=dtype,
                               expected="tensors of floats and integers", where=value_texts.asking_line(),
                               hint="use torch.fake_quantize_per_tensor_affine, or divide by the scale, round and clamp")

    return refuse


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **{function: _failing(function, with_info) for function, with_info in _FAILING.items()},
    torch_private.private(torch.Tensor, "requires_grad.__get__"): _requires_grad,
    torch.tensor: _tensor_of, torch.as_tensor: _as_tensor, torch.Tensor.new_tensor: _new_tensor,
    torch.Tensor.__deepcopy__: _deepcopy,
    torch.Tensor.data.__set__: _set_data,  # pyright: ignore[reportAttributeAccessIssue]
    torch.cov: _cov, torch.Tensor.cov: _cov, torch.corrcoef: _corrcoef, torch.Tensor.corrcoef: _corrcoef,
    torch.combinations: _combinations,
    **{function: _quantized(function) for function in (
        torch.quantize_per_tensor, torch.quantize_per_channel, torch.quantize_per_tensor_dynamic)},
    torch.linalg.lstsq: _lstsq, torch.ctc_loss: ctc_loss, torch.nn.functional.ctc_loss: _ctc_loss_by_name}
"""What torch.export cannot take: its sizes, or checks of its arguments, depend on values."""

WHOLE: dict[Any, Callable[..., Any]] = {torch_graphs.flex_attention: _flex_attention}
"""What torch.export takes as one operator, as torch's documentation defines it."""


def has_whole(exported: Any) -> bool:
    """Whether an exported program has such operators."""
    modules = [m for m in exported.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    return any(node.op == "call_function" and node.target in WHOLE for m in modules for node in m.graph.nodes)


def is_lost(exported: Any) -> bool:
    """Whether an exported program has constants in the place of what is differentiated in it."""
    tensors = [held for held in exported.constants.values() if isinstance(held, torch.Tensor)]
    return any(torch_private.is_wrapped(held) or hasattr(held, "fake_mode") for held in tensors)


def check(exported: Any) -> None:
    """Raise UnsupportedError for a program of which torch.export lost what is differentiated in it."""
    if is_lost(exported):
        raise lost()


def lost() -> UnsupportedError:
    return UnsupportedError("torch.export turned a derivative within the model into constants", subject="from_torch",
                            expected="torch.autograd.grad, torch.func.grad, vjp, jvp, jacrev, jacfwd, hessian or vmap within a "
                                     "module or a function, not yet exported",
                            hint="convert the inner function and differentiate that: xla_torch.grad(from_torch(...))")
