// The MLP of GPT-2 over two ranks of tp: what each rank holds of each matrix, and where the ranks communicate.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tools/figures/figures.hpp"
#include "trireme/base/error.hpp"
#include "trireme/config/schema/dense_grid.hpp"
#include "trireme/describe/parameters.hpp"
#include "trireme/layout/placement.hpp"

namespace trireme::figures {
namespace {

constexpr const char* kTensorModel = "gpt2";
constexpr std::int64_t kTokens = 2048;
constexpr double kElementsPerPixel = 32;
constexpr double kRankRow = 140, kTensorPanel = 44 + 2 * kRankRow;

double pixels(std::int64_t elements) { return static_cast<double>(elements) / kElementsPerPixel; }

/// The rows and columns of a matrix that a rank has.
struct Part {
  Shape whole;
  Box held;
};

Part everything(Shape shape) {
  Box box;
  for (const std::int64_t size : shape) box.push_back({0, size});
  return {std::move(shape), box};
}

Part weight_part(const ModelConfig& model, const Grid& grid, const char* name, const Shape& shape, int rank) {
  const std::vector<Piece> held = pieces(parameter_named(model, name).spec.placement, shape, grid, rank);
  require(held.size() == 1, name, ": ", held.size(), " pieces, and one is drawn");
  return {shape, box_of(held[0].slices.global_slices)};
}

std::string range_text(Range range) { return text(range.begin, ":", range.end); }

struct MatrixLook {
  std::string colour;
  bool partial = false;
};

/// The whole matrix as an outline, and what the rank has of it. Under it its name and the part.
void draw_matrix(Drawing& out, Point middle, const Part& part, const std::string& name, const MatrixLook& look) {
  const double width = pixels(part.whole[1]), height = pixels(part.whole[0]);
  const double x = middle.x - width / 2, y = middle.y - height / 2;
  out.rect(x, y, width, height, {.fill = "white", .stroke = kFaint});
  out.rect(x + pixels(part.held[1].begin), y + pixels(part.held[0].begin), pixels(part.held[1].size()),
           pixels(part.held[0].size()),
           {.fill = look.colour,
            .stroke = look.partial ? kInk : kDimInk,
            .opacity = look.partial ? 0.45 : 1,
            .dashes = look.partial ? "4 3" : ""});
  out.label({middle.x, middle.y + 62}, name, {.size = 11, .anchor = Anchor::middle, .bold = true});
  std::string which;
  if (part.held[0].size() < part.whole[0]) which = "rows " + range_text(part.held[0]);
  if (part.held[1].size() < part.whole[1]) which = "columns " + range_text(part.held[1]);
  if (!which.empty()) out.label({middle.x, middle.y + 76}, which, {.size = 11, .anchor = Anchor::middle});
}

/// A bar over both ranks: what they send each other in forward, and in backward.
void draw_exchange(Drawing& out, double x, double y, const char* forward, const char* backward) {
  const double height = 2 * kRankRow - 14;
  out.rect(x - 19, y, 38, height, {.fill = "#f6e8c3", .stroke = "#bf9b4b", .radius = 4});
  const auto write = [&](double at, const char* when, const std::string& what) {
    const bool quiet = what.empty();
    out.label(
        {at, y + height / 2}, when + (quiet ? "nothing" : what),
        {.size = 11, .anchor = Anchor::middle, .colour = quiet ? kDimInk : kInk, .bold = !quiet, .upwards = true});
  };
  write(x - 5, "forward: ", forward);
  write(x + 12, "backward: ", backward);
}

struct Exchanges {
  const char *first_forward, *first_backward, *last_forward, *last_backward;
};

void draw_tensor_panel(Drawing& out, double top, bool sequence_parallel) {
  const Config config = config_of_preset(
      kTensorModel,
      {"parallelism.tp = 2", text("parallelism.sequence_parallel = ", sequence_parallel ? "true" : "false")});
  const Grid grid = config::dense_grid(config.parallelism);
  const ModelConfig& model = config.model;
  const std::int64_t d = model.hidden_size, f = model.intermediate_size;
  constexpr double kX = 80, kFirst = 150, kUp = 224, kHidden = 334, kDown = 464, kPartial = 556, kLast = 620, kY = 702;
  const double rows = top + 36;
  const Exchanges how = sequence_parallel ? Exchanges{"all_gather of x", "reduce_scatter of dx", "reduce_scatter of y",
                                                      "all_gather of dy"}
                                          : Exchanges{"", "all_reduce of dx", "all_reduce of y", ""};
  out.label({14, top + 14},
            sequence_parallel ? "with sequence parallelism: between the layers a rank has half of the tokens"
                              : "tp = 2: between the layers every rank has all tokens",
            {.size = 13, .bold = true});
  draw_exchange(out, kFirst, rows, how.first_forward, how.first_backward);
  draw_exchange(out, kLast, rows, how.last_forward, how.last_backward);
  for (int rank = 0; rank < grid.degree(Axis::tp); ++rank) {
    const double y = rows + kRankRow * rank + 52;
    const MatrixLook look{kRankColours[static_cast<std::size_t>(rank)]};
    Part tokens = everything({kTokens, d});
    const std::int64_t each = kTokens / grid.degree(Axis::tp);
    if (sequence_parallel) tokens.held[0] = {rank * each, (rank + 1) * each};
    const Part up = weight_part(model, grid, "layers.0.mlp.up.weight", {f, d}, rank);
    const Part down = weight_part(model, grid, "layers.0.mlp.down.weight", {d, f}, rank);
    // The rows of the first weight are the columns of its output, which are those of the second weight.
    const Part hidden{{kTokens, f}, {{0, kTokens}, up.held[0]}};
    require(up.held[0] == down.held[1], "the two layers are not cut alike");

    out.label({14, y + 4}, text("rank ", rank), {.bold = true});
    draw_matrix(out, {kX, y}, tokens, "x", look);
    draw_matrix(out, {kUp, y}, up, "W1", look);
    draw_matrix(out, {kHidden, y}, hidden, "gelu(x W1ᵀ)", look);
    draw_matrix(out, {kDown, y}, down, "W2", look);
    draw_matrix(out, {kPartial, y}, everything({kTokens, d}), "summand", {look.colour, true});
    draw_matrix(out, {kY, y}, tokens, "y", look);
    const ShapeLook flow{.stroke = kDimInk};
    const double half_d = pixels(d) / 2 + 4, half_f = pixels(f) / 2 + 4;
    out.arrow({kX + half_d, y}, {kFirst - 21, y}, flow);
    out.arrow({kFirst + 21, y}, {kUp - half_d, y}, flow);
    out.arrow({kUp + half_d, y}, {kHidden - half_f, y}, flow);
    out.arrow({kHidden + half_f, y}, {kDown - half_f, y}, flow);
    out.arrow({kDown + half_f, y}, {kPartial - half_d, y}, flow);
    out.arrow({kPartial + half_d, y}, {kLast - 21, y}, flow);
    out.arrow({kLast + 21, y}, {kY - half_d, y}, flow);
  }
}

}  // namespace

Drawing draw_tensor() {
  const ModelConfig model = config_of_preset(kTensorModel).model;
  constexpr double kFirstPanel = 80;
  Drawing out(kFirstPanel + 2 * kTensorPanel + 12,
              "A column-parallel and a row-parallel layer over two ranks, with and without sequence parallelism");
  out.label({14, 26}, text("The MLP of ", kTensorModel, " on two ranks: column-parallel W1, then row-parallel W2"),
            {.size = 16, .bold = true});
  out.label({14, 47},
            text(kTokens, " tokens, ", model.hidden_size, " features, ", model.intermediate_size, " hidden features"),
            {.colour = kDimInk});
  out.label({14, 64}, "outline: the whole matrix; filled: what the rank has of it; dashed: a summand of the whole y",
            {.colour = kDimInk});
  draw_tensor_panel(out, kFirstPanel, false);
  draw_tensor_panel(out, kFirstPanel + kTensorPanel, true);
  return out;
}

}  // namespace trireme::figures
