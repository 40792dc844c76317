// One case per numbered constraint of products, convolutions, pooling and attention.
// RUN: cleave-opt %s -verify-diagnostics -split-input-file

func.func @f(%a: tensor<4xf32>, %b: tensor<4x5xf32>) {
  // expected-error @below {{C1: ranks are 1 and 2}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.matmul %a, %b  : (tensor<4xf32>, tensor<4x5xf32>) -> tensor<5xf32>
  return
}
// -----
func.func @f(%a: tensor<3x4xf32>, %b: tensor<5x6xf32>) {
  // expected-error @below {{C2: the contracted sizes are 4 and 5}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.matmul %a, %b  : (tensor<3x4xf32>, tensor<5x6xf32>) -> tensor<3x6xf32>
  return
}
// -----
func.func @f(%a: tensor<2x3x4xf32>, %b: tensor<3x4x5xf32>) {
  // expected-error @below {{C3: leading dimensions are 2 and 3}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.matmul %a, %b  : (tensor<2x3x4xf32>, tensor<3x4x5xf32>) -> tensor<2x3x5xf32>
  return
}
// -----
func.func @f(%a: tensor<3x4xf32>, %b: tensor<4x5xbf16>) {
  // expected-error @below {{C4: element types are 'f32' and 'bf16'}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.matmul %a, %b  : (tensor<3x4xf32>, tensor<4x5xbf16>) -> tensor<3x5xf32>
  return
}
// -----
func.func @f(%a: tensor<2x4x3xf32>, %b: tensor<4x5xf32>) {
  // expected-error @below {{C5: transA with ranks 3 and 2}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.matmul %a, %b {transA} : (tensor<2x4x3xf32>, tensor<4x5xf32>) -> tensor<2x3x5xf32>
  return
}
// -----
func.func @f(%x: tensor<4x8x8xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @below {{C1: ranks are 3 and 4, not 4}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<4x8x8xf32>, tensor<6x4x3x3xf32>) -> tensor<1x6x6x6xf32>
  return
}
// -----
func.func @f(%x: tensor<1x4x8x8xf32>, %w: tensor<6x3x3x3xf32>) {
  // expected-error @below {{C2: the input has 4 channels, the weight 1 groups of 3}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x4x8x8xf32>, tensor<6x3x3x3xf32>) -> tensor<1x6x6x6xf32>
  return
}
// -----
func.func @f(%x: tensor<1x4x8x8xf32>, %w: tensor<5x2x3x3xf32>) {
  // expected-error @below {{C3: 2 groups do not divide 5 output channels}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = array<i64: 1, 1>, groups = 2 : i64} : (tensor<1x4x8x8xf32>, tensor<5x2x3x3xf32>) -> tensor<1x5x6x6xf32>
  return
}
// -----
func.func @f(%x: tensor<1x4x2x2xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @below {{C4: the output would be 0x0}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x4x2x2xf32>, tensor<6x4x3x3xf32>) -> tensor<1x6x1x1xf32>
  return
}
// -----
func.func @f(%x: tensor<1x4x8x8xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @below {{C5: stride and dilation are not 2 positive values}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.conv2d %x, %w {stride = array<i64: 0, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x4x8x8xf32>, tensor<6x4x3x3xf32>) -> tensor<1x6x6x6xf32>
  return
}
// -----
func.func @f(%g: tensor<1x6x6x6xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @below {{C1: ranks are 3 and 4, not 4}}
  %0 = cleave.conv2d_input_grad %g, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x6x6x6xf32>, tensor<6x4x3x3xf32>) -> tensor<4x8x8xf32>
  return
}
// -----
func.func @f(%g: tensor<1x6x6x6xf32>, %w: tensor<6x3x3x3xf32>) {
  // expected-error @below {{C2: the input has 4 channels, the weight 1 groups of 3}}
  %0 = cleave.conv2d_input_grad %g, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x6x6x6xf32>, tensor<6x3x3x3xf32>) -> tensor<1x4x8x8xf32>
  return
}
// -----
func.func @f(%g: tensor<1x5x6x6xf32>, %w: tensor<5x2x3x3xf32>) {
  // expected-error @below {{C3: 2 groups do not divide 5 output channels}}
  %0 = cleave.conv2d_input_grad %g, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = array<i64: 1, 1>, groups = 2 : i64} : (tensor<1x5x6x6xf32>, tensor<5x2x3x3xf32>) -> tensor<1x4x8x8xf32>
  return
}
// -----
func.func @f(%g: tensor<1x6x1x1xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @below {{C4: the output would be 0x0}}
  %0 = cleave.conv2d_input_grad %g, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x6x1x1xf32>, tensor<6x4x3x3xf32>) -> tensor<1x4x2x2xf32>
  return
}
// -----
func.func @f(%g: tensor<1x6x6x6xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @below {{C5: stride and dilation are not 2 positive values}}
  %0 = cleave.conv2d_input_grad %g, %w {stride = array<i64: 0, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x6x6x6xf32>, tensor<6x4x3x3xf32>) -> tensor<1x4x8x8xf32>
  return
}
// -----
func.func @f(%g: tensor<1x6x5x6xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @below {{C6: grad is 1x6x5x6, the convolution's result 1x6x6x6}}
  %0 = cleave.conv2d_input_grad %g, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x6x5x6xf32>, tensor<6x4x3x3xf32>) -> tensor<1x4x8x8xf32>
  return
}
// -----
func.func @f(%g: tensor<1x6x6x6xf32>, %w: tensor<6x4x3x3xbf16>) {
  // expected-error @below {{C7: element types are 'f32' and 'bf16'}}
  %0 = cleave.conv2d_input_grad %g, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x6x6x6xf32>, tensor<6x4x3x3xbf16>) -> tensor<1x4x8x8xf32>
  return
}
// -----
func.func @f(%g: tensor<1x6x6x6xf32>, %x: tensor<4x8x8xf32>) {
  // expected-error @below {{C1: ranks are 3 and 4, not 4}}
  %0 = cleave.conv2d_weight_grad %g, %x {stride = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x6x6x6xf32>, tensor<4x8x8xf32>) -> tensor<6x4x3x3xf32>
  return
}
// -----
func.func @f(%g: tensor<1x6x6x6xf32>, %x: tensor<1x4x8x8xf32>) {
  // expected-error @below {{C2: the input has 4 channels, the weight 1 groups of 3}}
  %0 = cleave.conv2d_weight_grad %g, %x {stride = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x6x6x6xf32>, tensor<1x4x8x8xf32>) -> tensor<6x3x3x3xf32>
  return
}
// -----
func.func @f(%g: tensor<1x5x6x6xf32>, %x: tensor<1x4x8x8xf32>) {
  // expected-error @below {{C3: 2 groups do not divide 5 output channels}}
  %0 = cleave.conv2d_weight_grad %g, %x {stride = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = array<i64: 1, 1>, groups = 2 : i64} : (tensor<1x5x6x6xf32>, tensor<1x4x8x8xf32>) -> tensor<5x2x3x3xf32>
  return
}
// -----
func.func @f(%g: tensor<1x6x1x1xf32>, %x: tensor<1x4x2x2xf32>) {
  // expected-error @below {{C4: the output would be 0x0}}
  %0 = cleave.conv2d_weight_grad %g, %x {stride = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x6x1x1xf32>, tensor<1x4x2x2xf32>) -> tensor<6x4x3x3xf32>
  return
}
// -----
func.func @f(%g: tensor<1x6x6x6xf32>, %x: tensor<1x4x8x8xf32>) {
  // expected-error @below {{C5: stride and dilation are not 2 positive values}}
  %0 = cleave.conv2d_weight_grad %g, %x {stride = array<i64: 0, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x6x6x6xf32>, tensor<1x4x8x8xf32>) -> tensor<6x4x3x3xf32>
  return
}
// -----
func.func @f(%g: tensor<1x6x5x6xf32>, %x: tensor<1x4x8x8xf32>) {
  // expected-error @below {{C6: grad is 1x6x5x6, the convolution's result 1x6x6x6}}
  %0 = cleave.conv2d_weight_grad %g, %x {stride = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x6x5x6xf32>, tensor<1x4x8x8xf32>) -> tensor<6x4x3x3xf32>
  return
}
// -----
func.func @f(%g: tensor<1x6x6x6xf32>, %x: tensor<1x4x8x8xf32>) {
  // expected-error @below {{C7: element types are 'f32' and 'bf16'}}
  %0 = cleave.conv2d_weight_grad %g, %x {stride = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x6x6x6xf32>, tensor<1x4x8x8xf32>) -> tensor<6x4x3x3xbf16>
  return
}
// -----
func.func @f(%x: tensor<4x8x8xf32>) {
  // expected-error @below {{C1: the rank is 3, not 4}}
  // expected-error @below {{failed to infer returned types}}
  %0:2 = cleave.max_pool2d %x {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>} : (tensor<4x8x8xf32>) -> (tensor<4x4x4xf32>, tensor<4x4x4xi32>)
  return
}
// -----
func.func @f(%x: tensor<1x4x1x1xf32>) {
  // expected-error @below {{C2: the output would be 0x0}}
  // expected-error @below {{failed to infer returned types}}
  %0:2 = cleave.max_pool2d %x {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>} : (tensor<1x4x1x1xf32>) -> (tensor<1x4x1x1xf32>, tensor<1x4x1x1xi32>)
  return
}
// -----
func.func @f(%x: tensor<1x4x8x8xf32>) {
  // expected-error @below {{C3: padding 2 is not smaller than the kernel's 2}}
  // expected-error @below {{failed to infer returned types}}
  %0:2 = cleave.max_pool2d %x {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 2, 0, 0, 0>} : (tensor<1x4x8x8xf32>) -> (tensor<1x4x5x4xf32>, tensor<1x4x5x4xi32>)
  return
}
// -----
func.func @f(%x: tensor<1x4x8x8xf32>) {
  // expected-error @below {{C4: kernel and stride are not 2 positive values}}
  // expected-error @below {{failed to infer returned types}}
  %0:2 = cleave.max_pool2d %x {kernel = array<i64: 2, 2>, stride = array<i64: 2, 0>, padding = array<i64: 0, 0, 0, 0>} : (tensor<1x4x8x8xf32>) -> (tensor<1x4x4x4xf32>, tensor<1x4x4x4xi32>)
  return
}
// -----
func.func @f(%x: tensor<4x8x8xf32>) {
  // expected-error @below {{C1: the rank is 3, not 4}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.avg_pool2d %x {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>} : (tensor<4x8x8xf32>) -> tensor<4x4x4xf32>
  return
}
// -----
func.func @f(%x: tensor<1x4x1x1xf32>) {
  // expected-error @below {{C2: the output would be 0x0}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.avg_pool2d %x {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>} : (tensor<1x4x1x1xf32>) -> tensor<1x4x1x1xf32>
  return
}
// -----
func.func @f(%x: tensor<1x4x8x8xf32>) {
  // expected-error @below {{C3: padding 2 is not smaller than the kernel's 2}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.avg_pool2d %x {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 2, 0, 0, 0>} : (tensor<1x4x8x8xf32>) -> tensor<1x4x5x4xf32>
  return
}
// -----
func.func @f(%x: tensor<1x4x8x8xf32>) {
  // expected-error @below {{C4: kernel and stride are not 2 positive values}}
  // expected-error @below {{failed to infer returned types}}
  %0 = cleave.avg_pool2d %x {kernel = array<i64: 2, 2>, stride = array<i64: 2, 0>, padding = array<i64: 0, 0, 0, 0>} : (tensor<1x4x8x8xf32>) -> tensor<1x4x4x4xf32>
  return
}
// -----
func.func @f(%g: tensor<4x4x4xf32>, %w: tensor<4x4x4xi32>) {
  // expected-error @below {{C1: the rank is 3, not 4}}
  %0 = cleave.max_pool2d_grad %g, %w {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>} : (tensor<4x4x4xf32>, tensor<4x4x4xi32>) -> tensor<4x8x8xf32>
  return
}
// -----
func.func @f(%g: tensor<1x4x1x1xf32>, %w: tensor<1x4x1x1xi32>) {
  // expected-error @below {{C2: the output would be 0x0}}
  %0 = cleave.max_pool2d_grad %g, %w {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>} : (tensor<1x4x1x1xf32>, tensor<1x4x1x1xi32>) -> tensor<1x4x1x1xf32>
  return
}
// -----
func.func @f(%g: tensor<1x4x5x4xf32>, %w: tensor<1x4x5x4xi32>) {
  // expected-error @below {{C3: padding 2 is not smaller than the kernel's 2}}
  %0 = cleave.max_pool2d_grad %g, %w {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 2, 0, 0, 0>} : (tensor<1x4x5x4xf32>, tensor<1x4x5x4xi32>) -> tensor<1x4x8x8xf32>
  return
}
// -----
func.func @f(%g: tensor<1x4x4x4xf32>, %w: tensor<1x4x4x4xi32>) {
  // expected-error @below {{C4: kernel and stride are not 2 positive values}}
  %0 = cleave.max_pool2d_grad %g, %w {kernel = array<i64: 2, 2>, stride = array<i64: 2, 0>, padding = array<i64: 0, 0, 0, 0>} : (tensor<1x4x4x4xf32>, tensor<1x4x4x4xi32>) -> tensor<1x4x8x8xf32>
  return
}
// -----
func.func @f(%g: tensor<1x4x5x4xf32>, %w: tensor<1x4x5x4xi32>) {
  // expected-error @below {{C5: grad is 1x4x5x4, the pooling's result 1x4x4x4}}
  %0 = cleave.max_pool2d_grad %g, %w {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>} : (tensor<1x4x5x4xf32>, tensor<1x4x5x4xi32>) -> tensor<1x4x8x8xf32>
  return
}
// -----
func.func @f(%g: tensor<4x4x4xf32>) {
  // expected-error @below {{C1: the rank is 3, not 4}}
  %0 = cleave.avg_pool2d_grad %g {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>} : (tensor<4x4x4xf32>) -> tensor<4x8x8xf32>
  return
}
// -----
func.func @f(%g: tensor<1x4x1x1xf32>) {
  // expected-error @below {{C2: the output would be 0x0}}
  %0 = cleave.avg_pool2d_grad %g {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>} : (tensor<1x4x1x1xf32>) -> tensor<1x4x1x1xf32>
  return
}
// -----
func.func @f(%g: tensor<1x4x5x4xf32>) {
  // expected-error @below {{C3: padding 2 is not smaller than the kernel's 2}}
  %0 = cleave.avg_pool2d_grad %g {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 2, 0, 0, 0>} : (tensor<1x4x5x4xf32>) -> tensor<1x4x8x8xf32>
  return
}
// -----
func.func @f(%g: tensor<1x4x4x4xf32>) {
  // expected-error @below {{C4: kernel and stride are not 2 positive values}}
  %0 = cleave.avg_pool2d_grad %g {kernel = array<i64: 2, 2>, stride = array<i64: 2, 0>, padding = array<i64: 0, 0, 0, 0>} : (tensor<1x4x4x4xf32>) -> tensor<1x4x8x8xf32>
  return
}
// -----
func.func @f(%g: tensor<1x4x5x4xf32>) {
  // expected-error @below {{C5: grad is 1x4x5x4, the pooling's result 1x4x4x4}}
  %0 = cleave.avg_pool2d_grad %g {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>} : (tensor<1x4x5x4xf32>) -> tensor<1x4x8x8xf32>
  return
}
// -----
func.func @f(%g: tensor<1x4x4x4xf32>, %w: tensor<1x4x4x3xi32>) {
  // expected-error @below {{C6: the workspace is 1x4x4x3, grad 1x4x4x4}}
  %0 = cleave.max_pool2d_grad %g, %w {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>} : (tensor<1x4x4x4xf32>, tensor<1x4x4x3xi32>) -> tensor<1x4x8x8xf32>
  return
}
// -----
func.func @f(%g: tensor<1x4x4x4xf32>, %w: tensor<1x4x4x4xi64>) {
  // expected-error @below {{operand #1 must be tensor of static shape of i32}}
  %0 = cleave.max_pool2d_grad %g, %w {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>} : (tensor<1x4x4x4xf32>, tensor<1x4x4x4xi64>) -> tensor<1x4x8x8xf32>
  return
}
// -----
func.func @f(%q: tensor<2x4x8xf32>, %k: tensor<2x4x8xf32>, %v: tensor<2x4x8xf32>) {
  // expected-error @below {{C1: ranks are 3, 3 and 3, not 4}}
  // expected-error @below {{failed to infer returned types}}
  %0:2 = cleave.attention %q, %k, %v {scale = 1.0} : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> (tensor<2x4x8xf32>, tensor<2x4xf32>)
  return
}
// -----
func.func @f(%q: tensor<2x3x4x8xf32>, %k: tensor<2x3x4x7xf32>, %v: tensor<2x3x4x7xf32>) {
  // expected-error @below {{C2: q is 2x3x4x8, k 2x3x4x7, v 2x3x4x7}}
  // expected-error @below {{failed to infer returned types}}
  %0:2 = cleave.attention %q, %k, %v {scale = 1.0} : (tensor<2x3x4x8xf32>, tensor<2x3x4x7xf32>, tensor<2x3x4x7xf32>) -> (tensor<2x3x4x8xf32>, tensor<2x3x4xf32>)
  return
}
// -----
func.func @f(%q: tensor<2x3x4x8xf32>, %k: tensor<2x3x3x8xf32>, %v: tensor<2x3x3x8xf32>) {
  // expected-error @below {{C3: causal with 4 queries and 3 keys}}
  // expected-error @below {{failed to infer returned types}}
  %0:2 = cleave.attention %q, %k, %v {scale = 1.0, causal} : (tensor<2x3x4x8xf32>, tensor<2x3x3x8xf32>, tensor<2x3x3x8xf32>) -> (tensor<2x3x4x8xf32>, tensor<2x3x4xf32>)
  return
}
// -----
func.func @f(%q: tensor<2x4x8xf32>, %k: tensor<2x4x8xf32>, %l: tensor<2x4xf32>) {
  // expected-error @below {{C1: ranks are 3, 3 and 3, not 4}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = cleave.attention_grad %q, %q, %k, %k, %q, %l {scale = 1.0} : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4xf32>) -> (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>)
  return
}
// -----
func.func @f(%q: tensor<2x3x4x8xf32>, %k: tensor<2x3x4x7xf32>, %l: tensor<2x3x4xf32>) {
  // expected-error @below {{C2: q is 2x3x4x8, k 2x3x4x7, v 2x3x4x7}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = cleave.attention_grad %q, %q, %k, %k, %q, %l {scale = 1.0} : (tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4x7xf32>, tensor<2x3x4x7xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4xf32>) -> (tensor<2x3x4x8xf32>, tensor<2x3x4x7xf32>, tensor<2x3x4x7xf32>)
  return
}
// -----
func.func @f(%q: tensor<2x3x4x8xf32>, %k: tensor<2x3x3x8xf32>, %l: tensor<2x3x4xf32>) {
  // expected-error @below {{C3: causal with 4 queries and 3 keys}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = cleave.attention_grad %q, %q, %k, %k, %q, %l {scale = 1.0, causal} : (tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x3x8xf32>, tensor<2x3x3x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4xf32>) -> (tensor<2x3x4x8xf32>, tensor<2x3x3x8xf32>, tensor<2x3x3x8xf32>)
  return
}
// -----
func.func @f(%q: tensor<1x1x2x4xf32>, %g: tensor<1x1x3x4xf32>, %l: tensor<1x1x2xf32>) {
  // expected-error @below {{C6: q is 1x1x2x4, grad 1x1x3x4, out 1x1x2x4, lse 1x1x2}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = cleave.attention_grad %g, %q, %q, %q, %q, %l {scale = 1.0} : (tensor<1x1x3x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2xf32>) -> (tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>)
  return
}
// -----
func.func @f(%q: tensor<1x1x2x4xf32>, %l: tensor<1x1x2xf32>, %b: tensor<1x1x2x3xf32>) {
  // expected-error @below {{C4: the scores are 1x1x2x2, bias or keep is 1x1x2x3}}
  // expected-error @below {{failed to infer returned types}}
  %0:2 = cleave.attention %q, %q, %q bias %b {scale = 1.0} : (tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x3xf32>) -> (tensor<1x1x2x4xf32>, tensor<1x1x2xf32>)
  return
}
// -----
func.func @f(%q: tensor<1x1x2x4xf32>, %l: tensor<1x1x2xf32>, %b: tensor<1x1x2x2xbf16>) {
  // expected-error @below {{C4: bias is not f32}}
  // expected-error @below {{failed to infer returned types}}
  %0:2 = cleave.attention %q, %q, %q bias %b {scale = 1.0} : (tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x2xbf16>) -> (tensor<1x1x2x4xf32>, tensor<1x1x2xf32>)
  return
}
// -----
func.func @f(%q: tensor<1x1x2x4xf32>, %l: tensor<1x1x2xf32>) {
  // expected-error @below {{C5: dropout is 5.000000e-01 without keep}}
  // expected-error @below {{failed to infer returned types}}
  %0:2 = cleave.attention %q, %q, %q {scale = 1.0, dropout = 0.5} : (tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>) -> (tensor<1x1x2x4xf32>, tensor<1x1x2xf32>)
  return
}
// -----
func.func @f(%q: tensor<1x1x2x4xf32>, %l: tensor<1x1x2xf32>, %k: tensor<1x1x2x2xi1>) {
  // expected-error @below {{C5: dropout is 1.000000e+00 with keep}}
  // expected-error @below {{failed to infer returned types}}
  %0:2 = cleave.attention %q, %q, %q keep %k {scale = 1.0, dropout = 1.0} : (tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x2xi1>) -> (tensor<1x1x2x4xf32>, tensor<1x1x2xf32>)
  return
}
// -----
func.func @f(%q: tensor<1x1x2x4xf32>, %l: tensor<1x1x2xf32>, %b: tensor<1x1x2x3xf32>) {
  // expected-error @below {{C4: the scores are 1x1x2x2, bias or keep is 1x1x2x3}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = cleave.attention_grad %q, %q, %q, %q, %q, %l bias %b {scale = 1.0} : (tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2xf32>, tensor<1x1x2x3xf32>) -> (tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>)
  return
}
// -----
func.func @f(%q: tensor<1x1x2x4xf32>, %l: tensor<1x1x2xf32>, %b: tensor<1x1x2x2xbf16>) {
  // expected-error @below {{C4: bias is not f32}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = cleave.attention_grad %q, %q, %q, %q, %q, %l bias %b {scale = 1.0} : (tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2xf32>, tensor<1x1x2x2xbf16>) -> (tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>)
  return
}
// -----
func.func @f(%q: tensor<1x1x2x4xf32>, %l: tensor<1x1x2xf32>) {
  // expected-error @below {{C5: dropout is 5.000000e-01 without keep}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = cleave.attention_grad %q, %q, %q, %q, %q, %l {scale = 1.0, dropout = 0.5} : (tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2xf32>) -> (tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>)
  return
}
// -----
func.func @f(%q: tensor<1x1x2x4xf32>, %l: tensor<1x1x2xf32>, %k: tensor<1x1x2x2xi1>) {
  // expected-error @below {{C5: dropout is 1.000000e+00 with keep}}
  // expected-error @below {{failed to infer returned types}}
  %0:3 = cleave.attention_grad %q, %q, %q, %q, %q, %l keep %k {scale = 1.0, dropout = 1.0} : (tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2xf32>, tensor<1x1x2x2xi1>) -> (tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>)
  return
}
