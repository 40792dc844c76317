// Models that the samples do not show, in their usual form but small: `compare --survey` measures them beside the same
// layers in PyTorch (survey.py). A model is a function that makes layers with a Net and returns what the Net computes.
#include <cleave/cleave.h>

#include <map>
using namespace cleave;

namespace {

using Layer = std::function<Tensor(Tensor)>;
using Attention = std::function<Tensor(Tensor x, Tensor y, Tensor mask)>;
using Forward = std::function<Tensor(const std::vector<Tensor> &)>;

Layer operator>>(const Layer &first, const Layer &second) {
  return [=](Tensor x) { return second(first(x)); };
}
Layer residual(const Layer &f) {
  return [=](Tensor x) { return x + f(x); };
}
Layer residual(const Layer &f, const Layer &shortcut) {
  return [=](Tensor x) { return relu(f(x) + shortcut(x)); };
}
Layer function(Tensor (*f)(Tensor, Where)) {
  return [=](Tensor x) { return f(x, Where::current()); };
}
Layer pool(int64_t kernel, int64_t stride, int64_t padding = 0) {
  return [=](Tensor x) { return maxPool2d(x, kernel, {.stride = stride, .padding = padding}); };
}
Layer drop(double p) {
  return [=](Tensor x) { return dropout(x, p); };
}
namespace act {
Tensor relu(Tensor x) { return cleave::relu(x); }
Tensor gelu(Tensor x) { return cleave::gelu(x); }
} // namespace act
Tensor same(Tensor x) { return x; }
Tensor turn(Tensor x) { return transpose(x, 1, 2); }
Tensor pooled(Tensor x) { return globalAvgPool(x); }
Tensor channelsLast(Tensor x) { return permute(x, {0, 2, 3, 1}); }
Tensor channelsFirst(Tensor x) { return permute(x, {0, 3, 1, 2}); }
Tensor tenth(Tensor x) { return dropout(x, 0.1); }

struct Window {
  int64_t stride = 1, padding = -1 /* kernel / 2 */, dilation = 1, groups = 1;
  bool bias = false;
};

struct Net : Module {
  explicit Net(const std::function<Forward(Net &)> &model) { body = model(*this); }
  Tensor forward(Tensor x) override { return body({x}); }
  Tensor forward(Tensor x, Tensor y) override { return body({x, y}); }
  Tensor forward(Tensor x, Tensor y, Tensor z) override { return body({x, y, z}); }

  /// A module or parameter of this model; a number is added to its name.
  template <class T, class... Args> T *make(const std::string &name, Args &&...args) {
    auto part = std::make_shared<T>(*this, name + std::to_string(parts.size()), std::forward<Args>(args)...);
    parts.push_back(part);
    return part.get();
  }
  template <class T, class... Args> Layer layer(const std::string &name, Args &&...args) {
    return [made = make<T>(name, std::forward<Args>(args)...)](Tensor x) -> Tensor { return (*made)(x); };
  }
  Layer linear(int64_t in, int64_t out) { return layer<Linear>("linear", in, out); }
  Layer norm(int64_t channels) { return layer<BatchNorm2d>("norm", channels); }
  Layer layerNorm(int64_t width) { return layer<LayerNorm>("norm", width); }
  Layer embed(int64_t rows, int64_t width) { return layer<Embedding>("embed", rows, width); }
  Layer conv(int64_t in, int64_t out, int64_t kernel, Window w = {}) {
    const int64_t padding = w.padding < 0 ? w.dilation * (kernel / 2) : w.padding;
    return layer<Conv2d>("conv", in, out, Conv2dOptions{kernel, w.stride, padding, w.dilation, w.groups, w.bias});
  }
  Layer convNorm(int64_t in, int64_t out, int64_t size, Window w = {}) { return conv(in, out, size, w) >> norm(out); }
  Layer conv1d(int64_t in, int64_t out, Conv1dLayerOptions o = {.kernel = 1}) {
    return layer<Conv1d>("conv", in, out, o);
  }
  Layer up(int64_t in, int64_t out, ConvTranspose2dOptions o) { return layer<ConvTranspose2d>("up", in, out, o); }
  Layer mlp(int64_t width, int64_t hidden) { return linear(width, hidden) >> act::gelu >> linear(hidden, width); }
  /// Squeeze-excite (Hu et al. 2018).
  Layer excite(int64_t channels, int64_t narrow, const Layer &f) {
    const Layer scale = linear(channels, narrow) >> f >> linear(narrow, channels) >> function(sigmoid);
    return [=](Tensor x) { return x * reshape(scale(globalAvgPool(x)), {x.size(0), channels, 1, 1}); };
  }
  /// Four heads, of x to y.
  Attention attention(int64_t width, bool causal = false) {
    const Layer q = linear(width, width), k = linear(width, width), v = linear(width, width),
                out = linear(width, width);
    const Layer split = [=](Tensor x) { return transpose(reshape(x, {x.size(0), x.size(1), 4, width / 4}), 1, 2); };
    return [=](Tensor x, Tensor y, Tensor mask) {
      const AttentionOptions options{.causal = causal, .mask = mask, .dropout = 0.1};
      const Tensor heads = scaledDotProductAttention(split(q(x)), split(k(y)), split(v(y)), options);
      return out(flatten(transpose(heads, 1, 2), 2));
    };
  }

