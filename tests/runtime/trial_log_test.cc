#include "src/runtime/trial_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/base/files.h"

namespace whet {
namespace {

using ::testing::HasSubstr;

class TrialLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto directory = TemporaryDirectory::Create("whet-trial-log-test");
    ASSERT_TRUE(directory.ok()) << directory.status();
    directory_.emplace(*std::move(directory));
    options_ = {.directory = JoinPath(directory_->path(), "cache"),
                .tuning_key = "key",
                .target = "x86-64",
                .toolchain = "hostcxx 14, build 1",
                .operation = "scale_add 77"};
  }
  // What another process does before it is killed.
  template <typename Work>
  void InProcessThatDies(Work work) {
    const pid_t child = fork();
    if (child == 0) {
      TrialLog log(options_);
      work(log);
      _exit(9);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
  }
  static Variant Named(const char* id) { return *Variant::Parse(id); }
  static VariantEvidence Outcome(const char* id, VariantOutcome outcome, const char* reason) {
    VariantEvidence e;
    e.variant = Named(id);
    e.outcome = outcome;
    e.reason = reason;
    return e;
  }
  std::vector<VariantEvidence> Known() { return TrialLog(options_).known(); }

  std::optional<TemporaryDirectory> directory_;
  TrialLogOptions options_;
};

TEST_F(TrialLogTest, AKilledRunIsTakenUpWhereItStopped) {
  InProcessThatDies([](TrialLog& log) {
    log.Launching(Named("k:a=1"));
    log.Launched(Named("k:a=1"));
    log.Out(Outcome("k:a=1", VariantOutcome::kWrong, "its y differs"));
    log.Out(Outcome("k:a=2", VariantOutcome::kFailed, "it does not compile"));
  });
  const std::vector<VariantEvidence> known = Known();
  ASSERT_EQ(known.size(), 2u);
  EXPECT_EQ(known[0].variant, Named("k:a=1"));
  EXPECT_EQ(known[0].outcome, VariantOutcome::kWrong);
  EXPECT_EQ(known[0].reason, "its y differs");
  EXPECT_FALSE(known[0].blocked);
  EXPECT_EQ(known[1].outcome, VariantOutcome::kFailed);
}

TEST_F(TrialLogTest, WhoTookTheProcessWithItIsBlockedForThisTargetAndToolchain) {
  InProcessThatDies([](TrialLog& log) {
    log.Launching(Named("k:a=1"));
    log.Launched(Named("k:a=1"));
    log.Launching(Named("k:a=2"));
  });
  std::vector<VariantEvidence> known = Known();
  ASSERT_EQ(known.size(), 1u);
  EXPECT_EQ(known[0].variant, Named("k:a=2"));
  EXPECT_TRUE(known[0].blocked);
  EXPECT_THAT(known[0].reason, HasSubstr("took the process with it"));

  // Also for other problems of the operation, and after this one is settled.
  EXPECT_EQ(Known().size(), 1u);
  TrialLog(options_).Finish();
  options_.tuning_key = "another problem";
  known = Known();
  ASSERT_EQ(known.size(), 1u);
  EXPECT_THAT(known[0].reason, HasSubstr("blocked: "));
  for (std::string TrialLogOptions::*field :
       {&TrialLogOptions::target, &TrialLogOptions::toolchain, &TrialLogOptions::operation}) {
    const TrialLogOptions before = options_;
    options_.*field = "another";
    EXPECT_TRUE(Known().empty());
    options_ = before;
  }
}

TEST_F(TrialLogTest, ARunThatIsStillGoingOnIsNotBlamed) {
  TrialLog mine(options_);
  mine.Launching(Named("k:a=1"));
  EXPECT_TRUE(Known().empty());
}

TEST_F(TrialLogTest, WhatIsSettledIsForgottenButForTheBlockList) {
  {
    TrialLog log(options_);
    log.Out(Outcome("k:a=1", VariantOutcome::kWrong, "its y differs"));
    VariantEvidence hung = Outcome("k:a=2", VariantOutcome::kFailed, "it did not end");
    hung.blocked = true;
    log.Out(hung);
    log.Finish();
  }
  const std::vector<VariantEvidence> known = Known();
  ASSERT_EQ(known.size(), 1u);
  EXPECT_EQ(known[0].variant, Named("k:a=2"));
  EXPECT_EQ(known[0].reason, "blocked: it did not end");
}

TEST_F(TrialLogTest, AnotherCompilersTrialsSayNothing) {
  InProcessThatDies([](TrialLog& log) {
    log.Out(Outcome("k:a=1", VariantOutcome::kFailed, "it does not compile"));
  });
  options_.toolchain = "hostcxx 15, build 1";
  EXPECT_TRUE(Known().empty());
}

TEST_F(TrialLogTest, DamagedFilesAndNoDirectoryAreNoLog) {
  InProcessThatDies(
      [](TrialLog& log) { log.Out(Outcome("k:a=1", VariantOutcome::kWrong, "its y differs")); });
  const std::string folder = JoinPath(options_.directory, "trials");
  const auto names = ListDirectory(folder);
  ASSERT_TRUE(names.ok());
  ASSERT_EQ(names->size(), 1u);
  const std::string path = JoinPath(folder, names->front());
  const std::string text = *ReadFile(path, 1 << 20);
  // Cut anywhere: a whole line or nothing.
  for (size_t cut = 0; cut <= text.size(); cut += 7) {
    ASSERT_TRUE(WriteFileAtomically(path, text.substr(0, cut)).ok());
    EXPECT_LE(Known().size(), 1u);
  }
  ASSERT_TRUE(
      WriteFileAtomically(path, "[1]\n{\"variant\": 3}\n\x01\xFF{}\n{\"launching\": 4}\n").ok());
  EXPECT_TRUE(Known().empty());
  options_.directory = "";
  TrialLog none(options_);
  none.Launching(Named("k:a=1"));
  none.Out(Outcome("k:a=1", VariantOutcome::kWrong, "x"));
  none.Finish();
  EXPECT_TRUE(none.known().empty());
}

}  // namespace
}  // namespace whet
