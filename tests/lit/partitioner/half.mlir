// Mixed precision under dp: parameters are cast once per iteration; gradients accumulate over microbatches in f32 and are
// reduced once, in the type given by the module.
// RUN: cleave-opt %s --precision="level=2 half=bf16" --differentiate=microbatches=2 --simplify --build-optimizer --decompose --simplify -o %t.step
// RUN: cleave-opt %t.step --apply="mesh=dp=2 microbatches=2" | FileCheck %s --check-prefixes=CHECK,HALF
// RUN: sed 's/cleave.reduce_dtype = bf16/cleave.reduce_dtype = f32/' %t.step | cleave-opt --apply="mesh=dp=2 microbatches=2" | FileCheck %s --check-prefixes=CHECK,SINGLE
// RUN: cleave-opt %t.step --apply="mesh=dp=1 microbatches=2" | FileCheck %s --check-prefix=ALONE

// Products read a cast copy of the weight; a bias is cast where it is added.
// CHECK-LABEL: func.func @stage0.class0.begin(
// CHECK-SAME: cleave.name = "fc.weight"
// CHECK-SAME: cleave.kind = "working", cleave.name = "fc.weight.bf16"
// CHECK: cleave.cast {{.*}} : tensor<8x4xf32> -> tensor<8x4xbf16>
// CHECK-NOT: -> tensor<8xbf16>
// CHECK-LABEL: func.func @stage0.class0.forward(
// CHECK-SAME: tensor<8x4xbf16> {cleave.kind = "working", cleave.name = "fc.weight.bf16"
// CHECK-NOT: tensor<8x4xf32>
// CHECK-LABEL: func.func @stage0.class0.backward(
// CHECK-NOT: dist.all_reduce
// CHECK: cleave.cast {{.*}} : tensor<8x4xbf16> -> tensor<8x4xf32>

// CHECK-LABEL: func.func @stage0.class0.reduce(
// HALF: cleave.cast %{{.*}}sum dp{{.*}} : tensor<8x4xf32> -> tensor<8x4xbf16>
// HALF: dist.all_reduce {{.*}}axes = ["dp"], cleave.path = "gradients"{{.*}}tensor<8x4xbf16>
// HALF: cleave.cast {{.*}} : tensor<8x4xbf16> -> tensor<8x4xf32>
// SINGLE-NOT: cleave.cast
// SINGLE: dist.all_reduce {{.*}}axes = ["dp"], cleave.path = "gradients"{{.*}}tensor<8x4xf32>
// CHECK-LABEL: func.func @stage0.class0.update(

// With one rank nothing is reduced.
// ALONE-NOT: dist.all_reduce
// ALONE-NOT: @stage0.class0.reduce

module attributes {cleave.reduce_dtype = bf16, cleave.optimizer = {name="sgd", lr=0.1:f64}} {
func.func @forward(%image: tensor<12x4xf32> {cleave.kind="input", cleave.name="image"}, %label: tensor<12xi32> {cleave.kind="input", cleave.name="label"},
   %w: tensor<8x4xf32> {cleave.kind="parameter", cleave.name="fc.weight", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>},
   %b: tensor<8xf32> {cleave.kind="parameter", cleave.name="fc.bias", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>})
  -> (tensor<f32> {cleave.kind="loss"}, tensor<f32> {cleave.kind="weight"}) attributes {cleave.static_weight = 12 : i64} {
  %0 = cleave.matmul %image, %w {transB, cleave.path="fc"} : (tensor<12x4xf32>, tensor<8x4xf32>) -> tensor<12x8xf32>
  %1 = cleave.broadcast %b dims [1] {cleave.path="fc"} : tensor<8xf32> -> tensor<12x8xf32>
  %2 = cleave.add %0, %1 {cleave.path="fc"} : tensor<12x8xf32>
  %l, %n, %lse = cleave.cross_entropy %2, %label : (tensor<12x8xf32>, tensor<12xi32>) -> (tensor<f32>, tensor<f32>, tensor<12xf32>)
  return %l, %n : tensor<f32>, tensor<f32>
}
}
