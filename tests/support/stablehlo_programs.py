"""Programs of test_stablehlo_convert.py: what stands around operations, and what only compilers and frameworks write."""

from __future__ import annotations

M = "tensor<2x3xf32>"


def main(body: str, arguments: str = f"%a: {M}", results: str = M, functions: str = "", attributes: str = "") -> str:
    return f"module {attributes} {{\n{functions}\nfunc.func @main({arguments}) -> ({results}) {{\n{body}\n}}\n}}"


F = f"func.func private @f(%x: {M}) -> {M} {{ %0 = stablehlo.negate %x : {M}\n return %0 : {M} }}"
G = f"func.func private @g(%x: {M}) -> ({M}, {M}) {{ %0 = func.call @f(%x) : ({M}) -> {M}\n return %0, %x : {M}, {M} }}"
BACK = f"\nreturn %r : {M}"
TOKEN = "!stablehlo.token"
LAYOUT = "dense<[0, 1]> : tensor<2xindex>"


def call(rest: str, results: str = M, operands: str = "%a", types: str = M) -> str:
    return f"%r = stablehlo.custom_call {rest.replace('(', f'({operands}', 1)} : ({types}) -> {results}"


PROGRAMS: dict[str, str] = {
    "calls of functions": main(
        f"%0:2 = func.call @g(%a) : ({M}) -> ({M}, {M})\n%1 = func.call @f(%0#0) : ({M}) -> {M}\n"
        f"%r = stablehlo.add %0#1, %1 : {M}" + BACK, functions=F + "\n" + G),
    "composite": main(
        f'%r = stablehlo.composite "my.op" %a {{composite_attributes = {{a = "c"}}, version = 3 : i32, decomposition = @f}} : '
        f"({M}) -> {M}" + BACK, functions=F),
    "composite of several results": main(
        f'%0:2 = stablehlo.composite "my.op" %a {{decomposition = @g}} : ({M}) -> ({M}, {M})\n%r = stablehlo.add %0#0, %0#1 : {M}'
        + BACK, functions=F + "\n" + G),
    "a function of no results": main(
        f"func.call @h(%a) : ({M}) -> ()\n%r = stablehlo.negate %a : {M}" + BACK,
        functions=f"func.func private @h(%x: {M}) {{ stablehlo.custom_call @t(%x) {{has_side_effect = true}} : ({M}) -> ()\n"
        "return }"),
    "shardings": main(
        f'%r = stablehlo.exponential %a {{mhlo.sharding = "{{devices=[2,1]<=[2]}}"}} : {M}' + BACK,
        f'%a: {M} {{mhlo.sharding = "{{devices=[2,1]<=[2]}}"}}', f'{M} {{mhlo.sharding = "{{replicated}}"}}',
        attributes="attributes {mhlo.num_partitions = 2 : i32}"),
    "shardings of several results": main(
        f'%0:2 = func.call @g(%a) {{mhlo.sharding = "{{{{replicated}}, {{devices=[2,1]<=[2]}}}}"}} : ({M}) -> ({M}, {M})\n'
        f"%r = stablehlo.add %0#0, %0#1 : {M}" + BACK, functions=F + "\n" + G,
        attributes="attributes {mhlo.num_partitions = 2 : i32}"),
    "a sharding as a proto": main(
        f'%r = stablehlo.exponential %a {{mhlo.sharding = "\\08\\03\\1A\\02\\02\\01\\22\\02\\00\\01"}} : {M}' + BACK,
        attributes="attributes {mhlo.num_partitions = 2 : i32}"),
    "frontend attributes": main(
        f'%r = stablehlo.exponential %a {{mhlo.frontend_attributes = {{k = "v"}}}} : {M}' + BACK,
        f'%a: {M} {{mhlo.frontend_attributes = {{x = "y"}}}}', attributes='attributes {mhlo.frontend_attributes = {m = "n"}}'),
    "aliases and donors": main(
        f"%r = stablehlo.add %a, %b : {M}\nreturn %r, %c : {M}, {M}",
        f"%a: {M} {{tf.aliasing_output = 0 : i32}}, %b: {M} {{jax.buffer_donor = true}}, "
        f"%c: {M} {{tf.aliasing_output = 1 : i32}}",
        f"{M}, {M}"),
    "an alias of the only result": main(
        f"%r = stablehlo.negate %a : {M}" + BACK, f"%a: {M} {{tf.aliasing_output = 0 : i32}}"),
    "equal data in replicas": main(
        f"%r = stablehlo.negate %a : {M}" + BACK, f"%a: {M} {{mhlo.parameter_replication = [true]}}",
        attributes="attributes {mhlo.num_replicas = 2 : i32}"),
    "a loop that closes over values": main(
        f"""%one = stablehlo.constant dense<1> : tensor<i32>
  %0:2 = stablehlo.while(%x = %a, %i = %b) : {M}, tensor<i32>
    cond {{ %l = stablehlo.compare LT, %i, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %l : tensor<i1> }}
    do {{ %n = stablehlo.add %i, %one : tensor<i32>
      %y = stablehlo.add %x, %a : {M}
      stablehlo.return %y, %n : {M}, tensor<i32> }}
  %r = stablehlo.negate %0#0 : {M}""" + BACK, f"%a: {M}, %b: tensor<i32>"),
    "a loop of one value": main(
        """%one = stablehlo.constant dense<1> : tensor<i32>
  %r = stablehlo.while(%i = %a) : tensor<i32>
    cond { %l = stablehlo.compare LT, %i, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %l : tensor<i1> }
    do { %n = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %n : tensor<i32> }
  return %r : tensor<i32>""", "%a: tensor<i32>", "tensor<i32>"),
    "a loop in a loop": main(
        f"""%one = stablehlo.constant dense<1> : tensor<i32>
  %0:2 = stablehlo.while(%x = %a, %i = %b) : {M}, tensor<i32>
    cond {{ %l = stablehlo.compare LT, %i, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %l : tensor<i1> }}
    do {{ %2:2 = stablehlo.while(%y = %x, %j = %i) : {M}, tensor<i32>
        cond {{ %l = stablehlo.compare GT, %j, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %l : tensor<i1> }}
        do {{ %n = stablehlo.subtract %j, %one : tensor<i32>
          %z = stablehlo.multiply %y, %a : {M}
          stablehlo.return %z, %n : {M}, tensor<i32> }}
      %n = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %2#0, %n : {M}, tensor<i32> }}
  %r = stablehlo.negate %0#0 : {M}""" + BACK, f"%a: {M}, %b: tensor<i32>"),
    "branches that close over values": main(
        f"""%one = stablehlo.constant dense<1> : tensor<i32>
  %0:2 = "stablehlo.case"(%b) ({{ %z = stablehlo.negate %a : {M}
    stablehlo.return %z, %b : {M}, tensor<i32>}}, {{ stablehlo.return %a, %one : {M}, tensor<i32>}})
    : (tensor<i32>) -> ({M}, tensor<i32>)
  return %0#0, %0#1 : {M}, tensor<i32>""", f"%a: {M}, %b: tensor<i32>", f"{M}, tensor<i32>"),
    "a condition": main(
        f"""%r = "stablehlo.if"(%p) ({{ %z = stablehlo.negate %a : {M}
    stablehlo.return %z : {M}}}, {{ stablehlo.return %a : {M}}}) : (tensor<i1>) -> {M}""" + BACK, f"%a: {M}, %p: tensor<i1>"),
    "a known branch": main(
        f"""%c = stablehlo.constant dense<1> : tensor<i32>
  %r = "stablehlo.case"(%c) ({{ %z = stablehlo.negate %a : {M}
    stablehlo.return %z : {M}}}, {{ %z = stablehlo.exponential %a : {M}
    stablehlo.return %z : {M}}}) : (tensor<i32>) -> {M}""" + BACK),
    "barriers": main(
        f"%0:2 = stablehlo.optimization_barrier %a, %b : {M}, {M}\n%r = stablehlo.add %0#0, %0#1 : {M}" + BACK,
        f"%a: {M}, %b: {M}"),
    "a barrier of one value": main(f"%r = stablehlo.optimization_barrier %a : {M}" + BACK),
    "tuples": main(
        f'%0 = stablehlo.tuple %a, %b : tuple<{M}, tensor<i32>>\n'
        f"%r = stablehlo.get_tuple_element %0[0] : (tuple<{M}, tensor<i32>>) -> {M}" + BACK, f"%a: {M}, %b: tensor<i32>"),
    "tokens, feeds and channels": main(
        f"""%0 = stablehlo.create_token : {TOKEN}
  %1 = stablehlo.after_all %t, %0 : {TOKEN}
  %2:3 = "stablehlo.infeed"(%1) {{infeed_config = "c"}} : ({TOKEN}) -> ({M}, tensor<i32>, {TOKEN})
  %3 = "stablehlo.outfeed"(%a, %2#1, %2#2) {{outfeed_config = "d"}} : ({M}, tensor<i32>, {TOKEN}) -> {TOKEN}
  %4 = "stablehlo.send"(%a, %3) {{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}} : ({M}, {TOKEN}) -> {TOKEN}
  %5 = "stablehlo.send"(%a, %4) {{channel_handle = #stablehlo.channel_handle<handle = 2, type = 2>,
    is_host_transfer = true}} : ({M}, {TOKEN}) -> {TOKEN}
  %6:2 = "stablehlo.recv"(%5) {{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}} : ({TOKEN}) -> ({M}, {TOKEN})
  %7:2 = "stablehlo.recv"(%6#1) {{channel_handle = #stablehlo.channel_handle<handle = 3, type = 3>,
    is_host_transfer = true}} : ({TOKEN}) -> ({M}, {TOKEN})
  return %6#0, %7#0, %7#1 : {M}, {M}, {TOKEN}""", f"%a: {M}, %t: {TOKEN}", f"{M}, {M}, {TOKEN}"),
    "custom call": main(call('@t() {backend_config = "x", has_side_effect = true, api_version = 2 : i32}') + BACK),
    "custom call of a function": main(call("@t() {called_computations = [@f]}") + BACK, functions=F),
    "custom call with a dictionary": main(
        call(
        '@t() {backend_config = {a = array<i32: 1, 2>, b = "s", c = true, d = array<i64: 3>, e = 76 : ui8, f = 0.1 : f32,'
        " g = [1, 2.5], h = {k = 1 : i64}, m = dense<1> : tensor<2xi32>, n = 3 : i32, o = 0.5, p = 0x7F800000 : f32},"
        " api_version = 4 : i32}") + BACK),
    "custom call with a dictionary beside it": main(call("@t() {mhlo.backend_config = {n = 3 : i64}}") + BACK),
    "custom call with layouts": main(call(
        f"@t() {{operand_layouts = [{LAYOUT}], result_layouts = [{LAYOUT}], output_operand_aliases = "
        "[#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>]}") + BACK),
    "custom call of several results": main(
        f"%0:2 = stablehlo.custom_call @t(%a) {{operand_layouts = [{LAYOUT}], result_layouts = [{LAYOUT}, {LAYOUT}]}} "
        f": ({M}) -> ({M}, {M})\n"
        f"%r = stablehlo.add %0#0, %0#1 : {M}" + BACK),
    "custom call of no results": main(
        f"stablehlo.custom_call @t(%a) {{has_side_effect = true}} : ({M}) -> ()\n%r = stablehlo.negate %a : {M}" + BACK),
    "custom call that is topk": main(
        f"%0:2 = stablehlo.custom_call @mhlo.topk(%a) {{mhlo.attributes = {{k = 2 : i64, largest = true}}, "
        f"mhlo.version = 1 : i64}} : ({M}) -> (tensor<2x2xf32>, tensor<2x2xi32>)\nreturn %0#0 : tensor<2x2xf32>",
        results="tensor<2x2xf32>"),
    "accuracy": main(
        f"%0 = stablehlo.exponential %a {{result_accuracy = #stablehlo.result_accuracy<ulps = 10, "
        f"mode = #stablehlo.result_accuracy_mode<TOLERANCE>>}} : {M}\n"
        f"%r = stablehlo.tanh %0 {{result_accuracy = #stablehlo.result_accuracy<mode = "
        f"#stablehlo.result_accuracy_mode<HIGHEST>>}} : {M}" + BACK),
    "a product with an algorithm": main(
        f"""%r = stablehlo.dot_general %a, %a, contracting_dims = [1] x [1], algorithm = <lhs_precision_type = tf32,
    rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1,
    num_primitive_operations = 3, allow_imprecise_accumulation = false> : ({M}, {M}) -> tensor<2x2xf32>
  return %r : tensor<2x2xf32>""", results="tensor<2x2xf32>"),
    "a product with precision": main(
        f"%r = stablehlo.dot_general %a, %a, contracting_dims = [1] x [1], precision = [HIGHEST, DEFAULT] : ({M}, {M}) -> "
        "tensor<2x2xf64>\nreturn %r : tensor<2x2xf64>", results="tensor<2x2xf64>"),
    "bounded sizes": main(
        "%0 = stablehlo.set_dimension_size %a, %n, dim = 0 : (tensor<4xf32>, tensor<i32>) -> "
        "tensor<?xf32, #stablehlo.bounds<4>>\n"
        "%1 = stablehlo.add %0, %0 : tensor<?xf32, #stablehlo.bounds<4>>\n"
        "%2 = stablehlo.get_dimension_size %1, dim = 0 : (tensor<?xf32, #stablehlo.bounds<4>>) -> tensor<i32>\n"
        "return %2 : tensor<i32>", "%a: tensor<4xf32>, %n: tensor<i32>", "tensor<i32>"),
    "mhlo's spelling": main(
        f'%0 = "mhlo.add"(%a, %a) : ({M}, {M}) -> {M}\n%1 = mhlo.erf %0 : {M}\n%r = "mhlo.copy"(%1) : ({M}) -> {M}' + BACK),
    "mhlo's functions": main(
        f"%0 = mhlo.tan %a : {M}\n%1 = mhlo.sinh %0 : {M}\n%2 = mhlo.acosh %1 : {M}\n"
        f'%r = "mhlo.stochastic_convert"(%2, %u) : ({M}, tensor<2x3xui32>) -> tensor<2x3xbf16>\nreturn %r : tensor<2x3xbf16>',
        f"%a: {M}, %u: tensor<2x3xui32>", "tensor<2x3xbf16>"),
    "mhlo's state of random numbers": main(
        '%r = "mhlo.xla.rng_get_and_update_state"() {delta = 1 : i64} : () -> tensor<2xui64>\nreturn %r : tensor<2xui64>', "",
        "tensor<2xui64>"),
    "mhlo's fusion": main(
        f'%r = "mhlo.fusion"(%a, %a) ({{ ^bb0(%x: {M}, %y: {M}): %0 = mhlo.add %x, %y : {M}\n'
        f'"mhlo.return"(%0) : ({M}) -> () }}) '
        f"{{fusion_kind = #mhlo<fusion_kind kLoop>}} : ({M}, {M}) -> {M}" + BACK),
    "Shardy's meshes": main(
        f'%r = stablehlo.negate %a {{sdy.sharding = #sdy.sharding_per_value<[<@m, [{{"x"}}, {{}}]>]>}} : {M}' + BACK,
        f'%a: {M} {{sdy.sharding = #sdy.sharding<@m, [{{"x"}}, {{}}]>}}',
        f'{M} {{sdy.sharding = #sdy.sharding<@m, [{{}}, {{}}]>}}',
        functions='sdy.mesh @m = <["x"=2]>', attributes="attributes {mhlo.num_partitions = 2 : i32}"),
    "Shardy's constraint": main(
        f'%r = sdy.sharding_constraint %a <@m, [{{"x"}}, {{}}]> : {M}' + BACK,
        functions='sdy.mesh @m = <["x"=2]>', attributes="attributes {mhlo.num_partitions = 2 : i32}"),
    "Shardy's manual computation": main(
        f"""%r = sdy.manual_computation(%a) in_shardings=[<@m, [{{"x"}}, {{}}]>] out_shardings=[<@m, [{{"x"}}, {{}}]>]
    manual_axes={{"x"}} (%b: tensor<1x3xf32>) {{ %0 = stablehlo.negate %b : tensor<1x3xf32>
    sdy.return %0 : tensor<1x3xf32> }} : ({M}) -> {M}""" + BACK,
        functions='sdy.mesh @m = <["x"=2]>', attributes="attributes {mhlo.num_partitions = 2 : i32}"),
}
"""Programs by what they are about."""
