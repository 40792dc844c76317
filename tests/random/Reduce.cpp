// Tries reduction steps until none helps.
#include "tests/random/Reduce.h"
#include "partitioner/strategy/Decisions.h"
#include "tests/random/Drawing.h"
#include "tests/random/Tables.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <set>
#include <sstream>

namespace cleave::random_models {

namespace {

/// Shapes of the root's values; empty if tracing fails, for example because the target does not fit the loss.
std::vector<Shape> shapesOrNone(const Recipe &recipe) {
  try {
    return shapesOfRoot(recipe);
  } catch (const std::exception &) {
    return {};
  }
}

/// Sets the targets' shapes from the outputs. Returns false if an output has no row per sample or no classes.
bool fitTarget(Recipe &recipe) {
  const std::vector<Shape> shapes = shapesOrNone(recipe);
  const auto result = static_cast<size_t>(recipe.classes[0].body.result);
  if (result >= shapes.size() || shapes[result].empty() || shapes[result][0] != recipe.rows())
    return false;
  Field &target = recipe.fields[recipe.fields.size() - recipe.targets()];
  const auto second = static_cast<size_t>(std::max(0, recipe.classes[0].body.second));
  if (recipe.targets() > 1 && (shapes[second].empty() || shapes[second][0] != recipe.rows()))
    return false;
  if (recipe.targets() > 1)
    recipe.fields.back().shape = {shapes[second].begin() + 1, shapes[second].end()};
  target.shape = {shapes[result].begin() + 1, shapes[result].end()};
  if (lossKind(recipe.loss).labels) {
    if (target.shape.empty())
      return false;
    target.classes = target.shape.back();
    target.shape.pop_back();
  }
  return true;
}

/// Adds `by` to the numbers of all values from `from` on.
void renumber(Body &body, int from, int by) {
  for (Node &node : body.nodes)
    for (int &value : node.in)
      value += value >= from ? by : 0;
  body.result += body.result >= from ? by : 0;
  body.second += body.second >= from ? by : 0;
  for (int &value : body.others)
    value += value >= from ? by : 0;
}

bool isUsed(const Body &body, int value) {
  if (body.result == value || body.second == value ||
      std::find(body.others.begin(), body.others.end(), value) != body.others.end())
    return true;
  for (const Node &node : body.nodes)
    if (std::find(node.in.begin(), node.in.end(), value) != node.in.end())
      return true;
  return false;
}

bool hasEffect(const Node &node) { return node.op == "stage" || node.op == "setBuffer"; }

void dropNode(Body &body, size_t place) {
  body.nodes.erase(body.nodes.begin() + static_cast<long>(place));
  renumber(body, body.inputs + static_cast<int>(place), -1);
}

/// Removes nodes that nothing reads. This includes calls of modules that set a buffer: the caller tests the result.
void dropDead(Recipe &recipe) {
  for (Class &cls : recipe.classes)
    for (size_t n = cls.body.nodes.size(); n-- > 0;)
      if (!hasEffect(cls.body.nodes[n]) && !isUsed(cls.body, cls.body.inputs + static_cast<int>(n)))
        dropNode(cls.body, n);
}

/// Removes members that no node uses; the others keep their names.
void dropMembers(Class &cls) {
  for (size_t m = cls.members.size(); m-- > 0;) {
    const auto index = static_cast<int>(m);
    const auto names = [&](const Node &node) {
      return node.member == index || (node.op == "batchNorm" && node.ints[1] == index);
    };
    if (std::any_of(cls.body.nodes.begin(), cls.body.nodes.end(), names))
      continue;
    cls.members.erase(cls.members.begin() + index);
    for (Node &node : cls.body.nodes) {
      node.member -= node.member > index;
      if (node.op == "batchNorm")
        node.ints[1] -= node.ints[1] > index;
    }
  }
}

void dropInputs(Recipe &recipe) {
  Body &body = recipe.classes[0].body;
  for (int i = body.inputs; i-- > 0;)
    if (body.inputs > 1 && !isUsed(body, i)) {
      recipe.fields.erase(recipe.fields.begin() + i);
      --body.inputs;
      renumber(body, i, -1);
    }
}

class Reducer {
public:
  Reducer(Recipe recipe, RunSettings settings, std::string kind, ChildLimits limits)
      : best(std::move(recipe)), settings(settings), kind(std::move(kind)), limits(limits), began(Clock::now()) {
    this->settings.execute &= this->kind.starts_with("the executed") || this->kind.starts_with("execution") ||
                              this->kind.starts_with("crash") || this->kind.starts_with("hangs");
    this->settings.differences &= this->kind.starts_with("gradient of the interpreter");
    if (this->kind.starts_with("hangs"))
      this->limits.seconds = 5;
  }

