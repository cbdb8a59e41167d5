#!/usr/bin/env python3
"""A new user's first hour with configs: files of other trainers, schedules, errors.   usage: first_contact_config_test.py TRIREME [CLASS...]"""
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
SOURCE = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(__file__).resolve().parent / "data"


def trireme(*words, cwd=SOURCE):
    return subprocess.run([PROGRAM, *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=120)


class Config(unittest.TestCase):
    """Helpers: configs in a folder of their own."""
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return self.folder / name

    def ok(self, *words, **more):
        run = trireme(*words, **more)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return run

    def fails(self, *words, code=64, **more):
        run = trireme(*words, **more)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        self.assertTrue(run.stderr.startswith("error: "), run.stderr)
        return run.stderr

    def imported(self, source, *words):
        out = self.folder / "imported.toml"
        out.unlink(missing_ok=True)
        report = self.ok("config", "import", source, "-o", out, *words).stderr
        return out, report

    def shown(self, file, steps, *words):
        """The learning rates of these steps, and the parameters without weight decay."""
        lines = [json.loads(line) for line in self.ok("config", "show", file, "--rates", steps, "--json", *words).stdout.splitlines()]
        return ({line["step"]: line["lr"] for line in lines if "step" in line},
                {line["name"] for line in lines if "name" in line and not line["decay"]})

    def rates(self, file, steps):
        return self.shown(file, steps)[0]

    def values(self, file, *words):
        return tomllib.loads(self.ok("config", "show", file, *words).stdout)

    def without_decay(self, file, *words):
        return self.shown(file, 1, "--params", *words)[1]

    def same(self, ours, theirs):
        """theirs: the learning rate as a function of the step from 1."""
        for step, rate in ours.items():
            self.assertAlmostEqual(rate, theirs(step), delta=1e-12 * max(map(abs, ours.values())), msg=f"step {step}")


class Schedules(Config):
    """Imported learning rate schedules are those of their trainers."""
    def test_megatrons_decay_counts_from_step_0(self):
        source = self.write("run.sh", "pretrain --train-iters 20 --lr 1e-3 --min-lr 1e-4 --lr-decay-style linear "
                            "--lr-decay-iters 10 --lr-warmup-iters 4")
        out, _ = self.imported(source)

        def megatron(step):
            done = step - 1
            if done <= 4:
                return 1e-3 * done / 4
            return 1e-4 if done > 10 else 1e-4 + 9e-4 * (1 - (done - 4) / 6)
        rates = self.rates(out, 20)
        self.assertEqual(len(rates), 20)
        self.same(rates, megatron)

    def test_nanotrons_decay_steps_follow_the_warm_up(self):
        source = self.write("run.yaml", "tokens:\n  train_steps: 20\noptimizer:\n  learning_rate_scheduler:\n    learning_rate: 0.001\n"
                            "    lr_warmup_steps: 2\n    lr_warmup_style: linear\n    lr_decay_style: cosine\n    lr_decay_steps: 8\n"
                            "    min_decay_lr: 0.0001\n")
        out, _ = self.imported(source)

        def nanotron(step):
            done = step - 1
            if done <= 2:
                return 1e-3 * done / 2
            return 1e-4 + 9e-4 * (1 + math.cos(math.pi * (done - 2) / 8)) / 2 if done < 10 else 1e-4
        self.same(self.rates(out, 20), nanotron)

    def test_nanotron_without_a_least_rate_does_not_decay(self):
        source = self.write("run.yaml", "tokens:\n  train_steps: 10\noptimizer:\n  learning_rate_scheduler:\n    learning_rate: 0.001\n"
                            "    lr_warmup_steps: 1\n    lr_decay_style: linear\n")
        out, _ = self.imported(source)
        self.same(self.rates(out, 10), lambda step: 0 if step == 1 else 1e-3)

    def test_deepspeeds_warm_up_is_logarithmic(self):
        source = self.write("ds.json", json.dumps({
            "train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": 0.1}},
            "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10, "warmup_max_lr": 0.02}}}))
        out, _ = self.imported(source)

        def deepspeed(step):
            iteration = step - 2
            return 0 if iteration < 0 else 0.02 * min(1, math.log(iteration + 1) / math.log(10))
        self.same(self.rates(out, 30), deepspeed)

    def test_the_last_step_trains(self):
        run = self.write("run.toml", "[training]\nsteps = 1\n[optimizer]\nlr = 0.5\n")  # with other decays: lr_schedule_test.cpp
        self.assertEqual(self.rates(run, 9), {1: 0.5})
        table = self.ok("config", "show", "--model.preset", "tiny-llama", "--optimizer.lr", "3e-4", "--lr_scheduler.warmup_steps",
                        "10", "--rates", "4").stdout
        self.assertEqual(table.splitlines()[1:4], ["   1  3e-05", "   2  6e-05", "   3  9e-05"], "and no digits of rounding")

    def test_rates_are_printed_for_people_too(self):
        run = self.write("run.toml", "[training]\nsteps = 8\n[optimizer]\nlr = 1.0\n[lr_scheduler]\nwarmup_steps = 4\ndecay = 'linear'\n")
        self.assertEqual(self.ok("config", "show", run, "--rates", "3:6").stdout,
                         "step  learning rate\n   3  0.75\n   4  1.0\n   5  1.0\n   6  0.75\n")
        self.assertIn("--rates x: a number of steps", self.fails("config", "show", run, "--rates", "x"))


class Proof(Config):
    """Six configs in the style of each trainer's examples: rates, weight decay and batches are that trainer's."""
    def test_smollm3_of_nanotron(self):
        out, report = self.imported(DATA / "smollm3_stage1.yaml")
        self.assertIn("! not translated: model.model_config.no_rope_layer = 4", report)

        def nanotron(step):
            done = step - 1
            if done <= 2000:
                return 2e-4 * done / 2000
            return 2e-4 if done < 2600000 else 2e-4 * (600000 - (done - 2600000)) / 600000
        rates, exempt = self.shown(out, 200, "--params")
        rates |= self.rates(out, "2599990:2600100")
        self.assertEqual(len(rates), 200 + 111)
        self.same(rates, nanotron)
        # Only the embedding, which is tied to the head, matches .*token_embedding.*
        self.assertEqual(exempt, {"embedding.weight"})
        values = self.values(out, "-n", 384)
        self.assertEqual((values["data"][0]["attention"], values["data"][0]["positions"]), ("document", "document"))
        self.assertEqual((values["model"]["vocab_multiple"], values["model"]["vocab_size"]), (1 * 2, 128256))
        training = values["training"]
        self.assertEqual(training["global_batch_size"], 3 * 1 * 192)
        self.assertEqual(training["global_batch_size"] * training["seq_len"], 2_359_296)

    def titan(self, step, peak, steps, warmup, ratio, kind, least):
        warmup = min(warmup, steps)
        decay = min(round(steps * ratio), steps - warmup)
        stable = steps + 1 - warmup - decay
        current = step - 1
        if current < warmup:
            return peak * (current + 1) / warmup
        if current < warmup + stable:
            return peak
        progress = (current + 1 - (warmup + stable)) / decay
        left = 1 - progress if kind == "linear" else 0.5 * (1 + math.cos(math.pi * progress))
        return peak * (least + (1 - least) * left)

    def test_llama3_8b_of_torchtitan(self):
        out, report = self.imported(DATA / "titan_llama3_8b.toml")
        rates, exempt = self.shown(out, 250, "--params")
        self.same(rates, lambda step: self.titan(step, 3e-4, 250, 60, 0.35, "cosine", 0.1))
        self.assertEqual(exempt, set())  # one group of parameters: all decay
        values = self.values(out, "-n", 64)
        self.assertEqual(values["parallelism"]["dp"], 64)
        self.assertEqual(values["training"]["grad_accum"], 128 // (1 * 64))
        self.assertEqual(values["model"]["rope_scaling"]["factor"], 8.0)
        self.assertEqual((values["validation"]["interval"], values["validation"]["sources"]), (50, ["data/held-out.ds"]))
        self.assertIn('! not translated: training.dataset = "c4"', report)

    def test_the_debug_model_of_torchtitan(self):
        out, report = self.imported(DATA / "titan_debug.toml")
        rates, exempt = self.shown(out, 240, "--params")
        self.assertEqual(len(rates), 240)
        self.same(rates, lambda step: self.titan(step, 8e-4, 240, 2, 0.8, "linear", 0))
        self.assertEqual(exempt, set())
        values = self.values(out, "-n", 8)
        self.assertEqual((values["model"]["hidden_size"], values["model"]["num_hidden_layers"]), (256, 6))
        self.assertEqual(values["training"]["global_batch_size"], 8 * 8)
        self.assertEqual(values["validation"]["interval"], 0)

    def test_gpt3_175b_of_megatron(self):
        out, report = self.imported(DATA / "gpt3_175b.sh")

        def megatron(step):
            seen = (step - 1) * 1536
            if seen <= 90105:
                return 6e-5 * seen / 90105
            if seen > 400000:
                return 6e-6
            return 6e-6 + 5.4e-5 * 0.5 * (math.cos(math.pi * (seen - 90105) / (400000 - 90105)) + 1)
        rates, exempt = self.shown(out, 400, "--params")
        self.assertEqual(len(rates), 460900 // 1536)
        self.same(rates, megatron)
        # Megatron decays no bias and no vector: 2 norms a layer with a bias each, and the biases of 4 matrices; the last norm.
        self.assertEqual(len(exempt), 96 * 8 + 2)
        self.assertTrue(all("norm" in name or name.endswith("bias") for name in exempt))
        values = self.values(out, "-n", 1536)
        self.assertEqual((values["parallelism"]["dp"], values["training"]["grad_accum"]), (1536 // 128, 1536 // (1536 // 128)))
        self.assertIn("! not translated: --split = 949,50,1", report)

    def test_trainer_arguments_with_deepspeed(self):
        out, report = self.imported(DATA / "trainer_args.json")
        warmup = math.ceil(300 * 0.03)

        def trainer(step):
            done = step - 1
            if done < warmup:
                return 2e-5 * done / warmup
            return 2e-5 * 0.5 * (1 + math.cos(math.pi * (done - warmup) / (300 - warmup)))
        model = ("--model.preset", "gpt2")
        rates, exempt = self.shown(out, 300, "--params", *model)
        self.same(rates, trainer)
        self.assertEqual(len(exempt), 12 * 8 + 2)  # the Trainer decays neither norms nor biases
        values = self.values(out, *model, "-n", 4)
        self.assertEqual(values["training"]["global_batch_size"], 2 * 8 * 4)
        self.assertEqual((values["parallelism"]["zero"], values["training"]["max_norm"]), (3, 0.5))
        self.assertEqual(values["optimizer"]["betas"], [0.9, 0.98])
        self.assertNotIn("auto", report)

    def test_deepspeed_alone(self):
        out, _ = self.imported(DATA / "deepspeed_warmup_decay.json")

        def deepspeed(step):
            iteration = step - 2
            if iteration < 0:
                return 1e-6
            gamma = math.log(iteration + 1) / math.log(50) if iteration < 50 else max(0, (300 - iteration) / (300 - 50))
            return 1e-6 + (3e-4 - 1e-6) * gamma
        model = ("--model.preset", "gpt2")
        rates, exempt = self.shown(out, 300, "--params", *model)
        self.assertEqual(len(rates), 300)
        self.same(rates, deepspeed)
        self.assertEqual(exempt, set())  # it decays whatever it is given
        values = self.values(out, *model, "-n", 8)
        self.assertEqual((values["training"]["global_batch_size"], values["training"]["grad_accum"]), (256, 256 // (4 * 8)))


class NoDecay(Config):
    """optimizer.no_decay: words, globs and regular expressions; one that matches nothing is told."""
    MODEL = '[model]\npreset = "tiny-llama"\nnum_hidden_layers = 2\n[optimizer]\nno_decay = '

    def test_words_globs_and_expressions(self):
        norms = {"layers.0.attention_norm.weight", "layers.0.mlp_norm.weight", "layers.1.attention_norm.weight",
                 "layers.1.mlp_norm.weight", "norm.weight"}
        for patterns, wanted in ((["norm"], norms), (["layers.1.*norm*"], {n for n in norms if n.startswith("layers.1")}),
                                 (["re:^embedding\\.", "norm.weight"], norms | {"embedding.weight"}), ([], set())):
            run = self.write("run.toml", self.MODEL + json.dumps(patterns))
            self.assertEqual(self.without_decay(run), wanted, patterns)

    def test_what_matches_nothing_is_told(self):
        run = self.write("run.toml", self.MODEL + '[".*token_embedding.*", "bias"]')
        warnings = [line for line in self.ok("config", "check", run, "--no-files").stderr.splitlines() if "no_decay" in line]
        self.assertEqual(len(warnings), 1, warnings)  # "bias" matches in other families
        self.assertIn('".*token_embedding.*" matches no parameter; the nearest are embedding.weight', warnings[0])
        self.assertIn("not a regular expression", self.fails("config", "check", self.write("bad.toml", self.MODEL + '["re:(x"]')))
        check = self.ok("config", "check", self.write("run.toml", self.MODEL + '["nrom"]'), "--no-files").stderr
        self.assertIn('"nrom" matches no parameter; the nearest are layers.*.attention_norm.weight, layers.*.mlp_norm.weight, norm.weight', check)


class ImportReport(Config):
    """What matters first; the rest in one line; our own files are recognised."""
    def test_what_matters_is_marked_and_noise_is_folded(self):
        _, report = self.imported(DATA / "smollm3_stage1.yaml")
        lines = report.splitlines()
        self.assertRegex(lines[0], r"^\d+ settings to review: they may change the result$")
        self.assertTrue(all(line.startswith("  ! not translated: ") for line in lines[1:-1]), report)
        folded = re.fullmatch(r"(\d+) keys that have no effect here: --all lists them", lines[-1])
        self.assertTrue(folded, lines[-1])
        self.assertNotIn("wandb", report)
        _, everything = self.imported(DATA / "smollm3_stage1.yaml", "--all")
        self.assertIn("general.project", everything)
        self.assertEqual(len(everything.splitlines()), len(lines) + int(folded[1]))

    def imported_text(self, name, text):
        source = self.write(name, text)
        out, report = self.imported(source, "--all")
        return self.values(out), report

    def marked(self, report):
        return [line.removeprefix("  ! not translated: ") for line in report.splitlines() if line.startswith("  ! ")]

    def test_initial_weights_of_torchtitan(self):
        head = '[model]\nname = "llama3"\nflavor = "debugmodel"\n[checkpoint]\ninitial_load_path = "/models/llama"\nenable = '
        values, report = self.imported_text("a.toml", head + "true\ninitial_load_in_hf = true\n")
        self.assertEqual(values["model"]["init"], "hf:/models/llama")
        self.assertEqual(self.marked(report), [])
        for rest, why in (("true\n", "random weights"), ("false\ninitial_load_in_hf = true\n", "checkpoint.enable is false")):
            values, report = self.imported_text("a.toml", head + rest)
            self.assertEqual(values["model"]["init"], "random")
            self.assertRegex("\n".join(self.marked(report)), f"checkpoint.initial_load_path = .*{why}")
        _, report = self.imported_text("a.toml", head + 'true\ninitial_load_in_hf = true\nexclude_from_loading = ["lr_scheduler"]\n'
                                       '[debug]\nmoe_force_load_balance = true\n[fault_tolerance]\nsemi_sync_method = "diloco"\n')
        self.assertEqual(len(self.marked(report)), 3, report)

    def test_documents_of_megatron_and_nanotron(self):
        values, report = self.imported_text("a.sh", "train --data-path a.ds --reset-position-ids --reset-attention-mask --seed 3")
        self.assertEqual((values["data"][0]["attention"], values["data"][0]["positions"]), ("document", "document"))
        stages = "data_stages:\n- start_training_step: 1\n- start_training_step: 5\nmodel:\n  model_config:\n    _use_doc_masking: "
        for word, wanted in (("true", ["document"] * 2), ("false", ["auto"] * 2)):
            values, _ = self.imported_text("a.yaml", stages + word + "\n    _use_other: true\n")
            self.assertEqual([stage["attention"] for stage in values["data"]], wanted)
        _, report = self.imported_text("a.yaml", stages + "true\n    _use_other: true\n")
        self.assertTrue(any("_use_other" in line for line in self.marked(report)), report)

    def test_a_switch_that_is_off_may_matter(self):
        _, report = self.imported_text("ds.json", json.dumps({
            "train_batch_size": 8, "prescale_gradients": False, "elasticity": {"enabled": False},
            "optimizer": {"type": "Adam", "params": {"lr": 0.1, "bias_correction": False, "amsgrad": False, "adam_w_mode": True}}}))
        self.assertEqual([line.split(" = ")[0] for line in self.marked(report) if " = " in line], ["optimizer.params.bias_correction"])
        _, report = self.imported_text("args.json", json.dumps({
            "output_dir": "out", "max_steps": 5, "average_tokens_across_devices": False, "adafactor": False, "do_eval": False}))
        self.assertEqual([line.split(" = ")[0] for line in self.marked(report) if " = " in line], ["average_tokens_across_devices"])

    def test_steps_that_are_not_known_are_told(self):
        for warmup in ({"warmup_ratio": 0.03, "warmup_steps": 0}, {"warmup_steps": 0.03}):
            arguments = {"output_dir": "out", "num_train_epochs": 3, "max_steps": -1, **warmup}
            _, report = self.imported_text("args.json", json.dumps(arguments))
            self.assertRegex(report, r"! not translated: warmup_\w+ = 0.03: the number of steps is not known: 1000 are assumed, and "
                             "the warm-up is 30 of them; set training.steps")
            _, report = self.imported_text("args.json", json.dumps(arguments | {"max_steps": 100}))
            self.assertNotIn("not known", report)

    def test_vocabularies_are_padded(self):
        sizes = "train --num-layers 2 --hidden-size 64 --num-attention-heads 4 --tensor-model-parallel-size 2 "
        for flags, multiple, size in (("--vocab-size 50257", 256, 50432), ("--vocab-size 50257 --make-vocab-size-divisible-by 1", 2, 50258),
                                      ("--vocab-size 512", 256, 512)):
            model = self.imported_text("a.sh", sizes + flags)[0]["model"]
            self.assertEqual((model["vocab_multiple"], model["vocab_size"]), (multiple, size), flags)
        model = self.imported_text("a.yaml", "model:\n  make_vocab_size_divisible_by: 64\n  model_config:\n    hidden_size: 64\n"
                                   "    vocab_size: 1000\nparallelism:\n  tp: 2\n")[0]["model"]
        self.assertEqual((model["vocab_multiple"], model["vocab_size"]), (128, 1024))
        model = self.imported_text("a.yaml", "model:\n  model_config:\n    hidden_size: 64\n    vocab_size: 1001\n"
                                   "parallelism:\n  tp: 2\n")[0]["model"]
        self.assertEqual((model["vocab_multiple"], model["vocab_size"]), (2, 1002))

    def test_megatrons_older_word_for_rotary_positions(self):
        sizes = "train --num-layers 2 --hidden-size 64 --num-attention-heads 4 --vocab-size 512 --use-rotary-position-embeddings "
        _, report = self.imported_text("a.sh", sizes + "--swiglu --normalization RMSNorm --disable-bias-linear")
        self.assertEqual(self.marked(report), [])
        _, report = self.imported_text("a.sh", sizes)  # our GPT-2 learns its positions
        self.assertIn("--use-rotary-position-embeddings", "".join(self.marked(report)))

    def test_what_has_no_counterpart_is_no_dead_end(self):
        values, report = self.imported_text("a.yaml", "tokens:\n  train_steps: 77\noptimizer:\n  weight_decay: 0.1\n"
                                            "  weight_decay_exclude_named_params: ['(?i).*NORM.*', '.*lm_head.*']\n")
        self.assertEqual((values["training"]["steps"], values["optimizer"]["no_decay"]), (77, ["head.weight"]))
        self.assertRegex(report, r'! not translated: optimizer.weight_decay_exclude_named_params: "\(\?i\).*" is not a regular expression')
        for name, theirs, word in (("args.json", {"output_dir": "out", "lr_scheduler_type": "cosine_with_restarts"}, "warmup_stable_decay"),
                                   ("ds.json", {"train_batch_size": 8, "scheduler": {"type": "OneCycle"}}, "warmuplr")):
            values, report = self.imported_text(name, json.dumps(theirs | {"gradient_accumulation_steps": 3}))
            self.assertEqual(values["training"]["grad_accum"], 3)
            self.assertRegex(report, rf'! not translated: \S+ = "\w+" has no counterpart here \(known: .*{word}\); set lr_scheduler.decay')
            self.assertNotIn("wsd", report)

    def test_deepspeed_decays_every_parameter(self):
        optimizer = {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}}
        values, _ = self.imported_text("ds.json", json.dumps({"train_batch_size": 8, "optimizer": optimizer}))
        self.assertEqual(values["optimizer"]["no_decay"], [])
        values, _ = self.imported_text("args.json", json.dumps({"output_dir": "out", "max_steps": 5, "weight_decay": 0.1,
                                                                "deepspeed": {"optimizer": optimizer | {"params": {}}}}))
        self.assertEqual(values["optimizer"]["no_decay"], ["norm", "bias"])

    def test_our_own_config_is_recognised(self):
        message = self.fails("config", "import", "examples/tiny.toml")
        self.assertIn("examples/tiny.toml is already a trireme config", message)


class Models(Config):
    """What follows from a tokenizer, a sequence length and a folder of weights."""
    SIZES = "[model]\nhidden_size = 64\nnum_hidden_layers = 2\nnum_attention_heads = 4\nintermediate_size = 128\n"

    def tokenizer(self, name="tokenizer.json"):
        text = self.write("book.txt", "the quick brown fox jumps over the lazy dog " * 40)
        self.ok("data", "train-bpe", text, "--vocab-size", 300, "-o", self.folder / name)
        return self.folder / name

    def test_the_vocabulary_is_the_tokenizers(self):
        tokenizer = self.tokenizer()
        ids = json.loads(tokenizer.read_text())
        size = 1 + max([*ids["model"]["vocab"].values(), *(token["id"] for token in ids["added_tokens"])])
        run = self.write("run.toml", self.SIZES + f'[tokenizer]\npath = "{tokenizer}"\n')
        self.assertEqual(self.values(run)["model"]["vocab_size"], size)
        self.assertIn(f"vocab {size}", self.ok("config", "check", "--no-files", run).stdout)
        rounded = self.values(run, "--model.vocab_multiple", 64)["model"]["vocab_size"]
        self.assertEqual(rounded, math.ceil(size / 64) * 64)
        self.assertEqual(self.values(run, "--model.vocab_size", 999)["model"]["vocab_size"], 999)
        self.assertIn("cannot be read", self.fails("config", "check", "--no-files", run, "--tokenizer.path", "nowhere.json"))

    def test_a_new_model_is_as_long_as_its_sequences(self):
        run = self.write("run.toml", self.SIZES + "vocab_size = 99\n[training]\nseq_len = 4096\n")
        check = self.ok("config", "check", "--no-files", run)
        self.assertEqual(self.values(run)["model"]["max_position_embeddings"], 4096)
        self.assertNotIn("max_position_embeddings", check.stderr)
        folder = SOURCE / "trireme/config/testdata/hf/gpt2"
        values = self.values(self.write("hf.toml", f'[model]\nhf = "{folder}"\n[training]\nseq_len = 512\n'))
        self.assertEqual(values["model"]["max_position_embeddings"], 1024)  # a model that exists says it itself

    def test_weights_of_a_folder_imply_its_model_and_tokenizer(self):
        model = self.folder / "model"
        model.mkdir()
        (model / "config.json").write_text((SOURCE / "trireme/config/testdata/hf/llama3.2-1b/config.json").read_text())
        run = self.write("run.toml", f'[model]\ninit = "hf:{model}"\n')
        values = self.values(run)
        self.assertEqual((values["model"]["hidden_size"], values["model"]["hf"], values["tokenizer"]["path"]), (2048, str(model), ""))
        self.tokenizer("model/tokenizer.json")
        self.assertEqual(self.values(run)["tokenizer"]["path"], str(model / "tokenizer.json"))
        self.assertEqual(self.values(run, "--tokenizer.path", "bytes")["tokenizer"]["path"], "bytes")
        self.assertEqual(self.values(run, "--model.preset", "tiny-llama")["model"]["hidden_size"], 128)
        self.assertIn('"hf:nowhere" has no config.json', self.fails("config", "check", run, "--model.init", "hf:nowhere"))


class Check(Config):
    """config check tells what train would."""
    def config(self, source):
        return self.write("run.toml", f'[model]\npreset = "tiny-llama"\n[[data]]\nsources = [ {{ path = "{source}" }} ]\n'
                          "[training]\nsteps = 3\nseq_len = 32\n")

    def test_files_are_opened(self):
        run = self.config(self.folder / "nowhere.ds")
        self.assertIn("nowhere.ds", self.fails("config", "check", run, code=65))
        self.assertIn("; token files were not checked\n", self.ok("config", "check", run, "--no-files").stdout)
        self.assertIn("torn.ds", self.fails("config", "check", self.config(self.write("torn.ds", "no tokens")), code=65))

    def test_tokens_fit_the_vocabulary(self):
        if "not in this build" in self.ok("doctor").stdout:
            self.skipTest("a build without libtorch does not look into token files")
        text = self.write("book.txt", "zebras, zephyrs and zinnias. " * 200)
        self.ok("data", "prepare", text, "-t", "bytes", "-o", self.folder / "book")
        run = self.config(self.folder / "book.ds")
        checked = self.ok("config", "check", run, "-n", 1).stdout
        self.assertRegex(checked, r"(?m)^machine +(bfloat16|float32) on .* \(model.dtype = \"auto\"\)$")
        self.assertIn("is valid, and can be trained\n", checked)
        self.assertIn("vocab", self.fails("config", "check", run, "--model.vocab_size", 100, code=65))
        # What `train` would warn of.
        self.assertIn("saves in the background have 97.7 KiB of memory per rank", self.ok("config", "check", run, "--checkpoint.buffer_mb", 0.1).stderr)
        # What `train` would refuse: a folder that cannot be made, and a checkpoint of another model.
        for where, why in (("/dev/null", "is not a folder"), ("/proc/runs", "no folder can be made there")):
            self.assertIn(why, self.fails("config", "check", run, "--run.dir", where))
        self.ok("train", run, "--run.dir", self.folder / "runs", "--run.name", "small", "--training.steps", 1)
        resume = ("config", "check", run, "--checkpoint.resume", self.folder / "runs/small")
        self.ok(*resume)
        self.assertIn("model.num_hidden_layers: ", self.fails(*resume, "--model.num_hidden_layers", 1, code=66))


class Help(Config):
    """Keys are explained, and a config can be begun."""
    def test_a_key_is_explained(self):
        words = self.ok("config", "explain", "lr_scheduler.decay").stdout
        self.assertIn('choices:   "linear", "cosine", "1-sqrt"', words)
        self.assertIn("Megatron --lr-decay-style", words)
        self.assertIn('did you mean "training.steps"?', self.fails("config", "explain", "training.stepz"))
        self.assertIn("# tokens per sequence [at least 1]\nseq_len = 1024", self.ok("config", "show", "--explain").stdout)

    def test_a_new_config_would_train(self):
        out = self.folder / "run.toml"
        self.ok("config", "new", "--preset", "tiny-llama", "-o", out)
        self.assertRegex(out.read_text(), r"(?m)^steps = 1000 +# optimizer updates \[steps, at least 1\]$")
        self.assertIn("is valid, and can be trained", self.ok("config", "check", out, "-n", 2).stdout)
        self.assertIn("already exists", self.fails("config", "new", "--preset", "gpt2", "-o", out))
        self.assertIn("already exists", self.fails("config", "import", DATA / "titan_debug.toml", "-o", out))
        self.assertIn('preset = "tiny-llama"', out.read_text())
        folder = SOURCE / "trireme/config/testdata/hf/llama3.2-1b"
        self.assertIn(f'hf = "{folder}"', self.ok("config", "new", "--hf", folder).stdout)


class Messages(Config):
    """Errors name the flag that was given, and the setting that was meant."""
    def test_a_setting_without_its_section(self):
        for command in (("config", "check", "examples/tiny.toml"), ("train", "examples/tiny.toml")):
            self.assertIn("error: unknown flag --steps\n  fix: did you mean --training.steps", self.fails(*command, "--steps", "5"))
        self.assertIn("--validation.interval or --checkpoint.interval or --metrics.interval",
                      self.fails("config", "check", "examples/tiny.toml", "--interval", "5"))
        self.assertIn("--training.micro_batch_size?", self.fails("config", "check", "examples/tiny.toml", "--micro-batch-sise=5"))
        self.assertIn("trireme COMMAND --help", self.fails("config", "check", "examples/tiny.toml", "--xyzzy"))

    def test_a_command_of_a_command(self):
        self.assertEqual(self.fails("config", "shwo"),
                         "error: unknown command 'config shwo'; did you mean 'config show'?\n  fix: trireme config --help lists them\n")
        self.assertIn("unknown command 'data prepar'; did you mean 'data prepare'?", self.fails("data", "prepar"))
        self.ok("config", "--help")

    def test_a_fraction_is_a_fraction(self):
        wanted = "error: training.steps = 5.5 is a fraction, not a whole number\n  --> "
        self.assertEqual(self.fails("config", "check", "examples/tiny.toml", "--training.steps", "5.5"), wanted + "--training.steps 5.5\n")
        run = self.write("run.toml", '[model]\npreset = "tiny-llama"\n[training]\nsteps = 5.5\n')
        self.assertEqual(self.fails("config", "check", run), wanted + f"{run}:4\n")

    def test_an_error_is_placed_at_the_flag(self):
        for flag, value in (("--parallelism.tp", "3"), ("--model.num_attention_heads", "3"), ("--training.global_batch_size", "7")):
            places = self.fails("config", "check", "examples/tiny.toml", "-n", "4", flag, value)
            self.assertIn(f"{flag} {value}", places)
            self.assertNotIn("tiny.toml:", places)
            self.assertNotIn("preset tiny-llama ", places)


if __name__ == "__main__":
    unittest.main()
