// The runtime on real parts: the CPU device, the host's compiler, SQLite files.

#include "src/runtime/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "cache/pack_writer.h"
#include "src/base/files.h"
#include "src/base/mutex.h"
#include "tests/runtime/scale_add.h"

namespace whet {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kElements = 5000;

class RuntimeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto directory = TemporaryDirectory::Create("whet-runtime-test");
    ASSERT_TRUE(directory.ok()) << directory.status();
    directory_.emplace(*std::move(directory));
    options_.cache_directory = JoinPath(directory_->path(), "cache");
    options_.device.cpu_threads = 2;
    // Which variant wins does not matter here.
    options_.tuning_policy.final_time = absl::Milliseconds(2);
    options_.tuning_policy.soak = absl::Milliseconds(1);
    options_.log = [this](LogLevel level, absl::string_view line) {
      // How long something took is told as well; that depends on the machine.
      if (level != LogLevel::kWarning) return;
      MutexLock lock(log_mutex_);
      log_ += std::string(line) + "\n";
    };
  }

  // A runtime with the template in it, and one problem.
  void Open(const char* flavours = "[0, 1]", int default_flavour = 0, int64_t n = kElements) {
    runtime_.reset();
    auto runtime = Runtime::Open(options_, Platform::kCpu, 0);
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
    auto added = runtime_->AddTemplate("scale_add", ScaleAddFiles(flavours, default_flavour));
    ASSERT_TRUE(added.ok()) << added.status();
    template_ = *added;
    auto problem = template_->MakeProblem({{"n", n}});
    ASSERT_TRUE(problem.ok()) << problem.status();
    problem_.emplace(*std::move(problem));
  }

  // y = 3 x + y with x = 2 and y = 1 on entry; every element must be 7.
  absl::Status LaunchAndCheck() {
    x_.assign(kElements, 2.0f);
    y_.assign(kElements, 1.0f);
    if (absl::Status s = runtime_->Launch(*template_, *problem_, Args(), nullptr); !s.ok())
      return s;
    for (size_t i = 0; i < y_.size(); ++i) EXPECT_EQ(y_[i], 7.0f) << i;
    return absl::OkStatus();
  }

  void* const* Args() {
    x_pointer_ = x_.data();
    y_pointer_ = y_.data();
    args_[0] = &x_pointer_;
    args_[1] = &y_pointer_;
    args_[2] = &factor_;
    return args_;
  }

  Resolution LastResolution() {
    const auto plan = runtime_->Prepare(*template_, *problem_, nullptr, nullptr);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? (*plan)->resolution() : Resolution();
  }

  std::string log() {
    MutexLock lock(log_mutex_);
    return log_;
  }

  std::optional<TemporaryDirectory> directory_;
  Options options_;
  Mutex log_mutex_;
  std::string log_ ABSL_GUARDED_BY(log_mutex_);
  std::unique_ptr<Runtime> runtime_;
  const KernelTemplate* template_ = nullptr;
  std::optional<Problem> problem_;
  std::vector<float> x_ = std::vector<float>(kElements, 2.0f),
                     y_ = std::vector<float>(kElements, 1.0f);
  float* x_pointer_ = nullptr;
  float* y_pointer_ = nullptr;
  float factor_ = 3.0f;
  void* args_[3] = {};
};

TEST_F(RuntimeTest, FirstCallTunesAndTheNextRuntimeStartsFromTheCache) {
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  const Resolution first = LastResolution();
  EXPECT_EQ(first.variant_origin, Origin::kTuned);
  EXPECT_EQ(first.code_origin, Origin::kCompiled);
  EXPECT_EQ(first.variants, 3);
  EXPECT_GE(first.compiled, 2);
  EXPECT_EQ(runtime_->counters().tunings, 1);

  // Again in this process: the plan table, nothing else.
  ASSERT_TRUE(LaunchAndCheck().ok());
  EXPECT_EQ(runtime_->counters().resolutions, 1);

  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  const Resolution second = LastResolution();
  EXPECT_EQ(second.variant, first.variant);
  EXPECT_EQ(second.variant_origin, Origin::kUserCache);
  EXPECT_EQ(second.code_origin, Origin::kUserCache);
  EXPECT_NEAR(second.gain, first.gain, 1e-4);
  EXPECT_EQ(runtime_->counters().compiles, 0);
  EXPECT_EQ(runtime_->counters().tunings, 0);
  EXPECT_EQ(log(), "");
}

