// whet cache why-miss, diff: in what entries differ from what is asked for, or caches from another.
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cache/maintenance.h"
#include "src/cli/cache_entry.h"
#include "src/cli/cache_source.h"
#include "src/cli/cache_verbs.h"
#include "src/cli/device_flags.h"
#include "src/cli/problem_input.h"
#include "src/cli/report.h"
#include "src/cli/target_list.h"
#include "src/runtime/code_provider.h"

namespace whet {
namespace {

using nlohmann::ordered_json;

class WhyMissCommand final : public Command {
 public:
  void Declare(Verb app) override {
    verb_ = app.AddVerb(
        "why-miss", "Say whether a problem's code is cached, and how the nearest entries differ");
    verb_.Footer(
        "Examples:\n"
        "  whet cache why-miss attention_forward:dtype=bf16,batch=1,heads_q=8,seq_q=1024,dqk=128 "
        "\\\n"
        "      --target gfx942:sramecc+:xnack- --packs amd.whetpack\n"
        "  whet cache why-miss rms_norm:dtype=bf16,rows=512,columns=4096 --winner --device cuda\n"
        "The status is 0 whether it is there or not.");
    verb_.Option("problem", &problem_, "operation:field=value,...").Required();
    verb_.Option("-t,--target", &target_, "Target of the code: gfx942, sm_90a, host").ShowDefault();
    verb_.Option("--variant", &variant_, "Variant of the code (the default one)").Type("ID");
    verb_.Flag("--winner", &winner_, "Ask for the winner on --device instead of for code");
    DeclareDeviceFlags(verb_, &device_);
    verb_.Option("--in", &in_, "Look into this cache directory, cache.db or pack alone")
        .Type("SOURCE");
    verb_.Option("-n,--nearest", &count_, "How many of the nearest entries to show")
        .Range(1, 1000)
        .ShowDefault();
  }

  Outcome Run(Session& session) override {
    if (session.options.cache_policy != CachePolicy::kOff) {
      session.options.cache_policy = CachePolicy::kReadOnly;
    }
    if (!winner_) device_.device = "cpu";  // which is always there and brings the templates
    absl::StatusOr<std::unique_ptr<Runtime>> runtime = OpenRuntime(session, device_);
    if (!runtime.ok()) return InputFailure(runtime.status());
    absl::StatusOr<KeyRecord> key = Key(**runtime);
    if (!key.ok()) return InputFailure(key.status());
    absl::StatusOr<std::unique_ptr<Store>> store = OpenForLooking(session, in_);
    if (!store.ok()) return InputFailure(store.status());

    const bool there = winner_ ? (*store)->FindWinner(key->bytes()).has_value()
                               : (*store)->FindCodeByRequest(key->bytes()).has_value();
    absl::StatusOr<std::vector<NearMiss>> nearest = WhyMiss(**store, key->bytes(), count_);
    if (!nearest.ok()) return {ExitCode::kFailed, nearest.status()};
    Console& console = session.console;
    console.Row("asked for", absl::StrCat(winner_ ? "winner " : "code ", key->hash().ToHex()));
    for (const auto& [name, value] : KeyFieldsOf(key->bytes())) {
      console.Line(absl::StrFormat("  %-18s%s", name, OneLine(value)));
    }
    console.Row("answer", there ? "it is there" : "it is not there");
    ordered_json json = {{"key_hash", key->hash().ToHex()},
                         {"key", KeyFieldsJson(KeyFieldsOf(key->bytes()))},
                         {"there", there},
                         {"nearest", ordered_json::array()}};
    if (!there && nearest->empty()) {
      console.Row("nearest", winner_ ? "there are no winners at all" : "there is no code at all");
    }
    for (const NearMiss& near : *nearest) {
      ordered_json differences = ordered_json::array();
      for (const FieldDifference& d : near.differences) {
        const auto side = [](const std::optional<std::string>& value) {
          return value.has_value() ? ordered_json(*value) : ordered_json(nullptr);
        };
        differences.push_back(
            {{"field", d.name}, {"asked_for", side(d.wanted)}, {"cached", side(d.found)}});
      }
      json["nearest"].push_back(
          {{"key_hash", near.key_hash}, {"differences", std::move(differences)}});
      if (!there) {
        console.Row("nearest", absl::StrCat(near.key_hash.substr(0, 12), "  ",
                                            OneLine(DifferencesText(near.differences))));
      }
    }
    console.Json(DumpJson(json));
    return {};
  }

