// Elementwise ops, constants and indices print as they are read.
// RUN: cleave-opt %s > %t && cleave-opt %t | diff %t - && FileCheck %s < %t

// CHECK-LABEL: func.func @functions
func.func @functions(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  // CHECK: cleave.floor %{{.*}} : tensor<2x3xf32>
  %0 = cleave.floor %x : tensor<2x3xf32>
  // CHECK: cleave.ceil %{{.*}} : tensor<2x3xf32>
  %1 = cleave.ceil %0 : tensor<2x3xf32>
  // CHECK: cleave.round %{{.*}} : tensor<2x3xf32>
  %2 = cleave.round %1 : tensor<2x3xf32>
  // CHECK: cleave.log1p %{{.*}} : tensor<2x3xf32>
  %3 = cleave.log1p %2 : tensor<2x3xf32>
  // CHECK: cleave.expm1 %{{.*}} : tensor<2x3xf32>
  %4 = cleave.expm1 %3 : tensor<2x3xf32>
  // CHECK: cleave.tan %{{.*}} : tensor<2x3xf32>
  %5 = cleave.tan %4 : tensor<2x3xf32>
  // CHECK: cleave.sinh %{{.*}} : tensor<2x3xf32>
  %6 = cleave.sinh %5 : tensor<2x3xf32>
  // CHECK: cleave.remainder %{{.*}}, %{{.*}} : tensor<2x3xf32>
  %7 = cleave.remainder %6, %x : tensor<2x3xf32>
  // CHECK: cleave.atan2 %{{.*}}, %{{.*}} : tensor<2x3xf32>
  %8 = cleave.atan2 %7, %x : tensor<2x3xf32>
  return %8 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @unary
func.func @unary(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  // CHECK: cleave.neg %{{.*}} : tensor<2x3xf32>
  %0 = cleave.neg %x : tensor<2x3xf32>
  // CHECK: cleave.abs
  %1 = cleave.abs %0 : tensor<2x3xf32>
  // CHECK: cleave.exp
  %2 = cleave.exp %1 : tensor<2x3xf32>
  // CHECK: cleave.log
  %3 = cleave.log %2 : tensor<2x3xf32>
  // CHECK: cleave.sqrt
  %4 = cleave.sqrt %3 : tensor<2x3xf32>
  // CHECK: cleave.rsqrt
  %5 = cleave.rsqrt %4 : tensor<2x3xf32>
  // CHECK: cleave.tanh
  %6 = cleave.tanh %5 : tensor<2x3xf32>
  // CHECK: cleave.erf
  %7 = cleave.erf %6 : tensor<2x3xf32>
  // CHECK: cleave.sigmoid
  %8 = cleave.sigmoid %7 : tensor<2x3xf32>
  // CHECK: cleave.relu
  %9 = cleave.relu %8 : tensor<2x3xf32>
  // CHECK: cleave.silu
  %10 = cleave.silu %9 : tensor<2x3xf32>
  // CHECK: cleave.gelu %{{.*}} {tanh} : tensor<2x3xf32>
  %11 = cleave.gelu %10 {tanh} : tensor<2x3xf32>
  // CHECK: cleave.gelu_grad %{{.*}}, %{{.*}} : tensor<2x3xf32>
  %12 = cleave.gelu_grad %11, %x : tensor<2x3xf32>
  // CHECK: cleave.shard_hint %{{.*}} ["dp", ""] : tensor<2x3xf32>
  %13 = cleave.shard_hint %12 ["dp", ""] : tensor<2x3xf32>
  // CHECK: cleave.sin
  %14 = cleave.sin %13 : tensor<2x3xf32>
  // CHECK: cleave.cos
  %15 = cleave.cos %14 : tensor<2x3xf32>
  // CHECK: cleave.detach
  %16 = cleave.detach %15 : tensor<2x3xf32>
  return %16 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @binary
func.func @binary(%x: tensor<4xbf16>, %y: tensor<4xbf16>) -> (tensor<4xbf16>, tensor<4xi32>) {
  // CHECK: cleave.add %{{.*}}, %{{.*}} {cleave.path = "fc1"} : tensor<4xbf16>
  %0 = cleave.add %x, %y {cleave.path = "fc1"} : tensor<4xbf16>
  // CHECK: cleave.sub
  %1 = cleave.sub %0, %y : tensor<4xbf16>
  // CHECK: cleave.mul
  %2 = cleave.mul %1, %y : tensor<4xbf16>
  // CHECK: cleave.div
  %3 = cleave.div %2, %y : tensor<4xbf16>
  // CHECK: cleave.max
  %4 = cleave.max %3, %y : tensor<4xbf16>
  // CHECK: cleave.min
  %5 = cleave.min %4, %y : tensor<4xbf16>
  // CHECK: cleave.pow
  %6 = cleave.pow %5, %y : tensor<4xbf16>
  // CHECK: cleave.compare{{ +}}le %{{.*}}, %{{.*}} : tensor<4xbf16> -> tensor<4xi1>
  %7 = cleave.compare le %x, %y : tensor<4xbf16> -> tensor<4xi1>
  // CHECK: cleave.select %{{.*}}, %{{.*}}, %{{.*}} : tensor<4xi1>, tensor<4xbf16>
  %8 = cleave.select %7, %6, %x : tensor<4xi1>, tensor<4xbf16>
  // CHECK: cleave.cast %{{.*}} : tensor<4xbf16> -> tensor<4xi32>
  %9 = cleave.cast %8 : tensor<4xbf16> -> tensor<4xi32>
  return %8, %9 : tensor<4xbf16>, tensor<4xi32>
}

// CHECK-LABEL: func.func @sources
// CHECK-SAME: cleave.init = #cleave.init<"normal", 0.000000e+00, 2.000000e-02>
// CHECK-SAME: cleave.init = #cleave.init<"uniform", -1.000000e-01, 0.12345678901230001>
func.func @sources(%start: tensor<i32>, %w: tensor<2xf32> {cleave.init = #cleave.init<"normal", 0.0, 0.02>},
                   %b: tensor<2xf32> {cleave.init = #cleave.init<"uniform", -0.1, 0.12345678901230001>}) -> tensor<4x8xf32> {
  // CHECK: cleave.constant dense<1.500000e+00> : tensor<4x8xf32> : tensor<4x8xf32>
  %0 = cleave.constant dense<1.5> : tensor<4x8xf32> : tensor<4x8xf32>
  // CHECK: cleave.iota {dim = 1 : i64} : () -> tensor<4x8xi32>
  %1 = cleave.iota {dim = 1 : i64} : () -> tensor<4x8xi32>
  // CHECK: cleave.iota %{{.*}} {dim = 0 : i64} : (tensor<i32>) -> tensor<4x8xi32>
  %2 = cleave.iota %start {dim = 0 : i64} : (tensor<i32>) -> tensor<4x8xi32>
  // CHECK: cleave.random_uniform {name = "drop"} : () -> tensor<4x8xf32>
  %3 = cleave.random_uniform {name = "drop"} : () -> tensor<4x8xf32>
  // CHECK: cleave.random_uniform {at_least = 2.500000e-01 : f64, name = "drop"} : () -> tensor<4x8xi1>
  %keep = cleave.random_uniform {name = "drop", at_least = 0.25} : () -> tensor<4x8xi1>
  return %3 : tensor<4x8xf32>
}
