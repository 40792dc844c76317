// One example per group of ops. docs/ir.md shows it under the group's title, the comment above it.
// RUN: cleave-opt %s

// Elementwise ops
func.func @elementwise(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>) -> tensor<2x3xbf16> {
  %0 = cleave.mul %x, %y : tensor<2x3xf32>
  %1 = cleave.gelu %0 {tanh} : tensor<2x3xf32>
  %2 = cleave.compare lt %1, %y : tensor<2x3xf32> -> tensor<2x3xi1>
  %3 = cleave.select %2, %1, %y : tensor<2x3xi1>, tensor<2x3xf32>
  %4 = cleave.cast %3 : tensor<2x3xf32> -> tensor<2x3xbf16>
  return %4 : tensor<2x3xbf16>
}

// Constants and indices
func.func @sources(%start: tensor<i32>) -> (tensor<4x8xf32>, tensor<4x8xi32>, tensor<4x8xf32>) {
  %0 = cleave.constant dense<1.5> : tensor<4x8xf32> : tensor<4x8xf32>
  %1 = cleave.iota %start {dim = 0} : (tensor<i32>) -> tensor<4x8xi32>
  %2 = cleave.random_uniform {name = "dropout"} : () -> tensor<4x8xf32>
  return %0, %1, %2 : tensor<4x8xf32>, tensor<4x8xi32>, tensor<4x8xf32>
}

// Shapes
func.func @shapes(%bias: tensor<6xf32>) -> tensor<3x2xf32> {
  %0 = cleave.broadcast %bias dims [1] : tensor<6xf32> -> tensor<4x6xf32>
  %1 = cleave.reshape %0 : tensor<4x6xf32> -> tensor<4x2x3xf32>
  %2 = cleave.transpose %1 permutation [2, 1, 0] : tensor<4x2x3xf32> -> tensor<3x2x4xf32>
  %3 = cleave.slice %2 starts [0, 0, 1] sizes [3, 2, 2] : tensor<3x2x4xf32> -> tensor<3x2x2xf32>
  %4 = cleave.reduce sum %3 dims [2] : tensor<3x2x2xf32> -> tensor<3x2xf32>
  return %4 : tensor<3x2xf32>
}

// Look-ups
func.func @lookups(%table: tensor<50x8xf32>, %ids: tensor<2x3xi32>, %scores: tensor<6x50xf32>, %chosen: tensor<6x1xi32>) {
  %0 = cleave.embedding %table, %ids : (tensor<50x8xf32>, tensor<2x3xi32>) -> tensor<2x3x8xf32>
  %1 = cleave.embedding_grad %0, %ids : (tensor<2x3x8xf32>, tensor<2x3xi32>) -> tensor<50x8xf32>
  %2 = cleave.gather %scores, %chosen {dim = 1} : (tensor<6x50xf32>, tensor<6x1xi32>) -> tensor<6x1xf32>
  %3 = cleave.scatter_add %2, %chosen {dim = 1} : (tensor<6x1xf32>, tensor<6x1xi32>) -> tensor<6x50xf32>
  return
}

// Matrix products and convolutions
func.func @products(%x: tensor<8x4xf32>, %weight: tensor<5x4xf32>, %image: tensor<2x3x6x6xf32>, %kernel: tensor<5x3x3x3xf32>) {
  %0 = cleave.matmul %x, %weight {transB} : (tensor<8x4xf32>, tensor<5x4xf32>) -> tensor<8x5xf32>
  %1 = cleave.conv2d %image, %kernel {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 1}
      : (tensor<2x3x6x6xf32>, tensor<5x3x3x3xf32>) -> tensor<2x5x6x6xf32>
  return
}

// Pooling
func.func @pooling(%x: tensor<2x4x8x8xf32>, %grad: tensor<2x4x4x4xf32>) -> tensor<2x4x8x8xf32> {
  %0, %workspace = cleave.max_pool2d %x {kernel = array<i64: 3, 3>, stride = array<i64: 2, 2>, padding = array<i64: 1, 1, 1, 1>}
      : (tensor<2x4x8x8xf32>) -> (tensor<2x4x4x4xf32>, tensor<2x4x4x4xi32>)
  %1 = cleave.max_pool2d_grad %grad, %workspace {kernel = array<i64: 3, 3>, stride = array<i64: 2, 2>, padding = array<i64: 1, 1, 1, 1>}
      : (tensor<2x4x4x4xf32>, tensor<2x4x4x4xi32>) -> tensor<2x4x8x8xf32>
  return %1 : tensor<2x4x8x8xf32>
}

// Attention
func.func @attention(%q: tensor<2x3x4x8xf32>, %k: tensor<2x3x5x8xf32>, %v: tensor<2x3x5x8xf32>) -> tensor<2x3x4x8xf32> {
  %0, %lse = cleave.attention %q, %k, %v {scale = 0.35, causal}
      : (tensor<2x3x4x8xf32>, tensor<2x3x5x8xf32>, tensor<2x3x5x8xf32>) -> (tensor<2x3x4x8xf32>, tensor<2x3x4xf32>)
  return %0 : tensor<2x3x4x8xf32>
}

// Composites
func.func @composites(%x: tensor<6x4xf32>, %weight: tensor<4xf32>, %bias: tensor<4xf32>, %labels: tensor<6xi32>) -> (tensor<f32>, tensor<f32>) {
  %0, %mean, %rstd = cleave.layer_norm %x, %weight, %bias {eps = 1.0e-5}
      : (tensor<6x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<6x4xf32>, tensor<6xf32>, tensor<6xf32>)
  %loss, %rows, %lse = cleave.cross_entropy %0, %labels : (tensor<6x4xf32>, tensor<6xi32>) -> (tensor<f32>, tensor<f32>, tensor<6xf32>)
  return %loss, %rows : tensor<f32>, tensor<f32>
}

// Fusions
func.func @fusions(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>) -> tensor<2xf32> {
  %0 = cleave.fusion(%x, %y) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2xf32> { ^bb0(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>):
    %product = cleave.mul %a, %b : tensor<2x3xf32>
    %sum = cleave.reduce sum %product dims [1] : tensor<2x3xf32> -> tensor<2xf32>
    cleave.yield %sum : tensor<2xf32>
  }
  return %0 : tensor<2xf32>
}

// Marks
func.func @marks(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = cleave.detach %x : tensor<8x4xf32>
  %1 = cleave.shard_hint %0 ["dp", "whole"] : tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}
