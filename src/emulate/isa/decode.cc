#include "src/emulate/isa/decode.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace whet::isa {
namespace {

using absl::string_view;

uint32_t FloatBits(const std::string& text) {
  const float value = std::strtof(text.c_str(), nullptr);
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits;
}

// "7" or "7:9" of "s7" or "s[7:9]".
bool ParseRange(string_view text, int base, OperandKind kind, Operand* operand) {
  operand->kind = kind;
  if (absl::ConsumePrefix(&text, "[") && !absl::ConsumeSuffix(&text, "]")) return false;
  const std::vector<string_view> ends = absl::StrSplit(text, ':');
  int first = 0;
  int last = 0;
  if (!absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last) ||
      ends.size() > 2 || last < first || first < 0 || last > 255) {
    return false;
  }
  operand->index = static_cast<uint16_t>(base + first);
  operand->count = static_cast<uint8_t>(last - first + 1);
  return true;
}

bool ParseOperand(string_view text, Operand* operand) {
  if (absl::ConsumePrefix(&text, "sext(")) {
    operand->sign_extend = true;
    text.remove_suffix(1);
  }
  const bool number = text.size() > 1 && text[0] == '-' && text[1] >= '0' && text[1] <= '9';
  if (!number && absl::ConsumePrefix(&text, "-")) operand->negate = true;
  if (absl::ConsumePrefix(&text, "|")) {
    operand->absolute = true;
    text.remove_suffix(1);
  }
  struct Named {
    string_view name;
    int index;
    int count;
  };
  static constexpr Named kNamed[] = {{"vcc", kVcc, 2},
                                     {"vcc_lo", kVcc, 1},
                                     {"vcc_hi", kVcc + 1, 1},
                                     {"exec", kExec, 2},
                                     {"exec_lo", kExec, 1},
                                     {"exec_hi", kExec + 1, 1},
                                     {"m0", kM0, 1},
                                     {"flat_scratch", 102, 2},
                                     {"flat_scratch_lo", 102, 1},
                                     {"flat_scratch_hi", 103, 1},
                                     {"xnack_mask", 104, 2}};
  for (const Named& named : kNamed) {
    if (text != named.name) continue;
    operand->kind = OperandKind::kScalar;
    operand->index = static_cast<uint16_t>(named.index);
    operand->count = static_cast<uint8_t>(named.count);
    return true;
  }
  if (text == "off") {
    operand->kind = OperandKind::kOff;
    return true;
  }
  if (text.empty()) return false;
  const string_view rest = text.substr(1);
  const bool indexed = !rest.empty() && (rest[0] == '[' || (rest[0] >= '0' && rest[0] <= '9'));
  if (indexed && text[0] == 's') return ParseRange(rest, 0, OperandKind::kScalar, operand);
  if (indexed && text[0] == 'v') return ParseRange(rest, 0, OperandKind::kVector, operand);
  if (indexed && text[0] == 'a') {
    return ParseRange(rest, kAccumulators, OperandKind::kVector, operand);
  }
  operand->kind = OperandKind::kConstant;
  if (absl::StartsWith(text, "0x")) {
    operand->value = static_cast<uint32_t>(std::strtoul(std::string(text).c_str(), nullptr, 16));
    return true;
  }
  if (absl::StrContains(text, ".")) {
    operand->inline_float = true;
    operand->value = FloatBits(std::string(text));
    return true;
  }
  int value = 0;
  operand->inline_integer = true;
  const bool integer = absl::SimpleAtoi(text, &value);
  operand->value = static_cast<uint32_t>(value);
  return integer;
}

// "[0,1,1]": bit i is element i.
uint8_t Bits(string_view list) {
  uint8_t bits = 0;
  int i = 0;
  for (const char c : list) {
    if (c == '0' || c == '1') bits |= static_cast<uint8_t>((c - '0') << i++);
  }
  return bits;
}

