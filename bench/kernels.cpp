// Compares generated kernels with memcpy on one thread: GB/s of required traffic (each operand once, each result once),
// and compile time. Usage: bench_kernels [seconds per kernel]
#include "ir/GraphModule.h"
#include "ir/graph/Graph.h"
#include "passes/codegen/Codegen.h"
#include "passes/decompose/Decompose.h"
#include "passes/fuse/Fuse.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace cleave;

namespace {

using Kernel = void (*)(void *const *, const int64_t *, int64_t, int64_t);
using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// CPU time of this thread, so that other processes do not count.
double threadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Seconds of one call, the best of many.
template <typename Fn> double best(double budget, Fn fn) {
  fn();
  double least = 1e9;
  for (auto start = Clock::now(); secondsSince(start) < budget;) {
    double before = threadSeconds();
    fn();
    least = std::min(least, threadSeconds() - before);
  }
  return least;
}

struct Case {
  std::string name, text;
};

std::vector<Case> cases() {
  const char *rows = "tensor<4096x768xf32>";
  std::string elementwise = fmt::format(R"(
func.func @f(%x: tensor<2048x3072xf32>, %b: tensor<3072xf32>) -> tensor<2048x3072xf32> {{
  %0 = cleave.broadcast %b dims [1] : tensor<3072xf32> -> tensor<2048x3072xf32>
  %1 = cleave.add %x, %0 : tensor<2048x3072xf32>
  %2 = cleave.gelu %1 {{tanh}} : tensor<2048x3072xf32>
  return %2 : tensor<2048x3072xf32> }})");
  std::string norm = fmt::format(R"(
func.func @f(%x: {0}, %w: tensor<768xf32>, %b: tensor<768xf32>) -> {0} {{
  %0:3 = cleave.layer_norm %x, %w, %b {{eps = 1.0e-05 : f64}} : ({0}, tensor<768xf32>, tensor<768xf32>) -> ({0}, tensor<4096xf32>, tensor<4096xf32>)
  return %0#0 : {0} }})",
                                 rows);
  std::string normGrad = fmt::format(R"(
func.func @f(%g: {0}, %x: {0}, %w: tensor<768xf32>, %m: tensor<4096xf32>, %r: tensor<4096xf32>) -> ({0}, tensor<768xf32>, tensor<768xf32>) {{
  %0:3 = cleave.layer_norm_grad %g, %x, %w, %m, %r : ({0}, {0}, tensor<768xf32>, tensor<4096xf32>, tensor<4096xf32>) -> ({0}, tensor<768xf32>, tensor<768xf32>)
  return %0#0, %0#1, %0#2 : {0}, tensor<768xf32>, tensor<768xf32> }})",
                                     rows);
  std::string softmax = R"(
func.func @f(%x: tensor<8192x1024xf32>) -> tensor<8192x1024xf32> {
  %0 = cleave.softmax %x {dim = 1 : i64} : (tensor<8192x1024xf32>) -> tensor<8192x1024xf32>
  return %0 : tensor<8192x1024xf32> })";
  std::string largest = R"(
func.func @f(%x: tensor<8192x1024xf32>) -> (tensor<8192xf32>, tensor<1024xf32>) {
  %0 = cleave.reduce max %x dims [1] : tensor<8192x1024xf32> -> tensor<8192xf32>
  %1 = cleave.reduce max %x dims [0] : tensor<8192x1024xf32> -> tensor<1024xf32>
  return %0, %1 : tensor<8192xf32>, tensor<1024xf32> })";
  std::string largestCached = R"(
func.func @f(%x: tensor<512x1024xf32>) -> tensor<512xf32> {
  %0 = cleave.reduce max %x dims [1] : tensor<512x1024xf32> -> tensor<512xf32>
  return %0 : tensor<512xf32> })";
  std::string bias = R"(
func.func @f(%x: tensor<4096x768xf32>) -> tensor<768xf32> {
  %0 = cleave.reduce sum %x dims [0] : tensor<4096x768xf32> -> tensor<768xf32>
  return %0 : tensor<768xf32> })";
  std::string batchNorm = R"(
func.func @f(%x: tensor<32x64x56x56xf32>, %w: tensor<64xf32>, %b: tensor<64xf32>) -> (tensor<32x64x56x56xf32>, tensor<64xf32>, tensor<64xf32>) {
  %0:3 = cleave.batch_norm %x, %w, %b {eps = 1.0e-05 : f64} : (tensor<32x64x56x56xf32>, tensor<64xf32>, tensor<64xf32>) -> (tensor<32x64x56x56xf32>, tensor<64xf32>, tensor<64xf32>)
  %1 = cleave.relu %0#0 : tensor<32x64x56x56xf32>
  return %1, %0#1, %0#2 : tensor<32x64x56x56xf32>, tensor<64xf32>, tensor<64xf32> })";
  std::string transpose = R"(
func.func @f(%x: tensor<2048x2048xf32>) -> tensor<2048x2048xf32> {
  %0 = cleave.transpose %x permutation [1, 0] : tensor<2048x2048xf32> -> tensor<2048x2048xf32>
  return %0 : tensor<2048x2048xf32> })";
  const char *p = "tensor<4194304xf32>";
  std::string adam = fmt::format(R"(
func.func @f(%w: {0}, %g: {0}, %m: {0}, %v: {0}, %lr: tensor<f32>) -> ({0}, {0}, {0}) {{
  %b1 = cleave.constant dense<0.9> : {0} : {0}
  %c1 = cleave.constant dense<0.1> : {0} : {0}
  %b2 = cleave.constant dense<0.999> : {0} : {0}
  %c2 = cleave.constant dense<0.001> : {0} : {0}
  %eps = cleave.constant dense<1.0e-8> : {0} : {0}
  %0 = cleave.mul %m, %b1 : {0}
  %1 = cleave.mul %g, %c1 : {0}
  %2 = cleave.add %0, %1 : {0}
  %3 = cleave.mul %v, %b2 : {0}
  %4 = cleave.mul %g, %g : {0}
  %5 = cleave.mul %4, %c2 : {0}
  %6 = cleave.add %3, %5 : {0}
  %7 = cleave.sqrt %6 : {0}
  %8 = cleave.add %7, %eps : {0}
  %9 = cleave.div %2, %8 : {0}
  %10 = cleave.broadcast %lr dims [] : tensor<f32> -> {0}
  %11 = cleave.mul %9, %10 : {0}
  %12 = cleave.sub %w, %11 : {0}
  return %12, %2, %6 : {0}, {0}, {0} }})",
                                 p);
  return {{"bias + gelu", elementwise},
          {"layer norm", norm},
          {"layer norm gradient", normGrad},
          {"softmax", softmax},
          {"largest", largest},
          {"largest, cached", largestCached},
          {"bias gradient", bias},
          {"batch norm + relu", batchNorm},
          {"transpose", transpose},
          {"adam", adam}};
}

