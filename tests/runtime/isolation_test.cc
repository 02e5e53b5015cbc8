// Variants that hang, fault, write beside their tensors or are wrong: they are out with the reason,
// the tuning goes on, the caller's data is untouched, and what hurt is not run again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/base/files.h"
#include "src/runtime/runtime.h"
#include "tests/runtime/scale_add.h"

namespace whet {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kElements = 5000;

class IsolationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto directory = TemporaryDirectory::Create("whet-isolation-test");
    ASSERT_TRUE(directory.ok()) << directory.status();
    directory_.emplace(*std::move(directory));
    options_.cache_directory = JoinPath(directory_->path(), "cache");
    options_.device.cpu_threads = 2;
    options_.tuning_policy.final_time = absl::Milliseconds(2);
    options_.tuning_policy.soak = absl::Milliseconds(1);
    options_.log = [](LogLevel, absl::string_view) {};
  }
  void Open(const char* flavours, int default_flavour) {
    runtime_.reset();
    auto runtime = Runtime::Open(options_, Platform::kCpu, 0);
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
    auto added = runtime_->AddTemplate("scale_add", ScaleAddFiles(flavours, default_flavour));
    ASSERT_TRUE(added.ok()) << added.status();
    template_ = *added;
    problem_.emplace(*template_->MakeProblem({{"n", kElements}}));
  }
  absl::StatusOr<const Plan*> Tune() {
    y_.assign(y_.size(), 1.0f);
    return runtime_->Tune(*template_, *problem_, args_, nullptr);
  }
  std::map<std::string, VariantEvidence> Evidence(const Plan& plan) {
    std::map<std::string, VariantEvidence> all;
    for (const VariantEvidence& e : plan.tuning()->evidence) all[e.variant.id()] = e;
    return all;
  }

  std::optional<TemporaryDirectory> directory_;
  Options options_;
  std::unique_ptr<Runtime> runtime_;
  const KernelTemplate* template_ = nullptr;
  std::optional<Problem> problem_;
  // Room behind, for who writes past the end.
  std::vector<float> x_ = std::vector<float>(kElements, 2.0f),
                     y_ = std::vector<float>(kElements + 16, 1.0f);
  float *x_pointer_ = x_.data(), *y_pointer_ = y_.data();
  float factor_ = 3.0f;
  void* args_[3] = {&x_pointer_, &y_pointer_, &factor_};
};

TEST_F(IsolationTest, BadVariantsAreOutWithTheReasonAndTheTuningGoesOn) {
  Open("[4, 5, 6, 2, 3, 0]", 4);
  const auto plan = Tune();
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const float v : y_) ASSERT_EQ(v, 1.0f) << "the caller's data was touched";
  ASSERT_NE((*plan)->tuning(), nullptr);
  auto evidence = Evidence(**plan);
  EXPECT_THAT(evidence["blocks:flavour=4"].reason, HasSubstr("did not end within"));
  EXPECT_THAT(evidence["blocks:flavour=5"].reason, HasSubstr("killed by signal 11"));
  EXPECT_THAT(evidence["blocks:flavour=6"].reason, HasSubstr("past the end of argument y"));
  EXPECT_THAT(evidence["blocks:flavour=2"].reason, HasSubstr("differs from the reference's"));
  EXPECT_THAT(evidence["blocks:flavour=3"].reason, HasSubstr("does not compile"));
  for (const int flavour : {4, 5}) {
    EXPECT_TRUE(evidence["blocks:flavour=" + std::to_string(flavour)].blocked);
  }
  for (const int flavour : {6, 2, 3}) {
    EXPECT_FALSE(evidence["blocks:flavour=" + std::to_string(flavour)].blocked);
  }
  EXPECT_THAT((*plan)->resolution().variant, ::testing::AnyOf("plain", "blocks:flavour=0"));

  // Another process, another problem of the operation: what hurt is not run again.
  Open("[4, 5, 6, 2, 3, 0]", 4);
  problem_.emplace(*template_->MakeProblem({{"n", kElements - 1}}));
  const auto again = Tune();
  ASSERT_TRUE(again.ok()) << again.status();
  evidence = Evidence(**again);
  EXPECT_THAT(evidence["blocks:flavour=4"].reason, HasSubstr("blocked: it did not end within"));
  EXPECT_THAT(evidence["blocks:flavour=5"].reason,
              HasSubstr("blocked: it was killed by signal 11"));
  EXPECT_THAT(evidence["blocks:flavour=2"].reason, HasSubstr("differs from the reference's"))
      << "what is wrong for one problem is looked at anew for another";
}

TEST_F(IsolationTest, WhenEveryVariantIsWrongTheReferenceIsUsed) {
  // `plain` is the reference and a variant; here it comes too late to be tried.
  options_.tuning_policy.most_variants = 1;
  Open("[2]", 2);
  y_.assign(y_.size(), 1.0f);
  ASSERT_TRUE(runtime_->Launch(*template_, *problem_, args_, nullptr).ok());
  for (int64_t i = 0; i < kElements; ++i) ASSERT_EQ(y_[static_cast<size_t>(i)], 7.0f);
  const auto plan = runtime_->Prepare(*template_, *problem_, nullptr, nullptr);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)->resolution().variant, "plain");
  EXPECT_THAT((*plan)->resolution().note, HasSubstr("no variant is left"));
}

TEST_F(IsolationTest, ABudgetThatIsTooSmallGivesAVerifiedVariant) {
  options_.tuning_policy.budget = absl::Nanoseconds(1);
  Open("[0, 1]", 0);
  const auto plan = Tune();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE((*plan)->tuning()->budget_spent);
  EXPECT_GE(Evidence(**plan)[(*plan)->resolution().variant].relative_error, 0);
}

TEST_F(IsolationTest, TensorsThatOverlapInPartAreNamedAndTheFirstCallRunsTheDefault) {
  Open("[0, 1]", 0);
  y_pointer_ = x_.data() + 4;
  const std::vector<float> before = x_;
  const auto plan = Tune();
  EXPECT_TRUE(absl::IsInvalidArgument(plan.status())) << plan.status();
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("overlaps"));
  EXPECT_EQ(x_, before);
  const auto prepared = runtime_->Prepare(*template_, *problem_, args_, nullptr);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_THAT((*prepared)->resolution().note, HasSubstr("overlaps"));
  EXPECT_EQ(x_, before);
}

}  // namespace
}  // namespace whet
