// The gradient of a maximum looks for the elements that are equal to it. A norm's result computed again may have none, if its
// kernel rounds otherwise, so this gradient reads the result that was kept. A maximum of one element needs no search.
// RUN: cleave-opt %s --assign-stages=mesh=pp=1 --differentiate=microbatches=1 --simplify --build-optimizer --decompose --simplify -o %t.step
// RUN: cleave-opt %t.step --recompute=kind=none | FileCheck %s

// CHECK-LABEL: func.func @train
// CHECK: %[[N:.*]] = cleave.reshape {{.*}}cleave.path = "norm"
// CHECK: %[[M:.*]] = cleave.reduce{{ +}}max %[[N]]
// CHECK: %[[B:.*]] = cleave.broadcast %[[M]] {{.*}}cleave.phase = "backward"
// CHECK: cleave.compare{{ +}}eq %[[N]], %[[B]]
// CHECK-NOT: cleave.compare{{ +}}eq

module attributes {cleave.optimizer = {name="sgd", lr=0.1:f64, momentum=0.9:f64, clip_norm=0.0:f64}} {
func.func @forward(%image: tensor<12x4xf32> {cleave.kind="input", cleave.name="image"}, %label: tensor<12xi32> {cleave.kind="input", cleave.name="label"},
   %w1: tensor<8x4xf32> {cleave.kind="parameter", cleave.name="first.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %scale: tensor<8xf32> {cleave.kind="parameter", cleave.name="norm.weight", cleave.trainable=true, cleave.init=#cleave.init<"constant", 1.0, 0.0>},
   %shift: tensor<8xf32> {cleave.kind="parameter", cleave.name="norm.bias", cleave.trainable=true, cleave.init=#cleave.init<"constant", 0.0, 0.0>},
   %w2: tensor<5x4xf32> {cleave.kind="parameter", cleave.name="last.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>})
  -> (tensor<f32> {cleave.kind="loss"}, tensor<f32> {cleave.kind="weight"}) attributes {cleave.static_weight = 12 : i64} {
  %x = cleave.matmul %image, %w1 {transB, cleave.path="first"} : (tensor<12x4xf32>, tensor<8x4xf32>) -> tensor<12x8xf32>
  %n, %mean, %variance = cleave.batch_norm %x, %scale, %shift {eps = 1.000000e-05 : f64, channels_last, cleave.path="norm"} : (tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>)
  %p = cleave.reshape %n {cleave.path="norm"} : tensor<12x8xf32> -> tensor<12x4x2x1xf32>
  %m = cleave.reduce max %p dims [2] {cleave.path="pool"} : tensor<12x4x2x1xf32> -> tensor<12x4x1xf32>
  %f = cleave.reduce max %m dims [2] {cleave.path="pool"} : tensor<12x4x1xf32> -> tensor<12x4xf32>
  %o = cleave.matmul %f, %w2 {transB, cleave.path="last"} : (tensor<12x4xf32>, tensor<5x4xf32>) -> tensor<12x5xf32>
  %l, %w, %lse = cleave.cross_entropy %o, %label : (tensor<12x5xf32>, tensor<12xi32>) -> (tensor<f32>, tensor<f32>, tensor<12xf32>)
  return %l, %w : tensor<f32>, tensor<f32>
}
}
