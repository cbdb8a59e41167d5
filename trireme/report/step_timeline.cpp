#include "trireme/report/step_timeline.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/svg.hpp"

namespace trireme::report {
namespace {

constexpr double kWidth = 1200, kLeft = 70, kRight = 15, kTop = 58, kLane = 15, kLaneGap = 2, kRankGap = 8;
constexpr double kLeftOut = 0.1;    // of a step: the space for steps that were not traced
constexpr double kLeastTitled = 3;  // width of a bar that tells what it is under the mouse
constexpr double kLetter = 6.2;     // width of one at the font size of labels

struct Kind {
  std::string_view name, colour;
};
constexpr Kind kForward{"forward", "#9ec9e8"}, kBackward{"backward", "#4f86b8"}, kUpdate{"update", "#7aa95c"},
    kWaiting{"waiting", "#c0392b"};

/// By what a call does to the data.
Kind kind_of(const std::string& op) {
  if (op == "all_reduce") return {"all_reduce", "#d1495b"};
  if (op == "reduce_scatter") return {"reduce_scatter", "#edae49"};
  if (op == "all_gather") return {"all_gather", "#5aa17f"};
  if (op == "send" || op == "recv") return {"send, recv", "#9a6dd7"};
  if (op == "all_to_all") return {"all_to_all", "#3d5a80"};
  return {"other calls", "#8d99ae"};
}

/// A picture that grows downwards by lanes.
class Canvas {
 public:
  explicit Canvas(double seconds) : scale_((kWidth - kLeft - kRight) / seconds) {}

  double x(double time) const { return std::clamp(kLeft + scale_ * time, kLeft, kWidth - kRight); }

  void lane(const std::string& label) {
    flush();
    y_ += kLane + kLaneGap;
    svg_ += text("<text x=\"", svg_number(kLeft - 6), "\" y=\"", svg_number(y_ - 4), "\" text-anchor=\"end\">",
                 xml_escaped(label), "</text>\n<rect x=\"", svg_number(kLeft), "\" y=\"", svg_number(y_ - kLane),
                 "\" width=\"", svg_number(kWidth - kLeft - kRight), "\" height=\"", svg_number(kLane),
                 "\" fill=\"#f3f4f6\"/>\n");
  }
  void gap(double height) { y_ += height; }

  /// `level` of `levels`: the part of the lane's height that it takes, from above.
  void bar(const Span& span, const Kind& kind, const std::string& label, const std::string& title, int level = 0,
           int levels = 1) {
    // A little narrower than it is long, so that neighbours can be told apart.
    const double width = std::max(0.4, x(span.end) - x(span.begin) - 0.5), height = kLane / levels;
    const double top = y_ - kLane + height * level;
    show(kind);
    if (width < kLeastTitled) return add_narrow(x(span.begin), top, width, height, kind);
    svg_ += text("<rect x=\"", svg_number(x(span.begin), 1), "\" y=\"", svg_number(top), "\" width=\"",
                 svg_number(width, 1), "\" height=\"", svg_number(height), "\" fill=\"", kind.colour, "\"><title>",
                 xml_escaped(title), ": ", human_seconds(span.length()), "</title></rect>\n");
    if (static_cast<double>(label.size()) * kLetter + 2 < width)
      labels_ += text("<text x=\"", svg_number(x(span.begin) + width / 2, 1), "\" y=\"", svg_number(y_ - 4),
                      "\" text-anchor=\"middle\">", xml_escaped(label), "</text>\n");
  }
  /// Along the lower edge of the lane.
  void underline(const Span& span, const Kind& kind) {
    show(kind);
    add_narrow(x(span.begin), y_ - 3, x(span.end) - x(span.begin), 3, kind);
  }

  /// Step boundaries and ticks over all lanes, and a legend above them.
  std::string finish(const std::string& title, const std::vector<std::pair<double, std::string>>& marks,
                     double seconds) {
    flush();
    std::string out = text("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", svg_number(kWidth), " ",
                           svg_number(y_ + 24), "\" font-family=\"sans-serif\" font-size=\"11\">\n",
                           "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<text x=\"10\" y=\"17\" "
                           "font-size=\"14\" font-weight=\"bold\">",
                           xml_escaped(title), "</text>\n");
    double at = 10;
    for (const auto& [name, colour] : shown_) {
      out += text("<rect x=\"", svg_number(at), "\" y=\"25\" width=\"12\" height=\"10\" fill=\"", colour,
                  "\"/><text x=\"", svg_number(at + 16), "\" y=\"34\">", name, "</text>\n");
      at += 34 + kLetter * static_cast<double>(name.size());
    }
    out += svg_ + labels_;
    for (const auto& [time, label] : marks)
      out +=
          text("<line x1=\"", svg_number(x(time)), "\" x2=\"", svg_number(x(time)), "\" y1=\"", svg_number(kTop - 10),
               "\" y2=\"", svg_number(y_ + 2), "\" stroke=\"#333\" stroke-dasharray=\"4 3\"/><text x=\"",
               svg_number(x(time) + 4), "\" y=\"", svg_number(kTop - 3), "\">", xml_escaped(label), "</text>\n");
    for (const double tick : ticks_between(0, seconds, 10))
      out += text("<text x=\"", svg_number(x(tick)), "\" y=\"", svg_number(y_ + 16), "\" text-anchor=\"middle\">",
                  tick == 0 ? "0" : human_seconds(tick), "</text>\n");
    return out + "</svg>\n";
  }

