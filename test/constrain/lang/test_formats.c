/* test_formats.c - formats against what their standards say, worked out by other means: calendars, counted
 * parts, inet_pton(), all short strings of an alphabet; and lists where only a grammar says it. */
#include <arpa/inet.h>

#include "constrain/lang/formats.h"
#include "test/constrain/random_schemas.h"
#include "test/tests.h"

static Langs langs;
static Lang lang;
static const char *format;

static void open_format(const char *name) {
  bool known;
  assert_int_equal(langs_open(&langs, NULL), STATUS_OK);
  assert_int_equal(format_lang(&langs, name, &known, &lang, NULL), STATUS_OK);
  assert_true(known);
  format = name;
}

static void check(const char *text, bool fits) {
  if (lang_contains(&langs, lang, text, strlen(text)) != fits)
    fail_msg("%s \"%s\": expected %d", format, text, fits);
}

/* Calls `fits` for all strings of up to `most` characters of the alphabet. */
static void check_all(const char *alphabet, int most, bool (*fits)(const char *text)) {
  char text[16] = "";
  int which[16] = {0};
  const int n = (int)strlen(alphabet);
  for (int size = 0; size <= most; size++) {
    memset(which, 0, sizeof which);
    for (int at = 0; at >= 0;) {
      for (int i = 0; i < size; i++) text[i] = alphabet[which[i]];
      text[size] = '\0';
      check(text, fits(text));
      for (at = size - 1; at >= 0 && ++which[at] == n; at--) which[at] = 0;
    }
  }
}

/* --- dates and times */

static int days_of(int year, int month) {
  static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return month < 1 || month > 12 ? 0 : days[month - 1] + (month == 2 && leap);
}

TEST(dates_are_those_of_the_calendar) {
  open_format("date");
  for (int year = 0; year<10000; year += year % 100> 4 && year % 100 < 95 ? 7 : 1)
    for (int month = 0; month <= 13; month += month > 2 && year % 50 ? 10 : 1)
      for (int day = 0; day <= 32; day += day == 1 ? 27 : 1) {
        char text[40];
        snprintf(text, sizeof text, "%04d-%02d-%02d", year, month, day);
        check(text, day >= 1 && day <= days_of(year, month));
      }
  for (const char *const *at = (const char *const[]){"2024-1-01", "24-01-01", "2024-01-1", "2024-01-01 ",
                                                     "12024-01-01", "2024/01/01", "20240101", "", NULL};
       *at; at++)
    check(*at, false);
  langs_close(&langs);
}

TEST(times_are_those_of_a_clock) {
  static const struct {
    const char *text;
    int valid; /* 1: any time; 2: that of a leap second too */
  } ends[] = {{"Z", 2},      {"z", 2},      {"+00:00", 2},    {"-00:00", 2}, {".5Z", 2},    {".000+00:00", 2},
              {"+23:59", 1}, {"-01:30", 1}, {".12-05:00", 1}, {"+24:00", 0}, {"+12:60", 0}, {"", 0},
              {".Z", 0},     {",5Z", 0},    {"+0100", 0},     {"+01", 0},    {" Z", 0},     {"ZZ", 0}};
  for (int whole = 0; whole < 2; whole++) {
    open_format(whole ? "date-time" : "time");
    for (int hour = 0; hour <= 25; hour++)
      for (int minute = 57; minute <= 61; minute++)
        for (int second = 58; second <= 61; second++)
          for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
            char text[60];
            const bool leap = hour == 23 && minute == 59 && second == 60;
            snprintf(text, sizeof text, "%s%02d:%02d:%02d%s",
                     whole ? second % 2 ? "2024-02-29T" : "1999-12-31t" : "", hour, minute, second,
                     ends[i].text);
            check(text,
                  hour < 24 && minute < 60 && (second < 60 ? ends[i].valid > 0 : leap && ends[i].valid == 2));
          }
    check("2023-02-29T12:00:00Z", false);
    check("2024-02-29 12:00:00Z", false);
    check("2024-02-2912:00:00Z", false);
    check("1:00:00Z", false);
    check("01:00Z", false);
    langs_close(&langs);
  }
}