TEST_F(RuntimeTest, A52_TuningLeavesBuffersThatAreReadAndWrittenAlone) {
  Open();
  x_.assign(kElements, 2.0f);
  y_.assign(kElements, 1.0f);
  const auto plan = runtime_->Prepare(*template_, *problem_, Args(), nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(runtime_->counters().tunings, 1);
  for (size_t i = 0; i < y_.size(); ++i) ASSERT_EQ(y_[i], 1.0f) << i;
}

TEST_F(RuntimeTest, AnotherShapeIsAnotherProblem) {
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  problem_.emplace(*template_->MakeProblem({{"n", kElements - 1}}));
  x_.assign(kElements, 2.0f);
  y_.assign(kElements, 1.0f);
  ASSERT_TRUE(runtime_->Launch(*template_, *problem_, Args(), nullptr).ok());
  EXPECT_EQ(y_[kElements - 2], 7.0f);
  EXPECT_EQ(y_[kElements - 1], 1.0f);
  EXPECT_EQ(runtime_->counters().resolutions, 2);
}

TEST_F(RuntimeTest, PackedFieldsAreTheSameProblem) {
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  y_.assign(kElements, 1.0f);
  const int64_t fields[] = {kElements, 16};
  ASSERT_TRUE(runtime_->Launch(*template_, absl::MakeConstSpan(fields), Args(), nullptr).ok());
  EXPECT_EQ(y_[0], 7.0f);
  EXPECT_EQ(runtime_->counters().resolutions, 1);
  const int64_t too_few[] = {kElements};
  EXPECT_TRUE(absl::IsInvalidArgument(
      runtime_->Launch(*template_, absl::MakeConstSpan(too_few), Args(), nullptr)));
}

TEST_F(RuntimeTest, ManyThreadsMakeOneFlight) {
  Open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      std::vector<float> x(kElements, 2.0f), y(kElements, 1.0f);
      float *xp = x.data(), *yp = y.data(), factor = 3.0f;
      void* args[] = {&xp, &yp, &factor};
      EXPECT_TRUE(runtime_->Launch(*template_, *problem_, args, nullptr).ok());
      EXPECT_EQ(y[0], 7.0f);
      EXPECT_EQ(y[kElements - 1], 7.0f);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(runtime_->counters().resolutions, 1);
  EXPECT_EQ(runtime_->counters().tunings, 1);
}

TEST_F(RuntimeTest, AWrongVariantAndOneThatDoesNotCompileLose) {
  Open("[0, 2, 3]", 3);
  ASSERT_TRUE(LaunchAndCheck().ok());
  const auto plan = runtime_->Prepare(*template_, *problem_, nullptr, nullptr);
  ASSERT_TRUE(plan.ok());
  ASSERT_NE((*plan)->tuning(), nullptr);
  int wrong = 0, failed = 0;
  for (const VariantEvidence& evidence : (*plan)->tuning()->evidence) {
    if (evidence.outcome == VariantOutcome::kWrong) {
      ++wrong;
      EXPECT_EQ(evidence.variant.id(), "blocks:flavour=2");
    }
    if (evidence.outcome == VariantOutcome::kFailed) {
      ++failed;
      EXPECT_EQ(evidence.variant.id(), "blocks:flavour=3");
      EXPECT_THAT(evidence.reason, HasSubstr("this flavour does not compile"));
    }
  }
  EXPECT_EQ(wrong, 1);
  EXPECT_EQ(failed, 1);
}

TEST_F(RuntimeTest, APreferredKernelThatLosesAllItsVariantsIsNamed) {
  Open("[2, 3]", 2);
  ASSERT_TRUE(LaunchAndCheck().ok());
  EXPECT_EQ(LastResolution().variant, "plain");
  EXPECT_THAT(LastResolution().note, HasSubstr("no variant of the kernel blocks could be used"));
  EXPECT_THAT(log(), HasSubstr("blocks:flavour=2"));
}

TEST_F(RuntimeTest, A77_ADefaultThatDoesNotCompileGivesWayToOneThatDoes) {
  options_.tuning = TuningMode::kNever;
  Open("[3, 0]", 3);
  ASSERT_TRUE(LaunchAndCheck().ok());
  EXPECT_THAT(LastResolution().note, HasSubstr("blocks:flavour=3 could not be had"));
  EXPECT_THAT(log(), HasSubstr("this flavour does not compile"));
}

TEST_F(RuntimeTest, NoVariantAtAllIsOneClearError) {
  options_.toolchains.host_compiler = "/nonexistent/c++";
  Open();
  const absl::Status status = LaunchAndCheck();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent/c++"));
  EXPECT_EQ(status.message().find('\n'), absl::string_view::npos) << status.message();
}

TEST_F(RuntimeTest, OfflineMissNamesTheKeyAndAHitNeedsNoCompiler) {
  options_.cache_policy = CachePolicy::kOffline;
  Open();
  const absl::Status miss = LaunchAndCheck();
  EXPECT_TRUE(absl::IsNotFound(miss)) << miss;
  EXPECT_THAT(std::string(miss.message()), HasSubstr("request key "));
  EXPECT_THAT(std::string(miss.message()), HasSubstr("offline"));

  options_.cache_policy = CachePolicy::kReadWrite;
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());

  options_.cache_policy = CachePolicy::kOffline;
  options_.toolchains.host_compiler = "/nonexistent/c++";
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  EXPECT_EQ(runtime_->counters().compiles, 0);
  EXPECT_EQ(LastResolution().code_origin, Origin::kUserCache);
}

