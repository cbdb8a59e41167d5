#pragma once
// Invariants of any tokenizer that loads: tokens are in the vocabulary, and decode to the text.
#include <cstdint>
#include <string>

#include "trireme/base/error.hpp"
#include "trireme/data/tokenizer/stream_decoder.hpp"
#include "trireme/data/tokenizer/tokenizer_parts.hpp"

namespace trireme {

/// Any exception other than DataError, and any violated invariant, aborts the process.
template <class Load>
void load_and_use(const Load& load) try {
  const data::Tokenizer tokenizer(load());
  const std::string texts[] = {"", "the quick brown fox's 12345  jumps\r\n\n over",
                               "caf\u00E9 e\u0301 \u4E2D\u6587 \U0001F600 \u2581", "\xFF\xC3(\xE2\x82",
                               std::string(300, 'a') + std::string(200, ' ') + "<s></s><|endoftext|>"};
  for (const std::string& text : texts)
    for (const bool special : {false, true}) {
      const auto ids = tokenizer.encode(text, special);
      for (const data::TokenId id : ids)
        require(id < tokenizer.vocab_size(), "token ", id, " of ", tokenizer.vocab_size());
      tokenizer.decode(ids, special);
      data::StreamDecoder stream(tokenizer);
      for (const data::TokenId id : ids) require(data::is_utf8(stream.push(id)), "a stream that is not UTF-8");
      require(ids == tokenizer.encode(text, special), "another answer the second time");
    }
} catch (const DataError&) {
}

}  // namespace trireme
