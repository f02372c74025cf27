/* test_decimal.c - numbers as text: the shortest that reads back to the same double, up to all 17 digits. */
#include "commands/models/decimal.h"
#include "test/tests.h"

TEST(a_number_has_as_many_digits_as_it_takes_to_read_it_back) {
  static const struct {
    double value;
    const char *text;
  } cases[] = {
      {0, "0"},
      {-3, "-3"},
      {1e6, "1000000"},
      {999999999999999, "999999999999999"}, /* whole numbers in full */
      {1e15, "1e+15"},                      /* but not this long */
      {1e-6, "1e-06"},
      {0.1, "0.1"},
      {-2.5, "-2.5"},
      {0.1 + 0.7, "0.7999999999999999"},  /* 16 digits */
      {0.1 + 0.2, "0.30000000000000004"}, /* 17 digits */
      {5e-324, "5e-324"},
      {1.7976931348623157e308, "1.7976931348623157e+308"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_string_equal(decimal(cases[i].value).text, cases[i].text);
    assert_true(strtod(cases[i].text, NULL) == cases[i].value);
  }
}
