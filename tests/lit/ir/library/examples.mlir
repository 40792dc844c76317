// One example per group of ops. docs/ir.md shows it under the group's title, the comment above it.
// RUN: cleave-opt %s

// Matrix products
func.func @linear(%x: tensor<6x8xbf16>, %weight: tensor<16x8xbf16>, %bias: tensor<16xbf16>) -> tensor<6x16xbf16> {
  %0 = library.matmul %x<0, [8, 1]>, %weight<0, [1, 8]> bias %bias to <0, [16, 1]> {m = 6, n = 16, k = 8, epilogue = #library.epilogue<relu>}
      : (tensor<6x8xbf16>, tensor<16x8xbf16>, tensor<16xbf16>) -> tensor<6x16xbf16>
  return %0 : tensor<6x16xbf16>
}

// Convolutions
func.func @convolution(%x: tensor<2x4x4x3xf32>, %weight: tensor<5x3x3x3xf32>, %bias: tensor<5xf32>) -> tensor<2x4x4x5xf32> {
  %0 = library.conv2d %x, %weight bias %bias {channels_last, stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>,
      dilation = array<i64: 1, 1>, groups = 1, epilogue = #library.epilogue<relu>}
      : (tensor<2x4x4x3xf32>, tensor<5x3x3x3xf32>, tensor<5xf32>) -> tensor<2x4x4x5xf32>
  return %0 : tensor<2x4x4x5xf32>
}

// Attention
func.func @heads(%qkv: tensor<2x3x96xbf16>) -> tensor<2x3x32xbf16> {
  %0, %lse = library.attention %qkv<0, [288, 8, 96, 1]>, %qkv<32, [288, 8, 96, 1]>, %qkv<64, [288, 8, 96, 1]> to <0, [96, 8, 32, 1]>
      {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 0.5, causal}
      : (tensor<2x3x96xbf16>, tensor<2x3x96xbf16>, tensor<2x3x96xbf16>) -> (tensor<2x3x32xbf16>, tensor<2x4x3xf32>)
  return %0 : tensor<2x3x32xbf16>
}

// Look-ups and copies
func.func @table(%grad: tensor<5x4xf32>, %ids: tensor<5xi32>, %sum: tensor<9x4xf32>, %whole: tensor<18x4xf32>) -> tensor<18x4xf32> {
  %0 = library.embedding_grad %grad, %ids into %sum {accumulate} : (tensor<5x4xf32>, tensor<5xi32>, tensor<9x4xf32>) -> tensor<9x4xf32>
  %1 = library.copy %0<0, [4, 1]> into %whole to <36, [4, 1]> {shape = array<i64: 9, 4>} : (tensor<9x4xf32>, tensor<18x4xf32>) -> tensor<18x4xf32>
  return %1 : tensor<18x4xf32>
}
