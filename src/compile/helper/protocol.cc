#include "src/compile/helper/protocol.h"

#include <cstring>

namespace whet {
namespace {

constexpr char kMagic[8] = {'W', 'H', 'E', 'T', 'H', 'P', '0', '1'};

uint64_t Checksum(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

void AppendNumber(uint64_t value, std::string* out) {
  for (int shift = 0; shift < 64; shift += 8) out->push_back(static_cast<char>(value >> shift));
}

class Writer {
 public:
  void Number(uint64_t value) { AppendNumber(value, &payload_); }
  void Text(std::string_view text) {
    Number(text.size());
    payload_.append(text);
  }
  void Texts(const std::vector<std::string>& texts) {
    Number(texts.size());
    for (const std::string& text : texts) Text(text);
  }
  std::string Frame() const {
    std::string frame(kMagic, sizeof kMagic);
    AppendNumber(payload_.size(), &frame);
    frame.append(payload_);
    AppendNumber(Checksum(payload_), &frame);
    return frame;
  }

 private:
  std::string payload_;
};

// After the first value that does not fit, every read gives an empty value and ok() is false.
class Reader {
 public:
  explicit Reader(std::string_view frame) : rest_(frame) {
    constexpr size_t kOverhead = sizeof kMagic + 16;
    ok_ = frame.size() >= kOverhead && std::memcmp(frame.data(), kMagic, sizeof kMagic) == 0;
    if (!ok_) return;
    rest_.remove_prefix(sizeof kMagic);
    const uint64_t size = Number();
    ok_ = size == rest_.size() - 8;
    if (!ok_) return;
    const std::string_view payload = rest_.substr(0, size);
    rest_.remove_prefix(size);
    ok_ = Number() == Checksum(payload);
    rest_ = payload;
  }

  uint64_t Number() {
    if (!ok_ || rest_.size() < 8) {
      ok_ = false;
      return 0;
    }
    uint64_t value = 0;
    for (int i = 7; i >= 0; --i)
      value = value << 8 | static_cast<uint8_t>(rest_[static_cast<size_t>(i)]);
    rest_.remove_prefix(8);
    return value;
  }

  std::string Text() {
    const uint64_t size = Number();
    if (!ok_ || size > rest_.size()) {
      ok_ = false;
      return "";
    }
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }

  std::vector<std::string> Texts() {
    std::vector<std::string> texts;
    for (uint64_t left = Number(); ok_ && left > 0; --left) texts.push_back(Text());
    return texts;
  }

  bool AtEnd() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = false;
};

}  // namespace

std::string EncodeRequest(const HelperRequest& request) {
  Writer writer;
  writer.Number(static_cast<uint64_t>(request.action));
  writer.Text(request.api);
  writer.Texts(request.libraries);
  writer.Text(request.source);
  writer.Text(request.source_name);
  writer.Texts(request.options);
  writer.Text(request.output);
  return writer.Frame();
}

std::optional<HelperRequest> DecodeRequest(std::string_view frame) {
  Reader reader(frame);
  HelperRequest request;
  const uint64_t action = reader.Number();
  request.action = static_cast<HelperAction>(action);
  request.api = reader.Text();
  request.libraries = reader.Texts();
  request.source = reader.Text();
  request.source_name = reader.Text();
  request.options = reader.Texts();
  request.output = reader.Text();
  if (!reader.AtEnd() || action < 1 || action > 2) return std::nullopt;
  return request;
}

std::string EncodeReply(const HelperReply& reply) {
  Writer writer;
  writer.Number(static_cast<uint64_t>(reply.outcome));
  writer.Text(reply.message);
  writer.Text(reply.log);
  writer.Text(reply.bytes);
  writer.Text(reply.library_path);
  writer.Text(reply.version);
  writer.Text(reply.build);
  writer.Texts(reply.architectures);
  return writer.Frame();
}

std::optional<HelperReply> DecodeReply(std::string_view frame) {
  Reader reader(frame);
  HelperReply reply;
  const uint64_t outcome = reader.Number();
  reply.outcome = static_cast<HelperOutcome>(outcome);
  reply.message = reader.Text();
  reply.log = reader.Text();
  reply.bytes = reader.Text();
  reply.library_path = reader.Text();
  reply.version = reader.Text();
  reply.build = reader.Text();
  reply.architectures = reader.Texts();
  if (!reader.AtEnd() || outcome > 3) return std::nullopt;
  return reply;
}

}  // namespace whet
