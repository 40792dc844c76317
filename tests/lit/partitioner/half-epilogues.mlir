// Biases that a library adds in the epilogue are cast once per iteration: a supported activation follows, or the sum is read
// from memory. Other biases are cast in the kernel that adds them, as are all biases if the module does not declare
// epilogues.
// RUN: cleave-opt %s --precision="level=2 half=bf16" --differentiate --simplify --build-optimizer --decompose --simplify -o %t.step
// RUN: cleave-opt %t.step --apply="mesh=dp=1" | FileCheck %s
// RUN: sed 's/cleave.epilogues, //' %t.step | cleave-opt --apply="mesh=dp=1" | FileCheck %s --check-prefix=NONE

// CHECK-LABEL: func.func @stage0.class0.begin(
// CHECK: cleave.name = "up.bias.bf16"
// CHECK: cleave.name = "read.bias.bf16"
// CHECK-NOT: bias.bf16
// CHECK-LABEL: func.func @stage0.class0.forward(
// CHECK: tensor<8xbf16> {cleave.kind = "working", cleave.name = "up.bias.bf16"

// NONE-LABEL: func.func @stage0.class0.begin(
// NONE: cleave.name = "up.weight.bf16"
// NONE-NOT: bias.bf16

module attributes {cleave.epilogues, cleave.optimizer = {name="sgd", lr=0.1:f64}} {
func.func @forward(%image: tensor<12x4xf32> {cleave.kind="input", cleave.name="image"}, %label: tensor<12xi32> {cleave.kind="input", cleave.name="label"},
   %w: tensor<8x4xf32> {cleave.kind="parameter", cleave.name="up.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %b: tensor<8xf32> {cleave.kind="parameter", cleave.name="up.bias", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %v: tensor<8x8xf32> {cleave.kind="parameter", cleave.name="read.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %c: tensor<8xf32> {cleave.kind="parameter", cleave.name="read.bias", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %u: tensor<8x8xf32> {cleave.kind="parameter", cleave.name="last.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %d: tensor<8xf32> {cleave.kind="parameter", cleave.name="last.bias", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>})
  -> (tensor<f32> {cleave.kind="loss"}, tensor<f32> {cleave.kind="weight"}) attributes {cleave.static_weight = 12 : i64} {
  %0 = cleave.matmul %image, %w {transB, cleave.path="up"} : (tensor<12x4xf32>, tensor<8x4xf32>) -> tensor<12x8xf32>
  %1 = cleave.broadcast %b dims [1] {cleave.path="up"} : tensor<8xf32> -> tensor<12x8xf32>
  %2 = cleave.add %0, %1 {cleave.path="up"} : tensor<12x8xf32>
  %3 = cleave.gelu %2 {tanh, cleave.path="up"} : tensor<12x8xf32>
  %4 = cleave.matmul %3, %v {transB, cleave.path="read"} : (tensor<12x8xf32>, tensor<8x8xf32>) -> tensor<12x8xf32>
  %5 = cleave.broadcast %c dims [1] {cleave.path="read"} : tensor<8xf32> -> tensor<12x8xf32>
  %6 = cleave.add %4, %5 {cleave.path="read"} : tensor<12x8xf32>
  %7 = cleave.matmul %6, %u {transB, cleave.path="last"} : (tensor<12x8xf32>, tensor<8x8xf32>) -> tensor<12x8xf32>
  %8 = cleave.broadcast %d dims [1] {cleave.path="last"} : tensor<8xf32> -> tensor<12x8xf32>
  %9 = cleave.add %7, %8 {cleave.path="last"} : tensor<12x8xf32>
  %l, %n, %lse = cleave.cross_entropy %9, %label : (tensor<12x8xf32>, tensor<12xi32>) -> (tensor<f32>, tensor<f32>, tensor<12xf32>)
  return %l, %n : tensor<f32>, tensor<f32>
}
}
