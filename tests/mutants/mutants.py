#!/usr/bin/env python3
"""Breaks the code, one way at a time, and asks which test notices: a suite that cannot fail proves nothing.

usage: mutants.py BUILD_FOLDER [NAME...]   NAME: of a mutant, or layers, training, pipelines, context, experts, modules or memory
       mutants.py --check      only that every mutant still has its place in the sources
Works in a clone of the last commit inside BUILD_FOLDER, so that the sources here stay as they are. Prints a table of mutants and
the test that kills each; exit code 1 if one survives."""
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# name: what is wrong, file, text, text instead
LAYERS = {
    "norm_gradients": ("the gradients of norms are not added up in sequence parallel", "layout/param_layout.cpp",
                       "spec.partial | cut_axes(", "cut_axes("),
    "kv_gradients": ("the gradients of a KV head that several ranks keep are not added up", "layout/param_layout.cpp",
                     "spec.partial | cut_axes(spec.placement);", "spec.partial;"),
    "qk_norm_gradients": ("the gradients of the norm of q are not added up over ranks with other heads", "model/grouped_query_attention.cpp",
                          'register_module("q_norm", std::make_shared<RmsNorm>(d, options.norm_eps, parallel, Axis::tp))',
                          'register_module("q_norm", std::make_shared<RmsNorm>(d, options.norm_eps, parallel))'),
    "bias_everywhere": ("the bias of a row-parallel layer is added on every rank, before the sum", "parallel/tensor/linear.cpp",
                        "if (bias_D.defined() && !bias_of_product().defined()) y = y + bias_D;",
                        "if (bias_D.defined() && !bias_of_product().defined()) y = y + bias_D * parallel_.tp.size();"),
    "same_dropout_where_cut": ("ranks with other tokens drop the same elements", "model/decoder.cpp",
                               "parallel_.own_tokens(context.rows_T())", "context.rows_T().narrow(0, 0, parallel_.own_tokens(context.rows_T()).size(0))"),
    "same_dropout_of_heads": ("ranks with other heads drop the same probabilities", "model/grouped_query_attention.cpp",
                              "at::arange(parallel_.tp.rank() * h, (parallel_.tp.rank() + 1) * h, whole)", "at::arange(0, h, whole)"),
    "qkv_interleave": ("fused q, k and v are cut as one block", "model/grouped_query_attention.cpp",
                       "return fused_qkv(Axis::tp, 0, o.heads, o.kv_heads, o.head_dim).sections;",
                       "return {{(o.heads + 2 * o.kv_heads) * o.head_dim, 0}};"),
    "padded_vocabulary": ("entries that pad the vocabulary take part in the softmax", "parallel/tensor/cross_entropy.cpp",
                          "const Head head{weight_vD.detach(), own,",
                          "const Head head{weight_vD.detach(), {own.begin, own.begin + weight_vD.size(0)},"),
    "padding_columns": ("what pads the logits is left as it is, and is multiplied in backward", "parallel/tensor/cross_entropy.cpp",
                        "if (padding > 0 && !fused)", "if (false)"),
    "vocabulary_border": ("the last entry of a shard is nobody's", "parallel/tensor/embedding.cpp",
                          "logical_or_(ids_T.ge(own.end))", "logical_or_(ids_T.ge(parallel_.tp.rank() + 1 < parallel_.tp.size() ? own.end - 1 : own.end))"),
    "target_border": ("the second rank looks for its targets one entry too far", "parallel/tensor/cross_entropy.cpp",
                      "kernels::exp_sums_(logits_Cv, max_C, targets_C, head.own.begin,",
                      "kernels::exp_sums_(logits_Cv, max_C, targets_C, head.own.begin + (head.tp.rank() == 1 ? 1 : 0),"),
    "softmax_of_a_shard": ("each rank normalises by the sum of its own entries", "parallel/tensor/cross_entropy.cpp",
                           "const at::Tensor scale_C = weights_C / sums.sum_exp_C *",
                           "const at::Tensor scale_C = weights_C / sums.exp_Cv.sum(1) *"),
    "no_dx_sum": ("the gradient of a column-parallel layer's input is not added up", "parallel/tensor/parallel_matmul.cpp",
                  "if (how.input == Input::replicated) reducing", "if (false) reducing"),
    "gathered_twice": ("the gradient of a gathered output is added up although it is whole", "parallel/tensor/linear.cpp",
                       "differentiable::gather_replicated(y_Tf, 1, parallel_.tp)", "differentiable::all_gather(y_Tf, 1, parallel_.tp)"),
    "positions_of_rank_0": ("every rank takes the positions of the first tokens", "model/decoder.cpp",
                            "positions_->forward(parallel_.own_tokens(context.model_positions_T()))",
                            "positions_->forward(context.positions_T.narrow(0, 0, parallel_.own_tokens(context.positions_T).size(0)))"),
    "kv_heads_tiled": ("the KV heads of dropped attention are tiled over the query heads, not repeated for those that share them",
                       "kernels/attention/dropped_attention.cpp", "x.repeat_interleave(h / x.size(1), 1)", "x.repeat({1, h / x.size(1), 1, 1})"),
    "init_by_rank": ("initial values depend on the rank", "nn/init.cpp",
                     "const RandomStream stream(options.seed,", "const RandomStream stream(options.seed + static_cast<std::uint64_t>(mesh.mesh().rank()),"),
    "rebuilt_from_other": ("selective recompute makes the second norm's output from the first one's input", "model/block.cpp",
                           "again(*mlp_norm_, after_tD)", "again(*mlp_norm_, x_tD)"),
    "recompute_other_numbers": ("what is recomputed draws other random numbers", "nn/recompute.cpp",
                                "if (call.generators) same_numbers", "if (false) same_numbers"),
    "window_off_by_one": ("a token sees one more than its window", "model/attention.cpp",
                          "sees.triu_(1 - window)", "sees.triu_(-window)"),
    "not_transposed": ("GPT-2's matrices are read without turning them", "model/hugging_face.cpp",
                       "copy_(name.transposed ? slice.t() : slice)", "copy_(name.transposed && slice.size(0) != slice.size(1) ? slice.t() : slice)"),
    "broken_tie": ("the tied head has no gradient", "model/decoder.cpp",
                   "sharded_cross_entropy(x_tD, head_weight(), targets_T",
                   "sharded_cross_entropy(x_tD, head_weight().detach(), targets_T"),
    "ignored_tokens_count": ("tokens to be ignored count", "parallel/tensor/cross_entropy.cpp",
                             "return targets_C.ne(head.options.ignore_index).to(type);",
                             "static_cast<void>(head);\n  return at::ones(targets_C.sizes(), targets_C.options().dtype(type));"),
    "sampler_offset": ("a sampled entry is numbered from this rank's first", "parallel/tensor/sampler.cpp",
                       "copy_(first_b1 + first_entry)", "copy_(first_b1 + 0 * first_entry)"),
}
TRAINING = {
    "never_divided": ("the loss is not divided by the number of tokens", "train/run/trainer_step.cpp",
                      "{ return scale / tokens.total().clamp_min(1); }", "{ return scale * at::ones_like(tokens.total()); }"),
    "divided_twice": ("the loss is divided by the number of tokens twice", "train/run/trainer_step.cpp",
                      "{ return scale / tokens.total().clamp_min(1); }",
                      "{ return scale / tokens.total().clamp_min(1) / tokens.total().clamp_min(1); }"),
    "mean_of_microbatches": ("the loss of each microbatch is averaged over its own tokens", "train/step/training_model.cpp",
                             "return decoder.loss_of_hidden(hidden, microbatch.targets_T, options).loss;",
                             "return decoder.loss_of_hidden(hidden, microbatch.targets_T, options).loss / "
                             "std::max<std::int64_t>(1, microbatch.valid);"),
    "dp_without_cp": ("gradients are summed only where cp > 1", "layout/param_layout.cpp",
                      "return grad_sum_axes(spec.placement, token_axes(spec.placement.view));",
                      "return dense_.degree(Axis::cp) > 1 ? grad_sum_axes(spec.placement, token_axes(spec.placement.view)) : AxisSet{};"),
    "counted_twice": ("elements that two ranks keep count twice in the norm", "parallel/zero/grad_norm.cpp",
                      "if (!mesh.is_first_holder(param.spec, i)) continue;", ""),
    "padding_in_the_norm": ("what pads a parameter's last block counts in the norm", "parallel/zero/grad_norm.cpp",
                            "std::min(range.end, piece.of_item.end)", "std::min(range.end + 1, piece.of_item.end + 1)"),
    "padding_travels": ("what pads a bucket is not set to zero", "parallel/zero/grad_reducer.cpp",
                        "if (slot.offset > end) memory.narrow(0, end, slot.offset - end).zero_();", ""),
    "clip_before_unscale": ("the norm is clipped before the loss scale is taken out", "parallel/zero/grad_norm.cpp",
                            "(max_norm / (real_norm + 1e-6))", "(max_norm / (norm + 1e-6))"),
    "decay_on_norms": ("weight decay works on norms and biases too", "parallel/zero/sharded_optimizer.cpp",
                       "const bool decay = is_decayed(", "const bool decay = true || is_decayed("),
    "stale_bucket": ("what no microbatch used keeps the gradient of an earlier step", "parallel/zero/grad_reducer.cpp",
                     "if (!filled_[slot.item]) view(slot.item).zero_();", ""),
    "last_microbatch_only": ("a microbatch overwrites the one before it", "parallel/zero/grad_reducer.cpp",
                             "if (filled_[item])\n    place.add_(gradient);", "if (false)\n    place.add_(gradient);"),
    "second_use_overwrites": ("the second use of a weight overwrites the gradient of the first", "kernels/matmul/gradient_place.cpp",
                              "weight_product_out(value_NK, dy_TN, x_TK, !is_empty)", "weight_product_out(value_NK, dy_TN, x_TK, false)"),
    "microbatch_in_place": ("a microbatch writes over the sum of those before it", "parallel/zero/grad_reducer.cpp",
                           "const bool aside = look_at_ || filled_[item] ||", "const bool aside = look_at_ ||"),
    "master_not_updated": ("the update goes to a copy of the master weights", "parallel/zero/sharded_optimizer.cpp",
                           "{slice(part.master), slice(gradient)", "{slice(part.master).clone(), slice(gradient)"),
    "not_gathered": ("the parts are not brought together after the update", "parallel/zero/sharded_optimizer.cpp",
                     "params_.gather_kept(b);", ""),
    "replicas_apart": ("groups that keep the same parts do not add up their sums", "parallel/zero/grad_reducer.cpp",
                       "if (first.last && partition_.shards().size() > 1 && partition_.replicas().size() > 1) sum_over_replicas(b);", ""),
    "replicas_too_early": ("sums over replicas start with a microbatch that is not the last", "parallel/zero/grad_reducer.cpp",
                           "if (first.last && partition_.shards()", "if (last_ && partition_.shards()"),
    "master_rounded": ("master weights start from the rounded weights of the model", "parallel/zero/sharded_optimizer.cpp",
                       "master.copy_(values);\n  if (!part.is_model)", "master.copy_(values.to(params_.partition().dtype()));\n  if (!part.is_model)"),
    "skipped_step_counts": ("a step that was skipped counts in Adam's bias correction", "parallel/zero/pending_update.cpp",
                            "if (!(std::isfinite(norm) && norm <= skip_above_)) optimizer->forget_step();", "static_cast<void>(optimizer);"),
    "freed_too_early": ("a unit is freed when its first gradient is there", "parallel/zero/grad_reducer.cpp",
                        "if (!first || --missing_[b] > 0) return;", "if (bucket_complete_) bucket_complete_(b);\n  if (!first || --missing_[b] > 0) return;"),
    "experts_not_summed": ("gradients of experts are not summed over edp", "layout/param_layout.cpp",
                           "AxisSet{Axis::edp, Axis::ep}; }", "AxisSet{Axis::ep}; }"),
    "deferred_twice": ("the second deferred use of a weight overwrites the gradient of the first", "parallel/zero/grad_reducer.cpp",
                       "one.write(memory.value, memory.is_empty);", "one.write(memory.value, true);"),
    "matrix_in_two_shards": ("a matrix that an optimizer needs whole is split", "layout/flat_layout.cpp",
                             "whole && shards > 1 ? whole_in_shards(", "false && whole && shards > 1 ? whole_in_shards("),
    "norm_of_one_part": ("the norm counts the first part of the model only", "parallel/zero/zero.cpp",
                         "squares = squares.defined() ? squares + own : own;", "squares = squares.defined() ? squares : own;"),
}
PIPELINES = {
    "tie_not_summed": ("the gradients of a tied embedding and head on two stages are not added up", "parallel/zero/zero.cpp", "  tied_.sum();\n", ""),
    "tie_counted_twice": ("the copy of a tied weight counts in the norm too", "parallel/zero/grad_norm.cpp", "  if (param.spec.is_tied_copy) return out;\n", ""),
    "last_microbatch_dropped": ("the last microbatch has no backward", "parallel/pipeline/executor.cpp",
                                "if (!roots.empty())", "if (!roots.empty() && action.microbatch + 1 < schedule_.microbatches)"),
    "activation_reused": ("what is received overwrites the microbatch before it", "parallel/pipeline/transfer.cpp",
                          "const at::Tensor x = at::empty(shape.sizes, at::TensorOptions(shape.dtype).device(device_));",
                          "static thread_local std::map<std::pair<int, bool>, at::Tensor> kept;\n"
                          "    at::Tensor& memory = kept[{id.edge, gradients}];\n"
                          "    if (!memory.defined() || memory.sizes() != shape.sizes) memory = at::empty(shape.sizes, at::TensorOptions(shape.dtype).device(device_));\n"
                          "    const at::Tensor x = memory.detach();"),
    "scaled_per_stage": ("every stage divides the gradient by the number of stages", "parallel/pipeline/executor.cpp",
                         "for (Tensors& of_edge : receive_for(action))",
                         "std::vector<Tensors> received = receive_for(action);\n"
                         "  for (Tensors& of_edge : received)\n    for (at::Tensor& gradient : of_edge) gradient.div_(schedule_.ranks());\n"
                         "  for (Tensors& of_edge : received)"),
    "sum_in_every_microbatch": ("gradients are summed over dp in every microbatch", "parallel/zero/grad_reducer.hpp",
                                "return last_ || every_microbatch_;", "return true;"),
}
CONTEXT = {
    "rope_from_zero": ("RoPE on a cp rank begins at position 0", "model/decoder.cpp",
                       "rope_->rotation(context.model_positions_T(),", "rope_->rotation(context.model_positions_T() - context.model_positions_T().min(),"),
    "positions_not_cut": ("a cp rank takes the first positions of a sample for its own", "data/sampling/batch.cpp",
                          "write_counted(place.range.begin, place.size(), out.positions.data() + place.index);",
                          "write_counted(0, place.size(), out.positions.data() + place.index);"),
    "part_too_short": ("a query does not see the last key of an earlier rank's first part", "layout/context_split.cpp",
                       "AttentionPart{all, {0, length / 2}}", "AttentionPart{all, {0, length / 2 - 1}}"),
    "mask_off_by_one": ("a query sees the key after it, where a mask is made", "parallel/context/ring_attention.cpp", "distance_qk.ge(0)", "distance_qk.ge(-1)"),
    "merged_without_maximum": ("blocks are merged without subtracting the larger log-sum-exp", "kernels/attention/attention_block.cpp",
                               "at::logaddexp(sum.lse, block.lse)", "(sum.lse.exp() + block.lse.exp()).log()"),
    "merged_in_16_bits": ("the merged output is rounded to the model's dtype after every block", "parallel/context/ring_attention.cpp",
                          "copy_(both.out);", "copy_(both.out.to(q.scalar_type()));"),
    "keys_not_returned": ("the gradients of K and V that other ranks computed are lost", "parallel/context/ring_attention.cpp",
                          "      own_.add_(arriving_);\n", ""),
}
EXPERTS = {
    "expert_gradients_halved": ("the gradients of experts are divided by the ranks of ep, as if each had its own tokens only",
                                "kernels/matmul/grouped_linear.cpp", "write_gradients(value, is_empty, dy, x, rows);",
                                "write_gradients(value, is_empty, dy / 2, x, rows);"),
    "experts_counted_twice": ("experts count twice in the norm", "parallel/zero/zero.cpp",
                              "squares = squares.defined() ? squares + own : own;", "squares = squares.defined() ? squares + 2 * own : own;"),
    "dropped_tokens_kept": ("tokens that an expert has no room for are sent to it", "parallel/expert/experts.cpp",
                            "if (routing.keeps_Tk.defined())", "if (false)"),
    "capacity_of_a_rank": ("capacity counts the tokens of one rank", "parallel/expert/router.cpp",
                           "if (sample_group_.size() > 1) {\n    const at::Tensor gathered", "if (false) {\n    const at::Tensor gathered"),
    "balance_of_a_rank": ("the balancing loss counts the choices of one rank", "parallel/expert/router.cpp",
                          "if (sample_group_.size() > 1) counts_bE =", "if (false) counts_bE ="),
    "router_not_summed": ("the gradients of a router on ranks with other tokens or parts of experts are not added up", "parallel/expert/router.cpp",
                          "parallel.tp.size() > 1 ? AxisSet(Axis::tp) : AxisSet()", "AxisSet()"),
    "routed_again": ("a recomputed forward chooses its experts again", "parallel/expert/router.cpp", "const bool again = context", "const bool again = false && context"),
    "bias_in_weights": ("the selection bias changes the weights of experts too", "parallel/expert/router.cpp", "scores_TE.gather(1, experts_Tk);",
                        "(selection_bias_E.defined() ? scores_TE + selection_bias_E : scores_TE).gather(1, experts_Tk);"),
    "rows_of_the_wrong_expert": ("rows that arrive are sorted by the rank that sent them", "parallel/expert/experts.cpp",
                                 "for (std::size_t i = e; i < counts_of_ranks.size(); i += experts)",
                                 "for (std::size_t i = e * counts_of_ranks.size() / experts; i < (e + 1) * counts_of_ranks.size() / experts; ++i)"),
}
MODULES = {
    "shards_without_partial_sums": ("partial gradients of tensor-parallel layers are not added up before they are sharded",
                                    "module/flat_parameters.cpp", "  partial_.sum([&]", "  if (false) partial_.sum([&]"),
    "experts_of_few_ranks": ("the gradients of experts are means over the ranks that hold them alone", "module/flat_parameters.cpp",
                             "reduce_(ranks.mean_over == ranks.all->size() ?", "reduce_(true ?"),
    "copies_of_experts": ("in a pipeline of copies the gradients of experts are means over too few ranks", "module/pipeline.cpp",
                          "if (same.size() != tokens)", "if (false && tokens > 0)"),
    "earlier_step_lost": ("a second step of a pipeline forgets the gradients of the first", "module/pipeline.cpp", "    earlier.add_new_ones();\n", ""),
    "module_replicas_apart": ("groups that keep the same shards of a module do not add up their sums", "module/flat_parameters.cpp",
                              "if (ranks_.shards && ranks_.replicas) parts", "if (false) parts"),
    "own_values_kept": ("modules between tensor-parallel layers keep the values that each rank has drawn", "module/flat_parameters.cpp",
                        "if (ranks_.mesh == nullptr) return;", "return;"),
    "replicas_in_module_norm": ("elements that several ranks keep count several times in the norm of a module", "module/kept_tensor.cpp",
                                "saved_slices(one, {&flat, 1}, mesh)", "held_slices(one, {&flat, 1}, mesh)"),
}
MEMORY = {
    "writer_not_woken": ("a writer that waits for room is not told that there is some", "comm/backends/shared_memory/byte_stream.cpp",
                         "return writer().wants_room.load() != 0 && writer().wants_room.exchange(0) != 0;", "return false;"),
    "slow_reader_overrun": ("the last reader of a ring does not hold its writer up", "comm/backends/shared_memory/byte_stream.cpp",
                            "for (int r = 0; r < readers_; ++r) slowest", "for (int r = 0; r + 1 < readers_; ++r) slowest"),
    "phases_overlap": ("an all_reduce sends on what it has not yet summed", "comm/backends/shared_memory/exchange.cpp",
                       "if (is_written() || written_phases_ > read_phases_) return false;", "if (is_written()) return false;"),
    "sum_over_unsent": ("a sum in place overwrites input that has not yet been sent", "comm/backends/shared_memory/exchange.cpp",
                        "if (sum.over_input && !is_written())", "if (false)"),
    "counts_not_compared": ("the rows that a rank sends and those that another expects may differ", "comm/backends/shared_memory/exchange.cpp",
                            "if (theirs[mine] != expected)", "if (false)"),
    "calls_not_compared": ("ranks that make different calls exchange their data", "comm/backends/shared_memory/shared_memory_group.cpp",
                           "  if (same) return;\n", "  if (same || size() > 0) return;\n"),
    "messages_not_compared": ("a message is received as another one", "comm/backends/shared_memory/shared_memory_group.cpp",
                              "if (!same_message(sent, record))", "if (false)"),
    "end_of_rank_unseen": ("a rank that has ended is waited for", "comm/backends/shared_memory/shared_memory_group.cpp",
                           "if (!ended && !memory_.has_left(r)) continue;", "continue;"),
}
MUTANTS = {**LAYERS, **TRAINING, **PIPELINES, **CONTEXT, **EXPERTS, **MODULES, **MEMORY}
TARGETS = ["trireme_comm_test", "trireme_layout_test", "trireme_data_test", "trireme_kernels_test", "trireme_nn_test", "trireme_parallel_test",
           "trireme_model_test", "trireme_module_test", "trireme_parity_test", "trireme_parity_peer", "trireme", "trireme_samples_tool"]


