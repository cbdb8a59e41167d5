#include "trireme/data/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <sstream>
#include <thread>

#include <xxhash.h>

#include "trireme/base/error.hpp"
#include "trireme/base/utf8.hpp"
#include "trireme/data/tokenizer/detokenizer.hpp"
#include "trireme/data/tokenizer/tokenizer_parts.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::data {
namespace {

/// Borrows a cache for the duration of a call.
class Borrowed {
 public:
  explicit Borrowed(CachePool& pool) : pool_(pool), cache_(pool.take()) {}
  ~Borrowed() { pool_.give(std::move(cache_)); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  WordCache& operator*() { return *cache_; }

 private:
  CachePool& pool_;
  std::unique_ptr<WordCache> cache_;
};

class Encoder {
 public:
  Encoder(const Tokenizer::Parts& parts, WordCache& cache, TokenBuffer& out, SpecialText special = SpecialText::token)
      : parts_(parts), cache_(cache), out_(out), special_(special) {}

  void text(std::string_view text, TextPlace text_place = TextPlace::begins) {
    split_by_tokens(parts_.added, text, text_place,
                    [&](std::string_view rest, TextPlace place) { normalise(rest, place); });
  }

 private:
  /// Emits the added tokens in `text`, and passes the text between them to `rest`.
  template <class Rest>
  void split_by_tokens(const AddedTokenFinder& finder, std::string_view text, TextPlace place, const Rest& rest) {
    std::size_t done = 0;
    const auto place_of_rest = [&] { return done == 0 ? place : TextPlace::after_token; };
    for (const auto& hit : finder.find(text, special_ == SpecialText::token)) {
      if (hit.begin > done) rest(text.substr(done, hit.begin - done), place_of_rest());
      out_.append(std::span(&hit.token->id, 1));
      done = hit.end;
    }
    if (done < text.size()) rest(text.substr(done), place_of_rest());
  }

  void normalise(std::string_view text, TextPlace place) {
    std::string changed;
    for (const Normalizer& step : parts_.normalizers)
      if (!leaves_alone(step, text)) text = changed = normalised_by(step, text, place);
    if (parts_.normalizers.empty() && !std::holds_alternative<BpeModel>(parts_.model) && !is_utf8(text))
      text = changed = valid_utf8(text);  // only BPE has tokens for single bytes of a character
    split_by_tokens(parts_.added_normalised, text, place,
                    [&](std::string_view rest, TextPlace of_rest) { pieces(rest, of_rest); });
  }

  void pieces(std::string_view text, TextPlace place) {
    switch (parts_.fast) {
      case KnownPattern::gpt2: return fast_pieces<KnownPattern::gpt2>(text);
      case KnownPattern::llama3: return fast_pieces<KnownPattern::llama3>(text);
      case KnownPattern::qwen2: return fast_pieces<KnownPattern::qwen2>(text);
      case KnownPattern::none: break;
    }
    std::deque<std::string> owned;
    std::vector<TextPiece> pieces{{text, place}};
    try {
      for (const PreTokenizer& step : parts_.pre_tokenizers) pieces = pieces_after(step, pieces, owned);
    } catch (const DataError& error) {
      throw DataError(trireme::text(parts_.name, ": ", error.what()));
    }
    for (const TextPiece& piece : pieces) word(cache_.ask(piece.text, piece.text.size()));
  }

  template <KnownPattern kPattern>
  void fast_pieces(std::string_view text) {
    const FastSplit<kPattern> split;
    const char* at = text.data();
    const char* end = at + text.size();
    std::array<WordCache::Ticket, 16> ahead;
    while (at != end) {
      std::size_t n = 0;
      for (; n < ahead.size() && at != end; ++n) {
        const char* behind = split.next(at, end);
        ahead[n] = cache_.ask({at, behind}, static_cast<std::size_t>(end - at));
        at = behind;
      }
      for (std::size_t i = 0; i < n; ++i) word(ahead[i]);
    }
  }

  void word(const WordCache::Ticket& ticket) {
    cache_.append(ticket, out_, [&](std::string_view unseen, std::vector<TokenId>& ids) {
      std::visit([&](const auto& model) { model.append(unseen, ids); }, parts_.model);
    });
  }

  const Tokenizer::Parts& parts_;
  WordCache& cache_;
  TokenBuffer& out_;
  SpecialText special_;
};

std::filesystem::path beside(const std::filesystem::path& file, const char* name) { return file.parent_path() / name; }

constexpr const char* kKinds =
    "a tokenizer.json, tekken.json, SentencePiece's .model, a .tiktoken file, a vocab.json with merges.txt beside it, "
    "or "
    "\"bytes\"";

std::unique_ptr<Tokenizer::Parts> parts_of(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  if (path == "bytes") return parts_of_bytes();
  if (fs::is_directory(path)) {
    const auto file = tokenizer_file_in(path);
    if (!file && fs::exists(path / "vocab.json")) return parts_of(path / "vocab.json");  // says what is missing
    require<DataError>(file.has_value(), path.string(),
                       " has neither tokenizer.json nor vocab.json and merges.txt, nor tekken.json or tokenizer.model",
                       "\n  fix: name the tokenizer's file, or \"bytes\"");
    return parts_of(*file);
  }
  require<DataError>(fs::exists(path), "the tokenizer ", path.string(), " does not exist\n  fix: ", kKinds);
  if (path.filename() == "vocab.json" || path.filename() == "encoder.json")
    return parts_of_vocab_and_merges(
        path, path.filename() == "vocab.json" ? beside(path, "merges.txt") : beside(path, "vocab.bpe"));
  if (path.extension() == ".tiktoken") return parts_of_tiktoken(path);
  if (is_sentencepiece_file(path)) return parts_of_sentencepiece(path);
  const bool is_tekken = path.filename().string().find("tekken") != std::string::npos;
  if (path.extension() == ".json") return is_tekken ? parts_of_tekken(path) : parts_of_tokenizer_json(path);
  throw DataError(text(path.string(), ": what kind of tokenizer is this?", "\n  fix: ", kKinds));
}

}  // namespace

std::unique_ptr<WordCache> CachePool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      auto cache = std::move(free_.back());
      free_.pop_back();
      return cache;
    }
  }
  return std::make_unique<WordCache>();
}

