// The parts of `whet pack` that handle packs that are there: keygen, sign, verify, show.
//
//   PackTools tools;
//   tools.Declare(*pack_verb);
//   if (tools.chosen()) return tools.Run(session);
#pragma once

#include <memory>
#include <string>

#include "src/cli/command.h"

namespace whet {

class PackTools {
 public:
  // Adds the verbs below `pack`, which lives longer than this.
  void Declare(Verb pack);
  // Whether the command line named one of them.
  bool chosen() const;
  Outcome Run(Session& session);

 private:
  Outcome MakeKeys(Session& session) const;
  Outcome Sign(Session& session) const;
  Outcome Verify(Session& session) const;
  Outcome Show(Session& session) const;

  Verb keygen_;
  Verb sign_;
  Verb verify_;
  Verb show_;
  std::string path_;  // of the pack, or of the key to make
  std::string key_;
};

}  // namespace whet
