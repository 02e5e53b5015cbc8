#include "cache/file_system.h"

#include <sys/vfs.h>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace whet {
namespace {

struct KnownNetwork {
  uint64_t magic;
  const char* name;
};

// statfs(2), linux/magic.h, and the file systems' own headers.
constexpr KnownNetwork kNetworks[] = {
    {0x6969, "nfs"},        {0x517b, "smb"},         {0xff534d42, "cifs"},
    {0xfe534d42, "smb2"},   {0x0bd00bd0, "lustre"},  {0x47504653, "gpfs"},
    {0x00c36400, "ceph"},   {0x19830326, "beegfs"},  {0x5346414f, "afs"},
    {0x6b414653, "kafs"},   {0x73757245, "coda"},    {0x01021997, "9p"},
    {0x65735546, "fuse"},   {0x65735543, "fusectl"}, {0x7461636f, "ocfs2"},
    {0x01161970, "gfs2"},   {0xaad7aaea, "panfs"},   {0x564c, "ncp"},
    {0x786f4256, "vboxsf"}, {0xbacbacbc, "vmhgfs"},  {0x20030528, "orangefs"},
    {0x7c7c6673, "prl_fs"}, {0x013111a8, "ibrix"},   {0xbeefdead, "snfs"},
};

}  // namespace

FileSystem ClassifyFileSystem(uint64_t magic) {
  for (const KnownNetwork& network : kNetworks) {
    if (network.magic == (magic & 0xffffffff)) return {FileSystemKind::kNetwork, network.name};
  }
  return {FileSystemKind::kLocal, absl::StrFormat("local (statfs 0x%x)", magic)};
}

FileSystem DetectFileSystem(const std::string& path) {
  absl::string_view at = path;
  while (true) {
    // The parent of "/x" is "/", and of "x" the working directory.
    const std::string asked(at.empty() ? absl::string_view(path[0] == '/' ? "/" : ".") : at);
    struct statfs info;
    if (statfs(asked.c_str(), &info) == 0) {
      return ClassifyFileSystem(static_cast<uint64_t>(info.f_type));
    }
    if (at.empty()) return {FileSystemKind::kNetwork, "unknown"};
    const size_t slash = at.rfind('/');
    at = slash == absl::string_view::npos ? absl::string_view() : at.substr(0, slash);
  }
}

}  // namespace whet
