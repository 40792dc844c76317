// cleave doctor: checks what works on this machine, and advises how to fix what does not. A missing GPU or library is
// not an error.
#include "partitioner/cluster/MeasureHost.h"
#include "partitioner/cluster/MeasureRanks.h"
#include "runtime/base/AtomicFile.h"
#include "runtime/base/Counted.h"
#include "runtime/base/Error.h"
#include "runtime/base/JsonText.h"
#include "runtime/comm/MpiWorld.h"
#include "runtime/comm/socket/TorchEnvironment.h"
#include "runtime/cuda/driver/Report.h"
#include "runtime/device/CpuDevice.h"
#include "runtime/options/CommandLine.h"
#include "runtime/session/Launcher.h"
#include "runtime/session/ProcessWorld.h"
#include "tools/cleave/Commands.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace cleave::tool {
namespace {

/// One line of the report: a status, what was found, and advice if it does not work.
struct Finding {
  std::string name;
  bool works;
  std::string found, advice;
};

/// Value of the first line "key : value" of a /proc file.
std::string procField(const char *file, const std::string &key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key))
      if (const size_t colon = line.find(':'); colon != std::string::npos) {
        const size_t at = line.find_first_not_of(" \t", colon + 1);
        return at == std::string::npos ? "" : line.substr(at);
      }
  return "";
}

Finding compilerFinding() { return {"built with", true, __VERSION__, ""}; }

Finding dnnlFinding() {
  const std::string version = cpuLibraryVersion();
  return {"oneDNN", !version.empty(), version.empty() ? "not in this build" : version,
          "the cpu backend needs a build with it; GPUs do not"};
}

Finding mpiFinding() {
  const std::string version = mpiVersion();
  if (version.empty())
    return {"MPI", true, "not in this build: torchrun's environment starts ranks", ""};
  const bool launcher = [] {
    const char *path = std::getenv("PATH");
    std::string rest = path ? path : "";
    for (size_t begin = 0; begin <= rest.size();) {
      const size_t end = std::min(rest.find(':', begin), rest.size());
      if (access((rest.substr(begin, end - begin) + "/mpirun").c_str(), X_OK) == 0)
        return true;
      begin = end + 1;
    }
    return false;
  }();
  std::string found = version + (launcher ? "" : ", no mpirun");
  if (launcher && version.find("Open MPI") != std::string::npos) {
    found += geteuid() == 0 ? "; as root: mpirun --allow-run-as-root" : "";
    found += "; more ranks than cores: mpirun --oversubscribe";
  }
  return {"MPI", launcher, found,
          "install openmpi-bin to start ranks with mpirun; torchrun's environment needs no MPI"};
}

/// The launcher that started this process, as a training's ranks would detect it.
Finding launcherFinding() {
  try {
    if (startedByMpi())
      return {"launcher", true, "MPI: one rank a process", ""};
    const auto torch = torchEnvironment();
    return {"launcher", true,
            torch ? fmt::format("torchrun's environment: rank {} of {}, rank 0 at {}, port {}", torch->rank,
                                torch->size, torch->address, torch->port)
                  : "none: ranks are threads of one process",
            ""};
  } catch (const Error &error) {
    return {"launcher", false, error.what(), "unset or complete the launcher's environment variables"};
  }
}

Finding processorFinding() {
  const std::string flags = " " + procField("/proc/cpuinfo", "flags") + " ";
  const auto has = [&](const char *flag) { return flags.find(fmt::format(" {} ", flag)) != std::string::npos; };
  std::string features;
  for (const auto &[flag, name] : {std::pair("avx2", "AVX2"),
                                   {"fma", "FMA"},
                                   {"avx512f", "AVX-512"},
                                   {"avx512_bf16", "AVX-512 BF16"},
                                   {"amx_tile", "AMX"},
                                   {"amx_bf16", "AMX BF16"}})
    if (has(flag))
      features += (features.empty() ? "" : ", ") + std::string(name);
  return {"processor", has("avx2") && has("fma"),
          fmt::format("{}: {}", procField("/proc/cpuinfo", "model name"),
                      features.empty() ? "no vector extensions" : features),
          "kernels are compiled for the machine that makes the plan; without AVX2 they are slow"};
}

Finding coresFinding() {
  cpu_set_t set;
  const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return {"cores", true, fmt::format("{} of {} usable", allowed, sysconf(_SC_NPROCESSORS_ONLN)), ""};
}

Finding memoryFinding() {
  const double free = std::atof(procField("/proc/meminfo", "MemAvailable").c_str()) / 1048576;
  const double all = std::atof(procField("/proc/meminfo", "MemTotal").c_str()) / 1048576;
  return {"memory", free > 0.5, fmt::format("{:.1f} GiB free of {:.1f}", free, all),
          "close other programs, or use fewer ranks"};
}

