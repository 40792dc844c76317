// One case per numbered constraint of the library dialect.
// RUN: cleave-opt %s -verify-diagnostics -split-input-file

// expected-error @+1 {{a view's offset and strides are not negative}}
func.func @f() attributes {view = #library.view<-1, [1]>} {
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>) {
  // expected-error @+1 {{C1: the sizes are batch scalar, 0x16x8}}
  %0 = library.matmul %x <0, [8, 1]>, %w <0, [16, 1]> to <0, [16, 1]> {m = 0, n = 16, k = 8} : (tensor<6x8xf32>, tensor<8x16xf32>) -> tensor<6x16xf32>
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>) {
  // expected-error @+1 {{C1: the sizes are batch 0, 6x16x8}}
  %0 = library.matmul %x <0, [8, 1]>, %w <0, [16, 1]> to <0, [16, 1]> {m = 6, n = 16, k = 8, batch = array<i64: 0>} : (tensor<6x8xf32>, tensor<8x16xf32>) -> tensor<6x16xf32>
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>) {
  // expected-error @+1 {{C2: the view of a has 3 strides for the 2 dimensions 6x8}}
  %0 = library.matmul %x <0, [8, 8, 1]>, %w <0, [16, 1]> to <0, [16, 1]> {m = 6, n = 16, k = 8} : (tensor<6x8xf32>, tensor<8x16xf32>) -> tensor<6x16xf32>
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>) {
  // expected-error @+1 {{C3: the view of b reaches element 143 of 128}}
  %0 = library.matmul %x <0, [8, 1]>, %w <16, [16, 1]> to <0, [16, 1]> {m = 6, n = 16, k = 8} : (tensor<6x8xf32>, tensor<8x16xf32>) -> tensor<6x16xf32>
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>) {
  // expected-error @+1 {{C3: the view of c reaches element 96 of 96}}
  %0 = library.matmul %x <0, [8, 1]>, %w <0, [16, 1]> to <1, [16, 1]> {m = 6, n = 16, k = 8} : (tensor<6x8xf32>, tensor<8x16xf32>) -> tensor<6x16xf32>
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>) {
  // expected-error @+1 {{C4: a has no rows}}
  %0 = library.matmul %x <0, [8, 0]>, %w <0, [16, 1]> to <0, [16, 1]> {m = 6, n = 16, k = 8} : (tensor<6x8xf32>, tensor<8x16xf32>) -> tensor<6x16xf32>
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>) {
  // expected-error @+1 {{C4: a has no rows}}
  %0 = library.matmul %x <0, [7, 1]>, %w <0, [16, 1]> to <0, [16, 1]> {m = 6, n = 16, k = 8} : (tensor<6x8xf32>, tensor<8x16xf32>) -> tensor<6x16xf32>
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>) {
  // expected-error @+1 {{C4: c has no rows}}
  %0 = library.matmul %x <0, [8, 1]>, %w <0, [16, 1]> to <0, [1, 6]> {m = 6, n = 16, k = 8} : (tensor<6x8xf32>, tensor<8x16xf32>) -> tensor<6x16xf32>
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>) {
  // expected-error @+1 {{C5: elements of c overlap}}
  %0 = library.matmul %x <0, [0, 8, 1]>, %w <0, [0, 16, 1]> to <0, [0, 16, 1]> {m = 6, n = 16, k = 8, batch = array<i64: 2>} : (tensor<6x8xf32>, tensor<8x16xf32>) -> tensor<6x16xf32>
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>, %b: tensor<16xbf16>) {
  // expected-error @+1 {{C6: element types are 'f32' and 'bf16'}}
  %0 = library.matmul %x <0, [8, 1]>, %w <0, [16, 1]> bias %b to <0, [16, 1]> {m = 6, n = 16, k = 8} : (tensor<6x8xf32>, tensor<8x16xf32>, tensor<16xbf16>) -> tensor<6x16xf32>
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xbf16>) {
  // expected-error @+1 {{C6: element types are 'f32' and 'bf16'}}
  %0 = library.matmul %x <0, [8, 1]>, %w <0, [16, 1]> to <0, [16, 1]> {m = 6, n = 16, k = 8} : (tensor<6x8xf32>, tensor<8x16xbf16>) -> tensor<6x16xf32>
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>) {
  // expected-error @+1 {{C6: a product of 'f32' has results of 'bf16'}}
  %0 = library.matmul %x <0, [8, 1]>, %w <0, [16, 1]> to <0, [16, 1]> {m = 6, n = 16, k = 8} : (tensor<6x8xf32>, tensor<8x16xf32>) -> tensor<6x16xbf16>
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>, %b: tensor<15xf32>) {
  // expected-error @+1 {{C7: bias is 15, columns 16}}
  %0 = library.matmul %x <0, [8, 1]>, %w <0, [16, 1]> bias %b to <0, [16, 1]> {m = 6, n = 16, k = 8} : (tensor<6x8xf32>, tensor<8x16xf32>, tensor<15xf32>) -> tensor<6x16xf32>
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>, %g: tensor<7x16xf32>) {
  // expected-error @+1 {{C8: into is}}
  %0 = library.matmul %x <0, [8, 1]>, %w <0, [16, 1]> into %g to <0, [16, 1]> {m = 6, n = 16, k = 8} : (tensor<6x8xf32>, tensor<8x16xf32>, tensor<7x16xf32>) -> tensor<6x16xf32>
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>) {
  // expected-error @+1 {{C8: accumulate without into}}
  %0 = library.matmul %x <0, [8, 1]>, %w <0, [16, 1]> to <0, [16, 1]> {m = 6, n = 16, k = 8, accumulate} : (tensor<6x8xf32>, tensor<8x16xf32>) -> tensor<6x16xf32>
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>) {
  // expected-error @+1 {{C9: aux and gelu_gradient come together}}
  %0 = library.matmul %x <0, [8, 1]>, %w <0, [16, 1]> to <0, [16, 1]> {m = 6, n = 16, k = 8, epilogue = #library.epilogue<gelu_gradient>} : (tensor<6x8xf32>, tensor<8x16xf32>) -> tensor<6x16xf32>
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>) {
  // expected-error @+1 {{C9: a view of aux and aux come together}}
  %0 = library.matmul %x <0, [8, 1]>, %w <0, [16, 1]> to <0, [16, 1]> {m = 6, n = 16, k = 8, aux_view = #library.view<0, [16, 1]>} : (tensor<6x8xf32>, tensor<8x16xf32>) -> tensor<6x16xf32>
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>, %g: tensor<6x16xf32>) {
  // expected-error @+1 {{C9: an epilogue of a batched or accumulating product}}
  %0 = library.matmul %x <0, [8, 1]>, %w <0, [16, 1]> into %g to <0, [16, 1]> {m = 6, n = 16, k = 8, accumulate, epilogue = #library.epilogue<relu>} : (tensor<6x8xf32>, tensor<8x16xf32>, tensor<6x16xf32>) -> tensor<6x16xf32>
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>) {
  // expected-error @+1 {{C10: sum_rows of a batched product or one with an epilogue}}
  %0, %1 = library.matmul %x <0, [8, 1]>, %w <0, [16, 1]> to <0, [16, 1]> {m = 6, n = 16, k = 8, sum_rows, epilogue = #library.epilogue<relu>} : (tensor<6x8xf32>, tensor<8x16xf32>) -> (tensor<6x16xf32>, tensor<6xf32>)
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>) {
  // expected-error @+1 {{C10: sum_rows gives 6 elements}}
  %0, %1 = library.matmul %x <0, [8, 1]>, %w <0, [16, 1]> to <0, [16, 1]> {m = 6, n = 16, k = 8, sum_rows} : (tensor<6x8xf32>, tensor<8x16xf32>) -> (tensor<6x16xf32>, tensor<5xf32>)
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>) {
  // expected-error @+1 {{C10: sum_rows gives 6 elements}}
  %0 = library.matmul %x <0, [8, 1]>, %w <0, [16, 1]> to <0, [16, 1]> {m = 6, n = 16, k = 8, sum_rows} : (tensor<6x8xf32>, tensor<8x16xf32>) -> tensor<6x16xf32>
  return
}
// -----
func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>) {
  // expected-error @+1 {{C11: a second result without gelu or sum_rows}}
  %0, %1 = library.matmul %x <0, [8, 1]>, %w <0, [16, 1]> to <0, [16, 1]> {m = 6, n = 16, k = 8, aux_view = #library.view<0, [16, 1]>} : (tensor<6x8xf32>, tensor<8x16xf32>) -> (tensor<6x16xf32>, tensor<6x16xf32>)
  return
}
// -----
func.func @f(%x: tensor<3x4x4xf32>, %w: tensor<5x3x3x3xf32>) {
  // expected-error @+1 {{C1: ranks are 3 and 4}}
  %0 = library.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 1} : (tensor<3x4x4xf32>, tensor<5x3x3x3xf32>) -> tensor<2x5x4x4xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3x4x4xf32>, %w: tensor<5x3x3x3xf32>) {
  // expected-error @+1 {{C2: the input has 3 channels}}
  %0 = library.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 2} : (tensor<2x3x4x4xf32>, tensor<5x3x3x3xf32>) -> tensor<2x5x4x4xf32>
  return
}
// -----
func.func @f(%x: tensor<2x4x4x4xf32>, %w: tensor<5x2x3x3xf32>) {
  // expected-error @+1 {{C3: 2 groups do not divide 5 output channels}}
  %0 = library.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 2} : (tensor<2x4x4x4xf32>, tensor<5x2x3x3xf32>) -> tensor<2x5x4x4xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3x2x2xf32>, %w: tensor<5x3x7x7xf32>) {
  // expected-error @+1 {{C4: the output would be 0x0}}
  %0 = library.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 1} : (tensor<2x3x2x2xf32>, tensor<5x3x7x7xf32>) -> tensor<2x5x1x1xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3x4x4xf32>, %w: tensor<5x3x3x3xf32>) {
  // expected-error @+1 {{C5: }}
  %0 = library.conv2d %x, %w {stride = array<i64: 0, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 1} : (tensor<2x3x4x4xf32>, tensor<5x3x3x3xf32>) -> tensor<2x5x4x4xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3x4x4xf32>, %w: tensor<5x3x3x3xf32>) {
  // expected-error @+1 {{C6: the result is 2x5x4x5, the convolution's shape 2x5x4x4}}
  %0 = library.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 1} : (tensor<2x3x4x4xf32>, tensor<5x3x3x3xf32>) -> tensor<2x5x4x5xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3x4x4xf32>, %w: tensor<5x3x3x3xf32>) {
  // expected-error @+1 {{C7: element types are 'f32' and 'bf16'}}
  %0 = library.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 1} : (tensor<2x3x4x4xf32>, tensor<5x3x3x3xf32>) -> tensor<2x5x4x4xbf16>
  return
}
// -----
func.func @f(%x: tensor<2x3x4x4xf32>, %w: tensor<5x3x3x3xf32>, %b: tensor<3xf32>) {
  // expected-error @+1 {{C8: bias is 3, output channels 5}}
  %0 = library.conv2d %x, %w bias %b {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 1} : (tensor<2x3x4x4xf32>, tensor<5x3x3x3xf32>, tensor<3xf32>) -> tensor<2x5x4x4xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3x4x4xf32>, %w: tensor<5x3x3x3xf32>) {
  // expected-error @+1 {{C9: the epilogue is relu, without bias}}
  %0 = library.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 1, epilogue = #library.epilogue<relu>} : (tensor<2x3x4x4xf32>, tensor<5x3x3x3xf32>) -> tensor<2x5x4x4xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3x4x4xf32>, %w: tensor<5x3x3x3xf32>, %b: tensor<5xf32>) {
  // expected-error @+1 {{C9: the epilogue is gelu, with a bias}}
  %0 = library.conv2d %x, %w bias %b {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 1, epilogue = #library.epilogue<gelu>} : (tensor<2x3x4x4xf32>, tensor<5x3x3x3xf32>, tensor<5xf32>) -> tensor<2x5x4x4xf32>
  return
}
// -----
func.func @f(%dy: tensor<2x5x4x4xf32>, %x: tensor<3x4x4xf32>) {
  // expected-error @+1 {{C1: ranks are 3 and 4}}
  %0 = library.conv2d_weight_grad %dy, %x {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 1} : (tensor<2x5x4x4xf32>, tensor<3x4x4xf32>) -> tensor<5x3x3x3xf32>
  return
}
// -----
func.func @f(%dy: tensor<2x5x4x4xf32>, %x: tensor<2x3x4x4xf32>) {
  // expected-error @+1 {{C2: the input has 3 channels, the weight 2 groups of 3}}
  %0 = library.conv2d_weight_grad %dy, %x {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 2} : (tensor<2x5x4x4xf32>, tensor<2x3x4x4xf32>) -> tensor<5x3x3x3xf32>
  return
}
// -----
func.func @f(%dy: tensor<2x5x4x4xf32>, %x: tensor<2x4x4x4xf32>) {
  // expected-error @+1 {{C3: 2 groups do not divide 5 output channels}}
  %0 = library.conv2d_weight_grad %dy, %x {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 2} : (tensor<2x5x4x4xf32>, tensor<2x4x4x4xf32>) -> tensor<5x2x3x3xf32>
  return
}
// -----
func.func @f(%dy: tensor<2x5x1x1xf32>, %x: tensor<2x3x2x2xf32>) {
  // expected-error @+1 {{C4: the output would be 0x0}}
  %0 = library.conv2d_weight_grad %dy, %x {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 1} : (tensor<2x5x1x1xf32>, tensor<2x3x2x2xf32>) -> tensor<5x3x7x7xf32>
  return
}
// -----
func.func @f(%dy: tensor<2x5x4x4xf32>, %x: tensor<2x3x4x4xf32>) {
  // expected-error @+1 {{C5: stride and dilation are not 2 positive values}}
  %0 = library.conv2d_weight_grad %dy, %x {stride = array<i64: 0, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 1} : (tensor<2x5x4x4xf32>, tensor<2x3x4x4xf32>) -> tensor<5x3x3x3xf32>
  return
}
// -----
func.func @f(%dy: tensor<2x5x4x4xf32>, %x: tensor<2x3x4x4xf32>) {
  // expected-error @+1 {{C6: grad is 2x5x4x4, the convolution's shape 2x6x4x4}}
  %0 = library.conv2d_weight_grad %dy, %x {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 1} : (tensor<2x5x4x4xf32>, tensor<2x3x4x4xf32>) -> tensor<6x3x3x3xf32>
  return
}
// -----
func.func @f(%dy: tensor<2x5x4x4xf32>, %x: tensor<2x3x4x4xf32>) {
  // expected-error @+1 {{C7: a gradient from operands of 'f32' has elements of 'bf16'}}
  %0 = library.conv2d_weight_grad %dy, %x {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 1} : (tensor<2x5x4x4xf32>, tensor<2x3x4x4xf32>) -> tensor<5x3x3x3xbf16>
  return
}
// -----
func.func @f(%dy: tensor<2x5x4x4xf32>, %x: tensor<2x3x4x4xf32>, %g: tensor<5x3x3x3xbf16>) {
  // expected-error @+1 {{C8: into is}}
  %0 = library.conv2d_weight_grad %dy, %x into %g {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 1, accumulate} : (tensor<2x5x4x4xf32>, tensor<2x3x4x4xf32>, tensor<5x3x3x3xbf16>) -> tensor<5x3x3x3xf32>
  return
}
// -----
func.func @f(%dy: tensor<2x5x4x4xf32>, %x: tensor<2x3x4x4xf32>) {
  // expected-error @+1 {{C8: into and accumulate come together}}
  %0 = library.conv2d_weight_grad %dy, %x {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 1, accumulate} : (tensor<2x5x4x4xf32>, tensor<2x3x4x4xf32>) -> tensor<5x3x3x3xf32>
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %k: tensor<2x4x3x8xbf16>) {
  // expected-error @+1 {{C1: q is 2x4x3x8, k 2x4x2x8, causal}}
  %0, %1 = library.attention %q <0, [96, 24, 8, 1]>, %k <0, [96, 24, 8, 1]>, %k <0, [96, 24, 8, 1]> to <0, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 3, keys = 2, width = 8, scale = 1.0, causal} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>) -> (tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>)
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %k: tensor<2x4x3x8xbf16>) {
  // expected-error @+1 {{C1: q is 2x4x0x8}}
  %0, %1 = library.attention %q <0, [96, 24, 8, 1]>, %k <0, [96, 24, 8, 1]>, %k <0, [96, 24, 8, 1]> to <0, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 0, keys = 3, width = 8, scale = 1.0, causal} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>) -> (tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>)
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %k: tensor<2x4x3x8xbf16>) {
  // expected-error @+1 {{C2: the view of q has 3 strides for the 4 dimensions 2x4x3x8}}
  %0, %1 = library.attention %q <0, [96, 24, 1]>, %k <0, [96, 24, 8, 1]>, %k <0, [96, 24, 8, 1]> to <0, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0, causal} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>) -> (tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>)
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %k: tensor<2x4x3x8xbf16>) {
  // expected-error @+1 {{C2: the last stride of k is 0}}
  %0, %1 = library.attention %q <0, [96, 24, 8, 1]>, %k <0, [96, 24, 8, 0]>, %k <0, [96, 24, 8, 0]> to <0, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0, causal} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>) -> (tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>)
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %k: tensor<2x4x3x8xbf16>) {
  // expected-error @+1 {{C3: the view of k reaches element 215 of 192}}
  %0, %1 = library.attention %q <0, [96, 24, 8, 1]>, %k <0, [120, 24, 8, 1]>, %k <0, [120, 24, 8, 1]> to <0, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0, causal} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>) -> (tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>)
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %k: tensor<2x4x3x8xbf16>) {
  // expected-error @+1 {{C4: elements of the result overlap}}
  %0, %1 = library.attention %q <0, [96, 24, 8, 1]>, %k <0, [96, 24, 8, 1]>, %k <0, [96, 24, 8, 1]> to <0, [96, 24, 7, 1]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0, causal} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>) -> (tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>)
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %k: tensor<2x4x3x8xf32>) {
  // expected-error @+1 {{C5: element types are 'bf16' and 'f32'}}
  %0, %1 = library.attention %q <0, [96, 24, 8, 1]>, %k <0, [96, 24, 8, 1]>, %k <0, [96, 24, 8, 1]> to <0, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0, causal} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xf32>, tensor<2x4x3x8xf32>) -> (tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>)
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %k: tensor<2x4x3x8xbf16>) {
  // expected-error @+1 {{C5: lse is 'tensor<2x4x3xbf16>', the rows are 2x4x3}}
  %0, %1 = library.attention %q <0, [96, 24, 8, 1]>, %k <0, [96, 24, 8, 1]>, %k <0, [96, 24, 8, 1]> to <0, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0, causal} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>) -> (tensor<2x4x3x8xbf16>, tensor<2x4x3xbf16>)
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %l: tensor<2x4x3xf32>) {
  // expected-error @+1 {{C1: q is 2x4x0x8}}
  %0 = library.attention_grad %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %l to <0, [96, 24, 8, 1]>, <192, [96, 24, 8, 1]>, <384, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 0, keys = 3, width = 8, scale = 1.0} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>) -> tensor<3x2x4x3x8xbf16>
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %l: tensor<2x4x3xf32>) {
  // expected-error @+1 {{C2: the last stride of dv is 0}}
  %0 = library.attention_grad %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %l to <0, [96, 24, 8, 1]>, <192, [96, 24, 8, 1]>, <384, [96, 24, 8, 0]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>) -> tensor<3x2x4x3x8xbf16>
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %l: tensor<2x4x3xf32>) {
  // expected-error @+1 {{C3: the view of dk reaches element 591 of 576}}
  %0 = library.attention_grad %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %l to <0, [96, 24, 8, 1]>, <400, [96, 24, 8, 1]>, <384, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>) -> tensor<3x2x4x3x8xbf16>
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %l: tensor<2x4x3xf32>) {
  // expected-error @+1 {{C4: elements of dk overlap}}
  %0 = library.attention_grad %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %l to <0, [96, 24, 8, 1]>, <96, [96, 0, 8, 1]>, <384, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>) -> tensor<3x2x4x3x8xbf16>
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %l: tensor<2x4x3xbf16>) {
  // expected-error @+1 {{C5: lse is 'tensor<2x4x3xbf16>', the rows are 2x4x3}}
  %0 = library.attention_grad %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %l to <0, [96, 24, 8, 1]>, <192, [96, 24, 8, 1]>, <384, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3xbf16>) -> tensor<3x2x4x3x8xbf16>
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %l: tensor<2x4x3xf32>) {
  // expected-error @+1 {{C7: there are 2 results, not one or three}}
  %0:2 = library.attention_grad %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %l to <0, [96, 24, 8, 1]>, <96, [96, 24, 8, 1]>, <384, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>) -> (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>)
  return
}
// -----
func.func @f(%grad: tensor<6x4xf32>, %ids: tensor<5xi32>) {
  // expected-error @+1 {{C1: grad is 6x4, ids 5}}
  %0 = library.embedding_grad %grad, %ids : (tensor<6x4xf32>, tensor<5xi32>) -> tensor<9x4xf32>
  return
}
// -----
func.func @f(%grad: tensor<5x4xf32>, %ids: tensor<5xi32>) {
  // expected-error @+1 {{C2: the result is 9x3, the width 4}}
  %0 = library.embedding_grad %grad, %ids : (tensor<5x4xf32>, tensor<5xi32>) -> tensor<9x3xf32>
  return
}
// -----
func.func @f(%grad: tensor<5x4xf32>, %ids: tensor<5xi32>) {
  // expected-error @+1 {{C3: element types are 'f32' and 'bf16'}}
  %0 = library.embedding_grad %grad, %ids : (tensor<5x4xf32>, tensor<5xi32>) -> tensor<9x4xbf16>
  return
}
// -----
func.func @f(%grad: tensor<5x4xf32>, %ids: tensor<5xi32>, %t: tensor<9x4xf32>) {
  // expected-error @+1 {{C4: into and accumulate come together}}
  %0 = library.embedding_grad %grad, %ids into %t : (tensor<5x4xf32>, tensor<5xi32>, tensor<9x4xf32>) -> tensor<9x4xf32>
  return
}
// -----
func.func @f(%grad: tensor<5x4xf32>, %ids: tensor<5xi32>, %s: tensor<1xi32>) {
  // expected-error @+1 {{C5: start is 1}}
  %0 = library.embedding_grad %grad, %ids start %s : (tensor<5x4xf32>, tensor<5xi32>, tensor<1xi32>) -> tensor<9x4xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{C1: the sizes are 2x0}}
  %0 = library.copy %x <0, [3, 1]> to <4, [7, 1]> {shape = array<i64: 2, 0>} : (tensor<2x3xf32>) -> tensor<2x7xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{C2: the view of the source has 1 strides}}
  %0 = library.copy %x <0, [1]> to <4, [7, 1]> {shape = array<i64: 2, 3>} : (tensor<2x3xf32>) -> tensor<2x7xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{C3: the view of the result reaches element 14 of 14}}
  %0 = library.copy %x <0, [3, 1]> to <5, [7, 1]> {shape = array<i64: 2, 3>} : (tensor<2x3xf32>) -> tensor<2x7xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{C4: elements of the result overlap}}
  %0 = library.copy %x <0, [3, 1]> to <0, [2, 1]> {shape = array<i64: 2, 3>} : (tensor<2x3xf32>) -> tensor<2x7xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{C5: element types are 'f32' and 'bf16'}}
  %0 = library.copy %x <0, [3, 1]> to <4, [7, 1]> {shape = array<i64: 2, 3>} : (tensor<2x3xf32>) -> tensor<2x7xbf16>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>, %g: tensor<2x8xf32>) {
  // expected-error @+1 {{C6: into is}}
  %0 = library.copy %x <0, [3, 1]> into %g to <4, [7, 1]> {shape = array<i64: 2, 3>} : (tensor<2x3xf32>, tensor<2x8xf32>) -> tensor<2x7xf32>
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %l: tensor<2x4x3xf32>, %b: tensor<3x3xbf16>) {
  // expected-error @+1 {{C6: bias is 'tensor<3x3xbf16>'}}
  %0, %1 = library.attention %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]> bias %b <0, [0, 0, 3, 1]> to <0, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<3x3xbf16>) -> (tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>)
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %l: tensor<2x4x3xf32>, %b: tensor<3x3xf32>) {
  // expected-error @+1 {{C2: the last stride of bias is 0}}
  %0, %1 = library.attention %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]> bias %b <0, [0, 0, 3, 0]> to <0, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<3x3xf32>) -> (tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>)
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %l: tensor<2x4x3xf32>, %k: tensor<3x3xi1>) {
  // expected-error @+1 {{C3: the view of keep reaches element 9 of 9}}
  %0, %1 = library.attention %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]> keep %k <1, [0, 0, 3, 1]> to <0, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0, dropout = 0.5} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<3x3xi1>) -> (tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>)
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %l: tensor<2x4x3xf32>) {
  // expected-error @+1 {{C6: bias is absent, but not its view}}
  %0, %1 = library.attention %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]> to <0, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0, bias_view = #library.view<0, [0, 0, 3, 1]>} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>) -> (tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>)
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %l: tensor<2x4x3xf32>) {
  // expected-error @+1 {{C6: dropout is 5.000000e-01 without keep}}
  %0, %1 = library.attention %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]> to <0, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0, dropout = 0.5} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>) -> (tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>)
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %l: tensor<2x4x3xf32>, %b: tensor<3x3xbf16>) {
  // expected-error @+1 {{C6: bias is 'tensor<3x3xbf16>'}}
  %0 = library.attention_grad %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %l bias %b <0, [0, 0, 3, 1]> to <0, [96, 24, 8, 1]>, <192, [96, 24, 8, 1]>, <384, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>, tensor<3x3xbf16>) -> tensor<3x2x4x3x8xbf16>
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %l: tensor<2x4x3xf32>, %b: tensor<3x3xf32>) {
  // expected-error @+1 {{C2: the last stride of bias is 0}}
  %0 = library.attention_grad %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %l bias %b <0, [0, 0, 3, 0]> to <0, [96, 24, 8, 1]>, <192, [96, 24, 8, 1]>, <384, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>, tensor<3x3xf32>) -> tensor<3x2x4x3x8xbf16>
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %l: tensor<2x4x3xf32>, %k: tensor<3x3xi1>) {
  // expected-error @+1 {{C3: the view of keep reaches element 9 of 9}}
  %0 = library.attention_grad %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %l keep %k <1, [0, 0, 3, 1]> to <0, [96, 24, 8, 1]>, <192, [96, 24, 8, 1]>, <384, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0, dropout = 0.5} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>, tensor<3x3xi1>) -> tensor<3x2x4x3x8xbf16>
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %l: tensor<2x4x3xf32>) {
  // expected-error @+1 {{C6: bias is absent, but not its view}}
  %0 = library.attention_grad %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %l to <0, [96, 24, 8, 1]>, <192, [96, 24, 8, 1]>, <384, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0, bias_view = #library.view<0, [0, 0, 3, 1]>} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>) -> tensor<3x2x4x3x8xbf16>
  return
}
// -----
func.func @f(%q: tensor<2x4x3x8xbf16>, %l: tensor<2x4x3xf32>) {
  // expected-error @+1 {{C6: dropout is 5.000000e-01 without keep}}
  %0 = library.attention_grad %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %q <0, [96, 24, 8, 1]>, %l to <0, [96, 24, 8, 1]>, <192, [96, 24, 8, 1]>, <384, [96, 24, 8, 1]> {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 1.0, dropout = 0.5} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>) -> tensor<3x2x4x3x8xbf16>
  return
}
