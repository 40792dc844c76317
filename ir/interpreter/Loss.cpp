// Kernels of softmax and the losses.
#include "ir/graph/Graph.h"
#include "ir/interpreter/Executable.h"
#include "runtime/base/Error.h"

#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;

namespace cleave::ir {

/// log of the sum of exp over `count` elements `stride` apart.
static double logSumExp(const double *x, int64_t count, int64_t stride) {
  double largest = -std::numeric_limits<double>::infinity(), total = 0;
  for (int64_t i = 0; i < count; ++i)
    largest = std::max(largest, x[i * stride]);
  for (int64_t i = 0; i < count; ++i)
    total += std::exp(x[i * stride] - largest);
  return largest + std::log(total);
}

static Kernel softmax(Operation *op, int64_t dim, bool log) {
  return [type = emptyTensor(op->getResult(0).getType()), dim, log](const Operands &in, Environment &) {
    HostTensor out = type;
    out.values.resize(elementCount(out.shape));
    int64_t stride = stridesOf(out.shape)[dim], count = out.shape[dim], rows = out.size() / count;
    for (int64_t row = 0; row < rows; ++row) {
      int64_t start = row / stride * stride * count + row % stride;
      double lse = inside(DType::F32, logSumExp(&in[0]->values[start], count, stride));
      for (int64_t i = start; i < start + count * stride; i += stride)
        out.values[i] = log ? in[0]->values[i] - lse : std::exp(in[0]->values[i] - lse);
    }
    out.round();
    return std::vector<HostTensor>{std::move(out)};
  };
}

/// The label of a row, -1 for an ignored row. Throws a user error if the label is not a class.
static int64_t labelOf(const HostTensor &labels, int64_t row, int64_t classes) {
  auto label = static_cast<int64_t>(labels.values[row]);
  if (label >= classes)
    throw userError("cross_entropy: label " + std::to_string(label) + " in row " + std::to_string(row) +
                    ", but there are " + std::to_string(classes) + " classes");
  return std::max<int64_t>(label, -1);
}

static Kernel crossEntropy(CrossEntropyOp op) {
  return [lseType = emptyTensor(op.getLse().getType())](const Operands &in, Environment &) {
    HostTensor lse = lseType;
    int64_t classes = in[0]->shape.back();
    double loss = 0, weight = 0;
    for (int64_t row = 0; row < in[1]->size(); ++row) {
      const double *logits = &in[0]->values[row * classes];
      lse.values.push_back(logSumExp(logits, classes, 1));
      int64_t label = labelOf(*in[1], row, classes);
      if (label < 0)
        continue;
      loss += lse.values.back() - logits[label];
      weight += 1;
    }
    lse.round();
    return std::vector<HostTensor>{{{}, DType::F32, loss}, {{}, DType::F32, weight}, std::move(lse)};
  };
}

static Kernel crossEntropyGrad(CrossEntropyGradOp op) {
  return [type = emptyTensor(op.getType())](const Operands &in, Environment &) {
    HostTensor out = type;
    out.values.assign(elementCount(out.shape), 0);
    int64_t classes = in[1]->shape.back();
    for (int64_t row = 0; row < in[2]->size(); ++row) {
      int64_t label = labelOf(*in[2], row, classes);
      const double grad = label < 0 ? 0 : in[0]->values[0];
      for (int64_t i = 0; i < classes; ++i) {
        double p = inside(DType::F32, std::exp(in[1]->values[row * classes + i] - in[3]->values[row]));
        out.values[row * classes + i] = grad * (p - (i == label));
      }
    }
    out.round();
    return std::vector<HostTensor>{std::move(out)};
  };
}

static Kernel topCorrect(TopCorrectOp op) {
  return [k = static_cast<int64_t>(op.getK())](const Operands &in, Environment &) {
    int64_t classes = in[0]->shape.back();
    double correct = 0;
    for (int64_t row = 0; row < in[1]->size(); ++row) {
      const double *logits = &in[0]->values[row * classes];
      const int64_t label = labelOf(*in[1], row, classes);
      if (label < 0 || std::isnan(logits[label]))
        continue;
      int64_t before = 0;
      for (int64_t i = 0; i < classes; ++i)
        before += std::isnan(logits[i]) || logits[i] > logits[label] || (logits[i] == logits[label] && i < label);
      correct += before < k;
    }
    return std::vector<HostTensor>{{{}, DType::F32, correct}};
  };
}

Kernel lossKernel(Operation *op) {
  return llvm::TypeSwitch<Operation *, Kernel>(op)
      .Case([](SoftmaxOp op) { return softmax(op, op.getDim(), false); })
      .Case([](LogSoftmaxOp op) { return softmax(op, op.getDim(), true); })
      .Case([](CrossEntropyOp op) { return crossEntropy(op); })
      .Case([](CrossEntropyGradOp op) { return crossEntropyGrad(op); })
      .Case([](TopCorrectOp op) { return topCorrect(op); })
      .Default([](Operation *) { return Kernel(); });
}

} // namespace cleave::ir
