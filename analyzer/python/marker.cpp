#include "analyzer/python/marker.h"

#include <array>
#include <utility>
#include <vector>

#include "analyzer/python/internal/text.h"
#include "analyzer/python/name.h"
#include "analyzer/python/version.h"

namespace varve::python {

namespace {

enum class Operator : std::uint8_t {
  kLess,
  kLessEqual,
  kEqual,
  kNotEqual,
  kGreaterEqual,
  kGreater,
  kCompatible,
  kArbitrary,
  kIn,
  kNotIn
};

struct Operand {
  bool variable = false;
  std::string text;  // the variable's name as PEP 508 has it now, or the literal
};

// "os.name" and the like were written before PEP 508 settled on "_".
constexpr std::array kVariables{"python_version",
                                "python_full_version",
                                "os_name",
                                "sys_platform",
                                "platform_release",
                                "platform_system",
                                "platform_version",
                                "platform_machine",
                                "implementation_name",
                                "implementation_version",
                                "platform_python_implementation",
                                "python_implementation",
                                "extra",
                                "extras",
                                "dependency_groups"};
constexpr std::array kDottedVariables{"os.name", "sys.platform", "platform.version", "platform.machine",
                                      "platform.python_implementation"};

bool is_word(char c) { return is_alnum(c) || c == '_'; }

bool compares_versions(std::string_view variable) {
  return variable == "python_version" || variable == "python_full_version" || variable == "implementation_version" ||
         variable == "platform_release";
}

// Sets in lock files (PEP 735, 751); nothing that is installed says which it was asked for.
bool is_set(std::string_view variable) { return variable == "extras" || variable == "dependency_groups"; }

std::string_view symbol(Operator op) {
  static constexpr std::array<std::string_view, 8> kSymbols{"<", "<=", "==", "!=", ">=", ">", "~=", "==="};
  return kSymbols[std::size_t(op)];
}

}  // namespace

struct Marker::Node {
  enum class Kind : std::uint8_t { kAnd, kOr, kCompare };
  Kind kind = Kind::kCompare;
  std::vector<Node> children;  // of kAnd, kOr
  Operator op = Operator::kEqual;
  Operand left, right;

  bool holds(const Environment& environment, std::string_view extra) const;
  bool compare(const Environment& environment, std::string_view extra) const;
  void collect_extras(std::set<std::string>& out) const;
};

namespace {

// A parser by descent: or, and, parentheses, comparison. Every function leaves blanks after itself taken.
class Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) { skip_blanks(); }

  std::optional<Marker::Node> parse() {
    auto node = parse_or(0);
    if (node && !rest_.empty()) return std::nullopt;
    return node;
  }

 private:
  using Node = Marker::Node;

  void skip_blanks() {
    while (!rest_.empty() && is_blank(rest_.front())) rest_.remove_prefix(1);
  }
  bool take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    skip_blanks();
    return true;
  }
  bool take_word(std::string_view word) {
    if (!rest_.starts_with(word) || (rest_.size() > word.size() && is_word(rest_[word.size()]))) return false;
    rest_.remove_prefix(word.size());
    skip_blanks();
    return true;
  }

  std::optional<Node> parse_or(std::size_t depth) { return parse_list(depth, Node::Kind::kOr, "or"); }
  std::optional<Node> parse_list(std::size_t depth, Node::Kind kind, std::string_view word) {
    const auto next = [&] {
      return kind == Node::Kind::kOr ? parse_list(depth, Node::Kind::kAnd, "and") : parse_atom(depth);
    };
    auto first = next();
    if (!first || !take_word(word)) return first;
    Node list;
    list.kind = kind;
    list.children.push_back(std::move(*first));
    do {
      auto more = next();
      if (!more) return std::nullopt;
      list.children.push_back(std::move(*more));
    } while (take_word(word));
    return list;
  }
  std::optional<Node> parse_atom(std::size_t depth) {
    if (!take('(')) return parse_comparison();
    if (depth >= kMaxMarkerDepth) return std::nullopt;
    auto inner = parse_or(depth + 1);
    if (!inner || !take(')')) return std::nullopt;
    return inner;
  }
  std::optional<Node> parse_comparison() {
    Node node;
    auto left = parse_operand();
    if (!left) return std::nullopt;
    const auto op = parse_operator();
    if (!op) return std::nullopt;
    auto right = parse_operand();
    if (!right) return std::nullopt;
    node.left = std::move(*left);
    node.op = *op;
    node.right = std::move(*right);
    return node;
  }
  std::optional<Operator> parse_operator() {
    static constexpr std::pair<std::string_view, Operator> kSymbols[] = {
        {"===", Operator::kArbitrary}, {"==", Operator::kEqual},     {"~=", Operator::kCompatible},
        {"!=", Operator::kNotEqual},   {"<=", Operator::kLessEqual}, {">=", Operator::kGreaterEqual},
        {"<", Operator::kLess},        {">", Operator::kGreater}};
    for (const auto& [text, op] : kSymbols) {
      if (!rest_.starts_with(text)) continue;
      rest_.remove_prefix(text.size());
      skip_blanks();
      return op;
    }
    if (take_word("in")) return Operator::kIn;
    if (take_word("not") && take_word("in")) return Operator::kNotIn;
    return std::nullopt;
  }
  std::optional<Operand> parse_operand() {
    if (!rest_.empty() && (rest_.front() == '"' || rest_.front() == '\'')) {
      const auto end = rest_.find(rest_.front(), 1);
      if (end == std::string_view::npos) return std::nullopt;
      Operand out{.variable = false, .text = std::string(rest_.substr(1, end - 1))};
      rest_.remove_prefix(end + 1);
      skip_blanks();
      return out;
    }
    for (const auto* const dotted : kDottedVariables) {
      if (!take_word(dotted)) continue;
      std::string name = dotted;
      name[name.find('.')] = '_';
      return Operand{.variable = true, .text = std::move(name)};
    }
    for (const auto* const name : kVariables) {
      if (!take_word(name)) continue;
      return Operand{
          .variable = true,
          .text = name == std::string_view("python_implementation") ? "platform_python_implementation" : name};
    }
    return std::nullopt;
  }

  std::string_view rest_;
};

