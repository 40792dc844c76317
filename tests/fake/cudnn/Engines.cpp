// Derived attributes: the engines of a graph, in heuristics order, and their properties.
#include "tests/fake/cudnn/Descriptors.h"
#include "tests/fake/cudnn/OperationGraph.h"

#include <algorithm>

namespace cleave::fake {

namespace {

template <typename T>
bool give(const std::vector<T> &values, int64_t requested, int64_t *count, void *out, cudnnStatus_t &status) {
  if (count)
    *count = static_cast<int64_t>(values.size());
  if (out)
    std::copy_n(values.begin(), std::min<size_t>(values.size(), static_cast<size_t>(requested)), static_cast<T *>(out));
  status = CUDNN_STATUS_SUCCESS;
  return true;
}

bool give(const std::vector<std::shared_ptr<Contents>> &values, int64_t requested, int64_t *count, void *out,
          cudnnStatus_t &status) {
  if (count)
    *count =
        static_cast<int64_t>(out ? std::min<size_t>(values.size(), static_cast<size_t>(requested)) : values.size());
  for (size_t i = 0; out && i < std::min<size_t>(values.size(), static_cast<size_t>(requested)); ++i)
    of(static_cast<cudnnBackendDescriptor_t *>(out)[i])->contents = values[i];
  status = CUDNN_STATUS_SUCCESS;
  return true;
}

template <typename T> Attribute attribute(cudnnBackendAttributeType_t type, T value) {
  const auto *bytes = reinterpret_cast<const std::byte *>(&value);
  return {type, 1, {bytes, bytes + sizeof value}, {}};
}

std::shared_ptr<Contents> config(const std::shared_ptr<Contents> &graph, int64_t index) {
  auto engine = std::make_shared<Contents>(), made = std::make_shared<Contents>();
  engine->type = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
  engine->attributes[CUDNN_ATTR_ENGINE_GLOBAL_INDEX] = attribute(CUDNN_TYPE_INT64, index);
  engine->attributes[CUDNN_ATTR_ENGINE_OPERATION_GRAPH] = {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, {}, {graph}};
  made->type = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
  made->attributes[CUDNN_ATTR_ENGINECFG_ENGINE] = {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, {}, {engine}};
  engine->finalized = made->finalized = true;
  return made;
}

std::vector<std::shared_ptr<Contents>> heuristics(const Contents &asked) {
  const auto graph = asked.descriptor(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  if (asked.value<int>(CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_FALLBACK)
    return {config(graph, 1)};
  std::vector<std::shared_ptr<Contents>> list{config(graph, 2)};
  if (graph->program->singlePrecision)
    list.push_back(config(graph, 3));
  list.push_back(config(graph, 0));
  list.push_back(config(graph, 1));
  return list;
}

} // namespace

int64_t engineIndex(const Contents &config) {
  return config.descriptor(CUDNN_ATTR_ENGINECFG_ENGINE)->value<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
}

int64_t engineWorkspace(int64_t engine) { return engine == 0 ? 4096 : engine == 2 ? 1024 : 0; }

bool derived(const Contents &contents, cudnnBackendAttributeName_t name, int64_t requested, int64_t *count, void *out,
             cudnnStatus_t &status) {
  switch (name) {
  case CUDNN_ATTR_ENGINEHEUR_RESULTS:
    return give(heuristics(contents), requested, count, out, status);
  case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
  case CUDNN_ATTR_ENGINE_KNOB_INFO:
    return give(std::vector<std::shared_ptr<Contents>>{}, requested, count, out, status);
  case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
    return give(std::vector{engineWorkspace(engineIndex(contents))}, requested, count, out, status);
  case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
    return give(
        std::vector{engineWorkspace(engineIndex(*contents.descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)))},
        requested, count, out, status);
  case CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED:
    return give(std::vector<int32_t>{0}, requested, count, out, status);
  case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
    return give(std::vector<cudnnBackendBehaviorNote_t>{}, requested, count, out, status);
  case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: {
    std::vector<cudnnBackendNumericalNote_t> notes;
    const auto index = contents.value<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    if (index == 2)
      notes.push_back(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
    if (index == 3)
      notes.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    return give(notes, requested, count, out, status);
  }
  case CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT:
    return give(std::vector<int64_t>{engineCount}, requested, count, out, status);
  default:
    return false;
  }
}

} // namespace cleave::fake
