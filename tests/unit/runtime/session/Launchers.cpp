// What launchers say of a process: the variables of each case are those that Slurm 22.05 and Open MPI 4.1 set.
#include "runtime/base/Error.h"
#include "runtime/comm/MpiWorld.h"
#include "runtime/session/Launcher.h"
#include "runtime/session/Setup.h"
#include "tests/support/LauncherVariables.h"
#include "tests/unit/runtime/session/TestPlans.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <thread>

using namespace cleave;
using Catch::Matchers::Contains;

namespace {

using Variables = test::LauncherVariables;
using Values = Variables::Values;

Values operator+(Values values, const Values &more) {
  for (const auto &[name, value] : more)
    values[name] = value;
  return values;
}

/// A task of `srun -n TASKS -N 2`.
Values step(unsigned task, unsigned tasks, const std::string &perNode, unsigned node) {
  const std::string count = std::to_string(tasks);
  return {{"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NUM_TASKS", count},
          {"SLURM_STEP_TASKS_PER_NODE", perNode},
          {"SLURM_NODEID", std::to_string(node)},
          {"SLURM_PROCID", std::to_string(task)},
          {"SLURM_NTASKS", count},
          {"SLURM_NPROCS", count},
          {"SLURM_LOCALID", "0"}};
}
const Values torch{{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "29500"}};
const Values pmix{{"PMIX_RANK", "3"}}, pmi2{{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"PMI_FD", "11"}};

Values mpirun(unsigned rank, unsigned size, unsigned here) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(here)},
          {"PMIX_RANK", std::to_string(rank)}};
}

/// "threads", or "mpi 3 of 4, 1 here".
std::string described(const Values &values) {
  const Variables said(values);
  const Launch found = launched();
  if (found.are == Launch::Ranks::Threads)
    return found.rank == 0 && found.ranks == 1 ? "threads" : "not alone";
  return fmt::format("{} {} of {}, {} here", found.are == Launch::Ranks::Mpi ? "mpi" : "sockets", found.rank,
                     found.ranks, found.here);
}

std::string refusal(const Values &values) {
  const Variables said(values);
  try {
    launched();
  } catch (const Error &error) {
    return (error.status == Status::User ? "" : "not a user's mistake: ") + std::string(error.what());
  }
  return "none";
}

} // namespace

TEST_CASE("launchers: a process that is alone holds all ranks as threads") {
  CHECK(described({}) == "threads");
  Values batch = step(0, 4, "3,1", 0); // a batch script has the job's variables
  for (const char *name : {"SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"})
    batch.erase(name);
  CHECK(described(batch) == "threads");
  const Values shell = step(0, 1, "1", 0) + Values{{"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "4294967290"}}; // salloc's
  for (const Values &values : {step(0, 1, "1", 0), shell})
    for (const Values &pmi : {Values{}, Values{{"PMIX_RANK", "0"}}, Values{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}})
      CHECK(described(values + pmi) == "threads");
  CHECK(described(mpirun(0, 1, 1)) == "threads");
  CHECK(described(step(0, 2, "1(x2)", 0) + mpirun(0, 1, 1)) == "threads"); // the step is of mpirun's daemons
  CHECK(described(step(3, 4, "3,1", 1) + Values{{"WORLD_SIZE", "1"}}) == "threads");
}

TEST_CASE("launchers: ranks, and how many of them share a host") {
  if (!mpiVersion().empty()) {
    CHECK(described(mpirun(3, 4, 2)) == "mpi 3 of 4, 2 here");
    CHECK(described(step(1, 2, "1(x2)", 1) + mpirun(3, 4, 2)) == "mpi 3 of 4, 2 here");
    CHECK(described(mpirun(3, 4, 2) + torch) == "mpi 3 of 4, 2 here");
  }
  CHECK(described(step(3, 4, "3,1", 1) + pmix) == "mpi 3 of 4, 1 here");
  CHECK(described(step(3, 8, "4(x2)", 0) + pmix) == "mpi 3 of 8, 4 here");
  CHECK(described(step(3, 9, "2(x3),1(x2),1", 2) + pmix) == "mpi 3 of 9, 2 here");
  CHECK(described(step(3, 9, "2(x3),1(x2),1", 4) + pmix) == "mpi 3 of 9, 1 here");
  CHECK(described(step(3, 9, "", 4) + pmix) == "mpi 3 of 9, 0 here");
  CHECK(described(step(3, 9, "(x2),1", 1) + pmix) == "mpi 3 of 9, 0 here");
  CHECK(described(pmix) == "mpi 3 of 0, 0 here"); // PMIx alone does not say how many
  CHECK(described(torch) == "sockets 2 of 4, 4 here");
  // srun may offer PMI to every step: torchrun's variables are nearer to the process.
  for (const Values &pmi : {Values{}, pmi2, pmix}) {
    CHECK(described(step(2, 4, "3,1", 0) + pmi + torch) == "sockets 2 of 4, 3 here");
    CHECK(described(step(1, 2, "1(x2)", 1) + pmi + torch) == "sockets 2 of 4, 4 here"); // torchrun in two tasks
    CHECK(described(step(1, 2, "1(x2)", 1) + pmi + torch + Values{{"LOCAL_WORLD_SIZE", "2"}}) ==
          "sockets 2 of 4, 2 here");
  }
}

TEST_CASE("launchers: tasks of a step that do not know of each other are refused, with what works") {
  for (unsigned task : {0, 3}) {
    const std::string text = refusal(step(task, 4, "3,1", task / 3));
    for (const char *part : {"srun started 4 tasks of this step without PMIx", "--mpi=pmix", "mpirun", "WORLD_SIZE"})
      CHECK_THAT(text, Contains(part));
    const Variables said(step(task, 4, "3,1", task / 3));
    CHECK(launchedRank() == task); // which reports it
    CHECK_THROWS_AS(ranksAreProcesses(), Error);
  }
  if (mpiSpeaksPmi())
    return; // another MPI than Open MPI, or one with components for older PMIs
  CHECK_THAT(refusal(step(3, 4, "3,1", 1) + pmi2), Contains("srun started 4 tasks") && Contains("--mpi=pmix") &&
                                                       Contains("which Open MPI v") && Contains("does not know"));
  CHECK_THAT(refusal(pmi2), Contains("PMI_SIZE=4: a launcher of another MPI") && Contains("needs its own mpirun"));
}

TEST_CASE("launchers: each thread has a device of its own, also where a batch script's variables name one") {
  const Variables said({{"SLURM_LOCALID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}});
  const auto plan = test::seal(test::linearPlan({}));
  for (unsigned rank : {0, 3})
    CHECK(executorOptions(plan->plan(), {}, rank).localRank == int(rank));
  const Variables ranks(torch);
  CHECK(executorOptions(plan->plan(), {}, 2).localRank == -1);
}

TEST_CASE("launchers: the ranks of a host divide its cores") {
  const auto threads = [](const Values &values, unsigned ranks) {
    const Variables said(values);
    return defaultThreads(ranks);
  };
  const unsigned alone = threads({}, 1), cores = std::thread::hardware_concurrency();
  CHECK(threads(step(1, 2, "1(x2)", 1) + pmix, 2) == alone);
  CHECK(threads(step(1, cores + 1, fmt::format("{},1", cores), 0) + pmix, cores + 1) == 1);
}
