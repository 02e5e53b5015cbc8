#include <gtest/gtest.h>
#include <sqlite3.h>
#include "absl/status/statusor.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
TEST(A,B){ absl::flat_hash_map<std::string,int> m; m["a"]=1; absl::StatusOr<int> s=m["a"]; EXPECT_TRUE(s.ok()); EXPECT_EQ(absl::StrCat("v",sqlite3_libversion()),"v3.40.1"); }
