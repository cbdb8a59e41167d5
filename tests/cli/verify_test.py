#!/usr/bin/env python3
"""`trireme verify`: the examples agree with one rank on several layouts; layers that are wrong on several ranks are found by name.

usage: verify_test.py TRIREME OWN_DECODER OWN_FAMILIES [CLASS[.test]...]"""
import json
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRIREME = OWN_DECODER = OWN_FAMILIES = None
SMALL = ("--model.hidden_size", "32", "--model.intermediate_size", "48", "--model.vocab_size", "64", "--model.num_hidden_layers", "3",
         "--model.num_attention_heads", "4", "--model.num_key_value_heads", "4", "--model.head_dim", "8", "--training.seq_len", "16",
         "--tokenizer.path", "")
TP, PP = ("--parallelism.tp", "2"), ("--parallelism.pp", "2")


def verify(config, *words, program=None):
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    return subprocess.run([program or TRIREME, "verify", str(ROOT / "examples" / config), *words], capture_output=True, text=True,
                          env=environment, timeout=300)


class Examples(unittest.TestCase):
    def agrees(self, *words, **more):
        done = verify(*words, **more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("the layout agrees with", done.stdout)
        return done.stdout

    def test_all_agree(self):
        one = ("--steps", "1")
        self.assertIn("pp=1 dp=2 cp=1 tp=2", self.agrees("tiny.toml", "-n", "4", *one))
        self.assertIn("dp=2", self.agrees("moe.toml", "-n", "2", *one, "--training.seq_len", "64"))
        self.assertIn("cp=2", self.agrees("long_context.toml", *one, "--training.seq_len", "256"))
        self.agrees("demo.toml", *one, "--tokenizer.path", "", "--data.0.sources.0.path", "synthetic", "--validation.interval", "0",
                    "--validation.sources", "[]", "--model.vocab_size", "256")
        self.assertIn("pp=2", self.agrees("own_decoder.toml", "-n", "4", *one, *PP, *TP, program=OWN_DECODER))

    def test_against_another_layout(self):
        out = self.agrees("tiny.toml", *SMALL, "-n", "4", *TP, "--against", "pp=2,dp=2")
        self.assertIn("compared with pp=2 dp=2 cp=1 tp=1", out)

    def test_what_it_cannot_see_of_a_pooled_balance(self):
        words = ("-n", "2", "--steps", "1", "--training.seq_len", "64", "--parallelism.ep", "1")
        self.assertNotIn("note: ", self.agrees("moe.toml", *words))
        self.assertIn('note: router_aux_loss_type = "hf": the balancing loss is over the ', self.agrees("moe.toml", *words, "--model.router_aux_loss_type", "hf"))

    def test_frozen_parameters(self):
        frozen = ("--optimizer.frozen", '["embedding", "layers.0", "layers.1.mlp"]')
        for words in (("-n", "2", "--parallelism.tp", "1", "--parallelism.dp", "2", "--parallelism.zero", "3"), ("-n", "4", *TP, *PP, "--parallelism.dp", "1")):
            out = self.agrees("tiny.toml", *SMALL, *frozen, *words)
            self.assertRegex(out, r"\n1[0-9] gradients: ")  # of 20

    def test_terms_of_the_loss_and_gemma(self):
        """Label smoothing and z-loss; every second layer of Gemma 2 has a window."""
        loss = ("--training.label_smoothing", "0.1", "--training.z_loss_coef", "1e-2")
        gemma = ("--model.model_type", "gemma2", "--model.hidden_act", "gelu_pytorch_tanh", "--model.num_hidden_layers", "4", "--model.sliding_window",
                 "5", "--model.sliding_window_pattern", "2", "--model.query_pre_attn_scalar", "12", "--model.attn_logit_softcapping", "0.5",
                 "--model.final_logit_softcapping", "1")
        losses = set()
        for words in ((), loss):
            out = self.agrees("tiny.toml", *SMALL, *gemma, "-n", "4", *TP, *PP, "--parallelism.dp", "1", *words)
            losses.add(out.partition("step 1: loss ")[2].partition(",")[0])
        self.assertEqual(len(losses), 2, losses)

    def test_gradients_that_are_zero_by_mathematics(self):
        """What is computed is rounding noise, which no layout shares with another."""
        router = ("--model.num_local_experts", "4", "--model.num_experts_per_tok", "1", "--model.moe_intermediate_size", "16",
                  "--model.intermediate_size", "48")
        for words in (router, ("--model.sliding_window", "1")):
            self.agrees("tiny.toml", *SMALL, "-n", "2", *TP, *words)
            self.agrees("tiny.toml", *SMALL, "-n", "2", "--parallelism.tp", "1", "--parallelism.dp", "2", *words)

    def test_other_dtypes(self):
        for dtype in ("float32", "bfloat16"):
            self.assertIn(f"in {dtype}", self.agrees("tiny.toml", *SMALL, "-n", "2", "--dtype", dtype))


class Mistakes(unittest.TestCase):
    """Families whose layers are wrong on several ranks of tp, and right on one."""

    def found(self, family, module):
        words = ("tiny.toml", *SMALL, "--model.model_type", family, "--steps", "1", "--json", "-n", "2")
        right = verify(*words, "--parallelism.tp", "1", program=OWN_FAMILIES)
        self.assertEqual(right.returncode, 0, right.stdout + right.stderr)
        self.assertIsNone(json.loads(right.stdout)["first_module"])
        wrong = verify(*words, *TP, program=OWN_FAMILIES)
        self.assertEqual(wrong.returncode, 1, wrong.stdout + wrong.stderr)
        result = json.loads(wrong.stdout)
        self.assertEqual((result["passed"], result["first_module"]), (False, module))
        return result

    def test_a_sum_is_lost(self):
        result = self.found("lost-sum", "layers.1")
        within = {each["name"]: each["within"] for each in result["activations"]}
        self.assertEqual(within, {"embedding": True, "layers.0": True, "layers.1": False, "layers.2": False, "norm": False})

    def test_values_of_the_wrong_head(self):
        self.found("shifted-values", "layers.2")

    def test_a_gradient_is_not_summed_over_tp(self):
        result = self.found("lost-partial", "layers.1.mlp.norm")
        self.assertEqual([each["name"] for each in result["gradients"] if not each["within"]], ["layers.1.mlp.norm.weight"])
        self.assertTrue(all(each["within"] for each in result["activations"]))
        self.assertLess(abs(result["losses"][0] - result["reference_losses"][0]), 1e-12)


class Refused(unittest.TestCase):
    def says(self, words, expected, code=64):
        done = verify("tiny.toml", *SMALL, *words)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(expected, done.stderr)

    def test_what_cannot_be_compared(self):
        self.says(("--steps", "0"), "0 steps: must be at least 1")
        self.says(("--dtype", "int8"), "dtype int8: must be float64, float32, bfloat16 or float16")
        self.says(("--against", "tp=x"), '--against tp=x: "tp=x" is not KEY=NUMBER')
        self.says(("--against", "dp=3"), "cannot be divided among dp = 3 replicas")
        self.says(("-n", "3"), "one replica of the model needs 2 ranks, 3 were started")


if __name__ == "__main__":
    TRIREME, OWN_DECODER, OWN_FAMILIES = sys.argv[1:4]
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
