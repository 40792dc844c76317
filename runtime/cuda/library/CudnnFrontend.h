// Frontend graphs of convolution and attention. Included only by Cudnn.cpp, because the headers below take longer to
// compile than the rest of the runtime.
#pragma once
#include "runtime/base/Error.h"
#include "runtime/cuda/library/Cudnn.h"
#include "runtime/cuda/library/CudnnShapes.h"
#include "runtime/plan/plan_generated.h"

#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace cleave::cuda {

namespace fe = cudnn_frontend;
using TensorPtr = std::shared_ptr<fe::graph::Tensor_attributes>;

/// The essential part of a message: cuDNN's traces give a reason for each engine (a missing installation is the most
/// useful one); the frontend's messages begin with the current operation.
inline std::string brief(const std::string &text) {
  size_t begin = 0;
  for (const std::string mark : {"Reason: ", "PREREQUISITE_MISSING; Reason: "})
    if (const size_t found = text.find(mark); found != std::string::npos)
      begin = found + mark.size();
  return text.substr(begin, std::min(text.find('\n', begin) - begin, size_t{300}));
}

inline void check(fe::error_t status, const std::string &what) {
  if (status.is_bad())
    throw environmentError(fmt::format("cudnn: {}: {}", what, brief(status.get_message())));
}

inline void check(cudnnStatus_t status, const std::string &what) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw environmentError(fmt::format("cudnn: {}: {} ({})", what, fe::detail::get_error_string(status),
                                       brief(fe::detail::get_last_error_string_())));
}

inline fe::DataType_t type(plan::DType dtype) {
  return dtype == plan::DType::F32    ? fe::DataType_t::FLOAT
         : dtype == plan::DType::BF16 ? fe::DataType_t::BFLOAT16
                                      : fe::DataType_t::HALF;
}

/// Scratch memory that must be initialised before the engine starts: with zeros, or `values`.
struct Preset {
  int64_t offset = 0, bytes = 0;
  std::vector<float> values; ///< empty: zeros
};

/// Gives access to protected members of the frontend's graph. Tensors with addresses from the caller are numbered 1, 2,
/// ... in the order of the addresses.
class FrontendGraph final : public fe::graph::Graph {
public:
  FrontendGraph(plan::DType dtype, const CudnnOptions &options) : io(type(dtype)) {
    set_io_data_type(io).set_intermediate_data_type(fe::DataType_t::FLOAT).set_compute_data_type(fe::DataType_t::FLOAT);
    set_sm_version(options.smVersion);
  }

  TensorPtr input(const TensorShape &shape, std::optional<fe::DataType_t> dtype = {}) {
    return tensor(fe::graph::Tensor_attributes()
                      .set_uid(++operands)
                      .set_dim(shape.sizes)
                      .set_stride(shape.strides)
                      .set_data_type(dtype.value_or(io)));
  }
  void output(const TensorPtr &tensor, const TensorShape &shape, std::optional<fe::DataType_t> dtype = {}) {
    tensor->set_output(true).set_uid(++operands).set_dim(shape.sizes).set_stride(shape.strides);
    tensor->set_data_type(dtype.value_or(io));
  }

  /// Replaces the only operation, a convolution between tensors 1, 2 and 3, by one that accumulates; the frontend
  /// always sets beta to 0.
  void addToResult(const plan::Conv &op, const ConvShapes &shapes, cudnnHandle_t handle) {
    const fe::Tensor &first = *uid_to_tensors.at(1), &second = *uid_to_tensors.at(2), &result = *uid_to_tensors.at(3);
    auto convolution = fe::ConvDescBuilder()
                           .setComputeType(fe::DataType_t::FLOAT)
                           .setMathMode(fe::ConvolutionMode_t::CROSS_CORRELATION)
                           .setSpatialDimCount(2)
                           .setSpatialStride(2, shapes.stride.data())
                           .setPrePadding(2, shapes.padBegin.data())
                           .setPostPadding(2, shapes.padEnd.data())
                           .setDilation(2, shapes.dilation.data())
                           .build();
    static constexpr fe::DescriptorType_t kinds[] = {
        fe::DescriptorType_t::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        fe::DescriptorType_t::OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
        fe::DescriptorType_t::OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR};
    fe::OperationBuilder_v8 builder(kinds[static_cast<int>(op.kind())]);
    if (op.kind() == plan::ConvKind::Forward)
      builder.setxDesc(first).setwDesc(second).setyDesc(result);
    else if (op.kind() == plan::ConvKind::BackwardData)
      builder.setdyDesc(first).setwDesc(second).setdxDesc(result);
    else
      builder.setxDesc(first).setdyDesc(second).setdwDesc(result);
    operations = {
        std::make_shared<fe::Operation_v8>(builder.setcDesc(convolution).setAlpha(1.0f).setBeta(1.0f).build())};
    check(create_cudnn_operation_graph(handle), describe(op));
  }

