// A split backward pass: the gradients of a norm's weights, which read values that no product of weights keeps, are reduced in the
// pass that computes those. Gradients of a product's weight and of its bias, which read the same values, come later.
// RUN: cleave-opt %s --assign-stages=mesh=pp=2 --differentiate=microbatches=2 --simplify --build-optimizer --decompose --simplify --apply="mesh=pp=2 microbatches=2 schedule=zb-h1" | FileCheck %s
// RUN: cleave-opt %s --assign-stages=mesh=dp=1 --differentiate=microbatches=2 --simplify --build-optimizer --decompose --simplify --apply="mesh=dp=1 microbatches=2" | FileCheck %s --check-prefix=JOINED

// CHECK: func.func @stage1.class0.input_gradient(
// CHECK: cleave.reduce{{ +}}sum %{{.*}} dims [0] {cleave.layer = "norm", cleave.path = "norm"
// CHECK: cleave.reduce{{ +}}sum %{{.*}} dims [0] {cleave.layer = "norm", cleave.path = "norm"
// CHECK-NOT: transA
// CHECK: func.func @stage1.class0.weight_gradient(
// CHECK-NOT: cleave.path = "norm"
// CHECK: cleave.reduce{{ +}}sum %{{.*}} dims [0] {cleave.layer = "fc2", cleave.path = "fc2"
// CHECK: cleave.matmul {{.*}}transA

// A joined pass says which of its ops a split one would do later, if every layer were a stage.
// JOINED: func.func @stage0.class0.backward(
// JOINED: cleave.reduce{{ +}}sum %{{.*}} dims [0] {cleave.layer = "norm", cleave.path = "norm", cleave.phase = "backward", cleave.stage
// JOINED: cleave.reduce{{ +}}sum %{{.*}} dims [0] {cleave.layer = "fc2", {{.*}}cleave.role = "weight_gradient"
// JOINED: cleave.matmul %{{.*}} {cleave.layer = "fc2", cleave.path = "fc2", cleave.phase = "backward", cleave.stage
// JOINED: cleave.matmul %{{.*}} {cleave.layer = "fc2", {{.*}}cleave.role = "weight_gradient"{{.*}}transA
// JOINED: cleave.matmul %{{.*}} {cleave.layer = "fc1", {{.*}}cleave.role = "weight_gradient"{{.*}}transA

module attributes {cleave.optimizer = {name="sgd", lr=0.1:f64, momentum=0.9:f64, clip_norm=0.0:f64}} {
func.func @forward(%image: tensor<12x4xf32> {cleave.kind="input", cleave.name="image"}, %label: tensor<12xi32> {cleave.kind="input", cleave.name="label"},
   %w1: tensor<8x4xf32> {cleave.kind="parameter", cleave.name="fc1.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %s: tensor<6xf32> {cleave.kind="parameter", cleave.name="norm.weight", cleave.trainable=true, cleave.init=#cleave.init<"constant", 1.0, 0.0>},
   %t: tensor<6xf32> {cleave.kind="parameter", cleave.name="norm.bias", cleave.trainable=true, cleave.init=#cleave.init<"constant", 0.0, 0.0>},
   %w2: tensor<6x8xf32> {cleave.kind="parameter", cleave.name="fc2.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %b2: tensor<6xf32> {cleave.kind="parameter", cleave.name="fc2.bias", cleave.trainable=true, cleave.init=#cleave.init<"constant", 0.0, 0.0>})
  -> (tensor<f32> {cleave.kind="loss"}, tensor<f32> {cleave.kind="weight"}) attributes {cleave.static_weight = 12 : i64} {
  %0 = cleave.matmul %image, %w1 {transB, cleave.path="fc1"} : (tensor<12x4xf32>, tensor<8x4xf32>) -> tensor<12x8xf32>
  %1 = cleave.matmul %0, %w2 {transB, cleave.path="fc2"} : (tensor<12x8xf32>, tensor<6x8xf32>) -> tensor<12x6xf32>
  %2 = cleave.broadcast %b2 dims [1] {cleave.path="fc2"} : tensor<6xf32> -> tensor<12x6xf32>
  %3 = cleave.add %1, %2 {cleave.path="fc2"} : tensor<12x6xf32>
  %4:3 = cleave.layer_norm %3, %s, %t {eps = 1.0e-5, cleave.path="norm"} : (tensor<12x6xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<12x6xf32>, tensor<12xf32>, tensor<12xf32>)
  %l, %w, %lse = cleave.cross_entropy %4#0, %label : (tensor<12x6xf32>, tensor<12xi32>) -> (tensor<f32>, tensor<f32>, tensor<12xf32>)
  return %l, %w : tensor<f32>, tensor<f32>
}
}
