#include "trireme/data/tokenizer/json_field.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/data/tokenizer/unicode.hpp"
#include "trireme/files/json_bounds.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::data {
namespace {

/// Whether one of the eight bytes ends a run of plain ASCII in a string: quote, backslash, control character,
/// non-ASCII.
bool has_mark(std::uint64_t bytes) {
  constexpr std::uint64_t kOnes = 0x0101010101010101, kHigh = 0x80 * kOnes;
  // The high bit of a byte of `zero(x)` is set if it is 0; carries can only cause false positives, which are then
  // checked byte by byte.
  const auto zero = [](std::uint64_t x) { return x - kOnes; };
  return ((zero(bytes ^ '"' * kOnes) | zero(bytes ^ '\\' * kOnes) | (bytes - 0x20 * kOnes) | bytes) & kHigh) != 0;
}

constexpr std::array<bool, 256> kPlain = [] {
  std::array<bool, 256> plain{};
  for (std::size_t c = 0x20; c < 0x80; ++c) plain[c] = c != '"' && c != '\\';
  return plain;
}();

/// Every function returns false if it is not sure.
class Scanner {
 public:
  Scanner(std::string_view line, std::string_view key, std::string& out)
      : at_(line.data()), end_(at_ + line.size()), key_(key), out_(out) {}

  bool run() {
    skip_space();
    if (!take('{') || !members(0)) return false;
    skip_space();
    return at_ == end_ && found_;
  }

 private:
  static constexpr int kMaxDepth = 32;

  void skip_space() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\n' || *at_ == '\r')) ++at_;
  }
  bool take(char c) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  /// Parses after '{'.
  bool members(int depth) {
    skip_space();
    if (take('}')) return true;
    for (;;) {
      skip_space();
      name_.clear();
      if (!take('"') || !string(depth == 0 ? &name_ : nullptr)) return false;
      skip_space();
      if (!take(':')) return false;
      skip_space();
      if (depth == 0 && name_ == key_) {
        out_.clear();
        if (!take('"') || !string(&out_)) return false;
        found_ = true;
      } else if (!value(depth)) {
        return false;
      }
      skip_space();
      if (take('}')) return true;
      if (!take(',')) return false;
    }
  }

  bool elements(int depth) {
    skip_space();
    if (take(']')) return true;
    for (;;) {
      skip_space();
      if (!value(depth)) return false;
      skip_space();
      if (take(']')) return true;
      if (!take(',')) return false;
    }
  }

  bool value(int depth) {
    if (at_ == end_ || depth == kMaxDepth) return false;
    switch (*at_) {
      case '"': ++at_; return string(nullptr);
      case '{': ++at_; return members(depth + 1);
      case '[': ++at_; return elements(depth + 1);
      case 't': return word("true");
      case 'f': return word("false");
      case 'n': return word("null");
      default: return number();
    }
  }

  bool word(std::string_view letters) {
    if (!std::string_view(at_, end_).starts_with(letters)) return false;
    at_ += letters.size();
    return true;
  }

  std::ptrdiff_t digits() {
    const char* begin = at_;
    while (at_ != end_ && *at_ >= '0' && *at_ <= '9') ++at_;
    return at_ - begin;
  }
  /// Rejects exponents and more than 300 digits: the library rejects numbers that overflow.
  bool number() {
    take('-');
    const char* begin = at_;
    const std::ptrdiff_t whole = digits();
    if (whole == 0 || whole > 300 || (whole > 1 && *begin == '0')) return false;
    if (take('.') && digits() == 0) return false;
    return at_ == end_ || (*at_ != 'e' && *at_ != 'E');
  }

  /// Parses after the opening quote, up to the closing one; `kept` gets the text.
  bool string(std::string* kept) {
    for (;;) {
      const char* run = at_;
      for (std::uint64_t bytes = 0; end_ - at_ >= 8; at_ += 8) {
        std::memcpy(&bytes, at_, 8);
        if (has_mark(bytes)) break;
      }
      while (at_ != end_ && kPlain[static_cast<unsigned char>(*at_)]) ++at_;
      while (at_ != end_ && static_cast<unsigned char>(*at_) >= 0x80) {
        const CodePoint c = first_code_point({at_, end_});
        if (!c.well_formed) return false;
        at_ += c.bytes;
      }
      if (kept) kept->append(run, at_);
      if (at_ == end_) return false;
      if (*at_ == '"') {
        ++at_;
        return true;
      }
      if (*at_ == '\\' && !escape(kept)) return false;
      if (at_ == end_ || static_cast<unsigned char>(*at_) < 0x20) return false;
    }
  }

