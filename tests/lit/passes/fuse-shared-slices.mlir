// Kernels that differ only in the start of a slice are one kernel, whose calls begin at different places. On a GPU the
// addresses must be multiples of 16 bytes; where they are not, the slices are outside. For three kernels, the copies would
// cost too much.
// RUN: cleave-opt %s --fuse | FileCheck %s --check-prefixes=CHECK,CPU
// RUN: cleave-opt %s --fuse=gpu=true | FileCheck %s --check-prefixes=CHECK,GPU

// CHECK-LABEL: func.func @four(
// CHECK: cleave.fusion
// CHECK-NEXT: ^bb0
// CHECK-NEXT: cleave.slice {{.*}} starts [0, 0, 0]
// CHECK: cleave.fusion
// CHECK: cleave.slice {{.*}} starts [0, 3, 0]
// CHECK-LABEL: func.func @narrow(
// CPU: cleave.fusion
// CPU-NEXT: ^bb0
// CPU-NEXT: cleave.slice {{.*}} starts [0, 0, 0]
// GPU: cleave.slice {{.*}} starts [0, 0, 0]
// GPU-NEXT: cleave.reshape
// GPU-NEXT: cleave.fusion
// GPU: cleave.slice {{.*}} starts [0, 3, 0]
// GPU-NEXT: cleave.reshape
// GPU-NEXT: cleave.fusion
// CHECK-LABEL: func.func @three(
// CHECK: cleave.fusion
// CHECK-NEXT: ^bb0
// CHECK-NEXT: cleave.slice

func.func @four(%x: tensor<2x4x16xf32>, %h: tensor<2x16xf32>, %w: tensor<16x16xf32>) -> tensor<2x16xf32> {
  %m0 = cleave.matmul %h, %w : (tensor<2x16xf32>, tensor<16x16xf32>) -> tensor<2x16xf32>
  %s0 = cleave.slice %x starts [0, 0, 0] sizes [2, 1, 16] : tensor<2x4x16xf32> -> tensor<2x1x16xf32>
  %r0 = cleave.reshape %s0 : tensor<2x1x16xf32> -> tensor<2x16xf32>
  %a0 = cleave.add %m0, %r0 : tensor<2x16xf32>
  %h0 = cleave.tanh %a0 : tensor<2x16xf32>
  %m1 = cleave.matmul %h0, %w : (tensor<2x16xf32>, tensor<16x16xf32>) -> tensor<2x16xf32>
  %s1 = cleave.slice %x starts [0, 1, 0] sizes [2, 1, 16] : tensor<2x4x16xf32> -> tensor<2x1x16xf32>
  %r1 = cleave.reshape %s1 : tensor<2x1x16xf32> -> tensor<2x16xf32>
  %a1 = cleave.add %m1, %r1 : tensor<2x16xf32>
  %h1 = cleave.tanh %a1 : tensor<2x16xf32>
  %m2 = cleave.matmul %h1, %w : (tensor<2x16xf32>, tensor<16x16xf32>) -> tensor<2x16xf32>
  %s2 = cleave.slice %x starts [0, 2, 0] sizes [2, 1, 16] : tensor<2x4x16xf32> -> tensor<2x1x16xf32>
  %r2 = cleave.reshape %s2 : tensor<2x1x16xf32> -> tensor<2x16xf32>
  %a2 = cleave.add %m2, %r2 : tensor<2x16xf32>
  %h2 = cleave.tanh %a2 : tensor<2x16xf32>
  %m3 = cleave.matmul %h2, %w : (tensor<2x16xf32>, tensor<16x16xf32>) -> tensor<2x16xf32>
  %s3 = cleave.slice %x starts [0, 3, 0] sizes [2, 1, 16] : tensor<2x4x16xf32> -> tensor<2x1x16xf32>
  %r3 = cleave.reshape %s3 : tensor<2x1x16xf32> -> tensor<2x16xf32>
  %a3 = cleave.add %m3, %r3 : tensor<2x16xf32>
  %h3 = cleave.tanh %a3 : tensor<2x16xf32>
  return %h3 : tensor<2x16xf32>
}

