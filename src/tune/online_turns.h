// A second look at who was close: each alone for as long as the clock needs to follow, on live calls.
//
//   OnlineTurns turns(/*best=*/0, /*challengers=*/{4, 2}, {.calls = 130, .wait_calls = 200});
//   while (!turns.over()) {
//     if (turns.next() >= 0) Affordable(turns.next()) ? turns.Begin() : turns.Skip();
//     Launch(turns.turn()), and when its time is known: turns.Record(candidate, ns);
//   }
//   turns.best()
//
// Where the clock follows power, variants that take a few calls by turns run at one common clock, and
// several percent between them change sides when each runs alone. Only the last part of a turn counts. It is held
// against the last part of the best's turn before; a device that still warms up makes whoever comes
// later look slow, so this errs on the side of what runs.
//
// Not thread-safe. Times come in the order of the calls, late, or some of them never.
#pragma once

#include <vector>

namespace whet {

struct OnlineTurnRules {
  int calls = 130;       // of a challenger's turn, and of the best's that counts
  int wait_calls = 0;    // of the best before that, until the clock is its own
  double counts = 0.4;   // of a turn, its last part
  double better = 0.01;  // faster than this runs from then on
  // Behind by so much in the middle of its turn: the turn ends.
  double give_up = 0.03;
};

class OnlineTurns {
 public:
  OnlineTurns(int best, std::vector<int> challengers, const OnlineTurnRules& rules);

  // Whose call is next.
  int turn() const { return turn_; }
  // The challenger that waits for Begin or Skip; -1: none.
  int next() const { return next_; }
  void Begin();
  void Skip() { Continue(); }
  bool over() const { return over_; }
  int best() const { return best_; }
  // Nanoseconds of the best in its last turn that ended; 0: not yet.
  double best_ns() const { return best_ns_; }

  // True when another one is the best from now on; `gain`: the one before it over it.
  bool Record(int candidate, double ns, double* gain);
  // It failed, and does not run any more.
  void Drop(int candidate);

 private:
  void Continue();

  const OnlineTurnRules rules_;
  std::vector<int> challengers_;  // that have not had their turn
  int best_, turn_;
  int next_ = -1;
  bool over_ = false;
  double best_ns_ = 0;
  std::vector<double> ns_;  // of this turn
};

}  // namespace whet
