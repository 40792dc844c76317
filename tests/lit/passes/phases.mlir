// A pass that is given a module of another phase reports the expected and the actual phase.
// RUN: not cleave-opt %s --apply 2>&1 | FileCheck %s --check-prefix=APPLY
// RUN: not cleave-opt %s --annotate 2>&1 | FileCheck %s --check-prefix=ANNOTATE
// RUN: not cleave-opt %s --build-optimizer 2>&1 | FileCheck %s --check-prefix=OPTIMIZER
// RUN: cleave-opt %s --differentiate -o %t.train
// RUN: not cleave-opt %t.train --differentiate 2>&1 | FileCheck %s --check-prefix=AGAIN
// RUN: not cleave-opt %t.train --assign-stages 2>&1 | FileCheck %s --check-prefix=STAGES
// RUN: not cleave-opt %t.train --precision 2>&1 | FileCheck %s --check-prefix=PRECISION
// RUN: not cleave-opt %t.train --channels-last 2>&1 | FileCheck %s --check-prefix=LAYOUT
// RUN: not cleave-opt %t.train --apply 2>&1 | FileCheck %s --check-prefix=EARLY
// RUN: cleave-opt %t.train --build-optimizer --decompose --simplify -o %t.step
// RUN: cleave-opt %t.step --apply -o %t.local
// RUN: not cleave-opt %t.local --apply 2>&1 | FileCheck %s --check-prefix=LOCAL
// RUN: cleave-opt %t.step --annotate -o %t.annotated
// RUN: not cleave-opt %t.annotated --apply 2>&1 | FileCheck %s --check-prefix=ANNOTATED
// RUN: sed 's/cleave.name = "w", //' %s | not cleave-opt --differentiate 2>&1 | FileCheck %s --check-prefix=FORM
// RUN: sed 's/cleave.name = "w"/cleave.name = ""/' %s | not cleave-opt --differentiate 2>&1 | FileCheck %s --check-prefix=NONAME
// RUN: sed 's/cleave.name="label"/cleave.name="image"/' %s | not cleave-opt --differentiate 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: sed 's/cleave.kind="input", cleave.name="label"/cleave.kind="buffer", cleave.name="w"/' %s | not cleave-opt --differentiate 2>&1 | FileCheck %s --check-prefix=NAMESAKE
// RUN: sed 's/cleave.kind="input", cleave.name="label"/cleave.kind="gradient", cleave.name="label"/' %s | not cleave-opt --differentiate 2>&1 | FileCheck %s --check-prefix=KIND
// RUN: sed 's/cleave.kind="weight"/cleave.kind="correct"/' %s | not cleave-opt --differentiate 2>&1 | FileCheck %s --check-prefix=NOWEIGHT
// RUN: sed 's/cleave.path = "fc"/cleave.path = "\\00"/' %s | not cleave-opt --differentiate 2>&1 | FileCheck %s --check-prefix=PATH
// RUN: sed 's/cleave.kind = "gradient", cleave.name = "w"/cleave.kind = "gradient", cleave.name = "v"/' %t.train | not cleave-opt --build-optimizer 2>&1 | FileCheck %s --check-prefix=GRADIENT
// RUN: sed 's/cleave.path = "fc"/cleave.path = "fc", cleave.stage = 3/' %t.step | not cleave-opt --apply 2>&1 | FileCheck %s --check-prefix=CUT

// APPLY: error: apply: needs a step (@train and @update on whole tensors), found a traced model (@forward)
// ANNOTATE: error: annotate: needs a step (@train and @update on whole tensors), found a traced model (@forward)
// OPTIMIZER: error: build-optimizer: needs a differentiated model (@train without @update), found a traced model (@forward)
// AGAIN: error: differentiate: needs a traced model (@forward), found a differentiated model (@train without @update)
// STAGES: error: assign-stages: needs a traced model (@forward), found a differentiated model
// PRECISION: error: precision: needs a traced model (@forward), found a differentiated model
// LAYOUT: error: channels-last: needs a traced model (@forward), found a differentiated model
// EARLY: error: apply: needs a step (@train and @update on whole tensors), found a differentiated model
// LOCAL: error: apply: needs a step (@train and @update on whole tensors), found local programs (a mesh)
// ANNOTATED: error: apply: needs a step (@train and @update on whole tensors), found an annotated step (values with shardings)
// FORM: error: differentiate: @forward has no cleave.name at argument 1
// NONAME: error: differentiate: @forward has an argument 1 whose name is empty or has control characters
// TWICE: error: differentiate: @forward has two arguments of kind "input" with name "image"
// NAMESAKE: error: differentiate: @forward has a parameter and a buffer with name "w"
// KIND: error: differentiate: @forward has an argument 2 of kind "gradient"
// NOWEIGHT: error: differentiate: @forward has no result of kind "weight"
// PATH: error: differentiate: @forward has a cleave.matmul whose cleave.path has control characters
// GRADIENT: error: build-optimizer: @train has a result 2, gradient "v", without such an argument
// CUT: error: apply: the mesh has pp = 1, the step has a stage 3

module attributes {cleave.optimizer = {name="sgd", lr=0.1:f64, momentum=0.0:f64, clip_norm=0.0:f64}} {
func.func @forward(%image: tensor<4x4xf32> {cleave.kind="input", cleave.name="image"},
   %w: tensor<8x4xf32> {cleave.kind="parameter", cleave.name = "w", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %label: tensor<4xi32> {cleave.kind="input", cleave.name="label"})
  -> (tensor<f32> {cleave.kind="loss"}, tensor<f32> {cleave.kind="weight"}) attributes {cleave.static_weight = 4 : i64} {
  %0 = cleave.matmul %image, %w {transB, cleave.path = "fc"} : (tensor<4x4xf32>, tensor<8x4xf32>) -> tensor<4x8xf32>
  %l, %n, %lse = cleave.cross_entropy %0, %label : (tensor<4x8xf32>, tensor<4xi32>) -> (tensor<f32>, tensor<f32>, tensor<4xf32>)
  return %l, %n : tensor<f32>, tensor<f32>
}
}
