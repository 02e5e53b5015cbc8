#include "src/compile/failure_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/files.h"
#include "src/compile/diagnostics.h"

namespace whet {
namespace {

CompileRequest Request(const std::string& source) {
  CompileRequest request;
  request.label = "rms_norm cpu:rows=4";
  request.source = source;
  request.target = *Target::Parse("x86-64:avx2");
  return request;
}

const ToolchainIdentity kIdentity = {"hostcxx", "clang 22.1.8", "build", "/usr/bin/clang++"};

class FailureStoreTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return JoinPath(directory_.path(), name); }

  TemporaryDirectory directory_ = *TemporaryDirectory::Create("whet-failures-test-");
};

TEST_F(FailureStoreTest, MessageHasEveryPart) {
  const FailureStore store(Path("failures"));
  const absl::Status status = store.Report(
      kIdentity, Request("source"), {"-O3", "-mavx2"},
      {absl::StatusCode::kInternal, "it exited\nwith 1", "note\nk.cc:1: error: odd\n"});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  const std::vector<std::string> names = *ListDirectory(Path("failures"));
  ASSERT_EQ(names.size(), 1u);
  const std::string entry = JoinPath(Path("failures"), names[0]);
  EXPECT_EQ(status.message(),
            "cannot compile rms_norm cpu:rows=4 for x86-64:avx2 with hostcxx clang 22.1.8 [-O3 "
            "-mavx2]: it exited with 1: k.cc:1: error: odd; source and log are in " +
                entry);
  EXPECT_EQ(*ReadFile(JoinPath(entry, "source.cc"), 100), "source");
  EXPECT_TRUE(absl::StrContains(*ReadFile(JoinPath(entry, "log.txt"), 1000), "error: odd"));
  struct stat info;
  ASSERT_EQ(stat(Path("failures").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
  ASSERT_EQ(stat(entry.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
}

TEST_F(FailureStoreTest, AnEmptyLogStillGivesAMessage) {
  const absl::Status status = FailureStore(Path("failures")).Report(kIdentity, Request(""), {}, {});
  EXPECT_TRUE(absl::StrContains(status.message(), "the compiler gave no reason")) << status;
}

TEST_F(FailureStoreTest, KeepsTheNewestOnly) {
  const FailureStore store(Path("failures"), /*keep=*/3);
  ASSERT_TRUE(MakeDirectories(Path("failures/mine")).ok());
  for (int i = 0; i < 8; ++i) {
    store.Report(kIdentity, Request(absl::StrCat(i)), {}, {}).IgnoreError();
  }
  std::string sources;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(Path("failures"));
  ASSERT_TRUE(names.ok()) << names.status();
  for (const std::string& name : *names) {
    if (name == "mine") continue;
    sources += *ReadFile(JoinPath(JoinPath(Path("failures"), name), "source.cc"), 100);
  }
  EXPECT_EQ(sources, "567");
  EXPECT_TRUE(IsDirectory(Path("failures/mine")));
}

TEST_F(FailureStoreTest, UnusableDirectoryIsToldAndNotWrittenTo) {
  ASSERT_TRUE(MakeDirectories(Path("others")).ok());
  ASSERT_EQ(symlink(Path("others").c_str(), Path("link").c_str()), 0);
  ASSERT_TRUE(MakeDirectories(Path("open")).ok());
  ASSERT_EQ(chmod(Path("open").c_str(), 0777), 0);
  ASSERT_TRUE(WriteFileAtomically(Path("file"), "").ok());
  for (const std::string& path :
       {Path("link"), Path("open"), Path("file"), Path("file/below"), std::string("/proc/whet")}) {
    const absl::Status status =
        FailureStore(path).Report(kIdentity, Request("source"), {}, {.log = "error: odd"});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(status.message(), "error: odd")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "could not be kept")) << status;
  }
  EXPECT_TRUE(ListDirectory(Path("others"))->empty());
  EXPECT_TRUE(ListDirectory(Path("open"))->empty());
}

TEST(Diagnostics, FirstErrorLine) {
  const struct {
    const char* log;
    const char* first;
    bool error;
  } cases[] = {
      {"", "", false},
      {"\n \n", "", false},
      {"just words\nmore", "just words", false},
      {"warning: a\nk.cc:2:1: error: b\nk.cc:3:1: error: c\n", "k.cc:2:1: error: b", true},
      {"kernel.cu(3): error: x\r\n", "kernel.cu(3): error: x", true},
      {"LLVM ERROR: out of memory", "LLVM ERROR: out of memory", true},
      {"ptxas fatal   : Value 'x'", "ptxas fatal   : Value 'x'", true},
      {"mirrored: yes", "mirrored: yes", false},
      {"1 warning and no errors", "1 warning and no errors", false},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(FirstDiagnostic(c.log), c.first);
    EXPECT_EQ(HasErrorLine(c.log), c.error) << c.log;
  }
  EXPECT_EQ(FirstDiagnostic(std::string(5000, 'x')).size(), 300u);
}

TEST(Diagnostics, TemporaryPathsGo) {
  EXPECT_EQ(CleanLog("/tmp/w-1/kernel.cc:1: in /tmp/w-1\x01", "/tmp/w-1"), "kernel.cc:1: in . ");
  EXPECT_EQ(CleanLog("/tmp/w-1/comgr-a1B2c3/input/CompileSource:3:1", "/tmp/w-1"),
            "CompileSource:3:1");
  EXPECT_EQ(CleanLog("comgr-", ""), "comgr-");
  EXPECT_EQ(CleanLog("comgr-abcdef/other/x comgr-ab", ""), "other/x comgr-ab");
}

}  // namespace
}  // namespace whet
