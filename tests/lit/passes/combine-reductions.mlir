// Small all-reduces that do not depend on each other become one message.
// RUN: cleave-opt %s --combine-reductions | FileCheck %s

// What reads the first sum follows the message; a sum of another kind and what depends on a sum keep their own.
// CHECK-LABEL: func.func @sums
// CHECK: %[[M:.*]] = dist.all_reduce %arg0 {axes = ["tp"], kind = "max"}
// CHECK-NEXT: %[[E:.*]] = cleave.exp %arg1
// CHECK-NEXT: %[[S:.*]]:2 = dist.all_reduce %[[M]], %[[E]] {axes = ["tp"], cleave.path = "loss", dist.globals = [tensor<4xf32>, unit], dist.shardings = [#dist.sharding<"_">, unit], kind = "sum"}
// CHECK-NEXT: %[[L:.*]] = cleave.log %[[S]]#0
// CHECK-NEXT: %[[R:.*]] = dist.all_reduce %[[L]]
// CHECK-NEXT: return %[[L]], %[[S]]#1, %[[R]]
func.func @sums(%x: tensor<4xf32>, %z: tensor<8xf32>) -> (tensor<4xf32>, tensor<8xf32>, tensor<4xf32>) {
  %0 = dist.all_reduce %x {axes = ["tp"], kind = "max"} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = dist.all_reduce %0 {axes = ["tp"], kind = "sum", cleave.path = "loss", dist.globals = [tensor<4xf32>], dist.shardings = [#dist.sharding<"_">]} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = cleave.log %1 : tensor<4xf32>
  %3 = cleave.exp %z : tensor<8xf32>
  %4 = dist.all_reduce %3 {axes = ["tp"], kind = "sum"} : (tensor<8xf32>) -> tensor<8xf32>
  %5 = dist.all_reduce %2 {axes = ["tp"], kind = "sum"} : (tensor<4xf32>) -> tensor<4xf32>
  return %2, %4, %5 : tensor<4xf32>, tensor<8xf32>, tensor<4xf32>
}

// Sums over other axes and of other element types are other messages.
// CHECK-LABEL: func.func @others
// CHECK-COUNT-3: dist.all_reduce %arg{{[0-9]}} {
func.func @others(%x: tensor<4xf32>, %y: tensor<4xf32>, %z: tensor<4xi32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xi32>) {
  %0 = dist.all_reduce %x {axes = ["tp"], kind = "sum"} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = dist.all_reduce %y {axes = ["dp"], kind = "sum"} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = dist.all_reduce %z {axes = ["tp"], kind = "sum"} : (tensor<4xi32>) -> tensor<4xi32>
  return %0, %1, %2 : tensor<4xf32>, tensor<4xf32>, tensor<4xi32>
}

// A large sum is not combined, nor one on whose result another collective or much work waits.
// CHECK-LABEL: func.func @large
// CHECK-COUNT-2: dist.all_reduce %arg{{[0-9]}} {
func.func @large(%x: tensor<4xf32>, %large: tensor<512x1024xf32>) -> (tensor<4xf32>, tensor<512x1024xf32>) {
  %0 = dist.all_reduce %x {axes = ["tp"], kind = "sum"} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = dist.all_reduce %large {axes = ["tp"], kind = "sum"} : (tensor<512x1024xf32>) -> tensor<512x1024xf32>
  return %0, %1 : tensor<4xf32>, tensor<512x1024xf32>
}
// CHECK-LABEL: func.func @work
// CHECK-COUNT-2: dist.all_reduce %arg{{[0-9]}} {
func.func @work(%x: tensor<512xf32>, %y: tensor<4xf32>) -> (tensor<512x1024xf32>, tensor<4xf32>) {
  %0 = dist.all_reduce %x {axes = ["tp"], kind = "sum"} : (tensor<512xf32>) -> tensor<512xf32>
  %1 = cleave.broadcast %0 dims [0] : tensor<512xf32> -> tensor<512x1024xf32>
  %2 = dist.all_reduce %y {axes = ["tp"], kind = "sum"} : (tensor<4xf32>) -> tensor<4xf32>
  return %1, %2 : tensor<512x1024xf32>, tensor<4xf32>
}
// CHECK-LABEL: func.func @waits
// CHECK: dist.all_reduce %arg0
// CHECK-NEXT: dist.all_gather
// CHECK-NEXT: dist.all_reduce %arg1
func.func @waits(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<8xf32>, tensor<4xf32>) {
  %0 = dist.all_reduce %x {axes = ["tp"], kind = "sum"} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = dist.all_gather %0 {axes = ["tp"], dim = 0 : i64, sizes = array<i64: 4, 4>} : (tensor<4xf32>) -> tensor<8xf32>
  %2 = dist.all_reduce %y {axes = ["tp"], kind = "sum"} : (tensor<4xf32>) -> tensor<4xf32>
  return %1, %2 : tensor<8xf32>, tensor<4xf32>
}