TEST_F(RuntimeTest, OffReadsAndWritesNothing) {
  options_.cache_policy = CachePolicy::kOff;
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  EXPECT_FALSE(IsDirectory(options_.cache_directory));
}

TEST_F(RuntimeTest, A64_AnUnusableCacheDirectoryIsASlowStart) {
  ASSERT_TRUE(WriteFileAtomically(JoinPath(directory_->path(), "file"), "x").ok());
  options_.cache_directory = JoinPath(directory_->path(), "file/cache");
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  EXPECT_THAT(log(), HasSubstr("file/cache"));
}

TEST_F(RuntimeTest, A10_GarbageInTheCacheFileIsASlowStart) {
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  runtime_.reset();
  ASSERT_TRUE(
      WriteFileAtomically(JoinPath(options_.cache_directory, "cache.db"), std::string(20000, 'g'))
          .ok());
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  EXPECT_EQ(LastResolution().code_origin, Origin::kCompiled);
  EXPECT_THAT(log(), HasSubstr("corrupt"));
}

TEST_F(RuntimeTest, CodeThatDoesNotLoadIsRebuiltOnce) {
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  const auto entries = runtime_->store().ListCode();
  ASSERT_TRUE(entries.ok());
  for (CodeEntry entry : *entries) {
    entry.object = "passes its checksum and is no code";
    ASSERT_TRUE(runtime_->store().PutCode(entry).ok());
  }
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  EXPECT_EQ(LastResolution().code_origin, Origin::kCompiled);
  EXPECT_EQ(runtime_->counters().load_failures, 1);
  EXPECT_THAT(log(), HasSubstr("compiled anew"));
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  EXPECT_EQ(runtime_->counters().load_failures, 0);
  EXPECT_EQ(LastResolution().code_origin, Origin::kUserCache);
}

