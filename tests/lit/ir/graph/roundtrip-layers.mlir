// Linear algebra, composites and fusions print as they are read.
// RUN: cleave-opt %s > %t && cleave-opt %t | diff %t - && FileCheck %s < %t

// CHECK-LABEL: func.func @products
func.func @products(%a: tensor<2x3x4xf32>, %b: tensor<5x4xf32>, %c: tensor<2x3x5xf32>) {
  // CHECK: cleave.matmul %{{.*}}, %{{.*}} {transB} : (tensor<2x3x4xf32>, tensor<5x4xf32>) -> tensor<2x3x5xf32>
  %0 = cleave.matmul %a, %b {transB} : (tensor<2x3x4xf32>, tensor<5x4xf32>) -> tensor<2x3x5xf32>
  // CHECK: cleave.matmul %{{.*}}, %{{.*}} {transA} : (tensor<2x3x4xf32>, tensor<2x3x5xf32>) -> tensor<2x4x5xf32>
  %1 = cleave.matmul %a, %c {transA} : (tensor<2x3x4xf32>, tensor<2x3x5xf32>) -> tensor<2x4x5xf32>
  return
}

// CHECK-LABEL: func.func @images
func.func @images(%x: tensor<2x4x8x8xf32>, %w: tensor<6x2x3x3xf32>) {
  // CHECK: cleave.conv2d %{{.*}} {dilation = array<i64: 1, 1>, groups = 2 : i64, padding = array<i64: 1, 1, 1, 1>, stride = array<i64: 2, 2>}
  %0 = cleave.conv2d %x, %w {stride = array<i64: 2, 2>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 2 : i64}
       : (tensor<2x4x8x8xf32>, tensor<6x2x3x3xf32>) -> tensor<2x6x4x4xf32>
  // CHECK: cleave.conv2d_input_grad
  %1 = cleave.conv2d_input_grad %0, %w {stride = array<i64: 2, 2>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 2 : i64}
       : (tensor<2x6x4x4xf32>, tensor<6x2x3x3xf32>) -> tensor<2x4x8x8xf32>
  // CHECK: cleave.conv2d_weight_grad
  %2 = cleave.conv2d_weight_grad %0, %x {stride = array<i64: 2, 2>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 2 : i64}
       : (tensor<2x6x4x4xf32>, tensor<2x4x8x8xf32>) -> tensor<6x2x3x3xf32>
  // CHECK: cleave.max_pool2d
  %3:2 = cleave.max_pool2d %x {kernel = array<i64: 3, 3>, stride = array<i64: 2, 2>, padding = array<i64: 1, 1, 1, 1>}
       : (tensor<2x4x8x8xf32>) -> (tensor<2x4x4x4xf32>, tensor<2x4x4x4xi32>)
  // CHECK: cleave.max_pool2d_grad
  %4 = cleave.max_pool2d_grad %3#0, %3#1 {kernel = array<i64: 3, 3>, stride = array<i64: 2, 2>, padding = array<i64: 1, 1, 1, 1>}
       : (tensor<2x4x4x4xf32>, tensor<2x4x4x4xi32>) -> tensor<2x4x8x8xf32>
  // CHECK: cleave.avg_pool2d
  %5 = cleave.avg_pool2d %x {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>}
       : (tensor<2x4x8x8xf32>) -> tensor<2x4x4x4xf32>
  // CHECK: cleave.avg_pool2d_grad
  %6 = cleave.avg_pool2d_grad %5 {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>}
       : (tensor<2x4x4x4xf32>) -> tensor<2x4x8x8xf32>
  return
}

