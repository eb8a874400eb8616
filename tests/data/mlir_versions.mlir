func.func public @f(%a: tensor<?x3xf32, #stablehlo.bounds<4, ?>> {mhlo.sharding="x"}) {
 return
}
// -----
func.func public @f(%b: tensor<2xcomplex<f32>>) {
 return
}
// -----
func.func public @f(%t: !stablehlo.token) {
 return
}
// -----
func.func public @f(%q: tensor<3x!quant.uniform<i8:f32, 0.5:3>>) {
 return
}
// -----
func.func public @f(%q2: tensor<2x3x!quant.uniform<u8:f32:1, {0.5:1, 0.25, 1.0e-3:4}>>) {
 return
}
// -----
func.func public @f(%tt: tuple<tensor<f32>, tuple<>>) {
 return
}
// -----
func.func public @f(%u: tensor<*xf32>) {
 return
}
// -----
func.func public @f(%i: tensor<2xi4>) {
 return
}
// -----
func.func public @f(%j: tensor<2xui16>) {
 return
}
// -----
func.func public @f(%k: tensor<2xi1>) {
 return
}
// -----
func.func public @f(%l: tensor<2xbf16>) {
 return
}
// -----
func.func public @f(%m: tensor<2xf8E4M3FN>) {
 return
}
// -----
func.func public @f(%n: tensor<2xindex>) {
 return
}
// -----
func.func private @g(%x: tensor<f32>) -> tensor<f32> {
 return %x : tensor<f32>
}
func.func public @f() -> (tensor<2xf32> {jax.result_info = "a"}, tensor<2xi1>) {
 %0 = stablehlo.constant dense<[1.0,2.0]> : tensor<2xf32>
 %4 = stablehlo.constant dense<0> : tensor<i32>
 %9 = stablehlo.constant dense<0.0> : tensor<2x2xf32>
 %13 = stablehlo.constant dense<0> : tensor<2xui64>
 %ff = stablehlo.constant dense<0.0> : tensor<f32>
 %19 = stablehlo.constant dense<2> : tensor<1xi64>
 %1 = stablehlo.abs %0 : tensor<2xf32>
 %15 = stablehlo.abs %ff : tensor<f32>
 %2 = stablehlo.compare EQ, %0, %1, FLOAT : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>
 return %0, %2 : tensor<2xf32>, tensor<2xi1>
}
// -----
func.func private @g(%x: tensor<f32>) -> tensor<f32> {
 return %x : tensor<f32>
}
func.func public @f() -> (tensor<2xf32> {jax.result_info = "a"}, tensor<2xf32>) {
 %0 = stablehlo.constant dense<[1.0,2.0]> : tensor<2xf32>
 %4 = stablehlo.constant dense<0> : tensor<i32>
 %9 = stablehlo.constant dense<0.0> : tensor<2x2xf32>
 %13 = stablehlo.constant dense<0> : tensor<2xui64>
 %ff = stablehlo.constant dense<0.0> : tensor<f32>
 %19 = stablehlo.constant dense<2> : tensor<1xi64>
 %1 = stablehlo.abs %0 : tensor<2xf32>
 %15 = stablehlo.abs %ff : tensor<f32>
 %3:2 = "stablehlo.case"(%4) ({
   stablehlo.return %0, %1 : tensor<2xf32>, tensor<2xf32>
 }) : (tensor<i32>) -> (tensor<2xf32>, tensor<2xf32>)
 return %0, %3#0 : tensor<2xf32>, tensor<2xf32>
}
// -----
func.func private @g(%x: tensor<f32>) -> tensor<f32> {
 return %x : tensor<f32>
}
func.func public @f() -> (tensor<2xf32> {jax.result_info = "a"}, tensor<2xf32>) {
 %0 = stablehlo.constant dense<[1.0,2.0]> : tensor<2xf32>
 %4 = stablehlo.constant dense<0> : tensor<i32>
 %9 = stablehlo.constant dense<0.0> : tensor<2x2xf32>
 %13 = stablehlo.constant dense<0> : tensor<2xui64>
 %ff = stablehlo.constant dense<0.0> : tensor<f32>
 %19 = stablehlo.constant dense<2> : tensor<1xi64>
 %1 = stablehlo.abs %0 : tensor<2xf32>
 %15 = stablehlo.abs %ff : tensor<f32>
 %5 = stablehlo.exponential %0 {result_accuracy = #stablehlo.result_accuracy<mode = #stablehlo.result_accuracy_mode<HIGHEST>>, foo = 1 : i32} : tensor<2xf32>
 return %0, %5 : tensor<2xf32>, tensor<2xf32>
}
// -----
func.func private @g(%x: tensor<f32>) -> tensor<f32> {
 return %x : tensor<f32>
}
func.func public @f() -> (tensor<2xf32> {jax.result_info = "a"}, tuple<tensor<2xf32>, tensor<2xf32>>) {
 %0 = stablehlo.constant dense<[1.0,2.0]> : tensor<2xf32>
 %4 = stablehlo.constant dense<0> : tensor<i32>
 %9 = stablehlo.constant dense<0.0> : tensor<2x2xf32>
 %13 = stablehlo.constant dense<0> : tensor<2xui64>
 %ff = stablehlo.constant dense<0.0> : tensor<f32>
 %19 = stablehlo.constant dense<2> : tensor<1xi64>
 %1 = stablehlo.abs %0 : tensor<2xf32>
 %15 = stablehlo.abs %ff : tensor<f32>
 %7 = stablehlo.tuple %0, %1 : tuple<tensor<2xf32>, tensor<2xf32>>
 return %0, %7 : tensor<2xf32>, tuple<tensor<2xf32>, tensor<2xf32>>
}
// -----
func.func private @g(%x: tensor<f32>) -> tensor<f32> {
 return %x : tensor<f32>
}
func.func public @f() -> (tensor<2xf32> {jax.result_info = "a"}, tensor<2x2xf32>) {
 %0 = stablehlo.constant dense<[1.0,2.0]> : tensor<2xf32>
 %4 = stablehlo.constant dense<0> : tensor<i32>
 %9 = stablehlo.constant dense<0.0> : tensor<2x2xf32>
 %13 = stablehlo.constant dense<0> : tensor<2xui64>
 %ff = stablehlo.constant dense<0.0> : tensor<f32>
 %19 = stablehlo.constant dense<2> : tensor<1xi64>
 %1 = stablehlo.abs %0 : tensor<2xf32>
 %15 = stablehlo.abs %ff : tensor<f32>
 %8 = "stablehlo.batch_norm_inference"(%9, %0, %0, %0, %0) <{epsilon = 0.1 : f32, feature_index = 1 : i64}> : (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2x2xf32>
 return %0, %8 : tensor<2xf32>, tensor<2x2xf32>
}
// -----
func.func private @g(%x: tensor<f32>) -> tensor<f32> {
 return %x : tensor<f32>
}
func.func public @f() -> (tensor<2xf32> {jax.result_info = "a"}, tensor<2x2xf32>) {
 %0 = stablehlo.constant dense<[1.0,2.0]> : tensor<2xf32>
 %4 = stablehlo.constant dense<0> : tensor<i32>
 %9 = stablehlo.constant dense<0.0> : tensor<2x2xf32>
 %13 = stablehlo.constant dense<0> : tensor<2xui64>
 %ff = stablehlo.constant dense<0.0> : tensor<f32>
 %19 = stablehlo.constant dense<2> : tensor<1xi64>
 %1 = stablehlo.abs %0 : tensor<2xf32>
 %15 = stablehlo.abs %ff : tensor<f32>
 %10 = stablehlo.dot_general %9, %9, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT], algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
 return %0, %10 : tensor<2xf32>, tensor<2x2xf32>
}
// -----
func.func private @g(%x: tensor<f32>) -> tensor<f32> {
 return %x : tensor<f32>
}
func.func public @f() -> (tensor<2xf32> {jax.result_info = "a"}, tensor<2x2xf32>) {
 %0 = stablehlo.constant dense<[1.0,2.0]> : tensor<2xf32>
 %4 = stablehlo.constant dense<0> : tensor<i32>
 %9 = stablehlo.constant dense<0.0> : tensor<2x2xf32>
 %13 = stablehlo.constant dense<0> : tensor<2xui64>
 %ff = stablehlo.constant dense<0.0> : tensor<f32>
 %19 = stablehlo.constant dense<2> : tensor<1xi64>
 %1 = stablehlo.abs %0 : tensor<2xf32>
 %15 = stablehlo.abs %ff : tensor<f32>
 %11 = "stablehlo.triangular_solve"(%9, %9) <{left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose ADJOINT>}> : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
 return %0, %11 : tensor<2xf32>, tensor<2x2xf32>
}
// -----
func.func private @g(%x: tensor<f32>) -> tensor<f32> {
 return %x : tensor<f32>
}
func.func public @f() -> (tensor<2xf32> {jax.result_info = "a"}, tensor<2xui64>) {
 %0 = stablehlo.constant dense<[1.0,2.0]> : tensor<2xf32>
 %4 = stablehlo.constant dense<0> : tensor<i32>
 %9 = stablehlo.constant dense<0.0> : tensor<2x2xf32>
 %13 = stablehlo.constant dense<0> : tensor<2xui64>
 %ff = stablehlo.constant dense<0.0> : tensor<f32>
 %19 = stablehlo.constant dense<2> : tensor<1xi64>
 %1 = stablehlo.abs %0 : tensor<2xf32>
 %15 = stablehlo.abs %ff : tensor<f32>
 %12:2 = stablehlo.rng_bit_generator %13, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<3xui32>)
 return %0, %12#0 : tensor<2xf32>, tensor<2xui64>
}
// -----
func.func private @g(%x: tensor<f32>) -> tensor<f32> {
 return %x : tensor<f32>
}
func.func public @f(%b: tensor<2xcomplex<f32>>) -> (tensor<2xf32> {jax.result_info = "a"}, tensor<2xcomplex<f32>>) {
 %0 = stablehlo.constant dense<[1.0,2.0]> : tensor<2xf32>
 %4 = stablehlo.constant dense<0> : tensor<i32>
 %9 = stablehlo.constant dense<0.0> : tensor<2x2xf32>
 %13 = stablehlo.constant dense<0> : tensor<2xui64>
 %ff = stablehlo.constant dense<0.0> : tensor<f32>
 %19 = stablehlo.constant dense<2> : tensor<1xi64>
 %1 = stablehlo.abs %0 : tensor<2xf32>
 %15 = stablehlo.abs %ff : tensor<f32>
 %14 = stablehlo.fft %b, type = FFT, length = [2] : (tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>>
 return %0, %14 : tensor<2xf32>, tensor<2xcomplex<f32>>
}
// -----
func.func private @g(%x: tensor<f32>) -> tensor<f32> {
 return %x : tensor<f32>
}
func.func public @f() -> (tensor<2xf32> {jax.result_info = "a"}, tensor<f32>) {
 %0 = stablehlo.constant dense<[1.0,2.0]> : tensor<2xf32>
 %4 = stablehlo.constant dense<0> : tensor<i32>
 %9 = stablehlo.constant dense<0.0> : tensor<2x2xf32>
 %13 = stablehlo.constant dense<0> : tensor<2xui64>
 %ff = stablehlo.constant dense<0.0> : tensor<f32>
 %19 = stablehlo.constant dense<2> : tensor<1xi64>
 %1 = stablehlo.abs %0 : tensor<2xf32>
 %15 = stablehlo.abs %ff : tensor<f32>
 %33 = func.call @g(%ff) : (tensor<f32>) -> tensor<f32>
 return %0, %33 : tensor<2xf32>, tensor<f32>
}
// -----
func.func private @g(%x: tensor<f32>) -> tensor<f32> {
 return %x : tensor<f32>
}
func.func public @f(%t: !stablehlo.token) -> (tensor<2xf32> {jax.result_info = "a"}, tensor<2x2xi64>) {
 %0 = stablehlo.constant dense<[1.0,2.0]> : tensor<2xf32>
 %4 = stablehlo.constant dense<0> : tensor<i32>
 %9 = stablehlo.constant dense<0.0> : tensor<2x2xf32>
 %13 = stablehlo.constant dense<0> : tensor<2xui64>
 %ff = stablehlo.constant dense<0.0> : tensor<f32>
 %19 = stablehlo.constant dense<2> : tensor<1xi64>
 %1 = stablehlo.abs %0 : tensor<2xf32>
 %15 = stablehlo.abs %ff : tensor<f32>
 %16:2 = "stablehlo.recv"(%t) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 3>, is_host_transfer = true}> : (!stablehlo.token) -> (tensor<2x2xi64>, !stablehlo.token)
 return %0, %16#0 : tensor<2xf32>, tensor<2x2xi64>
}
// -----
func.func private @g(%x: tensor<f32>) -> tensor<f32> {
 return %x : tensor<f32>
}
func.func public @f() -> (tensor<2xf32> {jax.result_info = "a"}, tensor<2xf32>) {
 %0 = stablehlo.constant dense<[1.0,2.0]> : tensor<2xf32>
 %4 = stablehlo.constant dense<0> : tensor<i32>
 %9 = stablehlo.constant dense<0.0> : tensor<2x2xf32>
 %13 = stablehlo.constant dense<0> : tensor<2xui64>
 %ff = stablehlo.constant dense<0.0> : tensor<f32>
 %19 = stablehlo.constant dense<2> : tensor<1xi64>
 %1 = stablehlo.abs %0 : tensor<2xf32>
 %15 = stablehlo.abs %ff : tensor<f32>
 %17 = "stablehlo.all_reduce"(%0) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0]]> : tensor<1x1xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
   %z = stablehlo.add %x, %y : tensor<f32>
   stablehlo.return %z : tensor<f32>
 }) : (tensor<2xf32>) -> tensor<2xf32>
 return %0, %17 : tensor<2xf32>, tensor<2xf32>
}
// -----
func.func private @g(%x: tensor<f32>) -> tensor<f32> {
 return %x : tensor<f32>
}
func.func public @f() -> (tensor<2xf32> {jax.result_info = "a"}, tensor<2xf32>) {
 %0 = stablehlo.constant dense<[1.0,2.0]> : tensor<2xf32>
 %4 = stablehlo.constant dense<0> : tensor<i32>
 %9 = stablehlo.constant dense<0.0> : tensor<2x2xf32>
 %13 = stablehlo.constant dense<0> : tensor<2xui64>
 %ff = stablehlo.constant dense<0.0> : tensor<f32>
 %19 = stablehlo.constant dense<2> : tensor<1xi64>
 %1 = stablehlo.abs %0 : tensor<2xf32>
 %15 = stablehlo.abs %ff : tensor<f32>
 %18 = "stablehlo.rng"(%ff, %ff, %19) <{rng_distribution = #stablehlo<rng_distribution NORMAL>}> : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<2xf32>
 return %0, %18 : tensor<2xf32>, tensor<2xf32>
}
// -----
func.func private @g(%x: tensor<f32>) -> tensor<f32> {
 return %x : tensor<f32>
}
func.func public @f() -> (tensor<2xf32> {jax.result_info = "a"}, tensor<f32>) {
 %0 = stablehlo.constant dense<[1.0,2.0]> : tensor<2xf32>
 %4 = stablehlo.constant dense<0> : tensor<i32>
 %9 = stablehlo.constant dense<0.0> : tensor<2x2xf32>
 %13 = stablehlo.constant dense<0> : tensor<2xui64>
 %ff = stablehlo.constant dense<0.0> : tensor<f32>
 %19 = stablehlo.constant dense<2> : tensor<1xi64>
 %1 = stablehlo.abs %0 : tensor<2xf32>
 %15 = stablehlo.abs %ff : tensor<f32>
 %20 = stablehlo.composite "a.b" %15 {composite_attributes = {n = 1 : i64, m = {x = "y"}}, decomposition = @g} : (tensor<f32>) -> tensor<f32>
 return %0, %20 : tensor<2xf32>, tensor<f32>
}