  Recipe run() {
    if (!fails(best)) // the failure may need what the settings leave out
      settings.execute = settings.differences = true;
    for (bool better = true; better && !late();) {
      better = split();
      better |= results();
      better |= nodes();
      better |= inputs();
      better |= members();
      better |= numbers();
    }
    return best;
  }

private:
  using Clock = std::chrono::steady_clock;
  bool late() const { return Clock::now() - began > std::chrono::seconds(60) || tried > 1500; }

  bool fails(const Recipe &recipe) {
    ++tried;
    const Result result = runInChild(recipe, settings, limits);
    return result.verdict == Verdict::Failed && result.kind == kind;
  }

  /// Keeps a change if the case still fails.
  template <class F> bool attempt(F change) {
    if (late())
      return false;
    Recipe candidate = best;
    if (!change(candidate) || !fails(candidate))
      return false;
    best = std::move(candidate);
    return true;
  }

  template <class T> bool set(T Recipe::*field, T value) {
    return best.*field != value && attempt([&](Recipe &r) {
      r.*field = value;
      return true;
    });
  }

  bool split() {
    bool better = attempt([](Recipe &r) {
      const bool half = r.precision != "fp32";
      r.precision = "fp32", r.optLevel = r.reduceDtype = "";
      return half;
    });
    better |= set(&Recipe::reduceDtype, std::string());
    better |= set(&Recipe::drawnData, false);
    better |= set(&Recipe::searched, std::string());
    better |= set(&Recipe::layout, std::string("nchw"));
    better |= set(&Recipe::optimizer, std::string("sgd"));
    better |= set(&Recipe::clipNorm, 0.0);
    better |= set(&Recipe::weightDecay, 0.0);
    better |= set(&Recipe::ema, 0.0);
    better |= attempt([](Recipe &r) {
      const bool other = r.evalSamples != r.batch;
      r.evalBatch = r.evalSamples = r.batch;
      return other;
    });
    better |= attempt([](Recipe &r) {
      const bool several = r.microbatches > 1, whole = r.evalSamples == r.batch;
      r.batch = r.rows(), r.evalBatch /= r.microbatches, r.microbatches = 1;
      if (whole)
        r.evalSamples = r.evalBatch;
      return several;
    });
    better |= set(&Recipe::recompute, std::string());
    better |= set(&Recipe::sequence, false);
    better |= set(&Recipe::zero, int64_t(0));
    better |= set(&Recipe::scatterGather, false);
    better |= attempt([](Recipe &r) {
      const bool other = r.schedule != "gpipe";
      r.schedule = "gpipe", r.virtualStages = 1;
      return other;
    });
    for (const char *axis : {"dp", "tp", "pp"})
      for (int64_t size : {1, 2, 3})
        better |= attempt([&](Recipe &r) {
          Mesh mesh = partitioner::parseMesh(r.mesh);
          std::string text;
          bool smaller = false;
          for (MeshAxis &a : mesh.axes) {
            if (a.name == axis && a.size > size)
              a.size = size, smaller = true;
            if (a.size > 1)
              text += fmt::format("{}{}={}", text.empty() ? "" : ",", a.name, a.size);
          }
          r.mesh = text.empty() ? "dp=1" : text;
          return smaller;
        });
    better |= set(&Recipe::stagesAndShards, std::string());
    better |= lines();
    better |= marks();
    return better;
  }

