// A small operation that uses every key of docs/templates.md, for tests that need a template but no
// real kernel.
//
//   KernelTemplate t = *KernelTemplate::Parse("sample", SampleTemplateFiles());
#pragma once

#include "src/model/kernel_template.h"

namespace whet {

// "sample/sample.json" with the kernels cpu, gpu (hip and cuda) and wide (cuda, with tensor maps),
// and "common/shared.h".
TemplateFiles SampleTemplateFiles();

// dtype=bf16,rows=100,columns=64,label=plain
FieldValues SampleFields();

}  // namespace whet
