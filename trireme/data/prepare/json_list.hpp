#pragma once
// Cuts a JSON list into the texts of its elements, byte by byte: files of many gigabytes are one list. Header only.
#include <cstdint>

namespace trireme::data {

/// Only strings and brackets are looked at: whether an element is valid JSON is for its reader to say.
class JsonListCutter {
 public:
  enum class Found {
    nothing,
    separator,  // the byte is outside of elements: the next one begins behind it
    element,    // the byte is the comma or bracket behind an element
    error       // the byte is behind the list
  };

  Found take(char c) {
    if (c == '\n') ++line_;
    const bool blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (depth_ == 0) {
      if (blank) return Found::separator;
      if (begun_ || c != '[') return Found::error;
      begun_ = true;
      depth_ = 1;
      return Found::separator;
    }
    if (in_text_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_text_ = false;
      }
      return Found::nothing;
    }
    if (depth_ == 1 && (c == ',' || c == ']')) {
      if (c == ']') depth_ = 0;
      return end_element();
    }
    if (!inside_ && blank) return Found::separator;
    if (!inside_) element_line_ = line_;
    inside_ = true;
    if (c == '"') in_text_ = true;
    if (c == '[' || c == '{') ++depth_;
    if (c == ']' || c == '}') --depth_;
    return Found::nothing;
  }

  bool complete() const { return begun_ && depth_ == 0; }
  std::int64_t line() const { return line_; }                  // of the next byte, from 1
  std::int64_t element_line() const { return element_line_; }  // where the last element began

 private:
  Found end_element() {
    const bool was_inside = inside_;
    inside_ = false;
    return was_inside ? Found::element : Found::separator;
  }

  std::int64_t depth_ = 0, line_ = 1, element_line_ = 1;
  bool begun_ = false, inside_ = false, in_text_ = false, escaped_ = false;
};

}  // namespace trireme::data
