// All-gathers move in front of the work with which they overlap.
// RUN: cleave-opt %s --gather-early | FileCheck %s

// The gather of a stashed input overlaps with the product before it, the reduce-scatter with the product after it.
// CHECK-LABEL: func.func @backward
// CHECK: %[[G:.*]] = dist.all_gather %arg2
// CHECK-NEXT: %[[P:.*]] = cleave.matmul
// CHECK-NEXT: dist.reduce_scatter %[[P]]
// CHECK-NEXT: cleave.matmul %arg0, %[[G]]
func.func @backward(%dy: tensor<8x4xf32>, %w: tensor<4x6xf32>, %x: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %0 = cleave.matmul %dy, %w : (tensor<8x4xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
  %1 = dist.reduce_scatter %0 {axes = ["tp"], dim = 0 : i64, kind = "sum", sizes = array<i64: 4, 4>} : (tensor<8x6xf32>) -> tensor<4x6xf32>
  %2 = dist.all_gather %x {axes = ["tp"], dim = 0 : i64, sizes = array<i64: 4, 4>} : (tensor<4x6xf32>) -> tensor<8x6xf32>
  %3 = cleave.matmul %dy, %2 {transA} : (tensor<8x4xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  return %1, %3 : tensor<4x6xf32>, tensor<4x6xf32>
}

// Each parameter is gathered while the parameter before it is read, and no earlier.
// CHECK-LABEL: func.func @parameters
// CHECK: dist.all_gather %arg1
// CHECK-NEXT: dist.all_gather %arg2
// CHECK-NEXT: cleave.matmul
// CHECK-NEXT: dist.all_gather %arg3
// CHECK-NEXT: cleave.matmul
// CHECK-NEXT: cleave.matmul
func.func @parameters(%x: tensor<8x4xf32>, %a: tensor<2x4xf32>, %b: tensor<2x4xf32>, %c: tensor<2x4xf32>) -> tensor<8x4xf32> {
  %0 = dist.all_gather %a {axes = ["dp"], dim = 0 : i64, sizes = array<i64: 2, 2>} : (tensor<2x4xf32>) -> tensor<4x4xf32>
  %1 = cleave.matmul %x, %0 : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %2 = dist.all_gather %b {axes = ["dp"], dim = 0 : i64, sizes = array<i64: 2, 2>} : (tensor<2x4xf32>) -> tensor<4x4xf32>
  %3 = cleave.matmul %1, %2 : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %4 = dist.all_gather %c {axes = ["dp"], dim = 0 : i64, sizes = array<i64: 2, 2>} : (tensor<2x4xf32>) -> tensor<4x4xf32>
  %5 = cleave.matmul %3, %4 : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  return %5 : tensor<8x4xf32>
}

// A gather stays after the op that defines its operand; a gather of a reduce-scattered sum does not move.
// CHECK-LABEL: func.func @dependent
// CHECK: cleave.exp
// CHECK-NEXT: dist.all_gather
// CHECK-NEXT: %[[S:.*]] = cleave.add
// CHECK-NEXT: %[[R:.*]] = dist.reduce_scatter %[[S]]
// CHECK-NEXT: dist.all_gather %[[R]]
func.func @dependent(%x: tensor<4x6xf32>, %y: tensor<8x6xf32>) -> (tensor<8x6xf32>, tensor<8x6xf32>) {
  %0 = cleave.exp %x : tensor<4x6xf32>
  %1 = cleave.add %y, %y : tensor<8x6xf32>
  %2 = dist.reduce_scatter %1 {axes = ["tp"], dim = 0 : i64, kind = "sum", sizes = array<i64: 4, 4>} : (tensor<8x6xf32>) -> tensor<4x6xf32>
  %3 = dist.all_gather %0 {axes = ["tp"], dim = 0 : i64, sizes = array<i64: 4, 4>} : (tensor<4x6xf32>) -> tensor<8x6xf32>
  %4 = dist.all_gather %2 {axes = ["tp"], dim = 0 : i64, sizes = array<i64: 4, 4>} : (tensor<4x6xf32>) -> tensor<8x6xf32>
  return %3, %4 : tensor<8x6xf32>, tensor<8x6xf32>
}
