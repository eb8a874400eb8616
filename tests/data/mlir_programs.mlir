func.func @f(%a: tensor<4xf32>, %b: tensor<f32>) -> tensor<f32> {
  %0 = "stablehlo.reduce"(%a, %b) <{dimensions = array<i64: 0>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %1 = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) {foo = "x"} : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  %2 = "stablehlo.reduce"(%a, %b) <{dimensions = array<i64: 0>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %1 = stablehlo.add %x, %x : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) {foo = "x"} : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
// -----
func.func @f(%a: tensor<4xf32>, %b: tensor<f64>) -> tensor<f64> {
  %0 = "stablehlo.reduce"(%a, %b) <{dimensions = array<i64: 0>}> ({
  ^bb0(%x: tensor<f64>, %y: tensor<f64>):
    %1 = stablehlo.add %x, %y : tensor<f64>
    stablehlo.return %1 : tensor<f64>
  }) {foo = "x"} : (tensor<4xf32>, tensor<f64>) -> tensor<f64>
  return %0 : tensor<f64>
}
// -----
func.func @f(%a: tensor<4xf32>, %b: tensor<i32>) -> (tensor<4xf32>) {
  %0:2 = "stablehlo.while"(%a, %b) ({
  ^bb0(%x: tensor<4xf32>, %y: tensor<i32>):
    %c = stablehlo.constant dense<4> : tensor<i32>
    %1 = stablehlo.compare LT, %y, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }, {
  ^bb0(%x: tensor<4xf32>, %y: tensor<i32>):
    stablehlo.return %x, %y : tensor<4xf32>, tensor<i32>
  }) {foo = "x"} : (tensor<4xf32>, tensor<i32>) -> (tensor<4xf32>, tensor<i32>)
  "stablehlo.while"() ({
    %c = stablehlo.constant dense<true> : tensor<i1>
    stablehlo.return %c : tensor<i1>
  }, {
    stablehlo.return
  }) : () -> ()
  return %0#0 : tensor<4xf32>
}
// -----
func.func @f(%a: tensor<4xf32>, %b: tensor<f32>) -> (tensor<4xf32>) {
  %0:2 = chlo.scan(%a) inits (%b) dimension=0 attributes {is_reverse = true} {
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %1 = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %1, %1 : tensor<f32>, tensor<f32>
  } : (tensor<4xf32>, tensor<f32>) -> (tensor<4xf32>, tensor<f32>)
  return %0#0 : tensor<4xf32>
}
// -----
func.func @f(%a: tensor<?xf32>, %w: !shape.witness, %i: index) -> (tensor<?xf32>) {
  %0 = shape.assuming %w -> (tensor<?xf32>) {
    shape.assuming_yield %a : tensor<?xf32>
  }
  %g = tensor.generate %i {
  ^bb0(%k: index):
    %c = arith.constant 1.0 : f32
    tensor.yield %c : f32
  } : tensor<?xf32>
  %s = shape.shape_of %a : tensor<?xf32> -> !shape.shape
  %init = shape.const_size 1
  %n = shape.reduce(%s, %init) : !shape.shape -> !shape.size {
  ^bb0(%ix: index, %e: !shape.size, %acc: !shape.size):
    %p = shape.mul %e, %acc : !shape.size, !shape.size -> !shape.size
    shape.yield %p : !shape.size
  }
  return %0 : tensor<?xf32>
}
// -----
sdy.mesh @mesh = <["x"=2, "y"=4]>
sdy.mesh @m2 = <["x"=2], device_ids=[1, 0]>
func.func @f(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}, %b: tensor<8xf32>) -> (tensor<8xf32>) {
  %0 = sdy.manual_computation(%a, %b) in_shardings=[<@mesh, [{"x"}]>, <@mesh, [{"x"}]>] out_shardings=[<@mesh, [{"x"}]>] manual_axes={"x"} (%x: tensor<4xf32>, %y: tensor<4xf32>) {
    %r = stablehlo.add %x, %y : tensor<4xf32>
    sdy.return %r : tensor<4xf32>
  } : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %1 = sdy.named_computation<"n">(%0) in_shardings=[<@mesh, [{"x"}]>] (%x: tensor<8xf32>) {
    sdy.return %x : tensor<8xf32>
  } : (tensor<8xf32>) -> tensor<8xf32>
  %2 = stablehlo.add %0, %1 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>} : tensor<8xf32>
  %3 = sdy.reshard %2 <@mesh, [{"x"}]> : tensor<8xf32>
  %4 = sdy.all_gather [{"x"}] %3 out_sharding=<@mesh, [{}]> : tensor<8xf32>
  %5 = sdy.collective_permute %3 out_sharding=<@mesh, [{"x"}]> : tensor<8xf32>
  %7 = sdy.all_reduce {} %3 out_sharding=<@mesh, [{"x"}]> : tensor<8xf32>
  %8 = sdy.propagation_barrier %7 allowed_direction=BACKWARD : tensor<8xf32>
  return %1 : tensor<8xf32>
}
// -----
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @f(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> (tensor<8x8xf32>) {
  %6 = sdy.all_to_all [{"x"}: 0->1] %a out_sharding=<@mesh, [{}, {"x"}]> : tensor<8x8xf32>
  return %6 : tensor<8x8xf32>
}
// -----
func.func private @impl(%a: tensor<4xf32>) -> tensor<4xf32> attributes {foo} {
  return %a : tensor<4xf32>
}
func.func public @f(%a: tensor<4xf32>, %b: tensor<f32>) -> (tensor<4xf32> {jax.x = ""}, tensor<f32>) {
  %0 = stablehlo.composite "my.op" %a {composite_attributes = {a = 1 : i32}, decomposition = @impl, version = 2 : i32} : (tensor<4xf32>) -> tensor<4xf32>
  %c = stablehlo.constant dense<true> : tensor<i1>
  %1 = "stablehlo.if"(%c) ({
    stablehlo.return %b : tensor<f32>
  }, {
    stablehlo.return %b : tensor<f32>
  }) : (tensor<i1>) -> tensor<f32>
  return %0, %1 : tensor<4xf32>, tensor<f32>
}
// -----
func.func @f(%a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>) {
  %0 = "stablehlo.async_start"(%a) ({
  ^bb0(%x: tensor<4xf32>):
    %1 = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = dense<0> : tensor<1x1xi64>}> : (tensor<4xf32>) -> tensor<4xf32>
    stablehlo.return %1 : tensor<4xf32>
  }) : (tensor<4xf32>) -> !stablehlo.future<tensor<4xf32>>
  %2 = "stablehlo.async_done"(%0) : (!stablehlo.future<tensor<4xf32>>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}
// -----
#loc1 = loc("a.py":1:2)
#loc2 = loc("f\0A.py":3:4)
#s = "an alias"
!t = tensor<2xf32>
module @"a b" attributes {mhlo.x = #s, jax.uses = true} {
  func.func private @g(tensor<f32> {mhlo.a = 1 : i32}) -> (tensor<f32>, tensor<f32>)
  func.func nested @"h\22 i"(%a: tensor<f32> loc("x"), %b: !t {mhlo.sharding = "{replicated}"} loc(#loc1)) -> (tensor<f32> {jax.result_info = "a[0]"}, tensor<f32>) attributes {llvm.x} {
    %0:2, %c = "foo.bar"(%a, %b) : (tensor<f32>, !t) -> (tensor<f32>, tensor<f32>, !foo.type<"x", [<i32>]>)
    return %0#0, %0#1 : tensor<f32>, tensor<f32> loc(fused<"m">["n"("b":1:2 to 3:4), #loc1])
  } loc(unknown)
  func.func @main() -> () {
    %0 = stablehlo.constant dense<[0.0, -0.0]> : tensor<2xf32> loc(callsite("n"(#loc1) at fused["a", "b"]))
    %1 = stablehlo.constant dense<1> : tensor<i32> loc("jit(f)/add"(callsite(#loc1 at callsite(#loc2 at "c"("d.py":3:4)))))
    return
  } loc(#loc3)
}
#loc3 = loc("jit(f)"(#loc2))
