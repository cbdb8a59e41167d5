#include "trireme/checkpoint/reshape/reshape.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/format/commit.hpp"
#include "trireme/describe/parameters.hpp"
#include "trireme/describe/pipeline.hpp"
#include "trireme/layout/box_copy.hpp"
#include "trireme/testing/checkpoint_helpers.hpp"
#include "trireme/testing/model_checkpoint.hpp"
#include "trireme/testing/model_helpers.hpp"
#include "trireme/testing/recording_fs.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::checkpoint {
namespace {

namespace stdfs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

struct Layout {
  std::int64_t pp = 1, dp = 1, cp = 1, tp = 1, virtual_stages = 1, zero = 1, replicate = 1;
  std::int64_t ep = 1, expert_tp = 0;  // 0: tp

  LayoutChanges changes() const {
    return {{"pp", pp},
            {"dp", dp},
            {"cp", cp},
            {"tp", tp},
            {"ep", ep},
            {"expert_tp", expert_tp > 0 ? expert_tp : tp},
            {"virtual_stages", virtual_stages},
            {"zero", zero},
            {"replicate", replicate}};
  }
  std::string str() const {
    return text("pp", pp, "-dp", dp, "-cp", cp, "-tp", tp, "-v", virtual_stages, "-zero", zero, "-r", replicate, "-ep",
                ep, "-etp", expert_tp);
  }
};

const std::vector<Layout> kReshapeLayouts{{},
                                          {.dp = 2},
                                          {.dp = 4, .zero = 3},
                                          {.dp = 4, .zero = 2, .replicate = 2},
                                          {.tp = 2},
                                          {.tp = 4},
                                          {.dp = 2, .tp = 2},
                                          {.pp = 2},
                                          {.pp = 4, .zero = 0},
                                          {.pp = 2, .virtual_stages = 2},
                                          {.pp = 2, .tp = 4},
                                          {.pp = 2, .dp = 2, .tp = 2, .virtual_stages = 2},
                                          {.dp = 3, .cp = 2},
                                          {.pp = 4, .dp = 2, .cp = 1, .tp = 2}};

/// Four layers; with fewer key-value heads than tp, and a vocabulary that no tp divides.
ModelConfig four_layers(const std::string& family, bool tied) {
  ModelConfig m = small_model(family);
  m.num_hidden_layers = 4;
  m.num_key_value_heads = family == "gpt2" ? 4 : 1;
  m.tie_word_embeddings = tied;
  m.attention_bias = true;
  return m;
}

class Reshape : public testing::Test {
 protected:
  Reader reshaped(const Reader& source, const Layout& layout) {
    const stdfs::path out = folder_.path() / text("out-", made_++);
    const Reshaped made = reshape(source, out, options(layout.changes()));
    EXPECT_EQ(made.path, out / step_of(source));
    return Reader(made.path);
  }
  ReshapeOptions options(LayoutChanges to) {
    ReshapeOptions out{.to = std::move(to), .program = "trireme test", .time = "2026-11-16T15:00:00Z"};
    out.fs = &fs_;
    return out;
  }
  static std::string step_of(const Reader& source) { return text("step-", source.manifest().training.step); }
  Reader saved(const ModelConfig& m) { return Reader(save_model(fs_, folder_.path() / text("in-", made_++), m)); }

