module @jit_newton_while attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<9xf32>) -> (tensor<9xf32> {jax.result_info = "result"}) {
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<9xf32>
    %1:3 = stablehlo.while(%iterArg = %arg0, %iterArg_0 = %arg0, %iterArg_1 = %0) : tensor<9xf32>, tensor<9xf32>, tensor<9xf32>
    cond {
      %2 = stablehlo.multiply %iterArg_1, %iterArg_1 : tensor<9xf32>
      %3 = stablehlo.subtract %2, %iterArg : tensor<9xf32>
      %4 = stablehlo.abs %3 : tensor<9xf32>
      %cst_2 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
      %5 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<9xf32>
      %6 = stablehlo.compare GT, %4, %5, FLOAT : (tensor<9xf32>, tensor<9xf32>) -> tensor<9xi1>
      %c = stablehlo.constant dense<false> : tensor<i1>
      %7 = stablehlo.reduce(%6 init: %c) applies stablehlo.or across dimensions = [0] : (tensor<9xi1>, tensor<i1>) -> tensor<i1>
      stablehlo.return %7 : tensor<i1>
    } do {
      %2 = stablehlo.divide %iterArg_0, %iterArg_1 : tensor<9xf32>
      %3 = stablehlo.add %iterArg_1, %2 : tensor<9xf32>
      %cst_2 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
      %4 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<9xf32>
      %5 = stablehlo.multiply %4, %3 : tensor<9xf32>
      stablehlo.return %iterArg, %iterArg_0, %5 : tensor<9xf32>, tensor<9xf32>, tensor<9xf32>
    }
    return %1#2 : tensor<9xf32>
  }
}