/* Units follow one another without a gap: of years and days, months are a part too. */
TEST(durations_have_their_units_in_order) {
  static const char units[] = "YMDHMS";
  static const char *const numbers[] = {"1", "12", "007", ""};
  open_format("duration");
  for (unsigned set = 0; set < 1 << 6; set++)
    for (int time = 0; time < 2; time++)
      for (int n = 0; n < 4; n++) {
        char text[80] = "P";
        const unsigned days = set & 7, hours = set >> 3;
        for (int i = 0; i < 6; i++) {
          if (i == 3 && time) strcat(text, "T");
          if (set >> i & 1) strcat(strcat(text, numbers[n]), (const char[]){units[i], 0});
        }
        if (!time && hours) continue; /* such letters may be other units */
        check(text, *numbers[n] && days != 5 && hours != 5 && (days || hours) && (hours != 0) == (time != 0));
      }
  for (int n = 0; n < 4; n++) {
    char text[40];
    snprintf(text, sizeof text, "P%sW", numbers[n]);
    check(text, *numbers[n] != '\0');
    snprintf(text, sizeof text, "P%sW1D", numbers[n]);
    check(text, false);
  }
  check("1D", false), check("p1D", false), check("P1D ", false), check("P1.5D", false), check("P-1D", false);
  check("PT1D", false), check("P1H", false), check("P1D2Y", false), check("P1DT", false), check("PT", false);
  langs_close(&langs);
}

/* --- addresses and names */

TEST(addresses_are_those_of_inet_pton) {
  static const char *const octets[] = {"0",   "1",   "9",   "10",   "99",  "100", "199", "200",
                                       "249", "250", "255", "256",  "260", "300", "999", "00",
                                       "01",  "010", "1.",  "1000", "",    "a"};
  static const char hex[] = "0123456789abcdefABCDEFg";
  enum { N = sizeof octets / sizeof *octets };
  unsigned char out[16];
  uint64_t seed = 1;
  open_format("ipv4");
  for (int i = 0; i < 4 * N * N; i++) {
    char text[80] = "";
    for (int k = 0; k < 4; k++)
      sprintf(text + strlen(text), "%s%s", k ? "." : "",
              octets[k == i % 4         ? i / 4 % N
                     : k == (i + 1) % 4 ? i / 4 / N
                                        : 6]);
    check(text, inet_pton(AF_INET, text, out) == 1);
  }
  check("1.2.3", false), check("1.2.3.4.5", false), check("1.2.3.4 ", false);
  langs_close(&langs);
  open_format("ipv6");
  int n_valid = 0;
  for (int i = 0; i < 40000; i++) {
    char text[120] = "";
    const uint32_t n = random_below(&seed, 10),
                   gap = random_below(&seed, 3) ? random_below(&seed, n + 1) : 99;
    for (uint32_t k = 0; k <= n; k++) {
      if (k == gap)
        strcat(text, "::");
      else if (k > 0 && k < n)
        strcat(text, ":");
      if (k == n) break;
      const uint32_t size = random_below(&seed, 12) ? 1 + random_below(&seed, 4) : 5 * random_below(&seed, 2);
      if (k + 1 == n && random_below(&seed, 4) == 0) {
        sprintf(text + strlen(text), "1.22.%s.0", octets[random_below(&seed, N)]);
      } else {
        for (uint32_t d = 0; d < size; d++)
          strncat(text, &hex[random_below(&seed, random_below(&seed, 40) ? 22 : 23)], 1);
      }
    }
    const bool valid = inet_pton(AF_INET6, text, out) == 1;
    n_valid += valid;
    check(text, valid);
  }
  assert_true(n_valid > 4000);
  langs_close(&langs);
}

