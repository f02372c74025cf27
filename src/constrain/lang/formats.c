/* formats.c - one regular expression for each format; see formats.h.
 *
 * Called by: schema_compile.c. Sources: RFC 3339 (dates and times, with the days of each month), RFC 3339
 * appendix A (durations), RFC 5321 (email), RFC 1123 (host names), RFC 2673 (IPv4), RFC 4291 (IPv6), RFC
 * 3986 and 3987 (URIs, IRIs), RFC 6570 (URI templates), RFC 6901 (JSON pointers). Leap seconds are taken
 * only as 23:59:60 with the offset Z or 00:00. */
#include "constrain/lang/formats.h"

#include <string.h>

#include "constrain/lang/regular_expression.h"

#define LEAP "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
#define DATE                                                                                                 \
  "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"       \
  "|02-(?:0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define TIME                                                                                                 \
  "(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"  \
  "|23:59:60(?:\\.[0-9]+)?(?:[Zz]|[+-]00:00))"
#define DURATION_TIME "(?:T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))"
#define DURATION_DATE "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
#define OCTET         "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4          OCTET "(?:\\." OCTET "){3}"
#define HEX4          "[0-9A-Fa-f]{1,4}"
#define LAST4         "(?:" HEX4 ":" HEX4 "|" IPV4 ")"
#define IPV6                                                                                                 \
  "(?:(?:" HEX4 ":){6}" LAST4 "|::(?:" HEX4 ":){5}" LAST4 "|(?:" HEX4 ")?::(?:" HEX4 ":){4}" LAST4           \
  "|(?:(?:" HEX4 ":){0,1}" HEX4 ")?::(?:" HEX4 ":){3}" LAST4 "|(?:(?:" HEX4 ":){0,2}" HEX4 ")?::(?:" HEX4    \
  ":){2}" LAST4 "|(?:(?:" HEX4 ":){0,3}" HEX4 ")?::" HEX4 ":" LAST4 "|(?:(?:" HEX4 ":){0,4}" HEX4            \
  ")?::" LAST4 "|(?:(?:" HEX4 ":){0,5}" HEX4 ")?::" HEX4 "|(?:(?:" HEX4 ":){0,6}" HEX4 ")?::)"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST  LABEL "(?:\\." LABEL ")*"
#define ATOM  "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define LOCAL "(?:" ATOM "(?:\\." ATOM ")*|\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\")"
#define UCS                                                                                                  \
  "\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef\\u{10000}-\\u{1fffd}\\u{20000}-\\u{2fffd}"                  \
  "\\u{30000}-\\u{3fffd}\\u{40000}-\\u{dfffd}\\u{e1000}-\\u{efffd}"
#define ESCAPED "%[0-9A-Fa-f]{2}"
/* The parts of a URI; `more` are further unreserved characters, which IRIs have. */
#define PCHAR(more)   "(?:[A-Za-z0-9._~!$&'()*+,;=:@" more "-]|" ESCAPED ")"
#define QUERY(more)   "(?:[A-Za-z0-9._~!$&'()*+,;=:@/?" more "-]|" ESCAPED ")*"
#define REGNAME(more) "(?:[A-Za-z0-9._~!$&'()*+,;=" more "-]|" ESCAPED ")*"
#define AUTHORITY(more)                                                                                      \
  "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:" more "-]|" ESCAPED ")*@)?(?:\\[(?:" IPV6                                 \
  "|v[0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|" REGNAME(more) ")(?::[0-9]*)?"
#define ABEMPTY(more)  "(?:/" PCHAR(more) "*)*"
#define ABSOLUTE(more) "/(?:" PCHAR(more) "+(?:/" PCHAR(more) "*)*)?"
#define TAIL(more)     "(?:\\?" QUERY(more) ")?(?:#" QUERY(more) ")?"
#define URI(more)                                                                                            \
  "[A-Za-z][A-Za-z0-9+.-]*:(?://" AUTHORITY(more)                                                            \
      ABEMPTY(more) "|" ABSOLUTE(more) "|" PCHAR(more) "+(?:/" PCHAR(more) "*)*|)" TAIL(more)
#define RELATIVE(more)                                                                                       \
  "(?://" AUTHORITY(more) ABEMPTY(more) "|" ABSOLUTE(more) "|(?:[A-Za-z0-9._~!$&'()*+,;=@" more              \
                                                           "-]|" ESCAPED                                     \
                                                           ")+(?:/" PCHAR(more) "*)*|)" TAIL(more)
#define VARIABLE "(?:[A-Za-z0-9_]|" ESCAPED ")(?:\\.?(?:[A-Za-z0-9_]|" ESCAPED "))*(?::[1-9][0-9]{0,3}|\\*)?"

static const struct {
  const char *name, *expression;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "[Tt]" TIME},
    {"duration", "P(?:" DURATION_DATE DURATION_TIME "?|" DURATION_TIME "|[0-9]+W)"},
    {"email", LOCAL "@(?:" HOST "|\\[(?:" IPV4 "|IPv6:" IPV6 ")\\])"},
    {"idn-email",
     "(?:[A-Za-z0-9!#$%&'*+/=?^_`{|}~.\\u0080-\\u{10ffff}-]+)@(?:[A-Za-z0-9.\\u0080-\\u{10ffff}-]+)"},
    {"hostname", "(?=.{1,253}$)" HOST},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uuid", "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"},
    {"uri", URI("")},
    {"uri-reference", "(?:" URI("") "|" RELATIVE("") ")"},
    {"iri", URI(UCS)},
    {"iri-reference", "(?:" URI(UCS) "|" RELATIVE(UCS) ")"},
    {"uri-template",
     "(?:[!#$&(-;=?-\\[\\]_a-z~" UCS "]|" ESCAPED "|\\{[+#./;?&=,!@|]?" VARIABLE "(?:," VARIABLE ")*\\})*"},
    {"json-pointer", "(?:/(?:[^~/]|~[01])*)*"},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)"},
    {"regex", NULL},
    {"idn-hostname", NULL},
};

Status format_lang(Langs *langs, const char *name, bool *known, Lang *out, Error *err) {
  *known = false;
  for (size_t i = 0; i < sizeof formats / sizeof *formats && !*known; i++) {
    if (strcmp(formats[i].name, name) != 0) continue;
    *known = true;
    langs->unsupported = !formats[i].expression;
    if (!formats[i].expression)
      return error_set(err, STATUS_USAGE,
                       "the format \"%s\" is not supported (a pattern can say what matters)", name);
    const char *text = formats[i].expression;
    TRY(regular_expression_parse(langs, text, strlen(text), REGEX_WHOLE, out, err));
    lang_declare_text(langs, *out);
  }
  return STATUS_OK;
}
