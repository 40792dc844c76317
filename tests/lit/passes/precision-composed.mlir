// A composite between same-type casts stays f32 (as in RMS norm); after the last cast, which has the marker attribute, the
// value is an activation again.
// RUN: cleave-opt %s --precision="level=1 half=bf16" | FileCheck %s --check-prefix=O1
// RUN: cleave-opt %s --precision="level=2 half=bf16" | FileCheck %s --check-prefix=O2
// RUN: cleave-opt %s --precision="level=3 half=fp16" | FileCheck %s --check-prefix=O3
// RUN: cleave-opt %s --precision="level=0" --simplify | FileCheck %s --check-prefix=O0

// O1: cleave.cast {{.*}} : tensor<6x4xbf16> -> tensor<6x4xf32>
// O1-NEXT: cleave.mul {{.*}} : tensor<6x4xf32>
// O1: cleave.relu {{.*}} : tensor<6x4xf32>

// O2: cleave.cast {{.*}} : tensor<6x4xbf16> -> tensor<6x4xf32>
// O2-NEXT: cleave.mul {{.*}} : tensor<6x4xf32>
// O2-NEXT: cleave.broadcast {{.*}} : tensor<4xf32> -> tensor<6x4xf32>
// O2-NEXT: cleave.mul {{.*}} : tensor<6x4xf32>
// O2: cleave.relu {{.*}} : tensor<6x4xbf16>

// O3: cleave.mul {{.*}} : tensor<6x4xf32>
// O3: cleave.cast {{.*}} : tensor<4xf16> -> tensor<4xf32>
// O3: cleave.relu {{.*}} : tensor<6x4xf16>

// O0-NOT: cleave.cast
module {
func.func @forward(%x: tensor<6x4xf32> {cleave.kind="input", cleave.name="x"},
   %w: tensor<4x4xf32> {cleave.kind="parameter", cleave.name="fc.weight", cleave.trainable=true},
   %g: tensor<4xf32> {cleave.kind="parameter", cleave.name="norm.weight", cleave.trainable=true})
  -> (tensor<f32> {cleave.kind="loss"}, tensor<f32> {cleave.kind="weight"}) attributes {cleave.static_weight = 6 : i64} {
  %0 = cleave.matmul %x, %w {transB} : (tensor<6x4xf32>, tensor<4x4xf32>) -> tensor<6x4xf32>
  %1 = cleave.cast %0 : tensor<6x4xf32> -> tensor<6x4xf32>
  %2 = cleave.mul %1, %1 : tensor<6x4xf32>
  %3 = cleave.broadcast %g dims [1] : tensor<4xf32> -> tensor<6x4xf32>
  %4 = cleave.mul %2, %3 : tensor<6x4xf32>
  %5 = cleave.cast %4 {cleave.activation} : tensor<6x4xf32> -> tensor<6x4xf32>
  %6 = cleave.relu %5 : tensor<6x4xf32>
  %7 = cleave.reduce sum %6 dims [0, 1] {cleave.path="loss"} : tensor<6x4xf32> -> tensor<f32>
  %8 = cleave.constant dense<6.0> : tensor<f32> : tensor<f32>
  return %7, %8 : tensor<f32>, tensor<f32>
}
}
