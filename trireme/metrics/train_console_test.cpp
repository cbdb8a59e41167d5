#include "trireme/metrics/train_console.hpp"

#include <sstream>

#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/metrics/metrics_file.hpp"
#include "trireme/testing/metrics_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::metrics {
namespace {

using std::chrono::milliseconds;

constexpr TerminalFacts kFile{}, kTerminal{.tty = true, .width = 110, .color = false};
const std::string kErase = "\r\x1B[K";
const std::string kHeader = " step      loss   (z)     grad       lr   tok/s  tok/s/rank   data   comm\n";

/// A row of cpu_step, whose loss is `loss`.
std::string table_row(const std::string& step, const std::string& loss) {
  return std::string(5 - step.size(), ' ') + step + "    " + loss +
         "          1.500  1.5e-04   58.4K       14.6K   0.4%  12.5%";
}

std::string bar(const std::string& blocks, const std::string& words) { return kErase + "  " + blocks + "  " + words; }

/// The output since the last query.
struct Screen {
  explicit Screen(ConsoleMode mode, TerminalFacts terminal = kFile, std::int64_t interval = 10)
      : console(out, {.mode = mode, .terminal = terminal, .interval = interval, .clock = [this] { return now; }}) {}

  std::string fresh() {
    const std::string all = out.str();
    out.str("");
    return all;
  }

