#include <algorithm>
#include <bit>
#include <cctype>
#include <optional>
#include <regex>
#include <set>
#include <stdexcept>

#include "gpu/fake/ptx.h"

namespace varve::gpu::fake::ptx {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw std::runtime_error("PTX: " + why); }

std::string without_comments(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (text.compare(i, 2, "//") == 0) {
      i = std::min(text.find('\n', i), text.size());
    } else if (text.compare(i, 2, "/*") == 0) {
      const auto end = text.find("*/", i);
      if (end == std::string::npos) refuse("a comment without end");
      i = end + 2;
    } else {
      out += text[i++];
    }
  }
  return out;
}

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(by, begin);
    parts.push_back(trimmed(text.substr(begin, end == std::string::npos ? end : end - begin)));
  }
  return parts;
}

std::optional<Type> type_of(const std::string& word) {
  static const std::map<char, Kind> kKinds = {
      {'b', Kind::kBits}, {'u', Kind::kUnsigned}, {'s', Kind::kSigned}, {'f', Kind::kFloat}};
  static const std::map<std::string, std::uint8_t> kSizes = {{"8", 1}, {"16", 2}, {"32", 4}, {"64", 8}};
  if (word == "pred") return Type{.kind = Kind::kPredicate, .bytes = 1};
  if (word.size() < 2 || !kKinds.contains(word[0]) || !kSizes.contains(word.substr(1))) return {};
  return Type{.kind = kKinds.at(word[0]), .bytes = kSizes.at(word.substr(1))};
}

Type need_type(std::string word) {
  if (word.starts_with('.')) word.erase(0, 1);
  const auto type = type_of(word);
  if (!type) refuse("unknown type " + word);
  return *type;
}

Op op_of(const std::string& word, const std::string& instruction) {
  static const std::map<std::string, Op> kOps = {
      {"bar", Op::kBar},  {"barrier", Op::kBar}, {"ret", Op::kRet},   {"exit", Op::kRet},  {"bra", Op::kBra},
      {"ld", Op::kLd},    {"st", Op::kSt},       {"atom", Op::kAtom}, {"red", Op::kRed},   {"mov", Op::kMov},
      {"cvta", Op::kMov}, {"cvt", Op::kCvt},     {"selp", Op::kSelp}, {"setp", Op::kSetp}, {"add", Op::kAdd},
      {"sub", Op::kSub},  {"mul", Op::kMul},     {"mad", Op::kMad},   {"fma", Op::kFma},   {"div", Op::kDiv},
      {"rem", Op::kRem},  {"min", Op::kMin},     {"max", Op::kMax},   {"and", Op::kAnd},   {"or", Op::kOr},
      {"xor", Op::kXor},  {"not", Op::kNot},     {"neg", Op::kNeg},   {"abs", Op::kAbs},   {"sqrt", Op::kSqrt},
      {"rcp", Op::kRcp},  {"shl", Op::kShl},     {"shr", Op::kShr}};
  const auto found = kOps.find(word);
  if (found == kOps.end()) refuse("cannot run " + instruction);
  return found->second;
}

Compare compare_of(const std::string& word, const std::string& instruction) {
  static const std::map<std::string, Compare> kWords = {
      {"eq", Compare::kEqual},         {"ne", Compare::kNot},         {"lt", Compare::kLess},
      {"lo", Compare::kLess},          {"le", Compare::kLessOrEqual}, {"ls", Compare::kLessOrEqual},
      {"gt", Compare::kGreater},       {"hi", Compare::kGreater},     {"ge", Compare::kGreaterOrEqual},
      {"hs", Compare::kGreaterOrEqual}};
  const auto found = kWords.find(word);
  if (found == kWords.end()) refuse("cannot run " + instruction);
  return found->second;
}

// One kernel's body, statement by statement.
class Body {
 public:
  explicit Body(Kernel& kernel) : kernel_(kernel) {}

  void statement(std::string text) {
    std::smatch label;
    static const std::regex kLabel(R"(^\s*([$%A-Za-z_][\w$]*)\s*:)");
    while (std::regex_search(text, label, kLabel)) {
      if (!labels_.emplace(label[1], kernel_.code.size()).second) refuse("label " + label[1].str() + " twice");
      text = label.suffix();
    }
    text = trimmed(text);
    if (text.empty()) return;
    if (text.starts_with(".reg")) return declare_registers(text);
    if (text.starts_with(".shared")) return declare_shared(text, kernel_);
    if (text.starts_with(".pragma")) return;
    if (text[0] == '.') refuse("unknown declaration " + text);
    instruction(text);
  }

  void finish() {
    kernel_.registers = registers_.size();
    for (auto& instruction : kernel_.code) {
      if (instruction.op != Op::kBra) continue;
      const auto found = labels_.find(instruction.operands.at(0).symbol);
      if (found == labels_.end()) refuse("no label " + instruction.operands[0].symbol);
      instruction.target = found->second;
    }
    const auto last = kernel_.code.empty() ? Op::kBar : kernel_.code.back().op;
    if (last != Op::kRet && last != Op::kBra) refuse("a kernel that does not end with ret");
  }

