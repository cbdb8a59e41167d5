#pragma once
// What a SentencePiece .model file says, before anything is made of it.
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

struct SentencePieceFile {
  enum class Algorithm { unigram = 1, bpe = 2 };
  enum class Kind { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    Kind kind = Kind::normal;
  };

  std::vector<Piece> pieces;  // by id
  Algorithm algorithm = Algorithm::unigram;
  bool byte_fallback = false, space_as_suffix = false;
  std::string end_piece = "</s>";
  std::string unknown_text = " \u2047 ";  // what an unknown token is decoded to
  std::string charsmap;                   // empty: no rules
  bool dummy_prefix = true, remove_extra_space = true, escape_space = true;

  std::size_t unknown() const;  // the id of the one piece of that kind
};

/// DataError for a file that is damaged, breaks a rule of the format, or needs what is not supported.
SentencePieceFile read_sentencepiece(std::string_view proto, const std::string& name);

}  // namespace trireme::data
