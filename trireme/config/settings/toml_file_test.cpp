#include "trireme/config/settings/toml_file.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> toml_lines(const Settings& settings) {
  std::vector<std::string> out;
  for (const Setting& s : settings) out.push_back(text(s.place.line, ": ", s.path, " = ", str(s.value)));
  return out;
}

std::string toml_refusal(const std::string& toml) {
  return message_of<ConfigError>([&] { parse_toml("x.toml", toml); });
}

TEST(ParseToml, GivesDottedPathsInTheOrderOfTheFile) {
  EXPECT_THAT(toml_lines(parse_toml("x.toml", R"(
[training]
steps = 400
a.b = 1.5
[[data]]
start_step = 1
sources = [ { path = "a", weight = 0.5 }, { path = "b" } ]
[[data]]
start_step = 10
[empty]
[model]
rope_scaling = { factor = 8.0 }
tie = false
list = [1, [2, "x"], []]
)")),
              ElementsAre("3: training.steps = 400", "4: training.a.b = 1.5", "6: data.0.start_step = 1",
                          "7: data.0.sources.0.path = \"a\"", "7: data.0.sources.0.weight = 0.5",
                          "7: data.0.sources.1.path = \"b\"", "9: data.1.start_step = 10",
                          "10: empty = ", "12: model.rope_scaling.factor = 8.0", "13: model.tie = false",
                          "14: model.list = [1, [2, \"x\"], []]"));
  EXPECT_THAT(parse_toml("x.toml", ""), ElementsAre());
  EXPECT_EQ(parse_toml("x.toml", "\n  key = 1")[0].place.column, 3);
}

TEST(ParseToml, ReadsNumbersAsTomlDoes) {
  const Settings s = parse_toml("x", "a=1_000\nb=0x10\nc=1e6\nd=+5\ne=inf\nf=-9223372036854775808");
  EXPECT_EQ(s[0].value, Value{std::int64_t{1000}});
  EXPECT_EQ(s[1].value, Value{std::int64_t{16}});
  EXPECT_EQ(s[2].value, Value{1e6});
  EXPECT_EQ(s[3].value, Value{std::int64_t{5}});
  EXPECT_EQ(str(s[4].value), "inf");
  EXPECT_EQ(s[5].value, Value{INT64_MIN});
}

TEST(ParseToml, ASyntaxErrorReportsItsPlace) {
  EXPECT_EQ(toml_refusal("a = 1\nb = [1,\n"),
            "this is not TOML: Error while parsing array: encountered end-of-file\n  --> x.toml:2, column 9");
  for (const char* wrong : {"a", "a =", "a = b", "= 1", "[a", "[a]]", "a = 1 b = 2", "a = \"x", "a = 'x\ny'",
                            "a = 1\na = 2", "[t]\n[t]", "a.b = 1\na = 2", "[[t]]\n[t]", "a = 0x", "a = 1__0",
                            "a = 99999999999999999999", "a = \"\\q\"", "\"\\ud800\" = 1", "a = 1\rb = 2"})
    EXPECT_THAT(toml_refusal(wrong), StartsWith("this is not TOML: ")) << wrong;
}

TEST(ParseToml, ValuesWithoutUseAreRefusedWithTheirPlace) {
  EXPECT_EQ(toml_refusal("a = 1\nwhen = 2024-01-01"),
            "the value of when is a date, a time or a table among values\n  --> x.toml:2\n"
            "  fix: use text, numbers, true or false, or lists of them");
  EXPECT_THAT(toml_refusal("a = [1, {b = 2}]"), HasSubstr("a table among values\n  --> x.toml:1"));
  EXPECT_THAT(toml_refusal("a = [[{b = 2}]]"), HasSubstr("a table among values"));
}

TEST(ParseToml, HostileTextIsRefusedInTime) {
  constexpr std::size_t kAll = kMaxConfigBytes;
  const std::string words = repeated("a.", kAll - 100) + "a";
  const std::vector<std::pair<std::string, std::string>> hostile = {
      {"10 MB of brackets", std::string(10'000'000, '[')},
      {"brackets", std::string(kAll, '[')},
      {"a line of 1 MiB", "a = \"" + std::string(1 << 20, 'x') + "\""},
      {"arrays in arrays", "a = " + std::string(kAll - 10, '[')},
      {"closed arrays in arrays", "a = " + std::string(100'000, '[') + std::string(100'000, ']')},
      {"tables in tables", "a = " + repeated("{a=", kAll - 10)},
      {"arrays of tables of arrays", "a = " + repeated("[{a=", kAll - 10)},
      {"a key of 500,000 words", repeated("a.", 1'000'000) + "a = 1"},
      {"a key of very many words", words + " = 1"},
      {"a table of very many words", "[" + words + "]"},
      {"a list of tables of very many words", "[[" + words + "]]"},
      {"the same after a quote", "a = \"'\"\n" + words + " = 1"},
      {"the same after an escaped quote", "a = \"\\\"\"\n" + words + " = 1"},
      {"the same after a literal backslash", "a = '\\'\n" + words + " = 1"},
      {"the same after a long string", "a = \"\"\"\n\"\" ' \"\"\"\n" + words + " = 1"},
      {"the same after a long string with quotes at its end", "a = \"\"\"b\"\"\"\"\"\n" + words + " = 1"},
      {"the same after a long literal string", "a = '''\n\" '' '''\n" + words + " = 1"},
      {"the same after an empty string", "a = \"\"\n" + words + " = 1"},
      {"the same after a comment", "# it's \"\n" + words + " = 1"},
      {"the same in quotes", repeated("\"a\".", kAll - 100) + "a = 1"},
      {"the same with spaces", repeated("a . ", kAll - 100) + "a = 1"},
      {"the same in an inline table", "t = {" + words + " = 1}"},
      {"the same on the second line of an array", "t = [1,\n{" + words + " = 1}]"},
      {"a NUL in a value", std::string("a = 1\0\n", 7)},
      {"a NUL in a text", std::string("a = \"b\0c\"\n", 10)},
      {"a NUL alone", std::string(1, '\0')},
      {"NULs", std::string(kAll, '\0')},
      {"a key twice", repeated("a = 1\n", kAll)},
      {"a table twice", repeated("[a]\n", kAll)},
      {"bytes that are not UTF-8", "a = \"\xff\xfe\""},
      {"a cut UTF-8 sequence", "a = \"\xe2\x82\""},
      {"an overlong UTF-8 sequence", "a = \"\xc0\xaf\""},
      {"a surrogate", "a = \"\xed\xa0\x80\""},
      {"an integer too large", "a = " + std::string(1000, '9')},
      {"many digits", "a = " + std::string(kAll - 10, '9')},
      {"many digits after the point", "a = 0." + std::string(kAll - 10, '9')},
      {"an exponent too large", "a = 1e" + std::string(1000, '9')},
      {"20,000 keys",
       [] {
         std::string out;
         for (int i = 0; i < 20'000; ++i) out += text("k", i, "=1\n");
         return out;
       }()},
      {"20,000 stages", repeated("[[data]]\n", 180'000)},
      {"20,000 sources", "[data]\nsources = [" + repeated("{},", 60'000) + "]"},
  };
  for (const auto& [name, toml] : hostile) {
    std::string message;
    const double seconds = seconds_of([&] { message = toml_refusal(toml); });
    EXPECT_THAT(message, Not("no error")) << name;
    EXPECT_LT(message.size(), 1000U) << name;
    EXPECT_LT(seconds, kDeadlineSeconds) << name;
  }
}

/// Unusual but valid TOML is accepted here, and does not crash the loader.
TEST(ParseToml, StrangeButValid) {
  const std::string line = "a = \"" + std::string(kMaxConfigBytes - 10, 'x') + "\"";
  EXPECT_EQ(parse_toml("x.toml", line).size(), 1U);
  EXPECT_LT(error_of(line).size(), 1000U);
  EXPECT_LT(error_of(std::string(100'000, 'k') + "=1").size(), 1000U);
  EXPECT_LT(error_of("training.steps = [" + std::string(100'000, ' ') + "]").size(), 1000U);
  EXPECT_EQ(parse_toml("x",
                       "\xEF\xBB\xBF"
                       "a = 1")[0]
                .path,
            "a");  // a byte order mark
  EXPECT_EQ(parse_toml("x", "\"\" = 1")[0].path, "");
  // The deepest accepted nesting: 32 nested values, each with a key of 32 parts.
  std::string deep = "1";
  for (int i = 0; i < 32; ++i) deep = "{" + repeated("a.", 62) + "a = " + deep + "}";
  EXPECT_EQ(parse_toml("x", "a = " + deep).size(), 1U);
  EXPECT_LT(error_of("a = " + deep).size(), 1000U);
  EXPECT_EQ(toml_refusal("a = 1\nb = [" + deep + "]"),
            "this is not TOML: nested deeper than 32\n  --> x.toml:2, column 1");
  EXPECT_EQ(parse_toml("x", "a = \"" + std::string(100, '[') + "\" # " + std::string(100, '{')).size(), 1U);
}

TEST(ParseToml, KeysOf32WordsAreStillTaken) {
  std::string key = "a";
  for (int i = 1; i < 32; ++i) key += ".a";
  EXPECT_EQ(parse_toml("x", key + " = 1").size(), 1U);
  EXPECT_THAT(toml_refusal("\n" + key + ".a = 1"), HasSubstr("more than 32 words\n  --> x.toml:2"));
  std::string decimals = "a = [";
  for (int i = 0; i < 100; ++i) decimals += "0.5, ";
  EXPECT_EQ(parse_toml("x", decimals + "]").size(), 1U) << "points in numbers are no words";
  EXPECT_EQ(parse_toml("x", "a = \"" + std::string(100, '.') + "\" # " + std::string(100, '.')).size(), 1U);
}

TEST(ReadConfigFile, NamesTheFileAndWhatIsWrong) {
  TempFolder folder;
  const std::string path = (folder / "x.toml").string();
  EXPECT_EQ(message_of<ConfigError>([&] { read_config_file(path); }),
            "cannot open " + path.substr(0, 200) + ": No such file or directory");
  EXPECT_THAT(message_of<ConfigError>([&] { read_config_file(folder.path().string()); }), HasSubstr("Is a directory"));
  std::ofstream(path) << "a = 1\n";
  EXPECT_EQ(read_config_file(path), "a = 1\n");
  std::ofstream(path) << std::string(kMaxConfigBytes + 1, '#');
  EXPECT_THAT(message_of<ConfigError>([&] { read_config_file(path); }), HasSubstr("larger than 262144 bytes"));
  EXPECT_THAT(message_of<ConfigError>([] { read_config_file("/dev/zero"); }), HasSubstr("larger than"));
}

TEST(LineOf, GivesLinesWithoutTheirEnds) {
  EXPECT_EQ(line_of("a\r\nb\nc", 1), "a");
  EXPECT_EQ(line_of("a\r\nb\nc", 2), "b");
  EXPECT_EQ(line_of("a\r\nb\nc", 3), "c");
  EXPECT_EQ(line_of("a\r\nb\nc", 4), "");
}

}  // namespace
}  // namespace trireme::config