 private:
  absl::StatusOr<KeyRecord> Key(Runtime& runtime) const {
    absl::StatusOr<const KernelTemplate*> kernel_template =
        runtime.FindTemplate(problem_.substr(0, problem_.find(':')));
    if (!kernel_template.ok()) return kernel_template.status();
    absl::StatusOr<Problem> problem = MakeProblemFromText(**kernel_template, problem_);
    if (!problem.ok()) return problem.status();
    if (winner_) return TuningKeyOf(**kernel_template, *problem, runtime.device().identity());
    absl::StatusOr<std::vector<Target>> targets = ParseTargetList({target_});
    if (!targets.ok()) return targets.status();
    const Target& target = targets->front();
    absl::StatusOr<Variant> variant =
        variant_.empty() ? (*kernel_template)->DefaultVariant(*problem, target, DeviceLimits{})
                         : Variant::Parse(variant_);
    if (!variant.ok()) return variant.status();
    absl::StatusOr<Specialization> specialization =
        (*kernel_template)->Specialize(*problem, *variant, target, DeviceLimits{});
    if (!specialization.ok()) return specialization.status();
    return CodeRequestKey(RequestFields(**kernel_template, *problem, *specialization, target));
  }

  std::string problem_;
  std::string target_ = "host";
  std::string variant_;
  std::string in_;
  DeviceFlags device_;
  bool winner_ = false;
  int count_ = 3;
};

class DiffCommand final : public Command {
 public:
  void Declare(Verb app) override {
    verb_ = app.AddVerb("diff", "Compare two caches or packs");
    verb_.Option("a", &a_, "A cache directory, cache.db or pack").Required();
    verb_.Option("b", &b_, "Another one").Required();
    verb_.Flag("--exit-code", &exit_code_, "End with status 1 when they differ");
  }

  Outcome Run(Session& session) override {
    absl::StatusOr<std::unique_ptr<Store>> a = OpenCachePath(session, a_);
    if (!a.ok()) return InputFailure(a.status());
    absl::StatusOr<std::unique_ptr<Store>> b = OpenCachePath(session, b_);
    if (!b.ok()) return InputFailure(b.status());
    absl::StatusOr<DiffSummary> diff = Diff(**a, **b);
    if (!diff.ok()) return {ExitCode::kFailed, diff.status()};
    ordered_json json = ordered_json::object();
    const auto report = [&](const char* sign, const char* name,
                            const std::vector<EntrySummary>& entries) {
      json[name] = ordered_json::array();
      for (const EntrySummary& entry : entries) {
        json[name].push_back(SummaryJson(entry));
        session.console.Line(absl::StrCat(sign, " ", SummaryText(entry)));
      }
    };
    report("-", "only_in_a", diff->only_in_a);
    report("+", "only_in_b", diff->only_in_b);
    report("!", "different", diff->different);
    const bool same = diff->only_in_a.empty() && diff->only_in_b.empty() && diff->different.empty();
    session.console.Line(same ? "the same entries"
                              : absl::StrFormat("%d only in %s, %d only in %s, %d different",
                                                diff->only_in_a.size(), a_, diff->only_in_b.size(),
                                                b_, diff->different.size()));
    Outcome outcome;
    if (exit_code_ && !same) {
      outcome = {ExitCode::kFailed, absl::AbortedError(absl::StrCat(a_, " and ", b_, " differ"))};
      json["error"] = ErrorJson(outcome);
    }
    json["same"] = same;
    session.console.Json(DumpJson(json));
    return outcome;
  }

 private:
  std::string a_;
  std::string b_;
  bool exit_code_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeCacheWhyMiss() { return std::make_unique<WhyMissCommand>(); }
std::unique_ptr<Command> MakeCacheDiff() { return std::make_unique<DiffCommand>(); }

}  // namespace whet
