#include "src/compile/helper/helper_process.h"

#include <sys/stat.h>

#include <cstdlib>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/files.h"
#include "src/base/subprocess.h"
#include "src/compile/helper/embedded_helper.h"
#include "src/compile/helper/protocol.h"

namespace whet {
namespace {

HelperRequest SomeRequest() {
  HelperRequest request;
  request.action = HelperAction::kCompile;
  request.api = "hiprtc";
  request.libraries = {"/a/b.so", "c.so"};
  request.source = std::string("source\0with zero", 16);
  request.source_name = "kernel.cu";
  request.options = {"-O3", "", "--x=1"};
  request.output = "Code";
  return request;
}

HelperReply SomeReply() {
  HelperReply reply;
  reply.outcome = HelperOutcome::kCompileError;
  reply.message = "message";
  reply.log = "log\n";
  reply.bytes = std::string(1000, '\xfe');
  reply.library_path = "/a/b.so";
  reply.version = "1.2";
  reply.build = "b.so:00";
  reply.architectures = {"sm_90"};
  return reply;
}

TEST(Protocol, CarriesEveryField) {
  const HelperRequest request = SomeRequest();
  const std::optional<HelperRequest> asked = DecodeRequest(EncodeRequest(request));
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->action, request.action);
  EXPECT_EQ(asked->api, request.api);
  EXPECT_EQ(asked->libraries, request.libraries);
  EXPECT_EQ(asked->source, request.source);
  EXPECT_EQ(asked->source_name, request.source_name);
  EXPECT_EQ(asked->options, request.options);
  EXPECT_EQ(asked->output, request.output);
  const HelperReply reply = SomeReply();
  const std::optional<HelperReply> answered = DecodeReply(EncodeReply(reply));
  ASSERT_TRUE(answered.has_value());
  EXPECT_EQ(answered->outcome, reply.outcome);
  EXPECT_EQ(answered->message, reply.message);
  EXPECT_EQ(answered->log, reply.log);
  EXPECT_EQ(answered->bytes, reply.bytes);
  EXPECT_EQ(answered->library_path, reply.library_path);
  EXPECT_EQ(answered->version, reply.version);
  EXPECT_EQ(answered->build, reply.build);
  EXPECT_EQ(answered->architectures, reply.architectures);
}

TEST(Protocol, RefusesWhateverIsNotWhole) {
  const std::string frame = EncodeReply(SomeReply());
  for (size_t size = 0; size < frame.size(); ++size) {
    EXPECT_FALSE(DecodeReply(frame.substr(0, size)).has_value()) << size;
  }
  EXPECT_FALSE(DecodeReply(frame + "x").has_value());
  EXPECT_FALSE(DecodeReply("chatter\n" + frame).has_value());
  for (size_t i = 0; i < frame.size(); ++i) {
    std::string damaged = frame;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    EXPECT_FALSE(DecodeReply(damaged).has_value()) << i;
  }
  // A reply is no request, though its frame is sound.
  EXPECT_FALSE(DecodeRequest(frame).has_value());
}

TEST(Protocol, SurvivesSoundFramesWithSenselessContent) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    // A frame of the right magic, size and checksum over damaged fields: taken from a request whose
    // text field holds the payload.
    HelperRequest request = SomeRequest();
    request.source.resize(random() % 64);
    for (char& c : request.source) c = static_cast<char>(random());
    const std::string frame = EncodeRequest(request);
    EXPECT_TRUE(DecodeRequest(frame).has_value());
    DecodeReply(frame);
  }
}

// A shell script as the helper.
class HelperScriptTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<TemporaryDirectory> made = TemporaryDirectory::Create("whet-helper-test-");
    ASSERT_TRUE(made.ok()) << made.status();
    directory_.emplace(*std::move(made));
  }

  std::string Path(const std::string& name) const { return JoinPath(directory_->path(), name); }

  HelperRun Run(const std::string& script, const HelperLimits& limits = {}) {
    EXPECT_TRUE(
        WriteFileAtomically(Path("helper"), absl::StrCat("#!/bin/sh\n", script, "\n")).ok());
    EXPECT_EQ(chmod(Path("helper").c_str(), 0700), 0);
    return HelperProcess(Path("helper")).Run(SomeRequest(), limits);
  }

  std::optional<TemporaryDirectory> directory_;
};