  bool escape(std::string* kept) {
    if (end_ - at_ < 2) return false;
    static constexpr std::string_view kLetters = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    const char letter = at_[1];
    at_ += 2;
    if (letter != 'u') {
      const std::size_t which = kLetters.find(letter);
      if (which == std::string_view::npos) return false;
      if (kept) kept->push_back(kMeant[which]);
      return true;
    }
    std::uint32_t point = 0, low = 0;
    if (!hexadecimal(point)) return false;
    if (point >= 0xDC00 && point < 0xE000) return false;
    if (point >= 0xD800 && point < 0xDC00) {
      if (!take('\\') || !take('u') || !hexadecimal(low) || low < 0xDC00 || low > 0xDFFF) return false;
      point = 0x10000 + ((point - 0xD800) << 10 | (low - 0xDC00));
    }
    if (kept) append_utf8(*kept, point);
    return true;
  }

  bool hexadecimal(std::uint32_t& value) {
    if (end_ - at_ < 4) return false;
    value = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = *at_;
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return false;
      value = value << 4 | static_cast<std::uint32_t>(digit);
    }
    return true;
  }

  const char* at_;
  const char* end_;
  std::string_view key_;
  std::string& out_;
  std::string name_;
  bool found_ = false;
};

/// SAX handler that keeps only the requested field: nesting costs one bit per level.
class Handler : public nlohmann::json_sax<nlohmann::json> {
 public:
  Handler(std::string_view key, std::string& out) : key_(key), out_(out) {}

  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_unsigned(number_unsigned_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool string(string_t& value) override {
    if (wanted()) {
      out_ = std::move(value);
      found_ = Found::text;
    }
    return true;
  }
  bool start_object(std::size_t) override { return begin(true); }
  bool start_array(std::size_t) override { return begin(false); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    if (depth_ == 1) {
      wanted_ = name == key_;
      if (keys_.size() < 5) keys_.push_back(files::shown_name(name, 30));
    }
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
    throw BadDocument(text("is not JSON: ", files::json_fault(error.what())));
  }

  void check() const {
    if (!object_) throw BadDocument("is JSON, but not an object");
    if (found_ == Found::text) return;
    if (found_ == Found::other) throw BadDocument(text("the value of ", files::shown_name(key_), " is not a string"));
    std::string keys;
    for (const std::string& each : keys_) keys += (keys.empty() ? "" : ", ") + each;
    throw BadDocument(
        text("has no key ", files::shown_name(key_), keys.empty() ? "; it is empty" : text("; it has ", keys)));
  }

 private:
  bool wanted() const { return depth_ == 1 && object_ && wanted_; }
  bool other() {
    if (wanted()) found_ = Found::other;
    return true;
  }
  bool begin(bool object) {
    if (depth_ == 0) object_ = object;
    other();
    ++depth_;
    return true;
  }
  bool end() {
    --depth_;
    return true;
  }

  std::string_view key_;
  std::string& out_;
  std::vector<std::string> keys_;
  std::size_t depth_ = 0;
  bool object_ = false, wanted_ = false;
  enum class Found { nothing, text, other } found_ = Found::nothing;
};

}  // namespace

bool detail::scan_json_field(std::string_view line, std::string_view key, std::string& out) {
  return Scanner(line, key, out).run();
}

void detail::parse_json_field(std::string_view line, std::string_view key, std::string& out) {
  // The library treats a NUL as the end of its input.
  if (line.find('\0') != std::string_view::npos) throw BadDocument("is not JSON: there is a NUL in it");
  Handler handler(key, out);
  nlohmann::json::sax_parse(line, &handler);
  handler.check();
}

void read_json_field(std::string_view line, std::string_view key, std::string& out) {
  if (!detail::scan_json_field(line, key, out)) detail::parse_json_field(line, key, out);
}

}  // namespace trireme::data
