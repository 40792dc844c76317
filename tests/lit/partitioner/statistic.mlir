// A statistic is summed over the ranks and divided once, because rounded quotients of the parts need not add up to the mean of
// equal elements. A division by a power of two is exact, so it keeps partial sums, as any division in the backward pass does.
// RUN: cleave-opt %s --assign-stages=mesh=pp=1 --differentiate=microbatches=1 --simplify --build-optimizer --decompose --simplify -o %t.step
// RUN: cleave-opt %t.step --annotate="mesh=dp=3" | FileCheck %s

// CHECK-LABEL: func.func @train
// CHECK-DAG: %[[TWELVE:.*]] = cleave.constant {{.*}}dense<1.200000e+01> : tensor<6xf32>
// CHECK-DAG: %[[EIGHT:.*]] = cleave.constant {{.*}}dense<8.000000e+00> : tensor<6xf32>
// CHECK-DAG: %[[THREE:.*]] = cleave.constant {{.*}}dense<3.000000e+00> : tensor<6xf32>
// CHECK: cleave.div %{{.*}}, %[[TWELVE]] {{.*}}<"_">]
// CHECK: cleave.div %{{.*}}, %[[EIGHT]] {{.*}}<"_ | sum dp">]
// CHECK: cleave.div %{{.*}}, %[[THREE]] {{.*}}cleave.phase = "backward"{{.*}}<"_ | sum dp">]

module attributes {cleave.optimizer = {name="sgd", lr=0.1:f64}} {
func.func @forward(%image: tensor<12x6xf32> {cleave.kind="input", cleave.name="image"},
   %p: tensor<6xf32> {cleave.kind="parameter", cleave.name="p", cleave.trainable=true, cleave.init=#cleave.init<"uniform", -0.1, 0.1>})
  -> (tensor<f32> {cleave.kind="loss"}, tensor<f32> {cleave.kind="weight"}) attributes {cleave.static_weight = 12 : i64} {
  %three = cleave.constant dense<3.0> : tensor<6xf32> : tensor<6xf32>
  %eight = cleave.constant dense<8.0> : tensor<6xf32> : tensor<6xf32>
  %twelve = cleave.constant dense<12.0> : tensor<6xf32> : tensor<6xf32>
  %weight = cleave.constant dense<12.0> : tensor<f32> : tensor<f32>
  %0 = cleave.reduce sum %image dims [0] : tensor<12x6xf32> -> tensor<6xf32>
  %1 = cleave.div %0, %twelve : tensor<6xf32>
  %2 = cleave.broadcast %1 dims [1] : tensor<6xf32> -> tensor<12x6xf32>
  %3 = cleave.sub %image, %2 : tensor<12x6xf32>
  %4 = cleave.mul %3, %3 : tensor<12x6xf32>
  %5 = cleave.reduce sum %4 dims [0] : tensor<12x6xf32> -> tensor<6xf32>
  %6 = cleave.div %5, %eight : tensor<6xf32>
  %7 = cleave.broadcast %6 dims [1] : tensor<6xf32> -> tensor<12x6xf32>
  %8 = cleave.div %p, %three : tensor<6xf32>
  %9 = cleave.broadcast %8 dims [1] : tensor<6xf32> -> tensor<12x6xf32>
  %10 = cleave.mul %3, %7 : tensor<12x6xf32>
  %11 = cleave.mul %10, %9 : tensor<12x6xf32>
  %12 = cleave.reduce sum %11 dims [0, 1] : tensor<12x6xf32> -> tensor<f32>
  return %12, %weight : tensor<f32>, tensor<f32>
}
}