  std::ostringstream out;
  std::chrono::steady_clock::time_point now{};
  TrainConsole console;
};

TEST(ConsoleMode, ByItsName) {
  EXPECT_EQ(console_mode("auto"), ConsoleMode::bar);
  EXPECT_EQ(console_mode("bar"), ConsoleMode::bar);
  EXPECT_EQ(console_mode("plain"), ConsoleMode::plain);
  EXPECT_EQ(console_mode("json"), ConsoleMode::json);
  EXPECT_EQ(console_mode("quiet"), ConsoleMode::quiet);
  EXPECT_EQ(message_of<ConfigError>([] { console_mode("loud"); }),
            "metrics.console = \"loud\": must be one of auto, bar, plain, json, quiet");
}

TEST(TrainConsole, AnIntervalOfNoStepsIsRefused) {
  std::ostringstream out;
  EXPECT_EQ(message_of<ConfigError>([&] { TrainConsole(out, {.interval = 0}); }),
            "metrics.interval = 0: must be at least 1");
}

TEST(TrainConsole, WholeRunOnATerminal) {
  Screen screen(ConsoleMode::bar, kTerminal);
  screen.console.header({{"trireme", "0.1.0 · 4 ranks"}, {"model", "tiny-llama"}});
  EXPECT_EQ(screen.fresh(), "trireme 0.1.0 · 4 ranks\nmodel   tiny-llama\n");

  screen.now += milliseconds(1000);
  screen.console.note("first step, 0.4 s set-up not counted");
  EXPECT_EQ(screen.fresh(), "");
  screen.console.step(cpu_step(1, 20, 6.2391));
  const std::string one = "█░░░░░░░░░░░░░░░░░░░░░░░░░░░", four = "████░░░░░░░░░░░░░░░░░░░░░░░░";
  EXPECT_EQ(screen.fresh(), "\n" + kHeader + table_row("1", "6.2391") + "   first step, 0.4 s set-up not counted\n" +
                                bar(one, "1/20  5%   loss 6.239   58.4K tok/s   elapsed 1 s   ETA –"));

  // Not before 200 ms have passed.
  screen.now += milliseconds(199);
  screen.console.step(cpu_step(2, 20, 6.125));
  EXPECT_EQ(screen.fresh(), "");
  screen.now += milliseconds(801);
  screen.console.step(cpu_step(3, 20, 6.0));
  EXPECT_EQ(screen.fresh(), bar(four, "3/20  15%   loss 6.000   58.4K tok/s   elapsed 2 s   ETA 9 s"));

  // Every line erases the bar first; a warning redraws it immediately.
  screen.console.warning("loss z = +6.1 at step 3");
  EXPECT_EQ(screen.fresh(), kErase + "warning: loss z = +6.1 at step 3\n" +
                                bar(four, "3/20  15%   loss 6.000   58.4K tok/s   elapsed 2 s   ETA 9 s"));
  screen.now += milliseconds(100);
  screen.console.step(cpu_step(10, 20, 5.5));
  EXPECT_EQ(screen.fresh(), kErase + table_row("10", "5.5000") + "\n");
  screen.console.warning("nothing is drawn that was not there");
  EXPECT_EQ(screen.fresh(), "warning: nothing is drawn that was not there\n");
  screen.now += milliseconds(3500);
  screen.console.step(cpu_step(11, 20, 5.25));
  EXPECT_EQ(screen.fresh(),
            bar("███████████████░░░░░░░░░░░░░", "11/20  55%   loss 5.250   58.4K tok/s   elapsed 6 s   ETA 4 s"));

  screen.now += milliseconds(10);
  screen.console.step(cpu_step(20, 20, 4.5));
  screen.console.note("✓ checkpoint 20 (11 MB)");
  screen.console.finish({.steps = 20, .seconds = 6, .first_loss = 6.2391, .last_loss = 4.5});
  EXPECT_EQ(screen.fresh(), kErase + table_row("20", "4.5000") + "\n" +
                                "  ✓ checkpoint 20 (11 MB)\n\ndone    20 steps in 6 s · loss 6.239 → 4.500\n");
}

TEST(TrainConsole, OnlyATerminalHasAWidthForTheSummary) {
  const RunSummary summary{.steps = 1, .seconds = 1, .shares = {{"forward", 0.5}, {"backward", 0.5}}};
  Screen narrow(ConsoleMode::plain, {.tty = true, .width = 40, .color = false});
  narrow.console.finish(summary);
  EXPECT_EQ(narrow.fresh(), "done    1 step in 1 s\n        where a step goes: forward 50% ·\n        backward 50%\n");
  Screen file(ConsoleMode::plain, {.tty = false, .width = 40, .color = false});
  file.console.finish(summary);
  EXPECT_EQ(file.fresh(), "done    1 step in 1 s\n        where a step goes: forward 50% · backward 50%\n");
}

TEST(TrainConsole, TheEndErasesTheBar) {
  Screen screen(ConsoleMode::bar, kTerminal);
  screen.console.step(cpu_step(1, 20, 6.2391));
  screen.fresh();
  screen.console.finish({.steps = 1, .seconds = 1, .interrupted = true});
  EXPECT_EQ(screen.fresh(), kErase + "\nstopped 1 step in 1 s\n");
}

TEST(TrainConsole, ABarIsErasedOnceForOthersAndByTheDestructor) {
  std::ostringstream out;
  {
    TrainConsole console(out, {.mode = ConsoleMode::bar, .terminal = kTerminal});
    console.step(cpu_step(1, 20, 6.2391));
    out.str("");
    console.erase_bar();
    EXPECT_EQ(out.str(), kErase);
    console.erase_bar();
    EXPECT_EQ(out.str(), kErase);
  }
  EXPECT_EQ(out.str(), kErase);
  {
    TrainConsole console(out, {.mode = ConsoleMode::bar, .terminal = kTerminal});
    console.step(cpu_step(1, 20, 6.2391));
    out.str("");
  }
  EXPECT_EQ(out.str(), kErase);
}

TEST(TrainConsole, ColoursAreFew) {
  Screen screen(ConsoleMode::bar, {.tty = true, .width = 20, .color = true});
  screen.console.header({{"model", "tiny"}});
  screen.console.note("cold");
  screen.console.step(cpu_step(1, 20, 6.2391));
  screen.console.warning("hot");
  EXPECT_EQ(screen.fresh(),
            "\x1B[2mmodel\x1B[0m   tiny\n\n\x1B[2m step      loss\x1B[0m\n    1    \x1B[1m6.2391\x1B[0m   "
            "\x1B[2mcold\x1B[0m\n" +
                kErase + "  1/20  5%" + kErase + "\x1B[33mwarning: hot\x1B[0m\n" + kErase + "  1/20  5%");
}

TEST(TrainConsole, ATableInAFileHasNeitherBarNorColour) {
  Screen screen(ConsoleMode::bar, {.tty = false, .width = 100, .color = true});
  for (int step = 1; step <= 3; ++step) {
    screen.now += milliseconds(1000);
    screen.console.step(cpu_step(step, 3, 6.5));
  }
  screen.console.warning("hot");
  EXPECT_EQ(screen.fresh(),
            "\n" + kHeader + table_row("1", "6.5000") + "\n" + table_row("3", "6.5000") + "\nwarning: hot\n");
}

TEST(TrainConsole, TheHeaderComesAgainEvery30Lines) {
  Screen screen(ConsoleMode::bar, kFile, 1);
  for (int step = 1; step <= 29; ++step) screen.console.step(cpu_step(step, 100, 6.5));
  screen.console.warning("counts as a line");
  screen.fresh();
  screen.console.step(cpu_step(30, 100, 6.5));
  EXPECT_EQ(screen.fresh(), kHeader + table_row("30", "6.5000") + "\n");
  for (int step = 31; step <= 59; ++step) screen.console.step(cpu_step(step, 100, 6.5));
  EXPECT_EQ(screen.fresh().find("loss"), std::string::npos);
  screen.console.step(cpu_step(60, 100, 6.5));
  EXPECT_EQ(screen.fresh(), kHeader + table_row("60", "6.5000") + "\n");
}

TEST(TrainConsole, ARowTellsOfValidationAndOfASkippedUpdate) {
  Screen screen(ConsoleMode::bar);
  screen.console.step(cpu_step(1, 400, 6.5));
  screen.console.note("✓ checkpoint 199");
  screen.fresh();
  StepRecord record = cpu_step(203, 400, 6.5);
  record.val_loss = 6.75;
  record.skipped = true;
  screen.console.step(record);
  EXPECT_EQ(screen.fresh(), table_row("203", "6.5000") + "   update skipped · val loss 6.7500 · ✓ checkpoint 199\n");
  // A note is printed once.
  screen.console.step(cpu_step(210, 400, 6.5));
  EXPECT_EQ(screen.fresh(), table_row("210", "6.5000") + "\n");
}

TEST(TrainConsole, AResumedRunPrintsItsFirstStep) {
  Screen screen(ConsoleMode::bar);
  screen.console.step(cpu_step(203, 400, 6.5));
  screen.console.step(cpu_step(204, 400, 6.5));
  EXPECT_EQ(screen.fresh(), "\n" + kHeader + table_row("203", "6.5000") + "\n");
}

TEST(TrainConsole, PlainIsKeysAndValues) {
  Screen screen(ConsoleMode::plain, kTerminal);
  screen.console.header({{"model", "tiny-llama"}});
  screen.console.note("first step, 0.4 s set-up not counted");
  for (int step = 1; step <= 12; ++step) {
    screen.now += milliseconds(1000);
    screen.console.step(cpu_step(step, 12, 7.5 - 0.5 * step));
  }
  screen.console.note("✓ checkpoint 12");
  screen.console.warning("hot");
  screen.console.finish({.steps = 12, .seconds = 12});
  const std::string rest =
      " tokens_per_sec=58412 tokens_per_sec_per_gpu=14603 step_time_s=0.03125 train_time_s=0.01562 "
      "data_time_frac=0.004 "
      "comm_exposed_frac=0.125";
  EXPECT_EQ(screen.fresh(),
            "model   tiny-llama\n"
            "step=1 loss=7 grad_norm=1.5 lr=0.00015 tokens=2048" +
                rest + " note=\"first step, 0.4 s set-up not counted\"\n" +
                "step=10 loss=2.5 grad_norm=1.5 lr=0.00015 tokens=20480" + rest + "\n" +
                "step=12 loss=1.5 grad_norm=1.5 lr=0.00015 tokens=24576" + rest + "\n" +
                "warning: hot\nnote=\"✓ checkpoint 12\"\ndone    12 steps in 12 s\n");
}

TEST(TrainConsole, PlainTellsOfASkippedUpdate) {
  Screen screen(ConsoleMode::plain);
  screen.console.step(full_step());
  EXPECT_EQ(screen.fresh(),
            "step=200 loss=2.914 grad_norm=1.5 lr=0.00015 tokens=409600 tokens_per_sec=58412 "
            "tokens_per_sec_per_gpu=14603 step_time_s=0.03125 train_time_s=0.01562 data_time_frac=0.004 "
            "comm_exposed_frac=0.125 "
            "bubble_frac=0.0625 mfu=0.381 tflops_per_gpu=376.5 mem_peak_gib=0.04199 loss_scale=65536 skipped=1 "
            "loss_z=0.12 grad_norm_z=-1.25 val/loss=2.875\n");
}

TEST(TrainConsole, EveryLineOfJsonIsAnObject) {
  Screen screen(ConsoleMode::json, kTerminal);
  screen.console.header({{"model", "tiny-llama"}});
  screen.console.note("a \"note\"");
  screen.console.step(cpu_step(1, 12, 6.5));
  screen.console.step(cpu_step(2, 12, 6.5));
  screen.console.warning("hot\n  fix: cool");
  screen.console.step(cpu_step(10, 12, 6.5));
  screen.console.finish({.steps = 12, .seconds = 12});
  EXPECT_EQ(screen.fresh(), "{\"note\":\"a \\\"note\\\"\"}\n" + json_record(cpu_step(1, 12, 6.5)) + "\n" +
                                "{\"warning\":\"hot\\n  fix: cool\"}\n" + json_record(cpu_step(10, 12, 6.5)) + "\n" +
                                "{\"done\":{\"steps\":12,\"seconds\":12,\"interrupted\":false,\"skipped\":0}}\n");
}

TEST(TrainConsole, QuietIsWarningsAndTheEnd) {
  Screen screen(ConsoleMode::quiet, kTerminal);
  screen.console.header({{"model", "tiny-llama"}});
  screen.console.note("cold");
  screen.console.step(cpu_step(1, 1, 6.5));
  EXPECT_EQ(screen.fresh(), "");
  screen.console.warning("hot");
  screen.console.finish({.steps = 1, .seconds = 12});
  EXPECT_EQ(screen.fresh(), "warning: hot\ndone    1 step in 12 s\n");
}

}  // namespace
}  // namespace trireme::metrics
