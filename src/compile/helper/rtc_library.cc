#include "src/compile/helper/rtc_library.h"

#include <dlfcn.h>
#include <link.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "src/compile/helper/build_id.h"

namespace whet {
namespace {

std::string PathOf(void* handle) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return "";
  char resolved[PATH_MAX];
  return realpath(map->l_name, resolved) != nullptr ? resolved : map->l_name;
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

std::string FileNameOf(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

// dlopen says why in words that hold the path.
std::string LastError() {
  const char* error = dlerror();
  return error != nullptr ? error : "unknown error";
}

// hipRuntimeGetVersion packs 7.14.60850 as 71460850.
std::string HipVersion(int packed) {
  return std::to_string(packed / 10000000) + "." + std::to_string(packed / 100000 % 100) + "." +
         std::to_string(packed % 100000);
}

// 7 for libhiprtc.so.7.14.60850; 0 for a name without a version.
int MajorVersionOf(const std::string& file_name) {
  const size_t suffix = file_name.find(".so.");
  return suffix == std::string::npos ? 0 : std::atoi(file_name.c_str() + suffix + 4);
}

// In `directory` first, so that a library's companions are found beside it without a search path.
void* OpenCompanion(const std::string& directory, const std::string& name, int flags) {
  void* handle = dlopen((directory + name).c_str(), flags);
  return handle != nullptr ? handle : dlopen(name.c_str(), flags);
}

}  // namespace

template <typename Function>
bool RtcLibrary::Find(const std::string& name, Function* function) const {
  *function = reinterpret_cast<Function>(dlsym(handle_, (api_ + name).c_str()));
  return *function != nullptr;
}

std::optional<RtcLibrary> RtcLibrary::Open(const std::string& api,
                                           const std::vector<std::string>& libraries,
                                           HelperReply* reply) {
  RtcLibrary library;
  library.api_ = api;
  std::string tried;
  for (const std::string& name : libraries) {
    library.handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library.handle_ != nullptr) break;
    tried += (tried.empty() ? "" : "; ") + LastError();
  }
  if (library.handle_ == nullptr) {
    reply->outcome = HelperOutcome::kNoLibrary;
    reply->message = tried;
    return std::nullopt;
  }
  reply->library_path = PathOf(library.handle_);
  library.directory_ = DirectoryOf(reply->library_path);
  Functions& f = library.functions_;
  if (!library.Find("GetErrorString", &f.GetErrorString) ||
      !library.Find("CreateProgram", &f.CreateProgram) ||
      !library.Find("CompileProgram", &f.CompileProgram) ||
      !library.Find("GetProgramLogSize", &f.GetProgramLogSize) ||
      !library.Find("GetProgramLog", &f.GetProgramLog)) {
    reply->outcome = HelperOutcome::kBadLibrary;
    reply->message = reply->library_path + " lacks the functions of " + api;
    return std::nullopt;
  }
  // What the libraries would open at the first compile is opened here already: so that build tells
  // of it, and so that companions beside the library are found.
  if (api == "hiprtc") {
    const int major = MajorVersionOf(FileNameOf(reply->library_path));
    OpenCompanion(library.directory_, major >= 7 ? "libamd_comgr.so.3" : "libamd_comgr.so.2",
                  RTLD_NOW | RTLD_GLOBAL);
    OpenCompanion(library.directory_, "libhiprtc-builtins.so." + std::to_string(major),
                  RTLD_NOW | RTLD_LOCAL);
  } else {
    OpenCompanion(library.directory_, "libnvrtc-builtins.so." + library.NvrtcVersion(),
                  RTLD_NOW | RTLD_LOCAL);
  }
  reply->build = DescribeLoadedLibraries({"hiprtc", "amdhip64", "amd_comgr", "LLVM", "nvrtc"});
  return library;
}

std::string RtcLibrary::NvrtcVersion() const {
  int (*version)(int*, int*) = nullptr;
  int major = 0;
  int minor = 0;
  if (!Find("Version", &version) || version(&major, &minor) != 0) return "";
  return std::to_string(major) + "." + std::to_string(minor);
}

void RtcLibrary::Probe(HelperReply* reply) const {
  if (api_ == "nvrtc") {
    reply->version = NvrtcVersion();
    int (*count_of)(int*) = nullptr;
    int (*list)(int*) = nullptr;
    int count = 0;
    if (Find("GetNumSupportedArchs", &count_of) && Find("GetSupportedArchs", &list) &&
        count_of(&count) == 0 && count > 0) {
      std::vector<int> numbers(static_cast<size_t>(count));
      if (list(numbers.data()) != 0) return;
      for (const int number : numbers)
        reply->architectures.push_back("sm_" + std::to_string(number));
    }
    return;
  }
  // hiprtcVersion says 9.0 in every release, so the runtime beside it is asked. In HIP 5 that is
  // the same library.
  int (*runtime_version)(int*) = nullptr;
  void* runtime = handle_;
  if (dlsym(runtime, "hipRuntimeGetVersion") == nullptr) {
    const int major = MajorVersionOf(FileNameOf(reply->library_path));
    runtime =
        OpenCompanion(directory_, "libamdhip64.so." + std::to_string(major), RTLD_NOW | RTLD_LOCAL);
  }
  if (runtime == nullptr) return;
  runtime_version =
      reinterpret_cast<decltype(runtime_version)>(dlsym(runtime, "hipRuntimeGetVersion"));
  int packed = 0;
  if (runtime_version != nullptr && runtime_version(&packed) == 0 && packed > 0) {
    reply->version = HipVersion(packed);
  }
}

std::string RtcLibrary::Error(const char* action, int code) const {
  const char* text = functions_.GetErrorString(code);
  return api_ + action + " returned " + std::to_string(code) + " (" +
         (text != nullptr ? text : "unknown") + ")";
}

std::string RtcLibrary::Log(Program program) const {
  size_t size = 0;
  if (functions_.GetProgramLogSize(program, &size) != 0 || size == 0) return "";
  std::string log(size, '\0');
  if (functions_.GetProgramLog(program, log.data()) != 0) return "";
  log.resize(std::strlen(log.c_str()));
  return log;
}

void RtcLibrary::Compile(const HelperRequest& request, HelperReply* reply) const {
  const auto refuse = [reply](std::string message) {
    reply->outcome = HelperOutcome::kCompileError;
    reply->message = std::move(message);
  };
  int (*size_of)(Program, size_t*) = nullptr;
  int (*code_of)(Program, char*) = nullptr;
  if (!Find("Get" + request.output + "Size", &size_of) || !Find("Get" + request.output, &code_of)) {
    reply->outcome = HelperOutcome::kBadLibrary;
    reply->message = reply->library_path + " cannot give " + request.output;
    return;
  }
  Program program = nullptr;
  int code = functions_.CreateProgram(&program, request.source.c_str(), request.source_name.c_str(),
                                      0, nullptr, nullptr);
  if (code != 0) return refuse(Error("CreateProgram", code));
  std::vector<const char*> options;
  for (const std::string& option : request.options) options.push_back(option.c_str());
  code = functions_.CompileProgram(program, static_cast<int>(options.size()), options.data());
  reply->log = Log(program);
  if (code != 0) return refuse(Error("CompileProgram", code));
  size_t size = 0;
  code = size_of(program, &size);
  if (code != 0) return refuse(Error("GetCodeSize", code));
  reply->bytes.resize(size);
  code = size == 0 ? 0 : code_of(program, reply->bytes.data());
  if (code != 0) return refuse(Error("GetCode", code));
  // The program is not destroyed: the process ends here, and hipRTC's destructor has crashed.
}

}  // namespace whet
