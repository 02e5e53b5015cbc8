#include "src/model/keys.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

namespace whet {
namespace {

CodeKeyFields SampleCodeFields() {
  return {.schema = 1,
          .template_name = "rms_norm",
          .template_version = 2,
          .source_digest = "00ff",
          .problem = "rms_norm:rows=512",
          .variant = "gpu:threads=64",
          .target = *Target::Parse("gfx950:sramecc+:xnack-"),
          .compiler = "hiprtc",
          .compiler_version = "7.14.1",
          .compiler_build = "a1b2",
          .options = {"-O3", "-g"},
          .object_format = "hsaco"};
}

TuningKeyFields SampleTuningFields() {
  return {.schema = 1,
          .template_name = "rms_norm",
          .template_version = 2,
          .variant_set_digest = "0a0b",
          .problem = "rms_norm:rows=512",
          .device = {.target = *Target::Parse("gfx950:sramecc+:xnack-"),
                     .product = "AMD Instinct MI355X",
                     .compute_units = 256,
                     .memory_bytes = int64_t{288} << 30,
                     .power_cap_watts = 1400,
                     .partition = "SPX/NPS1",
                     .driver = "6.14.5",
                     .l2_bytes = 4 << 20,
                     .shared_bytes_max = 160 << 10},
          .protocol = 1};
}

template <typename Fields>
struct Perturbation {
  std::string field;
  std::function<void(Fields&)> change;
};

std::vector<Perturbation<CodeKeyFields>> RequestPerturbations() {
  return {
      {"schema", [](CodeKeyFields& f) { ++f.schema; }},
      {"template_name", [](CodeKeyFields& f) { f.template_name += "x"; }},
      {"template_version", [](CodeKeyFields& f) { ++f.template_version; }},
      {"source_digest", [](CodeKeyFields& f) { f.source_digest = "00fe"; }},
      {"problem", [](CodeKeyFields& f) { f.problem = "rms_norm:rows=513"; }},
      {"variant", [](CodeKeyFields& f) { f.variant = "gpu:threads=128"; }},
      {"target",
       [](CodeKeyFields& f) {
         f.target.features = {"sramecc+", "xnack+"};
       }},
      {"target", [](CodeKeyFields& f) { f.target.features.clear(); }},
      {"target", [](CodeKeyFields& f) { f.target.architecture = "gfx942"; }},
  };
}

std::vector<Perturbation<CodeKeyFields>> CompilerPerturbations() {
  return {
      {"compiler", [](CodeKeyFields& f) { f.compiler = "clang_amdgpu"; }},
      {"compiler_version", [](CodeKeyFields& f) { f.compiler_version = "7.14.2"; }},
      {"compiler_build", [](CodeKeyFields& f) { f.compiler_build = "a1b3"; }},
      {"options",
       [](CodeKeyFields& f) {
         f.options = {"-g", "-O3"};
       }},
      {"options", [](CodeKeyFields& f) { f.options = {"-O3-g"}; }},
      {"options", [](CodeKeyFields& f) { f.options = {"-O3"}; }},
      {"options", [](CodeKeyFields& f) { f.options.push_back(""); }},
      {"object_format", [](CodeKeyFields& f) { f.object_format = "elf-so"; }},
  };
}

// What must change a tuning key, and what must not.
std::vector<Perturbation<TuningKeyFields>> TuningPerturbations() {
  return {
      {"schema", [](TuningKeyFields& f) { ++f.schema; }},
      {"template_name", [](TuningKeyFields& f) { f.template_name += "x"; }},
      {"template_version", [](TuningKeyFields& f) { ++f.template_version; }},
      {"variant_set_digest", [](TuningKeyFields& f) { f.variant_set_digest = "0a0c"; }},
      {"problem", [](TuningKeyFields& f) { f.problem += "3"; }},
      {"protocol", [](TuningKeyFields& f) { ++f.protocol; }},
      {"device", [](TuningKeyFields& f) { f.device.product += "x"; }},
      {"device.target", [](TuningKeyFields& f) { f.device.target.features.clear(); }},
      {"device.target", [](TuningKeyFields& f) { f.device.target.architecture = "gfx942"; }},
      {"device.product", [](TuningKeyFields& f) { f.device.product = "AMD Instinct MI350X"; }},
      {"device.compute_units", [](TuningKeyFields& f) { --f.device.compute_units; }},
      {"device.memory_bytes", [](TuningKeyFields& f) { f.device.memory_bytes /= 2; }},
      {"device.power_cap_watts", [](TuningKeyFields& f) { f.device.power_cap_watts = 1000; }},
      {"device.partition", [](TuningKeyFields& f) { f.device.partition = "CPX/NPS4"; }},
  };
}

std::vector<Perturbation<TuningKeyFields>> NeutralPerturbations() {
  return {
      {"device.driver", [](TuningKeyFields& f) { f.device.driver = "6.15"; }},
      {"device.l2_bytes", [](TuningKeyFields& f) { f.device.l2_bytes *= 2; }},
      {"device.shared_bytes_max", [](TuningKeyFields& f) { f.device.shared_bytes_max *= 2; }},
      // Two boards of one product, a few MiB and a few watts apart.
      {"device.memory_bytes", [](TuningKeyFields& f) { f.device.memory_bytes -= 50 << 20; }},
      {"device.power_cap_watts", [](TuningKeyFields& f) { f.device.power_cap_watts -= 10; }},
  };
}

template <typename Fields>
bool Mentions(const std::vector<Perturbation<Fields>>& table, const std::string& field) {
  for (const Perturbation<Fields>& p : table) {
    if (p.field == field) return true;
  }
  return false;
}

TEST(KeysTest, EveryMemberOfTheCodeFieldsIsPerturbed) {
  const CodeKeyFields fields;
  // A new member breaks this line: name it here and below, and give it a perturbation.
  const auto& [schema, template_name, template_version, source_digest, problem, variant, target,
               compiler, compiler_version, compiler_build, options, object_format] = fields;
  std::ignore =
      std::tie(schema, template_name, template_version, source_digest, problem, variant, target,
               compiler, compiler_version, compiler_build, options, object_format);
  for (const char* name : {"schema", "template_name", "template_version", "source_digest",
                           "problem", "variant", "target"}) {
    EXPECT_TRUE(Mentions(RequestPerturbations(), name)) << name;
  }
  for (const char* name :
       {"compiler", "compiler_version", "compiler_build", "options", "object_format"}) {
    EXPECT_TRUE(Mentions(CompilerPerturbations(), name)) << name;
  }
}

TEST(KeysTest, EveryMemberOfTheTuningFieldsIsPerturbed) {
  const TuningKeyFields fields;
  // A new member breaks one of these lines: name it here and below, and give it a perturbation.
  const auto& [schema, template_name, template_version, variant_set_digest, problem, device,
               protocol] = fields;
  const auto& [target, product, compute_units, memory_bytes, power_cap_watts, partition, driver,
               l2_bytes, shared_bytes_max] = device;
  const auto& [platform, architecture, features] = target;
  std::ignore = std::tie(schema, template_name, template_version, variant_set_digest, problem,
                         protocol, product, compute_units, memory_bytes, power_cap_watts, partition,
                         driver, l2_bytes, shared_bytes_max, platform, architecture, features);
  for (const char* name :
       {"schema", "template_name", "template_version", "variant_set_digest", "problem", "device",
        "protocol", "device.target", "device.product", "device.compute_units",
        "device.memory_bytes", "device.power_cap_watts", "device.partition"}) {
    EXPECT_TRUE(Mentions(TuningPerturbations(), name)) << name;
  }
  for (const char* name : {"device.driver", "device.l2_bytes", "device.shared_bytes_max"}) {
    EXPECT_TRUE(Mentions(NeutralPerturbations(), name)) << name;
  }
}

TEST(KeysTest, EachPerturbationChangesTheCodeKey) {
  const KeyRecord base = CodeKey(SampleCodeFields());
  const KeyRecord base_request = CodeRequestKey(SampleCodeFields());
  for (const auto& [field, change] : RequestPerturbations()) {
    CodeKeyFields fields = SampleCodeFields();
    change(fields);
    EXPECT_NE(CodeKey(fields).hash(), base.hash()) << field;
    EXPECT_NE(CodeRequestKey(fields).hash(), base_request.hash()) << field;
  }
  for (const auto& [field, change] : CompilerPerturbations()) {
    CodeKeyFields fields = SampleCodeFields();
    change(fields);
    EXPECT_NE(CodeKey(fields).hash(), base.hash()) << field;
    EXPECT_EQ(CodeRequestKey(fields).bytes(), base_request.bytes()) << field;
  }
}

TEST(KeysTest, TheTuningKeyChangesWithWhatMattersAndWithNothingElse) {
  const KeyRecord base = TuningKey(SampleTuningFields());
  for (const auto& [field, change] : TuningPerturbations()) {
    TuningKeyFields fields = SampleTuningFields();
    change(fields);
    EXPECT_NE(TuningKey(fields).hash(), base.hash()) << field;
  }
  for (const auto& [field, change] : NeutralPerturbations()) {
    TuningKeyFields fields = SampleTuningFields();
    change(fields);
    EXPECT_EQ(TuningKey(fields).bytes(), base.bytes()) << field;
  }
}

TEST(KeysTest, TheThreeKindsNeverMeet) {
  const CodeKeyFields code;
  const TuningKeyFields tuning;
  EXPECT_NE(CodeKey(code).bytes(), CodeRequestKey(code).bytes());
  EXPECT_NE(CodeRequestKey(code).bytes(), TuningKey(tuning).bytes());
}

std::string Dump(const KeyRecord& record) {
  const ParsedKeyRecord parsed = *ParseKeyRecord(record.bytes());
  std::string out = parsed.kind + "\n";
  for (const auto& [name, value] : parsed.fields) out += name + "=" + value + "\n";
  return out;
}

// Caches and packs in the field hold these bytes. When one of these fails, old caches miss: raise
// the schema, do not edit the expectation alone.
TEST(KeysTest, GoldenCodeKey) {
  EXPECT_EQ(Dump(CodeKey(SampleCodeFields())),
            "code\n"
            "schema=1\n"
            "template=rms_norm\n"
            "template_version=2\n"
            "source=00ff\n"
            "problem=rms_norm:rows=512\n"
            "variant=gpu:threads=64\n"
            "target=gfx950:sramecc+:xnack-\n"
            "compiler=hiprtc\n"
            "compiler_version=7.14.1\n"
            "compiler_build=a1b2\n"
            "object_format=hsaco\n"
            "options=2\n"
            "option=-O3\n"
            "option=-g\n");
  EXPECT_EQ(CodeKey(SampleCodeFields()).hash().ToHex(), "a2a0ebe6c0b800078a0d7dbf4c664d3f");
  EXPECT_EQ(CodeRequestKey(SampleCodeFields()).hash().ToHex(), "09f40182df8f60b87d6181430121c9d2");
}

TEST(KeysTest, GoldenTuningKey) {
  EXPECT_EQ(Dump(TuningKey(SampleTuningFields())),
            "tuning\n"
            "schema=1\n"
            "template=rms_norm\n"
            "template_version=2\n"
            "variant_set=0a0b\n"
            "problem=rms_norm:rows=512\n"
            "target=gfx950:sramecc+:xnack-\n"
            "product=AMD Instinct MI355X\n"
            "compute_units=256\n"
            "memory=288GiB\n"
            "power=1400W\n"
            "partition=SPX/NPS1\n"
            "protocol=1\n");
  EXPECT_EQ(TuningKey(SampleTuningFields()).hash().ToHex(), "62cfe0bbade2877a1925d6aff895528a");
}

TEST(DeviceIdentityTest, Classes) {
  DeviceIdentity identity;
  EXPECT_EQ(identity.MemoryClass(), "unknown");
  EXPECT_EQ(identity.PowerClass(), "unknown");
  identity.memory_bytes = 150754820096;  // an H200 as its driver reports it
  identity.power_cap_watts = 674;
  EXPECT_EQ(identity.MemoryClass(), "140GiB");
  EXPECT_EQ(identity.PowerClass(), "650W");
  identity.power_cap_watts = 675;
  EXPECT_EQ(identity.PowerClass(), "700W");
}

}  // namespace
}  // namespace whet
