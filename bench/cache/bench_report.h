// Samples of one question, as a line of the table and an object of the JSON.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "src/base/clock.h"

namespace whet {

class Report {
 public:
  // `target_us` 0: none. Nanoseconds in, microseconds out.
  void Add(const std::string& question, std::vector<double> samples_ns, double target_us) {
    std::sort(samples_ns.begin(), samples_ns.end());
    const auto at = [&](double share) {
      return samples_ns[static_cast<size_t>(share * static_cast<double>(samples_ns.size() - 1))] /
             1000;
    };
    const bool met = target_us == 0 || at(0.5) <= target_us;
    printf("%-58s %12.3f %12.3f %12.3f", question.c_str(), at(0.5), at(0), at(0.95));
    if (target_us > 0) printf(" %10.2f %s", target_us, met ? "met" : "MISSED");
    printf("\n");
    fflush(stdout);
    json_.push_back({{"question", question},
                     {"median_us", at(0.5)},
                     {"min_us", at(0)},
                     {"p95_us", at(0.95)},
                     {"samples", samples_ns.size()},
                     {"target_us", target_us},
                     {"met", met}});
  }
  void AddFact(const std::string& question, const std::string& answer, bool met) {
    printf("%-58s %s %s\n", question.c_str(), answer.c_str(), met ? "met" : "MISSED");
    fflush(stdout);
    json_.push_back({{"question", question}, {"answer", answer}, {"met", met}});
  }
  // Something to know of the run that is no measurement.
  void AddNote(const std::string& question, const std::string& note) {
    printf("%-58s %s\n", question.c_str(), note.c_str());
    json_.push_back({{"question", question}, {"note", note}});
  }
  static void PrintHeader() {
    printf("%-58s %12s %12s %12s %10s\n", "microseconds", "median", "min", "p95", "target");
  }
  std::string Json() const {
    return json_.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

 private:
  nlohmann::json json_ = nlohmann::json::array();
};

// Nanoseconds of each of `count` calls of body(i).
template <typename Body>
std::vector<double> TimeEach(int count, Body&& body) {
  std::vector<double> samples;
  Clock* const clock = Clock::Real();
  for (int i = 0; i < count; ++i) {
    const int64_t start = clock->MonotonicNanoseconds();
    body(i);
    samples.push_back(static_cast<double>(clock->MonotonicNanoseconds() - start));
  }
  return samples;
}

}  // namespace whet
