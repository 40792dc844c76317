// One case per numbered constraint of the ops that move elements.
// RUN: cleave-opt %s -verify-diagnostics -split-input-file

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{C1: dims 1x0 are not 2 strictly increasing}}
  %0 = cleave.broadcast %x dims [1, 0] : tensor<2x3xf32> -> tensor<2x3xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{C2: operand dimension 1 is 3, result dimension 1 is 4}}
  %0 = cleave.broadcast %x dims [0, 1] : tensor<2x3xf32> -> tensor<2x4xf32>
  return
}
// -----
func.func @f(%x: tensor<2xf32>) {
  // expected-error @below {{C3: element types are 'f32' and 'bf16'}}
  %0 = cleave.broadcast %x dims [0] : tensor<2xf32> -> tensor<2x4xbf16>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{C1: dims do not increase strictly within [0, 2)}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.reduce sum %x dims [2] : tensor<2x3xf32> -> tensor<2xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{inferred type(s) 'tensor<2xf32>' are incompatible with return type(s) of operation 'tensor<3xf32>'}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.reduce sum %x dims [1] : tensor<2x3xf32> -> tensor<3xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{C1: the operand has 6 elements, the result 7}}
  %0 = cleave.reshape %x : tensor<2x3xf32> -> tensor<7xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{C2: element types are 'f32' and 'i32'}}
  %0 = cleave.reshape %x : tensor<2x3xf32> -> tensor<6xi32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{C1: not a permutation of [0, 2)}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.transpose %x permutation [0, 0] : tensor<2x3xf32> -> tensor<2x2xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{C1: the rank is 2, starts has 1 values and sizes 2}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.slice %x starts [0] sizes [1, 1] : tensor<2x3xf32> -> tensor<1x1xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{C2: [2, 2 + 2) is not within dimension 1 of size 3}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.slice %x starts [0, 2] sizes [2, 2] : tensor<2x3xf32> -> tensor<2x2xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{C1: dimension 1 is padded by -1 and 1}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.pad %x low [0, -1] high [0, 1] : tensor<2x3xf32> -> tensor<2x3xf32>
  return
}
// -----
func.func @f() {
  // expected-error @below {{C1: no operand}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.concat {dim = 0 : i64} : () -> tensor<2xf32>
  return
}
// -----
func.func @f(%x: tensor<2xf32>) {
  // expected-error @below {{C2: dim 1 is not in [0, 1)}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.concat %x {dim = 1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>, %y: tensor<2x4xf32>) {
  // expected-error @below {{C3: 'tensor<2x4xf32>' does not continue 'tensor<2x3xf32>' along dimension 0}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.concat %x, %y {dim = 0 : i64} : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<4x3xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>, %i: tensor<2xi32>) {
  // expected-error @below {{C1: ranks are 2 and 1}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.gather %x, %i {dim = 0 : i64} : (tensor<2x3xf32>, tensor<2xi32>) -> tensor<2xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>, %i: tensor<2x1xi32>) {
  // expected-error @below {{C2: dim 2 is not in [0, 2)}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.gather %x, %i {dim = 2 : i64} : (tensor<2x3xf32>, tensor<2x1xi32>) -> tensor<2x1xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>, %i: tensor<3x1xi32>) {
  // expected-error @below {{C3: shapes 2x3 and 3x1 differ in a dimension other than 1}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.gather %x, %i {dim = 1 : i64} : (tensor<2x3xf32>, tensor<3x1xi32>) -> tensor<3x1xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>, %i: tensor<2x1xi64>) {
  // expected-error @below {{C4: the index is 'i64', not i32}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.gather %x, %i {dim = 1 : i64} : (tensor<2x3xf32>, tensor<2x1xi64>) -> tensor<2x1xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>, %i: tensor<2x1xi32>) {
  // expected-error @below {{C1: grad is 2x3, index 2x1}}
  %0 = cleave.scatter_add %x, %i {dim = 1 : i64} : (tensor<2x3xf32>, tensor<2x1xi32>) -> tensor<2x9xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>, %i: tensor<2x3xi32>) {
  // expected-error @below {{C2: dim 2 is not in [0, 2)}}
  %0 = cleave.scatter_add %x, %i {dim = 2 : i64} : (tensor<2x3xf32>, tensor<2x3xi32>) -> tensor<2x9xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>, %i: tensor<2x3xi32>) {
  // expected-error @below {{C3: grad is 2x3, the result 3x9}}
  %0 = cleave.scatter_add %x, %i {dim = 1 : i64} : (tensor<2x3xf32>, tensor<2x3xi32>) -> tensor<3x9xf32>
  return
}
// -----
func.func @f(%t: tensor<2x3x4xf32>, %i: tensor<5xi32>) {
  // expected-error @below {{C1: the table has rank 3, not 2}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.embedding %t, %i : (tensor<2x3x4xf32>, tensor<5xi32>) -> tensor<5x3xf32>
  return
}
// -----
func.func @f(%t: tensor<2x3xf32>, %i: tensor<5xi64>) {
  // expected-error @below {{C2: ids are 'i64', not i32}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.embedding %t, %i : (tensor<2x3xf32>, tensor<5xi64>) -> tensor<5x3xf32>
  return
}
// -----
func.func @f(%g: tensor<4x3xf32>, %i: tensor<5xi32>) {
  // expected-error @below {{C1: grad is 4x3, ids 5}}
  %0 = cleave.embedding_grad %g, %i : (tensor<4x3xf32>, tensor<5xi32>) -> tensor<9x3xf32>
  return
}
// -----
func.func @f(%g: tensor<5x3xf32>, %i: tensor<5xi32>) {
  // expected-error @below {{C2: the result is 9x4, the width 3}}
  %0 = cleave.embedding_grad %g, %i : (tensor<5x3xf32>, tensor<5xi32>) -> tensor<9x4xf32>
  return
}