std::string value_of(const Operand& operand, const Environment& environment, std::string_view extra) {
  if (!operand.variable) return operand.text;
  if (operand.text == "extra") return normalize_name(extra);
  const auto found = environment.find(operand.text);
  if (found == environment.end()) return "";
  // A Python built from a checkout calls itself "3.13.0+", which PEP 440 does not know.
  return operand.text == "python_full_version" && found->second.ends_with('+') ? found->second + "local"
                                                                               : found->second;
}

}  // namespace

bool Marker::Node::holds(const Environment& environment, std::string_view extra) const {
  const auto child_holds = [&](const Node& child) { return child.holds(environment, extra); };
  switch (kind) {
    case Kind::kAnd:
      return std::ranges::all_of(children, child_holds);
    case Kind::kOr:
      return std::ranges::any_of(children, child_holds);
    case Kind::kCompare:
      return compare(environment, extra);
  }
  return false;
}

// As versions where the variable is one and the other side makes a specifier; else as texts, for which only equality
// has a meaning.
bool Marker::Node::compare(const Environment& environment, std::string_view extra) const {
  const std::string_view variable = left.variable ? left.text : right.text;
  auto lhs = value_of(left, environment, extra);
  auto rhs = value_of(right, environment, extra);
  if (!left.variable && !right.variable) return false;  // says nothing of any environment
  if (variable == "extra") {
    lhs = normalize_name(lhs);
    rhs = normalize_name(rhs);
  }
  if (is_set(variable)) return op == Operator::kNotIn;
  if (op == Operator::kIn) return rhs.find(lhs) != std::string::npos;
  if (op == Operator::kNotIn) return rhs.find(lhs) == std::string::npos;
  if (compares_versions(variable)) {
    if (const auto specifier = SpecifierSet::parse(std::string(symbol(op)) + rhs);
        specifier && rhs.find(',') == std::string::npos) {
      if (op == Operator::kArbitrary) return to_lower(lhs) == to_lower(trim(rhs));
      const auto version = Version::parse(lhs);
      return version && specifier->contains(*version, true);
    }
  }
  switch (op) {
    case Operator::kEqual:
    case Operator::kLessEqual:
    case Operator::kGreaterEqual:
    case Operator::kArbitrary:
      return lhs == rhs;
    case Operator::kNotEqual:
      return lhs != rhs;
    default:
      return false;
  }
}

void Marker::Node::collect_extras(std::set<std::string>& out) const {
  for (const auto& child : children) child.collect_extras(out);
  if (kind != Kind::kCompare) return;
  if (left.variable && left.text == "extra" && !right.variable) out.insert(normalize_name(right.text));
  if (right.variable && right.text == "extra" && !left.variable) out.insert(normalize_name(left.text));
}

std::optional<Marker> Marker::parse(std::string_view text) {
  if (text.size() > kMaxMarkerBytes) return std::nullopt;
  auto node = Parser(text).parse();
  if (!node) return std::nullopt;
  Marker out;
  out.text_ = trim(text);
  out.root_ = std::make_shared<const Node>(std::move(*node));
  return out;
}

bool Marker::holds(const Environment& environment, std::string_view extra) const {
  return !root_ || root_->holds(environment, extra);
}

std::set<std::string> Marker::extras() const {
  std::set<std::string> out;
  if (root_) root_->collect_extras(out);
  return out;
}

}  // namespace varve::python
