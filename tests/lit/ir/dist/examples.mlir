// One example per group of ops. docs/ir.md shows it under the group's title, the comment above it.
// RUN: cleave-opt %s

// Meshes and reshards
dist.mesh @mesh ["dp", "tp"] [2, 4]
func.func @gather(%x: tensor<8x6xf32> {dist.sharding = #dist.sharding<"dp, _">}) -> tensor<8x6xf32> {
  %0 = dist.reshard %x {from = #dist.sharding<"dp, _">, to = #dist.sharding<"_, _">} : (tensor<8x6xf32>) -> tensor<8x6xf32>
  return %0 : tensor<8x6xf32>
}

// Collectives
func.func @collectives(%grad: tensor<8x6xf32>) -> tensor<8x6xf32> {
  %0 = dist.all_reduce %grad {axes = ["tp"], kind = "sum"} : (tensor<8x6xf32>) -> tensor<8x6xf32>
  %1 = dist.reduce_scatter %0 {axes = ["dp"], dim = 0, sizes = array<i64: 4, 4>, kind = "sum"} : (tensor<8x6xf32>) -> tensor<4x6xf32>
  %2 = dist.all_gather %1 {axes = ["dp"], dim = 0, sizes = array<i64: 4, 4>} : (tensor<4x6xf32>) -> tensor<8x6xf32>
  %3 = dist.all_to_all %2 {axes = ["tp"]} : (tensor<8x6xf32>) -> tensor<8x6xf32>
  return %3 : tensor<8x6xf32>
}

// Shares of a rank
func.func @shares(%x: tensor<4x6xf32>) -> (tensor<4x2xf32>, tensor<i32>) {
  %0 = dist.shard_slice %x {axes = ["tp"], dim = 1, outer = 1, size = 6, inner = 1} : (tensor<4x6xf32>) -> tensor<4x2xf32>
  %1 = dist.shard_offset {axes = ["tp"], size = 6} : () -> tensor<i32>
  return %0, %1 : tensor<4x2xf32>, tensor<i32>
}

// Messages
func.func @messages(%x: tensor<4x2xf32>) -> tensor<4x2xf32> {
  dist.send %x {stage = 1, tag = 7} : (tensor<4x2xf32>) -> ()
  %0 = dist.recv {stage = 1, tag = 8} : () -> tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
}
