// Which variants to try, and in which order, when there are too many to try them all.
//
//   VariantSearch search(variants, {.seed = 1, .most = 96});
//   for (std::vector<size_t> next = search.Next(8); !next.empty(); next = search.Next(8)) {
//     for (size_t i : next) search.Report(i, TimeOf(variants[i]));
//   }
//
// Spaces of up to `exhaustive` variants are tried whole, in the given order of preference. Of a
// larger one at most `most` are: first the head of the list (each kernel's default and what the
// template's cost expression likes), then by turns neighbours of the best so far (one parameter
// changed) and seeded random ones, so that neither a good region nor a far one is missed. The same
// seed and the same times give the same search. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "src/model/variant.h"

namespace whet {

struct SearchOptions {
  uint64_t seed = 1;
  size_t exhaustive = 96;
  size_t most = 96;
  size_t head = 16;  // of the list, before anything else
};

class VariantSearch {
 public:
  // `first` are tried before all others (the incumbent, say). The list must outlive the search.
  VariantSearch(const std::vector<Variant>& variants, const SearchOptions& options,
                const std::vector<size_t>& first);

  // Up to `count` more, none twice; empty when the search is over.
  std::vector<size_t> Next(size_t count);
  // Nanoseconds; infinity for one that failed.
  void Report(size_t variant, double ns);
  // How many will be tried in all.
  size_t planned() const { return planned_; }

 private:
  bool Take(size_t i, std::vector<size_t>& into);
  // A variant not taken yet that differs in one parameter from one of the best; size() for none.
  size_t Neighbour() const;

  const std::vector<Variant>& variants_;
  const SearchOptions options_;
  std::mt19937_64 random_;
  size_t planned_ = 0;
  size_t taken_count_ = 0;
  std::vector<bool> taken_;
  std::vector<size_t> order_;  // of the head and, for small spaces, of everything
  std::vector<size_t> shuffled_;
  size_t shuffled_at_ = 0;
  std::vector<double> ns_;  // 0: not reported
};

}  // namespace whet
