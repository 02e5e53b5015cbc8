#include "cache/layers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cache/late_store.h"
#include "src/base/files.h"
#include "src/base/record.h"

namespace whet {
namespace {

constexpr struct {
  CachePolicy policy;
  absl::string_view name;
} kPolicies[] = {
    {CachePolicy::kOff, "off"},
    {CachePolicy::kReadOnly, "read-only"},
    {CachePolicy::kReadWrite, "read-write"},
    {CachePolicy::kOffline, "offline"},
    {CachePolicy::kVerify, "verify"},
};

constexpr absl::string_view kPackSuffix = ".whetpack";

// A key record for people: "template=rms_norm, target=sm_90a, ...".
std::string KeyText(absl::string_view key) {
  constexpr size_t kMaxText = 600;
  absl::StatusOr<Record> record = ParseRecord(key, /*max_fields=*/256);
  std::string text;
  if (record.ok()) {
    text = absl::StrJoin(record->fields, ", ", absl::PairFormatter("="));
  } else {
    text = absl::StrCat("hash ", HashBytes(key).ToHex());
  }
  if (text.size() > kMaxText) text = text.substr(0, kMaxText) + "...";
  return text;
}

template <typename Entry>
void AppendUnseen(std::vector<Entry> from, absl::flat_hash_set<Hash128>& seen,
                  std::vector<Entry>& to) {
  for (Entry& entry : from) {
    if (seen.insert(HashBytes(entry.key)).second) to.push_back(std::move(entry));
  }
}

}  // namespace

absl::StatusOr<CachePolicy> ParseCachePolicy(absl::string_view text) {
  for (const auto& known : kPolicies) {
    if (known.name == text) return known.policy;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("cannot use cache policy \"", text,
                   "\": it must be one of off, read-only, read-write, offline, verify"));
}

absl::string_view CachePolicyName(CachePolicy policy) {
  for (const auto& known : kPolicies) {
    if (known.policy == policy) return known.name;
  }
  return "unknown";
}

LayeredCache::LayeredCache(const LayerOptions& options, const Logger& log)
    : options_(options), log_(log), memory_(options.memory_limit_bytes) {}

std::unique_ptr<LayeredCache> LayeredCache::Open(const LayerOptions& options, const Logger& log) {
  std::unique_ptr<LayeredCache> cache(new LayeredCache(options, log));
  if (options.policy == CachePolicy::kOff) return cache;
  StoreOptions user = options.user;
  user.read_only = user.read_only || !cache->MayWrite();
  PackOptions pack_options;
  pack_options.object_limit_bytes = user.object_limit_bytes;
  pack_options.on_event = user.on_event;
  for (const std::string& text : options.trusted_keys) {
    absl::StatusOr<std::string> key = LoadPackPublicKey(text);
    if (key.ok()) {
      pack_options.trusted_keys.push_back(*std::move(key));
    } else {
      log.Warning(absl::StrCat("no pack is trusted by \"", text, "\": ", key.status().message()));
      // A key that cannot be read trusts nothing; without it no key at all would trust everything.
      pack_options.trusted_keys.push_back("unreadable");
    }
  }
  for (const std::string& path : options.packs) {
    if (!IsDirectory(path)) {
      cache->OpenPack(path, pack_options);
      continue;
    }
    absl::StatusOr<std::vector<std::string>> names = ListDirectory(path);
    if (!names.ok()) continue;
    for (const std::string& name : *names) {
      if (absl::EndsWith(name, kPackSuffix)) cache->OpenPack(JoinPath(path, name), pack_options);
    }
  }
  const bool absent = LateStore::IsAbsent(user);
  // Nothing to read and nothing to be written: no reason to warn of what is not there.
  if (absent && user.read_only) return cache;
  // Beside a pack there may be nothing to write, ever.
  if (absent && !cache->packs_.empty()) {
    cache->user_ = std::make_unique<LateStore>(user, log);
  } else {
    cache->user_ = Store::Open(user, log);
  }
  return cache;
}

void LayeredCache::OpenPack(const std::string& path, const PackOptions& options) {
  absl::StatusOr<std::unique_ptr<Pack>> pack = Pack::Open(path, options, log_);
  if (pack.ok()) {
    packs_.push_back(*std::move(pack));
    return;
  }
  // Places where packs may be are allowed to hold none, but a pack that was named should be there.
  if (absl::IsNotFound(pack.status()) && !absl::EndsWith(path, kPackSuffix)) {
    log_.Info(pack.status().message());
    return;
  }
  ++packs_refused_;
  if (options.on_event) {
    options.on_event({.kind = CacheEventKind::kPackRefused,
                      .layer = path,
                      .detail = std::string(pack.status().message())});
  }
  log_.Warning(pack.status().message());
}

void LayeredCache::Emit(CacheEventKind kind, absl::string_view layer, absl::string_view key,
                        int64_t bytes, absl::string_view detail) const {
  if (!options_.user.on_event) return;
  options_.user.on_event({.kind = kind,
                          .layer = std::string(layer),
                          .key_hash = HashBytes(key).ToHex(),
                          .detail = std::string(detail),
                          .bytes = bytes});
}

bool LayeredCache::IsBlocked(absl::string_view key) const {
  MutexLock lock(mutex_);
  return !blocked_.empty() && blocked_.contains(HashBytes(key));
}

std::shared_ptr<const CodeEntry> LayeredCache::FindCodeBelow(
    absl::string_view key, std::shared_ptr<const CodeEntry> in_memory) {
  if (in_memory != nullptr) {
    Emit(CacheEventKind::kHit, "memory", key, static_cast<int64_t>(in_memory->object.size()));
    return in_memory;
  }
  if (options_.policy != CachePolicy::kVerify) {
    auto keep = [&](CodeEntry entry, absl::string_view layer, std::atomic<int64_t>& hits) {
      ++hits;
      entry.facts.layer = std::string(layer);
      auto shared = std::make_shared<const CodeEntry>(std::move(entry));
      memory_.PutCode(shared);
      Emit(CacheEventKind::kHit, layer, key, static_cast<int64_t>(shared->object.size()));
      return shared;
    };
    if (user_ != nullptr) {
      std::optional<CodeEntry> entry = user_->FindCode(key);
      if (entry.has_value()) return keep(*std::move(entry), "user", user_hits_);
    }
    if (!packs_.empty() && !IsBlocked(key)) {
      for (const std::unique_ptr<Pack>& pack : packs_) {
        std::optional<CodeEntry> entry = pack->FindCode(key);
        if (entry.has_value()) return keep(*std::move(entry), pack->path(), pack_hits_);
      }
    }
  }
  ++misses_;
  Emit(CacheEventKind::kMiss, "", key, 0);
  return nullptr;
}

absl::StatusOr<std::shared_ptr<const CodeEntry>> LayeredCache::RequireCode(absl::string_view key) {
  std::shared_ptr<const CodeEntry> hit = FindCodeShared(key);
  if (hit != nullptr) return hit;
  std::vector<absl::string_view> asked;
  if (user_ != nullptr) asked.push_back(options_.user.path);
  for (const std::unique_ptr<Pack>& pack : packs_) asked.push_back(pack->path());
  if (asked.empty()) asked.push_back("none");
  return absl::NotFoundError(absl::StrCat(
      "no code object is cached for {", KeyText(key), "}; layers asked: ",
      absl::StrJoin(asked, ", "), "; cache policy ", CachePolicyName(options_.policy),
      options_.policy == CachePolicy::kOffline ? ": nothing is built, so add it to a pack" : ""));
}

std::optional<CodeEntry> LayeredCache::FindCode(absl::string_view key) {
  std::shared_ptr<const CodeEntry> hit = FindCodeShared(key);
  if (hit == nullptr) return std::nullopt;
  return *hit;
}

std::optional<CodeEntry> LayeredCache::FindCodeByRequest(absl::string_view request) {
  if (std::shared_ptr<const CodeEntry> hit = memory_.FindCodeByRequest(request)) {
    Emit(CacheEventKind::kHit, "memory", hit->key, static_cast<int64_t>(hit->object.size()));
    return *hit;
  }
  const auto keep = [&](CodeEntry entry, absl::string_view layer, std::atomic<int64_t>& hits) {
    ++hits;
    entry.facts.layer = std::string(layer);
    Emit(CacheEventKind::kHit, layer, entry.key, static_cast<int64_t>(entry.object.size()));
    memory_.PutCode(std::make_shared<const CodeEntry>(entry));
    return entry;
  };
  if (options_.policy != CachePolicy::kVerify) {
    if (user_ != nullptr) {
      std::optional<CodeEntry> entry = user_->FindCodeByRequest(request);
      if (entry.has_value()) return keep(*std::move(entry), "user", user_hits_);
    }
    for (const std::unique_ptr<Pack>& pack : packs_) {
      std::optional<CodeEntry> entry = pack->FindCodeByRequest(request);
      if (!entry.has_value() || IsBlocked(entry->key)) continue;
      return keep(*std::move(entry), pack->path(), pack_hits_);
    }
  }
  ++misses_;
  Emit(CacheEventKind::kMiss, "", request, 0, "by request");
  return std::nullopt;
}

void LayeredCache::Compare(const CodeEntry& made) {
  std::optional<CodeEntry> stored;
  if (user_ != nullptr) stored = user_->FindCode(made.key);
  for (size_t i = 0; i < packs_.size() && !stored.has_value(); ++i) {
    stored = packs_[i]->FindCode(made.key);
  }
  if (!stored.has_value()) return;
  if (stored->object == made.object) {
    ++verify_matches_;
    return;
  }
  Emit(CacheEventKind::kVerifyMismatch, "", made.key, static_cast<int64_t>(made.object.size()));
  if (++verify_mismatches_ > 1) return;
  log_.Warning(
      absl::StrCat("a code object made anew differs from the stored one, which it replaces: {",
                   KeyText(made.key), "}; further ones are only counted"));
}

absl::Status LayeredCache::PutCode(const CodeEntry& entry) {
  if (options_.policy == CachePolicy::kOffline) {
    return absl::UnavailableError("cannot store a code object: the cache policy is offline");
  }
  if (options_.policy == CachePolicy::kVerify) Compare(entry);
  memory_.PutCode(std::make_shared<const CodeEntry>(entry));
  if (user_ == nullptr || !MayWrite()) return absl::OkStatus();
  absl::Status status = user_->PutCode(entry);
  Emit(status.ok() ? CacheEventKind::kStored : CacheEventKind::kStoreFailed, "user", entry.key,
       static_cast<int64_t>(entry.object.size()), status.message());
  return status;
}

void LayeredCache::RemoveCode(absl::string_view key, absl::string_view reason) {
  memory_.Remove(key);
  {
    MutexLock lock(mutex_);
    blocked_.insert(HashBytes(key));
  }
  if (user_ != nullptr) user_->RemoveCode(key, reason);
}

absl::Status LayeredCache::EraseCode(absl::string_view key) {
  memory_.Remove(key);
  if (user_ == nullptr || !MayWrite()) return absl::OkStatus();
  return user_->EraseCode(key);
}

std::optional<WinnerEntry> LayeredCache::FindWinner(absl::string_view key) {
  std::shared_ptr<const WinnerEntry> hit = memory_.FindWinner(key);
  if (hit != nullptr) {
    ++winner_hits_;
    return *hit;
  }
  if (options_.policy != CachePolicy::kVerify) {
    std::optional<WinnerEntry> entry;
    if (user_ != nullptr) entry = user_->FindWinner(key);
    if (entry.has_value()) entry->facts.layer = "user";
    for (size_t i = 0; i < packs_.size() && !entry.has_value(); ++i) {
      entry = packs_[i]->FindWinner(key);
      if (entry.has_value()) entry->facts.layer = packs_[i]->path();
    }
    if (entry.has_value()) {
      ++winner_hits_;
      memory_.PutWinner(std::make_shared<const WinnerEntry>(*entry));
      return entry;
    }
  }
  ++winner_misses_;
  return std::nullopt;
}

std::vector<bool> LayeredCache::HaveWinners(const std::vector<std::string>& keys) {
  std::vector<bool> have(keys.size());
  const auto ask = [&](Store& layer) {
    const std::vector<bool> there = layer.HaveWinners(keys);
    for (size_t i = 0; i < keys.size(); ++i) have[i] = have[i] || there[i];
  };
  for (size_t i = 0; i < keys.size(); ++i) have[i] = memory_.FindWinner(keys[i]) != nullptr;
  if (options_.policy == CachePolicy::kVerify) return have;
  if (user_ != nullptr) ask(*user_);
  for (const std::unique_ptr<Pack>& pack : packs_) ask(*pack);
  return have;
}

absl::Status LayeredCache::PutWinner(const WinnerEntry& entry) {
  if (options_.policy == CachePolicy::kOffline) {
    return absl::UnavailableError("cannot store a winner: the cache policy is offline");
  }
  memory_.PutWinner(std::make_shared<const WinnerEntry>(entry));
  if (user_ == nullptr || !MayWrite()) return absl::OkStatus();
  return user_->PutWinner(entry);
}

absl::Status LayeredCache::EraseWinner(absl::string_view key) {
  memory_.Remove(key);
  if (user_ == nullptr || !MayWrite()) return absl::OkStatus();
  return user_->EraseWinner(key);
}

absl::StatusOr<std::vector<CodeEntry>> LayeredCache::ListCode() {
  std::vector<CodeEntry> all;
  absl::flat_hash_set<Hash128> seen;
  if (user_ != nullptr) {
    absl::StatusOr<std::vector<CodeEntry>> entries = user_->ListCode();
    if (!entries.ok()) return entries.status();
    AppendUnseen(*std::move(entries), seen, all);
  }
  for (const std::unique_ptr<Pack>& pack : packs_) {
    absl::StatusOr<std::vector<CodeEntry>> entries = pack->ListCode();
    if (entries.ok()) AppendUnseen(*std::move(entries), seen, all);
  }
  return all;
}

absl::StatusOr<std::vector<WinnerEntry>> LayeredCache::ListWinners() {
  std::vector<WinnerEntry> all;
  absl::flat_hash_set<Hash128> seen;
  if (user_ != nullptr) {
    absl::StatusOr<std::vector<WinnerEntry>> entries = user_->ListWinners();
    if (!entries.ok()) return entries.status();
    AppendUnseen(*std::move(entries), seen, all);
  }
  for (const std::unique_ptr<Pack>& pack : packs_) {
    absl::StatusOr<std::vector<WinnerEntry>> entries = pack->ListWinners();
    if (entries.ok()) AppendUnseen(*std::move(entries), seen, all);
  }
  return all;
}

absl::StatusOr<int64_t> LayeredCache::Shrink(int64_t target_bytes) {
  if (user_ == nullptr || !MayWrite()) {
    return absl::UnavailableError("cannot shrink the cache: its policy forbids writing");
  }
  return user_->Shrink(target_bytes);
}

absl::StatusOr<StoreUsage> LayeredCache::Usage() {
  if (user_ == nullptr) return StoreUsage();
  return user_->Usage();
}

absl::StatusOr<std::vector<QuarantineRecord>> LayeredCache::ListQuarantine() {
  if (user_ == nullptr) return std::vector<QuarantineRecord>();
  return user_->ListQuarantine();
}

StoreCounters LayeredCache::counters() const {
  StoreCounters all;
  if (user_ != nullptr) all = user_->counters();
  for (const std::unique_ptr<Pack>& pack : packs_) {
    const StoreCounters counters = pack->counters();
    all.damaged_entries += counters.damaged_entries;
    all.bytes_read += counters.bytes_read;
  }
  all.code_hits = memory_.code_hits() + user_hits_ + pack_hits_;
  all.code_misses = misses_;
  all.winner_hits = winner_hits_;
  all.winner_misses = winner_misses_;
  return all;
}

LayerCounters LayeredCache::layer_counters() const {
  return {.memory_hits = memory_.code_hits(),
          .user_hits = user_hits_,
          .pack_hits = pack_hits_,
          .misses = misses_,
          .packs_open = static_cast<int64_t>(packs_.size()),
          .packs_refused = packs_refused_,
          .verify_matches = verify_matches_,
          .verify_mismatches = verify_mismatches_};
}

}  // namespace whet
