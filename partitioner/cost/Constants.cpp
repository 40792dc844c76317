// Constants of device families, each with its source. "Fitted" values were chosen so that predictions come close to the
// named tables (bench/predict): they describe the device and its libraries, not a particular model. All other values
// come from the given source.
#include "partitioner/cost/Constants.h"

#include "runtime/base/Error.h"

namespace cleave::partitioner {

namespace {

// Blocks of cuBLAS and CUTLASS kernels (NVIDIA, Matrix Multiplication Background User's Guide, which also has the model
// of waves). Efficiencies: the operand bytes per operation of a block are proportional to 1 / rows + 1 / columns; the
// largest block just hides the time to read them.
constexpr Tile halfTiles[] = {{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.92},
                              {128, 64, 0.75}, {64, 128, 0.75}, {64, 64, 0.55}};
// Without tensor cores a multiprocessor needs the operands of 64 multiply-adds per cycle, not of 512 or 1,024, so small
// blocks lose less.
constexpr Tile fp32Tiles[] = {{128, 128, 1.0}, {128, 64, 0.95}, {64, 128, 0.95},
                              {64, 64, 0.88},  {64, 32, 0.7},   {32, 32, 0.5}};

/// An unknown GPU. Families replace the values that are known for them.
constexpr DeviceConstants gpu() {
  DeviceConstants c{};
  c.family = "cuda";
  c.backend = "cuda";
  // Between two kernels of a captured graph about 1 us (NVIDIA, Getting Started with CUDA Graphs, 2019), and 1 to 2 us
  // in which a kernel fills and drains the device.
  c.launchSeconds = 3e-6;
  c.multiprocessors = 108; // of an A100
  c.fp32Tiles = fp32Tiles;
  c.halfTiles = halfTiles;
  // A tile's first operands take one trip to memory (0.5 to 1 us: Jia et al., Dissecting the NVIDIA Volta GPU
  // Architecture via Microbenchmarking, 2018), its result is written while nothing is multiplied: 1 to 2 us at the
  // tile's rate.
  c.fillDepth = {16, 64, 96, 96};
  c.productFraction = {0.85, 0.65, 0.65, 0.65};     // as the families below
  c.convolutionFraction = {0.68, 0.50, 0.50, 0.50}; // as the families below
  // Clocks under full load of tensor cores are about a fifth below those of a partly busy device (power limit); fp32
  // units hardly reach the limit. Fitted: gpt_megatron_a100.csv, the rows whose products do not fill their last wave.
  c.boost = {1.05, 1.25, 1.25, 1.25};
  // F(2x2, 3x3) needs 2.25 times fewer multiplications (Lavin and Gray, Fast Algorithms for Convolutional Neural
  // Networks, 2016); with transforms and with layers for which it is not chosen. Fitted with convolutionFraction.
  c.winogradGain = 1.5;
  // A fused kernel's rate over forward and backward passes: 0.3 to 0.4 of the peak (Dao et al., FlashAttention, 2022;
  // Dao, FlashAttention-2, 2023, reports more).
  c.fusedAttention = true;
  c.attentionForward = 0.35;
  c.attentionBackward = 0.30;
  // Softmax, mask and dropout read and write the scores; their gradients read two matrices. Fitted:
  // gpt_megatron_a100.csv and pipeline_bubbles_a100.csv, which differ in the length of their sequences.
  c.scorePassesForward = 4.5;
  c.scorePassesBackward = 6;
  // The softmax's result, dropout's mask of one byte, and dropout's result: 5 bytes a score in half precision
  // (Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022, section 4.1: 5 a s^2 b).
  c.keptScores = 2;
  c.keptMaskBytes = 1;
  // Long copies reach 83% on a V100 (Jia et al., 2018: 750 of 900 GB/s), a little more on later devices. Strided copies
  // and windows use a part of their cache lines; rows at indices are short.
  c.memoryFraction = {1, 0.88, 0.85, 0.85, 0.85, 0.70, 0.60, 0.70, 0.65};
  c.cacheBytes = 20e6;
  c.cacheSpeed = 2; // L2 against memory, reads (Jia et al., 2018: 2.2 TB/s on a V100); writes reach memory
  c.reservedBytes =
      uint64_t{1} << 30;         // context 0.4 to 0.6 GiB, cuBLAS, cuDNN, NCCL's buffers of 4 MiB a channel and peer
  c.communicationSeconds = 5e-6; // time to start a kernel of NCCL
  c.computeCapability = 80;
  // NCCL's all-reduce on one node reaches 230 to 235 of 300 GB/s on a DGX A100 (NVIDIA's nccl-tests).
  c.insideFraction = 0.78;
  c.wireFraction = 0.80;    // NCCL counts an NVLink of 25 GB/s as 20 GB/s (src/graph/topo.h)
  c.messageFraction = 0.85; // through a switch, a pair of devices has a whole link
  c.networkFraction =
      0.85; // InfiniBand: 85 to 95% of the line's rate after headers; fitted in this range: resnet50_fp32_dp.csv
  c.deviceNetworkBytesPerSecond = 25e9; // PCIe 4.0 x16
  return c;
}

constexpr DeviceConstants v100() {
  DeviceConstants c = gpu();
  c.family = "v100"; // 80 multiprocessors, 6 MB L2 (NVIDIA Tesla V100 GPU Architecture, 2017)
  c.multiprocessors = 80;
  c.cacheBytes = 6e6;
  c.fillDepth = {16, 64, 64, 64}; // a tile's operations per second are fewer than on later devices
  // fp32: 90% of the peak. Half: 83 of 125 TFLOP/s (Markidis et al., NVIDIA Tensor Core Programmability, Performance
  // and Precision, 2018).
  c.productFraction = {0.90, 0.68, 0.68, 0.68};
  c.convolutionFraction = {0.66, 0.50, 0.50, 0.50}; // fp32 fitted: resnet50_fp32_dp.csv
  c.fusedAttention = false;                         // no fused kernel of the libraries for this architecture
  c.memoryFraction = {1, 0.85, 0.80, 0.80, 0.83, 0.65, 0.60, 0.65, 0.60};
  c.computeCapability = 70;
  // Cluster files that give one rate for all groups give that of NCCL's rings on NVLink 2, not its 150 GB/s.
  c.insideFraction = 0.95;
  c.deviceNetworkBytesPerSecond = 12e9; // PCIe 3.0 x16
  return c;
}

constexpr DeviceConstants a100() {
  DeviceConstants c = gpu();
  c.family = "a100"; // 108 multiprocessors, 40 MB L2 (NVIDIA A100 Tensor Core GPU Architecture, 2020)
  c.launchSeconds = 2.5e-6;
  c.cacheBytes = 40e6;
  c.productFraction = {0.90, 0.64, 0.64, 0.64}; // half fitted: gpt_megatron_a100.csv, pipeline_bubbles_a100.csv
  c.convolutionFraction = {0.70, 0.52, 0.52, 0.52};
  // The tables' systems (2021 to 2023) keep their scores in memory. A cluster file says if attention is fused.
  c.fusedAttention = false;
  // Dao, FlashAttention-2, 2023, figures 4 to 6: 0.50 to 0.73 forward, 0.44 to 0.63 backward; less for short sequences.
  c.attentionForward = 0.50;
  c.attentionBackward = 0.40;
  return c;
}

constexpr DeviceConstants h100() {
  DeviceConstants c = gpu();
  c.family = "h100"; // 132 multiprocessors, 50 MB L2 (NVIDIA H100 Tensor Core GPU Architecture, 2022)
  c.launchSeconds = 2.5e-6;
  c.multiprocessors = 132;
  c.computeCapability = 90;
  c.cacheBytes = 50e6;
  c.fillDepth = {16, 96, 128, 128}; // twice the operations per second, the same latency
  c.attentionForward = 0.45;        // Shah et al., FlashAttention-3, 2024: more; FlashAttention-2 35%
  c.attentionBackward = 0.40;
  c.deviceNetworkBytesPerSecond = 50e9; // PCIe 5.0 x16
  return c;
}

/// The same processor as an H100, with more and faster memory, which the cluster file has.
constexpr DeviceConstants h200() {
  DeviceConstants c = h100();
  c.family = "h200";
  return c;
}

/// A processor's core, with peaks as `cleave doctor --cluster` measures them.
constexpr DeviceConstants core() {
  DeviceConstants c{};
  c.family = "cpu";
  c.backend = "cpu";
  c.launchSeconds = 1e-6; // oneDNN's call takes 0.9 us
  // oneDNN 2.6 on the products of this project's samples, operands in oneDNN's own layouts. In a step operands are also
  // reordered, which limits half types.
  c.productFraction = {0.90, 0.90, 0.60, 0.60};
  // ResNet-18 on one core of an EPYC, compared with its prediction (cleave simulate --against).
  c.convolutionFraction = {0.88, 0.88, 0.40, 0.40};
  c.boost = {1, 1, 1, 1};
  c.winogradGain = 2.2; // the convolutions of ResNet-18, forward and backward, with AVX-512 and with AVX2 alone
  c.halfSize = c.convolutionHalfSize = 12; // blocks of registers: 48 x 8 of 16 lanes
  c.fusedAttention = true;
  c.attentionForward = 0.52; // GPT 6x384 and ViT-S/16 in f32 on two cores of an EPYC with AVX-512: 0.47 and 0.60
  c.attentionBackward = 0.6; // 0.54 and 0.69
  // Generated kernels: bias and GELU at 6.2 of 10.6 GB/s on one thread; random numbers are computed, not moved.
  c.memoryFraction = {1, 0.8, 0.8, 0.8, 0.7, 0.5, 0.4, 0.4, 0.1};
  c.functionSeconds = 1e-9; // GELU of 262,144 elements in the cache: 0.2 to 0.3 ms on one core of an EPYC with AVX2
  c.cacheBytes = 2e6;       // of a core
  c.cacheSpeed = 3;
  c.communicationSeconds = 2e-6; // time for two threads to synchronise
  c.insideFraction = c.wireFraction = c.messageFraction = c.networkFraction = 0.8;
  c.deviceNetworkBytesPerSecond = 1e12; // no separate limit
  return c;
}

constexpr DeviceConstants table[] = {v100(), a100(), h100(), h200(), gpu(), core()};

} // namespace

bool attentionIsFused(const DeviceKind &kind) { return kind.fusedAttention.value_or(constantsOf(kind).fusedAttention); }

double keptBytesPerScore(const DeviceKind &kind, size_t elementBytes) {
  const DeviceConstants c = constantsOf(kind);
  return attentionIsFused(kind) ? 0 : c.keptScores * static_cast<double>(elementBytes) + c.keptMaskBytes;
}

std::span<const DeviceConstants> allConstants() { return table; }

namespace {

/// Where a constant is, and its unit in the cluster file.
struct ConstantPlace {
  double *value;
  double unit = 1;
};

ConstantPlace placeOf(DeviceConstants &c, Constant constant) {
  const auto at = static_cast<size_t>(constant);
  const auto from = [at](Constant first) { return at - static_cast<size_t>(first); };
  switch (constant) {
  case Constant::LaunchUs:
    return {&c.launchSeconds, 1e-6};
  case Constant::HalfSize:
    return {&c.halfSize};
  case Constant::ConvolutionHalfSize:
    return {&c.convolutionHalfSize};
  case Constant::FunctionNs:
    return {&c.functionSeconds, 1e-9};
  case Constant::ProductFp32:
  case Constant::ProductTf32:
  case Constant::ProductFp16:
  case Constant::ProductBf16:
    return {&c.productFraction[from(Constant::ProductFp32)]};
  case Constant::ConvolutionFp32:
  case Constant::ConvolutionTf32:
  case Constant::ConvolutionFp16:
  case Constant::ConvolutionBf16:
    return {&c.convolutionFraction[from(Constant::ConvolutionFp32)]};
  case Constant::AttentionForward:
    return {&c.attentionForward};
  case Constant::AttentionBackward:
    return {&c.attentionBackward};
  case Constant::ScorePassesForward:
    return {&c.scorePassesForward};
  case Constant::ScorePassesBackward:
    return {&c.scorePassesBackward};
  case Constant::ProductMemory:
  case Constant::ConvolutionMemory:
  case Constant::AttentionMemory:
  case Constant::Elementwise:
  case Constant::Copy:
  case Constant::Lookup:
  case Constant::Pooling:
  case Constant::Random:
    return {&c.memoryFraction[static_cast<size_t>(WorkClass::Product) + from(Constant::ProductMemory)]};
  case Constant::CacheSpeed:
    return {&c.cacheSpeed};
  case Constant::Collectives:
    return {&c.insideFraction};
  case Constant::Messages:
    return {&c.messageFraction};
  case Constant::CommunicationUs:
    return {&c.communicationSeconds, 1e-6};
  }
  return {};
}

const DeviceConstants &familyOf(const DeviceKind &kind) {
  const std::string family = kind.name.substr(0, kind.name.find_first_of("-_ "));
  for (const DeviceConstants &entry : table)
    if (entry.family == family && entry.backend == kind.backend)
      return entry;
  for (const DeviceConstants &entry : table)
    if (entry.family == kind.backend)
      return entry;
  throw userError("device " + kind.name + ": no constants for backend " + kind.backend);
}

} // namespace

double constantOf(const DeviceConstants &constants, Constant constant) {
  DeviceConstants copy = constants;
  const ConstantPlace place = placeOf(copy, constant);
  return *place.value / place.unit;
}

DeviceConstants constantsOf(const DeviceKind &kind) {
  DeviceConstants found = familyOf(kind);
  for (size_t i = 0; i < constantCount; ++i)
    if (kind.constants[i]) {
      const ConstantPlace place = placeOf(found, static_cast<Constant>(i));
      *place.value = *kind.constants[i] * place.unit;
    }
  return found;
}

} // namespace cleave::partitioner
