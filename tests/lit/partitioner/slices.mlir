// A product that is sliced into runs of a dimension is split inside each run: slices and their gradients are local, even if
// shares differ (6 columns over 4 ranks are 2, 2, 1, 1).
// RUN: cleave-opt %s --assign-stages=mesh=pp=1 --differentiate=microbatches=1 --simplify --build-optimizer --decompose --simplify -o %t.step
// RUN: cleave-opt %t.step --annotate="mesh=tp=2" | FileCheck %s --check-prefix=ANNOTATED
// RUN: cleave-opt %t.step --apply="mesh=tp=2" | FileCheck %s --check-prefix=LOCAL
// RUN: cleave-opt %t.step --apply="mesh=tp=4" | FileCheck %s --check-prefix=UNEVEN

// ANNOTATED-LABEL: func.func @train
// ANNOTATED: %[[P:.*]] = cleave.matmul {{.*}}<"_, (3 x 6:tp)">]
// ANNOTATED-NEXT: cleave.slice %[[P]] {{.*}}<"_, tp">]
// ANNOTATED-NEXT: cleave.slice %[[P]] {{.*}}<"_, (2 x 6:tp)">]
// ANNOTATED: cleave.pad {{.*}}<"_, (3 x 6:tp)">]

// LOCAL-LABEL: func.func @stage0.class0.forward(
// LOCAL-DAG: cleave.slice {{.*}} starts [0, 0] sizes [12, 3]
// LOCAL-DAG: cleave.slice {{.*}} starts [0, 3] sizes [12, 6]
// LOCAL-LABEL: func.func @stage0.class0.backward(
// LOCAL-NOT: dist.all_gather
// LOCAL-DAG: cleave.pad {{.*}} low [0, 3] high [0, 0]
// LOCAL-DAG: cleave.pad {{.*}} low [0, 0] high [0, 6]

// UNEVEN-LABEL: func.func @stage0.class0.forward(
// UNEVEN: cleave.slice {{.*}} starts [0, 2] sizes [12, 4]
// UNEVEN-LABEL: func.func @stage0.class1.forward(
// UNEVEN: cleave.slice {{.*}} starts [0, 1] sizes [12, 2]

module attributes {cleave.optimizer = {name="sgd", lr=0.1:f64}} {
func.func @forward(%image: tensor<12x4xf32> {cleave.kind="input", cleave.name="image"}, %label: tensor<12xi32> {cleave.kind="input", cleave.name="label"},
   %w1: tensor<18x4xf32> {cleave.kind="parameter", cleave.name="fc1.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %w2: tensor<5x6xf32> {cleave.kind="parameter", cleave.name="fc2.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>})
  -> (tensor<f32> {cleave.kind="loss"}, tensor<f32> {cleave.kind="weight"}) attributes {cleave.static_weight = 12 : i64} {
  %0 = cleave.matmul %image, %w1 {transB, cleave.path="fc1"} : (tensor<12x4xf32>, tensor<18x4xf32>) -> tensor<12x18xf32>
  %1 = cleave.slice %0 starts [0, 0] sizes [12, 6] : tensor<12x18xf32> -> tensor<12x6xf32>
  %2 = cleave.slice %0 starts [0, 6] sizes [12, 12] : tensor<12x18xf32> -> tensor<12x12xf32>
  %3 = cleave.reshape %2 : tensor<12x12xf32> -> tensor<12x2x6xf32>
  %4 = cleave.reduce sum %3 dims [1] : tensor<12x2x6xf32> -> tensor<12x6xf32>
  %5 = cleave.mul %1, %4 : tensor<12x6xf32>
  %6 = cleave.matmul %5, %w2 {transB, cleave.path="fc2"} : (tensor<12x6xf32>, tensor<5x6xf32>) -> tensor<12x5xf32>
  %l, %n, %lse = cleave.cross_entropy %6, %label {cleave.path="loss"} : (tensor<12x5xf32>, tensor<12xi32>) -> (tensor<f32>, tensor<f32>, tensor<12xf32>)
  return %l, %n : tensor<f32>, tensor<f32>
}
}
