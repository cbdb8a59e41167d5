#!/usr/bin/env python3
"""`trireme data prepare --chat` writes the tokens of transformers' apply_chat_template, for each kind of template that it knows.

The templates here are small ones in the style of the models. usage: chat_templates_agree.py TRIREME"""
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from transformers import PreTrainedTokenizerFast
except ModuleNotFoundError:
    print("skipped: transformers is not installed (fix: tools/setup)", file=sys.stderr)
    sys.exit(77)
import tokenizer_kinds as kinds
from tokenizers import Tokenizer

PROGRAM = os.path.abspath(sys.argv[1])
U, A, S = (lambda role: lambda words: {"role": role, "content": words})("user"), (lambda w: {"role": "assistant", "content": w}), (lambda w: {"role": "system", "content": w})
TALKS = [[U("Hello there"), A("Good day.")],
         [U("What is 12 + 7?\nSay it in words. "), A("Nineteen, I think."), U("Sure?"), A("Yes:\n\n  it is.")],
         [U("\u00bfQu\u00e9? <s>[INST]<|im_end|><|eot_id|><end_of_turn>"), A("\u4e16\u754c")]]
SYSTEM = [[S("Be brief."), U("Who are you?"), A("Nobody.")]]
PADDED = [[U("  padded \n"), A("so \n")]]
NO_WORDS = [[S(""), U("Who are you?"), A("Nobody.")]]
LOOP = "{% for m in messages %}"

# name: (pre-tokenizer, special tokens, bos, eos, template, conversations besides TALKS)
KINDS = {
    "chatml": (kinds.QWEN2, ["<|im_start|>", "<|im_end|>", "<|endoftext|>"], None, "<|im_end|>",
               LOOP + "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}", SYSTEM),
    "chatml with a system": (kinds.QWEN2, ["<|im_start|>", "<|im_end|>", "<|endoftext|>"], None, "<|im_end|>",
                             LOOP + "{% if loop.first and m['role'] != 'system' %}{{ '<|im_start|>system\\nYou help, quietly.<|im_end|>\\n' }}{% endif %}"
                             "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}", SYSTEM),
    "llama 3": (kinds.LLAMA3, ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|end_of_text|>"], "<|begin_of_text|>", "<|eot_id|>",
                "{{ bos_token }}" + LOOP + "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim + '<|eot_id|>' }}{% endfor %}",
                SYSTEM + PADDED),
    "llama 3.1": (kinds.LLAMA3, ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], "<|begin_of_text|>", "<|eot_id|>",
                  '{{- bos_token }}{%- set date_string = "26 Jul 2024" %}{%- set said = "" %}'
                  "{%- if messages[0]['role'] == 'system' %}{%- set said = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}{%- endif %}"
                  '{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}{{- "Cutting Knowledge Date: December 2023\\n" }}'
                  '{{- "Today Date: " + date_string + "\\n\\n" }}{{- said }}{{- "<|eot_id|>" }}'
                  "{%- for m in messages %}{{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim + '<|eot_id|>' }}{%- endfor %}",
                  SYSTEM + PADDED),
    "llama 2": ("llama2", ["<unk>", "<s>", "</s>"], "<s>", "</s>",
                "{% if messages[0]['role'] == 'system' %}{% set said = '<<SYS>>\\n' + messages[0]['content'] + '\\n<</SYS>>\\n\\n' %}{% set messages = messages[1:] %}"
                "{% else %}{% set said = '' %}{% endif %}" + LOOP +
                "{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + (said if loop.first else '') + m['content'].strip() + ' [/INST]' }}"
                "{% else %}{{ ' ' + m['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}", SYSTEM + PADDED),
    "mistral": (None, ["<s>", "</s>"], "<s>", "</s>",
                "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
                "{% else %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}", []),
    "mistral with tokens": (kinds.LLAMA3, ["<s>", "</s>", "[INST]", "[/INST]"], "<s>", "</s>",
                            "{{ bos_token }}{% set said = '' %}{% if messages[0]['role'] == 'system' %}{% set said = messages[0]['content'] + '\\n\\n' %}{% set messages = messages[1:] %}{% endif %}"
                            "{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + (said if loop.first else '') + message['content'] + '[/INST]' }}"
                            "{% else %}{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}", SYSTEM),
    "gemma": (kinds.LLAMA3, ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"], "<bos>", "<eos>",
              "{{ bos_token }}" + LOOP + "{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
              "{{ '<start_of_turn>' + role + '\\n' + m['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}", PADDED),
    "gemma 3": (kinds.LLAMA3, ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"], "<bos>", "<eos>",
                "{{ bos_token }}{% set first_user_prefix = '' %}{% if messages[0]['role'] == 'system' %}{% set first_user_prefix = messages[0]['content'] + '\\n\\n' %}"
                "{% set messages = messages[1:] %}{% endif %}" + LOOP + "{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
                "{{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else '') + m['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}", SYSTEM + PADDED),
    "phi 3": (None, ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"], None, "<|endoftext|>",
              LOOP + "{% if m['role'] == 'system' %}{{ '<|system|>\\n' + m['content'] + '<|end|>\\n' }}{% elif m['role'] == 'user' %}{{ '<|user|>\\n' + m['content'] + '<|end|>\\n' }}"
              "{% else %}{{ '<|assistant|>\\n' + m['content'] + '<|end|>\\n' }}{% endif %}{% endfor %}{% if not add_generation_prompt %}{{ eos_token }}{% endif %}", SYSTEM),
    "phi 3.5": (None, ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"], None, "<|endoftext|>",
                "{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}"
                "{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'assistant' %}"
                "{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}{% if not add_generation_prompt %}{{ eos_token }}{% endif %}", SYSTEM + NO_WORDS),
    "phi 4": (kinds.LLAMA3, ["<|im_start|>", "<|im_sep|>", "<|im_end|>"], None, "<|im_end|>",
              LOOP + "{{ '<|im_start|>' + m['role'] + '<|im_sep|>' + m['content'] + '<|im_end|>' }}{% endfor %}", SYSTEM),
}
# A literal's newline may be one: JSON's own \n is read as one.
KINDS |= {f"{name}, real newlines": (*kind[:4], kind[4].replace("\\n", "\n"), kind[5]) for name, kind in KINDS.items() if "\\n" in kind[4]}


