// The table of an embedding in the first stage is also the head in the last stage. It is split by rows over tp; each of the two
// stages has a gradient, and the two are summed; the logits are never gathered.
// RUN: cleave-opt %s --assign-stages=mesh=pp=2 --differentiate --simplify --build-optimizer --decompose --simplify -o %t.step
// RUN: cleave-opt %t.step --apply="mesh=tp=2,pp=2" | FileCheck %s

// CHECK-LABEL: func.func @stage0.class0.forward(
// CHECK: %[[START:.*]] = dist.shard_offset {axes = ["tp"]{{.*}}size = 10 : i64}
// CHECK: cleave.embedding {{.*}}%[[START]]
// CHECK: dist.all_reduce {{.*}}axes = ["tp"], cleave.layer = "embed", cleave.path = "embed"
// CHECK-LABEL: func.func @stage0.class0.reduce(
// CHECK: dist.all_reduce {{.*}}axes = ["pp"], cleave.path = "gradients", cleave.role = "gradients", kind = "sum", stages = array<i64: 0, 1>
// CHECK-LABEL: func.func @stage1.class0.forward(
// CHECK: cleave.matmul {{.*}}-> tensor<6x5xf32>
// CHECK-NOT: dist.all_gather
// CHECK: dist.all_reduce {{.*}}axes = ["tp"]{{.*}}kind = "max"
// CHECK-LABEL: func.func @stage1.class0.reduce(
// CHECK: dist.all_reduce {{.*}}stages = array<i64: 0, 1>

module attributes {cleave.optimizer = {name = "sgd", lr = 0.1 : f64}} {
func.func @forward(%ids: tensor<6xi32> {cleave.kind = "input", cleave.name = "tokens"}, %label: tensor<6xi32> {cleave.kind = "input", cleave.name = "targets"},
    %table: tensor<10x4xf32> {cleave.kind = "parameter", cleave.name = "embed.weight", cleave.trainable = true, cleave.init = #cleave.init<"normal", 0.0, 1.0>},
    %w: tensor<4x4xf32> {cleave.kind = "parameter", cleave.name = "fc.weight", cleave.trainable = true, cleave.init = #cleave.init<"normal", 0.0, 1.0>})
    -> (tensor<f32> {cleave.kind = "loss"}, tensor<f32> {cleave.kind = "weight"}) attributes {cleave.static_weight = 6 : i64} {
  %0 = cleave.embedding %table, %ids {cleave.path = "embed"} : (tensor<10x4xf32>, tensor<6xi32>) -> tensor<6x4xf32>
  %1 = cleave.matmul %0, %w {transB, cleave.path = "fc"} : (tensor<6x4xf32>, tensor<4x4xf32>) -> tensor<6x4xf32>
  %2 = cleave.shard_hint %1 ["", ""] {cleave.path = "fc"} : tensor<6x4xf32>
  %3 = cleave.matmul %2, %table {transB, cleave.path = "head"} : (tensor<6x4xf32>, tensor<10x4xf32>) -> tensor<6x10xf32>
  %l, %n, %lse = cleave.cross_entropy %3, %label {cleave.path = "head"} : (tensor<6x10xf32>, tensor<6xi32>) -> (tensor<f32>, tensor<f32>, tensor<6xf32>)
  return %l, %n : tensor<f32>, tensor<f32>
}
}