 private:
  void show(const Kind& kind) {
    if (std::ranges::find(shown_, kind.name, &Kind::name) == shown_.end()) shown_.push_back(kind);
  }
  /// Bars that are too narrow for the mouse are one path per colour and lane: a traced step can have thousands.
  void add_narrow(double left, double top, double width, double height, const Kind& kind) {
    narrow_[kind.colour] += text("M", svg_number(left, 1), " ", svg_number(top), "h", svg_number(width, 1), "v",
                                 svg_number(height), "h-", svg_number(width, 1), "z");
  }
  void flush() {
    for (const auto& [colour, path] : narrow_) svg_ += text("<path fill=\"", colour, "\" d=\"", path, "\"/>\n");
    narrow_.clear();
  }

  double scale_, y_ = kTop;
  std::string svg_, labels_;
  std::map<std::string_view, std::string> narrow_;
  std::vector<Kind> shown_;
};

Span later(const Span& span, double seconds) { return {span.begin + seconds, span.end + seconds}; }

std::string letter(schedule::ActionKind kind) { return std::string(1, "FBIW"[static_cast<std::size_t>(kind)]); }

using PlacedCalls = std::vector<std::pair<const TracedCall*, Span>>;

/// Calls that are on their way at the same time are drawn one below the other.
void draw_calls(Canvas& canvas, const std::string& axis, PlacedCalls calls) {
  constexpr std::size_t kMostLevels = 3;
  std::ranges::stable_sort(calls, {}, [](const auto& call) { return call.second.begin; });
  std::vector<double> free_from;  // by level
  std::vector<std::size_t> levels;
  for (const auto& [call, span] : calls) {
    auto level = std::ranges::find_if(free_from, [&](double time) { return time <= span.begin; });
    if (level == free_from.end() && free_from.size() == kMostLevels) level = std::ranges::min_element(free_from);
    levels.push_back(static_cast<std::size_t>(level - free_from.begin()));
    if (level == free_from.end())
      free_from.push_back(span.end);
    else
      *level = span.end;
  }
  canvas.lane(axis);
  for (std::size_t i = 0; i < calls.size(); ++i)
    canvas.bar(calls[i].second, kind_of(calls[i].first->op), "",
               text(calls[i].first->what, " on ", calls[i].first->group), static_cast<int>(levels[i]),
               static_cast<int>(free_from.size()));
}

/// One rank in all steps: actions and the update, the layers in them, and a lane for the calls of each axis.
void draw_rank(Canvas& canvas, const std::vector<std::pair<const RankTrace*, double>>& steps) {
  canvas.gap(kRankGap);
  canvas.lane(text("rank ", steps.front().first->rank));
  for (const auto& [rank, begin] : steps) {
    for (const TracedAction& action : rank->actions) {
      const std::string name = text(letter(action.kind), action.microbatch);
      canvas.bar(later(action.span, begin), action.kind == schedule::ActionKind::F ? kForward : kBackward, name, name);
    }
    if (rank->update.length() > 0) canvas.bar(later(rank->update, begin), kUpdate, "update", "update");
    for (const Span& wait : rank->waits) canvas.underline(later(wait, begin), kWaiting);
  }
  canvas.lane("layers");
  for (const auto& [rank, begin] : steps)
    for (const TracedLayer& layer : rank->layers)
      canvas.bar(later(layer.span, begin), layer.backward ? kBackward : kForward, layer.name, layer.name);
  constexpr std::size_t kMostAxes = 16;  // more are drawn together: a file may name any number
  std::map<std::string, PlacedCalls> axes;
  for (const auto& [rank, begin] : steps)
    for (const TracedCall& call : rank->calls) {
      const std::string axis = parse_group(call.group).name;
      axes[axes.contains(axis) || axes.size() < kMostAxes ? axis : "others"].emplace_back(&call,
                                                                                          later(call.span, begin));
    }
  for (auto& [axis, calls] : axes) draw_calls(canvas, axis, std::move(calls));
}

/// Until the last rank has ended it.
double length_of(const TracedStep& step) {
  double length = 0;
  for (const RankTrace& rank : step.ranks) length = std::max(length, rank.step.end);
  return length;
}

/// " (dp 4)" of the first step of a layout, if there are several.
std::string layout_of(const RunFiles& run, const TracedStep& step) {
  const Segment* segment = run.segment_of(step.step);
  if (run.segments.size() < 2 || segment == nullptr) return "";
  const bool is_first = &step == &run.traces.front() || !segment->has((&step - 1)->step);
  return is_first ? text(" (", segment->layout, ")") : "";
}

}  // namespace

std::string step_timeline_svg(const RunFiles& run) {
  require<ConfigError>(!run.traces.empty(), run.folder.string(),
                       ": no step was traced\n  fix: --profiler.steps \"[5, 6, 7, 8]\" for the run");
  double end = 0;  // of all steps so far, in the drawing
  std::map<int, std::vector<std::pair<const RankTrace*, double>>> ranks;
  std::vector<std::pair<double, std::string>> marks;
  for (const TracedStep& step : run.traces) {
    // What lies between two steps that do not follow each other is left out.
    double begin = end;
    if (&step != &run.traces.front()) {
      const TracedStep& before = *(&step - 1);
      const double gap = step.begin - (before.begin + length_of(before));
      begin += step.step == before.step + 1 ? std::max(0.0, gap) : kLeftOut * length_of(before);
    }
    marks.emplace_back(begin, text("step ", step.step, layout_of(run, step)));
    for (const RankTrace& rank : step.ranks) ranks[rank.rank].emplace_back(&rank, begin);
    end = begin + length_of(step);
  }
  require<DataError>(end > 0, run.folder.string(), ": its traces have no times\n  fix: trace the steps again");
  Canvas canvas(end);
  for (const auto& [rank, steps] : ranks) draw_rank(canvas, steps);
  return canvas.finish(run.name, marks, end);
}

}  // namespace trireme::report