Finding sharedMemoryFinding() {
  struct statvfs info {};
  if (statvfs("/dev/shm", &info) != 0)
    return {"/dev/shm", false, "absent", "MPI ranks on one host exchange through it: mount a tmpfs there"};
  const double mib = double(info.f_bavail) * double(info.f_frsize) / 1048576;
  return {"/dev/shm", mib >= 64, fmt::format("{} MiB free", grouped(int64_t(mib))),
          "give the container more shared memory (for example --shm-size=1g)"};
}

/// Driver, devices and libraries found by the CUDA backend.
void addCuda(std::vector<Finding> &findings) {
  const CudaReport report = examineCuda();
  findings.push_back({"CUDA driver", report.problem.empty(), report.problem.empty() ? report.driver : report.problem,
                      "install NVIDIA's driver; in a container, pass the GPU through"});
  for (const CudaDeviceReport &d : report.devices)
    findings.push_back(
        {fmt::format("CUDA device {}", d.number), true,
         fmt::format("{}, {}, {} multiprocessors, {:.1f} GiB free of {:.1f}, {}{}", d.name, d.target, d.multiprocessors,
                     double(d.freeBytes) / (1 << 30), double(d.totalBytes) / (1 << 30), d.bus,
                     report.devices.size() < 2 ? ""
                     : d.reaches.empty()       ? ", reaches no other device"
                                               : fmt::format(", reaches {}", fmt::join(d.reaches, ", "))),
         ""});
  for (const CudaLibraryReport &l : report.libraries)
    findings.push_back({l.name, !l.version.empty(), l.version.empty() ? l.problem : l.version + "  " + l.file,
                        l.name == "NCCL"    ? "install NCCL 2; needed for more than one GPU"
                        : l.name == "cuDNN" ? "install cuDNN 9; needed for convolutions and attention"
                                            : "comes with the CUDA Toolkit, or with NVIDIA's wheels for Python"});
}

std::vector<Finding> examine() {
  std::vector<Finding> findings{compilerFinding(),  dnnlFinding(),  mpiFinding(),    launcherFinding(),
                                processorFinding(), coresFinding(), memoryFinding(), sharedMemoryFinding()};
  addCuda(findings);
  return findings;
}

/// Measures this machine or, under a launcher, the machines of all ranks, and writes the cluster file (only rank 0).
void writeCluster(const std::string &path) {
  std::optional<AtomicFile> file;
  if (!ranksAreProcesses() || launchedRank() == 0)
    file.emplace(path); // before the measurement, which takes two seconds, so that a wrong path fails at once
  std::optional<partitioner::Cluster> cluster;
  if (ranksAreProcesses())
    runLaunchedRank([&](RankEndpoint &world) { cluster = partitioner::measureRanks(world); });
  else
    cluster = partitioner::measureHost();
  if (!cluster)
    return;
  const std::string text = cluster->toToml();
  file->write(text.data(), text.size());
  file->commit();
  fmt::print("{}", text);
}

bool isGpu(const Finding &finding) {
  return finding.name.starts_with("cu") || finding.name.starts_with("CUDA") || finding.name == "NCCL";
}

} // namespace

int doctor(int argc, char **argv) {
  CLI::App app{"Checks what works on this machine.", "cleave doctor"};
  bool json = false;
  std::string cluster;
  auto *asJson = app.add_flag("--json", json, "as one JSON object");
  app.add_option("--cluster", cluster,
                 "measure the processor's cores, and under a launcher the links of its ranks, as a cluster file")
      ->type_name("FILE.toml")
      ->excludes(asJson);
  if (!parseCommandLine(app, {argv + 1, argv + argc}))
    return 0;
  if (!cluster.empty()) {
    writeCluster(cluster);
    return 0;
  }
  const std::vector<Finding> findings = examine();
  bool cpu = true, gpu = true;
  for (const Finding &finding : findings)
    (isGpu(finding) ? gpu : cpu) &= finding.works;
  if (json) {
    auto list = nlohmann::ordered_json::array();
    for (const Finding &f : findings)
      list.push_back({{"name", f.name}, {"works", f.works}, {"found", f.found}, {"advice", f.works ? "" : f.advice}});
    nlohmann::ordered_json out;
    out["version"] = CLEAVE_VERSION;
    out["cpu"] = cpu;
    out["cuda"] = gpu;
    out["findings"] = std::move(list);
    fmt::print("{}\n", jsonText(out));
    return 0;
  }
  fmt::print("cleave {}\n\n", CLEAVE_VERSION);
  for (const Finding &f : findings) {
    fmt::print("{:<4} {:<13} {}\n", f.works ? "ok" : "--", f.name, f.found);
    if (!f.works && !f.advice.empty())
      fmt::print("{:<18} {}\n", "", f.advice);
  }
  fmt::print("\ncpu backend: {}.  cuda backend: {}.\n", cpu ? "ready" : "see above",
             gpu ? "ready" : "not available here; plans for it can still be shown and checked");
  return 0;
}

} // namespace cleave::tool
