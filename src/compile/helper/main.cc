// The compile helper: opens one vendor's run-time compiler and compiles one request.
//
//   whet_compile_helper < request > reply
//
// A process of its own, because these compilers abort, hang, call exit and write to standard output.
// The library embeds this program and runs it from memory; see protocol.h.
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <string_view>

#include "src/compile/helper/protocol.h"
#include "src/compile/helper/rtc_library.h"

namespace {

constexpr int kBadRequest = 64;   // EX_USAGE
constexpr int kCannotReply = 74;  // EX_IOERR

std::string ReadAll(int fd) {
  std::string bytes;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(n));
  }
}

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace

int main() {
  const std::optional<whet::HelperRequest> request = whet::DecodeRequest(ReadAll(STDIN_FILENO));
  if (!request) {
    WriteAll(STDERR_FILENO, "whet_compile_helper: standard input holds no request\n");
    return kBadRequest;
  }
  // What a compiler prints to standard output goes to standard error, so that it cannot damage the
  // reply.
  const int reply_fd = dup(STDOUT_FILENO);
  if (reply_fd < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return kCannotReply;

  whet::HelperReply reply;
  if (const std::optional<whet::RtcLibrary> library =
          whet::RtcLibrary::Open(request->api, request->libraries, &reply)) {
    if (request->action == whet::HelperAction::kProbe) {
      library->Probe(&reply);
    } else {
      library->Compile(*request, &reply);
    }
  }
  // Without the destructors and exit handlers of the libraries, which crash now and then.
  _exit(WriteAll(reply_fd, whet::EncodeReply(reply)) ? 0 : kCannotReply);
}
