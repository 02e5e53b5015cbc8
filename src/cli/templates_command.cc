// whet templates: which operations there are, and the fields of their problems.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/cli/command.h"
#include "src/cli/device_flags.h"
#include "src/cli/problem_input.h"
#include "src/cli/report.h"

namespace whet {
namespace {

using nlohmann::ordered_json;

class TemplatesCommand final : public Command {
 public:
  void Declare(Verb app) override {
    verb_ = app.AddVerb("templates", "List the operations, or the fields of one");
    verb_.Option("operation", &operation_, "Show the fields of its problems");
  }
  Outcome Run(Session& session) override;

 private:
  std::string operation_;
};

Outcome TemplatesCommand::Run(Session& session) {
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = OpenRuntime(session, {});
  if (!runtime.ok()) return InputFailure(runtime.status());
  std::vector<std::string> names = (*runtime)->TemplateNames();
  if (!operation_.empty()) names = {operation_};
  ordered_json list = ordered_json::array();
  for (const std::string& name : names) {
    absl::StatusOr<const KernelTemplate*> found = (*runtime)->FindTemplate(name);
    if (!found.ok()) return InputFailure(found.status());
    const KernelTemplate& t = **found;
    ordered_json item = {{"name", name}, {"version", t.version()}, {"summary", t.summary()}};
    session.console.Line(absl::StrCat(name, ": ", t.summary()));
    if (!operation_.empty()) {
      for (const std::string& line : t.FieldHelp()) session.console.Line(absl::StrCat("  ", line));
      item["fields"] = t.FieldHelp();
    }
    if (absl::StatusOr<Problem> example = MakeProblemFromText(t, "");
        example.ok() && !operation_.empty()) {
      session.console.Line(absl::StrCat("  example: ", example->text()));
      item["example"] = example->text();
    }
    list.push_back(std::move(item));
  }
  session.console.Json(DumpJson({{"templates", std::move(list)}}));
  return {};
}

}  // namespace

std::unique_ptr<Command> MakeTemplatesCommand() { return std::make_unique<TemplatesCommand>(); }

}  // namespace whet
