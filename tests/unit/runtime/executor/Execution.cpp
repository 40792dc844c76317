// The executor on hand-written plans: two ranks, messages, collectives, kernels, initial values.
#include "runtime/base/Error.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/device/Philox.h"
#include "runtime/executor/Executor.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/check/Check.h"
#include "tests/unit/runtime/plan/TwoRanks.h"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <cstring>
#include <unistd.h>

using namespace cleave;
using namespace cleave::test;

TEST_CASE("executor: two ranks, messages and an all-reduce, on each device") {
  auto file = seal(twoRanks());
  INFO((checkPlan(file->plan()).empty() ? "" : checkPlan(file->plan())[0]));
  REQUIRE(checkPlan(file->plan()).empty());
  for (const char *device : {"cpu", "reference"}) {
    LocalWorld world(2);
    std::vector<std::string> errors(2);
    runRanks(world, [&](unsigned rank) {
      const auto executor = makeExecutor(file, rank, world[rank], {.device = device});
      executor->initialise();
      auto expect = [&](bool good, const std::string &what) { errors[rank] += good ? "" : what + "; "; };
      std::vector<float> v{1, 2, 3};
      if (rank == 1)
        std::memcpy(executor->persistent(1).data(), v.data(), 12);
      for (int step = 1; step <= 3; ++step) {
        auto *x = reinterpret_cast<float *>(executor->inputBuffer(step % 2));
        if (rank == 0)
          for (int i = 0; i < rows * width; ++i)
            x[32 + i] = static_cast<float>(step * i % 7); // the loss comes from the second microbatch
        executor->train(step, step % 2);
        double loss = 0;
        for (int64_t j = 0; j < hidden; ++j)
          for (int64_t k = 0; k < width; ++k) {
            double u = philoxUniform(42 ^ fnv1a64("fc.weight"), 0, static_cast<uint64_t>(k * hidden + j));
            loss += step * k % 7 * (2 * u - 1) * (static_cast<double>(j) + 1);
          }
        expect(std::abs(*executor->metric("loss") - loss) < 1e-4, "loss " + std::to_string(*executor->metric("loss")));
        expect(executor->metric("total") == 3.0f, "total");
        expect(!executor->metric("accuracy"), "a metric that is not there");
        float written;
        std::memcpy(&written, executor->persistent(5).data(), 4);
        expect(written == static_cast<float>(step), "step scalar");
      }
      expect(executor->setScalar("lr", 0.5f) && !executor->setScalar("beta", 1), "scalars");
    });
    CHECK(errors == std::vector<std::string>(2));
  }
}

namespace {

/// A world of two ranks that has no names for messages of the second microbatch.
class FewNames final : public RankEndpoint {
public:
  explicit FewNames(RankEndpoint &world) : world(world) {}
  unsigned rank() const override { return world.rank(); }
  unsigned size() const override { return world.size(); }
  Communicator &group(std::span<const uint32_t> ranks) override { return world.group(ranks); }
  void setTimeout(double seconds) override { world.setTimeout(seconds); }
  void setThreads(unsigned threads) override { world.setThreads(threads); }
  void send(const void *, size_t, unsigned, uint32_t, int32_t) override {}
  void waitSend(uint32_t, int32_t) override {}
  void waitAllSends() override {}
  void recv(void *, size_t, unsigned, uint32_t, int32_t) override {}
  void reserveSends(size_t) override {}
  void checkMessage(uint32_t tag, int32_t microbatch) const override {
    if (microbatch > 0)
      throw environmentError("no name for message " + std::to_string(tag));
  }
  void detach() override {}
  void abort(const std::string &, Status) override {}
  std::string failure() const override { return world.failure(); }
  void checkPeers() override {}
  void barrier() override {}
  void broadcast(std::vector<uint8_t> &) override {}
  std::vector<std::vector<uint8_t>> gather(std::span<const uint8_t>) override { return {}; }

private:
  RankEndpoint &world;
};

} // namespace

TEST_CASE("executor: messages that the world cannot name are refused at load") {
  auto file = seal(twoRanks());
  LocalWorld world(2);
  for (unsigned rank = 0; rank < 2; ++rank) {
    FewNames few(world[rank]);
    CHECK_THROWS_WITH(makeExecutor(file, rank, few), "no name for message 1");
  }
}

TEST_CASE("executor: initial values do not depend on the sharding") {
  auto valuesOf = [](uint32_t dp, InitKind kind) {
    PlanT plan = makePlan(dp);
    plan.seed = 7;
    // [3, 5] x 4, split in the dimension of size 5
    int tensor = addTensor(plan, "attention.qkv", TensorKind::Parameter, {15, 4});
    plan.tensors[0]->init = std::make_unique<InitT>();
    plan.tensors[0]->init->kind = kind;
    plan.tensors[0]->init->a = 1;
    plan.tensors[0]->init->b = 2;
    for (uint32_t r = 0; r < dp; ++r) {
      ProgramWriter w;
      w.slot("w", plan::DType::F32, {3 * splitPart(5, dp, r).count, 4}, Space::Persistent, tensor);
      w.shard(0, {{{3, {}}, {5, {0}}}, {{4, {}}}});
      plan.programs.push_back(w.finish());
      plan.ranks[r]->program = r;
    }
    auto file = seal(plan);
    REQUIRE(checkPlan(file->plan()).empty());
    std::vector<float> whole(60);
    LocalWorld world(dp);
    runRanks(world, [&](unsigned rank) {
      const auto executor = makeExecutor(file, rank, world[rank]);
      executor->initialise();
      auto *local = reinterpret_cast<const float *>(executor->persistent(0).data());
      Part heads = splitPart(5, dp, rank);
      for (int64_t a = 0; a < 3; ++a)
        for (int64_t h = 0; h < heads.count; ++h)
          for (int64_t c = 0; c < 4; ++c)
            whole[static_cast<size_t>((a * 5 + heads.begin + h) * 4 + c)] = local[(a * heads.count + h) * 4 + c];
    });
    return whole;
  };
  for (InitKind kind : {InitKind::Constant, InitKind::Uniform, InitKind::Normal}) {
    auto whole = valuesOf(1, kind);
    CHECK(valuesOf(2, kind) == whole);
    CHECK(valuesOf(3, kind) == whole);
    CHECK(whole[0] != 0);
    uint64_t key = 7 ^ fnv1a64("attention.qkv");
    if (kind == InitKind::Normal)
      CHECK(whole[13] == static_cast<float>(1 + 2 * philoxNormal(key, 1, 13)));
    if (kind == InitKind::Uniform)
      CHECK(whole[13] == static_cast<float>(1.0 + philoxUniform(key, 0, 13)));
  }
}

