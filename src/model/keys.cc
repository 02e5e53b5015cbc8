#include "src/model/keys.h"

namespace whet {
namespace {

// Names and order are a contract: caches and packs hold these bytes.
void AddRequest(const CodeKeyFields& fields, KeyRecord& record) {
  record.Add("schema", fields.schema)
      .Add("template", fields.template_name)
      .Add("template_version", fields.template_version)
      .Add("source", fields.source_digest)
      .Add("problem", fields.problem)
      .Add("variant", fields.variant)
      .Add("target", fields.target.ToString());
}

}  // namespace

KeyRecord CodeKey(const CodeKeyFields& fields) {
  KeyRecord record("code");
  AddRequest(fields, record);
  record.Add("compiler", fields.compiler)
      .Add("compiler_version", fields.compiler_version)
      .Add("compiler_build", fields.compiler_build)
      .Add("object_format", fields.object_format)
      .Add("options", static_cast<int64_t>(fields.options.size()));
  for (const std::string& option : fields.options) record.Add("option", option);
  return record;
}

KeyRecord CodeRequestKey(const CodeKeyFields& fields) {
  KeyRecord record("code_request");
  AddRequest(fields, record);
  return record;
}

KeyRecord TuningKey(const TuningKeyFields& fields) {
  KeyRecord record("tuning");
  record.Add("schema", fields.schema)
      .Add("template", fields.template_name)
      .Add("template_version", fields.template_version)
      .Add("variant_set", fields.variant_set_digest)
      .Add("problem", fields.problem)
      .Add("target", fields.device.target.ToString())
      .Add("product", fields.device.product)
      .Add("compute_units", fields.device.compute_units)
      .Add("memory", fields.device.MemoryClass())
      .Add("power", fields.device.PowerClass())
      .Add("partition", fields.device.partition)
      .Add("protocol", fields.protocol);
  return record;
}

}  // namespace whet