void CachePool::give(std::unique_ptr<WordCache> cache) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(cache));
}

std::string tokenizer_file_text(const std::filesystem::path& file) {
  std::error_code failed;
  require<DataError>(std::filesystem::is_regular_file(file, failed) || !std::filesystem::exists(file, failed),
                     file.string(), ": is not a regular file\n  fix: name the file of a tokenizer, or its folder");
  std::ifstream in(file, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  require<DataError>(in.good(), file.string(), " cannot be read");
  return std::move(out).str();
}

std::string hash_text(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const std::uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
  std::string out;
  for (int shift = 60; shift >= 0; shift -= 4) out += kDigits[(hash >> shift) & 15];
  return out;
}

void Tokenizer::Parts::set_text(TokenId id, std::string_view spelling) {
  require<DataError>(id < most_tokens, name, ": token ", files::shown_name(spelling), " has the number ", id,
                     "; in a file of so few tokens at most ", most_tokens - 1,
                     " is allowed\n  fix: the file is damaged, fetch it again");
  if (id >= texts.size()) texts.resize(id + 1);
  if (!ids.emplace(std::string(spelling), id).second) {
    const TokenId other = ids.find(spelling)->second;
    require<DataError>(other == id, name, ": token ", files::shown_name(spelling), " has two numbers, ", other, " and ",
                       id);
  }
  require<DataError>(texts[id].empty() || texts[id] == spelling, name, ": token ", id, " is ",
                     files::shown_name(texts[id]), " and ", files::shown_name(spelling),
                     "\n  fix: the file is damaged, fetch it again");
  texts[id] = spelling;
}

bool is_sentencepiece_file(const std::filesystem::path& path) {
  return path.extension() == ".model" || path.stem().extension() == ".model";
}

std::optional<std::filesystem::path> tokenizer_file_in(const std::filesystem::path& folder) {
  std::error_code none;
  const auto has = [&](const char* name) { return std::filesystem::exists(folder / name, none); };
  for (const char* name : {"tokenizer.json", "vocab.json", "tekken.json", "tokenizer.model"})
    if (has(name) && (std::string_view(name) != "vocab.json" || has("merges.txt"))) return folder / name;
  return std::nullopt;
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) { return Tokenizer(parts_of(path)); }

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& name) {
  return Tokenizer(parts_of_tokenizer_json_text(json, name));
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool special_tokens) const {
  Borrowed cache(parts_->caches);
  TokenBuffer& out = (*cache).buffer;
  out.clear();
  if (special_tokens) out.append(parts_->before);
  Encoder(*parts_, *cache, out, parts_->special_is_text ? SpecialText::text : SpecialText::token).text(text);
  if (special_tokens) out.append(parts_->behind);
  return {out.tokens().begin(), out.tokens().end()};
}

std::vector<TokenId> Tokenizer::encode_part(std::string_view text, SpecialText special, TextPlace place) const {
  Borrowed cache(parts_->caches);
  TokenBuffer& out = (*cache).buffer;
  out.clear();
  Encoder(*parts_, *cache, out, special).text(text, place);
  return {out.tokens().begin(), out.tokens().end()};
}

std::vector<std::vector<TokenId>> Tokenizer::encode_batch(std::span<const std::string> texts, bool special_tokens,
                                                          int threads) const {
  std::vector<std::vector<TokenId>> out(texts.size());
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  threads = static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(threads), texts.size()));
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < texts.size(); i = next++) out[i] = encode(texts[i], special_tokens);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = texts.size();
    }
  };
  std::vector<std::jthread> supervisor;
  for (int i = 1; i < threads; ++i) supervisor.emplace_back(work);
  work();
  supervisor.clear();
  if (failure) std::rethrow_exception(failure);
  return out;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  Detokenizer detokenizer(*this, skip_special_tokens);
  std::string out;
  for (const TokenId id : ids) detokenizer.append(id, out);
  return out;
}

std::int64_t Tokenizer::vocab_size() const { return static_cast<std::int64_t>(parts_->texts.size()); }

std::optional<TokenId> Tokenizer::token_id(std::string_view token) const {
  const auto found = parts_->ids.find(token);
  return found == parts_->ids.end() ? std::nullopt : std::optional(found->second);
}

std::string Tokenizer::token_text(TokenId id) const {
  require<DataError>(id < parts_->texts.size(), "token ", id, " is outside the vocabulary of ", parts_->name, " (",
                     vocab_size(), ')');
  return parts_->texts[id];
}

std::optional<TokenId> Tokenizer::end_of_document() const { return parts_->end_of_document; }
const std::string& Tokenizer::fingerprint() const { return parts_->fingerprint; }
const std::string& Tokenizer::name() const { return parts_->name; }

}  // namespace trireme::data