bool ParsePart(string_view name, Part* part) {
  static constexpr std::pair<string_view, Part> kParts[] = {
      {"BYTE_0", Part::kByte0}, {"BYTE_1", Part::kByte1}, {"BYTE_2", Part::kByte2},
      {"BYTE_3", Part::kByte3}, {"WORD_0", Part::kWord0}, {"WORD_1", Part::kWord1},
      {"DWORD", Part::kAll}};
  for (const auto& [text, value] : kParts) {
    if (name != text) continue;
    *part = value;
    return true;
  }
  return false;
}

bool ParseModifier(string_view text, Decoded* d) {
  const std::pair<string_view, string_view> halves = absl::StrSplit(text, absl::MaxSplits(':', 1));
  const auto& [name, value] = halves;
  const auto integer = [&value = halves.second](int* to) {
    return absl::SimpleAtoi(value, to) ||
           (absl::StartsWith(value, "0x") &&
            std::sscanf(std::string(value).c_str(), "%x", reinterpret_cast<unsigned*>(to)) == 1);
  };
  if (name == "offset" && absl::StartsWith(value, "swizzle(")) {
    d->swizzle = std::string(value);
    return true;
  }
  if (name == "offset") return integer(&d->offset);
  if (name == "offset0") return integer(&d->offset0);
  if (name == "offset1") return integer(&d->offset1);
  if (name == "bitop3") return integer(&d->bitop);
  if (name == "cbsz") return integer(&d->format_a);
  if (name == "blgp") return integer(&d->format_b);
  if (name == "op_sel") return d->op_sel = Bits(value), true;
  if (name == "op_sel_hi") return d->op_sel_hi = Bits(value), true;
  if (name == "neg_lo") return d->neg_lo = Bits(value), true;
  if (name == "neg_hi") return d->neg_hi = Bits(value), true;
  if (name == "dst_sel") return ParsePart(value, &d->destination);
  if (name == "dst_unused") {
    d->preserve = value == "UNUSED_PRESERVE";
    return d->preserve || value == "UNUSED_PAD";
  }
  if (name == "src0_sel") return ParsePart(value, &d->operand[1].part);
  if (name == "src1_sel") return ParsePart(value, &d->operand[2].part);
  if (text == "clamp") return d->clamp = true;
  if (text == "offen") return d->offen = true;
  if (text == "lds") return d->lds = true;
  // Cache policies change nothing here.
  return text == "sc0" || text == "sc1" || text == "nt" || text == "glc" || text == "slc" ||
         text == "gds";
}

int Destinations(const Decoded& d) {
  const std::string& n = d.name;
  if (absl::StartsWith(n, "s_cmp") || absl::StartsWith(n, "s_bitcmp") ||
      absl::StartsWith(n, "global_store") || absl::StartsWith(n, "flat_store") ||
      absl::StartsWith(n, "scratch_store") || absl::StartsWith(n, "buffer_store") ||
      absl::StartsWith(n, "ds_write") || (absl::StartsWith(n, "global_atomic") && d.operands < 4) ||
      (absl::StartsWith(n, "buffer_load") && d.lds) || absl::StartsWith(n, "global_load_lds")) {
    return 0;
  }
  if (absl::StrContains(n, "_co_u32") || absl::StartsWith(n, "v_div_scale") ||
      absl::StartsWith(n, "v_mad_u64_u32") || absl::StartsWith(n, "v_mad_i64_i32") ||
      absl::StrContains(n, "_swap_b32")) {
    return 2;
  }
  return 1;
}

bool ReadsDestination(const Decoded& d) {
  return absl::StartsWith(d.name, "v_fmac") || absl::StartsWith(d.name, "v_smfmac") ||
         absl::StrContains(d.name, "_swap_b32") || absl::StartsWith(d.name, "s_addk") ||
         absl::StartsWith(d.name, "s_mulk") || absl::StartsWith(d.name, "s_cmovk") ||
         absl::StartsWith(d.name, "s_bitset") || absl::StartsWith(d.name, "v_cvt_pk_fp8") ||
         absl::StartsWith(d.name, "v_cvt_pk_bf8") ||
         absl::StartsWith(d.name, "v_cvt_scalef32_pk_fp8") || d.preserve;
}

