// Mixes the rows of a training batch in pairs.
#pragma once
#include "cleave/Trainer.h"

namespace cleave {

/// What mixing needs of each row.
struct MixedRows {
  Tensor images; ///< [b, c, h, w]
  Tensor share;  ///< [b]: the part of the row's own label; the rest is its partner's
};
/// Throws userError "mix: ..." that names the rule and the value.
MixedRows mixImages(const Mix &mix, Tensor images, Where where);
/// [b, classes] f32: the labels' parts.
Tensor mixLabels(const Mix &mix, Tensor labels, Tensor share, int64_t classes, Where where);

/// The values below which a number drawn from Beta(alpha, alpha) lies with probabilities 0, 1/n, ..., 1.
std::vector<float> betaQuantiles(double alpha, int64_t n);

} // namespace cleave
