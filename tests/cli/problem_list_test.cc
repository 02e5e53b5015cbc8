#include "src/cli/problem_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/files.h"

namespace whet {
namespace {

using ::testing::HasSubstr;

class ProblemListTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<ListedProblem>> Read(absl::string_view text) {
    path_ = JoinPath(directory_.path(), "list.jsonl");
    EXPECT_TRUE(WriteFileAtomically(path_, text).ok());
    return ReadProblemList(path_);
  }
  TemporaryDirectory directory_ = *TemporaryDirectory::Create("problem_list_test");
  std::string path_;
};

TEST_F(ProblemListTest, TakesFieldsOrCanonicalText) {
  absl::StatusOr<std::vector<ListedProblem>> list = Read(
      "# shapes of our model\n"
      "{\"operation\": \"attention_forward\", \"dtype\": \"bf16\", \"seq_q\": 64, \"causal\": "
      "true}\n"
      "\n"
      "  {\"problem\": \"rms_norm:dtype=f32,rows=2,columns=3\"}\r\n");
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->size(), 2u);
  EXPECT_EQ((*list)[0].operation, "attention_forward");
  EXPECT_EQ((*list)[0].text, "dtype=bf16,seq_q=64,causal=1");
  EXPECT_EQ((*list)[0].origin, path_ + ":2");
  EXPECT_EQ((*list)[1].operation, "rms_norm");
  EXPECT_EQ((*list)[1].text, "rms_norm:dtype=f32,rows=2,columns=3");
}

TEST_F(ProblemListTest, RefusesLinesByNumber) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"", "there is no problem in it"},
      {"# only a comment\n", "there is no problem in it"},
      {"{\"operation\": \"x\"}\nnonsense\n", ":2: this is no JSON object"},
      {"[1]\n", ":1: this is no JSON object"},
      {"{\"rows\": 4}\n", ":1: \"operation\" is missing"},
      {"{\"problem\": \"rows=4\"}\n", ":1: \"operation\" is missing"},
      {"{\"operation\": \"x\", \"rows\": 4.5}\n", ":1: \"rows\" is neither a whole number"},
      {"{\"operation\": \"x\", \"rows\": [4]}\n", ":1: \"rows\" is neither a whole number"},
      {"{\"problem\": \"x:rows=4\", \"rows\": 4}\n", ":1: \"problem\" holds the fields already"},
  };
  for (const auto& c : cases) {
    absl::StatusOr<std::vector<ListedProblem>> list = Read(c.text);
    EXPECT_EQ(list.status().code(), absl::StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(std::string(list.status().message()), HasSubstr(c.message));
    EXPECT_THAT(std::string(list.status().message()), HasSubstr(path_));
  }
}

}  // namespace
}  // namespace whet
