// One case per numbered constraint of the elementwise ops, constants and marks.
// RUN: cleave-opt %s -verify-diagnostics -split-input-file

func.func @f(%x: tensor<4xf32>, %y: tensor<4xbf16>) {
  // expected-error @below {{requires the same type for all operands and results}}
  %0 = "cleave.add"(%x, %y) : (tensor<4xf32>, tensor<4xbf16>) -> tensor<4xf32>
  return
}
// -----
func.func @f() {
  // expected-error @below {{C1: the result is 'i1' without at_least}}
  %0 = cleave.random_uniform {name = "drop"} : () -> tensor<4xi1>
  return
}
// -----
func.func @f() {
  // expected-error @below {{C1: the result is 'f32' with at_least}}
  %0 = cleave.random_uniform {name = "drop", at_least = 0.5} : () -> tensor<4xf32>
  return
}
// -----
// compare C1
func.func @f(%x: tensor<4xf32>, %y: tensor<4xbf16>) {
  // expected-error @below {{requires all operands to have the same type}}
  %0 = "cleave.compare"(%x, %y) {predicate = #cleave<predicate lt>} : (tensor<4xf32>, tensor<4xbf16>) -> tensor<4xi1>
  return
}
// -----
// select C1
func.func @f(%c: tensor<5xi1>, %x: tensor<4xf32>) {
  // expected-error @below {{all non-scalar operands/results must have the same shape and base type}}
  %0 = cleave.select %c, %x, %x : tensor<5xi1>, tensor<4xf32>
  return
}
// -----
func.func @f() {
  // expected-error @below {{C1: the value's type is 'tensor<3xf32>', the result's 'tensor<4xf32>'}}
  %0 = "cleave.constant"() {value = dense<1.0> : tensor<3xf32>} : () -> tensor<4xf32>
  return
}
// -----
func.func @f() {
  // expected-error @below {{C1: dim 1 is not in [0, 1)}}
  %0 = cleave.iota {dim = 1 : i64} : () -> tensor<4xi32>
  return
}
// -----
func.func @f() {
  // expected-error @below {{C2: the result's element type is 'i64', not i32}}
  %0 = cleave.iota {dim = 0 : i64} : () -> tensor<4xi64>
  return
}
// -----
func.func @f(%o: tensor<2xi32>) {
  // expected-error @below {{C3: the offset is 'tensor<2xi32>', not tensor<i32>}}
  %0 = cleave.iota %o {dim = 0 : i64} : (tensor<2xi32>) -> tensor<4xi32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{C1: 2 entries for 1 dimensions}}
  %0 = cleave.shard_hint %x ["dp", ""] : tensor<4xf32>
  return
}
