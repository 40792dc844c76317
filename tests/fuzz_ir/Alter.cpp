// Splits a text into tokens or lines and replaces, drops, repeats or swaps some of them. Replacing all occurrences of a
// token keeps the text consistent, so that more results pass the verifier.
#include "tests/fuzz_ir/Alter.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>

namespace cleave::fuzz_ir {

namespace {

enum class Kind { Space, Sign, Number, Name, Value, Symbol, Alias, String, Type };

struct Token {
  Kind kind;
  std::string text;
};
using Tokens = std::vector<Token>;

bool partOfName(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '$'; }

/// The end of the string, type, number or name that begins at `from`.
size_t endOf(const std::string &text, size_t from, Kind kind) {
  size_t at = from + 1;
  if (kind == Kind::String) {
    while (at < text.size() && text[at] != '"')
      at += text[at] == '\\' ? 2 : 1;
    return std::min(at + 1, text.size());
  }
  if (kind == Kind::Type) {
    int depth = 0;
    for (at = from; at < text.size(); ++at)
      if (text[at] == '<')
        ++depth;
      else if (text[at] == '>' && --depth == 0)
        return at + 1;
    return text.size();
  }
  const auto exponent = [&] { return (text[at] == '+' || text[at] == '-') && std::tolower(text[at - 1]) == 'e'; };
  while (at < text.size() &&
         (partOfName(text[at]) || (kind == Kind::Value && text[at] == '#') || (kind == Kind::Number && exponent())))
    ++at;
  return at;
}

Kind kindAt(const std::string &text, size_t at) {
  const char c = text[at], next = at + 1 < text.size() ? text[at + 1] : ' ';
  if (std::isspace(static_cast<unsigned char>(c)))
    return Kind::Space;
  if (c == '"')
    return Kind::String;
  if (text.compare(at, 7, "tensor<") == 0)
    return Kind::Type;
  if (std::isdigit(static_cast<unsigned char>(c)) || (c == '-' && std::isdigit(static_cast<unsigned char>(next))))
    return Kind::Number;
  if (c == '%')
    return Kind::Value;
  if (c == '@')
    return Kind::Symbol;
  if (c == '#' || c == '!')
    return Kind::Alias;
  return partOfName(c) ? Kind::Name : Kind::Sign;
}

Tokens tokensOf(const std::string &text) {
  Tokens tokens;
  for (size_t at = 0; at < text.size();) {
    const Kind kind = kindAt(text, at);
    const size_t end = kind == Kind::Space || kind == Kind::Sign ? at + 1 : endOf(text, at, kind);
    tokens.push_back({kind, text.substr(at, end - at)});
    at = end;
  }
  return tokens;
}

std::string textOf(const Tokens &tokens) {
  std::string text;
  for (const Token &token : tokens)
    text += token.text;
  return text;
}

std::vector<size_t> placesOf(const Tokens &tokens, Kind kind) {
  std::vector<size_t> places;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i].kind == kind)
      places.push_back(i);
  return places;
}

/// Replaces the text of a token or, with probability `everywhere`, of all tokens equal to it.
void replace(Tokens &tokens, size_t place, const std::string &by, double everywhere, Chance &chance) {
  const Token old = tokens[place];
  if (!chance.one(everywhere)) {
    tokens[place].text = by;
    return;
  }
  for (Token &token : tokens)
    if (token.kind == old.kind && token.text == old.text)
      token.text = by;
}

// ---- tokens ---------------------------------------------------------------------------------------------------------

std::string otherNumber(const std::string &number, const Tokens &tokens, const std::vector<size_t> &places,
                        Chance &chance) {
  static const std::vector<std::string> rare{"0",
                                             "1",
                                             "-1",
                                             "2",
                                             "3",
                                             "7",
                                             "16",
                                             "65536",
                                             "2147483647",
                                             "2147483648",
                                             "-9223372036854775808",
                                             "4294967296",
                                             "9223372036854775807",
                                             "99999999999999999999",
                                             "1.5",
                                             "-0.0",
                                             "1.0e308",
                                             "0x7FF0000000000000",
                                             "0x7FF8000000000000"};
  const double choice = chance.unit();
  if (choice < 0.3)
    return tokens[chance.of(places)].text;
  if (choice < 0.6 && number.size() < 18 && number.find_first_not_of("-0123456789") == std::string::npos)
    return std::to_string(std::stoll(number) + (chance.one(0.5) ? 1 : -1));
  return chance.of(rare);
}

