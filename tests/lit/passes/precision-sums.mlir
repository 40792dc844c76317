// Values computed in f32 stay f32 until they are combined with a half value, and arithmetic used only by sums is f32: in a mean
// of squares nothing is rounded to half and nothing overflows.
// RUN: cleave-opt %s --precision="level=2 half=fp16" | FileCheck %s

// CHECK-LABEL: func.func @forward(
// CHECK: %[[Y:.*]] = cleave.matmul {{.*}} -> tensor<6x4xf16>
// CHECK: %[[WIDE:.*]] = cleave.cast %[[Y]] : tensor<6x4xf16> -> tensor<6x4xf32>
// CHECK: cleave.mul %[[WIDE]], %[[WIDE]] : tensor<6x4xf32>
// CHECK: cleave.reduce sum {{.*}} : tensor<6x4xf32> -> tensor<6xf32>
// CHECK: cleave.mul {{.*}} : tensor<6xf32>
// CHECK: cleave.rsqrt {{.*}} : tensor<6xf32>
// CHECK: %[[SCALE:.*]] = cleave.cast {{.*}} : tensor<6xf32> -> tensor<6xf16>
// CHECK: cleave.broadcast %[[SCALE]] dims [0] : tensor<6xf16> -> tensor<6x4xf16>
// CHECK: cleave.mul {{.*}} : tensor<6x4xf16>
// CHECK: cleave.cross_entropy {{.*}} : (tensor<6x4xf16>, tensor<6xi32>)

module {
func.func @forward(%x: tensor<6x4xf32> {cleave.kind="input", cleave.name="x"}, %label: tensor<6xi32> {cleave.kind="input", cleave.name="label"},
   %w: tensor<4x4xf32> {cleave.kind="parameter", cleave.name="fc.weight", cleave.trainable=true})
  -> (tensor<f32> {cleave.kind="loss"}, tensor<f32> {cleave.kind="weight"}) attributes {cleave.static_weight = 6 : i64} {
  %0 = cleave.matmul %x, %w {transB} : (tensor<6x4xf32>, tensor<4x4xf32>) -> tensor<6x4xf32>
  %1 = cleave.mul %0, %0 : tensor<6x4xf32>
  %2 = cleave.reduce sum %1 dims [1] : tensor<6x4xf32> -> tensor<6xf32>
  %quarter = cleave.constant dense<0.25> : tensor<6xf32> : tensor<6xf32>
  %3 = cleave.mul %2, %quarter : tensor<6xf32>
  %4 = cleave.rsqrt %3 : tensor<6xf32>
  %5 = cleave.broadcast %4 dims [0] : tensor<6xf32> -> tensor<6x4xf32>
  %6 = cleave.mul %0, %5 : tensor<6x4xf32>
  %l, %weight, %lse = cleave.cross_entropy %6, %label {cleave.path="loss"} : (tensor<6x4xf32>, tensor<6xi32>) -> (tensor<f32>, tensor<f32>, tensor<6xf32>)
  return %l, %weight : tensor<f32>, tensor<f32>
}
}