  /// Removes lines of the strategy file.
  bool lines() {
    bool better = false;
    const auto count = std::count(best.stagesAndShards.begin(), best.stagesAndShards.end(), '\n');
    for (int64_t line = count; line-- > 0;)
      better |= attempt([&](Recipe &r) {
        std::istringstream in(r.stagesAndShards);
        std::string text, one;
        for (int64_t i = 0; std::getline(in, one); ++i)
          text += i == line ? "" : one + "\n";
        r.stagesAndShards = text == "[shard]\n" ? "" : text;
        return true;
      });
    return better;
  }

  bool marks() {
    bool better = false;
    for (size_t c = 0; c < best.classes.size(); ++c)
      for (size_t n = best.classes[c].body.nodes.size(); n-- > 0;)
        better |= attempt([&](Recipe &r) {
          Body &body = r.classes[c].body;
          if (n >= body.nodes.size() || (!hasEffect(body.nodes[n]) && body.nodes[n].op != "withSharding"))
            return false;
          const int made = body.inputs + static_cast<int>(n);
          if (body.nodes[n].op == "withSharding")
            replace(body, made, body.nodes[n].in[0]);
          dropNode(body, n);
          return true;
        });
    return better;
  }

  static void replace(Body &body, int value, int by) {
    for (Node &node : body.nodes)
      std::replace(node.in.begin(), node.in.end(), value, by);
    if (body.result == value)
      body.result = by;
    if (body.second == value)
      body.second = by;
    std::replace(body.others.begin(), body.others.end(), value, by);
  }

  static bool tidy(Recipe &r) {
    dropDead(r);
    dropInputs(r);
    return true;
  }

  /// Drops further outputs, makes an earlier value the prediction, or simplifies the loss.
  bool results() {
    if (attempt([](Recipe &r) {
          if (r.classes[0].body.others.empty())
            return false;
          r.classes[0].body.others.pop_back();
          return tidy(r);
        }))
      return true;
    if (attempt([](Recipe &r) {
          if (r.targets() == 1)
            return false;
          r.classes[0].body.second = -1;
          r.fields.pop_back();
          return true;
        }))
      return true;
    for (int value = best.classes[0].body.inputs; value < best.classes[0].body.result; ++value)
      for (const char *loss : {"", "product"})
        if (attempt([&](Recipe &r) {
              r.classes[0].body.result = value;
              if (*loss && r.loss != loss) {
                r.loss = loss;
                r.fields[r.fields.size() - r.targets()] = {"target", FieldType::F32, {}, 0};
              }
              tidy(r);
              return fitTarget(r);
            }))
          return true;
    return attempt([](Recipe &r) {
      if (r.loss == "product")
        return false;
      r.loss = "product";
      r.fields[r.fields.size() - r.targets()] = {"target", FieldType::F32, {}, 0};
      return fitTarget(r);
    });
  }

  /// Replaces each node in turn by one of its operands or by an input.
  bool nodes() {
    bool better = false;
    for (size_t c = 0; c < best.classes.size(); ++c)
      for (size_t n = best.classes[c].body.nodes.size(); n-- > 0;) {
        if (n >= best.classes[c].body.nodes.size())
          continue;
        const Node node = best.classes[c].body.nodes[n];
        std::vector<int> by = node.in;
        for (int value = 0; value < best.classes[c].body.inputs; ++value)
          by.push_back(value);
        for (const int value : by)
          if (attempt([&](Recipe &r) {
                replace(r.classes[c].body, r.classes[c].body.inputs + static_cast<int>(n), value);
                tidy(r);
                return c > 0 || fitTarget(r);
              })) {
            better = true;
            break;
          }
      }
    return better;
  }