bool alterNumber(Tokens &tokens, const std::vector<std::string> &, Chance &chance) {
  const std::vector<size_t> places = placesOf(tokens, Kind::Number);
  if (places.empty())
    return false;
  const size_t place = chance.of(places);
  replace(tokens, place, otherNumber(tokens[place].text, tokens, places, chance), 0.2, chance);
  return true;
}

/// The parts of tensor<4x6xf32>: "4", "6", "f32".
std::vector<std::string> partsOf(const std::string &type) {
  std::vector<std::string> parts{""};
  for (const char c : type.substr(7, type.size() - 8))
    if (c == 'x')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

std::string otherType(const std::string &type, Chance &chance) {
  static const std::vector<std::string> elements{
      "f32", "f32", "bf16",   "f16",   "f64",          "i32",           "i64", "i1",
      "i8",  "ui8", "f8E5M2", "index", "complex<f32>", "vector<4xf32>", "none"};
  static const std::vector<std::string> sizes{"0",  "1", "2",     "3",          "5",
                                              "64", "?", "65536", "4294967296", "9223372036854775807"};
  std::vector<std::string> parts = partsOf(type);
  const size_t dim = static_cast<size_t>(chance.whole(0, static_cast<int64_t>(parts.size()) - 1));
  switch (chance.whole(0, 5)) {
  case 0:
    parts.back() = chance.of(elements);
    break;
  case 1:
    parts.insert(parts.begin() + static_cast<long>(dim), chance.of(sizes));
    break;
  case 2:
    if (parts.size() > 1)
      parts.erase(parts.begin() + static_cast<long>(std::min(dim, parts.size() - 2)));
    break;
  case 3:
    std::swap(parts[dim], parts[0]);
    break;
  default:
    if (parts.size() > 1)
      parts[std::min(dim, parts.size() - 2)] = chance.of(sizes);
  }
  std::string out = "tensor<" + parts[0];
  for (size_t i = 1; i < parts.size(); ++i)
    out += "x" + parts[i];
  return out + ">";
}

bool alterType(Tokens &tokens, const std::vector<std::string> &, Chance &chance) {
  const std::vector<size_t> places = placesOf(tokens, Kind::Type);
  if (places.empty())
    return false;
  const size_t place = chance.of(places);
  const bool known = chance.one(0.3);
  replace(tokens, place, known ? tokens[chance.of(places)].text : otherType(tokens[place].text, chance), 0.6, chance);
  return true;
}

/// Replaces one element type by another in all types.
bool alterElements(Tokens &tokens, const std::vector<std::string> &, Chance &chance) {
  static const std::vector<std::string> elements{"f32", "bf16", "f16", "f64", "i32", "i64", "i1"};
  const std::vector<size_t> places = placesOf(tokens, Kind::Type);
  if (places.empty())
    return false;
  const std::string from = partsOf(tokens[chance.of(places)].text).back(), to = chance.of(elements);
  for (const size_t place : places)
    if (std::vector<std::string> parts = partsOf(tokens[place].text); parts.back() == from)
      tokens[place].text.replace(tokens[place].text.size() - 1 - from.size(), from.size(), to);
  return true;
}

/// For each value, the last type on the line that defines it; for most ops this is the type of the result.
std::map<std::string, std::string> typesOfValues(const Tokens &tokens) {
  std::map<std::string, std::string> types;
  std::vector<std::string> made;
  bool first = true;
  std::string last;
  for (const Token &token : tokens) {
    if (token.text == "\n") {
      for (const std::string &value : made)
        types.emplace(value, last);
      made.clear(), last.clear(), first = true;
    } else if (token.kind == Kind::Value && first)
      made.push_back(token.text);
    else if (token.text == "=")
      first = false;
    else if (token.kind == Kind::Type)
      last = token.text;
  }
  return types;
}

bool alterOperand(Tokens &tokens, const std::vector<std::string> &, Chance &chance) {
  const std::vector<size_t> places = placesOf(tokens, Kind::Value);
  if (places.size() < 2)
    return false;
  const size_t place = chance.of(places);
  const std::map<std::string, std::string> types = typesOfValues(tokens);
  const auto type = types.find(tokens[place].text);
  std::vector<std::string> fitting;
  if (type != types.end() && chance.one(0.8))
    for (const auto &[value, other] : types)
      if (other == type->second && value != tokens[place].text)
        fitting.push_back(value);
  tokens[place].text = fitting.empty() ? tokens[chance.of(places)].text : chance.of(fitting);
  return true;
}

bool alterOp(Tokens &tokens, const std::vector<std::string> &ops, Chance &chance) {
  std::vector<size_t> places;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i].kind == Kind::Name && std::find(ops.begin(), ops.end(), tokens[i].text) != ops.end())
      places.push_back(i);
  if (places.empty())
    return false;
  tokens[chance.of(places)].text = chance.one(0.5) ? tokens[chance.of(places)].text : chance.of(ops);
  return true;
}

