// Programs that jaxlib 0.10 cannot read. newer.npz has each as bytecode, as jaxlib 0.12.0.1 writes it.
// ===== shardy reduces by an operation
module {
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
%0 = sdy.all_reduce {"x"} %a out_sharding=<@mesh, [{}, {}]> : tensor<8x8xf32>
%1 = sdy.all_reduce max {"x"} %0 out_sharding=<@mesh, [{}, {}]> : tensor<8x8xf32>
%2 = sdy.all_reduce min {"x", "y":(1)2} %1 out_sharding=<@mesh, [{}, {}]> {note = 3 : i32} : tensor<8x8xf32>
%3 = sdy.reduce_scatter [{"x"}, {}] %2 out_sharding=<@mesh, [{"x"}, {}]> : tensor<8x8xf32>
%4 = sdy.reshard %3 <@mesh, [{}, {}]> : tensor<8x8xf32>
%5 = sdy.reduce_scatter max [{"x"}, {}] %4 out_sharding=<@mesh, [{"x"}, {}]> : tensor<8x8xf32>
%6 = sdy.reshard %5 <@mesh, [{}, {}]> : tensor<8x8xf32>
%7 = sdy.reduce_scatter min [{"x"}, {"y"}] %6 out_sharding=<@mesh, [{"x"}, {"y"}]> : tensor<8x8xf32>
return %7 : tensor<8x8xf32>
}
}
// ===== shardings of parts that are reduced by an operation
module {
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
%0 = sdy.sharding_constraint %a <@mesh, [{}, {}], replicated={"y"}, unreduced=max{"x"}> : tensor<8x8xf32>
%1 = stablehlo.negate %0 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y"}, {}], unreduced=min{"x"}>]>} : tensor<8x8xf32>
%2 = sdy.sharding_constraint %1 <@mesh, [{}, {}]> : tensor<8x8xf32>
return %2 : tensor<8x8xf32>
}
}
