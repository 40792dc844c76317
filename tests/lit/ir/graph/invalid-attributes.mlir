// One case per numbered constraint of the dialect's attributes on ops and functions, and each attribute where it may not be.
// RUN: cleave-opt %s -verify-diagnostics -split-input-file

// expected-error @below {{C1: "cleave.label" is no attribute of its dialect}}
func.func @f(%x: tensor<2xf32> {cleave.label = "w"}) {
  return
}
// -----
func.func @f(%x: tensor<2xf32>) {
  // expected-error @below {{C1: "cleave.pth" is no attribute of its dialect}}
  %0 = cleave.exp %x {cleave.pth = "w"} : tensor<2xf32>
  return
}
// -----
// expected-error @below {{C2: "cleave.kind" is on a function}}
func.func @f() attributes {cleave.kind = "input"} {
  return
}
// -----
func.func @f(%x: tensor<2xf32>) {
  // expected-error @below {{C2: "cleave.name" is on an op}}
  %0 = cleave.exp %x {cleave.name = "w"} : tensor<2xf32>
  return
}
// -----
// expected-error @below {{C2: "cleave.init" is on a result}}
func.func @f(%x: tensor<2xf32>) -> (tensor<2xf32> {cleave.init = #cleave.init<"uniform", 0.0, 1.0>}) {
  return %x : tensor<2xf32>
}
// -----
// expected-error @below {{C2: "cleave.indices" is on a result}}
func.func @f(%x: tensor<2xi32>) -> (tensor<2xi32> {cleave.indices = []}) {
  return %x : tensor<2xi32>
}
// -----
// expected-error @below {{C3: "cleave.indices" has another type}}
func.func @f(%x: tensor<2xi32> {cleave.indices = 3 : i64}) {
  return
}
// -----
// expected-error @below {{C6: cleave.indices has the entry "embedding"}}
func.func @f(%x: tensor<2xi32> {cleave.indices = ["embedding"]}) {
  return
}
// -----
func.func @f(%x: tensor<2xf32>) {
  // expected-error @below {{C7: cleave.stage is 9223372036854775807, not in [0, 2^20)}}
  %0 = cleave.exp %x {cleave.stage = 9223372036854775807 : i64} : tensor<2xf32>
  return
}
// -----
func.func @f(%x: tensor<2xf32>) {
  // expected-error @below {{C8: cleave.role is "gradient", which is no role}}
  %0 = cleave.exp %x {cleave.role = "gradient"} : tensor<2xf32>
  return
}
// -----
// expected-error @below {{C2: "cleave.trainable" is on a function}}
func.func @f() attributes {cleave.trainable = true} {
  return
}
// -----
// expected-error @below {{C2: "cleave.lr_scale" is on a result}}
func.func @f(%x: tensor<2xf32>) -> (tensor<2xf32> {cleave.lr_scale = 0.5}) {
  return %x : tensor<2xf32>
}
// -----
// expected-error @below {{C2: "cleave.weight_decay" is on a function}}
func.func @f() attributes {cleave.weight_decay = 0.5} {
  return
}
// -----
// expected-error @below {{C2: "cleave.parameter" is on a result}}
func.func @f(%x: tensor<2xf32>) -> (tensor<2xf32> {cleave.parameter = "w"}) {
  return %x : tensor<2xf32>
}
// -----
// expected-error @below {{C2: "cleave.path" is on an argument}}
func.func @f(%x: tensor<2xf32> {cleave.path = "w"}) {
  return
}
// -----
// expected-error @below {{C2: "cleave.stage" is on a function}}
func.func @f() attributes {cleave.stage = 1 : i64} {
  return
}
// -----
// expected-error @below {{C2: "cleave.phase" is on an argument}}
func.func @f(%x: tensor<2xf32> {cleave.phase = "backward"}) {
  return
}
// -----
// expected-error @below {{C2: "cleave.per_microbatch" is on an argument}}
func.func @f(%x: tensor<2xf32> {cleave.per_microbatch}) {
  return
}
// -----
// expected-error @below {{C2: "cleave.activation" is on an argument}}
func.func @f(%x: tensor<2xf32> {cleave.activation}) {
  return
}
// -----
// expected-error @below {{C2: "cleave.single" is on a function}}
func.func @f() attributes {cleave.single} {
  return
}
// -----
func.func @f(%x: tensor<2xf32>) {
  // expected-error @below {{C2: "cleave.static_weight" is on an op}}
  %0 = cleave.exp %x {cleave.static_weight = 4 : i64} : tensor<2xf32>
  return
}
// -----
// expected-error @below {{C2: "cleave.static_count" is on a module}}
module attributes {cleave.static_count = 4 : i64} {}
// -----
// expected-error @below {{C2: "cleave.optimizer" is on a function}}
func.func @f() attributes {cleave.optimizer = {}} {
  return
}
// -----
// expected-error @below {{C2: "cleave.loss_scale" is on a function}}
func.func @f() attributes {cleave.loss_scale = {}} {
  return
}
// -----
// expected-error @below {{C2: "cleave.reduce_dtype" is on a function}}
func.func @f() attributes {cleave.reduce_dtype = bf16} {
  return
}
// -----
// expected-error @below {{C2: "cleave.epilogues" is on a function}}
func.func @f() attributes {cleave.epilogues} {
  return
}
// -----
// expected-error @below {{C3: "cleave.name" has another type: 1 : i64}}
func.func @f(%x: tensor<2xf32> {cleave.name = 1 : i64}) {
  return
}
// -----
// expected-error @below {{C3: "cleave.kind" has another type: unit}}
func.func @f(%x: tensor<2xf32>) -> (tensor<2xf32> {cleave.kind}) {
  return %x : tensor<2xf32>
}
// -----
// expected-error @below {{C3: "cleave.init" has another type: 1.0}}
func.func @f(%x: tensor<2xf32> {cleave.init = 1.0}) {
  return
}
// -----
// expected-error @below {{C3: "cleave.trainable" has another type: 1 : i64}}
func.func @f(%x: tensor<2xf32> {cleave.trainable = 1 : i64}) {
  return
}
// -----
// expected-error @below {{C3: "cleave.lr_scale" has another type}}
func.func @f(%x: tensor<2xf32> {cleave.lr_scale = 0.5 : f32}) {
  return
}
// -----
func.func @f(%x: tensor<2xf32>) {
  // expected-error @below {{C3: "cleave.stage" has another type: 1 : i32}}
  %0 = cleave.exp %x {cleave.stage = 1 : i32} : tensor<2xf32>
  return
}
// -----
func.func @f(%x: tensor<2xf32>) {
  // expected-error @below {{C3: "cleave.single" has another type: true}}
  %0 = cleave.exp %x {cleave.single = true} : tensor<2xf32>
  return
}
// -----
// expected-error @below {{C3: "cleave.static_weight" has another type: "4"}}
func.func @f() attributes {cleave.static_weight = "4"} {
  return
}
// -----
// expected-error @below {{C3: "cleave.loss_scale" has another type: 4 : i64}}
module attributes {cleave.loss_scale = 4 : i64} {}
// -----
// expected-error @below {{C3: "cleave.reduce_dtype" has another type: "bf16"}}
module attributes {cleave.reduce_dtype = "bf16"} {}
// -----
func.func @f(%x: tensor<2xf32>) {
  // expected-error @below {{C4: cleave.phase must be "backward", found "forward"}}
  %0 = cleave.exp %x {cleave.phase = "forward"} : tensor<2xf32>
  return
}
// -----
// expected-error @below {{C5: cleave.kind is "weights", which is no kind of argument or result}}
func.func @f(%x: tensor<2xf32> {cleave.kind = "weights"}) {
  return
}
