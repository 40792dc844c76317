// Element types by optimisation level.
// RUN: cleave-opt %s --precision="level=1 half=bf16" | FileCheck %s --check-prefix=O1
// RUN: cleave-opt %s --precision="level=2 half=fp16" | FileCheck %s --check-prefix=O2
// RUN: cleave-opt %s --precision="level=3 half=bf16" | FileCheck %s --check-prefix=O3
// RUN: cleave-opt %s --precision="level=0" | FileCheck %s --check-prefix=O0
// RUN: not cleave-opt %s --precision="level=4" 2>&1 | FileCheck %s --check-prefix=BAD
// RUN: cleave-opt %s --precision="level=2 half=fp16" --differentiate --simplify | FileCheck %s --check-prefix=GRADIENTS

// Products and their biases in half; normalisation, softmax and the loss in f32.
// O1-LABEL: func.func @forward(%arg0: tensor<6x4xf32>
// O1: cleave.matmul {{.*}} : (tensor<6x4xbf16>, tensor<4x4xbf16>) -> tensor<6x4xbf16>
// O1: cleave.broadcast {{.*}} : tensor<4xbf16> -> tensor<6x4xbf16>
// O1: cleave.relu {{.*}} : tensor<6x4xbf16>
// O1: cleave.layer_norm {{.*}} : (tensor<6x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<6x4xf32>, tensor<6xf32>, tensor<6xf32>)
// O1: cleave.softmax {{.*}}tensor<6x4xf32>
// O1: cleave.cross_entropy {{.*}} : (tensor<6x4xf32>, tensor<6xi32>)

// Activations in half; normalisation reads them with f32 parameters. Values computed in f32 stay f32 for the loss.
// O2-LABEL: func.func @forward(%arg0: tensor<6x4xf32>
// O2-SAME: tensor<4x4xf32> {cleave.kind = "parameter"
// O2: cleave.layer_norm {{.*}} : (tensor<6x4xf16>, tensor<4xf32>, tensor<4xf32>) -> (tensor<6x4xf16>, tensor<6xf32>, tensor<6xf32>)
// O2: cleave.softmax {{.*}}tensor<6x4xf32>
// O2: cleave.cross_entropy {{.*}} : (tensor<6x4xf32>, tensor<6xi32>) -> (tensor<f32>

// Gradients of f32 parameters are f32.
// GRADIENTS-LABEL: func.func @train
// GRADIENTS-SAME: tensor<4x4xf32> {cleave.kind = "gradient", cleave.name = "fc.weight"
// GRADIENTS: cleave.matmul {{.*}}cleave.phase = "backward"{{.*}} -> tensor<4x4xf16>

// Parameters in half.
// O3-LABEL: func.func @forward(%arg0: tensor<6x4xf32>
// O3-SAME: tensor<4x4xbf16> {cleave.kind = "parameter"

// O0-NOT: bf16
// BAD: precision: the level must be 0 to 3, found 4

module {
func.func @forward(%x: tensor<6x4xf32> {cleave.kind="input", cleave.name="x"}, %label: tensor<6xi32> {cleave.kind="input", cleave.name="label"},
   %w: tensor<4x4xf32> {cleave.kind="parameter", cleave.name="fc.weight", cleave.trainable=true},
   %b: tensor<4xf32> {cleave.kind="parameter", cleave.name="fc.bias", cleave.trainable=true},
   %g: tensor<4xf32> {cleave.kind="parameter", cleave.name="norm.weight", cleave.trainable=true},
   %h: tensor<4xf32> {cleave.kind="parameter", cleave.name="norm.bias", cleave.trainable=true})
  -> (tensor<f32> {cleave.kind="loss"}, tensor<f32> {cleave.kind="weight"}) attributes {cleave.static_weight = 6 : i64} {
  %0 = cleave.matmul %x, %w {transB, cleave.path="fc"} : (tensor<6x4xf32>, tensor<4x4xf32>) -> tensor<6x4xf32>
  %1 = cleave.broadcast %b dims [1] {cleave.path="fc"} : tensor<4xf32> -> tensor<6x4xf32>
  %2 = cleave.add %0, %1 {cleave.path="fc"} : tensor<6x4xf32>
  %3 = cleave.relu %2 : tensor<6x4xf32>
  %n, %mean, %rstd = cleave.layer_norm %3, %g, %h {eps = 1.0e-5 : f64, cleave.path="norm"} : (tensor<6x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<6x4xf32>, tensor<6xf32>, tensor<6xf32>)
  %s = cleave.softmax %n {dim = 1 : i64} : (tensor<6x4xf32>) -> tensor<6x4xf32>
  %l, %weight, %lse = cleave.cross_entropy %s, %label {cleave.path="loss"} : (tensor<6x4xf32>, tensor<6xi32>) -> (tensor<f32>, tensor<f32>, tensor<6xf32>)
  return %l, %weight : tensor<f32>, tensor<f32>
}
}
