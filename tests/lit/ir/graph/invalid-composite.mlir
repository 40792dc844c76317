// One case per numbered constraint of softmax, normalisation, losses and fusions.
// RUN: cleave-opt %s -verify-diagnostics -split-input-file

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{C1: dim 2 is not in [0, 2)}}
  %0 = cleave.softmax %x {dim = 2 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{C1: dim 2 is not in [0, 2)}}
  %0 = cleave.log_softmax %x {dim = 2 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>, %w: tensor<2xf32>) {
  // expected-error @below {{C1: the input is 2x3, weight 2, bias 2}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = cleave.layer_norm %x, %w, %w {eps = 1.0} : (tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>)
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>, %w: tensor<3xf32>) {
  // expected-error @below {{C1: the input is 2x3, grad 2x3, weight 3, mean 3, rstd 3}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = cleave.layer_norm_grad %x, %x, %w, %w, %w : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>)
  return
}
// -----
func.func @f(%x: tensor<3xf32>, %w: tensor<3xf32>) {
  // expected-error @below {{C1: the rank is 1}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = cleave.batch_norm %x, %w, %w {eps = 1.0} : (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>)
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>, %w: tensor<2xf32>) {
  // expected-error @below {{C2: the input has 3 channels, weight is 2, bias 2}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = cleave.batch_norm %x, %w, %w {eps = 1.0} : (tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>)
  return
}
// -----
func.func @f(%x: tensor<4x3xf32>, %w: tensor<3xf32>) {
  // expected-error @below {{C3: groups of 3 do not divide 4 samples}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = cleave.batch_norm %x, %w, %w {eps = 1.0, group = 3 : i64} : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>)
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>, %w: tensor<2xf32>, %s: tensor<3xf32>) {
  // expected-error @below {{C1: the input is 2x3, grad 2x3, weight 2}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = cleave.batch_norm_grad %x, %x, %w, %s, %s {eps = 1.0} : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>)
  return
}
// -----
func.func @f(%x: tensor<4x3xf32>, %w: tensor<3xf32>, %s: tensor<3xf32>) {
  // expected-error @below {{C2: groups of 3 do not divide 4 samples}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = cleave.batch_norm_grad %x, %x, %w, %s, %s {eps = 1.0, group = 3 : i64} : (tensor<4x3xf32>, tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>)
  return
}
// -----
func.func @f(%x: tensor<4x3xf32>, %w: tensor<3xf32>, %s: tensor<3xf32>) {
  // expected-error @below {{C3: mean is 3, variance 3, not 2x3}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = cleave.batch_norm_grad %x, %x, %w, %s, %s {eps = 1.0, group = 2 : i64} : (tensor<4x3xf32>, tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>)
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>, %l: tensor<3xi32>) {
  // expected-error @below {{C1: logits are 2x3, labels 3}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = cleave.cross_entropy %x, %l : (tensor<2x3xf32>, tensor<3xi32>) -> (tensor<f32>, tensor<f32>, tensor<3xf32>)
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>, %l: tensor<2xi64>) {
  // expected-error @below {{C2: labels are 'i64', not i32}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = cleave.cross_entropy %x, %l : (tensor<2x3xf32>, tensor<2xi64>) -> (tensor<f32>, tensor<f32>, tensor<2xf32>)
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>, %l: tensor<3xi32>) {
  // expected-error @below {{C1: logits are 2x3, labels 3}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.top_correct %x, %l : (tensor<2x3xf32>, tensor<3xi32>) -> tensor<f32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>, %l: tensor<2xi64>) {
  // expected-error @below {{C2: labels are 'i64', not i32}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.top_correct %x, %l : (tensor<2x3xf32>, tensor<2xi64>) -> tensor<f32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>, %l: tensor<2xi32>) {
  // expected-error @below {{C3: k is 0, not positive}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.top_correct %x, %l {k = 0 : i64} : (tensor<2x3xf32>, tensor<2xi32>) -> tensor<f32>
  return
}
// -----
func.func @f(%g: tensor<f32>, %x: tensor<2x3xf32>, %l: tensor<3xi32>, %e: tensor<3xf32>) {
  // expected-error @below {{C1: logits are 2x3, labels 3}}
  %0 = cleave.cross_entropy_grad %g, %x, %l, %e : (tensor<f32>, tensor<2x3xf32>, tensor<3xi32>, tensor<3xf32>) -> tensor<2x3xf32>
  return
}
// -----
func.func @f(%g: tensor<f32>, %x: tensor<2x3xf32>, %l: tensor<2xi64>, %e: tensor<2xf32>) {
  // expected-error @below {{C2: labels are 'i64', not i32}}
  %0 = cleave.cross_entropy_grad %g, %x, %l, %e : (tensor<f32>, tensor<2x3xf32>, tensor<2xi64>, tensor<2xf32>) -> tensor<2x3xf32>
  return
}
// -----
func.func @f(%g: tensor<1xf32>, %x: tensor<2x3xf32>, %l: tensor<2xi32>, %e: tensor<2xf32>) {
  // expected-error @below {{C3: grad is 1, lse 2, the result 'tensor<2x3xf32>'}}
  %0 = cleave.cross_entropy_grad %g, %x, %l, %e : (tensor<1xf32>, tensor<2x3xf32>, tensor<2xi32>, tensor<2xf32>) -> tensor<2x3xf32>
  return
}
// -----
func.func @f(%x: tensor<2xf32>) {
  // expected-error @below {{C1: block arguments differ from the operands}}
  cleave.fusion(%x) : (tensor<2xf32>) -> () {
  ^bb0(%a: tensor<3xf32>):
  }
  return
}
// -----
func.func @f(%x: tensor<2xf32>) {
  // expected-error @below {{C2: yielded values differ from the results}}
  %0 = cleave.fusion(%x) : (tensor<2xf32>) -> tensor<3xf32> {
  ^bb0(%a: tensor<2xf32>):
    cleave.yield %a : tensor<2xf32>
  }
  return
}
