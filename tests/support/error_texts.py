"""The programs of rows in `error_rows.py` and `error_rows_programs.py`: the instruction, what it leaves out, and computations."""

from __future__ import annotations

import re

# Computations that rows name in their attributes.
REGIONS = {
    "add": "a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)",
    "add_s32": "a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT r = s32[] add(a, b)",
    "add_pair": "a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  c = f32[] parameter(2)\n  d = f32[] parameter(3)\n"
                "  e = f32[] add(a, c)\n  f = f32[] add(b, d)\n  ROOT r = (f32[], f32[]) tuple(e, f)",
    "add_mixed": "a = f32[] parameter(0)\n  b = s32[] parameter(1)\n  c = f32[] convert(b)\n  ROOT r = f32[] add(a, c)",
    "three": "a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  c = f32[] parameter(2)\n  ROOT r = f32[] add(a, b)",
    "to_vector": "a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[2] broadcast(a), dimensions={}",
    "of_vectors": "a = f32[2] parameter(0)\n  b = f32[2] parameter(1)\n  ROOT r = f32[2] add(a, b)",
    "less": "a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = pred[] compare(a, b), direction=LT",
    "less_s32": "a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT r = pred[] compare(a, b), direction=LT",
    "less_s64": "a = s64[] parameter(0)\n  b = s64[] parameter(1)\n  ROOT r = pred[] compare(a, b), direction=LT",
    "less_of_two": "a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  c = s32[] parameter(2)\n  d = s32[] parameter(3)\n"
                   "  ROOT r = pred[] compare(a, b), direction=LT",
    "negative": "a = f32[] parameter(0)\n  ROOT r = f32[] negate(a)",
    "vector_test": "a = f32[2] parameter(0)\n  ROOT r = pred[2] is-finite(a)",
    "test": "a = f32[2] parameter(0)\n  ROOT r = pred[] constant(true)",
    "number": "a = f32[2] parameter(0)\n  ROOT r = s32[] constant(0)",
    "vector": "a = f32[2] parameter(0)\n  ROOT r = f32[2] negate(a)",
    "longer": "a = f32[3] parameter(0)\n  ROOT r = f32[3] negate(a)",
    "lengthen": "a = f32[2] parameter(0)\n  ROOT r = f32[4] concatenate(a, a), dimensions={0}",
    "scalar_step": "a = f32[] parameter(0)\n  c = f32[] parameter(1)\n  d = f32[] add(a, c)\n"
                   "  ROOT r = (f32[], f32[]) tuple(d, d)",
    "bad_step": "a = f32[] parameter(0)\n  c = f32[] parameter(1)\n  d = f32[2] broadcast(c), dimensions={}\n"
                "  ROOT r = (f32[], f32[2]) tuple(a, d)",
}


DEFAULTS = {  # attributes of ops that need many, where a row does not write its own
    "batch-norm-grad": "epsilon=0.001, feature_index=1",
    "batch-norm-inference": "epsilon=0.001, feature_index=1",
    "batch-norm-training": "epsilon=0.001, feature_index=1",
    "convolution": "dim_labels=bf0_oi0->bf0, window={size=3}",
    "dot": "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "gather": "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,3}",
    "ragged-dot": "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}",
    "scatter": "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
               "to_apply=add",
    "select-and-scatter": "window={size=2 stride=2}, select=less, scatter=add",
    "triangular-solve": "left_side=true, lower=true, unit_diagonal=false, transpose_a=NO_TRANSPOSE",
}


def opcode_of(instruction: str) -> str:
    """The opcode in ``shape opcode(operands), attributes``."""
    match = re.search(r" ([a-z][a-z0-9-]*)\(", instruction)
    assert match is not None
    return match[1]


def program(parameters: str, instruction: str) -> str:
    """HLO text of one instruction over parameters p0, p1, ... with the attributes it leaves out and the computations it names."""
    for default in re.findall(r"\w+=(?:\{[^}]*\}|[^,]+)", DEFAULTS.get(opcode_of(instruction), "")):
        if f" {default.partition('=')[0]}=" not in instruction:
            instruction += f", {default}"
    used = [n for n in REGIONS if re.search(rf"=\{{?[^}}=]*\b{n}\b", instruction)]
    regions = "".join(f"{n} {{\n  {REGIONS[n]}\n}}\n\n" for n in used)
    shapes = re.findall(r"\([^()]*(?:\([^()]*\)[^()]*)*\)|[a-z]\w*\[[^\]]*\]", parameters)
    lines = "".join(f"  p{k} = {shape} parameter({k})\n" for k, shape in enumerate(shapes))
    return f"HloModule m\n\n{regions}ENTRY e {{\n{lines}  ROOT r = {instruction}\n}}\n"