  TempFolder folder_{memory_folder()};
  UnsyncedFs fs_;
  int made_ = 0;
};

/// All that does not differ by chance between two saves.
Manifest without_id(Manifest manifest) {
  manifest.id.clear();
  for (StoredFile& file : manifest.files)
    if (is_rank_file(file.name)) file.header_hash = {};  // it has the id
  return manifest;
}

std::map<std::string, std::string> without_random(std::map<std::string, std::string> tensors) {
  std::erase_if(tensors, [](const auto& tensor) { return tensor.first.ends_with(" random"); });
  return tensors;
}

/// Whether the slice is inside what this rank of the layout holds.
bool may_hold(const ModelConfig& m, const ParallelismConfig& p, int rank, const StoredTensor& tensor,
              const StoredSlice& slice) {
  const Grid grid = Grid::dense({.pp = static_cast<int>(p.pp),
                                 .dp = static_cast<int>(p.dp),
                                 .cp = static_cast<int>(p.cp),
                                 .tp = static_cast<int>(p.tp)});
  if (stage_of_parameter(pipeline_chunks(m, p), tensor.name) != grid.coord(rank, Axis::pp)) return false;
  const Placement placement = parameter_named(m, tensor.name).spec.placement;
  const Grid held =
      placement.view == View::dense ? grid : expert_view(grid, static_cast<int>(p.ep), static_cast<int>(p.expert_tp));
  for (const Piece& piece : pieces(placement, tensor.shape, held, rank))
    if (intersection(slice.box, box_of(piece.slices.global_slices)) == slice.box) return true;
  return false;
}

void expect_each_rank_has_its_own(const ModelConfig& m, const Layout& layout, const Manifest& manifest) {
  ParallelismConfig p;
  p.pp = layout.pp, p.dp = layout.dp, p.cp = layout.cp, p.tp = layout.tp, p.virtual_stages = layout.virtual_stages;
  p.ep = layout.ep, p.expert_tp = layout.expert_tp;
  if (layout.virtual_stages > 1) p.pp_schedule = "interleaved-1f1b";
  const std::int64_t world = layout.pp * layout.dp * layout.cp * layout.tp;
  EXPECT_EQ(manifest.layout.at("world"), world);
  EXPECT_EQ(std::ranges::count_if(manifest.files, is_rank_file, &StoredFile::name), 2 * world) << "each with its part";
  for (const StoredTensor& tensor : manifest.tensors)
    for (const StoredSlice& slice : tensor.slices) {
      if (tensor.kind == kRandom) continue;
      const int rank = std::stoi(manifest.files[slice.file].name.substr(5));
      EXPECT_TRUE(may_hold(m, p, rank, tensor, slice))
          << layout.str() << ": rank " << rank << " has " << tensor.name << " " << str(slice.box);
    }
}

/// A -> B has the tensors of A, and A -> B -> C the files of A -> C; so A -> B -> A those of A.
TEST_F(Reshape, AnyLayoutToAnyOther) {
  const bool all = std::getenv("TRIREME_CAMPAIGN") != nullptr;
  const std::size_t n = kReshapeLayouts.size();
  for (const auto& [family, tied] : {std::pair{"llama", false}, std::pair{"gpt2", true}, std::pair{"qwen3", true}}) {
    if (!all && family == std::string("qwen3")) continue;
    const ModelConfig m = four_layers(family, tied);
    const Reader origin = saved(m);
    const auto tensors = without_random(full_tensors(origin));
    std::vector<Manifest> direct;
    std::vector<Reader> readers;
    for (const Layout& layout : kReshapeLayouts) {
      readers.push_back(reshaped(origin, layout));
      direct.push_back(without_id(readers.back().manifest()));
      EXPECT_EQ(without_random(full_tensors(readers.back())), tensors) << family << " " << layout.str();
      EXPECT_EQ(readers.back().small_file("config.json"), origin.small_file("config.json"));
      expect_each_rank_has_its_own(m, layout, direct.back());
    }
    for (std::size_t a = 0; a < n; ++a)
      for (std::size_t b = 0; b < n; ++b) {
        if (!all && (5 * a + 3 * b) % 11 != 0) continue;  // every layout is there on both sides
        Manifest there = without_id(reshaped(readers[a], kReshapeLayouts[b]).manifest());
        // Of one rank, the origin has a state of the generators, which no way over other numbers of ranks keeps.
        std::erase_if(there.tensors, [](const StoredTensor& tensor) { return tensor.kind == kRandom; });
        Manifest expected = direct[b];
        std::erase_if(expected.tensors, [](const StoredTensor& tensor) { return tensor.kind == kRandom; });
        if (b == 0) expected.files = there.files;  // with and without that state they differ in size
        if (b == 0)
          for (std::size_t i = 0; i < expected.tensors.size(); ++i)
            for (std::size_t j = 0; j < expected.tensors[i].slices.size(); ++j)
              expected.tensors[i].slices[j].offset = there.tensors[i].slices[j].offset;
        EXPECT_TRUE(there == expected) << family << ": " << kReshapeLayouts[a].str() << " to "
                                       << kReshapeLayouts[b].str();
      }
  }
}

/// Random models and layouts.
class AnyLayout {
 public:
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  ModelConfig model() {
    const std::vector<std::string> families{"gpt2",  "llama",   "mistral",   "qwen2",
                                            "qwen3", "mixtral", "qwen3_moe", "gemma2"};
    ModelConfig m = small_model(families[static_cast<std::size_t>(pick(0, 7))]);
    m.num_hidden_layers = pick(1, 5);
    m.num_key_value_heads = m.model_type == "gpt2" ? 4 : 1 << pick(0, 2);
    m.tie_word_embeddings = pick(0, 1) == 1;
    m.vocab_size = pick(1, 70);
    return m;
  }
  Layout layout(const ModelConfig& m) {
    Layout out{.pp = pick(1, m.num_hidden_layers),
               .dp = pick(1, 3),
               .cp = pick(1, 2),
               .tp = 1 << pick(0, 2),
               .zero = pick(0, 3)};
    out.virtual_stages = pick(1, m.num_hidden_layers / out.pp);
    if (m.num_local_experts == 0) return out;
    out.expert_tp = out.tp >> pick(0, out.tp == 4 ? 2 : out.tp == 2 ? 1 : 0);
    const std::int64_t places = out.dp * out.cp * out.tp / out.expert_tp;
    for (const std::int64_t ep : {2, 4})
      if (places % ep == 0 && pick(0, 2) > 0) out.ep = ep;
    return out;
  }

