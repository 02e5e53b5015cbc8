// A verb of the tool: it declares its options, and runs.
//
//   std::unique_ptr<Command> run = MakeRunCommand();
//   run->Declare(app);                       // whet run ...
//   if (run->chosen()) outcome = run->Run(session);
#pragma once

#include <memory>

#include "src/cli/console.h"
#include "src/cli/exit_code.h"
#include "src/cli/verb.h"
#include "src/runtime/options.h"

namespace whet {

// What every verb works with: settings from the environment and the command line, and the console.
struct Session {
  Options options;
  Console& console;
  Environment environment;
};

class Command {
 public:
  virtual ~Command() = default;
  // (required) Adds the verb to `app`, which lives longer than this.
  virtual void Declare(Verb app) = 0;
  // (required) Called once, after the command line was parsed and named this verb.
  virtual Outcome Run(Session& session) = 0;

  // Whether the command line named this verb.
  bool chosen() const { return verb_.chosen(); }

 protected:
  Verb verb_;  // set by Declare
};

std::unique_ptr<Command> MakeRunCommand();
std::unique_ptr<Command> MakeTuneCommand();
std::unique_ptr<Command> MakeCompileCommand();
std::unique_ptr<Command> MakeCheckCommand();
std::unique_ptr<Command> MakePackCommand();
std::unique_ptr<Command> MakeCacheCommand();
std::unique_ptr<Command> MakeDoctorCommand();
std::unique_ptr<Command> MakeTemplatesCommand();

}  // namespace whet
