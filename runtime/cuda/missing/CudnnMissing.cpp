// Replaces Cudnn.cpp in builds without cuDNN headers or cudnn-frontend.
#include "runtime/cuda/library/Cudnn.h"

#include "runtime/base/Error.h"

namespace cleave::cuda {

Cudnn &Cudnn::open() {
  throw environmentError("cudnn: this build has no convolution and no attention for GPUs: cuDNN's headers or "
                         "cudnn-frontend were not found (scripts/setup --cuda brings them)");
}

} // namespace cleave::cuda
