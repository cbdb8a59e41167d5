#pragma once
// Classes of characters as the reference (`tokenizers`) has them. Its tables are of older versions of Unicode than
// ours; where the two differ, the reference decides, since token ids depend on it.

namespace trireme::data {

/// What StripAccents removes: marks.
bool is_accent(char32_t value);
/// What BertNormalizer removes with strip_accents: marks that take no space.
bool is_bert_accent(char32_t value);
/// What BertNormalizer removes with clean_text: control and format characters, private use, U+FFFD.
bool is_bert_control(char32_t value);
/// Where BertPreTokenizer and Punctuation cut.
bool is_punctuation(char32_t value);

}  // namespace trireme::data
