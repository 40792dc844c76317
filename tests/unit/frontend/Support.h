// Helpers: trace a model, and get the message of a mistake.
#pragma once
#include "frontend/trace/TraceModel.h"
#include "runtime/base/Error.h"

#include <catch2/catch.hpp>
#include <cleave/cleave.h>

namespace cleave::test {

template <class M> std::string traced(M &module, TrainConfig config = {}, int64_t rows = 4) {
  return traceModel(makeModel(module), config, rows).str();
}

/// The text of the graph before @eval, and from @eval on.
inline std::string forwardPart(const std::string &text) { return text.substr(0, text.find("@eval")); }
inline std::string evalPart(const std::string &text) { return text.substr(text.find("@eval")); }

inline bool has(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

inline size_t count(const std::string &text, const std::string &part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

/// Message of the user error that `fn` throws.
template <class F> std::string mistake(F fn) {
  try {
    fn();
  } catch (const Error &e) {
    CHECK(e.status == Status::User);
    return e.what();
  }
  FAIL("no error was thrown");
  return "";
}

/// A model whose forward is a function: takes images [4, 1, 28, 28], must return logits [4, 10].
struct Lambda : Module {
  std::function<Tensor(Lambda &, Tensor)> body;
  explicit Lambda(std::function<Tensor(Lambda &, Tensor)> body) : body(std::move(body)) {}
  Tensor forward(Tensor image) { return body(*this, image); }
};

/// Logits from any tensor with at least 40 elements.
inline Tensor tenLogits(Tensor x) {
  Tensor flat = reshape(x, {-1});
  return reshape(slice(flat, 0, 0, 40), {4, 10});
}

} // namespace cleave::test
