// The command line of the tool: verbs, their options and flags, bound to variables that outlive the
// parsing. CLI11 stands behind it in one file, because its header costs 3 s of every file that sees it.
//
//   CommandLine line("whet", "Whet sharpens kernels ...");
//   Verb pack = line.root().AddVerb("pack", "Write a pack");
//   pack.Option("-o,--output", &output, "The pack to write").Required().Type("PACK");
//   pack.Flag("--keep-going", &keep_going, "Write it even when something is missing");
//   if (std::optional<int> exit = line.Parse(argc, argv, &error)) return *exit;
//   if (pack.chosen()) ...
//
// Verbs and settings are handles into the command line, which must outlive them. Not thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace whet {

// One option or flag; its calls can be chained.
class Setting {
 public:
  explicit Setting(CLI::Option* option) : option_(option) {}

  Setting& Required();
  // What stands for the value in the help.
  Setting& Type(const std::string& name);
  // The heading it is listed under in the help.
  Setting& Group(const std::string& name);
  // The help shows the variable's value of now as the default.
  Setting& ShowDefault();
  // One value behind each mention of a list's option; what follows may be another argument.
  Setting& OneValueEach();
  // Values that are refused otherwise, both ends included.
  Setting& Range(int least, int most);
  Setting& Range(double least, double most);
  Setting& Positive();
  Setting& OneOf(std::initializer_list<const char*> words);
  // Refused together with `other`.
  Setting& Excludes(const Setting& other);

 private:
  CLI::Option* option_;
};

class Verb {
 public:
  Verb() = default;  // stands for none: never chosen
  explicit Verb(CLI::App* app) : app_(app) {}

  // A verb below this one. Options of the verbs above are understood behind it too.
  Verb AddVerb(const std::string& name, const std::string& what);

  // `names` as in "-o,--output"; without dashes it is a positional argument.
  Setting Option(const std::string& names, std::string* value, const std::string& help);
  Setting Option(const std::string& names, std::vector<std::string>* value,
                 const std::string& help);
  Setting Option(const std::string& names, int* value, const std::string& help);
  Setting Option(const std::string& names, uint64_t* value, const std::string& help);
  Setting Option(const std::string& names, double* value, const std::string& help);
  Setting Flag(const std::string& names, bool* value, const std::string& help);
  // The one that was declared with this name.
  Setting Find(const std::string& name);

  // Text below the help.
  void Footer(const std::string& text);
  void RequireVerb();   // exactly one below this
  void AllowOneVerb();  // at most one

  // Whether the command line named this verb.
  bool chosen() const;

 private:
  CLI::App* app_ = nullptr;
};

class CommandLine {
 public:
  CommandLine(const std::string& program, const std::string& description,
              const std::string& version);
  ~CommandLine();

  Verb root() const;

  // Fills the variables. A value: the program ends with this exit status, help or version having been
  // printed, or, when it is not 0, with `error` saying in one line what is wrong.
  std::optional<int> Parse(int argc, char** argv, std::string* error);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace whet
