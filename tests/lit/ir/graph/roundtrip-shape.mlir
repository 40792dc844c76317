// Ops that move elements print as they are read.
// RUN: cleave-opt %s > %t && cleave-opt %t | diff %t - && FileCheck %s < %t

// CHECK-LABEL: func.func @shapes
func.func @shapes(%x: tensor<4x6xf32>, %s: tensor<f32>) -> tensor<5x6xf32> {
  // CHECK: cleave.broadcast %{{.*}} dims [] : tensor<f32> -> tensor<4x6xf32>
  %0 = cleave.broadcast %s dims [] : tensor<f32> -> tensor<4x6xf32>
  // CHECK: cleave.broadcast %{{.*}} dims [0, 2] : tensor<4x6xf32> -> tensor<4x2x6xf32>
  %1 = cleave.broadcast %x dims [0, 2] : tensor<4x6xf32> -> tensor<4x2x6xf32>
  // CHECK: cleave.reduce{{ +}}max %{{.*}} dims [1, 2] : tensor<4x2x6xf32> -> tensor<4xf32>
  %2 = cleave.reduce max %1 dims [1, 2] : tensor<4x2x6xf32> -> tensor<4xf32>
  // CHECK: cleave.reshape %{{.*}} : tensor<4x6xf32> -> tensor<2x12xf32>
  %3 = cleave.reshape %x : tensor<4x6xf32> -> tensor<2x12xf32>
  // CHECK: cleave.transpose %{{.*}} permutation [1, 0] : tensor<2x12xf32> -> tensor<12x2xf32>
  %4 = cleave.transpose %3 permutation [1, 0] : tensor<2x12xf32> -> tensor<12x2xf32>
  // CHECK: cleave.slice %{{.*}} starts [2, 0] sizes [4, 1] : tensor<12x2xf32> -> tensor<4x1xf32>
  %5 = cleave.slice %4 starts [2, 0] sizes [4, 1] : tensor<12x2xf32> -> tensor<4x1xf32>
  // CHECK: cleave.pad %{{.*}} low [0, 2] high [0, 3] : tensor<4x1xf32> -> tensor<4x6xf32>
  %6 = cleave.pad %5 low [0, 2] high [0, 3] : tensor<4x1xf32> -> tensor<4x6xf32>
  %7 = cleave.slice %6 starts [0, 0] sizes [1, 6] : tensor<4x6xf32> -> tensor<1x6xf32>
  // CHECK: cleave.concat %{{.*}}, %{{.*}} {dim = 0 : i64} : (tensor<4x6xf32>, tensor<1x6xf32>) -> tensor<5x6xf32>
  %8 = cleave.concat %x, %7 {dim = 0 : i64} : (tensor<4x6xf32>, tensor<1x6xf32>) -> tensor<5x6xf32>
  return %8 : tensor<5x6xf32>
}

// CHECK-LABEL: func.func @lookups
func.func @lookups(%x: tensor<4x6xf32>, %i: tensor<4x2xi32>, %table: tensor<50x8xf32>, %ids: tensor<2x3xi32>, %start: tensor<i32>) {
  // CHECK: cleave.gather %{{.*}}, %{{.*}} {dim = 1 : i64} : (tensor<4x6xf32>, tensor<4x2xi32>) -> tensor<4x2xf32>
  %0 = cleave.gather %x, %i {dim = 1 : i64} : (tensor<4x6xf32>, tensor<4x2xi32>) -> tensor<4x2xf32>
  // CHECK: cleave.scatter_add %{{.*}}, %{{.*}} {dim = 1 : i64} : (tensor<4x2xf32>, tensor<4x2xi32>) -> tensor<4x6xf32>
  %1 = cleave.scatter_add %0, %i {dim = 1 : i64} : (tensor<4x2xf32>, tensor<4x2xi32>) -> tensor<4x6xf32>
  // CHECK: cleave.embedding %{{.*}}, %{{.*}} : (tensor<50x8xf32>, tensor<2x3xi32>) -> tensor<2x3x8xf32>
  %2 = cleave.embedding %table, %ids : (tensor<50x8xf32>, tensor<2x3xi32>) -> tensor<2x3x8xf32>
  // CHECK: cleave.embedding_grad %{{.*}}, %{{.*}}, %{{.*}} : (tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<i32>) -> tensor<25x8xf32>
  %3 = cleave.embedding_grad %2, %ids, %start : (tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<i32>) -> tensor<25x8xf32>
  return
}
