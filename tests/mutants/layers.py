#!/usr/bin/env python3
"""Breaks the layers, one way at a time, and asks which test notices: a suite that cannot fail proves nothing.

usage: layers.py BUILD_FOLDER [NAME...]
       layers.py --check      only that every mutant still has its place in the sources
Works in a clone of the last commit inside BUILD_FOLDER, so that the sources here stay as they are. Prints a table of mutants and
the test that kills each; exit code 1 if one survives."""
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# name: what is wrong, file, text, text instead
MUTANTS = {
    "norm_gradients": ("the gradients of norms are not added up in sequence parallel", "nn/gradients.cpp",
                       "spec.partial | (cut_axes", "(cut_axes"),
    "kv_gradients": ("the gradients of a KV head that several ranks keep are not added up", "nn/gradients.cpp",
                     "spec.partial | (cut_axes(spec.placement) & AxisSet(Axis::tp))", "spec.partial"),
    "qk_norm_gradients": ("the gradients of the norm of q are not added up over ranks with other heads", "nn/attention.cpp",
                          'register_module("q_norm", std::make_shared<RmsNorm>(d, options.norm_eps, tp.group, Axis::tp))',
                          'register_module("q_norm", std::make_shared<RmsNorm>(d, options.norm_eps, tp.group))'),
    "bias_everywhere": ("the bias of a row-parallel layer is added on every rank, before the sum", "nn/linear.cpp",
                        "const at::Tensor y = tp_.add_up(part);\n  return bias_D.defined() ? y + bias_D : y;",
                        "return tp_.add_up(bias_D.defined() ? part + bias_D : part);"),
    "same_dropout_where_cut": ("ranks with other tokens drop the same elements", "model/decoder.cpp",
                               "tp_.own_tokens(context.rows_T())", "context.rows_T().narrow(0, 0, tp_.own_tokens(context.rows_T()).size(0))"),
    "same_dropout_of_heads": ("ranks with other heads drop the same probabilities", "nn/attention.cpp",
                              "at::arange(tp_.rank() * h, (tp_.rank() + 1) * h, whole)", "at::arange(0, h, whole)"),
    "qkv_interleave": ("fused q, k and v are cut as one block", "nn/attention.cpp",
                       "return fused_qkv(Axis::tp, 0, o.heads, o.kv_heads, o.head_dim).chunks;",
                       "return {{(o.heads + 2 * o.kv_heads) * o.head_dim, 0}};"),
    "padded_vocabulary": ("entries that pad the vocabulary take part in the softmax", "nn/cross_entropy.cpp",
                          "const Head head{weight_vD.detach().narrow(0, 0, own.size()), own,",
                          "const Head head{weight_vD.detach(), {own.begin, own.begin + weight_vD.size(0)},"),
    "vocabulary_border": ("the last entry of a shard is nobody's", "nn/embedding.cpp",
                          "logical_or_(ids_T.ge(own.end))", "logical_or_(ids_T.ge(tp_.rank() + 1 < tp_.size() ? own.end - 1 : own.end))"),
    "target_border": ("the second rank looks for its targets one entry too far", "nn/cross_entropy.cpp",
                      "kernels::exp_sums_(logits_Cv, max_C, targets_C, head.own.begin,",
                      "kernels::exp_sums_(logits_Cv, max_C, targets_C, head.own.begin + (head.tp.rank() == 1 ? 1 : 0),"),
    "softmax_of_a_shard": ("each rank normalises by the sum of its own entries", "nn/cross_entropy.cpp",
                           "const at::Tensor scale_C = counts_C / sum_exp_C *",
                           "const at::Tensor scale_C = counts_C / logits_Cv.sum(1) *"),
    "no_dx_sum": ("the gradient of a column-parallel layer's input is not added up", "nn/parallel_matmul.cpp",
                  "if (how.input == Input::replicated) reducing", "if (false) reducing"),
    "gathered_twice": ("the gradient of a gathered output is added up although it is whole", "nn/linear.cpp",
                       "differentiable::gather_replicated(y_Tf, 1, tp_.group)", "differentiable::all_gather(y_Tf, 1, tp_.group)"),
    "positions_of_rank_0": ("every rank takes the positions of the first tokens", "model/decoder.cpp",
                            "positions_->forward(tp_.own_tokens(context.positions_T))",
                            "positions_->forward(context.positions_T.narrow(0, 0, tp_.own_tokens(context.positions_T).size(0)))"),
    "kv_heads_tiled": ("query heads take the keys of KV heads in turn instead of in groups", "nn/attention.cpp",
                       "k.to(wide).repeat_interleave(repeats, 1)", "k.to(wide).repeat({1, repeats, 1, 1})"),
    "init_by_rank": ("initial values depend on the rank", "nn/init.cpp",
                     "const Stream stream(options.seed,", "const Stream stream(options.seed + static_cast<std::uint64_t>(rank),"),
    "rebuilt_from_other": ("selective recompute makes the second norm's output from the first one's input", "model/decoder.cpp",
                           "again(*mlp_norm_, y_tD)", "again(*mlp_norm_, x_tD)"),
    "recompute_other_numbers": ("what is recomputed draws other random numbers", "nn/recompute.cpp",
                                "if (call.generators) same_numbers", "if (false) same_numbers"),
    "window_off_by_one": ("a token sees one more than its window", "nn/attention.cpp",
                          "sees.triu_(1 - options_.window)", "sees.triu_(-options_.window)"),
    "not_transposed": ("GPT-2's matrices are read without turning them", "model/hugging_face.cpp",
                       "copy_(name.transposed ? slice.t() : slice)", "copy_(name.transposed && slice.size(0) != slice.size(1) ? slice.t() : slice)"),
    "broken_tie": ("the tied head has no gradient", "model/decoder.cpp",
                   "sharded_cross_entropy(hidden(ids_T, context), head_weight(), targets_T",
                   "sharded_cross_entropy(hidden(ids_T, context), head_weight().detach(), targets_T"),
    "ignored_tokens_count": ("tokens to be ignored count", "nn/cross_entropy.cpp",
                             "const at::Tensor counts_C = targets_C.ne(head.options.ignore_index).to(type);",
                             "const at::Tensor counts_C = at::ones(targets_C.sizes(), logits_Cv.options());"),
    "sampler_offset": ("a sampled entry is numbered from this rank's first", "nn/sampler.cpp",
                       "copy_(first_b1 + first_entry)", "copy_(first_b1 + 0 * first_entry)"),
}
TARGETS = ["trireme_nn_test", "trireme_model_test", "trireme_parity_test", "trireme_parity_peer"]


