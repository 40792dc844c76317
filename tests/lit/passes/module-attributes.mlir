// Attributes that passes set on the module: loss scale, type of summed gradients, epilogues of libraries. Also the pass that
// turns the forward pass of a prediction into @train for `apply`.
// RUN: cleave-opt %s --precision="level=2 half=fp16 loss-scale=dynamic reduce-dtype=fp16" | FileCheck %s --check-prefix=DYNAMIC
// RUN: cleave-opt %s --precision="level=0 loss-scale=1024" | FileCheck %s --check-prefix=FIXED
// RUN: cleave-opt %s --precision="level=0 loss-scale=1024" | cleave-opt --precision="level=0 loss-scale=none" | FileCheck %s --check-prefix=NONE
// RUN: cleave-opt %s --precision="level=0" --library-epilogues | FileCheck %s --check-prefix=EPILOGUES
// RUN: cleave-opt %s --forward-as-train | FileCheck %s --check-prefix=TRAIN
// RUN: not cleave-opt %s --precision="loss-scale=huge" 2>&1 | FileCheck %s --check-prefix=HUGE
// RUN: not cleave-opt %s --precision="reduce-dtype=fp61" 2>&1 | FileCheck %s --check-prefix=WORD
// RUN: not cleave-opt %s --precision="half=fp32" 2>&1 | FileCheck %s --check-prefix=HALF
// RUN: not cleave-opt %s --forward-as-train --forward-as-train 2>&1 | FileCheck %s --check-prefix=TWICE

// DYNAMIC: module attributes {cleave.loss_scale = {dynamic = true, growth_interval = 2000 : i64, initial = 6.553600e+04 : f64}, cleave.reduce_dtype = f16}
// FIXED: module attributes {cleave.loss_scale = {dynamic = false, growth_interval = 2000 : i64, initial = 1.024000e+03 : f64}}
// NONE-NOT: cleave.loss_scale
// EPILOGUES: module attributes {cleave.epilogues}
// TRAIN: func.func @train(
// TRAIN-NOT: @forward
// HUGE: error: --loss-scale huge: must be dynamic, none, or a number from 1 to 16777216
// WORD: error: reduce-dtype fp61: must be one of fp32, bf16, fp16; did you mean fp16?
// HALF: half
// TWICE: error: forward-as-train: needs a traced model (@forward), found a differentiated model

func.func @forward(%x: tensor<4x4xf32> {cleave.kind="input", cleave.name="image"}) -> (tensor<4x4xf32> {cleave.kind="output"}) {
  %0 = cleave.relu %x {cleave.path = "act"} : tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
