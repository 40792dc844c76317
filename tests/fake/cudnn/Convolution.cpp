// The three convolutions as sums over windows.
#include "tests/fake/cudnn/OperationGraph.h"

namespace cleave::fake {

Values convolve(const Operation &op, const Values &first, const Values &second, const Values &before) {
  const Convolution &c = op.convolution;
  const bool forward = op.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
             toData = op.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
  const Tensor &x = toData ? op.output : op.inputs[0];
  const Tensor &w = forward || toData ? op.inputs[1] : op.output;
  const Tensor &y = forward ? op.output : toData ? op.inputs[0] : op.inputs[1];
  const int64_t ic = x.dims[1], ih = x.dims[2], iw = x.dims[3], oc = y.dims[1], oh = y.dims[2], ow = y.dims[3];
  const int64_t perGroup = w.dims[1], kh = w.dims[2], kw = w.dims[3], groups = ic / perGroup;
  std::vector<double> sums(static_cast<size_t>(op.output.elements()));
  for (int64_t n = 0; n < x.dims[0]; ++n)
    for (int64_t o = 0; o < oc; ++o)
      for (int64_t i = 0; i < perGroup; ++i)
        for (int64_t row = 0; row < kh; ++row)
          for (int64_t column = 0; column < kw; ++column) {
            const int64_t fromRow = c.flipped ? kh - 1 - row : row, fromColumn = c.flipped ? kw - 1 - column : column;
            const auto weight = static_cast<size_t>(((o * perGroup + i) * kh + fromRow) * kw + fromColumn);
            const int64_t channel = o / (oc / groups) * perGroup + i;
            for (int64_t a = 0; a < oh; ++a) {
              const int64_t at = a * c.stride[0] - c.padBegin[0] + row * c.dilation[0];
              if (at < 0 || at >= ih)
                continue;
              for (int64_t b = 0; b < ow; ++b) {
                const int64_t beside = b * c.stride[1] - c.padBegin[1] + column * c.dilation[1];
                if (beside < 0 || beside >= iw)
                  continue;
                const auto source = static_cast<size_t>(((n * ic + channel) * ih + at) * iw + beside);
                const auto result = static_cast<size_t>(((n * oc + o) * oh + a) * ow + b);
                if (forward)
                  sums[result] += static_cast<double>(first[source]) * second[weight];
                else if (toData)
                  sums[source] += static_cast<double>(first[result]) * second[weight];
                else
                  sums[weight] += static_cast<double>(first[source]) * second[result];
              }
            }
          }
  Values values(sums.size());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(c.alpha * sums[i] + (c.beta != 0 ? c.beta * before[i] : 0));
  return values;
}

} // namespace cleave::fake
