#include "src/base/files.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace whet {
namespace {

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<TemporaryDirectory> made = TemporaryDirectory::Create("whet-files-test-");
    ASSERT_TRUE(made.ok()) << made.status();
    directory_.emplace(*std::move(made));
  }
  std::string Path(const std::string& name) const { return JoinPath(directory_->path(), name); }
  std::vector<std::string> Entries() const { return *ListDirectory(directory_->path()); }

  std::optional<TemporaryDirectory> directory_;
};

using Names = std::vector<std::string>;

TEST_F(FilesTest, WritesAndReadsEveryByte) {
  std::string bytes;
  for (int i = 0; i < 300000; ++i) bytes.push_back(static_cast<char>(i * 31 >> 3));
  for (const std::string& content : {std::string(), std::string("x"), bytes}) {
    ASSERT_TRUE(WriteFileAtomically(Path("f"), content).ok());
    EXPECT_EQ(*ReadFile(Path("f"), 1 << 20), content);
    EXPECT_EQ(Entries(), Names{"f"});
  }
  struct stat info;
  ASSERT_EQ(stat(Path("f").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
}

TEST_F(FilesTest, ReadRefusesMoreThanItsLimit) {
  ASSERT_TRUE(WriteFileAtomically(Path("f"), "12345").ok());
  EXPECT_TRUE(ReadFile(Path("f"), 5).ok());
  EXPECT_EQ(ReadFile(Path("f"), 4).status().code(), absl::StatusCode::kResourceExhausted);
  // Their size is not known before.
  EXPECT_EQ(ReadFile("/dev/zero", 1 << 20).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GT(ReadFile("/proc/self/status", 1 << 20)->size(), 10u);
  EXPECT_EQ(ReadFile("/proc/self/status", 10).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(FilesTest, ErrorsNamePathAndReason) {
  const absl::Status absent = ReadFile(Path("none"), 10).status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(absent.message(), "cannot open " + Path("none") + ": No such file or directory");
  EXPECT_EQ(ReadFile(directory_->path(), 10).status().code(), absl::StatusCode::kInternal);
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(ReadFile(Path("pipe"), 10).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(WriteFileAtomically(Path("none/f"), "x").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ListDirectory(Path("none")).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(FilesTest, ErrnoValuesHaveOneMeaning) {
  const std::pair<int, absl::StatusCode> cases[] = {
      {ENOENT, absl::StatusCode::kNotFound},
      {ENOTDIR, absl::StatusCode::kNotFound},
      {EACCES, absl::StatusCode::kPermissionDenied},
      {EROFS, absl::StatusCode::kPermissionDenied},
      {ENOSPC, absl::StatusCode::kResourceExhausted},
      {EMFILE, absl::StatusCode::kResourceExhausted},
      {EIO, absl::StatusCode::kInternal},
  };
  for (const auto& [number, code] : cases) {
    EXPECT_EQ(ErrnoStatus(number, "do", "it").code(), code) << number;
  }
}

TEST_F(FilesTest, FailedWriteLeavesTheOldContentAndNoTemporary) {
  ASSERT_TRUE(WriteFileAtomically(Path("f"), "old").ok());
  ASSERT_TRUE(MakeDirectories(Path("d/inner")).ok());
  EXPECT_FALSE(WriteFileAtomically(Path("d"), "x").ok());  // a directory cannot be replaced
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(WriteFileAtomically(Path("pipe"), "x").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(IsDirectory(Path("d/inner")));
  EXPECT_EQ(Entries(), (Names{"d", "f", "pipe"}));
  EXPECT_EQ(*ReadFile(Path("f"), 10), "old");
}

TEST_F(FilesTest, FullDiskIsResourceExhausted) {
  ASSERT_TRUE(MakeDirectories(Path("small")).ok());
  if (mount("none", Path("small").c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "SKIPPED: mounting a small file system needs root";
  }
  const std::string file = Path("small/f");
  EXPECT_TRUE(WriteFileAtomically(file, "old").ok());
  const absl::Status full = WriteFileAtomically(file, std::string(1 << 20, 'x'));
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_EQ(*ReadFile(file, 10), "old");
  EXPECT_EQ(*ListDirectory(Path("small")), Names{"f"});
  EXPECT_EQ(mount("none", Path("small").c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr), 0);
  const absl::Status read_only = WriteFileAtomically(file, "new");
  EXPECT_EQ(read_only.code(), absl::StatusCode::kPermissionDenied) << read_only;
  EXPECT_EQ(umount(Path("small").c_str()), 0);
}

TEST_F(FilesTest, ForbiddenDirectoryIsPermissionDenied) {
  if (geteuid() == 0) {
    // Root passes every mode, but nobody creates files under /proc.
    EXPECT_NE(MakeDirectories("/proc/whet").code(), absl::StatusCode::kOk);
    if (seteuid(65534) != 0) GTEST_SKIP() << "SKIPPED: cannot become another user";
  } else {
    ASSERT_EQ(chmod(directory_->path().c_str(), 0500), 0);
  }
  const absl::Status write = WriteFileAtomically(Path("f"), "x");
  const absl::Status make = MakeDirectories(Path("d"));
  if (getuid() == 0) {
    ASSERT_EQ(seteuid(0), 0);
  } else {
    ASSERT_EQ(chmod(directory_->path().c_str(), 0700), 0);
  }
  EXPECT_EQ(write.code(), absl::StatusCode::kPermissionDenied) << write;
  EXPECT_EQ(make.code(), absl::StatusCode::kPermissionDenied) << make;
}

TEST_F(FilesTest, MakeDirectoriesMakesPrivateParents) {
  ASSERT_TRUE(MakeDirectories(Path("a/b//c/")).ok());
  ASSERT_TRUE(MakeDirectories(Path("a/b/c")).ok());
  struct stat info;
  ASSERT_EQ(stat(Path("a/b").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_TRUE(WriteFileAtomically(Path("f"), "x").ok());
  EXPECT_EQ(MakeDirectories(Path("f")).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(MakeDirectories(Path("f/below")).code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(MakeDirectories("").ok());
}

TEST_F(FilesTest, LinksAreReplacedOrRemovedButNotFollowed) {
  ASSERT_TRUE(MakeDirectories(Path("outside/kept")).ok());
  ASSERT_TRUE(WriteFileAtomically(Path("outside/f"), "kept").ok());
  ASSERT_TRUE(MakeDirectories(Path("tree/inner")).ok());
  ASSERT_EQ(symlink(Path("outside").c_str(), Path("tree/inner/link").c_str()), 0);
  ASSERT_EQ(symlink(Path("outside/f").c_str(), Path("link").c_str()), 0);
  ASSERT_EQ(symlink(Path("outside").c_str(), Path("directory_link").c_str()), 0);
  ASSERT_EQ(symlink("nowhere", Path("dangling").c_str()), 0);

  EXPECT_TRUE(WriteFileAtomically(Path("link"), "new").ok());
  EXPECT_TRUE(RemoveTree(Path("tree")).ok());
  EXPECT_TRUE(RemoveTree(Path("directory_link/")).ok());
  EXPECT_TRUE(RemoveTree(Path("dangling")).ok());
  EXPECT_TRUE(RemoveTree(Path("never there")).ok());

  EXPECT_EQ(Entries(), (Names{"link", "outside"}));
  EXPECT_EQ(*ReadFile(Path("link"), 10), "new");
  EXPECT_EQ(*ReadFile(Path("outside/f"), 10), "kept");
  EXPECT_TRUE(IsDirectory(Path("outside/kept")));
}

TEST_F(FilesTest, TemporaryDirectoryGoesWithItsOwner) {
  std::string path;
  {
    TemporaryDirectory first = *TemporaryDirectory::Create("t-", directory_->path());
    path = first.path();
    struct stat info;
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 040700u & 07777);
    ASSERT_TRUE(MakeDirectories(JoinPath(path, "a/b")).ok());
    ASSERT_TRUE(WriteFileAtomically(JoinPath(path, "a/f"), "x").ok());
    TemporaryDirectory second(std::move(first));
    EXPECT_EQ(second.path(), path);
    EXPECT_TRUE(IsDirectory(path));
  }
  EXPECT_FALSE(IsDirectory(path));
  EXPECT_EQ(TemporaryDirectory::Create("t-", Path("none")).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(FilesTest, JoinPath) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(JoinPath("/", "b"), "/b");
  EXPECT_EQ(JoinPath("a", "/b"), "/b");
}

}  // namespace
}  // namespace whet
