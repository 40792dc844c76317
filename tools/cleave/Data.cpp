// cleave data: what a folder of pictures holds, and which of its files are damaged.
#include "runtime/base/Error.h"
#include "runtime/base/Thread.h"
#include "runtime/data/PictureSource.h"
#include "runtime/options/CommandLine.h"
#include "tools/cleave/Commands.h"

#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <limits>
#include <mutex>
#include <thread>

namespace cleave::tool {
namespace {

/// What reading every picture of a split found.
struct SplitFound {
  std::vector<int64_t> ofClass;                     ///< pictures, by label
  std::vector<std::pair<int64_t, std::string>> bad; ///< by index, with what is wrong
  std::vector<std::pair<int64_t, int64_t>> sizes;   ///< width and height of the good ones
};

SplitFound readAll(const PictureSet &set, unsigned threads) {
  SplitFound found;
  for (int64_t i = 0; i < set.count(); ++i) {
    const auto label = static_cast<size_t>(set.label(i));
    found.ofClass.resize(std::max(found.ofClass.size(), label + 1));
    ++found.ofClass[label];
  }
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  const auto work = [&] {
    for (int64_t i = next++; i < set.count(); i = next++) {
      PictureSize size;
      std::string wrong;
      try {
        set.with(i, DecodeMode::Exact, [&](const EncodedPicture &picture) {
          picture.whole();
          size = picture.size();
        });
      } catch (const Error &error) {
        wrong = error.what();
      }
      std::lock_guard lock(mutex);
      if (wrong.empty())
        found.sizes.emplace_back(size.width, size.height);
      else
        found.bad.emplace_back(i, wrong);
    }
  };
  std::vector<std::thread> others;
  try {
    for (unsigned i = 1; i < threads; ++i)
      others.push_back(startThread("reading pictures", work));
  } catch (const Error &) { // fewer threads do the same
  }
  work();
  for (std::thread &other : others)
    other.join();
  std::ranges::sort(found.bad);
  return found;
}

} // namespace

int data(int argc, char **argv) {
  CLI::App app{
      "Reads all pictures of a data set: the number of each class, their sizes, and the files that are damaged.",
      "cleave data"};
  std::string folder;
  bool json = false;
  unsigned threads = std::max(1U, std::thread::hardware_concurrency());
  app.add_option("folder", folder, "folder of the data set, as --data of programs takes it")
      ->type_name("DIR")
      ->required();
  app.add_option("--threads", threads, "that read pictures (default: one for each processor)")
      ->type_name("T")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--json", json, "print one JSON object");
  if (!parseCommandLine(app, {argv + 1, argv + argc}))
    return 0;
  constexpr int64_t anyClass = std::numeric_limits<int32_t>::max();
  const PictureSet train(folder, Split::Train, anyClass), val(folder, Split::Eval, anyClass);
  requireClasses(train.classes(), folder + "/train", val.classes(), folder + "/val");
  SplitFound found[] = {readAll(train, threads), readAll(val, threads)};

  const size_t classes = std::max(found[0].ofClass.size(), found[1].ofClass.size());
  std::vector<std::string> names = train.classes();
  for (size_t i = names.size(); i < classes; ++i)
    names.push_back(std::to_string(i));
  nlohmann::ordered_json report{
      {"kind", train.kind()}, {"classes", names}, {"train", train.count()}, {"val", val.count()}};
  report["bad"] = found[0].bad.size() + found[1].bad.size();
  report["files"] = nlohmann::ordered_json::array();
  std::string text = fmt::format("{}: {} class{}, {} training and {} evaluation pictures\n", folder, names.size(),
                                 names.size() == 1 ? "" : "es", grouped(train.count()), grouped(val.count()));
  for (auto &split : found)
    split.ofClass.resize(classes);
  report["of_class"] = nlohmann::ordered_json::array();
  size_t widest = 5;
  for (const std::string &name : names)
    widest = std::max(widest, name.size());
  text += fmt::format("\n  {:<{}}  {:>9}  {:>10}\n", "class", widest, "training", "evaluation");
  for (size_t i = 0; i < classes; ++i) {
    report["of_class"].push_back({{"class", names[i]}, {"train", found[0].ofClass[i]}, {"val", found[1].ofClass[i]}});
    constexpr size_t shown = 20;
    if (i < shown)
      text += fmt::format("  {:<{}}  {:>9}  {:>10}\n", names[i], widest, found[0].ofClass[i], found[1].ofClass[i]);
    else if (i == shown)
      text += fmt::format("  and {} more\n", classes - shown);
  }
  std::vector<std::pair<int64_t, int64_t>> sizes = found[0].sizes;
  sizes.insert(sizes.end(), found[1].sizes.begin(), found[1].sizes.end());
  std::ranges::sort(sizes, {}, [](const auto &size) { return size.first * size.second; });
  if (!sizes.empty()) {
    const auto &least = sizes.front(), &median = sizes[sizes.size() / 2], &most = sizes.back();
    report["sizes"] = {{"least", {least.first, least.second}},
                       {"median", {median.first, median.second}},
                       {"most", {most.first, most.second}}};
    text += fmt::format("\nsizes: {} x {} to {} x {} pixels, the median {} x {}\n", least.first, least.second,
                        most.first, most.second, median.first, median.second);
  }
  text += fmt::format("{}\n", report["bad"] == 0 ? "no file is damaged"
                                                 : counted(report["bad"].get<size_t>(), "damaged file") + ":");
  for (const auto &[set, split] : {std::pair(&train, &found[0]), std::pair(&val, &found[1])})
    for (const auto &[index, wrong] : split->bad) {
      report["files"].push_back({{"file", set->name(index)}, {"problem", wrong}});
      text += "  " + wrong + "\n";
    }
  fmt::print("{}", json ? jsonText(report) + "\n" : text);
  if (report["bad"] != 0 && !json) // who asked for JSON reads "bad"
    throw environmentError(fmt::format("{}: {} of {} pictures cannot be used", folder, report["bad"].get<size_t>(),
                                       train.count() + val.count()));
  return 0;
}

} // namespace cleave::tool
