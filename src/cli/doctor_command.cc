// whet doctor: what was found where on this machine, and why not.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cache/file_system.h"
#include "cache/store.h"
#include "src/base/files.h"
#include "src/cli/command.h"
#include "src/cli/report.h"
#include "src/device/devices.h"
#include "src/model/kernel_template.h"
#include "src/runtime/builtin_templates.h"

namespace whet {
namespace {

using nlohmann::ordered_json;

// Those that decide where things are looked for; src/runtime/options.h explains each.
constexpr absl::string_view kVariables[] = {
    "WHET_CACHE",        "WHET_CACHE_POLICY",  "WHET_PACKS",          "WHET_TRUSTED_KEYS",
    "WHET_TUNING",       "WHET_CXX",           "WHET_HIPRTC",         "WHET_NVRTC",
    "WHET_AMDGPU_CLANG", "WHET_CPU_THREADS",   "WHET_COMPILE_HELPER", "WHET_COMPILE_TIMEOUT",
    "WHET_TEMPLATES",    "WHET_TUNING_BUDGET", "XDG_CACHE_HOME",      "HOME",
};

class DoctorCommand final : public Command {
 public:
  void Declare(Verb app) override {
    verb_ = app.AddVerb("doctor", "Show what was found on this machine, and why not");
  }
  Outcome Run(Session& session) override;
};

// Why a cache in `directory` cannot be used, or empty. The same rule as the store's: others who can
// write there could plant code.
std::string WhyNoCache(const std::string& directory) {
  if (directory.empty())
    return "neither WHET_CACHE, XDG_CACHE_HOME nor HOME is set; set WHET_CACHE";
  struct stat info;
  if (stat(directory.c_str(), &info) != 0) {
    return errno == ENOENT ? "" : std::string(std::strerror(errno));  // made with the first entry
  }
  if (!S_ISDIR(info.st_mode)) return "it is not a directory; remove it or set WHET_CACHE";
  if (info.st_uid != geteuid()) return "it belongs to another user; set WHET_CACHE to one of yours";
  if ((info.st_mode & 022) != 0) return "others can write to it; chmod go-w it";
  if (access(directory.c_str(), W_OK | X_OK) != 0) return "it cannot be written: used read-only";
  return "";
}

void ReportCache(Session& session, ordered_json* json) {
  const Options& options = session.options;
  const std::string& directory = options.cache_directory;
  const FileSystem system = DetectFileSystem(directory.empty() ? "/" : directory);
  const std::string why = WhyNoCache(directory);
  const std::string file = directory.empty() ? "" : JoinPath(directory, kCacheFileName);
  const bool exists = !file.empty() && IsRegularFile(file);
  session.console.Row("cache", directory.empty() ? "in memory only" : directory);
  session.console.Row("", absl::StrCat(exists ? "holds a cache.db; " : "empty; ", system.name,
                                       system.kind == FileSystemKind::kNetwork
                                           ? ", a network file system: no locks are relied on"
                                           : "",
                                       "; policy ", CachePolicyName(options.cache_policy)));
  if (!why.empty()) session.console.Row("", why);
  (*json)["cache"] = {{"directory", directory},
                      {"exists", exists},
                      {"file_system", system.name},
                      {"network", system.kind == FileSystemKind::kNetwork},
                      {"policy", std::string(CachePolicyName(options.cache_policy))},
                      {"problem", why}};
  ordered_json packs = ordered_json::array();
  for (const std::string& pack : options.packs) {
    const bool found = IsRegularFile(pack);
    session.console.Row("pack", absl::StrCat(pack, found ? "" : ": there is no such file"));
    packs.push_back({{"path", pack}, {"found", found}});
  }
  (*json)["packs"] = std::move(packs);
}

void ReportToolchains(Session& session, ordered_json* json) {
  Toolchains toolchains(session.options.toolchains);
  ordered_json list = ordered_json::array();
  for (const ToolchainReport& r : toolchains.Report()) {
    ordered_json item = {{"compiler", r.compiler}, {"found", r.found}};
    if (r.found) {
      session.console.Row(r.compiler,
                          absl::StrFormat("%s at %s: %s", r.identity.version, r.identity.path,
                                          absl::StrJoin(r.targets, ", ")));
      item["version"] = r.identity.version;
      item["build"] = r.identity.build;
      item["path"] = r.identity.path;
      item["targets"] = r.targets;
    } else {
      session.console.Row(r.compiler, absl::StrCat("not found: ", OneLine(r.reason)));
      item["reason"] = r.reason;
    }
    list.push_back(std::move(item));
  }
  (*json)["compilers"] = std::move(list);
}

void ReportAllDevices(Session& session, ordered_json* json) {
  ordered_json list = ordered_json::array();
  for (const DeviceReport& r : ReportDevices(session.options.device)) {
    const std::string platform(PlatformName(r.platform));
    for (const DeviceIdentity& identity : r.devices) {
      session.console.Row(platform, DeviceText(identity).substr(platform.size() + 2));
      list.push_back(DeviceJson(identity));
    }
    if (!r.devices.empty()) continue;
    session.console.Row(platform, absl::StrCat("no device: ", OneLine(r.reason)));
    list.push_back({{"platform", platform}, {"reason", r.reason}});
  }
  (*json)["devices"] = std::move(list);
}

void ReportTemplates(Session& session, ordered_json* json) {
  ordered_json list = ordered_json::array();
  const auto report = [&](const TemplateFiles& files, const TemplateFiles& common,
                          const std::string& where) {
    for (const std::string& name : OperationNames(files)) {
      TemplateFiles all = files;
      all.insert(common.begin(), common.end());
      const absl::Status status = KernelTemplate::Parse(name, all).status();
      session.console.Row("template", absl::StrCat(name, " (", where, ")", status.ok() ? "" : ": ",
                                                   OneLine(status.message())));
      list.push_back(
          {{"name", name}, {"where", where}, {"problem", std::string(status.message())}});
    }
  };
  const TemplateFiles builtin = BuiltinTemplateFiles();
  report(builtin, {}, "built in");
  for (const std::string& directory : session.options.template_directories) {
    absl::StatusOr<TemplateFiles> files = ReadTemplateDirectory(directory);
    if (files.ok()) {
      report(*files, builtin, directory);
      continue;
    }
    session.console.Row("template", OneLine(files.status().message()));
    list.push_back({{"where", directory}, {"problem", std::string(files.status().message())}});
  }
  (*json)["templates"] = std::move(list);
}

Outcome DoctorCommand::Run(Session& session) {
  ordered_json json = ordered_json::object();
  ReportCache(session, &json);
  ReportToolchains(session, &json);
  ReportAllDevices(session, &json);
  ReportTemplates(session, &json);
  ordered_json variables = ordered_json::object();
  for (const absl::string_view name : kVariables) {
    const std::optional<std::string> value = session.environment(name);
    if (!value.has_value()) continue;
    session.console.Row("set", absl::StrCat(name, "=", *value));
    variables[std::string(name)] = *value;
  }
  json["environment"] = std::move(variables);
  session.console.Json(DumpJson(json));
  return {};
}

}  // namespace

std::unique_ptr<Command> MakeDoctorCommand() { return std::make_unique<DoctorCommand>(); }

}  // namespace whet
