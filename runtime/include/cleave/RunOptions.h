// How a job is run: the options of the command line, of every program and of cleave-run, and of Trainer.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cleave {

/// How to run the training; the command line's options. Empty fields select the program's defaults. `batch` is the
/// global batch in samples; `batchPerRank` is the part of one device, so the global batch is that many times the size
/// of dp; `evalBatch` is the global batch of evaluation. `threads` is per rank, at most one of `epochs` and `steps` may
/// be given; 0 steps write the initial weights. `backend`: cpu or cuda; `optimizer`: sgd, adam or adamw; `recompute`:
/// none, selective or full; `zero`: stage of ZeRO, 0 to 3. `data` ("synthetic", too), `metrics`, `checkpoint` and
/// `plan` are paths. `checkpointEvery`: steps ("500") or a time ("90s", "30m", "2h") between checkpoints within an
/// epoch; `resumeIfAny`: `resume` if there is a checkpoint. `code` = false: plans have no kernels (for simulation).
/// `printAfter`: phases after which the IR is printed to standard error.
struct RunOptions {
  std::string mesh = {};                     ///< "dp=2,tp=2,pp=2"
  int64_t devices = 0;                       ///< to split over: for `strategy`, or as a search or the memory says
  std::string strategy = {};                 ///< data, model, pipeline, hybrid, auto, or a strategy file
  std::string schedule = {};                 ///< "gpipe", "1f1b", "interleaved", ...: docs/prediction.md
  std::optional<int64_t> virtualStages = {}; ///< pipeline stages of each rank
  std::optional<int64_t> microbatches = {}, batch = {}, evalBatch = {}, threads = {};
  std::optional<int64_t> batchPerRank = {};
  std::optional<uint64_t> seed = {};
  std::optional<int64_t> epochs = {}, steps = {};
  std::string backend = {}, optimizer = {}, recompute = {};
  std::string target = {};      ///< of generated code: "x86-64-v4", "sm_90", ...; default: this processor; cuda: sm_90
  std::string precision = {};   ///< "fp32", "bf16" or "fp16": the type of activations and products
  std::string optLevel = {};    ///< "O0" to "O3": what uses that type (docs/precision.md)
  std::string lossScale = {};   ///< "dynamic", "none" or a number
  std::string reduceDtype = {}; ///< "fp32", "bf16" or "fp16": type of gradient reductions over dp
  std::string layout = {};      ///< "auto", "nchw" or "nhwc": layout of convolutions and the ops after them
  std::string winograd = {};    ///< "auto", "never" or "always": Winograd's method for convolutions of f32 or bf16
  std::optional<double> lr = {}, momentum = {}, weightDecay = {}, ema = {};
  std::string lrSchedule = {};                               ///< "constant", "step" or "cosine"
  std::optional<double> warmupEpochs = {}, everyEpochs = {}; ///< of the schedule; between the steps of "step"
  std::string recipe = {};                                   ///< file with further options
  std::optional<double> searchSeconds = {};                  ///< after which a search takes the best strategy so far
  std::optional<int64_t> zero = {};
  bool sequenceParallel = false;  ///< split activations between products along the sequence, over tp
  std::string scatterGather = {}; ///< send messages between stages in slices over tp: never, always, auto
  std::string data = {}, metrics = {}, checkpoint = {}, plan = {};
  std::optional<int64_t> workers = {}; ///< threads of a rank that read data ahead of the step
  std::string decode = {};             ///< "exact" or "fast": how training decodes pictures
  std::string badFiles = {};           ///< "stop" or "skip": what a damaged picture does
  std::string like = {};               ///< plan whose request is repeated, as far as other options do not change it
  std::string cluster = {};            ///< file that describes the hardware
  bool profile = false;                ///< print the slowest steps of rank 0 to standard error
  std::string trace = {};              ///< file for a trace of the last iterations (for ui.perfetto.dev)
  bool resume = false, json = false, quiet = false, code = true;
  bool resumeIfAny = false;
  bool newData = false; ///< `resume` may go on with other data than before
  std::string checkpointEvery = {};
  bool overwrite = false;             ///< start over and replace an existing checkpoint in the folder
  int64_t keep = 2;                   ///< number of checkpoints to keep in the folder
  std::optional<int64_t> atStep = {}; ///< step of the checkpoint to read (default: the last)
  std::optional<double> timeout = {}; ///< seconds that a rank waits for another (default: 60)
  std::optional<double> grace = {};   ///< seconds within which an interrupted training ends (default: no limit)
  bool keepGoing = false;             ///< continue if the loss is NaN or infinite; by default, training ends then
  bool findNan = false;               ///< name the op that produced the first NaN; slow
  std::vector<std::string> printAfter = {};
  std::optional<int64_t> samples = {}; ///< of a training, for the hours in a table of numbers of devices
  bool alternatives = false;           ///< store the best plans that differ in one decision
  std::string dumpProblems = {};       ///< folder for the problems of sharding choices that a search solves
  std::string device = {};             ///< "cpu", "cuda", or "reference": plain loops; default: the plan's backend
  bool graph = true;                   ///< cuda: iterations as captured graphs; false: step by step
  bool deterministic = true;           ///< cuda: only library algorithms with bit-identical results
  std::string tuning = {};             ///< file of measured library choices, or "off"; default: in the user's cache

  double waitSeconds() const { return timeout.value_or(60); }
};

} // namespace cleave
