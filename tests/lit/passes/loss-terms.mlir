// A loss of two terms: @weights computes the terms' weights from inputs alone, and the gradients of each term are divided by its
// summed weight.
// RUN: cleave-opt %s --assign-stages=mesh=pp=1 --differentiate=microbatches=4 --simplify --build-optimizer -o %t.step
// RUN: FileCheck %s --input-file=%t.step
// RUN: cleave-opt %t.step --decompose --simplify --apply="mesh=dp=2 microbatches=4" | FileCheck %s --check-prefix=LOCAL
// RUN: sed 's/"weight", cleave.name="1"/"weight", cleave.name="2"/' %s | not cleave-opt --differentiate=microbatches=1 2>&1 | FileCheck %s --check-prefix=PAIRS
// RUN: sed 's/"loss", cleave.name="1"/"loss"/' %s | not cleave-opt --differentiate=microbatches=1 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: sed 's/count : tensor<f32>/squares : tensor<f32>/' %s | not cleave-opt --differentiate=microbatches=1 2>&1 | FileCheck %s --check-prefix=DATA

// PAIRS: error: differentiate: @forward has not one loss and one weight of each term
// TWICE: error: differentiate: @forward has two results of kind "loss" with name ""
// DATA: error: the weights of a loss with several terms must depend on the data alone, one depends on fc.weight

// CHECK-LABEL: func.func @train
// CHECK-SAME: %[[FIRST:arg[0-9]+]]: tensor<f32> {cleave.kind = "metric", cleave.name = "weight"}
// CHECK-SAME: %[[SECOND:arg[0-9]+]]: tensor<f32> {cleave.kind = "metric", cleave.name = "weight.1"}
// CHECK-SAME: -> (tensor<f32> {cleave.kind = "loss"}, tensor<f32> {cleave.kind = "loss", cleave.name = "1"}, tensor<{{.*}} {cleave.kind = "gradient"
// CHECK-DAG: cleave.max %[[FIRST]]
// CHECK-DAG: cleave.max %[[SECOND]]

// CHECK-LABEL: func.func @weights
// CHECK-SAME: (%{{.*}}: tensor<12xi32> {cleave.kind = "input", cleave.name = "label"})
// CHECK-NOT: cleave.matmul
// CHECK: return

// CHECK-LABEL: func.func @update
// CHECK-NOT: cleave.kind = "metric"
// CHECK: return

// LOCAL: func.func @stage0.class0.weights
// LOCAL: func.func @stage0.class0.reduce_weights
// LOCAL: dist.all_reduce {{.*}}, {{.*}} {axes = ["dp"]

module attributes {cleave.optimizer = {name="sgd", lr=0.1:f64, momentum=0.0:f64, clip_norm=0.0:f64}} {
func.func @forward(%image: tensor<12x4xf32> {cleave.kind="input", cleave.name="image"}, %label: tensor<12xi32> {cleave.kind="input", cleave.name="label"},
   %w: tensor<3x4xf32> {cleave.kind="parameter", cleave.name="fc.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>})
  -> (tensor<f32> {cleave.kind="loss"}, tensor<f32> {cleave.kind="weight"}, tensor<f32> {cleave.kind="loss", cleave.name="1"},
      tensor<f32> {cleave.kind="weight", cleave.name="1"}) attributes {cleave.static_weight = 12 : i64} {
  %0 = cleave.matmul %image, %w {transB, cleave.path="fc"} : (tensor<12x4xf32>, tensor<3x4xf32>) -> tensor<12x3xf32>
  %sum, %weight, %lse = cleave.cross_entropy %0, %label {cleave.path="loss"} : (tensor<12x3xf32>, tensor<12xi32>) -> (tensor<f32>, tensor<f32>, tensor<12xf32>)
  %1 = cleave.mul %0, %0 {cleave.path="loss"} : tensor<12x3xf32>
  %squares = cleave.reduce sum %1 dims [0, 1] {cleave.path="loss"} : tensor<12x3xf32> -> tensor<f32>
  %2 = cleave.constant {cleave.path="loss"} dense<1> : tensor<12xi32> : tensor<12xi32>
  %3 = cleave.compare gt %label, %2 {cleave.path="loss"} : tensor<12xi32> -> tensor<12xi1>
  %4 = cleave.cast %3 {cleave.path="loss"} : tensor<12xi1> -> tensor<12xf32>
  %count = cleave.reduce sum %4 dims [0] {cleave.path="loss"} : tensor<12xf32> -> tensor<f32>
  return %sum, %weight, %squares, %count : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
}
}
