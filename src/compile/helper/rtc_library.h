// A run-time compiler library of one of the two vendors, opened by name. hipRTC copied NVRTC's
// interface, so one table of symbols under two prefixes serves both.
//
//   HelperReply reply;
//   std::optional<RtcLibrary> rtc = RtcLibrary::Open("nvrtc", {"libnvrtc.so.13"}, &reply);
//
// Used in the helper process only: these libraries may abort, hang or call exit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/compile/helper/protocol.h"

namespace whet {

class RtcLibrary {
 public:
  // Sets reply->outcome, message, library_path and build; nullopt unless the outcome is kOk.
  static std::optional<RtcLibrary> Open(const std::string& api,
                                        const std::vector<std::string>& libraries,
                                        HelperReply* reply);

  // Sets version and architectures.
  void Probe(HelperReply* reply) const;
  // Sets log and bytes, or outcome and message.
  void Compile(const HelperRequest& request, HelperReply* reply) const;

 private:
  using Program = void*;
  struct Functions {
    const char* (*GetErrorString)(int);
    int (*CreateProgram)(Program*, const char*, const char*, int, const char* const*,
                         const char* const*);
    int (*CompileProgram)(Program, int, const char* const*);
    int (*GetProgramLogSize)(Program, size_t*);
    int (*GetProgramLog)(Program, char*);
  };

  template <typename Function>
  bool Find(const std::string& name, Function* function) const;
  std::string NvrtcVersion() const;
  std::string Error(const char* action, int code) const;
  std::string Log(Program program) const;

  std::string api_;
  void* handle_ = nullptr;
  std::string directory_;
  Functions functions_ = {};
};

}  // namespace whet
