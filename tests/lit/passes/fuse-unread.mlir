// What a slice leaves out of a concatenation is not computed: no kernel has it as an operand.
// RUN: cleave-opt %s --fuse | FileCheck %s

// CHECK-LABEL: func.func @rest(
// CHECK-SAME: %[[READ:.*]]: tensor<4x2xf32>, %[[UNREAD:.*]]: tensor<4x3xf32>
// CHECK: cleave.fusion(%[[READ]])
// CHECK-NOT: %[[UNREAD]]
// CHECK: return
func.func @rest(%read: tensor<4x2xf32>, %unread: tensor<4x3xf32>) -> tensor<4x2xf32> {
  %0 = cleave.concat %unread, %read {dim = 1 : i64} : (tensor<4x3xf32>, tensor<4x2xf32>) -> tensor<4x5xf32>
  %1 = cleave.neg %0 : tensor<4x5xf32>
  %2 = cleave.slice %1 starts [0, 3] sizes [4, 2] : tensor<4x5xf32> -> tensor<4x2xf32>
  return %2 : tensor<4x2xf32>
}