TEST_F(RuntimeTest, A51_AWinnerThatNamesNoVariantIsNotBelieved) {
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  auto winners = runtime_->store().ListWinners();
  ASSERT_TRUE(winners.ok());
  ASSERT_EQ(winners->size(), 1u);
  WinnerEntry winner = winners->front();
  winner.variant = "blocks:flavour=77";
  ++winner.evidence_count;
  ASSERT_TRUE(runtime_->store().PutWinner(winner).ok());
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  EXPECT_EQ(LastResolution().variant_origin, Origin::kTuned);
}

TEST_F(RuntimeTest, A35_AnEditedSourceIsCompiledAnew) {
  options_.tuning = TuningMode::kNever;
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  runtime_.reset();
  auto runtime = Runtime::Open(options_, Platform::kCpu, 0);
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  TemplateFiles files = ScaleAddFiles("[0, 1]", 0);
  std::string& source = files["scale_add/scale_add.cc"];
  const std::string old = "y[i] = factor * x[i] + y[i]";
  ASSERT_NE(source.find(old), std::string::npos);
  source.replace(source.find(old), old.size(), "y[i] = factor * x[i] - y[i]");
  const auto added = (*runtime)->AddTemplate("scale_add", files);
  ASSERT_TRUE(added.ok()) << added.status();
  y_.assign(kElements, 1.0f);
  ASSERT_TRUE((*runtime)
                  ->Launch(**added, *(*added)->MakeProblem({{"n", kElements}}), Args(), nullptr)
                  .ok());
  EXPECT_EQ(y_[0], 5.0f);
  EXPECT_EQ((*runtime)->counters().compiles, 1);
}

TEST_F(RuntimeTest, VerifyMakesAnewAndFindsChangedCode) {
  options_.tuning = TuningMode::kNever;
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  options_.cache_policy = CachePolicy::kVerify;
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  EXPECT_EQ(LastResolution().code_origin, Origin::kCompiled);
  EXPECT_EQ(log(), "");

  options_.cache_policy = CachePolicy::kReadWrite;
  Open();
  const auto entries = runtime_->store().ListCode();
  ASSERT_TRUE(entries.ok());
  for (CodeEntry entry : *entries) {
    const auto whole = runtime_->store().FindCode(entry.key);
    ASSERT_TRUE(whole.has_value());
    entry.object = whole->object + "x";
    ASSERT_TRUE(runtime_->store().PutCode(entry).ok());
  }
  options_.cache_policy = CachePolicy::kVerify;
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  EXPECT_THAT(log(), HasSubstr("differs from the stored one"));
}

// A pack made elsewhere serves a process that has neither compiler nor user cache (A32, A74, A80).
TEST_F(RuntimeTest, A74_APackHitNeedsNoCompiler) {
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  const std::string variant = LastResolution().variant;
  const std::string pack = JoinPath(directory_->path(), "shipped.whetpack");
  const auto written = WritePack(pack, runtime_->store(), {});
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->winner_entries, 1);

  options_.cache_directory = "";
  options_.packs = {pack};
  options_.cache_policy = CachePolicy::kOffline;
  options_.toolchains.host_compiler = "/nonexistent/c++";
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  EXPECT_EQ(LastResolution().variant, variant);
  EXPECT_EQ(LastResolution().variant_origin, Origin::kPack);
  EXPECT_EQ(LastResolution().code_origin, Origin::kPack);
  EXPECT_EQ(log(), "");
}

TEST_F(RuntimeTest, RetuningKeepsTheIncumbentUnlessBeaten) {
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  const std::string winner = LastResolution().variant;
  x_.assign(kElements, 2.0f);
  const auto plan = runtime_->Tune(*template_, *problem_, Args(), nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->resolution().variant_origin, Origin::kTuned);
  EXPECT_EQ(runtime_->counters().tunings, 2);
  ASSERT_TRUE(LaunchAndCheck().ok());
}

