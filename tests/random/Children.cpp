// One child process per case; results are returned through a pipe.
#include "tests/random/Children.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

namespace cleave::random_models {

namespace {

using Clock = std::chrono::steady_clock;

constexpr char separator = '\x1f';

std::string packed(const Result &r) {
  std::string out = fmt::format("{}{}{}{}", static_cast<int>(r.verdict), int(r.exact), int(r.executed), int(r.unbounded));
  for (const std::string *part : {&r.kind, &r.text, &r.covered})
    out += separator + *part;
  return out;
}

Result unpacked(const std::string &text) {
  Result r;
  r.verdict = static_cast<Verdict>(text.at(0) - '0');
  r.exact = text.at(1) == '1', r.executed = text.at(2) == '1', r.unbounded = text.at(3) == '1';
  size_t from = 5;
  for (std::string *part : {&r.kind, &r.text, &r.covered}) {
    const size_t end = std::min(text.find(separator, from), text.size());
    *part = text.substr(from, end - from);
    from = end + 1;
  }
  return r;
}

struct Child {
  size_t index;
  pid_t pid;
  int pipe;
  Clock::time_point deadline;
  std::string text;
  bool late = false;
};

Child start(size_t index, const ChildLimits &limits, const std::function<Result(size_t)> &work) {
  int ends[2];
  if (::pipe(ends) != 0)
    throw std::runtime_error(fmt::format("no pipe: {}", std::strerror(errno)));
  std::fflush(stdout);
  const pid_t pid = ::fork();
  if (pid < 0)
    throw std::runtime_error(fmt::format("no process: {}", std::strerror(errno)));
  if (pid == 0) {
    ::close(ends[0]);
    const std::string text = packed(work(index));
    for (size_t done = 0; done < text.size();) {
      const ssize_t wrote = ::write(ends[1], text.data() + done, text.size() - done);
      if (wrote < 0 && errno != EINTR)
        break;
      done += wrote > 0 ? static_cast<size_t>(wrote) : 0;
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  return {index, pid, ends[0],
          Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limits.seconds)), {}};
}

Result failure(const std::string &kind, const std::string &text) {
  Result result;
  result.verdict = Verdict::Failed, result.kind = kind, result.text = text;
  return result;
}

Result resultOf(Child &child, const ChildLimits &limits) {
  int status = 0;
  ::waitpid(child.pid, &status, 0);
  ::close(child.pipe);
  if (child.late)
    return failure("hangs", fmt::format("no result after {} seconds", limits.seconds));
  if (WIFSIGNALED(status))
    return failure(fmt::format("crash: {}", ::strsignal(WTERMSIG(status))), child.text);
  if (WEXITSTATUS(status) != 0 || child.text.size() < 5)
    return failure(fmt::format("ends with status {}", WEXITSTATUS(status)), child.text);
  return unpacked(child.text);
}

/// Reads output of a child. Returns false if the child has ended.
bool read(Child &child) {
  char buffer[4096];
  const ssize_t got = ::read(child.pipe, buffer, sizeof buffer);
  if (got > 0)
    child.text.append(buffer, static_cast<size_t>(got));
  return got > 0 || (got < 0 && errno == EINTR);
}

} // namespace

void runInChildren(size_t count, const ChildLimits &limits, const std::function<Result(size_t)> &work,
                   const std::function<bool(size_t, const Result &)> &take) {
  std::vector<Child> running;
  size_t next = 0;
  bool more = true;
  while (true) {
    while (more && next < count && running.size() < limits.jobs)
      running.push_back(start(next++, limits, work));
    if (running.empty())
      return;
    std::vector<pollfd> waits;
    for (const Child &child : running)
      waits.push_back({child.pipe, POLLIN, 0});
    ::poll(waits.data(), waits.size(), 200);
    for (size_t i = running.size(); i-- > 0;) {
      Child &child = running[i];
      bool ended = waits[i].revents && !read(child);
      if (!ended && Clock::now() > child.deadline) {
        ::kill(child.pid, SIGKILL);
        child.late = ended = true;
      }
      if (!ended)
        continue;
      more &= take(child.index, resultOf(child, limits));
      running.erase(running.begin() + static_cast<long>(i));
    }
  }
}

Result runInChild(const Recipe &recipe, const RunSettings &settings, const ChildLimits &limits) {
  Result result;
  runInChildren(
      1, limits, [&](size_t) { return run(recipe, settings); },
      [&](size_t, const Result &r) {
        result = r;
        return true;
      });
  return result;
}

} // namespace cleave::random_models