  /// Turns values of the root into inputs.
  bool inputs() {
    bool better = false;
    for (size_t n = best.classes[0].body.nodes.size(); n-- > 0;)
      better |= attempt([&](Recipe &r) {
        Body &body = r.classes[0].body;
        const std::vector<Shape> shapes = shapesOrNone(r);
        const int value = body.inputs + static_cast<int>(n);
        if (body.inputs >= 3 || static_cast<size_t>(value) >= shapes.size() || body.nodes[n].op == "withSharding")
          return false;
        const Shape shape = shapes[static_cast<size_t>(value)];
        if (shape.size() < 2 || shape[0] != r.rows())
          return false;
        renumber(body, body.inputs, 1);
        replace(body, value + 1, body.inputs);
        r.fields.insert(r.fields.end() - static_cast<long>(r.targets()), {fmt::format("z{}", ++fresh), FieldType::F32, {shape.begin() + 1, shape.end()}});
        ++body.inputs;
        return tidy(r);
      });
    return better;
  }

  bool members() {
    bool better = false;
    for (size_t c = 0; c < best.classes.size(); ++c)
      for (size_t m = 0; m < best.classes[c].members.size(); ++m) {
        better |= attempt([&](Recipe &r) {
          Part &part = r.classes[c].members[m];
          const bool frozen = part.frozen;
          part.frozen = false;
          return frozen;
        });
        better |= attempt([&](Recipe &r) {
          Part &part = r.classes[c].members[m];
          if (part.kind != "List" || part.ints[0] < 2)
            return false;
          --part.ints[0];
          return true;
        });
      }
    better |= attempt([](Recipe &r) {
      size_t before = 0, left = 0;
      for (Class &cls : r.classes) {
        before += cls.members.size();
        dropMembers(cls);
        left += cls.members.size();
      }
      return left < before;
    });
    better |= attempt([](Recipe &r) { // classes without instances
      std::set<int> used{0};
      for (const Class &cls : r.classes)
        for (const Part &part : cls.members)
          used.insert(part.cls);
      const size_t before = r.classes.size();
      while (!used.count(static_cast<int>(r.classes.size()) - 1))
        r.classes.pop_back();
      return r.classes.size() < before;
    });
    return better;
  }

  /// Reduces sizes, each everywhere it occurs, and the number of rows.
  bool numbers() {
    std::set<int64_t> sizes;
    for (const Field &field : best.fields)
      sizes.insert(field.shape.begin(), field.shape.end());
    for (const Class &cls : best.classes)
      for (const Part &part : cls.members)
        sizes.insert(part.ints.begin(), part.ints.end());
    bool better = false;
    for (auto it = sizes.rbegin(); it != sizes.rend(); ++it)
      for (const int64_t to : {1, 2, 3, 4})
        if (to < *it && attempt([&](Recipe &r) {
              const auto change = [&](std::vector<int64_t> &list) { std::replace(list.begin(), list.end(), *it, to); };
              for (Field &field : r.fields)
                change(field.shape);
              for (Class &cls : r.classes) {
                for (Part &part : cls.members)
                  change(part.ints);
                for (Node &node : cls.body.nodes)
                  if (node.op != "batchNorm")
                    change(node.ints);
              }
              return fitTarget(r);
            })) {
          better = true;
          break;
        }
    for (int64_t rows = 1; rows < best.rows(); ++rows)
      if (attempt([&](Recipe &r) {
            const int64_t before = r.rows();
            r.batch = rows * r.microbatches;
            for (Class &cls : r.classes)
              for (Node &node : cls.body.nodes)
                if (node.op == "reshape" && !node.ints.empty() && node.ints[0] == before)
                  node.ints[0] = rows;
            return true;
          })) {
        better = true;
        break;
      }
    return better;
  }

  Recipe best;
  RunSettings settings;
  std::string kind;
  ChildLimits limits;
  Clock::time_point began;
  int tried = 0, fresh = 0;
};

} // namespace

Recipe reduced(Recipe recipe, const RunSettings &settings, const std::string &kind, const ChildLimits &limits) {
  return Reducer(std::move(recipe), settings, kind, limits).run();
}

} // namespace cleave::random_models