static bool is_hostname(const char *text) {
  size_t label = 0;
  for (const char *at = text;; at++) {
    if (*at == '.' || !*at) {
      if (label == 0 || label > 63 || at[-1] == '-') return false;
      if (!*at) return at - text <= 253;
      label = 0;
    } else if ((*at == '-' && label++ == 0) || *at == '_') {
      return false;
    } else if (*at != '-') {
      label++;
    }
  }
}

TEST(names_of_hosts_have_labels_of_63_characters) {
  open_format("hostname");
  check_all("aZ0-._", 5, is_hostname);
  for (size_t first = 60; first < 67; first++)
    for (size_t n = 0; n < 200; n++) {
      char text[400] = "";
      memset(text, 'x', first);
      for (size_t i = 0; i < n; i++) strcat(text, i % 50 ? i % 7 ? "b" : "-" : ".");
      check(text, is_hostname(text));
    }
  langs_close(&langs);
  open_format("uuid");
  for (int at = 0; at < 36; at++)
    for (const char *c = "09afAFgG-_ "; *c; c++) {
      char text[] = "01234567-89ab-cdef-ABCD-EF0123456789";
      const bool dash = text[at] == '-';
      text[at] = *c;
      check(text, dash ? *c == '-' : strchr("09afAF", *c) != NULL);
      text[at] = '\0';
      check(text, false);
    }
  check("01234567-89ab-cdef-ABCD-EF01234567890", false);
  langs_close(&langs);
}

/* --- pointers */

static bool is_pointer(const char *text) {
  if (*text && *text != '/') return false;
  for (; *text; text++)
    if (*text == '~' && text[1] != '0' && text[1] != '1') return false;
  return true;
}

static bool is_relative_pointer(const char *text) {
  const size_t digits = strspn(text, "012");
  if (digits == 0 || (*text == '0' && digits > 1)) return false;
  return strcmp(text + digits, "#") == 0 || is_pointer(text + digits);
}

TEST(pointers_escape_two_characters) {
  open_format("json-pointer");
  check_all("/~012a#", 5, is_pointer);
  check("/\u00e9", true);
  langs_close(&langs);
  open_format("relative-json-pointer");
  check_all("/~012a#", 5, is_relative_pointer);
  langs_close(&langs);
}

/* --- what only a grammar says */