bool alterString(Tokens &tokens, const std::vector<std::string> &, Chance &chance) {
  static const std::vector<std::string> rare{"\"\"",         "\"dp\"",
                                             "\"tp\"",       "\"pp\"",
                                             "\"dp+tp\"",    "\"sum\"",
                                             "\"max\"",      "\"loss\"",
                                             "\"input\"",    "\"parameter\"",
                                             "\"gradient\"", "\"state\"",
                                             "\"buffer\"",   "\"metric\"",
                                             "\"a.b.c.d\"",  "\"\\00\"",
                                             "\"\\FF\"",     "\"_, tp | sum dp\"",
                                             "\"dp, dp\"",   "\"(3 x 4:tp x 16)\"",
                                             "\"uniform\"",  "\"adam\""};
  const std::vector<size_t> places = placesOf(tokens, Kind::String);
  if (places.empty())
    return false;
  replace(tokens, chance.of(places), chance.one(0.5) ? tokens[chance.of(places)].text : chance.of(rare), 0.3, chance);
  return true;
}

/// Replaces a token by another of the same kind.
bool alterAlike(Tokens &tokens, const std::vector<std::string> &, Chance &chance) {
  static const std::vector<Kind> kinds{Kind::Name, Kind::Name, Kind::Symbol, Kind::Alias, Kind::Sign};
  const std::vector<size_t> places = placesOf(tokens, chance.of(kinds));
  if (places.empty())
    return false;
  replace(tokens, chance.of(places), tokens[chance.of(places)].text, 0.2, chance);
  return true;
}

bool dropToken(Tokens &tokens, const std::vector<std::string> &, Chance &chance) {
  const auto at = tokens.begin() + chance.whole(0, static_cast<int64_t>(tokens.size()) - 1);
  if (chance.one(0.5))
    tokens.insert(at, *at);
  else
    tokens.erase(at);
  return true;
}

/// Drops a `name = value` entry from an attribute list, or copies it before or over another entry.
bool alterAttribute(Tokens &tokens, const std::vector<std::string> &, Chance &chance) {
  std::vector<size_t> places;
  for (size_t i = 1; i + 4 < tokens.size(); ++i)
    if (tokens[i].kind == Kind::Name && tokens[i + 2].text == "=" &&
        (tokens[i - 1].text == "{" || tokens[i - 1].text == " "))
      places.push_back(i);
  if (places.empty())
    return false;
  const auto endAt = [&](size_t from) {
    int depth = 0;
    size_t at = from;
    for (; at < tokens.size() && tokens[at].text != "\n"; ++at) {
      const char c = tokens[at].text[0];
      if (depth == 0 && (c == ',' || c == '}'))
        break;
      depth += c == '{' || c == '[' || c == '<' || c == '(' ? 1 : c == '}' || c == ']' || c == '>' || c == ')' ? -1 : 0;
    }
    return at;
  };
  const size_t from = chance.of(places), end = endAt(from);
  const Tokens entry(tokens.begin() + static_cast<long>(from), tokens.begin() + static_cast<long>(end));
  if (chance.one(0.5)) { // drop the entry and its comma
    const bool comma = end < tokens.size() && tokens[end].text == ",";
    tokens.erase(tokens.begin() + static_cast<long>(from), tokens.begin() + static_cast<long>(end + (comma ? 1 : 0)));
    return true;
  }
  const size_t to = chance.of(places);
  if (chance.one(0.5)) // replace another entry
    tokens.erase(tokens.begin() + static_cast<long>(to), tokens.begin() + static_cast<long>(endAt(to)));
  tokens.insert(tokens.begin() + static_cast<long>(to), {Kind::Sign, ","});
  tokens.insert(tokens.begin() + static_cast<long>(to), entry.begin(), entry.end());
  return true;
}

