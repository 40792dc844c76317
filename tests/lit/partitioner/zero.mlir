// ZeRO: optimizer state, gradients and parameters are split over dp. Vectors stay whole.
// RUN: cleave-opt %s --assign-stages=mesh=pp=1 --differentiate=microbatches=2 --simplify --build-optimizer --decompose --simplify -o %t.step
// RUN: cleave-opt %t.step --annotate="mesh=dp=2 zero=3 microbatches=2" | FileCheck %s --check-prefix=ANNOTATED
// RUN: cleave-opt %t.step --apply="mesh=dp=2 zero=1 microbatches=2" | FileCheck %s --check-prefixes=ALL,ONE
// RUN: cleave-opt %t.step --apply="mesh=dp=2 zero=2 microbatches=2" | FileCheck %s --check-prefixes=ALL,TWO
// RUN: cleave-opt %t.step --apply="mesh=dp=2 zero=3 microbatches=2" | FileCheck %s --check-prefixes=ALL,THREE

// ANNOTATED-LABEL: func.func @train
// ANNOTATED: dist.reshard %{{.*}} {{.*}}dist.gathered = "segment"{{.*}}from = #dist.sharding<"dp, _">, to = #dist.sharding<"_, _">
// ANNOTATED: dist.reshard %{{.*}} {{.*}}from = #dist.sharding<"_, _ | sum dp">, to = #dist.sharding<"dp, _">
// ANNOTATED-LABEL: func.func @update

// Stages 1 and 2 gather before the microbatches, stage 3 in each segment. A gradient is accumulated whole at stage 1.
// ALL-LABEL: func.func @stage0.class0.begin
// ONE-SAME: tensor<6x4xf32> {cleave.kind = "gradient", cleave.name = "fc.weight.sum"}
// ONE: dist.all_gather
// TWO-SAME: tensor<3x4xf32> {cleave.kind = "gradient", cleave.name = "fc.weight"}
// TWO: dist.all_gather
// THREE-NOT: dist.all_gather
// ALL-LABEL: func.func @stage0.class0.forward
// ONE-NOT: dist.all_gather
// TWO-NOT: dist.all_gather
// THREE: dist.all_gather {{.*}} (tensor<3x4xf32>) -> tensor<6x4xf32>
// ALL-LABEL: func.func @stage0.class0.backward
// ONE-NOT: dist.reduce_scatter
// TWO: dist.reduce_scatter {{.*}} (tensor<6x4xf32>) -> tensor<3x4xf32>
// THREE: dist.reduce_scatter {{.*}} (tensor<6x4xf32>) -> tensor<3x4xf32>
// ALL-LABEL: func.func @stage0.class0.reduce
// ALL: dist.all_reduce {{.*}} tensor<6xf32>
// ONE: dist.reduce_scatter {{.*}} (tensor<6x4xf32>) -> tensor<3x4xf32>
// TWO-NOT: dist.reduce_scatter
// THREE-NOT: dist.reduce_scatter

// The update works on parts, and sends nothing.
// ALL-LABEL: func.func @stage0.class0.update
// ALL-SAME: tensor<3x4xf32>
// ALL-NOT: dist.{{all_gather|reduce_scatter}}
// ALL: return

module attributes {cleave.optimizer = {name="sgd", lr=0.1:f64, momentum=0.9:f64, clip_norm=0.0:f64}} {
func.func @forward(%image: tensor<12x4xf32> {cleave.kind="input", cleave.name="image"}, %label: tensor<12xi32> {cleave.kind="input", cleave.name="label"},
   %w: tensor<6x4xf32> {cleave.kind="parameter", cleave.name="fc.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %b: tensor<6xf32> {cleave.kind="parameter", cleave.name="fc.bias", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>})
  -> (tensor<f32> {cleave.kind="loss"}, tensor<f32> {cleave.kind="weight"}) attributes {cleave.static_weight = 12 : i64} {
  %0 = cleave.matmul %image, %w {transB, cleave.path="fc"} : (tensor<12x4xf32>, tensor<6x4xf32>) -> tensor<12x6xf32>
  %1 = cleave.broadcast %b dims [1] : tensor<6xf32> -> tensor<12x6xf32>
  %2 = cleave.add %0, %1 {cleave.path="fc"} : tensor<12x6xf32>
  %l, %wt, %lse = cleave.cross_entropy %2, %label : (tensor<12x6xf32>, tensor<12xi32>) -> (tensor<f32>, tensor<f32>, tensor<12xf32>)
  return %l, %wt : tensor<f32>, tensor<f32>
}
}