  std::vector<Preset> presets() const {
    std::unordered_map<int64_t, std::tuple<int64_t, int64_t, std::vector<float>>> modifications;
    int64_t end = 0;
    check(collect_tensors_in_workspace_subtree(modifications, end), "scratch tensors");
    std::vector<Preset> list;
    for (auto &[uid, entry] : modifications) {
      auto &[kind, offset, values] = entry;
      if (kind == 1) // zeros: the number of bytes is the only value
        list.push_back({offset, static_cast<int64_t>(values.at(0)), {}});
      else if (kind == 0)
        list.push_back({offset, static_cast<int64_t>(values.size() * sizeof(float)), values});
      else if (kind != 2) // 2: the engine writes it before reading it
        throw environmentError(fmt::format("cudnn: scratch tensors of an unknown kind, {}", kind));
    }
    return list;
  }
  int64_t presetBytes() const { return get_fe_workspace_size_subtree(); }

  using ICudnn::plans;
  int64_t operands = 0;

private:
  fe::DataType_t io;
};

template <typename Attributes> Attributes convAttributes(const ConvShapes &shapes) {
  Attributes attributes;
  attributes.set_pre_padding(shapes.padBegin).set_post_padding(shapes.padEnd);
  attributes.set_stride(shapes.stride).set_dilation(shapes.dilation);
  return attributes;
}

inline void buildConvolution(FrontendGraph &graph, const plan::Conv &op, const ConvShapes &shapes) {
  if (op.kind() == plan::ConvKind::Forward) {
    TensorPtr src = graph.input(shapes.src), weights = graph.input(shapes.weights);
    TensorPtr result = graph.conv_fprop(src, weights, convAttributes<fe::graph::Conv_fprop_attributes>(shapes));
    if (op.bias() >= 0) {
      result->set_dim(shapes.dst.sizes).set_stride(shapes.dst.strides);
      result = graph.pointwise(result, graph.input(shapes.bias),
                               fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD));
    }
    // Only after a bias: without one, only engines that are compiled at run time support it.
    if (op.epilogue() == plan::Epilogue::Relu) {
      result->set_dim(shapes.dst.sizes).set_stride(shapes.dst.strides);
      result = graph.pointwise(result, fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::RELU_FWD));
    }
    graph.output(result, shapes.dst);
  } else if (op.kind() == plan::ConvKind::BackwardData) {
    TensorPtr gradient = graph.input(shapes.dst), weights = graph.input(shapes.weights);
    graph.output(graph.conv_dgrad(gradient, weights, convAttributes<fe::graph::Conv_dgrad_attributes>(shapes)),
                 shapes.src);
  } else {
    TensorPtr src = graph.input(shapes.src), gradient = graph.input(shapes.dst);
    graph.output(graph.conv_wgrad(gradient, src, convAttributes<fe::graph::Conv_wgrad_attributes>(shapes)),
                 shapes.weights);
  }
}

inline TensorShape shape(const plan::Attention &op, const plan::View *view, int64_t rows) {
  return {{op.batch(), op.heads(), rows, op.width()}, {view->strides()->begin(), view->strides()->end()}};
}

/// With equal numbers of rows and keys both alignments are the same; more engines support the first.
inline fe::DiagonalAlignment_t diagonal(const plan::Attention &op) {
  return op.rows() == op.keys() ? fe::DiagonalAlignment_t::TOP_LEFT : fe::DiagonalAlignment_t::BOTTOM_RIGHT;
}

inline void buildAttention(FrontendGraph &graph, const plan::Attention &op, const CudnnOptions &options) {
  const TensorShape stats{{op.batch(), op.heads(), op.rows(), 1}, {op.heads() * op.rows(), op.rows(), 1, 1}};
  const auto scale = static_cast<float>(op.scale());
  TensorPtr q = graph.input(shape(op, op.q(), op.rows())), k = graph.input(shape(op, op.k(), op.keys())),
            v = graph.input(shape(op, op.v(), op.keys()));
  if (op.kind() == plan::AttentionKind::Forward) {
    auto attributes = fe::graph::SDPA_attributes().set_generate_stats(op.lse() >= 0).set_attn_scale(scale);
    attributes.set_name("attention").set_implementation(fe::AttentionImplementation_t::COMPOSITE);
    if (op.causal())
      attributes.set_diagonal_alignment(diagonal(op)).set_diagonal_band_right_bound(0);
    auto [out, lse] = graph.sdpa(q, k, v, attributes);
    graph.output(out, shape(op, op.out(), op.rows()));
    if (op.lse() >= 0)
      graph.output(lse, stats, fe::DataType_t::FLOAT);
    return;
  }
  TensorPtr out = graph.input(shape(op, op.out(), op.rows())), dout = graph.input(shape(op, op.dout(), op.rows())),
            lse = graph.input(stats, fe::DataType_t::FLOAT);
  auto attributes = fe::graph::SDPA_backward_attributes().set_name("attention").set_attn_scale(scale);
  attributes.set_deterministic_algorithm(options.deterministic);
  if (op.causal())
    attributes.set_diagonal_alignment(diagonal(op)).set_diagonal_band_right_bound(0);
  auto [dq, dk, dv] = graph.sdpa_backward(q, k, v, out, dout, lse, attributes);
  graph.output(dq, shape(op, op.dq(), op.rows()));
  graph.output(dk, shape(op, op.dk(), op.keys()));
  graph.output(dv, shape(op, op.dv(), op.keys()));
}

} // namespace cleave::cuda
