// Forward declarations of the plan schema's types. The definitions are in "runtime/plan/plan_generated.h", which is
// generated into the build folder.
#pragma once
#include <cstdint>

namespace cleave::plan {
enum class DType : uint8_t;
enum class ReduceKind : uint8_t;
enum class CollectiveKind : uint8_t;
enum class DataKind : uint8_t;
enum class Precision : uint8_t;
enum class TensorKind : uint8_t;
enum class WinogradUse : uint8_t;
struct Action;
struct Data;
struct DataT;
struct KernelInfo;
struct KernelInfoT;
struct LearningRateT;
struct SearchT;
struct Plan;
struct PlanT;
struct Program;
struct Rank;
struct Segment;
struct Slot;
struct Sharding;
struct Step;
struct Tensor;
struct TransformT;
struct Training;
struct OptimizerT;
struct TrainingT;
} // namespace cleave::plan
