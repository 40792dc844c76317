// The gradient of a maximum compares it with its operand, and divides by the number of equal elements. Where the operand is a
// copy, which may differ from the kept value in its last bits, the maximum is computed again from it: also with `selective`, which
// keeps results of reductions, and where another layer reads the maximum.
// RUN: cleave-opt %s --assign-stages=mesh=pp=1 --differentiate=microbatches=1 --simplify --build-optimizer --decompose --simplify -o %t.step
// RUN: cleave-opt %t.step --recompute=kind=full | FileCheck %s
// RUN: cleave-opt %t.step --recompute=kind=selective | FileCheck %s

// CHECK-LABEL: func.func @train
// CHECK: %[[S:.*]] = cleave.reshape
// CHECK: %[[M:.*]] = cleave.reduce{{ +}}max %[[S]]
// CHECK: cleave.matmul %[[M]], {{.*}}cleave.path = "blocks.1.fc"

// The gradient of the weight of blocks.1 reads what was kept.
// CHECK: cleave.matmul %{{.*}}, %[[M]] {{.*}}cleave.phase = "backward"
// CHECK: %[[S2:.*]] = cleave.reshape {{.*}}cleave.phase = "backward"
// CHECK: %[[M2:.*]] = cleave.reduce{{ +}}max %[[S2]]
// CHECK: %[[B:.*]] = cleave.broadcast %[[M2]]
// CHECK: cleave.compare{{ +}}eq %[[S2]], %[[B]]

module attributes {cleave.optimizer = {name="sgd", lr=0.1:f64, momentum=0.9:f64, clip_norm=0.0:f64}} {
func.func @forward(%image: tensor<12x4xf32> {cleave.kind="input", cleave.name="image"}, %label: tensor<12xi32> {cleave.kind="input", cleave.name="label"},
   %w1: tensor<8x4xf32> {cleave.kind="parameter", cleave.name="blocks.0.fc.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %w2: tensor<6x4xf32> {cleave.kind="parameter", cleave.name="blocks.1.fc.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>})
  -> (tensor<f32> {cleave.kind="loss"}, tensor<f32> {cleave.kind="weight"}) attributes {cleave.static_weight = 12 : i64} {
  %0 = cleave.matmul %image, %w1 {transB, cleave.path="blocks.0.fc"} : (tensor<12x4xf32>, tensor<8x4xf32>) -> tensor<12x8xf32>
  %1 = cleave.sin %0 {cleave.path="blocks.0"} : tensor<12x8xf32>
  %2 = cleave.reshape %1 {cleave.path="blocks.0"} : tensor<12x8xf32> -> tensor<12x4x2xf32>
  %3 = cleave.reduce max %2 dims [2] {cleave.path="blocks.0"} : tensor<12x4x2xf32> -> tensor<12x4xf32>
  %4 = cleave.matmul %3, %w2 {transB, cleave.path="blocks.1.fc"} : (tensor<12x4xf32>, tensor<6x4xf32>) -> tensor<12x6xf32>
  %l, %w, %lse = cleave.cross_entropy %4, %label : (tensor<12x6xf32>, tensor<12xi32>) -> (tensor<f32>, tensor<f32>, tensor<12xf32>)
  return %l, %w : tensor<f32>, tensor<f32>
}
}