// CHECK-LABEL: func.func @channels_last
func.func @channels_last(%x: tensor<2x4x4x3xf32>, %w: tensor<5x3x3x3xf32>, %dy: tensor<2x4x4x5xf32>, %p: tensor<2x2x2x3xf32>) {
  // CHECK: cleave.conv2d_input_grad %{{.*}} {channels_last, dilation
  %0 = cleave.conv2d_input_grad %dy, %w {channels_last, stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 1 : i64}
       : (tensor<2x4x4x5xf32>, tensor<5x3x3x3xf32>) -> tensor<2x4x4x3xf32>
  // CHECK: cleave.max_pool2d %{{.*}} {channels_last, kernel
  %1:2 = cleave.max_pool2d %x {channels_last, kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>}
       : (tensor<2x4x4x3xf32>) -> (tensor<2x2x2x3xf32>, tensor<2x2x2x3xi32>)
  // CHECK: cleave.max_pool2d_grad %{{.*}} {channels_last, kernel
  %2 = cleave.max_pool2d_grad %p, %1#1 {channels_last, kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>}
       : (tensor<2x2x2x3xf32>, tensor<2x2x2x3xi32>) -> tensor<2x4x4x3xf32>
  // CHECK: cleave.avg_pool2d %{{.*}} {channels_last, kernel
  %3 = cleave.avg_pool2d %x {channels_last, kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>}
       : (tensor<2x4x4x3xf32>) -> tensor<2x2x2x3xf32>
  // CHECK: cleave.avg_pool2d_grad %{{.*}} {channels_last, kernel
  %4 = cleave.avg_pool2d_grad %p {channels_last, kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>}
       : (tensor<2x2x2x3xf32>) -> tensor<2x4x4x3xf32>
  return
}

// CHECK-LABEL: func.func @attention
func.func @attention(%q: tensor<2x3x4x8xf32>, %bias: tensor<2x3x4x4xf32>, %keep: tensor<2x3x4x4xi1>) {
  // CHECK: cleave.attention %{{.*}} {causal, scale = 5.000000e-01 : f64}
  %0:2 = cleave.attention %q, %q, %q {scale = 0.5, causal} : (tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>) -> (tensor<2x3x4x8xf32>, tensor<2x3x4xf32>)
  // CHECK: cleave.attention_grad
  %1:3 = cleave.attention_grad %0#0, %q, %q, %q, %0#0, %0#1 {scale = 0.5, causal}
       : (tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4xf32>)
       -> (tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>)
  // CHECK: cleave.attention %arg0, %arg0, %arg0 bias %arg1 keep %arg2 {dropout = 2.500000e-01 : f64
  %2:2 = cleave.attention %q, %q, %q bias %bias keep %keep {scale = 0.5, dropout = 0.25}
       : (tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4x4xf32>, tensor<2x3x4x4xi1>)
       -> (tensor<2x3x4x8xf32>, tensor<2x3x4xf32>)
  // CHECK: cleave.attention_grad {{.*}} keep %arg2 {dropout
  %3:3 = cleave.attention_grad %0#0, %q, %q, %q, %2#0, %2#1 keep %keep {scale = 0.5, dropout = 0.25}
       : (tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4xf32>,
          tensor<2x3x4x4xi1>) -> (tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>)
  return
}

