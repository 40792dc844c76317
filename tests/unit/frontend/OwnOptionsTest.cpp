// A program's own options: values in any spelling, from the command line, a recipe, and a checkpoint or plan.
#include "frontend/program/OwnOptions.h"
#include "runtime/base/JsonText.h"
#include "tests/unit/frontend/Support.h"

#include <cmath>
#include <limits>
#include <random>

using namespace cleave;
using namespace cleave::test;

namespace {

using List = std::vector<int64_t>;

OwnOptions given(const std::vector<std::string> &words, const nlohmann::json &stored = {}) {
  OwnOptions options;
  options.line = givenOptions(words, [](const std::string &) { return TakesValue::Unknown; });
  options.stored = stored;
  options.storedIn = "the checkpoint ck";
  return options;
}

OptionValue declare(OwnOptions &options, const OwnOption &option) {
  return options.declare(option, {"--batch", "--help"}, Where::current());
}

/// The mistake of one option; empty: there is none.
std::string wrong(const OwnOption &option, const std::vector<std::string> &words, const nlohmann::json &stored = {}) {
  OwnOptions options = given(words, stored);
  declare(options, option);
  try {
    options.check("p");
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

/// The value of one option; requires that there is no mistake.
OptionValue valueIn(const OwnOption &option, const std::vector<std::string> &words, const nlohmann::json &stored = {}) {
  OwnOptions options = given(words, stored);
  const OptionValue value = declare(options, option);
  options.check("p");
  return value;
}

/// What a checkpoint keeps of the options.
nlohmann::json kept(const OwnOptions &options) { return parseJson(jsonText(parseJson(options.json(), "")), ""); }

// ---- random programs ------------------------------------------------------------------------------------------------

class Draw {
public:
  explicit Draw(uint64_t seed) : random(seed) {}

  int64_t whole(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); }
  bool chance(int percent) { return whole(0, 99) < percent; }
  template <class T> T one(const std::vector<T> &of) {
    return of.at(static_cast<size_t>(whole(0, int64_t(of.size()) - 1)));
  }

  /// A value of the type with this index.
  OptionValue value(size_t type) {
    using Limits = std::numeric_limits<int64_t>;
    const auto number = [&] {
      return chance(20) ? one<int64_t>({Limits::min(), Limits::max(), (int64_t(1) << 53) + 1, 0}) : whole(-20, 99);
    };
    if (type == 0)
      return chance(50);
    if (type == 1)
      return number();
    if (type == 2)
      return chance(50) ? one<double>({0.1, 0.2, 1e-3, 64, 1.0 / 3, -0.5, 5e-324, 1e308, 0, -0.0})
                        : double(whole(-1000, 1000)) / 64;
    if (type == 3)
      return one<std::string>({"", "a", "a b", "0.20", "true", "-x", "--batch", "a=b", "[1,2]", "null", "\n\t\"\\",
                               "\x7f\xc2\x85", "Z\xc3\xbcrich", " "});
    List list;
    for (int64_t i = whole(1, 3); i > 0; --i)
      list.push_back(number());
    return list;
  }

  OwnOption option(int number) {
    const auto type = static_cast<size_t>(whole(0, 4));
    OwnOption option{"--o" + std::to_string(number), "help", value(type)};
    if (type == 4 && chance(30))
      option.otherwise = List{};
    if (type == 2 && chance(10))
      option.otherwise = INFINITY;
    if (type > 0 && chance(20))
      option.choices = {value(type), value(type), value(type)};
    option.value = option.otherwise;
    return option;
  }

  /// A value that the option may have, other than `than`.
  OptionValue allowed(const OwnOption &option, const std::optional<OptionValue> &than = std::nullopt) {
    for (int i = 0; i < 100; ++i) {
      const OptionValue drawn = chance(20)               ? option.otherwise
                                : option.choices.empty() ? value(option.otherwise.index())
                                                         : one(option.choices);
      if (!than || drawn != *than)
        return drawn;
    }
    return option.otherwise;
  }

  /// A whole number or a number as somebody may write it.
  std::string spelled(int64_t number) {
    std::string text = std::to_string(number);
    if (chance(30))
      text.insert(number < 0 ? 1 : 0, std::string(static_cast<size_t>(whole(1, 3)), '0'));
    return text;
  }
  std::string spelled(double number) {
    if (!std::isfinite(number))
      return textOf(number);
    char text[64];
    std::snprintf(text, sizeof text, one<const char *>({"%.17g", "%.20e", "%.17E"}), number);
    std::string shown = chance(50) ? textOf(number) : text;
    if (shown.find_first_of(".eE") == shown.npos && chance(50))
      shown += one<std::string>({".", ".0", "e0", "e+00"});
    if (shown.find_first_of("eE") == shown.npos && shown.find('.') != shown.npos && chance(50))
      shown += "00";
    if (shown.starts_with("0.") && shown.size() > 2 && chance(50))
      shown.erase(0, 1);
    return (shown[0] != '-' && chance(20) ? "+" : "") + shown;
  }

  /// Words that give the option this value.
  std::vector<std::string> words(const OwnOption &option, const OptionValue &value) {
    std::string text = textOf(value);
    if (const auto *truth = std::get_if<bool>(&value)) {
      if (*truth && chance(30))
        return {option.name};
      if (chance(50))
        text = *truth ? "1" : "0";
    } else if (const auto *whole = std::get_if<int64_t>(&value)) {
      text = spelled(*whole);
    } else if (const auto *number = std::get_if<double>(&value)) {
      text = spelled(*number);
    } else if (const auto *list = std::get_if<List>(&value)) {
      text.clear();
      for (const int64_t each : *list)
        text += (text.empty() ? "" : ",") + spelled(each);
    }
    const bool likeAnOption = text.size() > 1 && text[0] == '-' && (text[1] == '-' || std::isalpha(text[1]));
    return likeAnOption || chance(50) ? std::vector{option.name + "=" + text} : std::vector{option.name, text};
  }

private:
  std::mt19937_64 random;
};

template <class T> void append(std::vector<T> &to, const std::vector<T> &more) {
  to.insert(to.end(), more.begin(), more.end());
}

} // namespace

TEST_CASE("options of every type: the same values in any spelling go on, other values are refused by name") {
  int refused = 0;
  for (uint64_t seed = 1; seed <= 10000; ++seed) {
    Draw draw(seed);
    std::vector<OwnOption> table;
    std::vector<OptionValue> values;
    std::vector<std::string> words, again;
    for (int i = 0; i < draw.whole(1, 5); ++i) {
      table.push_back(draw.option(i));
      const bool given = draw.chance(60);
      values.push_back(given ? draw.allowed(table.back()) : table.back().otherwise);
      if (given)
        append(words, draw.words(table.back(), values.back()));
      if (draw.chance(60)) // also the default that was not given
        append(again, draw.words(table.back(), values.back()));
    }
    INFO("seed " << seed);
    OwnOptions first = given(words);
    for (size_t i = 0; i < table.size(); ++i)
      CHECK(declare(first, table[i]) == values[i]);
    REQUIRE_NOTHROW(first.check("p"));

    OwnOptions second = given(again, kept(first));
    for (size_t i = 0; i < table.size(); ++i)
      CHECK(declare(second, table[i]) == values[i]);
    REQUIRE_NOTHROW(second.check("p"));
    CHECK(second.json() == first.json());

    const auto at = static_cast<size_t>(draw.whole(0, int64_t(table.size()) - 1));
    const OptionValue other = draw.allowed(table[at], values[at]);
    if (other == values[at])
      continue;
    OwnOptions third = given(draw.words(table[at], other), kept(first)),
               like = given(draw.words(table[at], other), kept(first));
    like.storedYields = true; // a plan of --like
    for (size_t i = 0; i < table.size(); ++i) {
      declare(third, table[i]);
      CHECK(declare(like, table[i]) == (i == at ? other : values[i]));
    }
    const auto shown = [](const OptionValue &value) { return textOf(value).empty() ? "\"\"" : textOf(value); };
    CHECK(mistake([&] { third.check("p"); }) ==
          table[at].name + " " + shown(other) + ": the checkpoint ck has " + shown(values[at]));
    CHECK_NOTHROW(like.check("p"));
    ++refused;
  }
  CHECK(refused > 5000);
}

TEST_CASE("values that an option cannot have are named with the rule") {
  const OwnOption width{"--width", "", int64_t(8), {}, 1, 64}, rate{"--rate", "", 0.5}, packed{"--packed", "", false},
      name{"--name", "", std::string("a"), {std::string("b"), std::string("c")}},
      hidden{"--hidden", "", List{4}, {}, 1};
  CHECK(wrong(width, {"--width", "0"}) == "--width 0: must be a whole number from 1 to 64");
  CHECK(wrong(width, {"--width", "2.5"}) == "--width 2.5: must be a whole number from 1 to 64");
  CHECK(wrong(width, {"--width="}) == "--width \"\": must be a whole number from 1 to 64");
  CHECK(wrong(rate, {"--rate", "fast"}) == "--rate fast: must be a number");
  CHECK(wrong(rate, {"--rate", "1e999"}) == "--rate 1e999: must be a number");
  CHECK(wrong(packed, {"--packed", "yes"}) == "--packed yes: must be true or false");
  CHECK(wrong(name, {"--name", "bb"}) == "--name bb: must be one of b, c; did you mean b?");
  CHECK(wrong(name, {"--name", "a"}).empty()); // the default, too
  CHECK(wrong(hidden, {"--hidden", "3,0"}) ==
        "--hidden 3,0: must be numbers separated by commas, each a whole number from 1");
  CHECK(wrong(hidden, {"--hidden", "3,"}).starts_with("--hidden 3,: must be"));
  CHECK(wrong({"--text", "", std::string()}, {"--text", "a\xff"}) == "--text a\xff: must be text in UTF-8");
}

TEST_CASE("a boolean takes the next word only as its value") {
  const OwnOption packed{"--packed", "", false};
  CHECK(valueIn(packed, {"--packed"}) == OptionValue(true));
  CHECK(valueIn(packed, {"--packed", "--steps", "5"}) == OptionValue(true));
  CHECK(valueIn(packed, {"--packed", "0", "--steps", "5"}) == OptionValue(false));
  CHECK(valueIn(packed, {"--packed=true"}) == OptionValue(true));
  CHECK(valueIn({"--packed", "", true}, {"--packed", "false"}) == OptionValue(false));
}

TEST_CASE("defaults are shown as they are written") {
  CHECK(textOf(0.1) == "0.1");
  CHECK(textOf(1e-5) == "1e-05");
  CHECK(textOf(1.0) == "1");
  CHECK(textOf(internal::asWritten(0.1f)) == "0.1");
  OwnOptions options;
  declare(options, {"--rate", "the rate", 0.1});
  CHECK(options.rowsOf("train", commands::train).at(0).uses.at(0).help == "the rate (default: 0.1)");
  CHECK(options.json() == "{\"rate\":0.1}");
}

TEST_CASE("names that an option cannot have are reported at its line") {
  const auto isAt = [](const std::string &text, const std::string &why) {
    CHECK(has(text, "OwnOptionsTest.cpp:"));
    CHECK(has(text, why));
  };
  isAt(wrong({"--batch", "", int64_t(1)}, {}), "option --batch: every program has an option of this name");
  for (const char *name : {"width", "-w", "--", "", "--a b", "--a=b", "---x", "--a,-b"})
    isAt(wrong({name, "", int64_t(1)}, {}), "a name is two dashes and a word");
  OwnOptions twice, commands;
  declare(twice, {"--width", "", int64_t(1)});
  declare(twice, {"--width", "", int64_t(2)});
  isAt(mistake([&] { twice.check("p"); }), "option --width: is declared twice");
  OwnOption one{"--top", "", int64_t(1)}, two = one;
  one.command = "a", two.command = "b";
  declare(commands, one);
  declare(commands, two);
  CHECK_NOTHROW(commands.check("p"));
}

TEST_CASE("what is stored is checked again") {
  const OwnOption width{"--width", "", int64_t(8), {}, 1, 64};
  CHECK(wrong(width, {}, {{"width", 65}}) ==
        "the checkpoint ck has --width 65, which must be a whole number from 1 to 64");
  CHECK(wrong(width, {}, {{"width", "8"}}) ==
        "the checkpoint ck has --width 8, which must be a whole number from 1 to 64");
  CHECK(wrong(width, {}, {{"depth", 2}}) == "the checkpoint ck: the model has no option --depth");
  CHECK(valueIn({"--rate", "", 0.5}, {}, {{"rate", 2}}) == OptionValue(2.0)); // an integer became a number
  CHECK(valueIn({"--tags", "", List{}}, {}, {{"tags", nlohmann::json::array()}}) == OptionValue(List{}));
}

TEST_CASE("a recipe goes behind the command line and what is stored") {
  const OwnOption rate{"--rate", "", 0.5};
  const auto with = [&](const std::string &value, const std::vector<std::string> &words, const nlohmann::json &stored) {
    OwnOptions options = given(words, stored);
    options.recipe = {{"--rate", value, "r.toml:1:8", false}};
    const OptionValue found = declare(options, rate);
    options.check("p");
    return std::get<double>(found);
  };
  CHECK(with(".25", {}, {}) == 0.25);
  CHECK(with(".25", {"--rate", "2"}, {}) == 2);
  CHECK(with(".25", {}, {{"rate", 3}}) == 3);
  CHECK(mistake([&] { with("x", {}, {}); }) == "r.toml:1:8: --rate x: must be a number");
}
