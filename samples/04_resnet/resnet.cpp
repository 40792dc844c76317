// Lesson 4: residual networks. README.md in this folder explains it.
// He et al. 2016; v1.5: a bottleneck's stride is in its 3x3 convolution.
#include <cleave/cleave.h>
using namespace cleave;

struct ResNetOptions {
  int64_t depth = 18;
  std::string stem = "small"; ///< "small": 3x3, stride 1, no pool; "imagenet": 7x7, stride 2, then a pool
  int64_t image = 28, classes = 10, channels = 1;
  double smoothing = 0;
  double deviation = 0;   ///< > 0: all weights are drawn from N(0, deviation)
  bool zeroNorms = false; ///< each block begins as its shortcut: Goyal et al. 2017
};

/// Convolution without bias, then batch normalisation.
struct ConvNorm : Module {
  Conv2d conv;
  BatchNorm2d norm;

  ConvNorm(Module &parent, std::string name, int64_t in, int64_t out, int64_t kernel, int64_t stride = 1)
      : Module(parent, std::move(name)),
        conv(*this, "conv", in, out, options(kernel, stride)),
        norm(*this, "norm", out) {}
  static Conv2dOptions options(int64_t kernel, int64_t stride) {
    const Init begin = init::kaimingNormal(0, true);
    return {.kernel = kernel, .stride = stride, .padding = kernel / 2, .bias = false, .weightInit = begin};
  }
  Tensor forward(Tensor x) { return norm(conv(x)); }
};

/// Two 3x3 convolutions, or 1x1, 3x3, 1x1 with four times as many channels at the end, and a shortcut.
struct Residual : Module {
  ModuleList<ConvNorm> convs{*this, "convs"};
  ModuleList<ConvNorm> shortcut{*this, "shortcut"}; // empty: the identity

  Residual(Module &parent, std::string name, int64_t in, int64_t width, int64_t stride, const ResNetOptions &o)
      : Module(parent, std::move(name)) {
    const bool bottleneck = o.depth >= 50;
    const int64_t out = bottleneck ? 4 * width : width;
    if (bottleneck) {
      convs.emplace(in, width, 1);
      convs.emplace(width, width, 3, stride);
      convs.emplace(width, out, 1);
    } else {
      convs.emplace(in, width, 3, stride);
      convs.emplace(width, out, 3);
    }
    if (o.zeroNorms)
      convs[convs.size() - 1].norm.weight.initialise(init::zeros());
    if (stride != 1 || in != out)
      shortcut.emplace(in, out, 1, stride);
  }

  Tensor forward(Tensor x) {
    Tensor y = x;
    for (int64_t i = 0; i < convs.size(); ++i)
      y = i + 1 < convs.size() ? relu(convs[i](y)) : convs[i](y);
    return relu(y + shortcut(x));
  }
};

struct ResNet : Module {
  bool imagenet;
  ConvNorm stem;
  ModuleList<ModuleList<Residual>> stages{*this, "stages"};
  std::optional<Linear> fc;

  explicit ResNet(const ResNetOptions &o)
      : imagenet(o.stem == "imagenet"),
        stem{*this, "stem", o.channels, 64, imagenet ? 7 : 3, imagenet ? 2 : 1} {
    const bool bottleneck = o.depth >= 50;
    const int64_t few[] = {2, 2, 2, 2}, many[] = {3, 4, 6, 3};
    int64_t in = 64;
    for (int64_t i = 0; i < 4; ++i) {
      auto &stage = stages.emplace();
      for (int64_t j = 0; j < (o.depth == 18 ? few : many)[i]; ++j) {
        const int64_t width = 64 << i, stride = i > 0 && j == 0 ? 2 : 1;
        stage.emplace(in, width, stride, o);
        in = bottleneck ? 4 * width : width;
      }
    }
    fc.emplace(*this, "fc", in, o.classes);
    for (Parameter *parameter : parameters())
      if (o.deviation > 0 && parameter->shape().size() > 1)
        parameter->initialise(init::normal(0, o.deviation));
    if (o.deviation > 0)
      fc->bias->initialise(init::zeros());
  }

  Tensor forward(Tensor image) {
    Tensor x = relu(stem(image));
    if (imagenet)
      x = maxPool2d(x, 3, {.stride = 2, .padding = 1});
    return (*fc)(globalAvgPool(stages(x)));
  }
};

int main(int argc, char **argv) {
  Program program{"resnet", argc, argv};
  ResNetOptions o{.depth = program.option<int64_t>("--depth", 18, "layers", {18, 34, 50}),
                  .stem = program.option("--stem", "small", "first layer: small or imagenet", {"small", "imagenet"}),
                  .image = program.option("--image", 28, "height and width of the images", between(1, 1'000'000)),
                  .classes = program.option("--classes", 10, "classes", between(1, 1'000'000)),
                  .channels = program.option("--channels", 1, "channels of the images", between(1, 1'000'000))};
  const Mix mix{.mixup = program.option("--mixup", 0.0, "alpha of Mixup; 0: pictures are not blended"),
                .cutMix = program.option("--cutmix", 0.0, "alpha of CutMix; 0: no boxes of another picture")};
  const bool photographs = o.channels == 3; // digits are given as they are
  o.zeroNorms =
      program.option("--zero-norms", photographs, "blocks begin as their shortcuts: their last norms scale by 0");
  o.deviation = program.option("--init-normal", 0.0, "standard deviation of all weights; 0: Kaiming's initialisation");
  o.smoothing = program.option("--label-smoothing", 0.0, "part of the target that is spread over all classes");
  Pictures pictures{.channels = o.channels, .height = o.image, .width = o.image, .classes = o.classes};
  std::vector<ParameterGroup> groups;
  if (photographs) {
    pictures.train = imageNetTraining(o.image);
    pictures.eval = imageNetEvaluation(o.image);
    groups = {{.pattern = "*.norm.*", .weightDecay = 0.0}, {.pattern = "fc.bias", .weightDecay = 0.0}};
  }
  const auto loss = [=](Tensor logits, Tensor labels) {
    Loss loss = crossEntropy(logits, labels, {.labelSmoothing = o.smoothing});
    if (photographs && o.classes > 5 && labels.dtype() == DType::I32) // not of mixed pictures
      loss.top = {{5, topCorrect(logits, labels, 5)}};
    return loss;
  };
  return program.run<ResNet>({.data = pictures,
                              .loss = loss,
                              .optimizer = Sgd{.lr = 0.1, .momentum = 0.9, .weightDecay = 0.0005},
                              .learningRateBatch = 256,
                              .groups = groups,
                              .mix = mix,
                              .batch = 64},
                             o);
}
