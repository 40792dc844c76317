// Valid and invalid launcher environments, and rank 0's port if the launcher uses MASTER_PORT itself.
#include "runtime/base/Error.h"
#include "runtime/comm/socket/AgentStore.h"
#include "runtime/comm/socket/TorchEnvironment.h"
#include "tests/support/LauncherVariables.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <thread>

using namespace cleave;
using Catch::Matchers::Contains;

namespace {

using Said = test::LauncherVariables;
using Values = Said::Values;
const Values right{{"RANK", "3"},        {"WORLD_SIZE", "4"},     {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"},
                   {"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}};

std::string mistake(Values values) {
  const Said said(values);
  try {
    torchEnvironment();
  } catch (const Error &error) {
    return (error.status == Status::User ? "" : "not a user's mistake: ") + std::string(error.what());
  }
  return "no mistake";
}

Values with(const std::string &name, const std::string &value) {
  Values values = right;
  value.empty() ? void(values.erase(name)) : void(values[name] = value);
  return values;
}

/// A key-value store with torchrun's protocol, for one client after the other; it stores one value.
class Store {
public:
  Store(const Socket &listener, int clients) {
    for (int i = 0; i < clients; ++i) {
      Socket client;
      while (!client)
        client = acceptFrom(listener);
      serve(client);
    }
  }
  std::string key, value;
  bool validated = true;

private:
  template <typename T> T read(const Socket &client) {
    T found{};
    receiveAll(client, &found, sizeof found, deadlineIn(10), -1);
    return found;
  }
  std::string text(const Socket &client) {
    std::string found(read<uint64_t>(client), '\0');
    receiveAll(client, found.data(), found.size(), deadlineIn(10), -1);
    return found;
  }
  void serve(const Socket &client) {
    validated = validated && read<char>(client) == 0 && read<uint32_t>(client) == 0x3c85f7ce;
    for (char query; receiveAll(client, &query, 1, deadlineIn(10), -1) == Transfer::Done;) {
      if (query == 1) {
        key = text(client);
        value = text(client);
      } else if (query == 6) {
        read<uint64_t>(client);
        text(client);
        const char stop = 0;
        sendAll(client, &stop, 1, deadlineIn(10), -1);
      } else {
        text(client);
        const uint64_t size = value.size();
        sendAll(client, &size, sizeof size, deadlineIn(10), -1);
        sendAll(client, value.data(), value.size(), deadlineIn(10), -1);
      }
    }
  }
};

} // namespace

TEST_CASE("torchrun's environment: what it says") {
  const Said said(right);
  const auto found = torchEnvironment();
  REQUIRE(found);
  CHECK(found->rank == 3);
  CHECK(found->size == 4);
  CHECK(found->localRank == 1);
  CHECK(found->localSize == 2);
  CHECK(found->address == "h");
  CHECK(found->port == 29500);
  CHECK(found->storeKey.empty());
}

TEST_CASE("torchrun's environment: none, and one process") {
  for (const Values &values :
       {Values{}, Values{{"WORLD_SIZE", "1"}}, Values{{"RANK", "0"}}, Values{{"MASTER_ADDR", "h"}}}) {
    const Said said(values);
    CHECK(!torchEnvironment());
  }
  const Said said({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}});
  CHECK(torchEnvironment()->size == 1);
}

TEST_CASE("torchrun's environment: mistakes name the variable and its value") {
  CHECK(mistake(with("RANK", "4")) == "RANK=4: must be below WORLD_SIZE=4");
  CHECK_THAT(mistake(with("RANK", "-1")), Contains("RANK=-1: must be a number from 0"));
  CHECK_THAT(mistake(with("WORLD_SIZE", "four")), Contains("WORLD_SIZE=four: must be a number from 1"));
  CHECK_THAT(mistake(with("WORLD_SIZE", "0")), Contains("WORLD_SIZE=0"));
  CHECK_THAT(mistake(with("WORLD_SIZE", "4x")), Contains("WORLD_SIZE=4x"));
  CHECK_THAT(mistake(with("MASTER_PORT", "65536")), Contains("MASTER_PORT=65536: must be a number from 1 to 65535"));
  CHECK_THAT(mistake(with("LOCAL_RANK", "2")), Contains("LOCAL_RANK=2"));
  CHECK_THAT(mistake(with("LOCAL_WORLD_SIZE", "5")), Contains("LOCAL_WORLD_SIZE=5"));
  for (const char *name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    CHECK_THAT(mistake(with(name, "")), Contains(std::string(name) + " is not set"));
}

TEST_CASE("torchrun's environment: where torchrun holds the port, its store says where rank 0 listens") {
  Values values = with("TORCHELASTIC_USE_AGENT_STORE", "True");
  values["TORCHELASTIC_RUN_ID"] = "job";
  values["TORCHELASTIC_RESTART_COUNT"] = "2";
  const Said said(values);
  TorchEnvironment who = *torchEnvironment();
  CHECK(who.storeKey == "cleave/job/2");
  const Socket listener = listenOn(0);
  who.address = "127.0.0.1";
  who.port = Endpoint::ofSelf(listener).port();
  std::string key, value;
  bool validated = false;
  std::thread server([&] {
    const Store store(listener, 2);
    key = store.key;
    value = store.value;
    validated = store.validated;
  });
  const AgentStore::Said given{4321, std::string(32, 'f')};
  AgentStore(who, deadlineIn(10)).publish(given);
  const AgentStore::Said found = AgentStore(who, deadlineIn(10)).find();
  server.join();
  CHECK(found == given);
  CHECK(validated);
  CHECK(key == "cleave/job/2");
  CHECK(value == "4321 " + given.secret);
}
