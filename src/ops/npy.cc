#include "src/ops/npy.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/base/files.h"
#include "src/ops/tensor_bytes.h"

namespace whet {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);
// NumPy's own headers have about a hundred bytes; a longer one is no tensor of ours.
constexpr int64_t kMaxHeaderBytes = 64 << 10;
constexpr size_t kMaxDimensions = 32;

struct Header {
  std::string descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
};

// Reads the header's text, a Python dictionary of three known keys; no other Python is understood.
class HeaderParser {
 public:
  explicit HeaderParser(absl::string_view text) : text_(text) {}

  // Empty on success, otherwise what is wrong and where.
  std::string Parse(Header* header) {
    if (!Take('{')) return Problem("a dictionary must begin");
    while (!Take('}')) {
      std::string key;
      if (!TakeString(&key)) return Problem("a key in quotes must stand");
      if (!Take(':')) return Problem("':' must stand");
      if (key == "descr") {
        if (!header->descr.empty()) return Problem("'descr' stands twice before");
        if (!TakeString(&header->descr)) return Problem("a plain dtype in quotes must stand");
      } else if (key == "fortran_order") {
        if (header->fortran_order.has_value())
          return Problem("'fortran_order' stands twice before");
        if (TakeWord("False")) {
          header->fortran_order = false;
        } else if (TakeWord("True")) {
          header->fortran_order = true;
        } else {
          return Problem("True or False must stand");
        }
      } else if (key == "shape") {
        if (header->shape.has_value()) return Problem("'shape' stands twice before");
        header->shape.emplace();
        if (!TakeShape(&*header->shape)) {
          return Problem("a tuple of at most 32 extents of at most 63 bits must stand");
        }
      } else {
        return Problem(absl::StrCat("'", absl::CHexEscape(key.substr(0, 40)),
                                    "' is not a key of this format, before"));
      }
      if (!Take(',')) {
        if (!Take('}')) return Problem("',' or '}' must stand");
        break;
      }
    }
    SkipSpace();
    if (at_ != text_.size()) return Problem("nothing more may stand");
    if (header->descr.empty()) return "its header has no 'descr'";
    if (!header->fortran_order.has_value()) return "its header has no 'fortran_order'";
    if (!header->shape.has_value()) return "its header has no 'shape'";
    return "";
  }

