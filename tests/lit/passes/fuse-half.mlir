// A half-type sum that is only widened, such as a bias's gradient, is computed in f32; one that is read as half is rounded.
// RUN: cleave-opt %s --fuse | FileCheck %s

// CHECK-LABEL: func.func @widened(
// CHECK: cleave.reduce sum {{.*}} dims [0] : tensor<64x48xf32> -> tensor<48xf32>
// CHECK-NOT: cleave.cast {{.*}} : tensor<48x
// CHECK: return
func.func @widened(%g: tensor<64x48xbf16>) -> tensor<48xf32> {
  %0 = cleave.reduce sum %g dims [0] : tensor<64x48xbf16> -> tensor<48xbf16>
  %1 = cleave.cast %0 : tensor<48xbf16> -> tensor<48xf32>
  return %1 : tensor<48xf32>
}

// CHECK-LABEL: func.func @read(
// CHECK: cleave.reduce sum {{.*}} dims [0] : tensor<64x48xbf16> -> tensor<48xbf16>
func.func @read(%g: tensor<64x48xbf16>) -> (tensor<48xbf16>, tensor<48xf32>) {
  %0 = cleave.reduce sum %g dims [0] : tensor<64x48xbf16> -> tensor<48xbf16>
  %1 = cleave.cast %0 : tensor<48xbf16> -> tensor<48xf32>
  return %0, %1 : tensor<48xbf16>, tensor<48xf32>
}

// If a sum takes two steps, the partial sums are f32 on CPUs, too.
// CHECK-LABEL: func.func @parts(
// CHECK: cleave.reduce sum {{.*}} -> tensor<32x48xf32>
// CHECK: cleave.reduce sum {{.*}} : tensor<32x48xf32> -> tensor<48xf32>
// CHECK: cleave.cast {{.*}} : tensor<48xf32> -> tensor<48xbf16>
func.func @parts(%g: tensor<8192x48xbf16>) -> tensor<48xbf16> {
  %0 = cleave.reduce sum %g dims [0] : tensor<8192x48xbf16> -> tensor<48xbf16>
  return %0 : tensor<48xbf16>
}