  static void declare_shared(const std::string& text, Kernel& kernel) {
    static const std::regex kShape(
        R"(^(?:\.extern\s+)?\.shared\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$%]+)\s*(?:\[\s*(\d*)\s*\])?$)");
    std::smatch found;
    if (!std::regex_match(text, found, kShape)) refuse("unknown declaration " + text);
    const std::size_t align = found[1].matched ? std::stoul(found[1]) : need_type(found[2]).bytes;
    kernel.shared_bytes = (kernel.shared_bytes + align - 1) / align * align;
    kernel.shared[found[3]] = kernel.shared_bytes;
    kernel.shared_bytes += need_type(found[2]).bytes * (!found[4].matched   ? 1
                                                        : found[4].length() ? std::stoul(found[4])
                                                                            : 0);
  }

 private:
  Kernel& kernel_;
  std::map<std::string, std::uint32_t> registers_;
  std::map<std::string, Type> types_;
  std::map<std::string, std::size_t> labels_;

  void declare_registers(const std::string& text) {
    static const std::regex kShape(R"(^\.reg\s+\.(\w+)\s+(.*)$)");
    static const std::regex kRange(R"(^([%\w$]+)<(\d+)>$)");
    std::smatch found;
    if (!std::regex_match(text, found, kShape)) refuse("unknown declaration " + text);
    const auto type = need_type(found[1]);
    for (const auto& name : split(found[2], ',')) {
      std::smatch range;
      if (!std::regex_match(name, range, kRange)) {
        add(name, type);
        continue;
      }
      for (unsigned i = 0; i < std::stoul(range[2]); ++i) add(range[1].str() + std::to_string(i), type);
    }
  }

  void add(const std::string& name, Type type) {
    if (!registers_.emplace(name, std::uint32_t(registers_.size())).second) refuse("register " + name + " twice");
    types_[name] = type;
  }

  void instruction(std::string text) {
    Instruction result;
    static const std::regex kGuard(R"(^@(!?)\s*([%\w$]+)\s+)");
    std::smatch guard;
    if (std::regex_search(text, guard, kGuard)) {
      const auto found = registers_.find(guard[2]);
      if (found == registers_.end() || types_[guard[2]].kind != Kind::kPredicate)
        refuse("no predicate " + guard[2].str());
      result.guard = int(found->second);
      result.guard_negated = guard[1].length() > 0;
      text = guard.suffix();
    }
    const auto end = text.find_first_of(" \t\n");
    result.name = text.substr(0, end);
    const auto parts = split(result.name, '.');
    result.op = op_of(parts[0], result.name);
    take_words(parts, result);
    if (end != std::string::npos) {
      for (const auto& word : split(text.substr(end), ','))
        result.operands.push_back(operand(word, result.op == Op::kBra));
    }
    check_sizes(result);
    kernel_.code.push_back(std::move(result));
  }

  static void take_words(const std::vector<std::string>& parts, Instruction& result) {
    std::vector<Type> types;
    const auto has = [&](const char* word) { return std::find(parts.begin() + 1, parts.end(), word) != parts.end(); };
    for (const auto& part : parts) {
      if (const auto type = &part == &parts[0] ? std::nullopt : type_of(part)) types.push_back(*type);
    }
    if (!types.empty()) result.from = types.back(), result.type = types.front();
    if (result.op != Op::kCvt) result.type = result.from;
    result.parameter = has("param"), result.shared = has("shared"), result.wide = has("wide"), result.high = has("hi"),
    result.nearest = has("rni");
    if (result.op == Op::kSetp) result.compare = compare_of(parts.size() > 1 ? parts[1] : "", result.name);
    if ((result.op == Op::kAtom || result.op == Op::kRed) && !has("add")) refuse("cannot run " + result.name);
    const bool whole = result.type.kind != Kind::kFloat && (result.op == Op::kMul || result.op == Op::kMad);
    if (whole && !result.wide && !result.high && !has("lo")) refuse(result.name + " needs .lo, .hi or .wide");
    if (whole && result.high && result.type.bytes == 8) refuse("cannot run " + result.name);
  }

  // A register of another size than the instruction works with is what ptxas refuses first.
  void check_sizes(const Instruction& instruction) const {
    const auto op = instruction.op;
    if (op != Op::kAdd && op != Op::kSub && op != Op::kFma && op != Op::kAnd && op != Op::kOr && op != Op::kXor) return;
    for (const auto& operand : instruction.operands) {
      if (operand.form != Operand::Form::kRegister) continue;
      for (const auto& [name, index] : registers_) {
        if (index == operand.index && types_.at(name).bytes != instruction.type.bytes)
          refuse(instruction.name + " with " + name + ", a register of another size");
      }
    }
  }

