// A stage computes nothing of an earlier one again, which would wait for that one's backward pass: the ReLU's gradient reads the
// kept result where the norm is in the stage before.
// RUN: cleave-opt %s --assign-stages=mesh=pp=2 --differentiate=microbatches=2 --simplify --build-optimizer --decompose --simplify -o %t.step
// RUN: cleave-opt %t.step --recompute=kind=none -o %t.none
// RUN: diff %t.step %t.none
// RUN: FileCheck %s --input-file=%t.none

// CHECK: %[[Y:.*]] = cleave.relu {{.*}}cleave.stage = 1
// CHECK: cleave.compare{{ +}}le %[[Y]], {{.*}}cleave.stage = 1
// CHECK: cleave.sub {{.*}}cleave.phase = "backward", cleave.stage = 0

module attributes {cleave.optimizer = {name="sgd", lr=0.1:f64, momentum=0.9:f64, clip_norm=0.0:f64}} {
func.func @forward(%image: tensor<12x4xf32> {cleave.kind="input", cleave.name="image"}, %label: tensor<12xi32> {cleave.kind="input", cleave.name="label"},
   %w1: tensor<8x4xf32> {cleave.kind="parameter", cleave.name="layers.0.fc.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %scale: tensor<8xf32> {cleave.kind="parameter", cleave.name="layers.0.norm.weight", cleave.trainable=true, cleave.init=#cleave.init<"constant", 1.0, 0.0>},
   %shift: tensor<8xf32> {cleave.kind="parameter", cleave.name="layers.0.norm.bias", cleave.trainable=true, cleave.init=#cleave.init<"constant", 0.0, 0.0>},
   %w2: tensor<6x8xf32> {cleave.kind="parameter", cleave.name="layers.1.fc.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %w3: tensor<5x6xf32> {cleave.kind="parameter", cleave.name="layers.1.fd.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>})
  -> (tensor<f32> {cleave.kind="loss"}, tensor<f32> {cleave.kind="weight"}) attributes {cleave.static_weight = 12 : i64} {
  %x = cleave.matmul %image, %w1 {transB, cleave.path="layers.0"} : (tensor<12x4xf32>, tensor<8x4xf32>) -> tensor<12x8xf32>
  %n, %mean, %variance = cleave.batch_norm %x, %scale, %shift {eps = 1.000000e-05 : f64, cleave.path="layers.0"} : (tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>)
  %y = cleave.relu %n {cleave.path="layers.1"} : tensor<12x8xf32>
  %z = cleave.matmul %y, %w2 {transB, cleave.path="layers.1"} : (tensor<12x8xf32>, tensor<6x8xf32>) -> tensor<12x6xf32>
  %o = cleave.matmul %z, %w3 {transB, cleave.path="layers.1"} : (tensor<12x6xf32>, tensor<5x6xf32>) -> tensor<12x5xf32>
  %l, %w, %lse = cleave.cross_entropy %o, %label : (tensor<12x5xf32>, tensor<12xi32>) -> (tensor<f32>, tensor<f32>, tensor<12xf32>)
  return %l, %w : tensor<f32>, tensor<f32>
}
}
