// A sum becomes a reduce-scatter if all users need it split, and an all-reduce if a user needs it whole.
// RUN: cleave-opt %s --assign-stages=mesh=pp=1 --differentiate=microbatches=1 --simplify --build-optimizer --decompose --simplify -o %t.step
// RUN: cleave-opt %t.step --annotate="mesh=dp=2,tp=2" | FileCheck %s --check-prefix=ANNOTATED
// RUN: cleave-opt %t.step --apply="mesh=dp=2,tp=2" | FileCheck %s --check-prefix=LOCAL
// RUN: cleave-opt %t.step --apply="mesh=tp=4" | FileCheck %s --check-prefix=UNEVEN

// A mark in the code splits the second layer's sum over tp by columns: the whole sum is never computed.
// ANNOTATED-LABEL: func.func @train
// ANNOTATED: %[[P:.*]] = cleave.matmul {{.*}}cleave.path = "fc2", {{.*}}<"dp, _ | sum tp">]
// ANNOTATED-NEXT: %[[S:.*]] = dist.reshard %[[P]] {{.*}}from = #dist.sharding<"dp, _ | sum tp">, to = #dist.sharding<"dp, tp">
// ANNOTATED-NEXT: cleave.shard_hint %[[S]]

// LOCAL-LABEL: func.func @stage0.class0.forward(
// LOCAL: %[[P:.*]] = cleave.matmul {{.*}} : (tensor<6x4xf32>, tensor<6x4xf32>) -> tensor<6x6xf32>
// LOCAL-NOT: dist.all_reduce
// LOCAL: dist.reduce_scatter %[[P]] {axes = ["tp"], {{.*}}dim = 1 : i64, {{.*}}kind = "sum", sizes = array<i64: 3, 3>} : {{.*}}tensor<6x3xf32>
// The backward pass does not gather the gradient of the first layer's result.
// LOCAL-LABEL: func.func @stage0.class0.backward(
// LOCAL: %[[G:.*]] = cleave.matmul {{.*}} : (tensor<6x6xf32>, tensor<6x4xf32>) -> tensor<6x4xf32>
// LOCAL-NOT: dist.all_gather %[[G]]
// LOCAL-LABEL: func.func @

// UNEVEN: dist.reduce_scatter {{.*}}sizes = array<i64: 2, 2, 1, 1>

module attributes {cleave.optimizer = {name="sgd", lr=0.1:f64, momentum=0.9:f64, clip_norm=0.0:f64}} {
func.func @forward(%image: tensor<12x4xf32> {cleave.kind="input", cleave.name="image"}, %label: tensor<12xi32> {cleave.kind="input", cleave.name="label"},
   %w1: tensor<8x4xf32> {cleave.kind="parameter", cleave.name="fc1.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %w2: tensor<6x8xf32> {cleave.kind="parameter", cleave.name="fc2.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>})
  -> (tensor<f32> {cleave.kind="loss"}, tensor<f32> {cleave.kind="weight"}) attributes {cleave.static_weight = 12 : i64} {
  %0 = cleave.matmul %image, %w1 {transB, cleave.path="fc1"} : (tensor<12x4xf32>, tensor<8x4xf32>) -> tensor<12x8xf32>
  %1 = cleave.relu %0 : tensor<12x8xf32>
  %2 = cleave.matmul %1, %w2 {transB, cleave.path="fc2"} : (tensor<12x8xf32>, tensor<6x8xf32>) -> tensor<12x6xf32>
  %3 = cleave.shard_hint %2 ["dp", "tp"] {cleave.path="fc2"} : tensor<12x6xf32>
  %l, %w, %lse = cleave.cross_entropy %3, %label : (tensor<12x6xf32>, tensor<12xi32>) -> (tensor<f32>, tensor<f32>, tensor<12xf32>)
  return %l, %w : tensor<f32>, tensor<f32>
}
}