  Operand operand(std::string word, bool is_label) {
    Operand result;
    if (word.starts_with('[') && word.ends_with(']')) {
      word = trimmed(word.substr(1, word.size() - 2));
      if (const auto plus = word.find('+'); plus != std::string::npos) {
        result.value = std::stoull(trimmed(word.substr(plus + 1)), nullptr, 0);
        word = trimmed(word.substr(0, plus));
      }
    }
    static const std::map<std::string, std::uint32_t> kSpecial = {
        {"%tid.x", 0},     {"%tid.y", 1},     {"%tid.z", 2},   {"%ntid.x", 3},  {"%ntid.y", 4},
        {"%ntid.z", 5},    {"%ctaid.x", 6},   {"%ctaid.y", 7}, {"%ctaid.z", 8}, {"%nctaid.x", 9},
        {"%nctaid.y", 10}, {"%nctaid.z", 11}, {"%laneid", 12}};
    if (const auto special = kSpecial.find(word); special != kSpecial.end()) {
      result.form = Operand::Form::kSpecial;
      result.index = special->second;
    } else if (const auto found = registers_.find(word); found != registers_.end() && !is_label) {
      result.form = Operand::Form::kRegister;
      result.index = found->second;
    } else if (is_label || kernel_.parameters.contains(word) || kernel_.shared.contains(word)) {
      result.form = Operand::Form::kSymbol;
      result.symbol = word;
    } else {
      result.value = immediate(word);
    }
    return result;
  }

  static std::uint64_t immediate(const std::string& word) {
    if (word.size() == 10 && (word.starts_with("0f") || word.starts_with("0F")))
      return std::stoull(word.substr(2), nullptr, 16);
    if (word.size() == 18 && (word.starts_with("0d") || word.starts_with("0D")))
      return std::stoull(word.substr(2), nullptr, 16);
    static const std::regex kInteger(R"(^(-?)(0[xX][0-9a-fA-F]+|\d+)U?$)");
    std::smatch found;
    if (!std::regex_match(word, found, kInteger)) refuse("unknown operand " + word);
    const auto value = std::stoull(found[2], nullptr, 0);
    return found[1].length() ? ~value + 1 : value;
  }
};

void declare_parameters(const std::string& text, Kernel& kernel) {
  if (trimmed(text).empty()) return;
  static const std::regex kShape(R"(^\.param\s+\.(\w+)\s+(?:\.ptr\s+(?:\.\w+\s+)*?(?:\.align\s+\d+\s+)?)?([\w$%]+)$)");
  for (const auto& parameter : split(text, ',')) {
    std::smatch found;
    if (!std::regex_match(parameter, found, kShape)) refuse("unknown parameter " + parameter);
    const std::size_t bytes = need_type(found[1]).bytes;
    const auto offset = (kernel.parameter_bytes + bytes - 1) / bytes * bytes;
    kernel.parameters[found[2]] = {offset, bytes};
    kernel.parameter_order.emplace_back(offset, bytes);
    kernel.parameter_bytes = offset + bytes;
  }
}

}  // namespace

std::map<std::string, Kernel> parse(const std::string& commented, int sm) {
  const auto text = without_comments(commented);
  std::smatch found;
  static const std::regex kVersion(R"(^\s*\.version\s+\d+\.\d+)"), kTarget(R"(\.target\s+(?:sm|compute)_(\d+))"),
      kAddresses(R"(\.address_size\s+64)");
  if (!std::regex_search(text, found, kVersion)) refuse("does not begin with .version");
  if (!std::regex_search(text, found, kTarget)) refuse("has no .target");
  if (std::stoi(found[1]) > sm) refuse("is for sm_" + found[1].str() + ", the device is sm_" + std::to_string(sm));
  if (!std::regex_search(text, found, kAddresses)) refuse("has no .address_size 64");

  std::map<std::string, Kernel> kernels;
  static const std::regex kEntry(R"(\.entry\s+([\w$]+)\s*\(([^)]*)\)([^{]*)\{)"),
      kShared(R"(\.extern\s+\.shared[^;]*)");
  for (auto begin = text.cbegin(); std::regex_search(begin, text.cend(), found, kEntry);) {
    Kernel kernel;
    for (std::sregex_iterator shared(text.begin(), text.end(), kShared), end; shared != end; ++shared)
      Body::declare_shared(trimmed(shared->str()), kernel);
    declare_parameters(found[2], kernel);
    const auto close = std::find(found[0].second, text.cend(), '}');
    if (close == text.cend()) refuse("a kernel without end");
    Body body(kernel);
    const auto statements = split(std::string(found[0].second, close), ';');
    for (const auto& statement : statements) body.statement(statement);
    body.finish();
    kernels[found[1]] = std::move(kernel);
    begin = close + 1;
  }
  if (kernels.empty()) refuse("has no .entry");
  return kernels;
}

}  // namespace varve::gpu::fake::ptx
