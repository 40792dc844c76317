// Graphs: instantiation, and launches that respect the dependencies. A graph runs on as many threads as there were
// captured streams, so it has the same concurrency.
#include "tests/fake/cuda/Capture.h"

#include <algorithm>
#include <cstdio>

using namespace cleave::fake;

namespace cleave::fake {

namespace {

/// The steps of a launch, by node number.
struct Flow {
  struct Step {
    WorkPointer work;
    size_t before = 0; ///< number of steps that must run first
    std::vector<size_t> next;
  };
  std::vector<Step> steps;
  size_t lanes = 1;
};

/// A launch in progress.
struct Running {
  const Flow &flow;
  CUcontext context;
  std::vector<size_t> waitsFor, ready;
  size_t left;
  std::condition_variable changed;

  Running(const Flow &flow, CUcontext context) : flow(flow), context(context), left(flow.steps.size()) {
    for (size_t i = 0; i < flow.steps.size(); ++i) {
      waitsFor.push_back(flow.steps[i].before);
      if (flow.steps[i].before == 0)
        ready.push_back(i);
    }
  }

  void run() {
    World &w = world();
    std::unique_lock lock(w.lock);
    for (;;) {
      changed.wait(lock, [&] { return left == 0 || !ready.empty(); });
      if (ready.empty())
        return;
      const size_t pick = w.settings.shuffle ? randomNumber(ready.size()) : 0;
      const size_t step = ready[pick];
      ready.erase(ready.begin() + static_cast<ptrdiff_t>(pick));
      perform(w, lock, context, *flow.steps[step].work);
      for (size_t next : flow.steps[step].next)
        if (--waitsFor[next] == 0)
          ready.push_back(next);
      --left;
      changed.notify_all();
    }
  }
};

CUresult runFlow(const Flow &flow, CUcontext context) {
  Running running(flow, context);
  std::vector<std::thread> helpers;
  for (size_t lane = 1; lane < flow.lanes; ++lane)
    helpers.emplace_back([&] { running.run(); });
  running.run();
  for (std::thread &helper : helpers)
    helper.join();
  return CUDA_SUCCESS; // `perform` has recorded failures in the context
}

/// Reports pairs of nodes without an order between them that access the same bytes.
void findRaces(const CUgraph_st &graph) {
  const size_t n = graph.nodes.size();
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n));
  for (size_t i = 0; i < n; ++i) {
    for (const CUgraphNode_st *node : graph.nodes[i]->after) {
      before[i][node->index] = true;
      for (size_t k = 0; k < n; ++k)
        if (before[node->index][k])
          before[i][k] = true;
    }
    for (size_t j = 0; j < i; ++j)
      for (const Range &a : graph.nodes[i]->work->ranges)
        for (const Range &b : graph.nodes[j]->work->ranges)
          if (!before[i][j] && conflict(a, b))
            reportRace(std::string("graph: ") + graph.nodes[j]->work->name + " (node " + std::to_string(j) + ") and " +
                       graph.nodes[i]->work->name + " (node " + std::to_string(i) + ") touch the same bytes");
  }
}

std::shared_ptr<Flow> flowOf(const CUgraph_st &graph) {
  auto flow = std::make_shared<Flow>();
  std::set<int> lanes;
  flow->steps.resize(graph.nodes.size());
  for (const auto &node : graph.nodes) {
    flow->steps[node->index].work = node->work;
    flow->steps[node->index].before = node->after.size();
    lanes.insert(node->lane);
    for (const CUgraphNode_st *before : node->after)
      flow->steps[before->index].next.push_back(node->index);
  }
  flow->lanes = std::max<size_t>(1, lanes.size());
  return flow;
}

} // namespace
} // namespace cleave::fake

struct CUgraphExec_st {
  CUcontext context = nullptr;
  std::shared_ptr<Flow> flow;
  std::vector<Range> ranges;
  MomentPointer last; ///< launches of one executable run one after the other
};

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *result, CUgraph graph, unsigned long long flags) {
  CLEAVE_FAKE_CALL(Context);
  if (!result || flags & ~0xfULL)
    return CUDA_ERROR_INVALID_VALUE;
  *result = nullptr;
  if (!call.w.graphs.contains(graph))
    return CUDA_ERROR_INVALID_VALUE;
  if (call.w.settings.race)
    findRaces(*graph);
  auto *executable = new CUgraphExec_st;
  executable->context = call.context;
  executable->flow = flowOf(*graph);
  for (const auto &node : graph->nodes)
    executable->ranges.insert(executable->ranges.end(), node->work->ranges.begin(), node->work->ranges.end());
  call.w.executables.insert(executable);
  *result = executable;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  CLEAVE_FAKE_CALL(Started);
  if (!call.w.graphs.contains(graph) || !count)
    return CUDA_ERROR_INVALID_VALUE;
  if (nodes)
    for (size_t i = 0; i < *count; ++i)
      nodes[i] = i < graph->nodes.size() ? graph->nodes[i].get() : nullptr;
  *count = nodes ? std::min(*count, graph->nodes.size()) : graph->nodes.size();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphUpload(CUgraphExec executable, CUstream handle) {
  CLEAVE_FAKE_CALL(Context);
  const CUstream stream = streamOf(call, handle);
  if (!stream || !call.w.executables.contains(executable))
    return CUDA_ERROR_INVALID_VALUE;
  return stream->capture ? spoil(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) : CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec executable, CUstream handle) {
  CLEAVE_FAKE_CALL(Context);
  const CUstream stream = streamOf(call, handle);
  if (!stream || !call.w.executables.contains(executable))
    return CUDA_ERROR_INVALID_VALUE;
  if (stream->context != executable->context)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (executable->last && !stream->capture) {
    join(stream->clock, executable->last->clock);
    push(stream, {.wait = executable->last});
  }
  Work work{"cuGraphLaunch",
            [flow = executable->flow, context = executable->context] { return runFlow(*flow, context); },
            executable->ranges};
  const CUresult result = submit(call.w, stream, std::move(work));
  if (result == CUDA_SUCCESS && !stream->capture)
    executable->last = mark(call.w, stream);
  return result;
}

CUresult CUDAAPI cuGraphDestroy(CUgraph graph) {
  CLEAVE_FAKE_CALL(Started);
  if (!call.w.graphs.erase(graph))
    return CUDA_ERROR_INVALID_VALUE;
  call.lock.unlock(); // destructors of nodes' data may call CUDA
  delete graph;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec executable) {
  CLEAVE_FAKE_CALL(Started);
  if (!call.w.executables.erase(executable))
    return CUDA_ERROR_INVALID_VALUE;
  call.lock.unlock();
  delete executable; // a launch in progress holds references to its work
  return CUDA_SUCCESS;
}
