// What the readers of MLIR are compared on: operations, attributes and types of StableHLO and its kin.
// ===== cbrt of some accuracy
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.cbrt %a {result_accuracy = #stablehlo.result_accuracy<atol = 1.0e-5, ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<4x8xf32>
%s = stablehlo.cbrt %a : tensor<4x8xf32>
return
}
// ===== cosine of some accuracy
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.cosine %a {result_accuracy = #stablehlo.result_accuracy<atol = 1.0e-5, ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<4x8xf32>
%s = stablehlo.cosine %a : tensor<4x8xf32>
return
}
// ===== exponential of some accuracy
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.exponential %a {result_accuracy = #stablehlo.result_accuracy<atol = 1.0e-5, ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<4x8xf32>
%s = stablehlo.exponential %a : tensor<4x8xf32>
return
}
// ===== exponential_minus_one of some accuracy
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.exponential_minus_one %a {result_accuracy = #stablehlo.result_accuracy<atol = 1.0e-5, ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<4x8xf32>
%s = stablehlo.exponential_minus_one %a : tensor<4x8xf32>
return
}
// ===== log of some accuracy
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.log %a {result_accuracy = #stablehlo.result_accuracy<atol = 1.0e-5, ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<4x8xf32>
%s = stablehlo.log %a : tensor<4x8xf32>
return
}
// ===== log_plus_one of some accuracy
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.log_plus_one %a {result_accuracy = #stablehlo.result_accuracy<atol = 1.0e-5, ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<4x8xf32>
%s = stablehlo.log_plus_one %a : tensor<4x8xf32>
return
}
// ===== logistic of some accuracy
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.logistic %a {result_accuracy = #stablehlo.result_accuracy<atol = 1.0e-5, ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<4x8xf32>
%s = stablehlo.logistic %a : tensor<4x8xf32>
return
}
// ===== rsqrt of some accuracy
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.rsqrt %a {result_accuracy = #stablehlo.result_accuracy<atol = 1.0e-5, ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<4x8xf32>
%s = stablehlo.rsqrt %a : tensor<4x8xf32>
return
}
// ===== sine of some accuracy
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.sine %a {result_accuracy = #stablehlo.result_accuracy<atol = 1.0e-5, ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<4x8xf32>
%s = stablehlo.sine %a : tensor<4x8xf32>
return
}
// ===== sqrt of some accuracy
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.sqrt %a {result_accuracy = #stablehlo.result_accuracy<atol = 1.0e-5, ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<4x8xf32>
%s = stablehlo.sqrt %a : tensor<4x8xf32>
return
}
// ===== tan of some accuracy
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.tan %a {result_accuracy = #stablehlo.result_accuracy<atol = 1.0e-5, ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<4x8xf32>
%s = stablehlo.tan %a : tensor<4x8xf32>
return
}
// ===== tanh of some accuracy
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.tanh %a {result_accuracy = #stablehlo.result_accuracy<atol = 1.0e-5, ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<4x8xf32>
%s = stablehlo.tanh %a : tensor<4x8xf32>
return
}
// ===== constants of f64
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1.0, 2.0], [0.5, 0.0]]> : tensor<2x2xf64>
%s = stablehlo.constant dense<1.0> : tensor<3xf64>
%t = stablehlo.constant dense<[]> : tensor<0xf64>
return
}
// ===== constants of f32
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1.0, 2.0], [0.5, 0.0]]> : tensor<2x2xf32>
%s = stablehlo.constant dense<1.0> : tensor<3xf32>
%t = stablehlo.constant dense<[]> : tensor<0xf32>
return
}
// ===== constants of f16
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1.0, 2.0], [0.5, 0.0]]> : tensor<2x2xf16>
%s = stablehlo.constant dense<1.0> : tensor<3xf16>
%t = stablehlo.constant dense<[]> : tensor<0xf16>
return
}
// ===== constants of bf16
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1.0, 2.0], [0.5, 0.0]]> : tensor<2x2xbf16>
%s = stablehlo.constant dense<1.0> : tensor<3xbf16>
%t = stablehlo.constant dense<[]> : tensor<0xbf16>
return
}
// ===== constants of f8E5M2
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1.0, 2.0], [0.5, 0.0]]> : tensor<2x2xf8E5M2>
%s = stablehlo.constant dense<1.0> : tensor<3xf8E5M2>
%t = stablehlo.constant dense<[]> : tensor<0xf8E5M2>
return
}
// ===== constants of f8E4M3
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1.0, 2.0], [0.5, 0.0]]> : tensor<2x2xf8E4M3>
%s = stablehlo.constant dense<1.0> : tensor<3xf8E4M3>
%t = stablehlo.constant dense<[]> : tensor<0xf8E4M3>
return
}
// ===== constants of f8E4M3FN
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1.0, 2.0], [0.5, 0.0]]> : tensor<2x2xf8E4M3FN>
%s = stablehlo.constant dense<1.0> : tensor<3xf8E4M3FN>
%t = stablehlo.constant dense<[]> : tensor<0xf8E4M3FN>
return
}
// ===== constants of f8E4M3FNUZ
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1.0, 2.0], [0.5, 0.0]]> : tensor<2x2xf8E4M3FNUZ>
%s = stablehlo.constant dense<1.0> : tensor<3xf8E4M3FNUZ>
%t = stablehlo.constant dense<[]> : tensor<0xf8E4M3FNUZ>
return
}
// ===== constants of f8E4M3B11FNUZ
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1.0, 2.0], [0.5, 0.0]]> : tensor<2x2xf8E4M3B11FNUZ>
%s = stablehlo.constant dense<1.0> : tensor<3xf8E4M3B11FNUZ>
%t = stablehlo.constant dense<[]> : tensor<0xf8E4M3B11FNUZ>
return
}
// ===== constants of f8E5M2FNUZ
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1.0, 2.0], [0.5, 0.0]]> : tensor<2x2xf8E5M2FNUZ>
%s = stablehlo.constant dense<1.0> : tensor<3xf8E5M2FNUZ>
%t = stablehlo.constant dense<[]> : tensor<0xf8E5M2FNUZ>
return
}
// ===== constants of f8E3M4
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1.0, 2.0], [0.5, 0.0]]> : tensor<2x2xf8E3M4>
%s = stablehlo.constant dense<1.0> : tensor<3xf8E3M4>
%t = stablehlo.constant dense<[]> : tensor<0xf8E3M4>
return
}
// ===== constants of f8E8M0FNU
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<1.0> : tensor<3xf8E8M0FNU>
return
}
// ===== constants of f4E2M1FN
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1.0, 2.0], [0.5, 0.0]]> : tensor<2x2xf4E2M1FN>
%s = stablehlo.constant dense<1.0> : tensor<3xf4E2M1FN>
%t = stablehlo.constant dense<[]> : tensor<0xf4E2M1FN>
return
}
// ===== constants of i1
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1, 0], [0, 1]]> : tensor<2x2xi1>
%s = stablehlo.constant dense<1> : tensor<3xi1>
%u = stablehlo.constant dense<0> : tensor<i1>
return
}
// ===== constants of i2
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1, 0], [0, 1]]> : tensor<2x2xi2>
%s = stablehlo.constant dense<1> : tensor<3xi2>
%u = stablehlo.constant dense<0> : tensor<i2>
return
}
// ===== constants of i4
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1, 0], [0, 1]]> : tensor<2x2xi4>
%s = stablehlo.constant dense<1> : tensor<3xi4>
%u = stablehlo.constant dense<0> : tensor<i4>
return
}
// ===== constants of i8
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1, 0], [0, 1]]> : tensor<2x2xi8>
%s = stablehlo.constant dense<1> : tensor<3xi8>
%u = stablehlo.constant dense<0> : tensor<i8>
return
}
// ===== constants of i16
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1, 0], [0, 1]]> : tensor<2x2xi16>
%s = stablehlo.constant dense<1> : tensor<3xi16>
%u = stablehlo.constant dense<0> : tensor<i16>
return
}
// ===== constants of i32
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1, 0], [0, 1]]> : tensor<2x2xi32>
%s = stablehlo.constant dense<1> : tensor<3xi32>
%u = stablehlo.constant dense<0> : tensor<i32>
return
}
// ===== constants of i64
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1, 0], [0, 1]]> : tensor<2x2xi64>
%s = stablehlo.constant dense<1> : tensor<3xi64>
%u = stablehlo.constant dense<0> : tensor<i64>
return
}
// ===== constants of ui2
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1, 0], [0, 1]]> : tensor<2x2xui2>
%s = stablehlo.constant dense<1> : tensor<3xui2>
%u = stablehlo.constant dense<0> : tensor<ui2>
return
}
// ===== constants of ui4
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1, 0], [0, 1]]> : tensor<2x2xui4>
%s = stablehlo.constant dense<1> : tensor<3xui4>
%u = stablehlo.constant dense<0> : tensor<ui4>
return
}
// ===== constants of ui8
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1, 0], [0, 1]]> : tensor<2x2xui8>
%s = stablehlo.constant dense<1> : tensor<3xui8>
%u = stablehlo.constant dense<0> : tensor<ui8>
return
}
// ===== constants of ui16
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1, 0], [0, 1]]> : tensor<2x2xui16>
%s = stablehlo.constant dense<1> : tensor<3xui16>
%u = stablehlo.constant dense<0> : tensor<ui16>
return
}
// ===== constants of ui32
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1, 0], [0, 1]]> : tensor<2x2xui32>
%s = stablehlo.constant dense<1> : tensor<3xui32>
%u = stablehlo.constant dense<0> : tensor<ui32>
return
}
// ===== constants of ui64
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[[1, 0], [0, 1]]> : tensor<2x2xui64>
%s = stablehlo.constant dense<1> : tensor<3xui64>
%u = stablehlo.constant dense<0> : tensor<ui64>
return
}
// ===== many booleans
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[true, false, true, true, false, false, true, false, true, true]> : tensor<10xi1>
%s = stablehlo.constant dense<true> : tensor<100xi1>
%t = stablehlo.constant dense<true> : tensor<1xi1>
%u = stablehlo.constant dense<true> : tensor<8xi1>
return
}
// ===== complex constants
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.constant dense<[(1.0, 2.0), (3.0, -4.0)]> : tensor<2xcomplex<f32>>
%s = stablehlo.constant dense<(1.0, 2.0)> : tensor<7xcomplex<f64>>
return
}
// ===== attributes
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.abs %a {a.i = 5 : i8, a.n = -7 : i64, a.u = 200 : ui8, a.f = 0.5 : f32, a.h = 1.5 : f16, a.t = true, a.s = "text \22 \C3\A4", a.l = [1, "x", [true]], a.d = {k = 1 : i32, m = {n = "o"}}, a.y = tensor<2x?xf32>, a.z = dense<[[1, 2]]> : tensor<1x2xi32>} : tensor<4x8xf32>
return
}
// ===== builtin attributes
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.abs %a {a.w, a.g = @main, a.h = @main::@inner, a.x = 3 : index, a.b = "\FF\00", a.q = array<i64: 1, -2>, a.v = array<i1: true, false>, a.k = array<f32: 1.5>, a.p = 5 : si8, a.r = (i32, index) -> tuple<f32, none>, a.e = dense<[1, 2]> : tensor<2xindex>, a.j = vector<2xf32>} : tensor<4x8xf32>
return
}
// ===== types
func.func @main(%a: tensor<?x3xf32, #stablehlo.bounds<4, ?>>, %b: tuple<tensor<2xf32>, tuple<>, !stablehlo.token>, %c: tensor<*xf32>, %d: !stablehlo.token, %e: tensor<complex<f64>>) {
return
}
// ===== other types
func.func @main(%a: index, %b: none, %c: memref<2x?xf32>, %d: vector<2xi8>, %e: tensor<2xindex>, %f: i3, %g: !shape.shape, %h: complex<bf16>, %i: tensor<2xi3>, %j: !quant.uniform<i8:f32, 0.5>) {
return
}
// ===== quantized
func.func @main(%a: tensor<2x!quant.uniform<i8:f32, 0.5:3>>, %b: tensor<2x!quant.uniform<u8<1:200>:f32, 0.1>>, %c: tensor<2x2x!quant.uniform<i8:f32:1, {0.5:1, 0.25:-3}>>, %d: tensor<2x!quant.uniform<i4:bf16, 2.0>>) {
return
}
// ===== quantized by blocks
func.func @main(%a: tensor<2x4x!quant.uniform<i8:f32:{0:1, 1:2}, {{0.5:1, 0.25}, {1.0, 2.0:-3}}>>) {
return
}
// ===== functions
module @m attributes {jax.x = 1 : i32} {
func.func public @main(%a: tensor<f32> {jax.arg_info = "a"}, %b: tensor<f32>) -> (tensor<f32> {jax.result_info = "r"}) {
%r = call @f(%a) : (tensor<f32>) -> tensor<f32>
return %r : tensor<f32>
}
func.func private @f(%a: tensor<f32>) -> tensor<f32> {
return %a : tensor<f32>
}
}
// ===== locations
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.abs %a : tensor<4x8xf32> loc("jit(f)/abs"("file.py":3:4))
%s = stablehlo.abs %a : tensor<4x8xf32> loc(callsite("f"("a.py":1:2) at callsite("b.py":3:4 at "c.py":5:6)))
%t = stablehlo.abs %a : tensor<4x8xf32> loc(fused["x", "y"("d.py":7:8)])
%u = stablehlo.abs %a : tensor<4x8xf32> loc(unknown)
return
}
// ===== gather
func.func @main(%a: tensor<4x8xf32>) {
%i = stablehlo.constant dense<0> : tensor<4x2x1xi32>
%r = "stablehlo.gather"(%a, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 3>, indices_are_sorted = true}> : (tensor<4x8xf32>, tensor<4x2x1xi32>) -> tensor<4x2x3xf32>
return
}
// ===== gather without batch
func.func @main(%a: tensor<4x8xf32>) {
%i = stablehlo.constant dense<0> : tensor<2xi32>
%r = "stablehlo.gather"(%a, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 8>}> : (tensor<4x8xf32>, tensor<2xi32>) -> tensor<2x8xf32>
return
}
// ===== dynamic gather
func.func @main(%a: tensor<4x8xf32>) {
%i = stablehlo.constant dense<0> : tensor<2xi32>
%s = stablehlo.constant dense<[1, 8]> : tensor<2xi32>
%r = "stablehlo.dynamic_gather"(%a, %i, %s) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = true}> : (tensor<4x8xf32>, tensor<2xi32>, tensor<2xi32>) -> tensor<2x8xf32>
return
}
// ===== scatter
func.func @main(%a: tensor<4x8xf32>) {
%i = stablehlo.constant dense<0> : tensor<4x1xi32>
%u = stablehlo.constant dense<1.0> : tensor<4xf32>
%r = "stablehlo.scatter"(%a, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 1>, unique_indices = true}> ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>): %z = stablehlo.add %x, %y : tensor<f32> stablehlo.return %z : tensor<f32> }) : (tensor<4x8xf32>, tensor<4x1xi32>, tensor<4xf32>) -> tensor<4x8xf32>
return
}
// ===== convolution
func.func @main(%a: tensor<1x8x8x3xf32>) {
%k = stablehlo.constant dense<1.0> : tensor<3x3x3x8xf32>
%r = "stablehlo.convolution"(%a, %k) <{batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64, lhs_dilation = array<i64: 1, 2>, padding = dense<1> : tensor<2x2xi64>, precision_config = [#stablehlo<precision HIGH>, #stablehlo<precision DEFAULT>], rhs_dilation = array<i64: 1, 1>, window_reversal = array<i1: false, true>, window_strides = array<i64: 2, 1>}> : (tensor<1x8x8x3xf32>, tensor<3x3x3x8xf32>) -> tensor<1x4x15x8xf32>
return
}
// ===== dynamic convolution
func.func @main(%a: tensor<1x8x8x3xf32>) {
%k = stablehlo.constant dense<1.0> : tensor<3x3x3x8xf32>
%p = stablehlo.constant dense<1> : tensor<2x2xi32>
%r = "stablehlo.dynamic_conv"(%a, %k, %p) <{batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64, window_strides = array<i64: 2, 2>}> : (tensor<1x8x8x3xf32>, tensor<3x3x3x8xf32>, tensor<2x2xi32>) -> tensor<1x?x?x8xf32>
return
}
// ===== dot with an algorithm
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.dot_general %a, %a, contracting_dims = [1] x [1], algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
return
}
// ===== custom calls
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.custom_call @foo(%a) {api_version = 4 : i32, backend_config = {a = 1 : i64, b = "x"}} : (tensor<4x8xf32>) -> tensor<4x8xf32>
%s = stablehlo.custom_call @bar(%a) {backend_config = "opaque", has_side_effect = true, called_computations = [@f], operand_layouts = [dense<[0, 1]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>]} : (tensor<4x8xf32>) -> tensor<4x8xf32>
return
}
func.func private @f(%a: tensor<f32>) -> tensor<f32> {
return %a : tensor<f32>
}
// ===== composite
func.func @main(%a: tensor<4x8xf32>) {
%r = stablehlo.composite "my.op" %a {composite_attributes = {k = 1 : i64}, decomposition = @f, version = 2 : i32} : (tensor<4x8xf32>) -> tensor<4x8xf32>
%s = stablehlo.composite "my.op" %a {decomposition = @f} : (tensor<4x8xf32>) -> tensor<4x8xf32>
return
}
func.func private @f(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
return %a : tensor<4x8xf32>
}
// ===== all_reduce
func.func @main(%a: tensor<4x8xf32>) {
%r = "stablehlo.all_reduce"(%a) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>): %z = stablehlo.add %x, %y : tensor<f32> stablehlo.return %z : tensor<f32> }) : (tensor<4x8xf32>) -> tensor<4x8xf32>
%s = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>): %z = stablehlo.add %x, %y : tensor<f32> stablehlo.return %z : tensor<f32> }) : (tensor<4x8xf32>) -> tensor<4x8xf32>
return
}
// ===== variadic all_reduce
func.func @main(%a: tensor<4x8xf32>) {
%r:2 = "stablehlo.all_reduce"(%a, %a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>): %z = stablehlo.add %x, %y : tensor<f32> stablehlo.return %z : tensor<f32> }) : (tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
return
}
// ===== all_gather
func.func @main(%a: tensor<4x8xf32>) {
%r = "stablehlo.all_gather"(%a) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 5, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> : (tensor<4x8xf32>) -> tensor<4x16xf32>
return
}
// ===== all_to_all
func.func @main(%a: tensor<4x8xf32>) {
%r = "stablehlo.all_to_all"(%a) <{concat_dimension = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 5, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, split_count = 2 : i64, split_dimension = 1 : i64}> : (tensor<4x8xf32>) -> tensor<8x4xf32>
return
}
// ===== reduce_scatter
func.func @main(%a: tensor<4x8xf32>) {
%r = "stablehlo.reduce_scatter"(%a) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, scatter_dimension = 0 : i64, use_global_device_ids}> ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>): %z = stablehlo.add %x, %y : tensor<f32> stablehlo.return %z : tensor<f32> }) : (tensor<4x8xf32>) -> tensor<2x8xf32>
return
}
// ===== collective_permute
func.func @main(%a: tensor<4x8xf32>) {
%r = "stablehlo.collective_permute"(%a) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 1>, source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
return
}
// ===== collective_broadcast
func.func @main(%a: tensor<4x8xf32>) {
%r = "stablehlo.collective_broadcast"(%a) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
return
}
// ===== replica groups of a mesh
module {
sdy.mesh @mesh = <["x"=2]>
func.func @main(%a: tensor<4x8xf32>) {
%r = "stablehlo.all_reduce"(%a) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "x">]>}> ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>): %z = stablehlo.add %x, %y : tensor<f32> stablehlo.return %z : tensor<f32> }) : (tensor<4x8xf32>) -> tensor<4x8xf32>
return
}
}
// ===== transfers
func.func @main(%a: tensor<4x8xf32>) {
%t = stablehlo.create_token : !stablehlo.token
%u = "stablehlo.send"(%a, %t) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 2>, is_host_transfer = true}> : (tensor<4x8xf32>, !stablehlo.token) -> !stablehlo.token
%v:2 = "stablehlo.recv"(%u) <{channel_handle = #stablehlo.channel_handle<handle = 6, type = 3>, is_host_transfer = true}> : (!stablehlo.token) -> (tensor<4x8xf32>, !stablehlo.token)
return
}
// ===== transfers between devices
func.func @main(%a: tensor<4x8xf32>) {
%t = stablehlo.create_token : !stablehlo.token
%u = "stablehlo.send"(%a, %t) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<4x8xf32>, !stablehlo.token) -> !stablehlo.token
return
}
// ===== feeds
func.func @main(%a: tensor<4x8xf32>) {
%t = stablehlo.after_all : !stablehlo.token
%r:2 = "stablehlo.infeed"(%t) <{infeed_config = "c", layout = [[1, 0]]}> : (!stablehlo.token) -> (tensor<2x2xf32>, !stablehlo.token)
%s = "stablehlo.outfeed"(%a, %r#1) <{outfeed_config = "d"}> : (tensor<4x8xf32>, !stablehlo.token) -> !stablehlo.token
return
}
// ===== windows
func.func @main(%a: tensor<4x8xf32>) {
%s = stablehlo.constant dense<0.0> : tensor<f32>
%r = "stablehlo.reduce_window"(%a, %s) <{window_dimensions = array<i64: 1, 3>, padding = dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>}> ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>): %z = stablehlo.add %x, %y : tensor<f32> stablehlo.return %z : tensor<f32> }) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
return
}
// ===== windows of all kinds
func.func @main(%a: tensor<4x8xf32>) {
%s = stablehlo.constant dense<0.0> : tensor<f32>
%r = "stablehlo.reduce_window"(%a, %s) <{window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>, base_dilations = array<i64: 1, 2>, window_dilations = array<i64: 1, 1>, padding = dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>}> ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>): %z = stablehlo.add %x, %y : tensor<f32> stablehlo.return %z : tensor<f32> }) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
return
}
// ===== sorts
func.func @main(%a: tensor<4x8xf32>) {
%r = "stablehlo.sort"(%a) <{dimension = 0 : i64, is_stable = true}> ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>): %z = stablehlo.compare LT, %x, %y, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1> stablehlo.return %z : tensor<i1> }) : (tensor<4x8xf32>) -> tensor<4x8xf32>
return
}
// ===== old forms
func.func @main(%a: tensor<4x8xf32>, %b: tensor<8x4xf32>) {
%r = "stablehlo.dot"(%a, %b) <{precision_config = [#stablehlo<precision HIGH>, #stablehlo<precision HIGH>]}> : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
%s = "stablehlo.einsum"(%a, %b) <{einsum_config = "ab,bc->ac"}> : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
%t = "stablehlo.unary_einsum"(%a) <{einsum_config = "ab->ba"}> : (tensor<4x8xf32>) -> tensor<8x4xf32>
%u = "stablehlo.broadcast"(%a) <{broadcast_sizes = array<i64: 2>}> : (tensor<4x8xf32>) -> tensor<2x4x8xf32>
%v = "stablehlo.cross-replica-sum"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
%i = stablehlo.constant dense<0> : tensor<2xi32>
%w = "stablehlo.torch_index_select"(%a, %i) <{batch_dims = 0 : i64, dim = 0 : i64}> : (tensor<4x8xf32>, tensor<2xi32>) -> tensor<2x8xf32>
return
}
// ===== dynamic broadcast
func.func @main(%a: tensor<4x8xf32>) {
%s = stablehlo.constant dense<[2, 4, 8]> : tensor<3xi32>
%r = "stablehlo.dynamic_broadcast_in_dim"(%a, %s) <{broadcast_dimensions = array<i64: 1, 2>, known_expanding_dimensions = array<i64>, known_nonexpanding_dimensions = array<i64: 0, 1>}> : (tensor<4x8xf32>, tensor<3xi32>) -> tensor<?x4x8xf32>
return
}
// ===== chlo
func.func @main(%a: tensor<4x8xf32>) {
%r:2 = chlo.top_k(%a, k = 2) : tensor<4x8xf32> -> (tensor<4x2xf32>, tensor<4x2xi32>)
%s = chlo.broadcast_compare %a, %a {compare_type = #chlo<comparison_type FLOAT>, comparison_direction = #chlo<comparison_direction GT>} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xi1>
%t = chlo.erf_inv %a : tensor<4x8xf32> -> tensor<4x8xf32>
return
}
// ===== mhlo
func.func @main(%a: tensor<4x8xf32>) {
%r = "mhlo.dot_general"(%a, %a) <{dot_dimension_numbers = #mhlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>, precision_config = [#mhlo<precision HIGH>, #mhlo<precision HIGH>]}> : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
%s = "mhlo.compare"(%a, %a) <{comparison_direction = #mhlo<comparison_direction EQ>}> : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xi1>
return
}
// ===== shardy
module {
sdy.mesh @mesh = <["x"=2, "y"=4, "z"=4]>
sdy.mesh @one = <[], device_ids=[3]>
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", "y":(1)2}, {?}]>}, %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}p1, {}], replicated={"y"}, unreduced={"z"}>}) -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<mesh<["x"=2]>, [{}, {}]>}) {
%0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"x"}]>]>, sdy.sharding_rule = #sdy.op_sharding_rule<([i, l], [l, jk])->([i, jk]) {i=8, j=2, k=4, l=8} reduction={l}, custom>} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
%1 = sdy.manual_computation(%0) in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x"} (%q: tensor<4x8xf32>) {
sdy.return %q : tensor<4x8xf32>
} : (tensor<8x8xf32>) -> tensor<8x8xf32>
%2 = sdy.all_gather [{"x"}, {}] %1 out_sharding=<@mesh, [{}, {}]> : tensor<8x8xf32>
%3 = sdy.sharding_constraint %2 <@mesh, [{"y"}, {}]> : tensor<8x8xf32>
sdy.sharding_group %3 group_id=3 : tensor<8x8xf32>
%4 = sdy.reshard %3 <@mesh, [{}, {}]> : tensor<8x8xf32>
return %4 : tensor<8x8xf32>
}
}
// ===== shapes
func.func @main(%a: tensor<?x8xf32>) {
%c = arith.constant 3 : index
%d = shape.shape_of %a : tensor<?x8xf32> -> tensor<2xindex>
%e = tensor.dim %a, %c : tensor<?x8xf32>
%f = arith.addi %e, %c : index
%g = arith.cmpi eq, %f, %c : index
%h = tensor.from_elements %f, %c : tensor<2xindex>
%i = arith.index_cast %c : index to i64
%j = shape.const_shape [1, 2] : tensor<2xindex>
%k = shape.cstr_broadcastable %d, %j : tensor<2xindex>, tensor<2xindex>
%l = arith.addi %i, %i overflow<nsw> : i64
return
}
// ===== ragged dot
func.func @main(%a: tensor<4x8xf32>, %b: tensor<3x8x5xf32>, %g: tensor<3xi32>) {
%r = "chlo.ragged_dot"(%a, %b, %g) <{precision_config = [#chlo<precision DEFAULT>, #chlo<precision HIGHEST>], ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>}> : (tensor<4x8xf32>, tensor<3x8x5xf32>, tensor<3xi32>) -> tensor<4x5xf32>
return
}
// ===== more of chlo
func.func @main(%a: tensor<4x8xf32>, %b: tensor<8xf32>) {
%r = chlo.broadcast_add %a, %b {broadcast_dimensions = array<i64: 1>} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
%s = "chlo.constant_like"(%a) <{value = 2.5 : f32}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
%t = chlo.constant dense<[1, 2]> : tensor<2xi32>
%u = chlo.is_inf %a : tensor<4x8xf32> -> tensor<4x8xi1>
%v = chlo.next_after %a, %a : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
return
}
// ===== more of mhlo
func.func @main(%a: tensor<4x8xf32>) attributes {mhlo.alias = #mhlo.result_alias<result_index = [2], must_alias>} {
%r:2 = "mhlo.topk"(%a) <{k = 2 : i64, largest = true}> : (tensor<4x8xf32>) -> (tensor<4x2xf32>, tensor<4x2xi32>)
%s = "mhlo.copy"(%a) : (tensor<4x8xf32>) -> tensor<4x8xf32>
%t = "mhlo.fusion"(%a) <{fusion_kind = #mhlo<fusion_kind kLoop>}> ({
^bb0(%x: tensor<4x8xf32>):
  mhlo.return %x : tensor<4x8xf32>
}) : (tensor<4x8xf32>) -> tensor<4x8xf32>
%u = "mhlo.domain"(%a) <{entry_metadata = "a", exit_metadata = "b", kind = #mhlo<kind sharding>}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
%v = mhlo.custom_call @f(%a) {custom_call_schedule = #mhlo<custom_call_schedule LATEST>, backend_config = {a = 1 : i32}, api_version = 4 : i32} : (tensor<4x8xf32>) -> tensor<4x8xf32>
%w = "mhlo.exponential"(%a) <{result_accuracy = #mhlo.result_accuracy<atol = 1.0e-5, mode = #mhlo.result_accuracy_mode<TOLERANCE>>}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
%t0 = mhlo.create_token : !mhlo.token
return
}
// ===== operations of no dialect that is known
module {
%0:2 = "test.foo"() ({
^bb0(%x: f32, %y: i32):
  "test.bar"(%y, %x) : (i32, f32) -> ()
}, {
}) {a = 1 : i32, b = "c"} : () -> (i32, f32)
"test.baz"(%0#1, %0#0) : (f32, i32) -> ()
}
// ===== control flow
func.func @main(%a: tensor<i32>, %p: tensor<i1>) {
%r = "stablehlo.case"(%a) ({
  %k = stablehlo.constant dense<1> : tensor<i32>
  stablehlo.return %k : tensor<i32>
}, {
  stablehlo.return %a : tensor<i32>
}) : (tensor<i32>) -> tensor<i32>
%s:2 = stablehlo.while(%i = %a, %j = %r) : tensor<i32>, tensor<i32> cond {
  %c = stablehlo.compare LT, %i, %r, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.return %c : tensor<i1>
} do {
  %n = "stablehlo.if"(%p) ({
    %o = stablehlo.add %i, %j : tensor<i32>
    stablehlo.return %o : tensor<i32>
  }, {
    stablehlo.return %j : tensor<i32>
  }) : (tensor<i1>) -> tensor<i32>
  stablehlo.return %n, %i : tensor<i32>, tensor<i32>
}
%q = stablehlo.optimization_barrier %s#1 : tensor<i32>
return
}
// ===== random numbers and linear algebra
func.func @main(%k: tensor<2xui64>, %a: tensor<3x3xf32>, %z: tensor<f32>, %n: tensor<2xi64>) {
%r:2 = stablehlo.rng_bit_generator %k, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui32>)
%s = stablehlo.rng %z, %z, %n, distribution = NORMAL : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<2x2xf32>
%t = stablehlo.cholesky %a, lower = true : tensor<3x3xf32>
%u = "stablehlo.triangular_solve"(%a, %a) <{left_side = true, lower = false, transpose_a = #stablehlo<transpose ADJOINT>, unit_diagonal = true}> : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
%c = stablehlo.complex %a, %a : tensor<3x3xcomplex<f32>>
%v = stablehlo.fft %c, type = IFFT, length = [3] : (tensor<3x3xcomplex<f32>>) -> tensor<3x3xcomplex<f32>>
%w = stablehlo.reduce_precision %a, format = e5m10 : tensor<3x3xf32>
return
}