TEST_CASE("executor: kernels without code, other processors, other worlds are refused") {
  PlanT plan = makePlan(1);
  plan.kernels.push_back(std::make_unique<KernelInfoT>());
  plan.kernels[0]->symbol = "f";
  ProgramWriter w;
  uint32_t x = w.slot("x", plan::DType::F32, {4}, Space::Persistent), s = w.segment();
  KernelT kernel;
  kernel.args.push_back(x);
  kernel.extent = 4;
  w.step(s, std::move(kernel));
  w.action(s);
  plan.programs.push_back(w.finish());
  LocalWorld world(1), two(2);
  auto textOf = [](PlanT &made, RankEndpoint &of, const std::string &device = "cpu") -> std::string {
    try {
      const auto executor = makeExecutor(seal(made), 0, of, {.device = device});
      return "";
    } catch (const Error &error) {
      return error.what();
    }
  };
  CHECK(textOf(plan, world[0]).find("no code") != std::string::npos);
  CHECK(textOf(plan, two[0]).find("is for 1 rank, found 2") != std::string::npos);
  CHECK(textOf(plan, world[0], "cuda").find("is for the cpu backend, asked to run on cuda") != std::string::npos);
  plan.backend = "cuda";
  ::setenv("CLEAVE_CUDA_LIBRARIES", "/no-such-folder", 1); // hides a device that may exist
  CHECK(textOf(plan, world[0], "cuda").find("no CUDA device") != std::string::npos);
  plan.backend = "";
  plan.code = {1, 2, 3};
  plan.target = "z80";
  CHECK(textOf(plan, world[0]).find("'z80'") != std::string::npos);
  plan.target = "x86-64";
  CHECK(textOf(plan, world[0]).find("cannot be loaded") != std::string::npos);
}

TEST_CASE("executor: code from memory runs in chunks over threads") {
  // A shared object compiled here, if a compiler is available.
  std::string source = "/tmp/cleave-kernel-" + std::to_string(::getpid());
  std::string text = "void scale(void *const *a, const long *s, long b, long e)"
                     "{ const float *x = a[0]; float *y = a[1]; for (long i = b; i < e; ++i) y[i] = x[i] * s[0] + i; }";
  std::string command = "echo '" + text + "' | cc -x c -shared -fPIC -O1 -o " + source + ".so - 2>/dev/null";
  if (std::system(command.c_str()) != 0)
    return;
  std::vector<uint8_t> code;
  FILE *file = std::fopen((source + ".so").c_str(), "rb");
  for (int byte; (byte = std::fgetc(file)) != EOF;)
    code.push_back(static_cast<uint8_t>(byte));
  std::fclose(file);
  std::remove((source + ".so").c_str());
  for (int64_t count : {1, 7, 64, 1000, 100000})
    for (unsigned threads : {1u, 2u, 3u}) {
      PlanT plan = makePlan(2);
      plan.code = code;
      plan.target = "x86-64";
      plan.threads = threads;
      plan.kernels.push_back(std::make_unique<KernelInfoT>());
      plan.kernels[0]->symbol = "scale";
      plan.kernels[0]->scalars = 1;
      plan.kernels[0]->grain = 16;
      for (bool written : {false, true}) {
        auto argument = std::make_unique<KernelArgumentT>();
        argument->per_extent = 1;
        argument->written = written;
        plan.kernels[0]->arguments.push_back(std::move(argument));
      }
      ProgramWriter w;
      uint32_t x = w.slot("x", plan::DType::F32, {count}, Space::Persistent),
               y = w.slot("y", plan::DType::F32, {count}, Space::Persistent);
      uint32_t s = w.segment();
      w.fill(s, x, 2);
      KernelT kernel;
      kernel.args.push_back(x);
      kernel.args.push_back(y);
      kernel.scalars = {0};
      kernel.extent = count;
      kernel.grain = 16;
      kernel.outputs = 1;
      w.step(s, std::move(kernel));
      w.action(s);
      plan.programs.push_back(w.finish());
      plan.programs[0]->starts.push_back(std::make_unique<ShardStartT>());
      plan.programs[0]->starts[0]->size = 6;
      plan.programs[0]->starts[0]->axes = {0};
      plan.ranks[0]->scalars = {0};
      plan.ranks[1]->scalars = {3};
      plan.ranks[1]->program = 0;
      auto sealed = seal(plan);
      REQUIRE(checkPlan(sealed->plan()).empty());
      LocalWorld world(2);
      const auto executor = makeExecutor(sealed, 1, world[1], {.tuning = "off"}); // no rank 0 to share choices with
      executor->train(1, 0);
      auto *out = reinterpret_cast<const float *>(executor->persistent(1).data());
      for (int64_t i = 0; i < count; ++i)
        REQUIRE(out[i] == 6.0f + static_cast<float>(i));
    }
}
