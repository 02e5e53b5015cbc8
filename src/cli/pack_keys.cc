#include "src/cli/pack_keys.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cache/pack.h"
#include "cache/pack_seal.h"
#include "cache/pack_writer.h"
#include "src/base/files.h"
#include "src/cli/cache_source.h"
#include "src/cli/report.h"

namespace whet {
namespace {

using nlohmann::ordered_json;

absl::Status KeyExists(const std::string& path) {
  return absl::AlreadyExistsError(
      absl::StrCat("cannot create key ", path, ": there is a file of that name already"));
}

// Never over a key that is there: what was signed with it could not be signed again.
absl::Status WriteKey(const std::string& path, const std::string& text, mode_t mode) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0 && errno == EEXIST) return KeyExists(path);
  if (fd < 0) return ErrnoStatus(errno, "create key", path);
  const std::string line = text + "\n";
  const bool written =
      write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size()) && fsync(fd) == 0;
  const int error = errno;
  close(fd);
  if (written) return absl::OkStatus();
  unlink(path.c_str());
  return ErrnoStatus(error, "write key", path);
}

std::string SignerText(const std::string& signer) {
  return signer.empty() ? "not signed" : FormatPackPublicKey(signer);
}

ordered_json ManifestJson(const Pack& pack) {
  ordered_json json = ordered_json::parse(pack.manifest(), nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : ordered_json::object();
}

std::string ListText(const ordered_json& manifest, const char* name) {
  const auto it = manifest.find(name);
  if (it == manifest.end() || !it->is_array()) return "none named";
  std::vector<std::string> texts;
  for (const ordered_json& item : *it) {
    if (item.is_string()) texts.push_back(item.get<std::string>());
  }
  return texts.empty() ? "none named" : absl::StrJoin(texts, "; ");
}

}  // namespace

void PackTools::Declare(Verb pack) {
  const auto add = [&](const char* name, const char* what, const char* argument,
                       const char* argument_what) {
    Verb verb = pack.AddVerb(name, what);
    verb.Option(argument, &path_, argument_what).Required();
    return verb;
  };
  keygen_ = add("keygen", "Make an Ed25519 key pair: FILE (keep it secret) and FILE.pub", "file",
                "Where to; existing files are not touched");
  sign_ = add("sign", "Check every byte of a pack, then sign it", "pack", "Path of the pack");
  sign_.Option("--key", &key_, "File of the secret key").Required().Type("FILE");
  verify_ =
      add("verify", "Check every byte and entry of a pack, and that it is trusted (--trusted-keys)",
          "pack", "Path of the pack");
  show_ =
      add("show", "Show what a pack says of itself, and what it holds", "pack", "Path of the pack");
}

bool PackTools::chosen() const {
  return keygen_.chosen() || sign_.chosen() || verify_.chosen() || show_.chosen();
}

Outcome PackTools::Run(Session& session) {
  if (keygen_.chosen()) return MakeKeys(session);
  if (sign_.chosen()) return Sign(session);
  if (verify_.chosen()) return Verify(session);
  return Show(session);
}

Outcome PackTools::MakeKeys(Session& session) const {
  absl::StatusOr<PackKeyPair> pair = GeneratePackKeyPair();
  if (!pair.ok()) return {ExitCode::kFailed, pair.status()};
  const std::string public_path = path_ + ".pub";
  if (IsRegularFile(public_path)) return InputFailure(KeyExists(public_path));
  absl::Status written = WriteKey(path_, pair->secret_text, 0600);
  if (written.ok()) written = WriteKey(public_path, pair->public_text, 0644);
  if (!written.ok()) return InputFailure(written);
  session.console.Row("secret key", path_);
  session.console.Row("public key", absl::StrCat(pair->public_text, " (", public_path, ")"));
  session.console.Json(DumpJson({{"secret_key_file", path_},
                                 {"public_key_file", public_path},
                                 {"public_key", pair->public_text}}));
  return {};
}

Outcome PackTools::Sign(Session& session) const {
  absl::StatusOr<std::string> secret = LoadPackSecretKey(key_);
  if (!secret.ok()) return InputFailure(secret.status());
  if (absl::Status done = SignPack(path_, *secret); !done.ok()) return InputFailure(done);
  absl::StatusOr<std::unique_ptr<Pack>> pack = Pack::Open(path_, {}, Logger(session.console.Log()));
  if (!pack.ok()) return {ExitCode::kFailed, pack.status()};
  const std::string signer = FormatPackPublicKey((*pack)->signer());
  session.console.Row("signed", absl::StrCat(path_, " with ", signer));
  session.console.Json(DumpJson({{"pack", path_}, {"signer", signer}}));
  return {};
}

Outcome PackTools::Verify(Session& session) const {
  absl::StatusOr<std::unique_ptr<Pack>> pack = OpenPackFile(session, path_);
  if (!pack.ok()) return InputFailure(pack.status());
  if (absl::Status intact = (*pack)->Verify(); !intact.ok()) return InputFailure(intact);
  absl::StatusOr<StoreUsage> usage = (*pack)->Usage();
  if (!usage.ok()) return InputFailure(usage.status());
  const bool trusted = !session.options.trusted_keys.empty();
  session.console.Row("intact", absl::StrFormat("%s: %d code objects, %d winners", path_,
                                                usage->code_entries, usage->winner_entries));
  session.console.Row(
      "signer", absl::StrCat(SignerText((*pack)->signer()), trusted ? ", which is trusted" : ""));
  session.console.Json(
      DumpJson({{"pack", path_},
                {"code", usage->code_entries},
                {"winners", usage->winner_entries},
                {"signer", (*pack)->signer().empty() ? "" : FormatPackPublicKey((*pack)->signer())},
                {"trusted_by_signature", trusted}}));
  return {};
}

Outcome PackTools::Show(Session& session) const {
  absl::StatusOr<std::unique_ptr<Pack>> pack = OpenPackFile(session, path_);
  if (!pack.ok()) return InputFailure(pack.status());
  absl::StatusOr<StoreUsage> usage = (*pack)->Usage();
  if (!usage.ok()) return InputFailure(usage.status());
  const ordered_json manifest = ManifestJson(**pack);
  Console& console = session.console;
  console.Row("pack",
              absl::StrFormat("%s: %d code objects, %d winners, %s", path_, usage->code_entries,
                              usage->winner_entries, BytesText(usage->file_bytes)));
  console.Row("signer", SignerText((*pack)->signer()));
  console.Row("targets", ListText(manifest, "targets"));
  console.Row("toolchains", ListText(manifest, "toolchains"));
  if (const auto it = manifest.find("templates"); it != manifest.end() && it->is_object()) {
    for (const auto& [name, digest] : it->items()) {
      console.Row("template",
                  absl::StrCat(name, " ", digest.is_string() ? digest.get<std::string>() : ""));
    }
  }
  console.Line("`whet cache ls --in PACK` lists its entries");
  console.Json(
      DumpJson({{"pack", path_},
                {"code", usage->code_entries},
                {"winners", usage->winner_entries},
                {"file_bytes", usage->file_bytes},
                {"signer", (*pack)->signer().empty() ? "" : FormatPackPublicKey((*pack)->signer())},
                {"manifest", manifest}}));
  return {};
}

}  // namespace whet