def run(words, **how):
    return subprocess.run(words, capture_output=True, text=True, **how)


def killer(clone, build, programs, peer_tests):
    """The first test that fails, or None."""
    for program in programs:
        try:
            result = run([build / "tests" / f"trireme_{program}_test"], timeout=600)
        except subprocess.TimeoutExpired:
            return f"trireme_{program}_test (hangs)"
        if result.returncode != 0:
            failed = re.findall(r"^\[  FAILED  \] (\w+\.\w+)", result.stdout, re.M)
            return failed[0] if failed else f"trireme_{program}_test (exit {result.returncode})"
    python = ROOT / ".venv/bin/python"
    for name, script, *tools in peer_tests:
        result = run([python if python.exists() else sys.executable, clone / "tests/peers" / script, *(build / tool for tool in tools)],
                     timeout=900)
        if result.returncode != 0:
            return name
    return None


def killers_of(name):
    if name in LAYERS:
        return ("nn", "parallel", "model", "parity"), [("peers.transformers", "transformers_agrees.py", "tests/trireme_parity_peer")]
    if name in MODULES:
        return ("module",), []
    if name in MEMORY:
        return ("comm",), []
    if name in EXPERTS:
        return ("parallel", "parity"), []
    if name in CONTEXT:
        return ("layout", "data", "parallel", "parity"), []
    return ("kernels", "parallel", "parity"), [("peers.training", "training_agrees.py", "trireme", "tests/trireme_samples_tool")]


