// The backward pass computes the sign of relu(batch_norm(x)) from x, which the norm's gradient reads anyway, and reads neither the
// ReLU's result nor the norm's. The second product needs the ReLU's result in memory, so its gradient reads what was kept. A ReLU of
// a product's result alone is kept: nothing else needs the product's result.
// RUN: cleave-opt %s --assign-stages=mesh=pp=1 --differentiate=microbatches=1 --simplify --build-optimizer --decompose --simplify -o %t.step
// RUN: cleave-opt %t.step --recompute=kind=none | FileCheck %s

// CHECK-LABEL: func.func @train
// CHECK: %[[X:.*]] = cleave.matmul %{{[^,]*}}, %{{[^ ]*}} {cleave.layer = "first", cleave.path = "first"
// CHECK: %[[Y:.*]] = cleave.relu {{.*}}cleave.path = "norm"
// CHECK: %[[Z:.*]] = cleave.matmul %[[Y]],
// CHECK: %[[R:.*]] = cleave.relu %[[Z]]
// CHECK: cleave.compare{{ +}}le %[[R]],
// CHECK: cleave.reshape %[[Y]] {{.*}}cleave.phase = "backward"
// CHECK: cleave.sub %[[X]], {{.*}}cleave.phase = "backward"
// CHECK: %[[AGAIN:.*]] = cleave.add {{.*}}cleave.phase = "backward"
// CHECK: cleave.compare{{ +}}le %[[AGAIN]],
// CHECK-NOT: cleave.compare

module attributes {cleave.optimizer = {name="sgd", lr=0.1:f64, momentum=0.9:f64, clip_norm=0.0:f64}} {
func.func @forward(%image: tensor<2x6x4xf32> {cleave.kind="input", cleave.name="image"}, %label: tensor<12xi32> {cleave.kind="input", cleave.name="label"},
   %w1: tensor<8x4xf32> {cleave.kind="parameter", cleave.name="first.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %scale: tensor<8xf32> {cleave.kind="parameter", cleave.name="norm.weight", cleave.trainable=true, cleave.init=#cleave.init<"constant", 1.0, 0.0>},
   %shift: tensor<8xf32> {cleave.kind="parameter", cleave.name="norm.bias", cleave.trainable=true, cleave.init=#cleave.init<"constant", 0.0, 0.0>},
   %w2: tensor<6x8xf32> {cleave.kind="parameter", cleave.name="second.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %w3: tensor<5x6xf32> {cleave.kind="parameter", cleave.name="third.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>})
  -> (tensor<f32> {cleave.kind="loss"}, tensor<f32> {cleave.kind="weight"}) attributes {cleave.static_weight = 12 : i64} {
  %x = cleave.matmul %image, %w1 {transB, cleave.path="first"} : (tensor<2x6x4xf32>, tensor<8x4xf32>) -> tensor<2x6x8xf32>
  %n, %mean, %variance = cleave.batch_norm %x, %scale, %shift {eps = 1.000000e-05 : f64, channels_last, cleave.path="norm"} : (tensor<2x6x8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<2x6x8xf32>, tensor<8xf32>, tensor<8xf32>)
  %y = cleave.relu %n {cleave.path="norm"} : tensor<2x6x8xf32>
  %z = cleave.matmul %y, %w2 {transB, cleave.path="second"} : (tensor<2x6x8xf32>, tensor<6x8xf32>) -> tensor<2x6x6xf32>
  %r = cleave.relu %z {cleave.path="second"} : tensor<2x6x6xf32>
  %f = cleave.reshape %r : tensor<2x6x6xf32> -> tensor<12x6xf32>
  %o = cleave.matmul %f, %w3 {transB, cleave.path="third"} : (tensor<12x6xf32>, tensor<5x6xf32>) -> tensor<12x5xf32>
  %l, %w, %lse = cleave.cross_entropy %o, %label : (tensor<12x5xf32>, tensor<12xi32>) -> (tensor<f32>, tensor<f32>, tensor<12xf32>)
  return %l, %w : tensor<f32>, tensor<f32>
}
}
