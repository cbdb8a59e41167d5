#!/usr/bin/env python3
"""optimizer.frozen and optimizer.lr_factors: the same losses on every layout, across a resume; frozen weights do not move.

usage: parameter_groups_test.py TRIREME [CLASS[.test]...]"""
import json

import train_test
from train_test import CHECKPOINT, CONFIG, F64, QUIET, TrainTest, fresh_folder, train

GROUPS = ("--optimizer.frozen", '["embedding", "layers.0", "norm.weight"]', "--optimizer.lr_factors", '["layers.1.mlp 0.25", "layers.1 2"]')


class Groups(TrainTest):
    def test_every_layout_trains_alike(self):
        """Six steps on one rank; two each with ZeRO 3 by layer and as a whole, and in a pipeline with recompute."""
        folder = fresh_folder()
        common = (*GROUPS, *F64, *QUIET, "--run.name", "one", "--lr_scheduler.decay_end_step", "6")
        one = self.ok(train(*common, "--training.steps", "6"))
        others = self.ok(train(*F64, *QUIET, "--run.name", "one", "--lr_scheduler.decay_end_step", "6", "--training.steps", "6"))
        self.assertNotEqual(one.losses()[-1], others.losses()[-1])
        zero3 = ("--parallelism.zero", "3", "--parallelism.persistence_threshold", "0")
        layouts = ((2, zero3), (4, (*zero3, "--parallelism.zero_unit", "model")), (2, ("--parallelism.pp", "2", "--activation_checkpoint.mode", "full")))
        for steps, (n, words) in zip((2, 4, 6), layouts):
            run = self.ok(train(*common, *words, "--training.steps", steps, n=n, folder=folder))
        self.close(run.losses(), one.losses(), 1e-12)
        self.close([r["grad_norm"] for r in run.metrics()], [r["grad_norm"] for r in one.metrics()], 1e-12)
        manifest = json.loads((folder / "runs/one/checkpoints/step-6/checkpoint_metadata.json").read_text())["checkpoint"]
        kinds = {}
        for tensor in manifest["tensors"]:
            kinds.setdefault(tensor["name"], set()).add(tensor["kind"])
        self.assertEqual(kinds["layers.0.mlp.down.weight"], {"weight"})
        self.assertEqual(kinds["layers.1.mlp.down.weight"], {"weight", "exp_avg", "exp_avg_sq"})

    def test_a_tied_embedding_with_a_rate_of_its_own(self):
        common = ("--optimizer.lr_factors", '["embedding 0.25"]', "--model.tie_word_embeddings", "true", *F64, *QUIET)
        one, two = (self.ok(train(*common, *words, n=n)) for n, words in ((1, ()), (2, ("--parallelism.pp", "2"))))
        self.close(two.losses(), one.losses(), 1e-12)
        plain = self.ok(train(*common[2:]))
        self.assertNotEqual(plain.losses()[-1], one.losses()[-1])

    def test_another_choice_later(self):
        """Refused, unless the states of the optimizer may start anew."""
        folder = fresh_folder()
        frozen = ("--optimizer.frozen", '["embedding"]')
        common = ("--run.name", "one", *QUIET)
        self.ok(train(*common, "--training.steps", "2", folder=folder))
        run = train(*common, *frozen, "--training.steps", "4", folder=folder)
        self.assertEqual(run.code, CHECKPOINT, run)
        self.assertIn("optimizer.frozen: ", run.stderr)
        self.assertIn("accept_changes", run.stderr)
        self.ok(train(*common, *frozen, "--training.steps", "4", "--checkpoint.accept_changes", '["optimizer"]', folder=folder))

    def test_what_is_refused(self):
        for key, value, says in (("frozen", '["*"]', "optimizer.frozen matches all parameters"),
                                 ("lr_factors", '["embedding"]', "is not a pattern of names, a space and a factor"),
                                 ("lr_factors", '["re:( 1"]', "optimizer.lr_factors: ")):
            with self.subTest(key=key, value=value):
                run = train(f"--optimizer.{key}", value)
                self.assertEqual(run.code, CONFIG, run)
                self.assertIn(says, run.stderr)
                self.assertIn("\n  fix: ", run.stderr)
        run = self.ok(train("--optimizer.frozen", '["embeding"]', "--training.steps", "1"))
        self.assertIn("matches no parameter; the nearest are embedding.weight", run.stdout + run.stderr)


if __name__ == "__main__":
    train_test.main()