 private:
  std::mt19937_64 random_{7};
};

TEST_F(Reshape, AnyModelOverAnyWay) {
  const int cases = std::getenv("TRIREME_CAMPAIGN") != nullptr ? 500 : 14;
  AnyLayout any;
  for (int i = 0; i < cases; ++i) {
    const ModelConfig m = any.model();
    const Reader origin = saved(m);
    const Layout a = any.layout(m), b = any.layout(m), c = any.layout(m);
    const Reader at_a = reshaped(origin, a), at_b = reshaped(at_a, b), at_c = reshaped(at_b, c);
    const auto tensors = without_random(full_tensors(origin));
    const std::string way = text(m.model_type, " ", a.str(), " to ", b.str(), " to ", c.str());
    EXPECT_TRUE(without_random(full_tensors(at_b)) == tensors) << way;
    EXPECT_TRUE(without_random(full_tensors(at_c)) == tensors) << way;
    EXPECT_TRUE(without_random(full_tensors(reshaped(at_b, a))) == tensors) << way << ", and back";
    expect_each_rank_has_its_own(m, c, at_c.manifest());
    stdfs::remove_all(folder_.path());
    stdfs::create_directory(folder_.path());
  }
}

std::vector<std::string> parameters_in_file(const Manifest& manifest, std::size_t file) {
  std::vector<std::string> out;
  for (const StoredTensor& tensor : manifest.tensors)
    if (tensor.kind == kWeight && std::ranges::any_of(tensor.slices, [&](const auto& s) { return s.file == file; }))
      out.push_back(tensor.name.substr(0, tensor.name.starts_with("layers.") ? 8 : std::string::npos));
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

TEST_F(Reshape, StagesAndShards) {
  ModelConfig m = four_layers("llama", false);
  m.vocab_size = 8;  // a light head
  const Reader pipeline = reshaped(saved(m), {.pp = 2, .virtual_stages = 2});
  EXPECT_EQ(parameters_in_file(pipeline.manifest(), 0),
            (std::vector<std::string>{"embedding.weight", "layers.0", "layers.2"}));
  EXPECT_EQ(parameters_in_file(pipeline.manifest(), 2),
            (std::vector<std::string>{"head.weight", "layers.1", "layers.3", "norm.weight"}));
  EXPECT_EQ(pipeline.manifest().config.at("parallelism.pp_schedule"), "\"interleaved-1f1b\"");

  // 4 heads of 4 columns, one key-value head for both ranks: rows 16 to 24, saved by one of them.
  const Reader shards = reshaped(pipeline, {.tp = 2});
  EXPECT_EQ(shards.manifest().config.at("parallelism.pp_schedule"), "\"1f1b\"");
  std::map<std::size_t, std::vector<std::string>> boxes;
  for (const StoredSlice& slice : find(shards.manifest(), "layers.0.attention.qkv.weight", kWeight)->slices)
    boxes[slice.file / 2].push_back(str(slice.box));
  const bool first_saves = boxes[0].size() == 3;
  const std::string k = "[16:20, 0:16]", v = "[20:24, 0:16]";
  EXPECT_EQ(boxes[0], first_saves ? (std::vector<std::string>{"[0:8, 0:16]", k, v}) : (std::vector{boxes[0][0]}));
  EXPECT_EQ(boxes[1].front(), "[8:16, 0:16]");
  EXPECT_EQ(boxes[0].size() + boxes[1].size(), 4u);
}

/// ZeRO's ranks get equal parts, and few slices: a tensor is cut only where one rank's part ends.
TEST_F(Reshape, DataParallelRanksShareEvenly) {
  const Reader source = saved(four_layers("llama", false));
  const Reader whole = reshaped(source, {}), target = reshaped(source, {.dp = 8, .cp = 2});
  std::vector<std::uint64_t> bytes(16);
  std::size_t slices = 0, uncut = 0;
  for (const StoredTensor& tensor : whole.manifest().tensors) uncut += tensor.slices.size();
  for (const StoredTensor& tensor : target.manifest().tensors) {
    slices += tensor.slices.size();
    for (const StoredSlice& slice : tensor.slices) bytes.at(slice.file / 2) += bytes_of(tensor, slice.box);
  }
  const auto [least, most] = std::ranges::minmax(bytes);
  constexpr std::uint64_t kRow = 24 * (4 + 4 + 2);  // the longest: its weight and its states
  EXPECT_LE(most - least, 2 * kRow);
  EXPECT_LE(slices, uncut + 3 * 15) << "of each kind, one more for each cut";
}

TEST_F(Reshape, StateAndRandomStates) {
  const Reader source = saved(four_layers("qwen2", true));
  const stdfs::path kept = folder_ / "kept", dropped = folder_ / "dropped";
  const Reshaped same = reshape(source, kept, options({{"zero", 3}}));
  EXPECT_FALSE(same.dropped_random);
  const Reader again(same.path);
  EXPECT_EQ(full_tensors(again), full_tensors(source));
  EXPECT_EQ(again.manifest().training, source.manifest().training);
  EXPECT_NE(again.manifest().id, source.manifest().id);
  EXPECT_EQ(again.manifest().program, "trireme test");
  EXPECT_EQ(again.manifest().time, "2026-11-16T15:00:00Z");
  EXPECT_EQ(again.manifest().layout.at("zero"), 3);
  auto config = source.manifest().config;
  config["parallelism.zero"] = "3";
  EXPECT_EQ(again.manifest().config, config);

  const Reshaped other = reshape(source, dropped, options({{"tp", 2}}));
  EXPECT_TRUE(other.dropped_random);
  EXPECT_EQ(full_tensors(Reader(other.path)), without_random(full_tensors(source)));
  EXPECT_EQ(other.manifest.config.at("parallelism.expert_tp"), "2") << "it was tp";
  EXPECT_EQ(file_contents(dropped / "latest"), "step-8\n");
}

TEST_F(Reshape, LayoutsThatDoNotFit) {
  const Reader source = saved(four_layers("llama", false));
  const auto refused = [&](const std::string& to) {
    const std::string told =
        message_of<ConfigError>([&] { reshape(source, folder_ / "out", options(parse_layout_changes(to))); });
    EXPECT_FALSE(stdfs::exists(folder_ / "out")) << to;
    return told;
  };
  EXPECT_THAT(refused("tp=3"), AllOf(HasSubstr("num_attention_heads = 4"), HasSubstr("--to tp=3")));
  EXPECT_THAT(refused("pp=5"), AllOf(HasSubstr("4 for 5 pipeline chunks"), HasSubstr("--to pp=5")));
  EXPECT_THAT(refused("pp=2,virtual_stages=3"), HasSubstr("4 for 6 pipeline chunks"));
  EXPECT_THAT(refused("ep=2"), AllOf(HasSubstr("no experts"), HasSubstr("--to ep=2")));
  EXPECT_THAT(refused("dp=3,replicate=2"), HasSubstr("not divisible by replicate = 2"));
  EXPECT_THAT(refused("zero=4"), HasSubstr("zero=4"));
  EXPECT_THAT(refused("dp=0"), AllOf(HasSubstr("dp=0"), HasSubstr("at least 1")));
  for (const char* word :
       {"", "tp", "tp=", "tp=x", "tp=-1", "tp=2;pp=1", "tp=2,", "np=2", "tp=2,tp=4", "sequence_parallel=1"})
    EXPECT_THAT(refused(word), AllOf(HasSubstr(text("--to ", word)), HasSubstr("fix: "))) << word;
}

TEST_F(Reshape, FoldersThatCannotBeUsed) {
  const Reader source = saved(four_layers("llama", false));
  const auto refused = [&](const stdfs::path& out) {
    return message_of<ConfigError>([&] { reshape(source, out, options({{"tp", 2}})); });
  };
  stdfs::create_directory(folder_ / "full");
  std::ofstream(folder_ / "full/file") << "mine";
  EXPECT_THAT(refused(folder_ / "full"), HasSubstr("nothing is overwritten"));
  EXPECT_THAT(refused(folder_ / "full/file"), HasSubstr("nothing is overwritten"));
  EXPECT_THAT(refused(folder_ / "none/out"), HasSubstr("there is no folder"));
  EXPECT_THAT(refused(folder_ / "step-8"), HasSubstr("step-8/step-8"));
  stdfs::create_directory(folder_ / "empty");
  stdfs::create_symlink("empty", folder_ / "link");
  EXPECT_THAT(refused(folder_ / "link"), HasSubstr("nothing is overwritten"));
  EXPECT_EQ(reshape(source, folder_ / "empty/", options({{"tp", 2}})).path, folder_ / "empty/step-8");
}

TEST_F(Reshape, SourcesThatAreNotAsTheySay) {
  const auto refused = [&](const auto& change) {
    const stdfs::path checkpoint = save_model(fs_, folder_.path() / text("in-", made_++), four_layers("llama", false));
    make_version_1(checkpoint, change);
    const Reader source(checkpoint);
    const std::string told =
        message_of<CheckpointError>([&] { reshape(source, folder_ / "out", options({{"tp", 2}})); });
    EXPECT_FALSE(stdfs::exists(folder_ / "out")) << told;
    return told;
  };
  const auto with = [&](const std::string& key, const std::string& value) {
    return refused([&](Manifest& manifest) { manifest.config[key] = value; });
  };
  EXPECT_THAT(with("model.num_attention_heads", "2"), HasSubstr("layers.0.attention.out.weight"));
  EXPECT_THAT(with("model.num_hidden_layers", "5"), HasSubstr("layers.4.attention_norm.weight: its weight is missing"));
  EXPECT_THAT(with("model.num_hidden_layers", "3"), HasSubstr("\"layers.3.attention.out.bias\": is not a parameter"));
  EXPECT_THAT(with("model.num_hidden_layers", "1000000"), HasSubstr("1000000 layers"));
  EXPECT_THAT(with("model.hidden_size", "0"), HasSubstr("model.hidden_size = 0"));
  EXPECT_THAT(with("model.hidden_size", "9000000000000000000"), HasSubstr("hidden_size"));
  EXPECT_THAT(with("model.hidden_size", "16\nvocab_size = 3"), HasSubstr("is not a value"));
  EXPECT_THAT(with("model.hidden_size", "\"wide\""), HasSubstr("model.hidden_size = "));
  EXPECT_THAT(with("model.hidden_size", "\x1B[31m"), testing::Not(HasSubstr("\x1B")));
  EXPECT_THAT(with("model.num_local_experts", "4"), HasSubstr("layers.0.mlp.expert_gate_up: its weight is missing"));
  EXPECT_THAT(with("model.num_local_experts", "1000000000"), HasSubstr("num_local_experts"));
  EXPECT_THAT(with("model.num_local_experts", "1000000"), HasSubstr("4 layers with 1000000 experts"));
  EXPECT_THAT(with("model.model_type", "\"other\""), HasSubstr("model.model_type"));
  EXPECT_THAT(with("parallelism.tp", "3"), HasSubstr("its config is not valid"));
  EXPECT_THAT(with("parallelism.pp_schedule", "\"none\""), HasSubstr("pp_schedule"));
  EXPECT_THAT(with("parallelism.stages", "[3, 2]"), HasSubstr("stages"));
  EXPECT_THAT(refused([](Manifest& manifest) { manifest.config.clear(); }), HasSubstr("model.hidden_size = 0"));
}

TEST_F(Reshape, DamageIsFoundAndNothingIsLeft) {
  const stdfs::path checkpoint = save_model(fs_, folder_.path() / "in", four_layers("llama", false));
  const Reader source(checkpoint);
  const stdfs::path file = checkpoint / rank_file_name(0);
  {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(-100, std::ios::end);
    bytes.put('!');
  }
  EXPECT_THAT(message_of<CheckpointError>([&] { reshape(Reader(checkpoint), folder_ / "out", options({{"pp", 2}})); }),
              AllOf(HasSubstr("rank-00000.safetensors"), HasSubstr("damaged"), HasSubstr("fix: ")));
  EXPECT_FALSE(stdfs::exists(folder_ / "out"));
  stdfs::create_directory(folder_ / "out");
  EXPECT_THROW(reshape(Reader(checkpoint), folder_ / "out", options({{"pp", 2}})), CheckpointError);
  EXPECT_TRUE(stdfs::is_empty(folder_ / "out")) << "it was there before";
}

/// Whichever operation fails, nothing is left; without an error it is all there.
TEST_F(Reshape, AnyOperationMayFail) {
  const Reader source = saved(four_layers("llama", false));
  const auto left = [&] { return std::distance(stdfs::directory_iterator(folder_.path()), {}); };
  const auto before = left();
  int calls = 0;
  for (bool failed = true; failed; ++calls) {
    FailingFs fs({.number = calls, .error = ENOSPC}, fs_);
    ReshapeOptions with = options({{"pp", 2}, {"tp", 2}});
    with.fs = &fs;
    try {
      reshape(source, folder_ / "out", with);
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), HasSubstr("fix: "));
      EXPECT_EQ(left(), before) << "call " << calls << " failed";
    }
    failed = fs.has_failed();
    if (failed) stdfs::remove_all(folder_ / "out");  // of a failure that does not matter: `latest`
  }
  EXPECT_GT(calls, 20);
  EXPECT_EQ(full_tensors(Reader(folder_ / "out/step-8")), without_random(full_tensors(source)));
}

TEST_F(Reshape, ProgressCanEndIt) {
  const Reader source = saved(four_layers("llama", false));
  std::uint64_t last = 0, whole = 0;
  ReshapeOptions with = options({{"dp", 2}});
  with.progress = [&](std::uint64_t done, std::uint64_t of) { last = done, whole = of; };
  reshape(source, folder_ / "out", with);
  EXPECT_EQ(last, whole);
  with.progress = [&](std::uint64_t done, std::uint64_t of) {
    if (done > of / 2) throw Interrupted("enough");
  };
  EXPECT_THROW(reshape(source, folder_ / "out-2", with), Interrupted);
  EXPECT_FALSE(stdfs::exists(folder_ / "out-2"));
}

}  // namespace
}  // namespace trireme::checkpoint
