// Failures on demand: CLEAVE_FAKE_NCCL="async=AllReduce:3,hang=Send:2,order=member,fail=ncclAllReduce:2:5".
//
//   async=NAME:NTH[:RESULT]  the nth execution of NAME never ends, and RESULT (default: ncclSystemError) is the
//                            communicator's asynchronous error
//   hang=NAME:NTH            the nth execution of NAME never ends
//   fail=FUNCTION:NTH:RESULT the nth call returns RESULT
//   order=member             reductions in the order 0, 1, ... instead of a ring's order
#include "tests/fake/nccl/Comm.h"

#include "tests/fake/cuda/Fake.h"
#include "tests/fake/nccl/Fake.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace cleave::fake {

namespace {

struct Planned {
  std::string name;
  uint64_t at;
  bool hang;
  ncclResult_t error;
};

struct Settings {
  std::mutex lock;
  std::vector<Planned> planned;
  std::map<std::string, uint64_t> executed;
  bool memberOrder = false;
};

void apply(Settings &s, const std::string &key, const std::string &value) {
  std::stringstream parts(value);
  std::string name, nth, code;
  std::getline(parts, name, ':');
  std::getline(parts, nth, ':');
  std::getline(parts, code, ':');
  const uint64_t number = std::strtoull(nth.c_str(), nullptr, 10);
  if (key == "async")
    s.planned.push_back({name, s.executed[name] + number, true,
                         code.empty() ? ncclSystemError : static_cast<ncclResult_t>(std::atoi(code.c_str()))});
  else if (key == "hang")
    s.planned.push_back({name, s.executed[name] + number, true, ncclSuccess});
  else if (key == "fail")
    cleaveFakeFail(name.c_str(), static_cast<int>(number), std::atoi(code.c_str()));
  else if (key == "order")
    s.memberOrder = value == "member";
  else
    std::fprintf(stderr, "fake NCCL: unknown setting %s\n", key.c_str());
}

void applyAll(Settings &s, const char *text) {
  std::stringstream all(text);
  for (std::string one; std::getline(all, one, ',');)
    if (const size_t sign = one.find('='); sign != std::string::npos)
      apply(s, one.substr(0, sign), one.substr(sign + 1));
}

Settings &settings() {
  static Settings *s = [] {
    auto *made = new Settings;
    if (const char *text = std::getenv("CLEAVE_FAKE_NCCL"))
      applyAll(*made, text);
    return made;
  }();
  return *s;
}

} // namespace

Fate fateOf(Kind kind) {
  Settings &s = settings();
  std::unique_lock lock(s.lock);
  const uint64_t number = ++s.executed[nameOf(kind)];
  for (const Planned &p : s.planned)
    if (p.name == nameOf(kind) && p.at == number)
      return {p.hang, p.error};
  return {};
}

bool memberOrder() { return settings().memberOrder; }

ncclResult_t countCall(const char *function) {
  settings();
  return static_cast<ncclResult_t>(cleaveFakeCount(function));
}

} // namespace cleave::fake

void cleaveFakeNcclSet(const char *text) {
  cleave::fake::Settings &s = cleave::fake::settings();
  std::unique_lock lock(s.lock);
  s.planned.clear();
  s.memberOrder = false;
  cleave::fake::applyAll(s, text);
}
