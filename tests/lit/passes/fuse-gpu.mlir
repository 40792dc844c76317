// Reductions to few results are split so that all thread blocks of a GPU, or all threads of a CPU, have work; half types are summed in f32.
// RUN: cleave-opt %s --fuse=gpu=true | FileCheck %s --check-prefix=GPU
// RUN: cleave-opt %s --fuse | FileCheck %s --check-prefix=CPU

// GPU-LABEL: func.func @bias(
// GPU: cleave.reshape {{.*}} -> tensor<128x64x768xbf16>
// GPU: cleave.reduce sum {{.*}} dims [1] : tensor<128x64x768xf32> -> tensor<128x768xf32>
// GPU: cleave.reduce sum {{.*}} dims [0] : tensor<128x768xf32> -> tensor<768xf32>
// GPU: cleave.cast {{.*}} : tensor<768xf32> -> tensor<768xbf16>
// CPU-LABEL: func.func @bias(
// CPU: cleave.reduce sum {{.*}} dims [1] : tensor<32x256x768xf32> -> tensor<32x768xf32>
// CPU: cleave.reduce sum {{.*}} dims [0] : tensor<32x768xf32> -> tensor<768xf32>
func.func @bias(%g: tensor<8192x768xbf16>) -> tensor<768xbf16> {
  %0 = cleave.reduce sum %g dims [0] : tensor<8192x768xbf16> -> tensor<768xbf16>
  return %0 : tensor<768xbf16>
}

// Enough rows for every multiprocessor: one kernel.
// GPU-LABEL: func.func @rows(
// GPU: cleave.reduce sum {{.*}} dims [1] : tensor<8192x768xf32> -> tensor<8192xf32>
// GPU-NOT: cleave.reduce
func.func @rows(%x: tensor<8192x768xf32>) -> tensor<8192xf32> {
  %0 = cleave.reduce sum %x dims [1] : tensor<8192x768xf32> -> tensor<8192xf32>
  return %0 : tensor<8192xf32>
}

// The squared norm of a gradient: elements that are adjacent in memory stay together.
// GPU-LABEL: func.func @norm(
// GPU: cleave.reduce sum {{.*}} dims [1] : tensor<384x6144xf32> -> tensor<384xf32>
// GPU: cleave.reduce sum {{.*}} dims [0] : tensor<384xf32> -> tensor<f32>
func.func @norm(%g: tensor<768x3072xf32>) -> tensor<f32> {
  %0 = cleave.mul %g, %g : tensor<768x3072xf32>
  %1 = cleave.reduce sum %0 dims [0, 1] : tensor<768x3072xf32> -> tensor<f32>
  return %1 : tensor<f32>
}

// Statistics of 64 channels: eight blocks per channel.
// GPU-LABEL: func.func @channels(
// GPU: cleave.reduce sum {{.*}} dims [1, 3, 4] : tensor<8x32x64x28x28xf32> -> tensor<8x64xf32>
func.func @channels(%x: tensor<256x64x28x28xf32>) -> tensor<64xf32> {
  %0 = cleave.reduce sum %x dims [0, 2, 3] : tensor<256x64x28x28xf32> -> tensor<64xf32>
  return %0 : tensor<64xf32>
}

// Channels last: samples, rows and columns of images are cut as one merged dimension; the cut divides one of the three.
// GPU-LABEL: func.func @last(
// GPU: cleave.reshape {{.*}} -> tensor<1400x56x16xf32>
// GPU: cleave.reduce sum {{.*}} dims [0] : tensor<1400x16xf32> -> tensor<16xf32>
func.func @last(%x: tensor<100x28x28x16xf32>) -> tensor<16xf32> {
  %0 = cleave.reduce sum %x dims [0, 1, 2] : tensor<100x28x28x16xf32> -> tensor<16xf32>
  return %0 : tensor<16xf32>
}

// Every reader casts to a wider type itself, so that a masked gradient has two bytes per element in memory, not four.
// GPU-LABEL: func.func @masked(
// GPU: cleave.fusion{{.*}} -> (tensor<262144x64xbf16>, tensor<{{.*}}x64xf32>)
func.func @masked(%y: tensor<262144x64xbf16>, %g: tensor<262144x64xbf16>) -> tensor<262144x64xf32> {
  %zero = cleave.constant dense<0.0> : tensor<262144x64xbf16> : tensor<262144x64xbf16>
  %0 = cleave.compare gt %y, %zero : tensor<262144x64xbf16> -> tensor<262144x64xi1>
  %1 = cleave.select %0, %g, %zero : tensor<262144x64xi1>, tensor<262144x64xbf16>
  %2 = cleave.cast %1 : tensor<262144x64xbf16> -> tensor<262144x64xf32>
  %3 = cleave.reduce sum %2 dims [0] : tensor<262144x64xf32> -> tensor<64xf32>
  %4 = cleave.broadcast %3 dims [1] : tensor<64xf32> -> tensor<262144x64xf32>
  %5 = cleave.sub %2, %4 : tensor<262144x64xf32>
  return %5 : tensor<262144x64xf32>
}