static const struct {
  const char *format;
  const char *fits[24], *others[28];
} lists[] = {
    {"uri",
     {"ftp://ftp.is.co.za/rfc/rfc1808.txt",
      "http://www.ietf.org/rfc/rfc2396.txt",
      "ldap://[2001:db8::7]/c=GB?objectClass?one",
      "mailto:John.Doe@example.com",
      "news:comp.infosystems.www.servers.unix",
      "tel:+1-816-555-1212",
      "telnet://192.0.2.16:80/",
      "urn:oasis:names:specification:docbook:dtd:xml:4.1.2",
      "a:",
      "A1+-.:b",
      "a:?",
      "a:#",
      "a:/",
      "a:///",
      "a:/b//c",
      "a:b//c",
      "http://u:p@h:1/%41%fF",
      "http://h:/",
      "http://[v1F.a:b]:8/",
      "http://@/",
      "a:~!$&'()*+,;=:@-._",
      "a:b?/?:@#/?:@",
      "http://256.1.1.1/"},
     {"",
      "a",
      ":a",
      "1a:b",
      "-a:b",
      "a_b:c",
      "//h",
      "/a",
      "?a",
      "#a",
      "a:b c",
      "a:%",
      "a:%4",
      "a:%zz",
      "a:##",
      "a:#b#c",
      "http://[::1",
      "http://[1:2]/",
      "http://[v1.]/",
      "http://[vg.a]/",
      "http://h:x/",
      "http://a@b@c/",
      "a:\\",
      "a:^",
      "a:\"",
      "a:\u00e9",
      "a:[b]",
      "a:{b}"}},
    {"uri-reference",
     {"",  "a", "a/b:c", "a:b",   "./1:b", "//h", "//h/", "///", "/", "/a//b",
      "?", "#", "?a#b",  "../..", "..",    "@",   "a@b",  "%41", "*", "//[::]/?#"},
     {"1:b", ":", ":a", "1a:", " ", "a b", "%", "%4g", "##", "\\", "\u00e9", "//[", "//h:x", "<", "a|b", "[",
      "`"}},
    {"iri",
     {"http://\u00e9/\u00fc?\u3042#\U00010000", "a:\u00a0", "a:\uf900", "a:\ufdcf", "a:\ufdf0", "a:\uffef",
      "a:\U0001fffd", "a:\U000e1000", "a:b"},
     {"\u00e9:a", "a:\xc2\x9f", "a:\ue000", "a:\uf8ff", "a:\ufdd0", "a:\ufff0", "a:\U0001fffe",
      "a:\U000f0000", "a: ", "a:%\u00e9", "\u00e9"}},
    {"iri-reference", {"\u00e9", "\u00e9/:", "//\u00e9", "", "a:\u00e9"}, {"\u00e9:", "\ue000", " "}},
    {"uri-template",
     {"", "a", "{a}", "{+a}", "{#a,b}", "{.a.b}", "{/a*}", "{;a:3}", "{?a:9999,b*}", "{&%41_1}", "{=a}",
      "{!a}", "{@a}", "{|a}", "{,a}", "a{b}c{d}", "%41", "\u00e9", "[a]~!#$&();=?@"},
     {"{",      "}",   "{}",   "a}",    "{a",   "{a:0}", "{a:10000}", "{a:}",  "{a,}", "{,}",
      "{a..b}", "{.}", "{a.}", "{a b}", "{-a}", "{a**}", "{a*:3}",    "{++a}", "%4",   "%zz",
      "a b",    "<",   ">",    "\\",    "^",    "`",     "\"",        "{a{b}}"}},
    {"email",
     {"a@b", "a.b.c@d.e-f.g", "!#$%&'*+/=?^_`{|}~-@a", "\"\"@a", "\"a b\\\"\\\\@.\"@a", "a@[1.2.3.4]",
      "a@[IPv6:::1]", "A0@0"},
     {"",      "@",        "a",        "a@",     "@a",    ".a@b",  "a.@b",      "a..b@c",   "a b@c",
      "a@b@c", "a@-b",     "a@b-",     "a@b..c", "a@.b",  "a@b.",  "a@[1.2.3]", "a@[::1]",  "a@[IPv6:1]",
      "\"a@b", "\"a\"b@c", "\"\\\"@a", "a\"@b",  "(a)@b", "a,b@c", "\u00e9@a",  "a@\u00e9", "a@b_c"}},
    {"idn-email",
     {"a@b", "\u00e9@\u00fc.\u3042", "a.b@c-d", "!@a"},
     {"", "@", "a@", "@b", "a", "a@b@c", "a b@c", "a@b c", "\"a\"@b"}},
};

TEST(what_a_grammar_says_is_listed) {
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    open_format(lists[i].format);
    for (size_t k = 0; k < 24 && lists[i].fits[k]; k++) check(lists[i].fits[k], true);
    for (size_t k = 0; k < 28 && lists[i].others[k]; k++) check(lists[i].others[k], false);
    langs_close(&langs);
  }
}

/* Names that no draft defines say nothing; two formats are no regular languages. */
TEST(other_formats_are_unknown_or_refused) {
  static const char *const names[] = {"x", "", "Date", "dates", "color", "regex", "idn-hostname"};
  bool known;
  Error err;
  assert_int_equal(langs_open(&langs, NULL), STATUS_OK);
  for (int i = 0; i < 7; i++) {
    assert_int_equal(format_lang(&langs, names[i], &known, &lang, &err), i < 5 ? STATUS_OK : STATUS_USAGE);
    assert_int_equal(known, i >= 5);
    assert_true(i < 5 || langs.unsupported);
  }
  langs_close(&langs);
}
