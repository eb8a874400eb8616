"""Products of matrices: made the way round in which they are read, by the library that is the faster one for them.

XLA writes a gradient as a product and then its transpose, which makes a copy wherever somebody needs it in one piece of memory.
The transpose of a product is the product of the transposes in the other order, and these cost a matrix product nothing.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from ..core import tuning
from ..hlo.ir import Instruction
from ..kernels import contraction as kernels
from ..opcodes.contraction import dot
from ..storage.torch_private import has_units, onednn_linear

_PERMUTE = torch.Tensor.permute.__name__
_T, _TRANSPOSE = torch.Tensor.t.__name__, torch.Tensor.transpose.__name__


def turn_products(graph: Graph) -> None:
    """Rewrite the graph in place: a product of matrices that all its users read with its rows last is made transposed."""
    for node in list(graph.nodes):
        if node.target is operator.matmul and _is_of_matrices(node) and node.users and all(map(_reads_rows_last, node.users)):
            _turn(graph, node)


def _is_of_matrices(node: Node) -> bool:
    """Whether both operands have a dimension of rows and one of columns behind the dimensions of the batch, as the result has."""
    instruction: Instruction | None = node.meta.get("hlo")
    if instruction is None or instruction.opcode != dot:
        return False
    lhs, rhs = (len(o.shape.dimensions) for o in instruction.operands)
    summed, batch = (len(instruction.attributes.get(name, ())) for name in ("lhs_contracting_dims", "lhs_batch_dims"))
    return lhs - summed - batch == rhs - summed - batch == 1


def _reads_rows_last(user: Node) -> bool:
    if user.op != "call_method" or user.target != _PERMUTE or len(user.args) != 2:
        return False
    order: Any = user.args[1]
    return order[-1] == len(order) - 2


def _turn(graph: Graph, node: Node) -> None:
    left, right = node.args
    with graph.inserting_before(node):
        turned = graph.call_function(operator.matmul, tuple(_transposed(graph, o, node.meta["hlo"]) for o in (right, left)))
    turned.meta["hlo"] = node.meta["hlo"]
    if "array" in node.meta:
        (*batch, rows, columns), dtype = node.meta["array"]
        turned.meta["array"] = ((*batch, columns, rows), dtype)
    for user in list(node.users):
        order: Any = user.args[1]
        last = len(order) - 1
        swapped = {last: last - 1, last - 1: last}
        user.args = (turned, tuple(swapped.get(d, d) for d in order))
        if user.args[1] == tuple(range(len(order))):
            user.replace_all_uses_with(turned)
            graph.erase_node(user)
    graph.erase_node(node)
    for factor in dict.fromkeys((left, right)):
        if isinstance(factor, Node) and _is_transpose(factor) and not factor.users:
            graph.erase_node(factor)


def _transposed(graph: Graph, operand: object, product: Instruction) -> Node:
    """The transpose of a factor, a matrix or one for each place of a batch; of a transpose what it was made of."""
    assert isinstance(operand, Node)
    source = operand.args[0] if _is_transpose(operand) else None
    if isinstance(source, Node):
        return source
    is_matrix = product.shape.rank == 2
    made = graph.call_method(_T, (operand,)) if is_matrix else graph.call_method(_TRANSPOSE, (operand, -2, -1))
    if "array" in operand.meta:
        (*batch, rows, columns), dtype = operand.meta["array"]
        made.meta["array"] = ((*batch, columns, rows), dtype)
    return made


def _is_transpose(node: Node) -> bool:
    return node.op == "call_method" and node.target in (_T, _TRANSPOSE) and node.args[1:] in ((), (-2, -1))


def measure_products(graph: Graph) -> None:
    """Rewrite the graph in place: products for which two ways compete are made in the one that is faster where they run. These
    are large ones of float32 matrices where the processor is one that MKL, of which torch's own products are, has no code of its
    own for (without AVX-512 there, only those by few columns), and those of bfloat16 and float16 where the processor has units
    for them, which torch does not always make good use of. Runs after all passes that know products of torch."""
    for node in graph.nodes:
        if node.target is operator.matmul and (_narrow_type(node) or (_prefers_onednn() and _is_large(node))):
            node.target = kernels.measured_matmul


def use_float32(graph: Graph) -> None:
    """Rewrite the graph in place: products of bfloat16 and float16 are made in float32 and rounded once, as XLA's CPU code makes
    them, where the processor has no units for them: torch's own code multiplies them element by element there. Runs after all
    passes that know products of torch."""
    for node in graph.nodes:
        if node.target is operator.matmul and (dtype := _narrow_type(node)) and not has_units(dtype):
            node.target = kernels.float32_matmul


def _narrow_type(product: Node) -> torch.dtype | None:
    """The factors' type if it is a narrow one of floats and there is enough to do."""
    left, right = (o.meta.get("array") if isinstance(o, Node) else None for o in product.args)
    if left is None or right is None or left[1] is not right[1] or left[1] not in (torch.bfloat16, torch.float16):
        return None
    columns = right[0][-1] if len(right[0]) > 1 else 1
    return left[1] if math.prod(left[0]) * columns >= tuning.NARROW_PRODUCTS_FROM else None


@functools.cache
def _prefers_onednn() -> bool:
    """Whether torch's products are MKL's and the processor is not Intel's."""
    capabilities = getattr(torch.cpu, "get_capabilities", dict[str, Any])()
    name = str(capabilities.get("cpu_name", ""))
    return onednn_linear is not None and torch.backends.mkl.is_available() and name.startswith("AMD")


@functools.cache
def _has_avx512() -> bool:
    return torch.backends.cpu.get_cpu_capability().startswith("AVX512")


def _is_large(product: Node) -> bool:
    """Whether it is of float32, rows times one matrix or as many of these as of those, with enough to do."""
    left, right = (o.meta.get("array") if isinstance(o, Node) else None for o in product.args)
    if left is None or right is None or not left[1] == right[1] == torch.float32 or len(right[0]) < 2:
        return False
    (*rows, summed), (*batch, _, columns) = left[0], right[0]
    if batch:
        known = all(isinstance(n, int) for n in (*left[0], columns))
        return (_has_avx512() and known and rows[:-1] == batch
                and rows[-1] * summed * columns >= tuning.ONEDNN_BATCHED_FROM)
    least, most = tuning.ONEDNN_FEW_COLUMNS
    few = isinstance(columns, int) and least <= columns <= most  # a size that stands for many is asked one thing only
    if few:
        return math.prod(rows) * summed * columns >= tuning.ONEDNN_FEW_COLUMNS_FROM
    return _has_avx512() and math.prod(rows) * summed * columns >= tuning.ONEDNN_FROM

