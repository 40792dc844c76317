// A two-layer model over dp, tp and pp: shardings, collectives and messages.
// RUN: cleave-opt %s --assign-stages=mesh=pp=2 --differentiate=microbatches=2 --simplify --build-optimizer --decompose --simplify -o %t.step
// RUN: cleave-opt %t.step --annotate="mesh=dp=2,tp=2,pp=2 microbatches=2" | FileCheck %s --check-prefix=ANNOTATED
// RUN: cleave-opt %t.step --apply="mesh=dp=2,tp=2,pp=2 microbatches=2" | FileCheck %s --check-prefix=LOCAL
// RUN: cleave-opt %t.step --apply="mesh=dp=2,tp=2,pp=2 microbatches=2" | cleave-opt | FileCheck %s --check-prefix=LOCAL
// RUN: cleave-opt %t.step --apply="mesh=dp=2,tp=2,pp=2 microbatches=2 schedule=zb-h1" | FileCheck %s --check-prefix=SPLIT
// RUN: cleave-opt %t.step --apply="mesh=dp=5,pp=2 microbatches=2" | FileCheck %s --check-prefix=UNEVEN
// RUN: not cleave-opt %s --assign-stages=mesh=pp=9 2>&1 | FileCheck %s --check-prefix=TOOMANY
// RUN: not cleave-opt %t.step --annotate="mesh=dp=13 microbatches=2" 2>&1 | FileCheck %s --check-prefix=FEWROWS

// The first layer is split by output features, the second by input features; its result is summed over tp before the bias.
// ANNOTATED-LABEL: func.func @train
// ANNOTATED-SAME: cleave.name = "image", dist.sharding = #dist.sharding<"dp, _">
// ANNOTATED-SAME: cleave.name = "fc1.weight", cleave.trainable = true, dist.sharding = #dist.sharding<"tp, _">
// ANNOTATED-SAME: cleave.name = "fc1.bias", cleave.trainable = true, dist.sharding = #dist.sharding<"tp">
// ANNOTATED-SAME: cleave.name = "fc2.weight", cleave.trainable = true, dist.sharding = #dist.sharding<"_, tp">
// ANNOTATED: %[[H:.*]] = cleave.matmul %arg0, %arg2 {{.*}}dist.shardings = [#dist.sharding<"dp, tp">]
// ANNOTATED: %[[P:.*]] = cleave.matmul {{.*}}dist.shardings = [#dist.sharding<"dp, _ | sum tp">]
// ANNOTATED-NEXT: dist.reshard %[[P]] {{.*}}from = #dist.sharding<"dp, _ | sum tp">, to = #dist.sharding<"dp, _">
// ANNOTATED-LABEL: func.func @update

// LOCAL: dist.mesh @mesh ["dp", "tp", "pp"] [2, 2, 2]
// LOCAL-LABEL: func.func @stage0.class0.begin() -> {{.*}}cleave.kind = "gradient", cleave.name = "fc1.weight"
// LOCAL-LABEL: func.func @stage0.class0.forward(%arg0: tensor<6x4xf32>
// LOCAL: cleave.relu {{.*}} : tensor<6x4xf32>
// LOCAL: dist.send {{.*}}stage = 1 : i64, tag = 0 : i64
// LOCAL-LABEL: func.func @stage0.class0.backward(
// LOCAL: dist.recv {{.*}}stage = 1 : i64, tag = 1 : i64
// LOCAL-LABEL: func.func @stage0.class0.reduce(
// LOCAL: dist.all_reduce %arg0, %arg1 {axes = ["dp"], cleave.path = "gradients", cleave.role = "gradients", kind = "sum"}
// LOCAL: dist.all_reduce {{.*}}axes = ["dp", "pp"], cleave.path = "metrics"
// LOCAL-LABEL: func.func @stage0.class0.update(
// LOCAL: dist.all_reduce {{.*}}axes = ["tp"]
// LOCAL: dist.all_reduce {{.*}}axes = ["pp"], cleave.path = "gradient norm"
// LOCAL-LABEL: func.func @stage1.class0.forward(
// LOCAL: dist.recv {{.*}}stage = 0 : i64, tag = 0 : i64
// LOCAL: dist.all_reduce {{.*}}axes = ["tp"], cleave.layer = "fc2", cleave.path = "fc2"
// LOCAL-LABEL: func.func @stage1.class0.backward(
// LOCAL: dist.send {{.*}}stage = 0 : i64, tag = 1 : i64
// LOCAL: return {{.*}} : tensor<6x4xf32>, tensor<6xf32>

// A split backward pass: no stage waits for the first one, so the first stage has only weight gradients.
// SPLIT-NOT: .backward(
// SPLIT-NOT: @stage0.class0.input_gradient
// SPLIT: func.func @stage0.class0.weight_gradient(
// SPLIT: dist.recv {{.*}}stage = 1 : i64, tag = 1 : i64
// SPLIT: func.func @stage1.class0.input_gradient(
// SPLIT: dist.send {{.*}}stage = 0 : i64, tag = 1 : i64
// SPLIT: func.func @stage1.class0.weight_gradient(

// 12 rows over 5 ranks: two rank classes per stage, with 3 and 2 rows.
// UNEVEN-LABEL: func.func @stage0.class0.forward(%arg0: tensor<3x4xf32>
// UNEVEN-LABEL: func.func @stage0.class1.forward(%arg0: tensor<2x4xf32>

// TOOMANY: pp = 9 asks for more stages than the model's 2 layers
// FEWROWS: a microbatch has 12 rows, fewer than dp = 13

module attributes {cleave.optimizer = {name="sgd", lr=0.1:f64, momentum=0.9:f64, clip_norm=1.0:f64}} {
func.func @forward(%image: tensor<12x4xf32> {cleave.kind="input", cleave.name="image"}, %label: tensor<12xi32> {cleave.kind="input", cleave.name="label"},
   %w1: tensor<8x4xf32> {cleave.kind="parameter", cleave.name="fc1.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %b1: tensor<8xf32> {cleave.kind="parameter", cleave.name="fc1.bias", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %w2: tensor<6x8xf32> {cleave.kind="parameter", cleave.name="fc2.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %b2: tensor<6xf32> {cleave.kind="parameter", cleave.name="fc2.bias", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>})
  -> (tensor<f32> {cleave.kind="loss"}, tensor<f32> {cleave.kind="weight"}) attributes {cleave.static_weight = 12 : i64} {
  %0 = cleave.matmul %image, %w1 {transB, cleave.path="fc1"} : (tensor<12x4xf32>, tensor<8x4xf32>) -> tensor<12x8xf32>
  %1 = cleave.broadcast %b1 dims [1] {cleave.path="fc1"} : tensor<8xf32> -> tensor<12x8xf32>
  %2 = cleave.add %0, %1 {cleave.path="fc1"} : tensor<12x8xf32>
  %3 = cleave.relu %2 : tensor<12x8xf32>
  %4 = cleave.matmul %3, %w2 {transB, cleave.path="fc2"} : (tensor<12x8xf32>, tensor<6x8xf32>) -> tensor<12x6xf32>
  %5 = cleave.broadcast %b2 dims [1] {cleave.path="fc2"} : tensor<6xf32> -> tensor<12x6xf32>
  %6 = cleave.add %4, %5 {cleave.path="fc2"} : tensor<12x6xf32>
  %l, %w, %lse = cleave.cross_entropy %6, %label : (tensor<12x6xf32>, tensor<12xi32>) -> (tensor<f32>, tensor<f32>, tensor<12xf32>)
  return %l, %w : tensor<f32>, tensor<f32>
}
}
