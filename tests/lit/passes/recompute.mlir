// Backward ops read copies of forward ops instead of values that the forward pass keeps.
// RUN: cleave-opt %s --assign-stages=mesh=pp=1 --differentiate=microbatches=1 --simplify --build-optimizer --decompose --simplify -o %t.step
// RUN: cleave-opt %t.step --recompute=kind=full | FileCheck %s --check-prefixes=BOTH,FULL
// RUN: cleave-opt %t.step --recompute=kind=selective | FileCheck %s --check-prefixes=BOTH,SELECTIVE
// RUN: cleave-opt %t.step --recompute=kind=none -o %t.none
// RUN: diff %t.step %t.none
// RUN: not cleave-opt %t.step --recompute=kind=some 2>&1 | FileCheck %s --check-prefix=KIND
// RUN: not cleave-opt %s --recompute 2>&1 | FileCheck %s --check-prefix=PHASE

// KIND: error: recompute: kind must be none, selective or full, found "some"
// PHASE: error: recompute: needs a step (@train and @update on whole tensors), found a traced model

// The forward pass does not change.
// BOTH-LABEL: func.func @train
// BOTH: %[[P:.*]] = cleave.matmul %arg0, {{.*}}cleave.path = "blocks.0.fc"
// BOTH: %[[S:.*]] = cleave.sin %[[P]]
// BOTH: %[[OUT:.*]] = cleave.exp %[[S]]
// BOTH: %[[Q:.*]] = cleave.matmul %[[OUT]], {{.*}}cleave.path = "blocks.1.fc"
// BOTH: cleave.tanh %[[Q]]

// blocks.1 is recomputed from its input, the result of blocks.0. The loss is outside the repeated layers; it reads the result
// of blocks.1, which is kept.
// BOTH-NOT: cleave.tanh

// blocks.0 is recomputed from its input with `full`, and from the product with a parameter with `selective`. The result of exp
// is the input of blocks.1, so it is kept.
// FULL: %[[P2:.*]] = cleave.matmul %arg0, {{.*}}cleave.path = "blocks.0.fc", cleave.phase = "backward"
// FULL-NEXT: %[[C:.*]] = cleave.cos %[[P2]]
// SELECTIVE-NOT: cleave.matmul %arg0
// SELECTIVE: %[[C:.*]] = cleave.cos %[[P]]
// BOTH-NOT: cleave.exp
// BOTH: return

module attributes {cleave.optimizer = {name="sgd", lr=0.1:f64, momentum=0.9:f64, clip_norm=0.0:f64}} {
func.func @forward(%image: tensor<12x4xf32> {cleave.kind="input", cleave.name="image"}, %label: tensor<12xi32> {cleave.kind="input", cleave.name="label"},
   %w1: tensor<8x4xf32> {cleave.kind="parameter", cleave.name="blocks.0.fc.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %w2: tensor<6x8xf32> {cleave.kind="parameter", cleave.name="blocks.1.fc.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>})
  -> (tensor<f32> {cleave.kind="loss"}, tensor<f32> {cleave.kind="weight"}) attributes {cleave.static_weight = 12 : i64} {
  %0 = cleave.matmul %image, %w1 {transB, cleave.path="blocks.0.fc"} : (tensor<12x4xf32>, tensor<8x4xf32>) -> tensor<12x8xf32>
  %1 = cleave.sin %0 {cleave.path="blocks.0"} : tensor<12x8xf32>
  %2 = cleave.exp %1 {cleave.path="blocks.0"} : tensor<12x8xf32>
  %3 = cleave.matmul %2, %w2 {transB, cleave.path="blocks.1.fc"} : (tensor<12x8xf32>, tensor<6x8xf32>) -> tensor<12x6xf32>
  %4 = cleave.tanh %3 {cleave.path="blocks.1"} : tensor<12x6xf32>
  %l, %w, %lse = cleave.cross_entropy %4, %label : (tensor<12x6xf32>, tensor<12xi32>) -> (tensor<f32>, tensor<f32>, tensor<12xf32>)
  return %l, %w : tensor<f32>, tensor<f32>
}
}