def run(words, **how):
    return subprocess.run(words, capture_output=True, text=True, **how)


def killer(clone, build):
    """The first test that fails, or None."""
    for program in ("nn", "model", "parity"):
        try:
            result = run([build / "tests" / f"trireme_{program}_test"], timeout=600)
        except subprocess.TimeoutExpired:
            return f"trireme_{program}_test (hangs)"
        if result.returncode != 0:
            failed = re.findall(r"^\[  FAILED  \] (\w+\.\w+)", result.stdout, re.M)
            return failed[0] if failed else f"trireme_{program}_test (exit {result.returncode})"
    judge = ROOT / ".venv/bin/python"
    result = run([judge if judge.exists() else sys.executable, clone / "tests/peers/transformers_agrees.py",
                  build / "tests/trireme_parity_peer"], timeout=600)
    return "peers.transformers" if result.returncode != 0 else None


def check_places():
    for name, (_, file, old, _) in MUTANTS.items():
        if old not in (ROOT / "trireme" / file).read_text():
            sys.exit(f"layers.py: error: {name}: {file} no longer holds: {old}")


def main():
    check_places()
    if sys.argv[1] == "--check":
        return
    clone = Path(sys.argv[1]).resolve() / "mutants"
    wanted = sys.argv[2:] or list(MUTANTS)
    torch = run([ROOT / "tools/find_torch"]).stdout.strip()
    if not clone.exists():
        run(["git", "clone", "-q", ROOT, clone], check=True)
    run(["git", "fetch", "-q"], cwd=clone, check=True)
    run(["git", "reset", "-q", "--hard", "origin/HEAD"], cwd=clone, check=True)
    build = clone / "build/release"

    def make():
        return run(["ninja", "-C", build, *TARGETS])

    environment = {**os.environ, "TRIREME_TORCH": torch}
    run(["cmake", "--preset", "release"], cwd=clone, env=environment, check=True)
    first = make()
    if first.returncode != 0 or (broken := killer(clone, build)) is not None:
        sys.exit(f"layers.py: error: the unbroken code does not pass: {first.stdout[-2000:] if first.returncode else broken}")
    survivors = 0
    for name in wanted:
        what, file, old, new = MUTANTS[name]
        path = clone / "trireme" / file
        sound = path.read_text()
        path.write_text(sound.replace(old, new, 1))
        built = make()
        if built.returncode != 0:
            sys.exit(f"layers.py: error: {name} does not compile, which proves nothing:\n{built.stdout[-3000:]}")
        found = killer(clone, build)
        survivors += found is None
        print(f"| `{name}` | {what} | {found or 'SURVIVED'} |", flush=True)
        path.write_text(sound)
    print(f"{len(wanted)} mutants, {survivors} survived")
    sys.exit(survivors > 0)


if __name__ == "__main__":
    main()