 private:
  void SkipSpace() {
    while (at_ < text_.size() && absl::ascii_isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool Take(char c) {
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool TakeWord(absl::string_view word) {
    SkipSpace();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  bool TakeString(std::string* value) {
    SkipSpace();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return false;
    const size_t end = text_.find(text_[at_], at_ + 1);
    if (end == absl::string_view::npos) return false;
    *value = std::string(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value->find('\\') == std::string::npos;
  }
  bool TakeShape(std::vector<int64_t>* shape) {
    if (!Take('(')) return false;
    while (!Take(')')) {
      int64_t extent = 0;
      if (shape->size() == kMaxDimensions || !TakeInteger(&extent)) return false;
      shape->push_back(extent);
      // "(4)" is a number in Python, not a tuple, but NumPy never writes it and means the same.
      if (!Take(',')) return Take(')');
    }
    return true;
  }
  bool TakeInteger(int64_t* value) {
    SkipSpace();
    const size_t begin = at_;
    *value = 0;
    while (at_ < text_.size() && absl::ascii_isdigit(static_cast<unsigned char>(text_[at_]))) {
      if (__builtin_mul_overflow(*value, int64_t{10}, value) ||
          __builtin_add_overflow(*value, int64_t{text_[at_] - '0'}, value)) {
        return false;
      }
      ++at_;
    }
    return at_ > begin;
  }
  std::string Problem(absl::string_view expected) const {
    return absl::StrCat("its header is not as NumPy writes it: ", expected, " at byte ", at_,
                        " of the header");
  }

  absl::string_view text_;
  size_t at_ = 0;
};

struct Stored {
  DType dtype;
  StoredElement stored = StoredElement::kSame;
  int64_t bytes = 0;
};

std::optional<Stored> FindStored(const std::string& descr, const NpyOptions& options) {
  // '=' is this machine's order, and bytes have none.
  std::string type = descr;
  if (!type.empty() && (type[0] == '<' || type[0] == '=' || type[0] == '|')) type.erase(0, 1);
  if (type == "f4") return Stored{DType::kF32, StoredElement::kSame, 4};
  if (type == "f2") return Stored{DType::kF16, StoredElement::kSame, 2};
  if (type == "f8") return Stored{DType::kF32, StoredElement::kF64, 8};
  if (type == "i1") return Stored{DType::kI8, StoredElement::kSame, 1};
  if (type == "u1") return Stored{DType::kU8, StoredElement::kSame, 1};
  if (type == "i4") return Stored{DType::kI32, StoredElement::kSame, 4};
  if (type == "i8") return Stored{DType::kI64, StoredElement::kSame, 8};
  if (type == "V2") return Stored{DType::kBF16, StoredElement::kSame, 2};
  if (type == "u2" && options.u2_is_bf16) return Stored{DType::kBF16, StoredElement::kSame, 2};
  return std::nullopt;
}

std::string DTypeAdvice(const std::string& descr) {
  if (descr == "<u2") return "if these are the bits of bf16 values, say --npy-bf16";
  if (!descr.empty() && descr[0] == '>') {
    return "it is big-endian: save it with .astype(a.dtype.newbyteorder('<'))";
  }
  return "save it as '<f4', '<f2', '<f8', '|i1', '<i4', '<i8' or, for bf16, '|V2'";
}

absl::StatusOr<HostTensor> ReadBody(const InputFile& file, const NpyOptions& options,
                                    absl::string_view text, int64_t data_begin) {
  const std::string& path = file.path();
  Header header;
  const std::string problem = HeaderParser(text).Parse(&header);
  if (!problem.empty()) return BadTensorFile(path, problem, "write it anew with numpy.save");
  const std::optional<Stored> stored = FindStored(header.descr, options);
  if (!stored.has_value()) {
    return BadTensorFile(path,
                         absl::StrCat("its dtype '", absl::CHexEscape(header.descr.substr(0, 40)),
                                      "' is not supported"),
                         DTypeAdvice(header.descr));
  }
  const int64_t bytes = ShapeBytes(*header.shape, stored->bytes);
  int64_t bulky = 0;
  for (const int64_t extent : *header.shape) bulky += extent > 1 ? 1 : 0;
  // With one extent above 1, or with nothing in it, both orders are the same bytes.
  if (*header.fortran_order && bulky > 1 && bytes != 0) {
    return BadTensorFile(path, "it is in Fortran order", "save numpy.ascontiguousarray(a)");
  }
  const int64_t available = file.size() - data_begin;
  if (bytes != available) {
    return BadTensorFile(
        path,
        absl::StrCat(
            "its header says shape ", ShapeText(*header.shape), " of '", header.descr,
            "', which is ",
            bytes < 0 ? std::string("more than 63 bits can count") : absl::StrCat(bytes, " bytes"),
            ", but ", available, " bytes follow from byte ", data_begin, " on"),
        "it is cut off or damaged: write it anew");
  }
  return ReadElements(file, {.begin = data_begin,
                             .dtype = stored->dtype,
                             .stored = stored->stored,
                             .shape = *header.shape});
}

// The dtype that a tensor is written in, and its name there.
std::pair<DType, absl::string_view> WrittenType(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {DType::kF16, "<f2"};
    case DType::kI8:
      return {DType::kI8, "|i1"};
    case DType::kU8:
      return {DType::kU8, "|u1"};
    case DType::kI32:
      return {DType::kI32, "<i4"};
    case DType::kI64:
      return {DType::kI64, "<i8"};
    default:
      return {DType::kF32, "<f4"};
  }
}

}  // namespace

absl::StatusOr<HostTensor> ReadNpy(const std::string& path, const NpyOptions& options) {
  absl::StatusOr<InputFile> file = InputFile::Open(path);
  if (!file.ok()) return file.status();
  unsigned char fixed[12] = {};
  const int64_t fixed_bytes = std::min<int64_t>(file->size(), 12);
  absl::Status read = file->Read(0, fixed_bytes, fixed);
  if (!read.ok()) return read;
  if (fixed_bytes < 10 || std::memcmp(fixed, kMagic.data(), kMagic.size()) != 0) {
    return BadTensorFile(path, "it does not begin as an .npy file does",
                         "write it with numpy.save");
  }
  const int version = fixed[6];
  if (version < 1 || version > 3 || (version > 1 && fixed_bytes < 12)) {
    return BadTensorFile(path, absl::StrCat("version ", version, " of the format is not known"),
                         "write it as version 1, 2 or 3");
  }
  int64_t header_begin = 10;
  int64_t header_bytes = fixed[8] | fixed[9] << 8;
  if (version > 1) {
    header_begin = 12;
    header_bytes |= int64_t{fixed[10]} << 16 | int64_t{fixed[11]} << 24;
  }
  if (header_bytes > file->size() - header_begin) {
    return BadTensorFile(path,
                         absl::StrCat("its header should have ", header_bytes, " bytes, but only ",
                                      file->size() - header_begin, " follow byte ", header_begin),
                         "it is cut off or damaged: write it anew");
  }
  if (header_bytes > kMaxHeaderBytes) {
    return BadTensorFile(path,
                         absl::StrCat("its header has ", header_bytes, " bytes, more than ",
                                      kMaxHeaderBytes, " are accepted"),
                         "write it with numpy.save");
  }
  std::string text(static_cast<size_t>(header_bytes), '\0');
  read = file->Read(header_begin, header_bytes, text.data());
  if (!read.ok()) return read;
  return ReadBody(*file, options, text, header_begin + header_bytes);
}

absl::Status WriteNpy(const std::string& path, const HostTensor& tensor) {
  const auto [dtype, descr] = WrittenType(tensor.dtype());
  absl::StatusOr<HostTensor> contiguous = tensor;
  if (dtype != tensor.dtype() || tensor.strides() != ContiguousStrides(tensor.shape())) {
    contiguous = tensor.ConvertedTo(dtype);
    if (!contiguous.ok()) return contiguous.status();
  }
  const std::string tuple = absl::StrCat("(", absl::StrJoin(tensor.shape(), ", "),
                                         tensor.shape().size() == 1 ? ",)" : ")");
  std::string header =
      absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': ", tuple, ", }");
  // The data begins at a multiple of 64, so that it can be mapped.
  header.append((64 - (kMagic.size() + 4 + header.size() + 1) % 64) % 64, ' ');
  header.push_back('\n');
  std::string bytes(kMagic);
  bytes.append({'\x01', '\x00', static_cast<char>(header.size() & 0xFF),
                static_cast<char>(header.size() >> 8)});
  bytes.append(header);
  bytes.append(reinterpret_cast<const char*>(contiguous->data()),
               static_cast<size_t>(contiguous->span_bytes()));
  const absl::Status written = WriteFileAtomically(path, bytes);
  // Its message may name the temporary file.
  return written.ok() ? written
                      : absl::Status(written.code(),
                                     absl::StrCat("cannot write ", path, ": ", written.message()));
}

}  // namespace whet