  std::vector<std::shared_ptr<void>> parts;
  Forward body;
};

Forward one(const Layer &f) {
  return [=](const std::vector<Tensor> &in) { return f(in[0]); };
}

/// Inverted bottlenecks.
Forward inverted(Net &n, const std::vector<int64_t> &widths, const std::vector<int64_t> &counts,
                 const std::vector<int64_t> &kernels, Tensor (*activation)(Tensor, Where), bool excite) {
  const int64_t strides[] = {1, 2, 2, 2, 1, 2, 1};
  const Layer f = function(activation);
  int64_t in = 32;
  Layer all = n.convNorm(3, in, 3, {.stride = 2}) >> f;
  for (size_t i = 0; i < widths.size(); ++i)
    for (int64_t j = 0; j < counts[i]; ++j) {
      const int64_t wide = i > 0 ? 6 * in : in, stride = j > 0 ? 1 : strides[i];
      Layer block = i > 0 ? n.convNorm(in, wide, 1) >> f : same;
      block = block >> n.convNorm(wide, wide, kernels[i], {.stride = stride, .groups = wide}) >> f;
      block = (excite ? block >> n.excite(wide, in / 4, f) : block) >> n.convNorm(wide, widths[i], 1);
      all = all >> (stride == 1 && in == widths[i] ? residual(block) : block);
      in = widths[i];
    }
  return one(all >> n.convNorm(in, 1280, 1) >> f >> pooled >> n.linear(1280, 1000));
}
/// MobileNetV2 (Sandler et al. 2018).
Forward mobileNet(Net &n) {
  return inverted(n, {16, 24, 32, 64, 96, 160, 320}, {1, 2, 3, 4, 3, 3, 1}, {3, 3, 3, 3, 3, 3, 3}, relu6, false);
}
/// EfficientNet-B0 (Tan and Le 2019).
Forward efficientNet(Net &n) {
  return inverted(n, {16, 24, 40, 80, 112, 192, 320}, {1, 2, 2, 3, 3, 4, 1}, {3, 3, 5, 3, 5, 5, 3}, silu, true);
}

/// Liu et al. 2022.
Forward convNext(Net &n) {
  Layer all = n.conv(3, 64, 4, {.stride = 4, .padding = 0, .bias = true});
  for (int64_t width : {64, 128, 256, 512}) {
    all = all >> channelsLast >> n.layerNorm(std::max<int64_t>(64, width / 2)) >> channelsFirst;
    if (width > 64)
      all = all >> n.conv(width / 2, width, 2, {.stride = 2, .padding = 0, .bias = true});
    for (int64_t i = 0; i < (width == 256 ? 4 : 2); ++i) {
      const Parameter *scale = n.make<Parameter>("scale", Shape{width}, init::constant(1e-6));
      all = all >>
            residual(n.conv(width, width, 7, {.groups = width, .bias = true}) >> channelsLast >> n.layerNorm(width) >>
                     n.mlp(width, 4 * width) >> [=](Tensor x) { return x * *scale; } >> channelsFirst);
    }
  }
  return one(all >> pooled >> n.layerNorm(512) >> n.linear(512, 1000));
}

/// Trockman and Kolter 2023.
Forward convMixer(Net &n) {
  Layer all = n.conv(3, 256, 7, {.stride = 7, .padding = 0, .bias = true}) >> act::gelu >> n.norm(256);
  for (int64_t i = 0; i < 6; ++i)
    all = all >> residual(n.conv(256, 256, 9, {.groups = 256, .bias = true}) >> act::gelu >> n.norm(256)) >>
          n.conv(256, 256, 1, {.bias = true}) >> act::gelu >> n.norm(256);
  return one(all >> pooled >> n.linear(256, 1000));
}

/// Ronneberger et al. 2015, with batch norm.
Forward uNet(Net &n) {
  const auto twice = [&](int64_t in, int64_t out) {
    return n.convNorm(in, out, 3) >> act::relu >> n.convNorm(out, out, 3) >> act::relu;
  };
  Layer all = twice(256, 512);
  for (int64_t c : {256, 128, 64, 32}) { // from the inside
    const Layer down = twice(c == 32 ? 3 : c / 2, c), up = n.up(2 * c, c, {.kernel = 2, .stride = 2}),
                merge = twice(2 * c, c);
    all = [=](Tensor x) {
      x = down(x);
      return merge(concat({x, up(all(maxPool2d(x, 2)))}, 1));
    };
  }
  return one(all >> n.conv(32, 3, 1, {.bias = true}));
}

/// Huang et al. 2017.
Forward denseNet(Net &n) {
  Layer all = n.convNorm(3, 64, 7, {.stride = 2}) >> act::relu >> pool(3, 2, 1);
  int64_t c = 64;
  for (int64_t count : {6, 8, 8, 6}) {
    if (c > 64) {
      all = all >> n.norm(c) >> act::relu >> n.conv(c, c / 2, 1) >> [](Tensor x) { return avgPool2d(x, 2); };
      c /= 2;
    }
    for (int64_t i = 0; i < count; ++i, c += 32) {
      const Layer f = n.norm(c) >> act::relu >> n.conv(c, 128, 1) >> n.norm(128) >> act::relu >> n.conv(128, 32, 3);
      all = all >> [=](Tensor x) { return concat({x, f(x)}, 1); };
    }
  }
  return one(all >> n.norm(c) >> act::relu >> pooled >> n.linear(c, 1000));
}

/// ResNeXt (Xie et al. 2017) with squeeze-excite.
Forward resNext(Net &n) {
  Layer all = n.convNorm(3, 64, 7, {.stride = 2}) >> act::relu >> pool(3, 2, 1);
  int64_t in = 64;
  for (int64_t i = 0; i < 8; ++i) {
    const int64_t width = 128 << i / 2, out = 2 * width, stride = i > 0 && i % 2 == 0 ? 2 : 1;
    const Layer f = n.convNorm(in, width, 1) >> act::relu >>
                    n.convNorm(width, width, 3, {.stride = stride, .groups = 32}) >> act::relu >>
                    n.convNorm(width, out, 1) >> n.excite(out, out / 16, act::relu);
    all = all >> residual(f, in == out ? same : n.convNorm(in, out, 1, {.stride = stride}));
    in = out;
  }
  return one(all >> pooled >> n.linear(in, 1000));
}

/// ResNet-18 with group norm (Wu and He 2018).
Forward groupNorm(Net &n) {
  const auto conv = [&](int64_t in, int64_t out, int64_t kernel, int64_t stride = 1) {
    return n.conv(in, out, kernel, {.stride = stride}) >> n.layer<GroupNorm>("norm", 32, out);
  };
  Layer all = n.conv(3, 64, 3);
  int64_t in = 64;
  for (int64_t i = 0; i < 8; ++i) {
    const int64_t out = 64 << i / 2, stride = in == out ? 1 : 2;
    all = all >> residual(conv(in, out, 3, stride) >> act::relu >> conv(out, out, 3),
                          in == out ? same : conv(in, out, 1, stride));
    in = out;
  }
  return one(all >> pooled >> n.linear(in, 10));
}

/// Simonyan and Zisserman 2015: biases instead of norms, wide linear layers with dropout.
Forward vgg(Net &n) {
  Layer all = same;
  int64_t in = 3;
  for (int64_t c : {64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0}) {
    all = all >> (c > 0 ? n.conv(in, c, 3, {.bias = true}) >> act::relu : pool(2, 2));
    in = c > 0 ? c : in;
  }
  return one(all >> [](Tensor x) { return flatten(x, 1); } >> n.linear(2048, 4096) >> act::relu >> drop(0.5) >>
             n.linear(4096, 4096) >> act::relu >> drop(0.5) >> n.linear(4096, 1000));
}

/// Tolstikhin et al. 2021.
Forward mixer(Net &n) {
  Layer all =
      n.conv(3, 256, 16, {.stride = 16, .padding = 0, .bias = true}) >> [](Tensor x) { return flatten(x, 2); } >> turn;
  for (int64_t i = 0; i < 6; ++i)
    all = all >> residual(n.layerNorm(256) >> turn >> n.mlp(196, 128) >> turn) >>
          residual(n.layerNorm(256) >> n.mlp(256, 1024));
  return one(all >> n.layerNorm(256) >> [](Tensor x) { return mean(x, {1}); } >> n.linear(256, 1000));
}

/// Picture to picture (Zhu et al. 2017): reflected borders, instance norm, transposed convolutions.
Forward generator(Net &n) {
  const auto reflect = [](int64_t by) -> Layer {
    return [=](Tensor x) { return pad(x, {by, by, by, by}, PadMode::Reflect); };
  };
  const auto conv = [&](int64_t in, int64_t out, int64_t kernel, Window w) {
    return n.conv(in, out, kernel, w) >> n.layer<InstanceNorm2d>("norm", out);
  };
  Layer all = reflect(3) >> conv(3, 32, 7, {.padding = 0}) >> act::relu >> conv(32, 64, 3, {.stride = 2}) >>
              act::relu >> conv(64, 128, 3, {.stride = 2}) >> act::relu;
  for (int64_t i = 0; i < 3; ++i)
    all = all >> residual(reflect(1) >> conv(128, 128, 3, {.padding = 0}) >> act::relu >> reflect(1) >>
                          conv(128, 128, 3, {.padding = 0}));
  for (int64_t c : {64, 32})
    all = all >> n.up(2 * c, c, {.kernel = 3, .stride = 2, .padding = 1, .outputPadding = 1}) >>
          n.layer<InstanceNorm2d>("norm", c) >> act::relu;
  return one(all >> reflect(3) >> n.conv(32, 3, 7, {.padding = 0, .bias = true}) >> function(tanh));
}

/// Dilated convolutions and a class for every pixel (Chen et al. 2017).
Forward deepLab(Net &n) {
  Layer all = n.convNorm(3, 64, 7, {.stride = 2}) >> act::relu >> pool(3, 2, 1);
  const int64_t widths[] = {64, 64, 128, 256, 256}, dilations[] = {1, 1, 2, 4};
  for (int64_t i = 0; i < 4; ++i) {
    const int64_t in = widths[i], out = widths[i + 1], d = dilations[i], stride = i == 1 ? 2 : 1;
    all = all >> residual(n.convNorm(in, out, 3, {.stride = stride, .dilation = d}) >> act::relu >>
                              n.convNorm(out, out, 3, {.dilation = d}),
                          in == out ? same : n.convNorm(in, out, 1, {.stride = stride}));
  }
  std::vector<Layer> views{n.convNorm(256, 128, 1) >> act::relu};
  for (int64_t d : {6, 12, 18})
    views.push_back(n.convNorm(256, 128, 3, {.dilation = d}) >> act::relu);
  all = all >> [=](Tensor x) { return concat({views[0](x), views[1](x), views[2](x), views[3](x)}, 1); };
  return one(all >> n.convNorm(512, 128, 1) >> act::relu >> n.conv(128, 21, 1, {.bias = true}) >>
             [](Tensor x) { return interpolate(x, {.scale = 8, .mode = Interpolation::Bilinear}); } >> channelsLast);
}

/// A layer of BERT's kind, with norms after the sums; with `across` also a decoder's, which attends to y.
std::function<Tensor(Tensor x, Tensor y, Tensor mask)> block(Net &n, bool across = false) {
  const Attention attend = n.attention(256, across), cross = across ? n.attention(256) : Attention();
  const Layer a = n.layerNorm(256), b = across ? n.layerNorm(256) : same, c = n.layerNorm(256), mlp = n.mlp(256, 1024);
  return [=](Tensor x, Tensor y, Tensor mask) {
    x = a(x + tenth(attend(x, x, mask)));
    x = across ? b(x + tenth(cross(x, y, {}))) : x;
    return c(x + tenth(mlp(x)));
  };
}

/// Devlin et al. 2019; samples have 64 words or more, and the output is tied to the embedding.
Forward bert(Net &n) {
  const auto *words = n.make<Embedding>("words", 30522, 256, EmbeddingOptions{init::normal(0, 0.02)});
  const auto *positions = n.make<Parameter>("positions", Shape{128, 256}),
             *bias = n.make<Parameter>("bias", Shape{30522});
  const Layer norm = n.layerNorm(256), last = n.linear(256, 256) >> act::gelu >> n.layerNorm(256);
  const auto first = block(n), second = block(n);
  return [=](const std::vector<Tensor> &in) {
    const Tensor mask = arange(128) < in[1] + 64, x = tenth(norm(embedding(in[0], words->weight) + *positions));
    return linear(last(second(first(x, {}, mask), {}, mask)), words->weight, *bias);
  };
}

/// A GPT with dropout everywhere, also of attention's probabilities.
Forward dropoutGpt(Net &n) {
  const Layer words = n.embed(256, 256);
  const auto *positions = n.make<Parameter>("positions", Shape{1024, 256});
  Layer all = words >> [=](Tensor x) { return tenth(x + *positions); };
  for (int i = 0; i < 2; ++i) {
    const Attention attend = n.attention(256, true);
    all = all >> residual(n.layerNorm(256) >> [=](Tensor x) { return tenth(attend(x, x, {})); }) >>
          residual(n.layerNorm(256) >> n.mlp(256, 1024) >> tenth);
  }
  return one(all >> n.layerNorm(256) >> n.linear(256, 256));
}

/// Encoder and decoder (Vaswani et al. 2017).
Forward translation(Net &n) {
  const Layer from = n.embed(8000, 256), to = n.embed(8000, 256), head = n.linear(256, 8000);
  const auto *a = n.make<Parameter>("positions", Shape{128, 256}), *b = n.make<Parameter>("positions", Shape{128, 256});
  const auto encode1 = block(n), encode2 = block(n), decode1 = block(n, true), decode2 = block(n, true);
  return [=](const std::vector<Tensor> &in) {
    const Tensor mask = arange(128) < in[2] + 64, x = encode2(encode1(tenth(from(in[0]) + *a), {}, mask), {}, mask);
    return head(decode2(decode1(tenth(to(in[1]) + *b), x, {}), x, {}));
  };
}

/// Two layers of GRUs in both directions.
Forward biGru(Net &n) {
  const RecurrentOptions options{.layers = 2, .bidirectional = true};
  return one(n.embed(5000, 128) >> n.layer<GRU>("gru", 128, 256, options) >> [](Tensor x) { return mean(x, {1}); } >>
             n.linear(512, 10));
}

/// Dilated convolutions of the past (van den Oord et al. 2016).
Forward waveNet(Net &n) {
  const Layer start = n.embed(256, 64) >> turn;
  std::vector<std::function<void(Tensor &, Tensor &)>> parts;
  for (int64_t past = 1; past <= 128; past *= 2) {
    const Layer filter = n.conv1d(64, 64, {.kernel = 2, .dilation = past}) >> function(tanh);
    const Layer gate = n.conv1d(64, 64, {.kernel = 2, .dilation = past}) >> function(sigmoid);
    const Layer skip = n.conv1d(64, 64), next = n.conv1d(64, 64);
    parts.push_back([=](Tensor &x, Tensor &sum) {
      const Tensor y = pad(x, {past, 0}), z = filter(y) * gate(y);
      sum = sum.defined() ? sum + skip(z) : skip(z);
      x = x + next(z);
    });
  }
  const Layer last = act::relu >> n.conv1d(64, 64) >> act::relu >> n.conv1d(64, 256) >> turn;
  return one([=](Tensor ids) {
    Tensor x = start(ids), sum;
    for (const auto &part : parts)
      part(x, sum);
    return last(sum);
  });
}

/// Gulati et al. 2020.
Forward conformer(Net &n) {
  const Layer half = [](Tensor x) { return x * 0.5; };
  const Layer glu = [](Tensor x) { return chunk(x, 2, 1)[0] * sigmoid(chunk(x, 2, 1)[1]); };
  Layer all = n.linear(80, 144);
  for (int64_t i = 0; i < 2; ++i) {
    const Attention attend = n.attention(144);
    all = all >> residual(n.layerNorm(144) >> n.mlp(144, 576) >> tenth >> half) >>
          residual(n.layerNorm(144) >> [=](Tensor x) { return tenth(attend(x, x, {})); }) >>
          residual(n.layerNorm(144) >> turn >> n.conv1d(144, 288) >> glu >>
                   n.conv1d(144, 144, {.kernel = 31, .padding = 15, .groups = 144}) >> n.norm(144) >> function(silu) >>
                   n.conv1d(144, 144) >> turn >> tenth) >>
          residual(n.layerNorm(144) >> n.mlp(144, 576) >> tenth >> half) >> n.layerNorm(144);
  }
  return one(all >> n.linear(144, 32));
}

/// The maxima over time of convolutions with three widths (Kim 2014).
Forward textCnn(Net &n) {
  const Layer words = n.embed(20000, 128) >> turn, most = [](Tensor x) { return max(x, {2}); };
  const Layer a = n.conv1d(128, 100, {.kernel = 3}) >> act::relu >> most;
  const Layer b = n.conv1d(128, 100, {.kernel = 4}) >> act::relu >> most;
  const Layer c = n.conv1d(128, 100, {.kernel = 5}) >> act::relu >> most;
  const Layer all = [=](Tensor x) { return concat({a(x), b(x), c(x)}, 1); };
  return one(words >> all >> drop(0.5) >> n.linear(300, 10));
}

/// Rows of 26 tables, and the products of all pairs (Naumov et al. 2019).
Forward dlrm(Net &n) {
  const auto part = [&](int64_t in, int64_t out) { return n.linear(in, out) >> act::relu; };
  const Layer bottom = part(13, 512) >> part(512, 256) >> part(256, 64);
  const Layer top = part(64 + 27 * 27, 512) >> part(512, 256) >> n.linear(256, 1);
  std::vector<Layer> tables;
  for (int64_t i = 0; i < 26; ++i)
    tables.push_back(n.embed(10000, 64));
  return [=](const std::vector<Tensor> &in) {
    const Tensor x = bottom(in[0]);
    std::vector<Tensor> rows{x};
    for (const Layer &table : tables)
      rows.push_back(table(select(in[1], 1, static_cast<int64_t>(rows.size()) - 1)));
    const Tensor all = stack(rows, 1), pairs = matmul(all, turn(all));
    return squeeze(top(concat({x, flatten(pairs, 1)}, 1)), 1);
  };
}

Forward wideMlp(Net &n) {
  const auto part = [&](int64_t in, int64_t out) { return n.linear(in, out) >> n.norm(out) >> act::relu >> drop(0.3); };
  return one(part(256, 1024) >> part(1024, 1024) >> part(1024, 512) >> n.linear(512, 10));
}

/// The fields of a model's samples; --data synthetic has the values.
struct Fields : Dataset {
  std::vector<DataField> list;
  explicit Fields(std::vector<DataField> fields) : list(std::move(fields)) {
    for (DataField &field : list)
      field.name = "field" + std::to_string(&field - list.data());
  }
  const std::vector<DataField> &fields() const override { return list; }
  int64_t samples(Split) const override { return 4096; }
};
DataField reals(Shape shape) { return {"", FieldType::F32, std::move(shape)}; }
DataField below(int64_t limit, Shape shape = {}) { return {"", FieldType::I32, std::move(shape), limit}; }
DataField image(int64_t size) { return reals({3, size, size}); }

struct Task {
  Forward (*model)(Net &);
  int64_t batch;
  std::vector<DataField> fields; ///< the last is the target
  LossFunction loss = crossEntropy;
  Optimizer optimizer = Adam{};
};

} // namespace

