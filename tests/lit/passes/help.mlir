// Help begins with Cleave's passes, each with its summary and its options.
// RUN: cleave-opt --help | FileCheck %s

// CHECK: Cleave's passes
// CHECK: --annotate {{.*}} Gives every value of a step its sharding
// CHECK-NEXT: --mesh=<string>
// CHECK-NEXT: --microbatches=<long>
// CHECK-NEXT: --schedule=<string>
// CHECK-NEXT: --sequence=<string>
// CHECK-NEXT: --virtual=<long>
// CHECK: --apply {{.*}} Splits a step into local programs
// CHECK: --assign-stages {{.*}} Cuts a traced model into pipeline stages
// CHECK: --build-optimizer {{.*}} Builds @update
// CHECK: --channels-last
// CHECK: --combine-reductions
// CHECK: --decompose
// CHECK-NEXT: --attention=<value>
// CHECK: --differentiate {{.*}} Reverse-mode differentiation
// CHECK: --forward-as-train
// CHECK: --fuse
// CHECK-NEXT: --gpu
// CHECK: --gather-early
// CHECK: --library-epilogues
// CHECK: --precision
// CHECK-NEXT: --half=<value>
// CHECK: --level=<long>
// CHECK: --recompute {{.*}} Copies forward ops into the backward pass
// CHECK-NEXT: --kept-scores
// CHECK-NEXT: --kind=<string>
// CHECK: --simplify
// CHECK: OVERVIEW
// CHECK-NOT: aarch64
// CHECK: --canonicalize
