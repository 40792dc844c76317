// Pictures and their masks, moved alike by random numbers; --fault chooses a way in which a data set of the user's may
// be wrong.
#include <cleave/cleave.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
using namespace cleave;

struct Stripes : Dataset {
  std::string fault;
  std::vector<DataField> list{{"picture", FieldType::F32, {8}}, {"mask", FieldType::F32, {8}}};
  mutable std::atomic<int> reads{0}, threads{0};

  explicit Stripes(std::string fault) : fault(std::move(fault)) {}
  const std::vector<DataField> &fields() const override { return list; }
  int64_t samples(Split split) const override {
    if (fault == "count")
      throw std::runtime_error("the list of pictures is torn");
    return split == Split::Train ? 64 : 24;
  }
  /// A number that differs between ranks: of the process, or of the thread that reads.
  int rank() const {
    for (const char *name : {"RANK", "OMPI_COMM_WORLD_RANK"})
      if (const char *text = std::getenv(name))
        return std::atoi(text);
    thread_local const int mine = threads++;
    return mine;
  }
  void read(const SampleId &sample, Random &random, std::span<std::byte *const> to) const override {
    const bool chosen =
        sample.split == Split::Train && sample.index == 5; // not one of those that are read at the start
    if (chosen && fault == "throw" && (rank() == 1 || !std::getenv("RANK")))
      throw std::runtime_error("this picture is torn");
    if (fault == "order" && to[0])
      random.uniform(); // only if the picture is wanted
    const double shift = random.uniform(-1, 1) + (fault == "count-reads" ? reads++ : 0);
    Random noise = random.stream(0);
    for (int i = 0; i < 8; ++i) {
      const double pixel = shift + 0.1 * static_cast<double>((sample.index * 7 + i) % 11);
      const float picture =
          static_cast<float>(pixel + 0.01 * noise.normal() + (chosen && fault == "rank" ? rank() : 0));
      const float mask = static_cast<float>(pixel > 0);
      if (to[0] && !(fault == "unwritten" && i == 7))
        std::memcpy(to[0] + 4 * i, &picture, 4);
      if (to[1])
        std::memcpy(to[1] + 4 * i, &mask, 4);
    }
  }
};

/// The same with the simpler function, which throws.
struct Torn : Dataset {
  std::vector<DataField> list{{"picture", FieldType::F32, {8}}, {"mask", FieldType::F32, {8}}};
  const std::vector<DataField> &fields() const override { return list; }
  int64_t samples(Split) const override { return 64; }
  void read(Split, int64_t index, size_t field, std::byte *to) const override {
    if (field == 1 && index == 5)
      throw 42;
    std::memset(to, 0, 32);
  }
};

/// Numbers of a file, which --data names.
struct Numbers : Stripes {
  std::string text = "1";
  Numbers() : Stripes("none") {}
  void open(const std::string &path) override {
    std::ifstream file(path);
    if (!std::getline(file, text))
      throw std::runtime_error("holds no number");
  }
  void read(const SampleId &sample, Random &random, std::span<std::byte *const> to) const override {
    Stripes::read(sample, random, to);
    const float scale = std::stof(text);
    for (int i = 0; to[0] && i < 8; ++i) {
      float picture;
      std::memcpy(&picture, to[0] + 4 * i, 4);
      picture *= scale;
      std::memcpy(to[0] + 4 * i, &picture, 4);
    }
  }
};

/// The same with a fingerprint, which does not look at the last digit.
struct Known : Numbers {
  std::string fingerprint(Split) const override { return text.substr(0, text.size() - 1); }
};

struct Net : Module {
  std::string fault;
  Linear first{*this, "first", 8, 16}, second{*this, "second", 16, 8}, spare{*this, "spare", 5, 5};
  Net(std::string fault, bool freeze) : fault(std::move(fault)) {
    if (freeze) {
      first.freeze();
      spare.freeze(); // forward does not use it
    }
  }
  Tensor forward(Tensor picture) {
    if (fault == "forward")
      throw std::runtime_error("forward gives up");
    return second(tanh(first(picture)));
  }
};

int main(int argc, char **argv) {
  Program program{"own_data", argc, argv};
  const std::string fault = program.option("--fault", "none", "how the data set is wrong");
  const bool freeze = program.option("--freeze", false, "freeze some layers");
  std::shared_ptr<Dataset> data = std::make_shared<Stripes>(fault);
  if (fault == "torn")
    data = std::make_shared<Torn>();
  if (fault == "file")
    data = std::make_shared<Numbers>();
  if (fault == "known")
    data = std::make_shared<Known>();
  return program.run<Net>({.data = data, .loss = mseLoss, .optimizer = Sgd{.lr = 0.5}, .batch = 16}, fault, freeze);
}