int main(int argc, char **argv) {
  const std::map<std::string, Task> tasks{
      {"mobilenet", {mobileNet, 16, {image(128), below(1000)}}},
      {"efficientnet", {efficientNet, 16, {image(128), below(1000)}}},
      {"convnext", {convNext, 8, {image(128), below(1000)}}},
      {"convmixer", {convMixer, 8, {image(112), below(1000)}}},
      {"unet", {uNet, 4, {image(128), image(128)}, mseLoss}},
      {"densenet", {denseNet, 8, {image(128), below(1000)}}},
      {"resnext", {resNext, 8, {image(128), below(1000)}}},
      {"group-norm", {groupNorm, 32, {image(32), below(10)}}},
      {"vgg", {vgg, 16, {image(64), below(1000)}}},
      {"mixer", {mixer, 8, {image(224), below(1000)}}},
      {"generator", {generator, 4, {image(96), image(96)}, mseLoss}},
      {"deeplab", {deepLab, 4, {image(192), below(21, {192, 192})}}},
      {"bert", {bert, 4, {below(30522, {128}), below(65, {1, 1, 1}), below(30522, {128})}}},
      {"gpt-dropout", {dropoutGpt, 2, {below(256, {1024}), below(256, {1024})}}},
      {"translation",
       {translation, 8, {below(8000, {128}), below(8000, {128}), below(65, {1, 1, 1}), below(8000, {128})}}},
      {"bigru", {biGru, 32, {below(5000, {64}), below(10)}}},
      {"wavenet", {waveNet, 4, {below(256, {1024}), below(256, {1024})}}},
      {"conformer", {conformer, 8, {reals({256, 80}), below(32, {256})}}},
      {"text-cnn", {textCnn, 64, {below(20000, {128}), below(10)}}},
      {"dlrm", {dlrm, 2048, {reals({13}), below(10000, {26}), reals({})}, bceWithLogits, Sgd{.lr = 0.001}}},
      {"wide-mlp", {wideMlp, 2048, {reals({256}), below(10)}}},
  };
  std::vector<std::string> names;
  for (const auto &[name, task] : tasks)
    names.push_back(name);
  Program program{"survey", argc, argv};
  const Task &task = tasks.at(program.option("--model", "mobilenet", "which of the models", names));
  const auto data = std::make_shared<Fields>(task.fields);
  return program.run<Net>({.data = data, .loss = task.loss, .optimizer = task.optimizer, .batch = task.batch},
                          task.model);
}
