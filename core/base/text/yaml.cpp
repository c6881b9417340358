#include "core/base/text/yaml.h"

#include <yaml-cpp/yaml.h>
#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/text/utf8.h"

namespace varve {
namespace {

class YamlToJson {
 public:
  YamlToJson(std::string_view what, const YamlLimits& limits) : what_(what), limits_(limits) {}
  nlohmann::json convert(const YAML::Node& node, int depth = 0) {
    if (++values_ > limits_.values || depth > limits_.depth) fail<CorruptData>("{}: is too large or too deep", what_);
    switch (node.Type()) {
      case YAML::NodeType::Sequence: {
        auto list = nlohmann::json::array();
        for (const auto& one : node) list.push_back(convert(one, depth + 1));
        return list;
      }
      case YAML::NodeType::Map: {
        auto object = nlohmann::json::object();
        for (const auto& pair : node) object[text_of(pair.first)] = convert(pair.second, depth + 1);
        return object;
      }
      case YAML::NodeType::Scalar:
        return text_of(node);
      default:
        return nullptr;
    }
  }

 private:
  // The library takes any bytes; JSON is written of no others than these.
  const std::string& text_of(const YAML::Node& node) const {
    if (!is_utf8(node.Scalar())) fail<CorruptData>("{}:{}: holds text that is no UTF-8", what_, node.Mark().line + 1);
    return node.Scalar();
  }

  std::string_view what_;
  YamlLimits limits_;
  std::size_t values_ = 0;
};

}  // namespace

JsonValue parse_yaml(std::string_view text, std::string_view what, const YamlLimits& limits) {
  try {
    return {YamlToJson(what, limits).convert(YAML::Load(std::string(text))), what};
  } catch (const YAML::Exception& error) {
    fail<CorruptData>("{}:{}: is no YAML: {}", what, error.mark.line + 1, error.msg);
  }
}

}  // namespace varve