TEST_F(RuntimeTest, AnotherClassOfDataInheritsTheNearestWinnerAndSaysSo) {
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());  // tuned on constants
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const auto launch_on_noise = [&] {
    for (float& v : x_) v = normal(random);
    for (float& v : y_) v = normal(random);
    return runtime_->Launch(*template_, *problem_, Args(), nullptr);
  };
  Open();
  ASSERT_TRUE(launch_on_noise().ok());
  EXPECT_EQ(LastResolution().variant_origin, Origin::kInherited);
  EXPECT_THAT(LastResolution().note, HasSubstr("tuned on other data"));
  EXPECT_EQ(runtime_->counters().tunings, 0);

  ASSERT_TRUE(runtime_->Tune(*template_, *problem_, Args(), nullptr).ok());
  EXPECT_EQ(runtime_->store().ListWinners()->size(), 2u);
  Open();
  ASSERT_TRUE(launch_on_noise().ok());
  EXPECT_EQ(LastResolution().variant_origin, Origin::kUserCache);
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  EXPECT_EQ(LastResolution().variant_origin, Origin::kUserCache);
}

TEST_F(RuntimeTest, EmptyTensorsCompileNothing) {
  Open("[0, 1]", 0, /*n=*/0);
  float* nothing = nullptr;
  void* args[] = {&nothing, &nothing, &factor_};
  EXPECT_TRUE(runtime_->Launch(*template_, *problem_, args, nullptr).ok());
  EXPECT_EQ(runtime_->counters().compiles, 0);
}

TEST_F(RuntimeTest, BadPointersAreNamed) {
  options_.tuning = TuningMode::kNever;
  Open();
  ASSERT_TRUE(LaunchAndCheck().ok());
  Args();
  x_pointer_ = nullptr;
  absl::Status status = runtime_->Launch(*template_, *problem_, args_, nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("argument x is a null pointer"));
  x_pointer_ = x_.data() + 1;
  status = runtime_->Launch(*template_, *problem_, args_, nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("argument x is not aligned to 16 bytes"));
}

TEST_F(RuntimeTest, TemplatesAreFoundByNameAndNamesAreTakenOnce) {
  Open();
  EXPECT_TRUE(runtime_->FindTemplate("rms_norm").ok());
  const auto missing = runtime_->FindTemplate("conv");
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("rms_norm, scale_add"));
  EXPECT_TRUE(
      absl::IsAlreadyExists(runtime_->AddTemplate("scale_add", ScaleAddFiles("[0]", 0)).status()));
  TemplateFiles broken = ScaleAddFiles("[0]", 0);
  broken["other/other.json"] = "{";
  EXPECT_TRUE(absl::IsInvalidArgument(runtime_->AddTemplate("other", broken).status()));
}

TEST_F(RuntimeTest, CompilingForATargetThatIsNotHereFillsTheStore) {
  Open();
  const Target target = HostCpuTarget();
  const auto variants = template_->Variants(*problem_, target, DeviceLimits());
  ASSERT_TRUE(variants.ok()) << variants.status();
  for (const bool again : {false, true}) {
    const auto results =
        CompileVariants(*runtime_, *template_, *problem_, *variants, target, nullptr);
    ASSERT_TRUE(results.ok()) << results.status();
    ASSERT_EQ(results->size(), variants->size());
    for (const CompiledVariant& result : *results) {
      EXPECT_TRUE(result.status.ok()) << result.status;
      EXPECT_EQ(result.was_cached, again);
      EXPECT_GT(result.object_bytes, 0);
    }
  }
  // What was compiled ahead is what the first call finds.
  ASSERT_TRUE(LaunchAndCheck().ok());
  EXPECT_EQ(runtime_->counters().compiles, 0);
}

}  // namespace
}  // namespace whet