// CHECK-LABEL: func.func @composites
func.func @composites(%x: tensor<6x4xf32>, %w: tensor<4xf32>, %labels: tensor<6xi32>, %one: tensor<f32>) {
  // CHECK: cleave.softmax %{{.*}} {dim = 1 : i64} : (tensor<6x4xf32>) -> tensor<6x4xf32>
  %0 = cleave.softmax %x {dim = 1 : i64} : (tensor<6x4xf32>) -> tensor<6x4xf32>
  // CHECK: cleave.log_softmax
  %1 = cleave.log_softmax %x {dim = 0 : i64} : (tensor<6x4xf32>) -> tensor<6x4xf32>
  // CHECK: cleave.layer_norm %
  %2:3 = cleave.layer_norm %x, %w, %w {eps = 1.0e-5} : (tensor<6x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<6x4xf32>, tensor<6xf32>, tensor<6xf32>)
  // CHECK: cleave.layer_norm_grad
  %3:3 = cleave.layer_norm_grad %x, %x, %w, %2#1, %2#2 : (tensor<6x4xf32>, tensor<6x4xf32>, tensor<4xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<6x4xf32>, tensor<4xf32>, tensor<4xf32>)
  // CHECK: cleave.batch_norm %
  %4:3 = cleave.batch_norm %x, %w, %w {eps = 1.0e-5} : (tensor<6x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<6x4xf32>, tensor<4xf32>, tensor<4xf32>)
  // CHECK: cleave.batch_norm %{{.*}} {eps = {{.*}}, group = 3 : i64}
  %5:3 = cleave.batch_norm %x, %w, %w {eps = 1.0e-5, group = 3 : i64} : (tensor<6x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<6x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>)
  // CHECK: cleave.batch_norm_grad
  %6:3 = cleave.batch_norm_grad %x, %x, %w, %4#1, %4#2 {eps = 1.0e-5} : (tensor<6x4xf32>, tensor<6x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<6x4xf32>, tensor<4xf32>, tensor<4xf32>)
  // CHECK: cleave.cross_entropy %
  %7:3 = cleave.cross_entropy %x, %labels : (tensor<6x4xf32>, tensor<6xi32>) -> (tensor<f32>, tensor<f32>, tensor<6xf32>)
  // CHECK: cleave.cross_entropy_grad
  %8 = cleave.cross_entropy_grad %one, %x, %labels, %7#2 : (tensor<f32>, tensor<6x4xf32>, tensor<6xi32>, tensor<6xf32>) -> tensor<6x4xf32>
  // CHECK: cleave.top_correct
  %9 = cleave.top_correct %x, %labels : (tensor<6x4xf32>, tensor<6xi32>) -> tensor<f32>
  // CHECK: cleave.top_correct %{{.*}} {k = 3 : i64}
  %10 = cleave.top_correct %x, %labels {k = 3 : i64} : (tensor<6x4xf32>, tensor<6xi32>) -> tensor<f32>
  return
}

// CHECK-LABEL: func.func @indices
// CHECK-SAME: cleave.indices = [#cleave.indices<"crossEntropy at net.cpp:3", -2147483648, 10 ignored 255>]
// CHECK-SAME: cleave.indices = [#cleave.indices<"embedding at net.cpp:2", 0, 100 from[1, 0] size[2, 4]>]
// CHECK-SAME: cleave.kind = "invalid"
func.func @indices(
    %label: tensor<6xi32> {cleave.indices = [#cleave.indices<"crossEntropy at net.cpp:3", -2147483648, 10 ignored 255>]},
    %ids: tensor<6x3x4xi32> {cleave.indices = [#cleave.indices<"embedding at net.cpp:2", 0, 100 from[1, 0] size[2, 4]>]},
    %count: tensor<f32>) -> (tensor<f32> {cleave.kind = "invalid", cleave.name = "embedding at net.cpp:2"}) {
  return %count : tensor<f32>
}

// CHECK-LABEL: func.func @fusion
func.func @fusion(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>) -> tensor<2xf32> {
  // CHECK: cleave.fusion(%{{.*}}, %{{.*}}) attributes {cleave.path = "fc1"} : (tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2xf32>) {
  // CHECK-NEXT: ^bb0(%{{.*}}: tensor<2x3xf32>, %{{.*}}: tensor<2x3xf32>):
  %0:2 = cleave.fusion(%x, %y) attributes {cleave.path = "fc1"} : (tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2xf32>) {
  ^bb0(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>):
    %1 = cleave.add %a, %b : tensor<2x3xf32>
    %2 = cleave.reduce sum %1 dims [1] : tensor<2x3xf32> -> tensor<2xf32>
    // CHECK: cleave.yield %{{.*}}, %{{.*}} : tensor<2x3xf32>, tensor<2xf32>
    cleave.yield %1, %2 : tensor<2x3xf32>, tensor<2xf32>
  }
  return %0#1 : tensor<2xf32>
}
