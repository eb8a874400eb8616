"""A program as large as one likes, with the op_names that JAX gives to the parts of a model and to its backward pass."""

from __future__ import annotations

import xla_torch


def layers(count: int, ops: int) -> xla_torch.XlaComputation:
    """A training step as JAX names its parts: `count` layers of two groups with `ops` instructions, a loop, and back."""
    text = ["HloModule step, num_partitions=4", "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }",
            "cond { c = (s32[], f32[8,8]) parameter(0) i = s32[] get-tuple-element(c), index=0 n = s32[] constant(3)",
            " ROOT l = pred[] compare(i, n), direction=LT }",
            "body { c = (s32[], f32[8,8]) parameter(0) i = s32[] get-tuple-element(c), index=0 o = s32[] constant(1)",
            " j = s32[] add(i, o)",
            ' x = f32[8,8] get-tuple-element(c), index=1 y = f32[8,8] tanh(x), metadata={op_name="while/body/tanh"}',
            " ROOT r = (s32[], f32[8,8]) tuple(j, y) }", "ENTRY main {",
            " x0 = f32[8,8] parameter(0), sharding={devices=[2,2]<=[4]}"]

    def put(name: str, what: str, op_name: str, more: str = "") -> str:
        text.append(f' {name} = f32[8,8] {what}, {more}metadata={{op_name="jit(step)/{op_name}"}}')
        return name

    across = "lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
    text += [f" w{k} = f32[8,8] parameter({k + 1}), sharding={{devices=[4,1]<=[4]}}" for k in range(count)]
    for k in range(count):
        within, value = f"jvp(net)/layer_{k}", f"x{k}"
        for part in ("attn", "mlp"):
            value = put(f"{part}{k}", f"dot({value}, w{k})", f"{within}/{part}/dot_general", across)
            for n in range(ops):
                value = put(f"{part}{k}.{n}", f"tanh({value})", f"{within}/{part}/tanh")
            value = put(f"{part}{k}.sum", f"all-reduce({value})", f"{within}/{part}/psum",
                        "replica_groups={{0,1},{2,3}}, channel_id=1, use_global_device_ids=true, to_apply=add, ")
        put(f"x{k + 1}", f"add({value}, x{k})", f"{within}/add")
    text += [" zero = s32[] constant(0)", f" begin = (s32[], f32[8,8]) tuple(zero, x{count})",
             ' loop = (s32[], f32[8,8]) while(begin), condition=cond, body=body, metadata={op_name="jit(step)/while"}']
    value = put("end", "get-tuple-element(loop)", "end", "index=1, ")
    for k in reversed(range(count)):
        for n in range(ops):
            value = put(f"back{k}.{n}", f"multiply({value}, x{k + 1})", f"transpose(jvp(net))/layer_{k}/mlp/mul")
        value = put(f"back{k}", f"dot({value}, w{k})", f"transpose(jvp(net))/layer_{k}/attn/dot_general", across)
    text.append(f" ROOT out = f32[8,8] copy({value})\n}}")
    return xla_torch.parse_hlo("\n".join(text))
