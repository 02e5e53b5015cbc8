// whet cache: looks into kernel caches and keeps them. The verbs are files of their own.
#include <memory>
#include <utility>
#include <vector>

#include "src/cli/cache_verbs.h"
#include "src/cli/command.h"

namespace whet {
namespace {

class CacheCommand final : public Command {
 public:
  CacheCommand() {
    verbs_.push_back(MakeCacheLs());
    verbs_.push_back(MakeCacheShow());
    verbs_.push_back(MakeCacheWhyMiss());
    verbs_.push_back(MakeCacheVerify());
    verbs_.push_back(MakeCachePrune());
    verbs_.push_back(MakeCacheMerge());
    verbs_.push_back(MakeCacheDiff());
    verbs_.push_back(MakeCacheExport());
    verbs_.push_back(MakeCacheImport());
    verbs_.push_back(MakeCacheStats());
  }

  void Declare(Verb app) override {
    verb_ = app.AddVerb("cache", "Look into kernel caches, check, join and ship them");
    verb_.RequireVerb();
    verb_.Footer(
        "Every verb works without a GPU and without a compiler. SOURCE is a cache directory, the\n"
        "cache.db in it, or a pack.");
    for (const std::unique_ptr<Command>& verb : verbs_) verb->Declare(verb_);
  }

  Outcome Run(Session& session) override {
    for (const std::unique_ptr<Command>& verb : verbs_) {
      if (verb->chosen()) return verb->Run(session);
    }
    return {ExitCode::kUsage, absl::InvalidArgumentError("no verb was given")};
  }

 private:
  std::vector<std::unique_ptr<Command>> verbs_;
};

}  // namespace

std::unique_ptr<Command> MakeCacheCommand() { return std::make_unique<CacheCommand>(); }

}  // namespace whet
