// The three convolutions as sums over windows.
#include "tests/fake/cudnn/OperationGraph.h"

namespace cleave::fake {

namespace {

/// The outputs [begin, end) of one dimension whose windows read an element, rather than padding, at one place of the
/// kernel: 0 <= output * stride + shift < size.
struct Reading {
  int64_t begin, end;
  Reading(int64_t outputs, int64_t size, int64_t stride, int64_t shift)
      : begin(shift < 0 ? (-shift + stride - 1) / stride : 0),
        end(shift < size ? std::min(outputs, (size - shift + stride - 1) / stride) : 0) {}
};

} // namespace

Values convolve(const Operation &op, const Values &first, const Values &second, const Values &before) {
  const Convolution &c = op.convolution;
  const bool forward = op.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
             toData = op.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
  const Tensor &x = toData ? op.output : op.inputs[0];
  const Tensor &w = forward || toData ? op.inputs[1] : op.output;
  const Tensor &y = forward ? op.output : toData ? op.inputs[0] : op.inputs[1];
  const int64_t ic = x.dims[1], ih = x.dims[2], iw = x.dims[3], oc = y.dims[1], oh = y.dims[2], ow = y.dims[3];
  const int64_t perGroup = w.dims[1], kh = w.dims[2], kw = w.dims[3], groups = ic / perGroup, stride = c.stride[1];
  std::vector<double> sums(static_cast<size_t>(op.output.elements()));
  for (int64_t n = 0; n < x.dims[0]; ++n)
    for (int64_t o = 0; o < oc; ++o)
      for (int64_t i = 0; i < perGroup; ++i)
        for (int64_t row = 0; row < kh; ++row)
          for (int64_t column = 0; column < kw; ++column) {
            const int64_t fromRow = c.flipped ? kh - 1 - row : row, fromColumn = c.flipped ? kw - 1 - column : column;
            const auto weight = static_cast<size_t>(((o * perGroup + i) * kh + fromRow) * kw + fromColumn);
            const int64_t channel = o / (oc / groups) * perGroup + i;
            const int64_t down = row * c.dilation[0] - c.padBegin[0], right = column * c.dilation[1] - c.padBegin[1];
            const Reading rows(oh, ih, c.stride[0], down), columns(ow, iw, stride, right);
            for (int64_t a = rows.begin; a < rows.end; ++a) {
              const int64_t source = ((n * ic + channel) * ih + a * c.stride[0] + down) * iw + right;
              const int64_t result = ((n * oc + o) * oh + a) * ow;
              if (forward) {
                const double factor = second[weight];
                for (int64_t b = columns.begin; b < columns.end; ++b)
                  sums[static_cast<size_t>(result + b)] += factor * first[static_cast<size_t>(source + b * stride)];
              } else if (toData) {
                const double factor = second[weight];
                for (int64_t b = columns.begin; b < columns.end; ++b)
                  sums[static_cast<size_t>(source + b * stride)] += factor * first[static_cast<size_t>(result + b)];
              } else {
                double sum = sums[weight];
                for (int64_t b = columns.begin; b < columns.end; ++b)
                  sum += static_cast<double>(first[static_cast<size_t>(source + b * stride)]) *
                         second[static_cast<size_t>(result + b)];
                sums[weight] = sum;
              }
            }
          }
  Values values(sums.size());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(c.alpha * sums[i] + (c.beta != 0 ? c.beta * before[i] : 0));
  return values;
}

} // namespace cleave::fake
