#include "trireme/config/settings/convert.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

struct Assignment {
  Value value;
  std::string result;  // in TOML syntax, or the error
};

template <class T>
void check_assignments(const std::vector<Assignment>& cases, Field limits = {}) {
  for (const auto& [value, result] : cases) {
    T target{};
    limits.value = &target;
    const std::string problem = assign_value(limits, value);
    EXPECT_EQ(problem.empty() ? toml_text(&target) : problem, result) << kind_of(value) << " " << str(value);
  }
}

TEST(AssignValue, WholeNumbers) {
  check_assignments<std::int64_t>({
      {whole(7), "7"},
      {{7.0}, "7"},
      {raw("7"), "7"},
      {raw("+7"), "7"},
      {raw("-7"), "-7"},
      {raw("1_000_000"), "1000000"},
      {raw("1e6"), "1000000"},
      {raw("9223372036854775807"), "9223372036854775807"},
      {{7.5}, "is a fraction, not a whole number"},
      {{1e300}, "is a number, not a whole number"},
      {raw("9223372036854775808"), "is a string, not a whole number"},
      {raw("7.5"), "is a fraction, not a whole number"},
      {raw("+-7"), "is a string, not a whole number"},
      {raw("0x10"), "is a string, not a whole number"},
      {raw("7 "), "is a string, not a whole number"},
      {raw("nan"), "is a string, not a whole number"},
      {raw(""), "is a string, not a whole number"},
      {{"7"}, "is a string, not a whole number"},
      {{true}, "is true or false, not a whole number"},
      {{Values{whole(7)}}, "is a list, not a whole number"},
      {{Nothing{}}, "is nothing, not a whole number"},
  });
}

TEST(AssignValue, Numbers) {
  check_assignments<double>({
      {{0.1}, "0.1"},
      {whole(3), "3.0"},
      {raw("3e-4"), "3e-04"},
      {raw("+.5"), "0.5"},
      {raw("inf"), "is not a finite number"},
      {raw("-nan"), "is not a finite number"},
      {raw("1e400"), "is a string, not a number"},
      {raw("1,5"), "is a string, not a number"},
      {{"0.1"}, "is a string, not a number"},
      {{false}, "is true or false, not a number"},
  });
}

TEST(AssignValue, TrueOrFalse) {
  check_assignments<bool>({
      {{true}, "true"},
      {raw("true"), "true"},
      {raw("false"), "false"},
      {raw(""), "true"},  // --checkpoint.async alone
      {raw("yes"), "is a string, not true or false"},
      {whole(1), "is a whole number, not true or false"},
      {{"true"}, "is a string, not true or false"},
  });
}

TEST(AssignValue, Text) {
  check_assignments<std::string>({
      {{"a b"}, "\"a b\""},
      {raw("12"), "\"12\""},
      {raw("ü☃"), "\"ü☃\""},
      {whole(12), "is a whole number, not a string"},
      {{std::string("a\0b", 3)}, "holds a NUL character"},
      {{"\xff\xfe"}, "is not UTF-8"},
  });
}

TEST(AssignValue, Lists) {
  check_assignments<std::vector<std::int64_t>>({
      {{Values{}}, "[]"},
      {{Values{whole(1), {2.0}}}, "[1, 2]"},
      {raw("1,2,3"), "[1, 2, 3]"},
      {raw("1, 2,"), "[1, 2]"},
      {raw("[1, 2]"), "[1, 2]"},
      {raw("[]"), "[]"},
      {raw(""), "[]"},
      {raw("5"), "[5]"},
      {raw("1,,2"), "is a string, not a list of whole numbers"},
      {raw("1 2"), "is a string, not a list of whole numbers"},
      {whole(5), "[5]"},  // steps = 20
      {{Values{{"1"}}}, "is a list, not a list of whole numbers"},
  });
  check_assignments<std::vector<std::string>>({
      {{Values{{"norm"}, {"bias"}}}, R"(["norm", "bias"])"},
      {raw("norm,bias"), R"(["norm", "bias"])"},
      {raw("[norm, bias]"), R"(["norm", "bias"])"},
      {raw(R"(["a, b", "c"])"), R"(["a, b", "c"])"},
      {raw(R"("a","b")"), R"(["a", "b"])"},
      {raw("two words, {dir}"), R"(["two words", "{dir}"])"},
      {raw("[\"a\"]\nb = 1"), R"(["[\"a\"]\u000ab = 1"])"},
      {{"norm"}, "is a string, not a list of strings"},
  });
  check_assignments<std::vector<double>>({{raw("0.9,0.95"), "[0.9, 0.95]"}, {raw("[0.9, 1]"), "[0.9, 1.0]"}});
}

TEST(AssignValue, ChoicesWhateverTheirCase) {
  Field field;
  field.choices = {"adamw", "1f1b", ""};
  check_assignments<std::string>({{{"AdamW"}, "\"adamw\""},
                                  {raw("1F1B"), "\"1f1b\""},
                                  {{""}, "\"\""},
                                  {{"adam"}, "is not one of: adamw, 1f1b, \"\""}},
                                 field);
}

TEST(AssignValue, LimitsAreNamed) {
  Field field;
  field.min = 0;
  field.max = 3;
  check_assignments<std::int64_t>({{whole(0), "0"},
                                   {whole(3), "3"},
                                   {whole(-1), "is too small: at least 0"},
                                   {whole(4), "is too large: at most 3"}},
                                  field);
  check_assignments<std::vector<double>>({{{Values{{1.0}, {5.0}}}, "is too large: at most 3"}}, field);
  field.above_min = true;
  check_assignments<double>({{whole(0), "is too small: it must be above 0"}, {{1e-300}, "1e-300"}}, field);
  field.filled = true;
  check_assignments<std::string>({{{""}, "is empty"}}, field);
  check_assignments<std::vector<std::string>>({{{Values{{"a"}, {""}}}, "is empty"}, {{Values{}}, "[]"}}, field);
}

TEST(PlainText, IsTheTextOfFilesAndFlagsOnly) {
  EXPECT_EQ(plain_text({"x"}), "x");
  EXPECT_EQ(plain_text(raw("x")), "x");
  EXPECT_EQ(plain_text(whole(5)), "");
  EXPECT_EQ(plain_number(whole(5)), 5.0);
  EXPECT_EQ(plain_number(raw("1_0.5")), 10.5);
  EXPECT_FALSE(plain_number({"5"}).has_value());
}

}  // namespace
}  // namespace trireme::config
