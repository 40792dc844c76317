// What tracing finds of indices: rules for the values of data fields, counts of computed ones, and those that are valid
// by construction.
#include "tests/unit/frontend/Support.h"

#include <cstring>

using namespace cleave;
using namespace cleave::test;

namespace {

struct Ids : Dataset {
  std::vector<DataField> list;
  explicit Ids(int64_t classes)
      : list{{"ids", FieldType::I32, {6, 3}}, {"bytes", FieldType::U8, {4}}, {"label", FieldType::I32, {}, classes}} {}
  const std::vector<DataField> &fields() const override { return list; }
  int64_t samples(Split) const override { return 8; }
  void read(Split, int64_t, size_t field, std::byte *to) const override {
    std::memset(to, 0, static_cast<size_t>(list[field].bytes()));
  }
};

/// Looks up what `body` makes of ids [4, 6, 3] and bytes [4, 4] in a table of 10 rows.
struct Looked : Module {
  std::function<Tensor(Tensor, Tensor)> body;
  Parameter table{*this, "table", {10, 5}};
  explicit Looked(std::function<Tensor(Tensor, Tensor)> body) : body(std::move(body)) {}
  Tensor forward(Tensor ids, Tensor bytes) {
    const Tensor found = embedding(body(ids, bytes), table);
    return sum(reshape(found, {4, -1, 5}), {1});
  }
};

std::string graphOf(std::function<Tensor(Tensor, Tensor)> body, int64_t classes = 0, LossFunction loss = crossEntropy) {
  Looked model(std::move(body));
  TrainConfig config{.loss = std::move(loss)};
  config.data = std::shared_ptr<Dataset>(std::make_shared<Ids>(classes));
  return forwardPart(traced(model, config));
}

const std::string ofLabel = "#cleave.indices<\"crossEntropy at IndicesTest.cpp:";

} // namespace

TEST_CASE("values of data fields that are read as indices have a rule") {
  const std::string whole = graphOf([](Tensor ids, Tensor) { return ids; });
  CHECK(has(whole, "\", 0, 10 from[0, 0] size[6, 3]>]"));
  CHECK(has(whole, ofLabel));
  CHECK(has(whole, ", -2147483648, 5 ignored -100>]")); // negative labels are left out
  CHECK_FALSE(has(whole, "invalid"));
  const auto part = [](auto body) { return graphOf(std::move(body)); };
  CHECK(has(part([](Tensor ids, Tensor) { return slice(ids, 1, 2, 5); }), "from[2, 0] size[3, 3]>"));
  CHECK(has(part([](Tensor ids, Tensor) { return select(slice(ids, 1, 2, 5), 2, 1); }), "from[2, 1] size[3, 1]>"));
  CHECK(has(part([](Tensor ids, Tensor) { return transpose(reshape(ids, {4, 18}), 0, 1); }), "from[0, 0] size[6, 3]>"));
  CHECK(has(part([](Tensor, Tensor bytes) { return slice(cast(bytes, DType::I32), 1, 1, 3); }), "from[1] size[2]>"));
  const std::string two =
      part([](Tensor ids, Tensor) { return concat({slice(ids, 1, 0, 1), slice(ids, 1, 5, 6)}, 1); });
  CHECK(has(two, "invalid")); // of several parts
}

TEST_CASE("computed indices are counted unless they are valid by construction") {
  const auto counted = [](auto body) { return has(graphOf(std::move(body)), "cleave.kind = \"invalid\""); };
  CHECK(counted([](Tensor ids, Tensor) { return ids + 1; }));
  CHECK(counted([](Tensor ids, Tensor) { return maximum(ids, 0); }));
  CHECK(counted([](Tensor ids, Tensor) { return slice(reshape(ids, {4, 18}), 0, 0, 2); })); // of some samples only
  CHECK(counted([](Tensor ids, Tensor) { return where(ids < 5, ids, 3); }));
  CHECK(counted([](Tensor ids, Tensor) { return argmax(cast(reshape(ids, {4, 18}), DType::F32), -1); })); // 18 > 10
  CHECK_FALSE(counted([](Tensor ids, Tensor) { return clamp(ids, 0, 9); }));
  CHECK_FALSE(counted([](Tensor ids, Tensor) { return argmax(cast(ids, DType::F32), -1) + 7; }));
  CHECK_FALSE(counted([](Tensor ids, Tensor) { return sort(cast(ids, DType::F32), 1).indices; }));
  CHECK_FALSE(counted([](Tensor ids, Tensor) { return topk(cast(ids, DType::F32), 2, 1).indices; }));
  CHECK_FALSE(counted([](Tensor ids, Tensor) { return cast(ids > 3, DType::I32); }));
  CHECK_FALSE(counted([](Tensor ids, Tensor) { return where(ids > 3, full({4, 6, 3}, 9, DType::I32), arange(3)); }));
  CHECK(
      has(graphOf([](Tensor ids, Tensor) { return ids; }, 0, [](Tensor x, Tensor y) { return crossEntropy(x, y * y); }),
          "cleave.name = \"crossEntropy at IndicesTest.cpp:"));
}

TEST_CASE("constant indices are known when the model is traced") {
  const std::string message = mistake([] { graphOf([](Tensor, Tensor) { return reshape(arange(12), {4, 3}); }); });
  CHECK(has(message, "embedding: the constant indices lie in [0, 11], but an index must lie in [0, 10) here"));
  CHECK(has(message, "IndicesTest.cpp:"));
  CHECK_FALSE(has(graphOf([](Tensor, Tensor) { return reshape(arange(8), {4, 2}); }), "invalid"));
}

TEST_CASE("declared classes are compared with the outputs") {
  const auto ids = [](Tensor ids, Tensor) { return ids; };
  CHECK(has(graphOf(ids, 5), ofLabel));
  const std::string message = mistake([&] { graphOf(ids, 6); });
  CHECK(has(message,
            "crossEntropy: field label of the data has values from 0 to 5, but an index must be less than 5 here"));
  const auto ignoring = [](Tensor x, Tensor y) { return crossEntropy(x, y, {.ignoreIndex = 5}); };
  CHECK(has(graphOf(ids, 6, ignoring), "-2147483648, 5 ignored 5>"));
}
