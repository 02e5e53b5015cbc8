// The two keys of Whet, and what is in each. One place, so that a test can perturb every field.
//
//   KeyRecord code = CodeKey({.template_name = "rms_norm", ...});     // what makes the bytes
//   KeyRecord tuning = TuningKey({...});                              // what makes the choice
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/model/device_identity.h"
#include "src/model/key.h"
#include "src/model/target.h"

namespace whet {

struct CodeKeyFields {
  int64_t schema = 1;
  std::string template_name;
  int64_t template_version = 0;
  std::string source_digest;  // hex of the whole translation unit: prelude (so: every baked
                              // constant) and source with its includes
  std::string problem;        // canonical text, for people who ask why something missed
  std::string variant;
  Target target;
  std::string compiler;  // "hiprtc"
  std::string
      compiler_version;  // "7.14.1"; a failed probe is "probe-failed: <reason>", never "unknown"
  std::string compiler_build;        // what tells two builds of one version apart
  std::vector<std::string> options;  // in order
  std::string object_format;         // "elf-so", "hsaco", "cubin", "ptx"
};
KeyRecord CodeKey(const CodeKeyFields& fields);

// The same without the compiler, its options and the object format that follows from it: what was
// asked for, whoever compiled it. A hit needs no compiler to be present, so code is looked up by
// the exact key of a winner, or by this one.
KeyRecord CodeRequestKey(const CodeKeyFields& fields);

struct TuningKeyFields {
  int64_t schema = 1;
  std::string template_name;
  int64_t template_version = 0;
  std::string variant_set_digest;
  std::string problem;
  DeviceIdentity
      device;  // product, compute units, memory and power class, partition, target; not the driver,
               // nor the cache and shared memory sizes, which product and partition settle
  int64_t protocol = 0;  // version of the measuring protocol
};
KeyRecord TuningKey(const TuningKeyFields& fields);

}  // namespace whet