func.func @narrow(%x: tensor<2x4x3xf32>, %h: tensor<2x3xf32>, %w: tensor<3x3xf32>) -> tensor<2x3xf32> {
  %m0 = cleave.matmul %h, %w : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>
  %s0 = cleave.slice %x starts [0, 0, 0] sizes [2, 1, 3] : tensor<2x4x3xf32> -> tensor<2x1x3xf32>
  %r0 = cleave.reshape %s0 : tensor<2x1x3xf32> -> tensor<2x3xf32>
  %a0 = cleave.add %m0, %r0 : tensor<2x3xf32>
  %h0 = cleave.tanh %a0 : tensor<2x3xf32>
  %m1 = cleave.matmul %h0, %w : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>
  %s1 = cleave.slice %x starts [0, 1, 0] sizes [2, 1, 3] : tensor<2x4x3xf32> -> tensor<2x1x3xf32>
  %r1 = cleave.reshape %s1 : tensor<2x1x3xf32> -> tensor<2x3xf32>
  %a1 = cleave.add %m1, %r1 : tensor<2x3xf32>
  %h1 = cleave.tanh %a1 : tensor<2x3xf32>
  %m2 = cleave.matmul %h1, %w : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>
  %s2 = cleave.slice %x starts [0, 2, 0] sizes [2, 1, 3] : tensor<2x4x3xf32> -> tensor<2x1x3xf32>
  %r2 = cleave.reshape %s2 : tensor<2x1x3xf32> -> tensor<2x3xf32>
  %a2 = cleave.add %m2, %r2 : tensor<2x3xf32>
  %h2 = cleave.tanh %a2 : tensor<2x3xf32>
  %m3 = cleave.matmul %h2, %w : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>
  %s3 = cleave.slice %x starts [0, 3, 0] sizes [2, 1, 3] : tensor<2x4x3xf32> -> tensor<2x1x3xf32>
  %r3 = cleave.reshape %s3 : tensor<2x1x3xf32> -> tensor<2x3xf32>
  %a3 = cleave.add %m3, %r3 : tensor<2x3xf32>
  %h3 = cleave.tanh %a3 : tensor<2x3xf32>
  return %h3 : tensor<2x3xf32>
}

func.func @three(%x: tensor<2x3x16xf32>, %h: tensor<2x16xf32>, %w: tensor<16x16xf32>) -> tensor<2x16xf32> {
  %m0 = cleave.matmul %h, %w : (tensor<2x16xf32>, tensor<16x16xf32>) -> tensor<2x16xf32>
  %s0 = cleave.slice %x starts [0, 0, 0] sizes [2, 1, 16] : tensor<2x3x16xf32> -> tensor<2x1x16xf32>
  %r0 = cleave.reshape %s0 : tensor<2x1x16xf32> -> tensor<2x16xf32>
  %a0 = cleave.add %m0, %r0 : tensor<2x16xf32>
  %h0 = cleave.tanh %a0 : tensor<2x16xf32>
  %m1 = cleave.matmul %h0, %w : (tensor<2x16xf32>, tensor<16x16xf32>) -> tensor<2x16xf32>
  %s1 = cleave.slice %x starts [0, 1, 0] sizes [2, 1, 16] : tensor<2x3x16xf32> -> tensor<2x1x16xf32>
  %r1 = cleave.reshape %s1 : tensor<2x1x16xf32> -> tensor<2x16xf32>
  %a1 = cleave.add %m1, %r1 : tensor<2x16xf32>
  %h1 = cleave.tanh %a1 : tensor<2x16xf32>
  %m2 = cleave.matmul %h1, %w : (tensor<2x16xf32>, tensor<16x16xf32>) -> tensor<2x16xf32>
  %s2 = cleave.slice %x starts [0, 2, 0] sizes [2, 1, 16] : tensor<2x3x16xf32> -> tensor<2x1x16xf32>
  %r2 = cleave.reshape %s2 : tensor<2x1x16xf32> -> tensor<2x16xf32>
  %a2 = cleave.add %m2, %r2 : tensor<2x16xf32>
  %h2 = cleave.tanh %a2 : tensor<2x16xf32>
  return %h2 : tensor<2x16xf32>
}