def check_places():
    for name, (_, file, old, _) in MUTANTS.items():
        if old not in (ROOT / "trireme" / file).read_text():
            sys.exit(f"mutants.py: error: {name}: {file} no longer holds: {old}")


def main():
    check_places()
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    if sys.argv[1] == "--check":
        return
    clone = Path(sys.argv[1]).resolve() / "mutants"
    sets = {"layers": list(LAYERS), "training": list(TRAINING), "pipelines": list(PIPELINES), "context": list(CONTEXT),
            "experts": list(EXPERTS), "modules": list(MODULES), "memory": list(MEMORY)}
    wanted = [name for word in sys.argv[2:] or sets for name in sets.get(word, [word])]
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
    if first.returncode != 0:
        sys.exit(f"mutants.py: error: the unbroken code does not compile: {first.stdout[-2000:]}")
    for programs, peer_tests in {str(killers_of(name)): killers_of(name) for name in wanted}.values():
        if (broken := killer(clone, build, programs, peer_tests)) is not None:
            sys.exit(f"mutants.py: error: the unbroken code does not pass: {broken}")
    survivors = 0
    for name in wanted:
        what, file, old, new = MUTANTS[name]
        path = clone / "trireme" / file
        sound = path.read_text()
        path.write_text(sound.replace(old, new, 1))
        built = make()
        if built.returncode != 0:
            sys.exit(f"mutants.py: error: {name} does not compile, which proves nothing:\n{built.stdout[-3000:]}")
        found = killer(clone, build, *killers_of(name))
        survivors += found is None
        print(f"| `{name}` | {what} | {found or 'SURVIVED'} |", flush=True)
        path.write_text(sound)
    print(f"{len(wanted)} mutants, {survivors} survived")
    sys.exit(survivors > 0)


if __name__ == "__main__":
    main()
