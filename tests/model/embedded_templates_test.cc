// Every template that the library carries parses, and every variant of it specialises.
#include "kernel_templates/embedded_templates.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/model/kernel_template.h"

namespace whet {
namespace {

TemplateFiles Files() {
  TemplateFiles files;
  for (const auto& [path, text] : EmbeddedTemplates()) {
    files.emplace(std::string(path), std::string(text));
  }
  return files;
}

// Folders with a file of their own name in them.
std::vector<std::string> Operations(const TemplateFiles& files) {
  std::vector<std::string> names;
  for (const auto& [path, text] : files) {
    const std::string name = path.substr(0, path.find('/'));
    if (path == absl::StrCat(name, "/", name, ".json")) names.push_back(name);
  }
  return names;
}

std::string Attention(const std::string& dtype, int64_t batch, int64_t heads_q, int64_t heads_kv,
                      int64_t seq_q, int64_t seq_kv, int64_t dqk, int64_t dv,
                      const std::string& more) {
  std::string text = absl::StrCat("attention_forward:dtype=", dtype, ",batch=", batch,
                                  ",heads_q=", heads_q, ",heads_kv=", heads_kv, ",seq_q=", seq_q,
                                  ",seq_kv=", seq_kv, ",dqk=", dqk, ",dv=", dv, more);
  const auto strides = [&](const char* name, int64_t heads, int64_t seq, int64_t dim) {
    absl::StrAppend(&text, ",", name, "_stride_b=", heads * seq * dim, ",", name,
                    "_stride_h=", seq * dim, ",", name, "_stride_s=", dim);
  };
  strides("q", heads_q, seq_q, dqk);
  strides("k", heads_kv, seq_kv, dqk);
  strides("v", heads_kv, seq_kv, dv);
  strides("o", heads_q, seq_q, dv);
  return text;
}

std::vector<std::string> Problems() {
  return {
      Attention("bf16", 1, 32, 8, 4096, 4096, 128, 128, ",causal=1"),
      Attention("bf16", 2, 16, 16, 1000, 1000, 192, 128, ",causal=0,lse=1"),
      Attention("f32", 1, 3, 1, 17, 33, 80, 80, ",causal=1"),
      Attention("bf16", 1, 4, 2, 1, 100000, 256, 256, ",causal=1"),
      Attention("bf16", 1, 1, 1, 0, 0, 1, 1, ",causal=0,alignment=2"),
      Attention("f32", 0, 1, 1, 5, 5, 64, 64, ",causal=0"),
      "rms_norm:dtype=bf16,rows=512,columns=4096,x_stride=4096",
      "rms_norm:dtype=f32,rows=1,columns=1,x_stride=1,alignment=4,residual=1",
      "rms_norm:dtype=bf16,rows=0,columns=7168,x_stride=8000,alignment=2",
  };
}

const std::vector<std::string> kTargets = {
    "x86-64",
    "x86-64:avx2,f16c,fma",
    "x86-64:amx-bf16,amx-int8,amx-tile,avx2,avx512bf16,avx512bw,avx512dq,avx512f,avx512fp16,"
    "avx512vl,avx512vnni,f16c,fma",
    "gfx90a:sramecc+:xnack-",
    "gfx942:sramecc+:xnack-",
    "gfx950:sramecc+:xnack-",
    "gfx1100",
    "sm_80",
    "sm_90a",
    "sm_100a",
};

DeviceLimits LimitsOf(const Target& target) {
  if (target.platform == Platform::kCpu) return {.compute_units = 16, .l2_bytes = 2 << 20};
  return {.compute_units = 132,
          .l2_bytes = 50 << 20,
          .shared_bytes_max = target.platform == Platform::kHip ? 64 << 10 : 227 << 10};
}

TEST(EmbeddedTemplatesTest, AreSortedAndWhole) {
  const auto embedded = EmbeddedTemplates();
  ASSERT_FALSE(embedded.empty());
  for (size_t i = 0; i < embedded.size(); ++i) {
    EXPECT_FALSE(embedded[i].second.empty()) << embedded[i].first;
    EXPECT_FALSE(absl::StartsWith(embedded[i].first, "kernel_templates")) << embedded[i].first;
    if (i > 0) {
      EXPECT_LT(embedded[i - 1].first, embedded[i].first);
    }
  }
}

TEST(EmbeddedTemplatesTest, EveryTemplateParses) {
  const TemplateFiles files = Files();
  const std::vector<std::string> operations = Operations(files);
  EXPECT_GE(operations.size(), 2u);
  for (const std::string& name : operations) {
    const absl::StatusOr<KernelTemplate> parsed = KernelTemplate::Parse(name, files);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
  }
}

// An untuned call on a processor with units for bf16 uses them.
TEST(EmbeddedTemplatesTest, TheDefaultOfCpuAttentionUsesTheUnitsThatAreThere) {
  const absl::StatusOr<KernelTemplate> t = KernelTemplate::Parse("attention_forward", Files());
  ASSERT_TRUE(t.ok()) << t.status();
  const std::string avx2 = "avx2,", avx512 = "avx512bw,avx512dq,avx512f,avx512vl,f16c,fma";
  const struct {
    std::string dtype, target, dot;
  } cases[] = {
      {"bf16", "x86-64:" + avx2 + avx512, "bf16_dot=0"},
      {"bf16", "x86-64:" + avx2 + "avx512bf16," + avx512, "bf16_dot=1"},
      {"bf16", "x86-64:amx-bf16,amx-tile," + avx2 + "avx512bf16," + avx512, "bf16_dot=2"},
      {"f32", "x86-64:amx-bf16,amx-tile," + avx2 + "avx512bf16," + avx512, "bf16_dot=0"},
  };
  for (const auto& c : cases) {
    std::string operation;
    const absl::StatusOr<Problem> problem = t->MakeProblem(*ParseFieldText(
        Attention(c.dtype, 1, 8, 8, 1024, 1024, 128, 128, ",causal=1"), &operation));
    ASSERT_TRUE(problem.ok()) << problem.status();
    const absl::StatusOr<Variant> first =
        t->DefaultVariant(*problem, *Target::Parse(c.target), {.compute_units = 8});
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_TRUE(absl::StrContains(first->id(), c.dot)) << first->id() << " on " << c.target;
  }
}

TEST(EmbeddedTemplatesTest, EveryVariantOfEveryProblemSpecialises) {
  const TemplateFiles files = Files();
  for (const std::string& text : Problems()) {
    std::string operation;
    const FieldValues fields = *ParseFieldText(text, &operation);
    const absl::StatusOr<KernelTemplate> t = KernelTemplate::Parse(operation, files);
    ASSERT_TRUE(t.ok()) << t.status();
    const absl::StatusOr<Problem> problem = t->MakeProblem(fields);
    ASSERT_TRUE(problem.ok()) << problem.status();
    EXPECT_TRUE(t->Arguments(*problem).ok()) << t->Arguments(*problem).status();
    for (const std::string& target_text : kTargets) {
      SCOPED_TRACE(absl::StrCat(text, " on ", target_text));
      const Target target = *Target::Parse(target_text);
      const DeviceLimits limits = LimitsOf(target);
      const absl::StatusOr<std::vector<Variant>> variants = t->Variants(*problem, target, limits);
      ASSERT_TRUE(variants.ok()) << variants.status();
      EXPECT_EQ(*t->DefaultVariant(*problem, target, limits), variants->front());
      const absl::StatusOr<Variant> reference = t->ReferenceVariant(*problem, target, limits);
      ASSERT_TRUE(reference.ok()) << reference.status();
      std::set<std::string> ids;
      for (const Variant& variant : *variants) {
        EXPECT_TRUE(ids.insert(variant.id()).second) << variant.id();
        EXPECT_EQ(*Variant::Parse(variant.id()), variant);
      }
      EXPECT_EQ(ids.count(reference->id()), 1u) << reference->id();
      // Expanding thousands of sources shows no more than a sample of them does.
      const size_t step = variants->size() / 200 + 1;
      for (size_t i = 0; i < variants->size(); i += step) {
        const Variant& variant = (*variants)[i];
        const absl::StatusOr<Specialization> s = t->Specialize(*problem, variant, target, limits);
        ASSERT_TRUE(s.ok()) << s.status();
        EXPECT_TRUE(t->Offers(*problem, variant, target, limits)) << variant.id();
        EXPECT_EQ(s->entry, absl::StrCat(operation, "_", variant.kernel));
        EXPECT_FALSE(absl::StrContains(s->source, "#include \"")) << variant.id();
      }
    }
  }
}

// What is read for one platform is for that platform what is read for all.
TEST(EmbeddedTemplatesTest, OnePlatformAloneIsTheSameThere) {
  const TemplateFiles files = Files();
  for (const std::string& text : Problems()) {
    std::string operation;
    const FieldValues fields = *ParseFieldText(text, &operation);
    const absl::StatusOr<KernelTemplate> all = KernelTemplate::Parse(operation, files);
    ASSERT_TRUE(all.ok()) << all.status();
    for (const std::string& target_text : kTargets) {
      SCOPED_TRACE(absl::StrCat(text, " on ", target_text));
      const Target target = *Target::Parse(target_text);
      const DeviceLimits limits = LimitsOf(target);
      const absl::StatusOr<KernelTemplate> one =
          KernelTemplate::Parse(operation, files, target.platform);
      ASSERT_TRUE(one.ok()) << one.status();
      const Problem problem = *one->MakeProblem(fields);
      EXPECT_EQ(problem.text(), all->MakeProblem(fields)->text());
      EXPECT_EQ(one->VariantSetDigest(target.platform), all->VariantSetDigest(target.platform));
      const Variant first = *all->DefaultVariant(problem, target, limits);
      EXPECT_EQ(*one->DefaultVariant(problem, target, limits), first);
      EXPECT_EQ(*one->ReferenceVariant(problem, target, limits),
                *all->ReferenceVariant(problem, target, limits));
      EXPECT_EQ(one->Specialize(problem, first, target, limits)->source,
                all->Specialize(problem, first, target, limits)->source);
      for (const std::string& other_text : kTargets) {
        const Target other = *Target::Parse(other_text);
        if (other.platform == target.platform) continue;
        // Some kernels are for two platforms.
        const absl::StatusOr<Variant> left = one->DefaultVariant(problem, other, LimitsOf(other));
        EXPECT_TRUE(left.ok() || absl::IsUnimplemented(left.status())) << left.status();
      }
    }
  }
}

}  // namespace
}  // namespace whet
