// A value and its cast are read in the second stage: the value alone is sent, and cast there. The cast of a value that the stage does
// not read is sent instead of it.
// RUN: cleave-opt %s --assign-stages=mesh=pp=2 | FileCheck %s

// CHECK: cleave.embedding {{.*}}cleave.stage = 0
// CHECK: cleave.exp {{.*}}cleave.stage = 0
// CHECK: cleave.cast {{.*}}cleave.stage = 0
// CHECK: cleave.cast {{.*}}cleave.stage = 1
// CHECK-NOT: cleave.cast {{.*}}cleave.stage = 0

module {
func.func @forward(%ids: tensor<6xi32> {cleave.kind = "input", cleave.name = "tokens"},
    %table: tensor<10x4xf32> {cleave.kind = "parameter", cleave.name = "embed.weight", cleave.trainable = true, cleave.init = #cleave.init<"normal", 0.0, 1.0>},
    %w: tensor<4x4xf16> {cleave.kind = "parameter", cleave.name = "fc.weight", cleave.trainable = true, cleave.init = #cleave.init<"normal", 0.0, 1.0>})
    -> (tensor<f32> {cleave.kind = "loss"}, tensor<f32> {cleave.kind = "weight"}) attributes {cleave.static_weight = 6 : i64} {
  %0 = cleave.embedding %table, %ids {cleave.path = "embed"} : (tensor<10x4xf32>, tensor<6xi32>) -> tensor<6x4xf32>
  %1 = cleave.cast %0 {cleave.path = "embed"} : tensor<6x4xf32> -> tensor<6x4xf16>
  %2 = cleave.exp %0 {cleave.path = "embed"} : tensor<6x4xf32>
  %3 = cleave.cast %2 {cleave.path = "embed"} : tensor<6x4xf32> -> tensor<6x4xf16>
  %4 = cleave.matmul %1, %w {transB, cleave.path = "fc"} : (tensor<6x4xf16>, tensor<4x4xf16>) -> tensor<6x4xf16>
  %5 = cleave.add %4, %3 {cleave.path = "fc"} : tensor<6x4xf16>
  %6 = cleave.cast %5 {cleave.path = "fc"} : tensor<6x4xf16> -> tensor<6x4xf32>
  %7 = cleave.add %6, %0 {cleave.path = "fc"} : tensor<6x4xf32>
  %l = cleave.reduce sum %7 dims [0, 1] {cleave.path = "fc"} : tensor<6x4xf32> -> tensor<f32>
  return %l, %l : tensor<f32>, tensor<f32>
}
}
