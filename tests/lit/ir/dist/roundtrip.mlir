// The distribution dialect prints as it is read.
// RUN: cleave-opt %s > %t && cleave-opt %t | diff %t - && FileCheck %s < %t

// CHECK: dist.mesh @mesh ["dp", "tp", "pp"] [2, 3, 1]
dist.mesh @mesh ["dp", "tp", "pp"] [2, 3, 1]

// CHECK-LABEL: func.func @annotated
func.func @annotated(%x: tensor<8x6xf32>) -> tensor<8x6xf32> {
  // CHECK: dist.reshard %{{.*}} {from = #dist.sharding<"dp, _">, to = #dist.sharding<"_, (2 x 3:tp) | sum dp">}
  %0 = dist.reshard %x {from = #dist.sharding<"dp, _">, to = #dist.sharding<"_, (2 x 3:tp) | sum dp">} : (tensor<8x6xf32>) -> tensor<8x6xf32>
  return %0 : tensor<8x6xf32>
}

// CHECK-LABEL: func.func @local
func.func @local(%x: tensor<4x2xf32>) -> tensor<4x2xf32> {
  // CHECK: dist.all_reduce %{{.*}}, %{{.*}} {axes = ["dp", "tp"], kind = "sum"}
  %0:2 = dist.all_reduce %x, %x {axes = ["dp", "tp"], kind = "sum"} : (tensor<4x2xf32>, tensor<4x2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>)
  // CHECK: dist.all_gather
  %1 = dist.all_gather %0#0 {axes = ["tp"], dim = 1 : i64, sizes = array<i64: 2, 2, 2>} : (tensor<4x2xf32>) -> tensor<4x6xf32>
  // CHECK: dist.reduce_scatter
  %2 = dist.reduce_scatter %1 {axes = ["tp"], dim = 1 : i64, sizes = array<i64: 2, 2, 2>, kind = "sum"} : (tensor<4x6xf32>) -> tensor<4x2xf32>
  // CHECK: dist.all_to_all %{{.*}} {axes = ["dp"]} : (tensor<4x2xf32>) -> tensor<4x2xf32>
  %6 = dist.all_to_all %2 {axes = ["dp"]} : (tensor<4x2xf32>) -> tensor<4x2xf32>
  // CHECK: dist.shard_offset {axes = ["tp"], size = 6 : i64} : () -> tensor<i32>
  %3 = dist.shard_offset {axes = ["tp"], size = 6 : i64} : () -> tensor<i32>
  // CHECK: dist.shard_slice
  %4 = dist.shard_slice %1 {axes = ["tp"], dim = 1 : i64, outer = 2 : i64, size = 3 : i64, inner = 1 : i64} : (tensor<4x6xf32>) -> tensor<4x2xf32>
  // CHECK: dist.send %{{.*}} {stage = 1 : i64, tag = 7 : i64}
  dist.send %4 {stage = 1 : i64, tag = 7 : i64} : (tensor<4x2xf32>) -> ()
  // CHECK: dist.recv
  %5 = dist.recv {stage = 1 : i64, tag = 8 : i64} : () -> tensor<4x2xf32>
  return %5 : tensor<4x2xf32>
}