// ---- lines ----------------------------------------------------------------------------------------------------------

std::vector<std::string> linesOf(const std::string &text) {
  std::vector<std::string> lines{""};
  for (const char c : text)
    if (lines.back() += c; c == '\n')
      lines.emplace_back();
  return lines;
}

std::string alterLines(const std::string &text, Chance &chance) {
  std::vector<std::string> lines = linesOf(text);
  const auto any = [&] { return lines.begin() + chance.whole(0, static_cast<int64_t>(lines.size()) - 1); };
  switch (chance.whole(0, 4)) {
  case 0:
    lines.erase(any());
    break;
  case 1: {
    const std::string line = *any();
    lines.insert(any(), line);
    break;
  }
  case 2:
    std::swap(*any(), *any());
    break;
  default:
    if (const auto at = any(); at + 1 != lines.end())
      std::swap(*at, *(at + 1));
  }
  std::string out;
  for (const std::string &line : lines)
    out += line;
  return out;
}

/// Drops a function, repeats it, removes its body, or gives it the name of another function.
std::string alterFunctions(const std::string &text, Chance &chance) {
  std::vector<std::pair<size_t, size_t>> places;
  for (size_t at = text.find("  func.func"); at != std::string::npos; at = text.find("  func.func", at + 1))
    if (const size_t end = text.find("\n  }", at); end != std::string::npos)
      places.push_back({at, end + 5});
  if (places.empty())
    return text;
  const auto [from, end] = chance.of(places);
  const std::string function = text.substr(from, end - from);
  const auto nameOf = [](const std::string &words) {
    const size_t at = words.find('@');
    return words.substr(at, words.find('(', at) - at);
  };
  std::string out = text;
  switch (chance.whole(0, 3)) {
  case 0:
    return out.erase(from, end - from);
  case 1: {
    std::string copy = function;
    return out.insert(end, copy.replace(copy.find('@'), 1, "@again_"));
  }
  case 2: { // remove the body
    const size_t body = out.find(" {\n", from);
    return body < end ? out.replace(body, end - body, "\n") : out;
  }
  default: {
    const auto [other, otherEnd] = chance.of(places);
    const std::string name = nameOf(text.substr(other, otherEnd - other));
    return out.replace(out.find('@', from), nameOf(function).size(), name);
  }
  }
}

} // namespace

std::string altered(std::string text, const std::vector<std::string> &ops, Chance &chance) {
  using Alteration = bool (*)(Tokens &, const std::vector<std::string> &, Chance &);
  static const std::vector<Alteration> alterations{alterNumber, alterType,  alterElements, alterOperand,  alterOp,
                                                   alterString, alterAlike, dropToken,     alterAttribute};
  static const std::vector<double> weights{4, 4, 1, 4, 2, 3, 1, 0.5, 3, 1.5, 0.8};
  for (int64_t left = chance.one(0.5) ? 1 : chance.whole(2, 4); left > 0; --left) {
    const size_t which = chance.weighted(weights);
    if (which == alterations.size())
      text = alterLines(text, chance);
    else if (which > alterations.size())
      text = alterFunctions(text, chance);
    else if (Tokens tokens = tokensOf(text); !tokens.empty() && alterations[which](tokens, ops, chance))
      text = textOf(tokens);
  }
  return text;
}

} // namespace cleave::fuzz_ir