// Mean and variance of columns in one pass: the squares are of differences from one element of the column.
// GPU-LABEL: func.func @variance(
// GPU: cleave.fusion(%arg0) : (tensor<256x56x56x64xbf16>) -> (tensor<1792x64xf32>, tensor<1792x64xf32>)
// GPU: cleave.fusion({{.*}}) : (tensor<1792x64xf32>, tensor<1792x64xf32>, tensor<256x56x56x64xbf16>) -> (tensor<64xf32>, tensor<64xf32>)
// GPU-NOT: cleave.fusion
// Rows that stay in registers are read only once in any case.
// GPU-LABEL: func.func @rowVariance(
// GPU-NOT: cleave.slice
// GPU: return
func.func @variance(%x: tensor<256x56x56x64xbf16>) -> (tensor<64xf32>, tensor<64xf32>) {
  %n = cleave.constant dense<1.245615e-6> : tensor<64xf32> : tensor<64xf32>
  %0 = cleave.cast %x : tensor<256x56x56x64xbf16> -> tensor<256x56x56x64xf32>
  %1 = cleave.reduce sum %0 dims [0, 1, 2] : tensor<256x56x56x64xf32> -> tensor<64xf32>
  %2 = cleave.mul %1, %n : tensor<64xf32>
  %3 = cleave.broadcast %2 dims [3] : tensor<64xf32> -> tensor<256x56x56x64xf32>
  %4 = cleave.sub %0, %3 : tensor<256x56x56x64xf32>
  %5 = cleave.mul %4, %4 : tensor<256x56x56x64xf32>
  %6 = cleave.reduce sum %5 dims [0, 1, 2] : tensor<256x56x56x64xf32> -> tensor<64xf32>
  %7 = cleave.mul %6, %n : tensor<64xf32>
  return %2, %7 : tensor<64xf32>, tensor<64xf32>
}

func.func @rowVariance(%x: tensor<8192x768xf32>) -> tensor<8192xf32> {
  %n = cleave.constant dense<1.302083e-3> : tensor<8192xf32> : tensor<8192xf32>
  %1 = cleave.reduce sum %x dims [1] : tensor<8192x768xf32> -> tensor<8192xf32>
  %2 = cleave.mul %1, %n : tensor<8192xf32>
  %3 = cleave.broadcast %2 dims [0] : tensor<8192xf32> -> tensor<8192x768xf32>
  %4 = cleave.sub %x, %3 : tensor<8192x768xf32>
  %5 = cleave.mul %4, %4 : tensor<8192x768xf32>
  %6 = cleave.reduce sum %5 dims [1] : tensor<8192x768xf32> -> tensor<8192xf32>
  return %6 : tensor<8192xf32>
}

// A product that is summed over rows and over columns is computed twice: its factors have no more bytes than the product.
// GPU-LABEL: func.func @rowsAndColumns(
// GPU: cleave.fusion(%arg0, %arg1) : (tensor<16384x768xbf16>, tensor<16384x768xbf16>) -> tensor<16384x768xbf16>
// GPU: cleave.fusion(%arg0, %arg1) : (tensor<16384x768xbf16>, tensor<16384x768xbf16>) -> tensor<{{.*}}x768xf32>
func.func @rowsAndColumns(%x: tensor<16384x768xbf16>, %g: tensor<16384x768xbf16>) -> (tensor<16384x768xbf16>, tensor<768xf32>) {
  %0 = cleave.cast %x : tensor<16384x768xbf16> -> tensor<16384x768xf32>
  %1 = cleave.cast %g : tensor<16384x768xbf16> -> tensor<16384x768xf32>
  %2 = cleave.mul %0, %1 : tensor<16384x768xf32>
  %3 = cleave.reduce sum %2 dims [1] : tensor<16384x768xf32> -> tensor<16384xf32>
  %4 = cleave.broadcast %3 dims [0] : tensor<16384xf32> -> tensor<16384x768xf32>
  %5 = cleave.sub %1, %4 : tensor<16384x768xf32>
  %6 = cleave.cast %5 : tensor<16384x768xf32> -> tensor<16384x768xbf16>
  %7 = cleave.reduce sum %2 dims [0] : tensor<16384x768xf32> -> tensor<768xf32>
  return %6, %7 : tensor<16384x768xbf16>, tensor<768xf32>
}
