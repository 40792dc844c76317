// Folders and canonicalisation patterns.
// RUN: cleave-opt %s --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @neutral(
// CHECK-SAME: %[[X:.*]]: tensor<2x3xf32>
// CHECK-NEXT: return %[[X]], %[[X]], %[[X]], %[[X]]
func.func @neutral(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) {
  %zero = cleave.constant dense<0.0> : tensor<2x3xf32> : tensor<2x3xf32>
  %scalar = cleave.constant dense<1.0> : tensor<f32> : tensor<f32>
  %one = cleave.broadcast %scalar dims [] : tensor<f32> -> tensor<2x3xf32>
  %0 = cleave.add %zero, %x : tensor<2x3xf32>
  %1 = cleave.sub %x, %zero : tensor<2x3xf32>
  %2 = cleave.mul %one, %x : tensor<2x3xf32>
  %3 = cleave.div %x, %one : tensor<2x3xf32>
  return %0, %1, %2, %3 : tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>
}

// 0 - x and 1 / x are not folded.
// CHECK-LABEL: func.func @left
// CHECK: cleave.sub
// CHECK: cleave.div
func.func @left(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %zero = cleave.constant dense<0.0> : tensor<2xf32> : tensor<2xf32>
  %one = cleave.constant dense<1.0> : tensor<2xf32> : tensor<2xf32>
  %0 = cleave.sub %zero, %x : tensor<2xf32>
  %1 = cleave.div %one, %x : tensor<2xf32>
  return %0, %1 : tensor<2xf32>, tensor<2xf32>
}

// CHECK-LABEL: func.func @splats
// CHECK-DAG: cleave.constant dense<5.000000e+00> : tensor<2xf32>
// CHECK-DAG: cleave.constant dense<-1.000000e+00> : tensor<2xf32>
// CHECK-DAG: cleave.constant dense<6.000000e+00> : tensor<2xf32>
// CHECK-DAG: cleave.constant dense<0.666666686> : tensor<2xf32>
// CHECK-NEXT: return
func.func @splats() -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
  %two = cleave.constant dense<2.0> : tensor<2xf32> : tensor<2xf32>
  %three = cleave.constant dense<3.0> : tensor<2xf32> : tensor<2xf32>
  %0 = cleave.add %two, %three : tensor<2xf32>
  %1 = cleave.sub %two, %three : tensor<2xf32>
  %2 = cleave.mul %two, %three : tensor<2xf32>
  %3 = cleave.div %two, %three : tensor<2xf32>
  return %0, %1, %2, %3 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
}

// CHECK-LABEL: func.func @identities(
// CHECK-SAME: %[[X:.*]]: tensor<2x3xf32>
// CHECK-NEXT: return %[[X]], %[[X]], %[[X]], %[[X]], %[[X]], %[[X]], %[[X]]
func.func @identities(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) {
  %0 = cleave.cast %x : tensor<2x3xf32> -> tensor<2x3xf32>
  %1 = cleave.broadcast %x dims [0, 1] : tensor<2x3xf32> -> tensor<2x3xf32>
  %2 = cleave.reduce sum %x dims [] : tensor<2x3xf32> -> tensor<2x3xf32>
  %3 = cleave.reshape %x : tensor<2x3xf32> -> tensor<2x3xf32>
  %4 = cleave.transpose %x permutation [0, 1] : tensor<2x3xf32> -> tensor<2x3xf32>
  %5 = cleave.slice %x starts [0, 0] sizes [2, 3] : tensor<2x3xf32> -> tensor<2x3xf32>
  %6 = cleave.concat %x {dim = 1 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0, %1, %2, %3, %4, %5, %6 : tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>
}

// CHECK-LABEL: func.func @twice(
// CHECK-SAME: %[[X:.*]]: tensor<2x3x4xf32>
// CHECK-NEXT: %[[R:.*]] = cleave.reshape %[[X]] : tensor<2x3x4xf32> -> tensor<4x6xf32>
// CHECK-NEXT: %[[T:.*]] = cleave.transpose %[[X]] permutation [2, 1, 0] : tensor<2x3x4xf32> -> tensor<4x3x2xf32>
// CHECK-NEXT: return %[[R]], %[[T]], %[[X]], %[[X]]
func.func @twice(%x: tensor<2x3x4xf32>) -> (tensor<4x6xf32>, tensor<4x3x2xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>) {
  %0 = cleave.reshape %x : tensor<2x3x4xf32> -> tensor<24xf32>
  %1 = cleave.reshape %0 : tensor<24xf32> -> tensor<4x6xf32>
  %2 = cleave.transpose %x permutation [2, 0, 1] : tensor<2x3x4xf32> -> tensor<4x2x3xf32>
  %3 = cleave.transpose %2 permutation [0, 2, 1] : tensor<4x2x3xf32> -> tensor<4x3x2xf32>
  %4 = cleave.transpose %2 permutation [1, 2, 0] : tensor<4x2x3xf32> -> tensor<2x3x4xf32>
  %5 = cleave.reshape %0 : tensor<24xf32> -> tensor<2x3x4xf32>
  return %1, %3, %4, %5 : tensor<4x6xf32>, tensor<4x3x2xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>
}

// CHECK-LABEL: func.func @constants
// CHECK-DAG: cleave.constant dense<2> : tensor<2x3xi32>
// CHECK-DAG: cleave.constant dense<{{\[\[}}1.000000e+00, 2.000000e+00], [3.000000e+00, 4.000000e+00]]> : tensor<2x2xf32>
// CHECK-NOT: cleave.{{broadcast|cast|slice|transpose|reshape}}
// CHECK: return
func.func @constants() -> (tensor<2x3xi32>, tensor<2x2xf32>) {
  %0 = cleave.constant dense<2.5> : tensor<4xf32> : tensor<4xf32>
  %1 = cleave.slice %0 starts [1] sizes [3] : tensor<4xf32> -> tensor<3xf32>
  %2 = cleave.broadcast %1 dims [0] : tensor<3xf32> -> tensor<3x2xf32>
  %3 = cleave.transpose %2 permutation [1, 0] : tensor<3x2xf32> -> tensor<2x3xf32>
  %4 = cleave.cast %3 : tensor<2x3xf32> -> tensor<2x3xi32>
  %5 = cleave.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32> : tensor<4xf32>
  %6 = cleave.reshape %5 : tensor<4xf32> -> tensor<2x2xf32>
  return %4, %6 : tensor<2x3xi32>, tensor<2x2xf32>
}
