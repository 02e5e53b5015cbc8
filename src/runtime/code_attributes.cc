#include "src/runtime/code_attributes.h"

#include <nlohmann/json.hpp>

namespace whet {
namespace {

void Read(const nlohmann::json& object, const char* name, std::string& value) {
  const auto it = object.find(name);
  if (it != object.end() && it->is_string()) value = it->get<std::string>();
}

void Read(const nlohmann::json& object, const char* name, int64_t& value) {
  const auto it = object.find(name);
  if (it != object.end() && it->is_number_integer()) value = it->get<int64_t>();
}

}  // namespace

std::string CodeAttributesToJson(const CodeAttributes& attributes) {
  nlohmann::json object = {
      {"entry", attributes.entry},
      {"format", attributes.format},
      {"template", attributes.template_name},
      {"problem", attributes.problem},
      {"variant", attributes.variant},
      {"target", attributes.target},
      {"compiler", attributes.compiler},
      {"registers", attributes.resources.registers},
      {"scalar_registers", attributes.resources.scalar_registers},
      {"spill_bytes", attributes.resources.spill_bytes},
      {"shared_bytes", attributes.resources.shared_bytes},
  };
  if (!attributes.log.empty()) object["log"] = attributes.log;
  // A compiler's log may hold bytes that are no UTF-8; they are replaced, not fatal.
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<CodeAttributes> CodeAttributesFromJson(absl::string_view json) {
  const nlohmann::json object =
      nlohmann::json::parse(json.begin(), json.end(), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return absl::DataLossError("code attributes are not a JSON object");
  CodeAttributes attributes;
  Read(object, "entry", attributes.entry);
  Read(object, "format", attributes.format);
  Read(object, "template", attributes.template_name);
  Read(object, "problem", attributes.problem);
  Read(object, "variant", attributes.variant);
  Read(object, "target", attributes.target);
  Read(object, "compiler", attributes.compiler);
  Read(object, "registers", attributes.resources.registers);
  Read(object, "scalar_registers", attributes.resources.scalar_registers);
  Read(object, "spill_bytes", attributes.resources.spill_bytes);
  Read(object, "shared_bytes", attributes.resources.shared_bytes);
  Read(object, "log", attributes.log);
  return attributes;
}

}  // namespace whet
