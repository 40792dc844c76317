// Constants of devices, mostly fractions of their datasheet peaks that they reach: the only constants of the cost
// model, one entry per family of devices. Constants.cpp has the values, each with its source.
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "partitioner/cost/Work.h"

#include <array>
#include <span>
#include <string_view>

namespace cleave::partitioner {

/// A block of the result that one multiprocessor computes, and its rate relative to that of the largest blocks: a
/// smaller one reads more operand bytes per operation.
struct Tile {
  int64_t rows, columns;
  double efficiency;
};

struct DeviceConstants {
  std::string_view family; ///< "a100"
  std::string_view backend;

  // --- every step -------------------------------------------------------------------------------------------------
  /// Seconds from the end of a step to the beginning of the next one in its stream, plus the time in which a kernel
  /// starts and ends.
  double launchSeconds;

  // --- matrix products, convolutions ------------------------------------------------------------------------------
  /// Multiprocessors that compute tiles at the same time; 0: a processor core without tiles (see `halfSize`).
  int64_t multiprocessors;
  std::span<const Tile> fp32Tiles, halfTiles; ///< of fp32, and of tf32, fp16, bf16
  /// Elements of k that take as long as filling a tile's pipeline and writing its result; by Rate.
  std::array<double, rateCount> fillDepth;
  /// Fraction of the peak that is sustained with all multiprocessors at work; by Rate.
  std::array<double, rateCount> productFraction, convolutionFraction;
  /// Factor by which a multiprocessor is faster while others have no tiles, because the device's power goes to fewer of
  /// them; by Rate.
  std::array<double, rateCount> boost;
  /// Factor by which Winograd's algorithm reduces the multiplications of 3 x 3 convolutions, all its transforms
  /// counted. fp32 only.
  double winogradGain;
  /// Cores: the size of m, n and k at which a product, or a convolution, reaches half of the rate.
  double halfSize, convolutionHalfSize;

  // --- attention ---------------------------------------------------------------------------------------------------
  /// Whether attention is one fused kernel, unless the cluster file decides that (DeviceKind::fusedAttention). If not
  /// fused, it consists of products of all rows and keys, with the scores in memory.
  bool fusedAttention;
  /// Fused: fraction of the peak.
  double attentionForward, attentionBackward;
  /// Not fused: how often the scores are read or written between the products, by the softmax, its mask and dropout,
  /// and by their gradients.
  double scorePassesForward, scorePassesBackward;
  /// Not fused: kept for each score from the forward to the backward pass: elements of the activations' type, and bytes
  /// of masks.
  double keptScores, keptMaskBytes;

  // --- memory --------------------------------------------------------------------------------------------------------
  /// Fraction of the memory's bandwidth, by WorkClass.
  std::array<double, workClassCount> memoryFraction;
  /// Seconds in which an elementwise kernel evaluates exp, tanh and the like for one element. 0: not more than its
  /// bytes take.
  double functionSeconds;
  /// Bytes of the last cache, and its bandwidth relative to that of the memory, unless the cluster file gives them.
  /// Used for steps whose operands fit into half of the cache.
  double cacheBytes, cacheSpeed;
  /// Bytes that no plan can use: the driver's context, code of libraries, communicators' buffers.
  uint64_t reservedBytes;

  // --- communication -----------------------------------------------------------------------------------------------
  /// Seconds to start a message, or a collective that is not NCCL's, whatever its size.
  double communicationSeconds;
  /// Fraction of a link's bandwidth: inside a node by a collective, of a device's rate or of the links of a matrix; by
  /// one message between two devices; between nodes.
  double insideFraction, wireFraction, messageFraction, networkFraction;
  /// 70: V100. NCCL's tuning for the architecture; 0: a host, whose ranks do not use NCCL.
  int computeCapability;
  /// Bytes per second that one device can exchange with other nodes over its PCIe link.
  double deviceNetworkBytesPerSecond;
};

/// The constants of a device kind: of the family with which its name begins ("a100-80g": a100), otherwise those of a
/// generic device of its backend; then those that its cluster file gives (DeviceKind::constants).
DeviceConstants constantsOf(const DeviceKind &kind);

/// A constant in the unit of the cluster file.
double constantOf(const DeviceConstants &constants, Constant constant);

/// Whether attention is one kernel that keeps no scores: as the cluster file says, or by the device's constants.
bool attentionIsFused(const DeviceKind &kind);

/// Bytes that an attention keeps from its forward to its backward pass for each score, in elements of `elementBytes`. 0
/// if attention is fused, and on a host, where the runtime computes scores by blocks.
double keptBytesPerScore(const DeviceKind &kind, size_t elementBytes);

/// All entries, the generic ones last.
std::span<const DeviceConstants> allConstants();

} // namespace cleave::partitioner
