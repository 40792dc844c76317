// The library dialect prints as it is read.
// RUN: cleave-opt %s > %t && cleave-opt %t | diff %t - && FileCheck %s < %t

// CHECK-LABEL: @products
func.func @products(%x: tensor<6x8xbf16>, %w: tensor<16x8xbf16>, %b: tensor<16xbf16>, %h: tensor<6x16xbf16>, %g: tensor<16x8xf32>) {
  // CHECK: library.matmul %arg0 <0, [8, 1]>, %arg1 <0, [1, 8]> bias %arg2 to <0, [16, 1]> {epilogue = #library.epilogue<relu>, k = 8 : i64, m = 6 : i64, n = 16 : i64}
  %0 = library.matmul %x<0, [8, 1]>, %w<0, [1, 8]> bias %b to <0, [16, 1]> {m = 6, n = 16, k = 8, epilogue = #library.epilogue<relu>}
      : (tensor<6x8xbf16>, tensor<16x8xbf16>, tensor<16xbf16>) -> tensor<6x16xbf16>
  // CHECK: %{{.*}}, %second = library.matmul {{.*}}aux_view = #library.view<0, [16, 1]>
  %1, %before = library.matmul %x<0, [8, 1]>, %w<0, [1, 8]> to <0, [16, 1]>
      {m = 6, n = 16, k = 8, epilogue = #library.epilogue<gelu>, aux_view = #library.view<0, [16, 1]>}
      : (tensor<6x8xbf16>, tensor<16x8xbf16>) -> (tensor<6x16xbf16>, tensor<6x16xbf16>)
  // CHECK: library.matmul {{.*}} aux %arg3 to
  %2 = library.matmul %x<0, [8, 1]>, %w<0, [1, 8]> aux %h to <0, [16, 1]>
      {m = 6, n = 16, k = 8, epilogue = #library.epilogue<gelu_gradient>, aux_view = #library.view<0, [16, 1]>}
      : (tensor<6x8xbf16>, tensor<16x8xbf16>, tensor<6x16xbf16>) -> tensor<6x16xbf16>
  // The gradient of a weight, added to the accumulated one, and the gradient of a bias.
  // CHECK: library.matmul {{.*}} into %arg4 to {{.*}}accumulate{{.*}}sum_rows
  %3, %sums = library.matmul %h<0, [1, 16]>, %x<0, [8, 1]> into %g to <0, [8, 1]> {m = 16, n = 8, k = 6, accumulate, sum_rows}
      : (tensor<6x16xbf16>, tensor<6x8xbf16>, tensor<16x8xf32>) -> (tensor<16x8xf32>, tensor<16xf32>)
  return
}

// CHECK-LABEL: @convolutions
func.func @convolutions(%x: tensor<2x4x4x3xf32>, %w: tensor<5x3x3x3xf32>, %b: tensor<5xf32>, %dy: tensor<2x4x4x5xf32>, %g: tensor<5x3x3x3xf32>) {
  // CHECK: library.conv2d %arg0, %arg1 bias %arg2
  %0 = library.conv2d %x, %w bias %b {channels_last, stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>,
      dilation = array<i64: 1, 1>, groups = 1, epilogue = #library.epilogue<relu>}
      : (tensor<2x4x4x3xf32>, tensor<5x3x3x3xf32>, tensor<5xf32>) -> tensor<2x4x4x5xf32>
  // CHECK: library.conv2d_weight_grad %arg3, %arg0 into %arg4 {accumulate
  %1 = library.conv2d_weight_grad %dy, %x into %g {accumulate, channels_last, stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>,
      dilation = array<i64: 1, 1>, groups = 1} : (tensor<2x4x4x5xf32>, tensor<2x4x4x3xf32>, tensor<5x3x3x3xf32>) -> tensor<5x3x3x3xf32>
  return
}

// CHECK-LABEL: @heads
// The heads of one projection [batch 2, rows 3, (q, k, v) x heads 4 x width 8] are read, and their gradients written, in place.
func.func @heads(%qkv: tensor<2x3x96xbf16>, %dy: tensor<2x3x32xbf16>, %bias: tensor<3x3xf32>, %keep: tensor<2x4x3x3xi1>) {
  // CHECK: library.attention %arg0 <0, [288, 8, 96, 1]>, %arg0 <32, [288, 8, 96, 1]>, %arg0 <64, [288, 8, 96, 1]> to <0, [96, 8, 32, 1]>
  %o, %lse = library.attention %qkv<0, [288, 8, 96, 1]>, %qkv<32, [288, 8, 96, 1]>, %qkv<64, [288, 8, 96, 1]> to <0, [96, 8, 32, 1]>
      {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 0.5, causal}
      : (tensor<2x3x96xbf16>, tensor<2x3x96xbf16>, tensor<2x3x96xbf16>) -> (tensor<2x3x32xbf16>, tensor<2x4x3xf32>)
  // CHECK: library.attention_grad %arg1 <0, [96, 8, 32, 1]>, {{.*}}, %lse to <0, [288, 8, 96, 1]>, <32, [288, 8, 96, 1]>, <64, [288, 8, 96, 1]>
  %d = library.attention_grad %dy<0, [96, 8, 32, 1]>, %qkv<0, [288, 8, 96, 1]>, %qkv<32, [288, 8, 96, 1]>, %qkv<64, [288, 8, 96, 1]>,
      %o<0, [96, 8, 32, 1]>, %lse to <0, [288, 8, 96, 1]>, <32, [288, 8, 96, 1]>, <64, [288, 8, 96, 1]>
      {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 0.5, causal}
      : (tensor<2x3x32xbf16>, tensor<2x3x96xbf16>, tensor<2x3x96xbf16>, tensor<2x3x96xbf16>, tensor<2x3x32xbf16>, tensor<2x4x3xf32>)
      -> tensor<2x3x96xbf16>
  // CHECK: library.attention {{.*}} bias %arg2 <0, [0, 0, 3, 1]> keep %arg3 <0, [36, 9, 3, 1]> to <0, [96, 8, 32, 1]> {{.*}}dropout = 2.500000e-01
  %p, %l = library.attention %qkv<0, [288, 8, 96, 1]>, %qkv<32, [288, 8, 96, 1]>, %qkv<64, [288, 8, 96, 1]> bias %bias<0, [0, 0, 3, 1]>
      keep %keep<0, [36, 9, 3, 1]> to <0, [96, 8, 32, 1]>
      {batch = 2, heads = 4, rows = 3, keys = 3, width = 8, scale = 0.5, dropout = 0.25}
      : (tensor<2x3x96xbf16>, tensor<2x3x96xbf16>, tensor<2x3x96xbf16>, tensor<3x3xf32>, tensor<2x4x3x3xi1>)
      -> (tensor<2x3x32xbf16>, tensor<2x4x3xf32>)
  return
}

// CHECK-LABEL: @memory
func.func @memory(%grad: tensor<5x4xf32>, %ids: tensor<5xi32>, %start: tensor<i32>, %table: tensor<9x4xf32>, %piece: tensor<2x3xf32>,
                  %whole: tensor<2x7xf32>) {
  // CHECK: library.embedding_grad %arg0, %arg1 start %arg2 into %arg3 {accumulate}
  %0 = library.embedding_grad %grad, %ids start %start into %table {accumulate}
      : (tensor<5x4xf32>, tensor<5xi32>, tensor<i32>, tensor<9x4xf32>) -> tensor<9x4xf32>
  // CHECK: library.copy %arg4 <0, [3, 1]> into %arg5 to <4, [7, 1]> {shape = array<i64: 2, 3>}
  %1 = library.copy %piece<0, [3, 1]> into %whole to <4, [7, 1]> {shape = array<i64: 2, 3>}
      : (tensor<2x3xf32>, tensor<2x7xf32>) -> tensor<2x7xf32>
  return
}
