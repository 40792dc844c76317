// One case per numbered constraint of the distribution dialect.
// RUN: cleave-opt %s -verify-diagnostics -split-input-file

// expected-error @+1 {{C1: }}
dist.mesh @mesh ["dp", "tp"] [2]
// -----
// expected-error @+1 {{C2: axis dp is named twice}}
dist.mesh @mesh ["dp", "dp"] [2, 2]
// -----
// expected-error @+1 {{C3: an axis has size 0}}
dist.mesh @mesh ["dp"] [0]
// -----
func.func @f() {
  // expected-error @+1 {{C1: no operand}}
  dist.all_reduce {axes = ["dp"], kind = "sum"} : () -> ()
  return
}
// -----
func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{C2: results differ from operands in type}}
  %0 = dist.all_reduce %x {axes = ["dp"], kind = "sum"} : (tensor<4xf32>) -> tensor<5xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{C3: no axis}}
  %0 = dist.all_reduce %x {axes = [], kind = "sum"} : (tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{C4: no reduction: "mean"}}
  %0 = dist.all_reduce %x {axes = ["dp"], kind = "mean"} : (tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{C1: the shares [}}
  %0 = dist.all_gather %x {axes = ["dp"], dim = 0 : i64, sizes = array<i64: 4, 4>} : (tensor<4xf32>) -> tensor<9xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{C2: a share's dimension 0 is none of the sizes}}
  %0 = dist.all_gather %x {axes = ["dp"], dim = 0 : i64, sizes = array<i64: 5, 3>} : (tensor<4xf32>) -> tensor<8xf32>
  return
}
// -----
func.func @f(%x: tensor<8xf32>) {
  // expected-error @+1 {{C1: the shares [}}
  %0 = dist.reduce_scatter %x {axes = ["dp"], dim = 0 : i64, sizes = array<i64: 4, 3>, kind = "sum"} : (tensor<8xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<8xf32>) {
  // expected-error @+1 {{C2: a share's dimension 0 is none of the sizes}}
  %0 = dist.reduce_scatter %x {axes = ["dp"], dim = 0 : i64, sizes = array<i64: 5, 3>, kind = "sum"} : (tensor<8xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<8xf32>) {
  // expected-error @+1 {{C3: no reduction: "mean"}}
  %0 = dist.reduce_scatter %x {axes = ["dp"], dim = 0 : i64, sizes = array<i64: 4, 4>, kind = "mean"} : (tensor<8xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<8xf32>) {
  // expected-error @+1 {{C1: no axis}}
  %0 = dist.all_to_all %x {axes = []} : (tensor<8xf32>) -> tensor<8xf32>
  return
}
// -----
func.func @f(%x: tensor<f32>) {
  // expected-error @+1 {{C2: a scalar has no blocks}}
  %0 = dist.all_to_all %x {axes = ["tp"]} : (tensor<f32>) -> tensor<f32>
  return
}
// -----
func.func @f(%x: tensor<8xf32>) {
  // expected-error @+1 {{C1: 2 x 3 x 1 is not dimension 0}}
  %0 = dist.shard_slice %x {axes = ["tp"], dim = 0 : i64, outer = 2 : i64, size = 3 : i64, inner = 1 : i64} : (tensor<8xf32>) -> tensor<4xf32>
  return
}
// -----
// expected-error @+1 {{sharding "dp, (3 x": }}
func.func @f(%x: tensor<8xf32> {dist.sharding = #dist.sharding<"dp, (3 x">}) {
  return
}
// -----
func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{C1: "dist.sharing" is no attribute of its dialect}}
  %0 = cleave.exp %x {dist.sharing = []} : tensor<4xf32>
  return
}
// -----
// expected-error @+1 {{C2: "dist.sharding" is on a result}}
func.func @f(%x: tensor<4xf32>) -> (tensor<4xf32> {dist.sharding = #dist.sharding<"dp">}) {
  return %x : tensor<4xf32>
}
// -----
// expected-error @+1 {{C2: "dist.shardings" is on an argument}}
func.func @f(%x: tensor<4xf32> {dist.shardings = []}) {
  return
}
// -----
func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{C2: "dist.global" is on an op}}
  %0 = cleave.exp %x {dist.global = tensor<8xf32>} : tensor<4xf32>
  return
}
// -----
// expected-error @+1 {{C2: "dist.globals" is on a function}}
func.func @f() attributes {dist.globals = []} {
  return
}
// -----
// expected-error @+1 {{C2: "dist.gathered" is on an argument}}
func.func @f(%x: tensor<4xf32> {dist.gathered = "segment"}) {
  return
}
// -----
func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{C2: "dist.stage" is on an op}}
  %0 = cleave.exp %x {dist.stage = 0 : i64} : tensor<4xf32>
  return
}
// -----
// expected-error @+1 {{C2: "dist.class" is on an argument}}
func.func @f(%x: tensor<4xf32> {dist.class = 0 : i64}) {
  return
}
// -----
// expected-error @+1 {{C2: "dist.segment" is on a module}}
module attributes {dist.segment = "forward"} {}
// -----
// expected-error @+1 {{C3: "dist.sharding" has another type: "dp"}}
func.func @f(%x: tensor<4xf32> {dist.sharding = "dp"}) {
  return
}
// -----
// expected-error @+1 {{C3: "dist.global" has another type: [8]}}
func.func @f(%x: tensor<4xf32> {dist.global = [8]}) {
  return
}
// -----
func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{C4: "dist.shardings" has 2 entries for 1 results}}
  %0 = cleave.exp %x {dist.shardings = [#dist.sharding<"dp">, #dist.sharding<"dp">]} : tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{C4: "dist.shardings" has the entry unit}}
  %0 = cleave.exp %x {dist.shardings = [unit]} : tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{C4: "dist.globals" has the entry #dist.sharding<"dp">}}
  %0 = cleave.exp %x {dist.globals = [#dist.sharding<"dp">]} : tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{C5: dist.gathered must be "iteration" or "segment", found "step"}}
  %0 = dist.reshard %x {from = #dist.sharding<"dp">, to = #dist.sharding<"_">, dist.gathered = "step"} : (tensor<4xf32>) -> tensor<4xf32>
  return
}
