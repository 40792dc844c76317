// Ranks that are processes decode pictures of their own, and skip those that are damaged. A sample is the same picture
// and label on all of them only if they skip the same.
#pragma once
#include "runtime/comm/Communicator.h"
#include "runtime/data/PictureSource.h"

namespace cleave {

/// Collective over all ranks. The training pictures that any rank has skipped so far; only rank 0 gets their number. On
/// rank 0, throws environmentError that names the first picture that one rank has skipped and another one has used,
/// with both ranks; the other ranks are notified as of any failure.
int64_t agreeOnSkipped(RankEndpoint &world, const PictureSource &pictures);

} // namespace cleave
