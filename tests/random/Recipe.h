// A case as plain data: a model (classes of modules with their members and the calls in forward), its data and loss,
// and how it is split and trained. A recipe is drawn from a seed, interpreted as calls of the DSL, printed as C++, and
// reduced when it fails.
#pragma once
#include "cleave/Dataset.h"

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace cleave::random_models {

/// One call of the DSL. Node `i` of a body defines value `inputs + i`, which is empty for `stage` and `setBuffer`.
struct Node {
  std::string op; ///< name of an entry in the table of ops
  std::vector<int> in;
  std::vector<int64_t> ints = {};
  std::vector<double> reals = {};
  std::vector<std::string> words = {};
  int member = -1; ///< index of the class's member that is called or read
};

/// The body of a forward function. Values 0 ... inputs - 1 are its arguments.
struct Body {
  int inputs = 1;
  std::vector<Node> nodes;
  int result = 0;
  int second = -1;                               ///< value of the root's second output, which has its own target
  std::vector<int> others = {};                  ///< values of the root's further outputs, which the loss ignores
  std::vector<std::vector<int64_t>> shapes = {}; ///< of the drawn values, before marks; empty if not a float
};

/// A member of a class: a parameter, a buffer, a layer of the library, a module of another class, or a list of modules.
struct Part {
  std::string kind; ///< "Parameter", "Buffer", "Module", "List", or a name in the table of layers
  std::string name;
  std::vector<int64_t> ints = {}; ///< shape, the layer's sizes, or the number of modules of a list
  std::vector<double> reals = {}; ///< initial value (two: bounds, one: a constant), or the layer's numbers
  std::vector<std::string> words = {};
  int cls = -1; ///< index of the class of a "Module" or "List"
  bool frozen = false;
};

struct Class {
  std::string name;
  std::vector<Part> members;
  Body body;
};

/// A field of the data. The last field is the target; with two outputs the last two fields are the targets.
struct Field {
  std::string name;
  FieldType dtype = FieldType::F32;
  std::vector<int64_t> shape; ///< of one sample
  int64_t classes = 0;        ///< i32: values lie in [0, classes); targets may be -1, too
  bool declared = true;       ///< the data set declares its classes
};

struct Recipe {
  uint64_t seed = 0;
  // The model.
  std::deque<Class> classes; ///< the first is the root
  std::vector<Field> fields;
  std::string loss;          ///< name of an entry in the table of losses
  bool wholeNumbers = false; ///< data and parameters are small whole numbers
  bool drawnData = false;    ///< each field of a sample is drawn from the sample's generator, and a step is an epoch
  // Training.
  std::string optimizer = "sgd"; ///< sgd, momentum, nesterov, adam, adamw
  double lr = 0.5, clipNorm = 0, weightDecay = 0, ema = 0;
  int64_t batch = 4, microbatches = 1;
  int64_t evalBatch = 4, evalSamples = 4; ///< a batch of evaluation, and samples of its split
  // The split.
  std::string mesh = "dp=1", schedule = "1f1b";
  int64_t virtualStages = 1;   ///< stages of each rank
  std::string recompute;       ///< "", "selective" or "full"
  bool sequence = false;       ///< sequence parallelism
  int64_t zero = 0;            ///< stage of ZeRO
  bool scatterGather = false;  ///< stages send slices of messages
  std::string stagesAndShards; ///< TOML: `stages` and [shard]; empty: none
  /// How a search finds the strategy for as many devices as the mesh has, with the lists of `stagesAndShards` pinned:
  /// "", "alike": for devices of one kind, "mixed": of two kinds.
  std::string searched;
  std::string found; ///< TOML: the strategy that was found; empty: the fields above are the strategy
  std::string precision = "fp32", optLevel, reduceDtype;
  std::string layout = "nchw";
  bool suitsWinograd() const; ///< has a convolution that the runtime computes by Winograd's method, if it is nhwc
  std::string winograd() const { return wholeNumbers ? "never" : "always"; } ///< it rounds

  int64_t rows() const { return batch / microbatches; }
  /// The decay of averages of the parameters, which half parameters cannot have.
  double averages() const { return optLevel == "O3" ? 0 : ema; }
  size_t targets() const { return classes[0].body.second >= 0 ? 2 : 1; }
  /// TOML of the whole strategy.
  std::string strategy() const;
};

/// Nodes of all classes.
int64_t nodeCount(const Recipe &recipe);
/// The recipe as a C++ program, with the command that shows the fault in its first lines.
std::string asProgram(const Recipe &recipe);
/// The options of the command line: "check --mesh ...".
std::string asCommand(const Recipe &recipe);

} // namespace cleave::random_models
