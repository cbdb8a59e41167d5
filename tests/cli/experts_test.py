#!/usr/bin/env python3
"""`trireme train` with experts: the losses of one rank on every layout, a resume on another ep, weights that transformers reads, and
what is said when the sizes do not fit.

usage: experts_test.py TRIREME [CLASS[.test]...]"""
import functools
import json
import pathlib
import subprocess

import train_test
from train_test import CONFIG, F64, QUIET, TrainTest, fresh_folder, shared, train

ROOT = pathlib.Path(__file__).resolve().parents[2]


def settings(**keys):
    return [word for key, value in keys.items() for word in ("--" + key.replace("__", "."), str(value))]


QWEN3_MOE = dict(model__model_type="qwen3_moe", model__qk_norm="true", model__num_local_experts=4, model__num_experts_per_tok=2,
                 model__moe_intermediate_size=48, model__router_aux_loss_coef=0.05, model__router_z_loss_coef=0.01)
EXPERTS = settings(**QWEN3_MOE)
DEEPSEEK = settings(model__num_local_experts=4, model__num_experts_per_tok=2, model__moe_intermediate_size=48,
                    model__scoring_func="sigmoid", model__routed_scaling_factor=2.5, model__router_bias_update_rate=0.01,
                    model__shared_expert_intermediate_size=32)
VALIDATED = ("--validation.interval", "2", "--validation.fraction", "0.02")


def layout(**degrees):
    return settings(**{f"parallelism__{key}": value for key, value in degrees.items()})


@functools.cache
def one_rank(*words):
    return shared(*F64, *words, *VALIDATED, *QUIET)


class Numbers(TrainTest):
    def same(self, model, cells):
        one = self.ok(one_rank(*model))
        for n, words in cells:
            with self.subTest(words=words):
                run = self.ok(train(*F64, *model, *VALIDATED, *QUIET, *words, n=n))
                self.close(run.losses(), one.losses(), 1e-12)
                for key in ("grad_norm", "aux_loss", "val/loss", "num_tokens"):
                    self.close([r[key] for r in run.metrics() if key in r], [r[key] for r in one.metrics() if key in r], 1e-12)
        return one

    def test_every_layout_has_the_losses_of_one_rank(self):
        one = self.same(EXPERTS, ((2, layout(ep=2, zero=3)), (4, layout(ep=4, dp=2, tp=2, expert_tp=1, zero=2)),
                                  (4, layout(ep=2, cp=2, pp=2, zero=1))))
        self.assertTrue(all(r["aux_loss"] > 0 for r in one.metrics()))

    def test_bias_and_shared_expert(self):
        self.same(DEEPSEEK, ((4, layout(ep=2, dp=2, tp=2, zero=3) + ["--activation_checkpoint.mode", "full"]),
                             (2, layout(ep=1, pp=2, zero=1))))

    def test_the_balance_of_transformers(self):
        """Over all layers and the samples of a microbatch: the same if dp does not change what a microbatch is."""
        hf = EXPERTS + settings(model__router_aux_loss_type="hf")
        one = self.ok(one_rank(*hf, "--training.micro_batch_size", "4"))
        run = self.ok(train(*F64, *hf, *VALIDATED, *QUIET, "--training.micro_batch_size", "2", *layout(ep=2, dp=2, zero=1), n=2))
        for key in ("loss", "aux_loss", "grad_norm"):
            self.close([r[key] for r in run.metrics()], [r[key] for r in one.metrics()], 1e-12)

    def test_the_example(self):
        run = self.ok(train("--run.dir", "runs", "--training.steps", "8", config=ROOT / "examples/moe.toml", n=2))
        self.assertLess(run.losses()[-1], run.losses()[0])


class Resume(TrainTest):
    def test_on_another_ep(self):
        """With the selection bias, which no optimizer has."""
        folder = fresh_folder()
        words = (*F64, *DEEPSEEK, *QUIET, "--run.name", "r", "--lr_scheduler.decay", "constant")
        whole = self.ok(train(*words, "--training.steps", "6"))
        self.ok(train(*words, *layout(ep=2, dp=2, tp=2, zero=1), "--training.steps", "2", folder=folder, n=4))
        self.ok(train(*words, *layout(ep=4, dp=4, zero=3), "--training.steps", "4", folder=folder, n=4))
        self.ok(train(*words, "--training.steps", "6", folder=folder))
        losses = [json.loads(line)["loss"] for line in (folder / "runs/r/metrics.jsonl").read_text().splitlines()]
        self.close(losses, whole.losses(), 1e-12)

    def test_reshaped(self):
        folder = fresh_folder()
        words = (*F64, *EXPERTS, *QUIET, "--lr_scheduler.decay", "constant")
        whole = self.ok(train(*words, "--training.steps", "4"))
        saved = self.ok(train(*words, *layout(ep=2, dp=2, zero=1), "--training.steps", "2", folder=folder, n=2)).path()
        done = subprocess.run([train_test.options.trireme, "reshape", saved / "checkpoints/step-2", "--to", "tp=2,expert_tp=1,ep=4", "-o",
                               folder / "other"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        run = self.ok(train(*words, "--training.steps", "4", "--checkpoint.resume", str(folder / "other/step-2"),
                            folder=folder))
        self.close(run.losses(), whole.losses()[2:], 1e-12)


class Refused(TrainTest):
    def test_sizes_that_do_not_fit(self):
        for n, model, words, said in (
                (3, {}, layout(ep=3, dp=3), "num_local_experts = 4 is not divisible by parallelism.ep = 3"),
                (1, dict(model__num_experts_per_tok=5), [], "num_experts_per_tok = 5 of num_local_experts = 4"),
                (2, {}, layout(ep=4, dp=2), "parallelism.ep = 4: must divide dp x cp x tp / expert_tp = 2"),
                (4, {}, layout(ep=4, dp=4, replicate=2), "replicate = 2, but the same experts are on 1 ranks"),
                (2, {}, layout(tp=2) + settings(model__shared_expert_intermediate_size=7), "is not divisible by parallelism.tp = 2"),
                (2, dict(model__router_aux_loss_type="hf"), layout(pp=2), "router_aux_loss_type = \"hf\" with parallelism.pp = 2"),
                (2, dict(model__router_aux_loss_type="hf", model__router_aux_loss_samples=8), layout(dp=2) + ["--training.micro_batch_size", "2"],
                 "router_aux_loss_samples = 8 with micro_batch_size 2 x dp 2 = 4"),
                (1, {}, settings(checkpoint__format="nanotron"), "nanotron's folder has no names for experts"),
                (1, dict(model__num_local_experts=0), [], "num_local_experts = 0 of a qwen3_moe model"),
                (1, dict(model__model_type="gpt2", model__hidden_act="gelu"), [], "num_local_experts = 4 of a gpt2 model")):
            with self.subTest(said=said):
                run = train(*F64, *settings(**(QWEN3_MOE | model)), *QUIET, *words, n=n)
                self.one_error(run, CONFIG, said)
                self.nothing_started(run)


if __name__ == "__main__":
    train_test.main()