struct Step {
  Kernel kernel;
  int64_t extent;
  std::vector<void *> args;
};

void runCase(const Case &c, double budget) {
  GraphModule module = GraphModule::parse(c.text, c.name);
  passes::decompose(module.module());
  auto function = module.module().lookupSymbol<mlir::func::FuncOp>("f");
  auto bytesOf = [](mlir::Value v) { return mlir::cast<mlir::RankedTensorType>(v.getType()).getNumElements() * 4; };
  double travels = 0;
  for (mlir::Value v : function.getArguments())
    travels += static_cast<double>(bytesOf(v));
  for (mlir::Value v : function.front().getTerminator()->getOperands())
    travels += static_cast<double>(bytesOf(v));

  double start = static_cast<double>(std::clock());
  passes::fuse(function);
  passes::KernelBuilder builder(passes::hostTarget());
  std::vector<std::pair<mlir::Operation *, passes::KernelCall>> calls;
  for (mlir::Operation &op : function.front())
    if (mlir::isa<ir::FusionOp>(op))
      calls.push_back({&op, builder.add(&op)});
  std::vector<uint8_t> code = builder.link();
  double compile = (static_cast<double>(std::clock()) - start) / CLOCKS_PER_SEC;
  int fd = memfd_create("kernels", 0);
  if (write(fd, code.data(), code.size()) != static_cast<ssize_t>(code.size()))
    std::abort();
  void *library = dlopen(("/proc/self/fd/" + std::to_string(fd)).c_str(), RTLD_NOW);

  llvm::DenseMap<mlir::Value, void *> memory;
  auto place = [&](mlir::Value v) {
    void *&p = memory[v];
    if (!p) {
      auto bytes = static_cast<size_t>(bytesOf(v));
      p = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
      for (size_t i = 0; i < bytes / 4; ++i)
        static_cast<float *>(p)[i] = static_cast<float>(i % 997) / 997.0f + 0.01f;
    }
    return p;
  };
  std::vector<Step> steps;
  for (auto &[op, call] : calls) {
    Step s{reinterpret_cast<Kernel>(dlsym(library, builder.kernels()[call.kernel].symbol.c_str())), call.extent, {}};
    for (mlir::Value v : op->getOperands()) {
      if (auto reshape = v.getDefiningOp<ir::ReshapeOp>())
        memory[v] = place(reshape.getInput());
      s.args.push_back(static_cast<char *>(place(v)) + call.offsets[s.args.size()]);
    }
    for (mlir::Value v : op->getResults())
      s.args.push_back(place(v));
    steps.push_back(s);
  }
  double time = best(budget, [&] {
    for (const Step &s : steps)
      s.kernel(s.args.data(), nullptr, 0, s.extent);
  });
  std::printf("%-22s %2zu kernels  %8.1f us  %6.2f GB/s   %5.1f ms of compiling\n", c.name.c_str(), steps.size(),
              time * 1e6, travels / time * 1e-9, compile * 1e3);
  for (auto &[value, p] : memory)
    if (!value.getDefiningOp<ir::ReshapeOp>())
      std::free(p);
  dlclose(library); // the next library may have the same name
  close(fd);
  if (std::getenv("CLEAVE_SHOW_KERNELS"))
    for (const auto &info : builder.kernels())
      std::printf("%s\n", info.source.c_str());
}

} // namespace

int main(int argc, char **argv) {
  double budget = argc > 1 ? std::atof(argv[1]) : 0.5;
  size_t bytes = size_t{24} << 20;
  void *from = std::malloc(bytes), *to = std::malloc(bytes);
  std::memset(from, 1, bytes);
  void *(*volatile copy)(void *, const void *, size_t) = std::memcpy;
  double time = best(budget, [&] { copy(to, from, bytes); });
  std::printf("%-22s             %8.1f us  %6.2f GB/s (read + written)\n", "memcpy 24 MiB", time * 1e6,
              2.0 * static_cast<double>(bytes) / time * 1e-9);
  for (const Case &c : cases())
    runCase(c, budget);
}