def documents(path):
    raw, index = Path(path).read_bytes(), Path(f"{path}.index").read_bytes()
    tokens = struct.unpack(f"<{len(raw) // 2}H", raw)
    ends = struct.unpack(f"<{len(index) // 8}Q", index)
    mask = Path(f"{path}.loss").read_bytes()
    return [list(tokens[a:b]) for a, b in zip((0, *ends), ends)], [mask[a:b] for a, b in zip((0, *ends), ends)]


def check(name, folder, in_config, trained):
    pattern, specials, bos, eos, jinja, more = KINDS[name]
    talks = TALKS + more
    if (pattern, *specials) not in trained:
        tokenizer, trainer = kinds.metaspace("always", True) if pattern == "llama2" else kinds.byte_level(pattern, specials=specials)
        tokenizer.train_from_iterator(CORPUS, trainer)
        if pattern == "llama2":  # tokens of one word each, and no pre-tokenizer, as theirs has
            legacy = json.loads(kinds.metaspace(None, None, legacy=True)[0].to_str())
            tokenizer = Tokenizer.from_str(json.dumps({**json.loads(tokenizer.to_str()), "normalizer": legacy["normalizer"], "pre_tokenizer": None}))
        trained[(pattern, *specials)] = tokenizer
    folder.mkdir()
    reference = PreTrainedTokenizerFast(tokenizer_object=trained[(pattern, *specials)], bos_token=bos, eos_token=eos)
    reference.chat_template = jinja
    reference.save_pretrained(folder)
    if in_config:  # as before chat_template.jinja
        (folder / "chat_template.jinja").unlink(missing_ok=True)
        config = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": jinja}))
    (folder / "talks.jsonl").write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in talks))
    run = subprocess.run([PROGRAM, "data", "prepare", folder / "talks.jsonl", "--chat", "-t", folder, "-o", folder / "x"], capture_output=True, text=True)
    assert run.returncode == 0 and "warning" not in run.stderr, run.stdout + run.stderr
    assert f", that of {folder}" in run.stdout, run.stdout
    ours, masks = documents(folder / "x.ds")
    for talk, ids, mask in zip(talks, ours, masks, strict=True):
        # What a user says cannot become a special token here; transformers would let it.
        safe = reference.apply_chat_template(talk, tokenize=True, return_dict=True, split_special_tokens=False)["input_ids"]
        forged = any(t in m["content"] for m in talk for t in specials)
        if forged:
            said, meant = (reference.decode(i).replace(" ", "") for i in (ids, safe))  # Llama 2 puts spaces behind special tokens
            assert said == meant, (name, said, meant)
            assert len(ids) > len(safe), (name, "the words of a user became a special token")
        else:
            assert ids == safe, (name, [reference.decode([i]) for i in ids], [reference.decode([i]) for i in safe])
        learnt = reference.decode([i for i, counts in zip(ids, mask) if counts])
        for message in talk:
            if message["content"]:
                assert (message["content"].strip() in learnt) == (message["role"] == "assistant"), (name, learnt, message)
    return len(talks)


CORPUS = [part[:4000] for part in kinds.corpus(0.2)[:8]]
with tempfile.TemporaryDirectory() as place:
    trained, checked = {}, 0
    for number, kind in enumerate(KINDS):
        checked += check(kind, Path(place, str(number)), number % 2 == 0, trained)
    print(f"{checked} conversations in {len(KINDS)} templates became the reference's tokens")