void NoteRegisters(Decoded* d) {
  const int destinations = Destinations(*d);
  for (int i = 0; i < d->operands; ++i) {
    const Operand& o = d->operand[static_cast<size_t>(i)];
    const bool written = i < destinations;
    const bool read = !written || ReadsDestination(*d);
    const Registers registers = {o.index, o.count};
    if (o.kind == OperandKind::kScalar) {
      if (read) d->scalar_reads.push_back(registers);
      if (written) d->scalar_writes.push_back(registers);
    } else if (o.kind == OperandKind::kVector) {
      if (read) d->vector_reads.push_back(registers);
      if (written) d->vector_writes.push_back(registers);
    }
  }
  if (absl::StartsWith(d->name, "v_div_fmas")) d->scalar_reads.push_back({kVcc, 2});
}

Pipe PipeOf(const std::string& n) {
  if (absl::StartsWith(n, "v_mfma") || absl::StartsWith(n, "v_smfmac")) return Pipe::kMatrix;
  for (const char* name : {"v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_"}) {
    if (absl::StartsWith(n, name)) return Pipe::kTranscendental;
  }
  if (absl::StartsWith(n, "v_")) return Pipe::kVector;
  if (absl::StartsWith(n, "ds_")) return Pipe::kLds;
  for (const char* name : {"buffer_", "global_", "flat_", "scratch_"}) {
    if (absl::StartsWith(n, name)) return Pipe::kMemory;
  }
  return absl::StartsWith(n, "s_") ? Pipe::kScalar : Pipe::kOther;
}

}  // namespace

absl::StatusOr<Decoded> Decode(const Instruction& instruction) {
  Decoded d;
  d.address = instruction.address;
  d.text = absl::StrCat(instruction.operation, " ", instruction.arguments);
  d.name = instruction.operation;
  for (const char* suffix : {"_e32", "_e64", "_sdwa", "_vi"}) {
    if (absl::EndsWith(d.name, suffix)) d.name.resize(d.name.size() - std::string(suffix).size());
  }
  d.immediate = static_cast<int>(instruction.word & 0xffff);
  d.pipe = PipeOf(d.name);
  const auto unknown = [&](string_view what) {
    return absl::UnimplementedError(
        absl::StrCat("play ", d.text, ": \"", what, "\" is not understood"));
  };
  std::string arguments = instruction.arguments;
  // The disassembler's remark on operands that newer compilers do not choose.
  for (size_t at; (at = arguments.find("/*")) != std::string::npos;) {
    const size_t end = arguments.find("*/", at);
    if (end == std::string::npos) return unknown("/*");
    arguments.erase(at, end + 2 - at);
  }
  if (absl::StartsWith(d.name, "s_waitcnt") || absl::StartsWith(d.name, "s_cbranch") ||
      d.name == "s_branch" || arguments.empty()) {
    return d;
  }
  std::vector<string_view> pieces = absl::StrSplit(arguments, ", ");
  std::vector<string_view> last = absl::StrSplit(pieces.back(), ' ', absl::SkipEmpty());
  if (last.empty()) return unknown(arguments);
  pieces.back() = last.front();
  if (pieces.size() > d.operand.size()) return unknown(arguments);
  for (const string_view piece : pieces) {
    // "buffer_wbl2 sc1" has modifiers only.
    if (pieces.size() == 1 && ParseModifier(piece, &d)) break;
    if (!ParseOperand(piece, &d.operand[static_cast<size_t>(d.operands)])) return unknown(piece);
    ++d.operands;
  }
  for (size_t i = 1; i < last.size(); ++i) {
    if (!ParseModifier(last[i], &d)) return unknown(last[i]);
  }
  d.partial = d.destination != Part::kAll || (d.op_sel != 0 && absl::StartsWith(d.name, "v_cvt_"));
  NoteRegisters(&d);
  return d;
}

}  // namespace whet::isa