TEST_F(HelperScriptTest, EveryWayToFailHasItsCode) {
  const struct {
    const char* script;
    const char* part;
  } cases[] = {
      {"echo oops >&2; kill -ABRT $$", "killed by signal 6"},
      {"exit 1", "exited with 1"},
      {"exit 0", "0 bytes that are no reply"},
      {"echo garbage", "8 bytes that are no reply"},
      {"head -c 100000 /dev/urandom", "100000 bytes that are no reply"},
  };
  for (const auto& c : cases) {
    const HelperRun run = Run(c.script);
    EXPECT_EQ(run.status.code(), absl::StatusCode::kInternal) << run.status;
    EXPECT_TRUE(absl::StrContains(run.status.message(), c.part)) << run.status;
  }
  EXPECT_EQ(Run("echo chatter >&2; exit 1").chatter, "chatter\n");
  EXPECT_EQ(HelperProcess("/nowhere/helper").Run(SomeRequest(), {}).status.code(),
            absl::StatusCode::kNotFound);
}

TEST_F(HelperScriptTest, AHangIsEndedAtItsDeadline) {
  const HelperRun run = Run("mkfifo p; cat <p", {.timeout = absl::Milliseconds(200)});
  EXPECT_EQ(run.status.code(), absl::StatusCode::kDeadlineExceeded) << run.status;
}

TEST_F(HelperScriptTest, AReplyCountsThoughTheProcessDiesAfterIt) {
  ASSERT_TRUE(WriteFileAtomically(Path("reply"), EncodeReply(SomeReply())).ok());
  const HelperRun run = Run(absl::StrCat("cat ", Path("reply"), "; kill -SEGV $$"));
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(run.reply.message, "message");
}

TEST_F(HelperScriptTest, GetsAnEnvironmentThatChangesNoOutput) {
  ASSERT_EQ(setenv("AMD_COMGR_CACHE_DIR", "/x", 1), 0);
  ASSERT_EQ(setenv("HIPRTC_COMPILE_OPTIONS_APPEND", "-O0", 1), 0);
  ASSERT_EQ(setenv("CPATH", "/x", 1), 0);
  const HelperRun run = Run("env >&2; exit 1");
  for (const char* name : {"AMD_COMGR_CACHE_DIR", "HIPRTC_COMPILE_OPTIONS_APPEND", "CPATH"}) {
    EXPECT_FALSE(absl::StrContains(run.chatter, name)) << name;
    unsetenv(name);
  }
  EXPECT_TRUE(absl::StrContains(run.chatter, "AMD_COMGR_CACHE=0\n")) << run.chatter;
  EXPECT_TRUE(absl::StrContains(run.chatter, "TMPDIR=.\n")) << run.chatter;
}

TEST(EmbeddedHelper, IsAProgramThatRefusesSenselessInput) {
  EXPECT_TRUE(absl::StartsWith(EmbeddedHelper(),
                               "\x7f"
                               "ELF"));
  const TemporaryDirectory directory = *TemporaryDirectory::Create("whet-helper-test-");
  const std::string path = JoinPath(directory.path(), "helper");
  ASSERT_TRUE(WriteFileAtomically(path, EmbeddedHelper()).ok());
  ASSERT_EQ(chmod(path.c_str(), 0700), 0);
  SubprocessOptions options;
  options.argv = {path};
  options.standard_input = "senseless";
  const absl::StatusOr<SubprocessResult> result = RunSubprocess(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 64);
  EXPECT_TRUE(absl::StrContains(result->standard_error, "no request"));
}

TEST(EmbeddedHelper, TellsOfAMissingLibrary) {
  HelperRequest request = SomeRequest();
  request.action = HelperAction::kProbe;
  request.libraries = {"libwhet-nothing.so.1", "/nowhere/x.so"};
  const HelperRun run = HelperProcess("").Run(request, {});
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(run.reply.outcome, HelperOutcome::kNoLibrary);
  EXPECT_TRUE(absl::StrContains(run.reply.message, "libwhet-nothing.so.1")) << run.reply.message;
  EXPECT_TRUE(absl::StrContains(run.reply.message, "/nowhere/x.so")) << run.reply.message;
}

}  // namespace
}  // namespace whet
