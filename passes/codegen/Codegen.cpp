// The kernel builder: compiles fusions into one shared object.
#include "passes/codegen/Codegen.h"
#include "passes/codegen/CodeCache.h"
#include "passes/codegen/Object.h"
#include "passes/codegen/gpu/GpuEmit.h"
#include "passes/codegen/gpu/Ptx.h"
#include "passes/codegen/nest/FromFusion.h"
#include "passes/codegen/nest/Signature.h"
#include "runtime/base/CacheFile.h"
#include "runtime/base/Error.h"
#include "runtime/base/Sha256.h"
#include "runtime/base/Thread.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include "llvm/Support/ErrorHandling.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <thread>

namespace cleave::passes {

Target hostTarget() {
  for (const Target target : {Target::X86_64_v4, Target::X86_64_v3})
    if (target.runsHere())
      return target;
  throw environmentError("code generation: this processor has no AVX2 and FMA (target x86-64-v3)");
}

int lanesOf(Target target) { return target.gpu() ? 1 : target == Target::X86_64_v4 ? 16 : 8; }

struct KernelBuilder::Impl {
  explicit Impl(Target target) : target(target) {}
  const Target target;
  std::map<std::string, unsigned> bySource;
  std::unordered_map<kernel::Signature, KernelCall, kernel::SignatureHash> calls; // one per distinct fusion added
  kernel::OpKinds kinds;
  std::vector<std::shared_ptr<const kernel::LoopNest>> nests; // one per entry of `infos`
  std::vector<Info> infos;
  std::string ptx;
  std::vector<uint8_t> linkGpu();
};

KernelBuilder::KernelBuilder(Target target) : impl(std::make_unique<Impl>(target)) {
  assert((target.gpu() || target == Target::X86_64_v3 || target == Target::X86_64_v4) && "a target that has code");
}

KernelBuilder::~KernelBuilder() = default;

const std::vector<KernelBuilder::Info> &KernelBuilder::kernels() const { return impl->infos; }
const std::string &KernelBuilder::ptx() const { return impl->ptx; }

namespace {

/// "reduce max, broadcast, sub, exp": the distinct ops of the body, in order.
/// The names of the fused ops, each once.
std::vector<std::string> opNames(const kernel::KernelGraph &graph) {
  std::vector<std::string> names;
  for (const kernel::Node &n : graph.nodes) {
    std::string name = kernel::nodeName(n.kind);
    if (n.kind == kernel::NodeKind::Input || n.kind == kernel::NodeKind::Constant)
      continue;
    if (std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  }
  return names;
}

kernel::Signature signatureOfFusion(mlir::Operation *fusion, kernel::OpKinds &kinds) {
  mlir::Block &body = fusion->getRegion(0).front();
  const llvm::SmallVector<mlir::Value> inputs(body.getArguments().begin(), body.getArguments().end()),
      outputs(body.getTerminator()->getOperands());
  llvm::SmallVector<mlir::Operation *> ops;
  for (mlir::Operation &op : body.without_terminator())
    ops.push_back(&op);
  llvm::SmallVector<bool> scalar;
  for (mlir::Value operand : fusion->getOperands())
    scalar.push_back(kernel::isShardOffset(operand));
  return kernel::signatureOf(inputs, ops, outputs, scalar, [&](mlir::Operation *op) { return kinds.of(op); });
}

std::span<const uint8_t> bytesOf(const auto &values) {
  return {reinterpret_cast<const uint8_t *>(values.data()), values.size() * sizeof values[0]};
}

/// Records in `info` which elements the loop nest accesses.
void declare(const kernel::LoopNest &nest, KernelBuilder::Info &info) {
  const std::vector<kernel::LoopNest::Reach> reaches = nest.reaches();
  for (size_t b = 0; b < reaches.size(); ++b)
    info.arguments.push_back(
        {planned(nest.buffers[b]), reaches[b].base, reaches[b].perExtent, b >= static_cast<size_t>(nest.inputs)});
  info.scalars = static_cast<unsigned>(nest.scalarInputs.size());
  info.extent = nest.anyExtent() ? -1 : nest.extent;
  info.grain = nest.grain;
}

} // namespace

KernelCall KernelBuilder::add(mlir::Operation *fusion) {
  auto [known, fresh] = impl->calls.try_emplace(signatureOfFusion(fusion, impl->kinds));
  if (fresh)
    known->second = plan(fusion);
  return known->second;
}

KernelCall KernelBuilder::plan(mlir::Operation *fusion) {
  kernel::KernelGraph graph = kernel::graphOfFusion(fusion);
  std::string why;
  std::optional<kernel::LoopNest> nest = kernel::loopNestOf(graph, &why, lanesOf(impl->target));
  if (!nest)
    llvm::report_fatal_error(llvm::Twine("a fusion is not one kernel: ") + why);
  KernelCall call;
  call.extent = nest->extent;
  call.grain = nest->grain;
  const std::optional<kernel::Launch> launch =
      impl->target.gpu() ? std::optional(kernel::launchOf(*nest)) : std::nullopt;
  call.blocks = launch ? launch->blocks() : 0;
  for (int s : nest->scalarInputs)
    call.scalarOperands.push_back(static_cast<unsigned>(s));
  std::vector<unsigned> operandOf; // input buffer -> operand
  for (unsigned i = 0; i < fusion->getNumOperands(); ++i)
    if (!graph.nodes[i].scalar)
      operandOf.push_back(i);
  for (auto [result, buffer] : nest->mayAlias())
    call.mayAlias.push_back({static_cast<unsigned>(result), operandOf[static_cast<size_t>(buffer)]});
  for (size_t b = 0; b < nest->offsets.size(); ++b)
    call.offsets.push_back(nest->offsets[b] * static_cast<int64_t>(dtypeSize(nest->buffers[b])));

  static const char *const shapes[] = {"map", "rows", "columns"};
  auto [it, added] = impl->bySource.emplace(nest->key(), static_cast<unsigned>(impl->infos.size()));
  if (added) {
    Info info;
    info.symbol = fmt::format("cleave_{}_{}", shapes[static_cast<int>(nest->shape)], // the same in every plan
                              toHex(sha256(bytesOf(it->first))).substr(0, 16));
    info.source = nest->str();
    const std::vector<std::string> names = opNames(graph);
    info.ops = fmt::format("{}", fmt::join(names, " "));
    info.fused = names.size();
    info.threads = launch ? launch->threads : 0;
    declare(*nest, info);
    impl->infos.push_back(std::move(info));
    impl->nests.push_back(std::make_shared<const kernel::LoopNest>(std::move(*nest)));
  }
  call.kernel = it->second;
  return call;
}

unsigned KernelBuilder::batched(unsigned kernel) {
  assert(impl->target.gpu() && !impl->infos[kernel].batch && "a GPU's kernel in its usual form");
  auto [it, added] =
      impl->bySource.emplace(fmt::format("batch of {}", kernel), static_cast<unsigned>(impl->infos.size()));
  if (added) {
    Info info = impl->infos[kernel];
    info.symbol += "_batch";
    info.batch = true;
    impl->infos.push_back(std::move(info));
    impl->nests.push_back(impl->nests[kernel]);
  }
  return it->second;
}

void KernelBuilder::keep(const std::vector<bool> &used) {
  assert(used.size() == impl->infos.size() && "an entry for each kernel");
  std::vector<Info> infos;
  std::vector<std::shared_ptr<const kernel::LoopNest>> nests;
  for (size_t k = 0; k < used.size(); ++k)
    if (used[k]) {
      infos.push_back(std::move(impl->infos[k]));
      nests.push_back(std::move(impl->nests[k]));
    }
  impl->infos = std::move(infos);
  impl->nests = std::move(nests);
  impl->bySource.clear();
  impl->calls.clear();
}

namespace {

/// An object of the shared object: a kernel's code, or assembly if there is no nest.
struct Part {
  std::string text; ///< by which the code is found
  kernel::NamedLoopNest code;
  CodeCache::Key key;
  std::vector<char> object;
};

CodeCache::Key cacheKey(const Part &part, Target target) {
  Sha256 hash;
  for (const std::string &text : {part.text, part.code.symbol, target.text(), kernel::codeIdentity()})
    hash.update({reinterpret_cast<const uint8_t *>(text.c_str()), text.size() + 1});
  if (part.code.nest)
    for (const std::vector<double> &table : part.code.nest->tables) // the text abbreviates them
      hash.update(bytesOf(table));
  return hash.finish();
}

/// The objects for all kernels. Kernels that are equal up to their sizes share code, and one more object tells it their
/// sizes.
std::vector<Part> partsOf(const std::vector<KernelBuilder::Info> &infos,
                          const std::vector<std::shared_ptr<const kernel::LoopNest>> &nests) {
  std::vector<Part> parts;
  std::vector<kernel::SizedKernel> sized;
  std::set<std::string> known;
  for (size_t k = 0; k < nests.size(); ++k) {
    kernel::Sizes sizes(*nests[k]);
    if (sizes.empty()) {
      parts.push_back({nests[k]->key(), {infos[k].symbol, nests[k].get()}, {}, {}});
      continue;
    }
    std::string text = nests[k]->str(sizes);
    std::string symbol = "cleave_sized_" + toHex(sha256(bytesOf(text))).substr(0, 16);
    sized.push_back({infos[k].symbol, symbol, sizes});
    if (known.insert(symbol).second)
      parts.push_back({std::move(text), {std::move(symbol), nests[k].get(), false, false, std::move(sizes)}, {}, {}});
  }
  if (!sized.empty())
    parts.push_back({kernel::assemblyOf(sized), {"", nullptr}, {}, {}});
  return parts;
}

} // namespace

std::vector<uint8_t> KernelBuilder::Impl::linkGpu() {
  std::vector<kernel::NamedLoopNest> kernels;
  for (size_t k = 0; k < nests.size(); ++k)
    kernels.push_back({infos[k].symbol, nests[k].get(), target == Target::Emulated, infos[k].batch, {}});
  if (target == Target::Emulated)
    return kernel::linkShared({kernel::ObjectCompiler(Target::X86_64_v3).compile(kernels)});
  ptx = kernel::ptxOf(kernels, target);
  kernel::Cubin cubin = kernel::assemble(ptx, target);
  for (const kernel::KernelResources &found : cubin.kernels)
    for (Info &info : infos)
      if (info.symbol == found.symbol)
        info.registers = found.registers, info.sharedBytes = found.sharedBytes, info.spillBytes = found.spillBytes;
  return std::move(cubin.bytes);
}

std::vector<uint8_t> KernelBuilder::link() {
  if (impl->nests.empty())
    return {};
  if (impl->target.gpu())
    return impl->linkGpu();
  // A kernel is compiled alone, so that its code, and the bytes of a plan, do not depend on what the cache has.
  const CodeCache cache(cacheFile("code"));
  std::vector<Part> parts = partsOf(impl->infos, impl->nests);
  std::vector<Part *> missing;
  for (Part &part : parts) {
    part.key = cacheKey(part, impl->target);
    if (auto known = cache.find(part.key))
      part.object = std::move(*known);
    else
      missing.push_back(&part);
  }
  // The longest first, so that all threads end at about the same time.
  std::ranges::stable_sort(missing, std::greater(), [](const Part *part) { return part->text.size(); });
  std::vector<std::exception_ptr> errors(missing.size());
  std::atomic<size_t> next{0};
  auto work = [&] {
    std::optional<kernel::ObjectCompiler> compiler;
    for (size_t i; (i = next++) < missing.size();) {
      try {
        if (!compiler)
          compiler.emplace(impl->target);
        Part &part = *missing[i];
        part.object = part.code.nest ? compiler->compile({part.code}) : compiler->assemble(part.text);
        cache.put(part.key, part.object);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  size_t threads = std::min<size_t>({missing.size(), 8, std::max(1u, std::thread::hardware_concurrency())});
  std::vector<std::thread> pool;
  try {
    for (size_t t = 1; t < threads; ++t)
      pool.push_back(startThread("code generation", work));
  } catch (const Error &) { // fewer threads do the same
  }
  work();
  for (std::thread &t : pool)
    t.join();
  for (const std::exception_ptr &e : errors)
    if (e)
      std::rethrow_exception(e);
  std::vector<std::vector<char>> objects;
  for (Part &part : parts)
    objects.push_back(std::move(part.object));
  return kernel::linkShared(objects);
}

} // namespace cleave::passes
