// Reads an operation graph's descriptors.
#include "tests/fake/cudnn/OperationGraph.h"

#include <algorithm>

namespace cleave::fake {

namespace {

Tensor readTensor(const Contents &contents) {
  Tensor t;
  t.uid = contents.value<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  t.dims = contents.list<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  t.strides = contents.list<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  t.type = contents.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  t.isVirtual = contents.value<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  t.byValue = contents.value<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
  return t;
}

/// Attribute names of an operation's tensors: inputs and output.
struct Names {
  std::vector<int> inputs;
  int output;
};

struct ConvolutionNames {
  Names tensors;
  int descriptor, alpha, beta;
};

bool read(const Contents &op, const Names &names, Operation &result) {
  for (int name : names.inputs)
    if (const auto tensor = op.descriptor(name))
      result.inputs.push_back(readTensor(*tensor));
  const auto output = op.descriptor(names.output);
  if (output)
    result.output = readTensor(*output);
  return output != nullptr;
}

bool readConvolution(const Contents &op, const ConvolutionNames &names, Operation &result) {
  const auto c = op.descriptor(names.descriptor);
  if (!c || !read(op, names.tensors, result) || result.inputs.size() != 2 || result.output.dims.size() != 4)
    return false;
  Convolution &to = result.convolution;
  to.padBegin = c->list<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  to.padEnd = c->list<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  to.stride = c->list<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  to.dilation = c->list<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  to.flipped = c->value<int>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CONVOLUTION;
  to.alpha = op.value<float>(names.alpha, 1);
  to.beta = op.value<float>(names.beta, 0);
  return to.padBegin.size() == 2 && to.padEnd.size() == 2 && to.stride.size() == 2 && to.dilation.size() == 2;
}

bool readOperation(const Contents &op, Operation &result) {
  result.kind = op.type;
  switch (op.type) {
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    return readConvolution(op,
                           {{{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W},
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
                           result);
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    return readConvolution(
        op,
        {{{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W},
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX},
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        result);
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
    return readConvolution(
        op,
        {{{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW},
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
        result);
  case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: // ignores overridden sizes, which select a part: computes all of it
    return read(
        op, {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC}, CUDNN_ATTR_OPERATION_MATMUL_CDESC},
        result);
  case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
    return read(op, {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC}, CUDNN_ATTR_OPERATION_RESHAPE_YDESC}, result);
  case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: {
    const auto reduction = op.descriptor(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    result.mode = reduction ? reduction->value<int>(CUDNN_ATTR_REDUCTION_OPERATOR) : -1;
    return (result.mode == CUDNN_REDUCE_TENSOR_ADD || result.mode == CUDNN_REDUCE_TENSOR_MAX) &&
           read(op, {{CUDNN_ATTR_OPERATION_REDUCTION_XDESC}, CUDNN_ATTR_OPERATION_REDUCTION_YDESC}, result);
  }
  case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: {
    const auto pointwise = op.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    result.mode = pointwise ? pointwise->value<int>(CUDNN_ATTR_POINTWISE_MODE) : -1;
    result.axis = pointwise ? pointwise->value<int64_t>(CUDNN_ATTR_POINTWISE_AXIS, -1) : -1;
    return read(op,
                {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                  CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
                 CUDNN_ATTR_OPERATION_POINTWISE_YDESC},
                result);
  }
  default:
    return false;
  }
}

} // namespace

int64_t Tensor::elements() const {
  int64_t count = 1;
  for (int64_t d : dims)
    count *= d;
  return count;
}

int64_t Tensor::spanBytes() const {
  int64_t last = 0;
  for (size_t i = 0; i < dims.size(); ++i)
    last += (dims[i] - 1) * strides[i];
  return (last + 1) * static_cast<int64_t>(dataBytes(type));
}

std::shared_ptr<const Program> readProgram(const Contents &graph, std::string &why) {
  auto program = std::make_shared<Program>();
  const auto found = graph.attributes.find(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (found == graph.attributes.end()) {
    why = "the graph has no operations";
    return nullptr;
  }
  for (const auto &op : found->second.descriptors) {
    Operation operation;
    if (!readOperation(*op, operation)) {
      why = "an operation of kind " + std::to_string(op->type) + " that this fake does not know";
      return nullptr;
    }
    if (operation.inputs.size() >= 2 && operation.kind != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
      program->singlePrecision &= operation.inputs[0].type == CUDNN_DATA_FLOAT;
    program->operations.push_back(std::move(operation));
  }
  return program;
}

} // namespace cleave::fake
