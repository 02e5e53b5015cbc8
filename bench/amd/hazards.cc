#include "bench/amd/hazards.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/emulate/isa/wait_states.h"

namespace whet::amd {
namespace {

constexpr int kVcc = 106, kM0 = 124, kExec = 126;

bool Begins(const std::string& text, absl::string_view begin) {
  return absl::StartsWith(text, begin);
}
bool IsMatrix(const Instruction& x) {
  return Begins(x.operation, "v_mfma") || Begins(x.operation, "v_smfmac");
}
bool IsVector(const Instruction& x) { return Begins(x.operation, "v_") && !IsMatrix(x); }
bool IsLds(const Instruction& x) { return Begins(x.operation, "ds_"); }
bool IsMemory(const Instruction& x) {
  return Begins(x.operation, "buffer_") || Begins(x.operation, "global_") ||
         Begins(x.operation, "flat_") || Begins(x.operation, "scratch_");
}
bool IsToLds(const Instruction& x) {
  return IsMemory(x) &&
         (absl::EndsWith(x.arguments, " lds") || absl::StrContains(x.arguments, " lds ") ||
          absl::StrContains(x.operation, "_lds_"));
}
bool IsTranscendental(const Instruction& x) {
  for (const char* name : {"v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_"}) {
    if (Begins(x.operation, name)) return true;
  }
  return false;
}
// Writes a part of its destination register.
bool WritesPart(const Instruction& x) {
  return absl::StrContains(x.arguments, "dst_sel:BYTE") ||
         absl::StrContains(x.arguments, "dst_sel:WORD") || Begins(x.operation, "v_cvt_pk_fp8") ||
         Begins(x.operation, "v_cvt_pk_bf8") || Begins(x.operation, "v_cvt_scalef32_pk_fp8") ||
         Begins(x.operation, "v_cvt_sr_");
}
// One of those whose result a neighbour does not get: all with a choice of bytes, conversions into the upper half.
bool IsNotForwarded(const Instruction& x) {
  if (!WritesPart(x)) return false;
  const size_t selection = x.arguments.find("op_sel:[");
  return absl::StrContains(x.arguments, "dst_sel:") ||
         (selection != std::string::npos &&
          absl::StrContains(
              x.arguments.substr(selection, x.arguments.find(']', selection) - selection + 1),
              "1]"));
}
bool IsExchange(const Instruction& x) { return absl::StrContains(x.operation, "permlane"); }
bool IsReadLane(const Instruction& x) {
  return Begins(x.operation, "v_readlane") || Begins(x.operation, "v_readfirstlane");
}
bool IsDpp(const Instruction& x) {
  return absl::StrContains(x.arguments, "row_") || absl::StrContains(x.arguments, "quad_perm") ||
         absl::StrContains(x.operation, "_dpp");
}

void AddRange(std::vector<Register>& to, char bank, int first, int last) {
  for (int i = first; i <= last; ++i) to.push_back({bank, i});
}

// Of one argument: "v[0:3]", "-v7", "|s4|", "vcc", "s[0:1]", "v3 dst_sel:BYTE_0". Constants have none.
void AddRegisters(absl::string_view argument, std::vector<Register>& to) {
  while (!argument.empty() && (argument[0] == ' ' || argument[0] == '-' || argument[0] == '|')) {
    argument.remove_prefix(1);
  }
  for (const auto& [name, number] : {std::pair("vcc", kVcc), std::pair("exec", kExec)}) {
    if (absl::StartsWith(argument, name)) {
      AddRange(to, 's', number, number + 1);
      return;
    }
  }
  if (absl::StartsWith(argument, "m0")) to.push_back({'s', kM0});
  if (argument.size() < 2) return;
  const char bank = argument[0];
  if (bank != 'v' && bank != 's' && bank != 'a') return;
  int first = 0;
  int last = 0;
  const std::string text(argument.substr(1, 16));
  if (std::sscanf(text.c_str(), "[%d:%d]", &first, &last) == 2) {
    AddRange(to, bank, first, last);
  } else if (text[0] >= '0' && text[0] <= '9' && std::sscanf(text.c_str(), "%d", &first) == 1) {
    to.push_back({bank, first});
  }
}

bool Touches(const std::vector<Register>& a, const std::vector<Register>& b) {
  for (const Register& x : a) {
    if (std::find(b.begin(), b.end(), x) != b.end()) return true;
  }
  return false;
}
std::vector<Register> OfBanks(const std::vector<Register>& registers, absl::string_view banks) {
  std::vector<Register> some;
  for (const Register& r : registers) {
    if (banks.find(r.bank) != absl::string_view::npos) some.push_back(r);
  }
  return some;
}

int NopStates(const Instruction& x) {
  int count = 0;
  if (x.operation != "s_nop" || !absl::SimpleAtoi(x.arguments, &count)) return 1;
  return count + 1;
}

isa::Chip ChipOf(absl::string_view architecture) {
  return architecture == "gfx950"   ? isa::Chip::kGfx950
         : architecture == "gfx942" ? isa::Chip::kGfx942
                                    : isa::Chip::kGfx90a;
}

// The third operand of a matrix instruction.
std::vector<Register> Third(const Instruction& x) {
  const std::vector<std::string> arguments = absl::StrSplit(x.arguments, ", ");
  std::vector<Register> registers;
  if (Begins(x.operation, "v_smfmac")) {
    AddRegisters(arguments[0], registers);
  } else if (arguments.size() > 3) {
    AddRegisters(arguments[3], registers);
  }
  return registers;
}

// The first two operands of a matrix instruction.
std::vector<Register> Factors(const Instruction& x) {
  const std::vector<std::string> arguments = absl::StrSplit(x.arguments, ", ");
  std::vector<Register> registers;
  for (size_t i = 1; i < 3 && i < arguments.size(); ++i) AddRegisters(arguments[i], registers);
  return registers;
}

// Calls visit(index, count) along every path behind `from` until it returns false; it keeps the count, of wait states or of operations,
// which starts at 0 and is bounded.
template <class Visit>
void Walk(const std::vector<BasicBlock>& blocks, const std::vector<size_t>& block_of, size_t from,
          const Visit& visit) {
  struct Place {
    size_t block;
    size_t at;
    int count;
  };
  std::set<std::pair<size_t, int>> seen;  // heads of blocks
  std::vector<Place> open = {{block_of[from], from + 1, 0}};
  while (!open.empty()) {
    Place place = open.back();
    open.pop_back();
    bool goes_on = true;
    for (; goes_on && place.at < blocks[place.block].end; ++place.at) {
      goes_on = visit(place.at, place.count);
    }
    if (!goes_on) continue;
    for (const size_t next : blocks[place.block].successors) {
      if (seen.emplace(next, place.count).second)
        open.push_back({next, blocks[next].begin, place.count});
    }
  }
}

struct Rule {
  const char* what;
  int states;
  std::vector<Register> registers;
  bool (*applies)(const Instruction& consumer);
  bool reads;
  bool writes;
  // Of a matrix instruction, and no other reads.
  enum class Operands : uint8_t { kNone, kFactors, kOtherThird } operands = Operands::kNone;
};

// What must lie between `x` and those that follow it.
std::vector<Rule> RulesOf(const Instruction& x, const RegisterUse& use,
                          absl::string_view architecture) {
  const bool gfx90a = architecture == "gfx90a";
  std::vector<Rule> rules;
  const auto no_matrix = [](const Instruction& c) { return !IsMatrix(c); };
  const auto vector = [](const Instruction& c) { return IsVector(c); };
  if (IsMatrix(x)) {
    const isa::Chip chip = ChipOf(architecture);
    const int passes = isa::MatrixPasses(x.operation, chip);
    const int states = isa::StatesToResult(passes, chip);
    rules.push_back({"a matrix instruction's result", states, use.writes, no_matrix, true, true});
    rules.push_back({"a matrix instruction's result as a factor", states, use.writes, IsMatrix,
                     false, false, Rule::Operands::kFactors});
    rules.push_back({"a part of a matrix instruction's result as the third operand",
                     isa::StatesToAddend(passes, false, chip), use.writes, IsMatrix, false, false,
                     Rule::Operands::kOtherThird});
    std::vector<Register> third = Third(x);
    if (!third.empty() && third != use.writes) {
      rules.push_back({"a matrix instruction's third operand overwritten",
                       isa::StatesToOverwriteAddend(passes), third, vector, false, true});
    }
  }
  if (!IsVector(x)) {
    if (x.operation == "s_mov_b32" && Begins(x.arguments, "m0")) {
      rules.push_back({"M0 for a load to LDS", isa::kM0ToLoad, {{'s', kM0}}, IsToLds, true, false});
    }
    return rules;
  }
  const std::vector<Register> vectors = OfBanks(use.writes, "va");
  const std::vector<Register> scalars = OfBanks(use.writes, "s");
  if (!scalars.empty()) {
    rules.push_back({"a scalar register from a vector instruction, for memory",
                     isa::kScalarToMemory, scalars, IsMemory, true, false});
    rules.push_back({"VCC for v_div_fmas", isa::kVccToDivFmas, scalars,
                     [](const Instruction& c) { return Begins(c.operation, "v_div_fmas"); }, true,
                     false});
    if (!gfx90a) {
      rules.push_back({"a scalar register from a vector instruction, for another",
                       isa::kScalarToVector, scalars,
                       [](const Instruction& c) { return IsVector(c) && !IsReadLane(c); }, true,
                       false});
    }
  }
  if (vectors.empty()) return rules;
  rules.push_back({"DPP", isa::kVectorToDpp, vectors, IsDpp, true, false});
  rules.push_back({"a vector instruction's result for a matrix instruction", isa::kVectorToMatrix,
                   vectors, IsMatrix, true, false});
  if (gfx90a) return rules;
  rules.push_back({"a lane read", isa::kVectorToReadLane, vectors, IsReadLane, true, false});
  rules.push_back({"a lane exchange", isa::kVectorToExchange, vectors, IsExchange, true, false});
  if (IsTranscendental(x)) {
    rules.push_back({"a transcendental result", isa::kTranscendentalToVector, vectors,
                     [](const Instruction& c) { return IsVector(c) && !IsTranscendental(c); }, true,
                     false});
  }
  if (IsNotForwarded(x)) {
    rules.push_back(
        {"a partly written register", isa::kPartToVector, vectors, vector, true, false});
  }
  return rules;
}

}  // namespace

RegisterUse RegistersOf(const Instruction& x) {
  RegisterUse use;
  if (x.arguments.empty()) return use;
  // "v0, v1, s[0:3], 0 offen lds", "v4, v5 dst_sel:BYTE_0", "v[0:1], v[2:3], off offset:16"
  const std::vector<std::string> arguments = absl::StrSplit(x.arguments, ", ");
  const std::string& op = x.operation;
  size_t written = 1;  // arguments from the first
  bool also_read =
      WritesPart(x) || Begins(op, "v_fmac") || Begins(op, "v_smfmac") || Begins(op, "v_dot2c");
  if (Begins(op, "s_")) {
    for (const char* name : {"s_cmp", "s_bitcmp", "s_cbranch", "s_branch", "s_wait", "s_nop",
                             "s_barrier", "s_setprio", "s_sleep", "s_endpgm", "s_setvskip"}) {
      if (Begins(op, name)) written = 0;
    }
    if (op == "s_cmovk_i32" || Begins(op, "s_cmov") || op == "s_addk_i32" || op == "s_mulk_i32")
      also_read = true;
    if (absl::StrContains(op, "saveexec")) AddRange(use.writes, 's', kExec, kExec + 1);
  } else if (IsLds(x)) {
    if (Begins(op, "ds_write") || Begins(op, "ds_add_u32")) written = 0;
  } else if (IsMemory(x)) {
    if (absl::StrContains(op, "_store") || absl::StrContains(op, "_atomic") || IsToLds(x))
      written = 0;
    if (IsToLds(x)) use.reads.push_back({'s', kM0});
  } else {
    if (IsExchange(x) || Begins(op, "v_swap")) written = 2, also_read = true;
    for (const char* name : {"v_add_co", "v_addc_co", "v_sub_co", "v_subb_co", "v_subrev_co",
                             "v_subbrev_co", "v_mad_u64_u32", "v_mad_i64_i32", "v_div_scale"}) {
      if (Begins(op, name)) written = 2;
    }
    if (Begins(op, "v_div_fmas")) AddRange(use.reads, 's', kVcc, kVcc + 1);
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (i < written) AddRegisters(arguments[i], use.writes);
    if (i >= written || also_read) AddRegisters(arguments[i], use.reads);
  }
  return use;
}

std::vector<Hazard> FindHazards(const std::vector<Instruction>& code,
                                absl::string_view architecture) {
  std::vector<Hazard> hazards;
  if (code.empty() ||
      (architecture != "gfx90a" && architecture != "gfx942" && architecture != "gfx950")) {
    return hazards;
  }
  const std::vector<BasicBlock> blocks = BasicBlocks(code);
  std::vector<size_t> block_of(code.size());
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (size_t i = blocks[b].begin; i < blocks[b].end; ++i) block_of[i] = b;
  }
  std::vector<RegisterUse> use;
  use.reserve(code.size());
  for (const Instruction& x : code) use.push_back(RegistersOf(x));
  std::set<std::pair<size_t, size_t>> known;
  const auto report = [&](size_t producer, size_t consumer, const std::string& what) {
    if (!known.emplace(producer, consumer).second) return;
    hazards.push_back(
        {producer, consumer,
         absl::StrCat(what, ": ", code[producer].operation, " ", code[producer].arguments, " [",
                      producer, "] and ", code[consumer].operation, " ", code[consumer].arguments,
                      " [", consumer, "]")});
  };
  for (size_t i = 0; i < code.size(); ++i) {
    for (const Rule& rule : RulesOf(code[i], use[i], architecture)) {
      Walk(blocks, block_of, i, [&](size_t at, int& states) {
        if (states >= rule.states) return false;
        if (rule.applies(code[at]) &&
            ((rule.reads && Touches(rule.registers, use[at].reads)) ||
             (rule.writes && Touches(rule.registers, use[at].writes)) ||
             (rule.operands == Rule::Operands::kFactors &&
              Touches(rule.registers, Factors(code[at]))) ||
             (rule.operands == Rule::Operands::kOtherThird && Third(code[at]) != rule.registers &&
              Touches(rule.registers, Third(code[at]))))) {
          report(i, at,
                 absl::StrCat(rule.what, " after ", states, " of ", rule.states, " wait states"));
          return false;
        }
        states += NopStates(code[at]);
        return true;
      });
    }
    // Loads. Later operations of the same counter come back after it; scalar loads come back in any order.
    const bool memory = IsMemory(code[i]) && !IsToLds(code[i]);
    const bool scalar =
        Begins(code[i].operation, "s_load") || Begins(code[i].operation, "s_buffer_load");
    if ((!memory && !scalar && !IsLds(code[i])) || use[i].writes.empty()) continue;
    const char* const counter = memory ? "vmcnt(" : "lgkmcnt(";
    Walk(blocks, block_of, i, [&](size_t at, int& later) {
      if (code[at].operation == "s_waitcnt") {
        const size_t found = code[at].arguments.find(counter);
        int most = 0;
        if (found != std::string::npos &&
            std::sscanf(code[at].arguments.c_str() + found + std::string(counter).size(), "%d",
                        &most) == 1 &&
            most <= later) {
          return false;
        }
        return true;
      }
      // A later load of the same kind writes after it.
      const bool same = !scalar && (memory ? IsMemory(code[at]) : IsLds(code[at]));
      if (Touches(use[i].writes, use[at].reads) ||
          (!same && Touches(use[i].writes, use[at].writes))) {
        report(i, at, "a register that a load has yet to write");
        return false;
      }
      if (same && later < 63) ++later;
      return true;
    });
  }
  return hazards;
}

}  // namespace whet::amd
