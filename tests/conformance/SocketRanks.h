// Ranks as threads that connect over sockets, each as a process would.
#pragma once
#include "runtime/comm/socket/Socket.h"
#include "runtime/comm/socket/TorchEnvironment.h"

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace cleave::test {

inline TorchEnvironment rankOf(unsigned rank, unsigned size, uint16_t port) {
  TorchEnvironment who;
  who.rank = rank;
  who.size = size;
  who.address = "127.0.0.1";
  who.port = port;
  return who;
}

inline uint16_t freePort() { return Endpoint::ofSelf(listenOn(0)).port(); }

/// Runs `fn` in a thread for every rank. Returns the message that each rank threw, "" if none.
inline std::vector<std::string> eachRank(unsigned ranks, const std::function<void(unsigned)> &fn) {
  std::vector<std::string> thrown(ranks);
  std::vector<std::thread> threads;
  for (unsigned rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        fn(rank);
      } catch (const std::exception &error) {
        thrown[rank] = error.what();
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  return thrown;
}

/// What eachRank returns if no rank throws.
inline std::vector<std::string> none(unsigned ranks) { return std::vector<std::string>(ranks); }

inline bool has(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

} // namespace cleave::test
