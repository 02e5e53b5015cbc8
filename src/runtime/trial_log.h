// What a tuning run has found out so far, on disk as it comes: a run that was killed is taken up
// where it stopped, and a variant that hung or took the process with it is not run again.
//
//   TrialLog log({.directory = cache_directory, .tuning_key = key, ...});
//   request.known = log.known();
//   log.Launching(variant);  ... first launch ...  log.Launched(variant);
//   log.Out(evidence);                        // wrong, failed, dropped
//   log.Finish();                             // the winner's evidence holds the rest
//
// Two files of JSON lines, appended to with single writes: trials/<hash of key and toolchain>.jsonl,
// which lives as long as the run, and blocked.jsonl, which names what must not be run on a target with a
// toolchain, and why. A mark without an end is believed only when the process that made it is gone.
// Files that cannot be read or written are as good as none. Thread-safe between processes, not
// between threads.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "src/tune/tuner.h"

namespace whet {

struct TrialLogOptions {
  std::string directory;   // empty: nothing is kept
  std::string tuning_key;  // record
  std::string target;
  std::string toolchain;  // name, version and build
  std::string operation;  // template name and digest of its variants
};

class TrialLog {
 public:
  explicit TrialLog(TrialLogOptions options);
  ~TrialLog();
  TrialLog(const TrialLog&) = delete;
  TrialLog& operator=(const TrialLog&) = delete;

  // Out already: by the run that was killed, or on the block list.
  const std::vector<VariantEvidence>& known() const { return known_; }

  void Launching(const Variant& variant);
  void Launched(const Variant& variant);
  void Out(const VariantEvidence& evidence);
  void Finish();

 private:
  bool IsKnown(const Variant& variant) const;
  void ReadBlocked();
  void ReadTrials();
  void Block(const VariantEvidence& evidence);
  void Append(int fd, const std::string& line) const;
  int Open(const std::string& path) const;

  const TrialLogOptions options_;
  std::string trials_path_, blocked_path_;
  std::string myself_;  // host, process and when it was started
  int trials_fd_ = -1;
  std::vector<VariantEvidence> known_;
};

}  // namespace whet
