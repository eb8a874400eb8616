module @jit_convolution_loss attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x2x3x3xf32>, %arg1: tensor<4xf32>, %arg2: tensor<2x2x6x6xf32>) -> (tensor<f32> {jax.result_info = "result"}) {
    %0 = stablehlo.convolution(%arg2, %arg0) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x2x6x6xf32>, tensor<4x2x3x3xf32>) -> tensor<2x4x6x6xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [0, 2, 3] : (tensor<2x4x6x6xf32>, tensor<f32>) -> tensor<4xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [1] : (tensor<4xf32>) -> tensor<1x4x1x1xf32>
    %cst_0 = stablehlo.constant dense<7.200000e+01> : tensor<f32>
    %3 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<1x4x1x1xf32>
    %4 = stablehlo.divide %2, %3 : tensor<1x4x1x1xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1, 2, 3] : (tensor<1x4x1x1xf32>) -> tensor<2x4x6x6xf32>
    %6 = stablehlo.subtract %0, %5 : tensor<2x4x6x6xf32>
    %7 = stablehlo.broadcast_in_dim %arg1, dims = [0] : (tensor<4xf32>) -> tensor<4x1x1xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [1, 2, 3] : (tensor<4x1x1xf32>) -> tensor<1x4x1x1xf32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2, 3] : (tensor<1x4x1x1xf32>) -> tensor<2x4x6x6xf32>
    %10 = stablehlo.multiply %6, %9 : tensor<2x4x6x6xf32>
    %11 = stablehlo.multiply %10, %10 : tensor<2x4x6x6xf32>
    %12 = stablehlo.multiply %11, %10 : tensor<2x4x6x6xf32>
    %cst_1 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %13 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x4x6x6xf32>
    %14 = stablehlo.multiply %13, %12 : tensor<2x4x6x6xf32>
    %15 = stablehlo.add %10, %14 : tensor<2x4x6x6xf32>
    %cst_2 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %16 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2x4x6x6xf32>
    %17 = stablehlo.multiply %16, %15 : tensor<2x4x6x6xf32>
    %18 = stablehlo.tanh %17 : tensor<2x4x6x6xf32>
    %cst_3 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %19 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<2x4x6x6xf32>
    %20 = stablehlo.add %19, %18 : tensor<2x4x6x6xf32>
    %cst_4 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %21 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<2x4x6x6xf32>
    %22 = stablehlo.multiply %21, %20 : tensor<2x4x6x6xf32>
    %23 = stablehlo.multiply %10, %22 : tensor<2x4x6x6xf32>
    %cst_5 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %24 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<f32>
    %25 = "stablehlo.reduce_window"(%23, %24) <{base_dilations = array<i64: 1, 1, 1, 1>, padding = dense<0> : tensor<4x2xi64>, window_dilations = array<i64: 1, 1, 1, 1>, window_dimensions = array<i64: 1, 1, 2, 2>, window_strides = array<i64: 1, 1, 2, 2>}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %29 = stablehlo.maximum %arg3, %arg4 : tensor<f32>
      stablehlo.return %29 : tensor<f32>
    }) : (tensor<2x4x6x6xf32>, tensor<f32>) -> tensor<2x4x3x3xf32>
    %26 = chlo.square %25 : tensor<2x4x3x3xf32> -> tensor<2x4x3x3xf32>
    %cst_6 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %27 = stablehlo.reduce(%26 init: %cst_6) applies stablehlo.add across dimensions = [0, 1, 2, 3] : (tensor<2x4x3x3xf32>, tensor<f32>) -> tensor<f32>
    %cst_7 = stablehlo.constant dense<7.200000e+01> : tensor<f32>
    %28 = stablehlo.divide %27, %cst_7 : tensor<f32>
    return %28 : tensor<f32>
  }
}
