#include "src/cli/verb.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"

namespace whet {

Setting& Setting::Required() {
  option_->required();
  return *this;
}

Setting& Setting::Type(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Setting& Setting::Group(const std::string& name) {
  option_->group(name);
  return *this;
}

Setting& Setting::ShowDefault() {
  option_->capture_default_str();
  return *this;
}

Setting& Setting::OneValueEach() {
  option_->allow_extra_args(false);
  return *this;
}

Setting& Setting::Range(int least, int most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Setting& Setting::Range(double least, double most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Setting& Setting::Positive() {
  option_->check(CLI::PositiveNumber);
  return *this;
}

Setting& Setting::OneOf(std::initializer_list<const char*> words) {
  option_->check(CLI::IsMember(std::vector<std::string>(words.begin(), words.end())));
  return *this;
}

Setting& Setting::Excludes(const Setting& other) {
  option_->excludes(other.option_);
  return *this;
}

Verb Verb::AddVerb(const std::string& name, const std::string& what) {
  CLI::App* const verb = app_->add_subcommand(name, what);
  verb->fallthrough();  // so that `whet run --json` works as `whet --json run` does
  return Verb(verb);
}

Setting Verb::Option(const std::string& names, std::string* value, const std::string& help) {
  return Setting(app_->add_option(names, *value, help));
}

Setting Verb::Option(const std::string& names, std::vector<std::string>* value,
                     const std::string& help) {
  return Setting(app_->add_option(names, *value, help));
}

Setting Verb::Option(const std::string& names, int* value, const std::string& help) {
  return Setting(app_->add_option(names, *value, help));
}

Setting Verb::Option(const std::string& names, uint64_t* value, const std::string& help) {
  return Setting(app_->add_option(names, *value, help));
}

Setting Verb::Option(const std::string& names, double* value, const std::string& help) {
  return Setting(app_->add_option(names, *value, help));
}

Setting Verb::Flag(const std::string& names, bool* value, const std::string& help) {
  return Setting(app_->add_flag(names, *value, help));
}

Setting Verb::Find(const std::string& name) { return Setting(app_->get_option(name)); }

void Verb::Footer(const std::string& text) { app_->footer(text); }

void Verb::RequireVerb() { app_->require_subcommand(1); }

void Verb::AllowOneVerb() { app_->require_subcommand(0, 1); }

bool Verb::chosen() const { return app_ != nullptr && app_->parsed(); }

CommandLine::CommandLine(const std::string& program, const std::string& description,
                         const std::string& version)
    : app_(std::make_unique<CLI::App>(description, program)) {
  app_->set_version_flag("--version", version);
}

CommandLine::~CommandLine() = default;

Verb CommandLine::root() const { return Verb(app_.get()); }

std::optional<int> CommandLine::Parse(int argc, char** argv, std::string* error) {
  try {  // CLI11 reports by exceptions; none leaves this function
    app_->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& wrong) {
    if (wrong.get_exit_code() == 0) return app_->exit(wrong);  // --help, --version
    std::string verb;
    for (const CLI::App* sub : app_->get_subcommands()) verb = absl::StrCat(" ", sub->get_name());
    *error = absl::StrCat(wrong.what(), "; see ", app_->get_name(), verb, " --help");
    return wrong.get_exit_code();
  }
}

}  // namespace whet
