/* format.c - "%s" % values and "{:>5}".format(values), as in Python.
 *
 * Always true: the format's text (also its fill characters) and the values' texts keep their trust; digits
 *              and other padding are trusted. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "tokenizer/jinja/strings.h"

enum { MAX_PRECISION = 400, MAX_DIGITS = 1200 }; /* DIGITS: 309 before the point, fraction, separators */

/* "[[fill]align][sign][#][0][width][, or _][.precision][type]" */
typedef struct {
  Text fill;
  char align; /* < > ^ =, or NUL: the type's default */
  char sign;  /* + - or blank */
  bool alternate, zero;
  int64_t width, precision; /* precision -1: none */
  char separator;           /* , or _ or NUL */
  char type;                /* NUL: the value's default */
} FormatSpec;

/* A number in parts, so that zeros can stand between sign and digits. */
typedef struct {
  char sign[8];            /* with `alternate` followed by 0x, 0X, 0o or 0b */
  char digits[MAX_DIGITS]; /* digits before the point */
  char rest[MAX_DIGITS];   /* what follows: point and fraction, exponent, % */
} NumberParts;

/* --- numbers */

static const char *sign_of(bool negative, const FormatSpec *spec) {
  return negative ? "-" : spec->sign == '+' ? "+" : spec->sign == ' ' ? " " : "";
}

static void integer_digits(int64_t value, const FormatSpec *spec, NumberParts *out) {
  char type = spec->type ? spec->type : 'd';
  unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  char digits[72], *at = digits + sizeof digits;
  *--at = '\0';
  do *--at = (type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[left % base];
  while ((left /= base) > 0);
  strcpy(out->digits, at);
  snprintf(out->sign, sizeof out->sign, "%s", sign_of(value < 0, spec));
  if (spec->alternate && base != 10) {
    size_t n = strlen(out->sign);
    out->sign[n] = '0';
    out->sign[n + 1] = type;
    out->sign[n + 2] = '\0';
  }
  out->rest[0] = '\0';
}

/* Removes trailing zeros of a fraction, and the point if no digit follows it then. */
static void drop_zeros(char *text) {
  if (!strchr(text, '.')) return;
  char *exponent = strpbrk(text, "eE"), *end = exponent ? exponent : text + strlen(text), *keep = end;
  while (keep[-1] == '0') keep--;
  if (keep[-1] == '.') keep--;
  memmove(keep, end, strlen(end) + 1);
}

/* Writes `digits` significant digits like %g: numbers below 1e-4 and from 10^limit on have an exponent.
 * glibc's %#g drops zeros of numbers that round up to 10^digits: 999.9 with 3 digits becomes 1.e+03. */
static void general_digits(double number, int digits, int limit, const FormatSpec *spec, char *text,
                           size_t size) {
  const char *with_exponent = spec->type == 'G' ? "%#.*E" : "%#.*e";
  snprintf(text, size, with_exponent, digits - 1, number);
  int exponent = atoi(strpbrk(text, "eE") + 1);
  if (exponent >= -4 && exponent < limit) snprintf(text, size, "%#.*f", digits - 1 - exponent, number);
  if (!spec->alternate) drop_zeros(text);
}

/* Writes the number without its sign in the spec's type or, if that is NUL, as Python prints it. */
static void float_digits_text(double number, const FormatSpec *spec, char *text, size_t size) {
  char type = spec->type;
  int precision = spec->precision < 0 ? 6 : (int)spec->precision, digits = precision ? precision : 1;
  if (!type && spec->precision < 0) {
    char shown[32];
    float_text(number, shown);
    size_t whole = strcspn(shown, ".e");
    bool adds_point = spec->alternate && shown[whole] == 'e';
    snprintf(text, size, "%.*s%s%s", (int)whole, shown, adds_point ? "." : "", shown + whole);
  } else if (!type) { /* one digit always follows the point: digits - 1 are left before it */
    general_digits(number, digits, digits - 1, spec, text, size);
    if (!strpbrk(text, ".e")) strcat(text, ".0");
  } else if (strchr("fFeE%", type)) {
    char format[8];
    snprintf(format, sizeof format, "%%%s.*%c", spec->alternate ? "#" : "", strchr("eE", type) ? type : 'f');
    snprintf(text, size, format, precision, number);
  } else {
    general_digits(number, digits, digits, spec, text, size);
  }
}

static void float_digits(double number, const FormatSpec *spec, NumberParts *out) {
  snprintf(out->sign, sizeof out->sign, "%s", sign_of(signbit(number) && !isnan(number), spec));
  number = fabs(number);
  out->rest[0] = '\0';
  const char *percent = spec->type == '%' ? "%" : "";
  if (spec->type == '%') number *= 100;
  if (!isfinite(number)) {
    bool upper = spec->type == 'F' || spec->type == 'E' || spec->type == 'G';
    snprintf(out->digits, sizeof out->digits, upper ? "%F" : "%f", number);
    snprintf(out->rest, sizeof out->rest, "%s", percent);
    return;
  }
  char text[MAX_DIGITS - 2];
  float_digits_text(number, spec, text, sizeof text);
  size_t n = strspn(text, "0123456789");
  memcpy(out->digits, text, n);
  out->digits[n] = '\0';
  snprintf(out->rest, sizeof out->rest, "%s%s", text + n, percent);
}

/* Groups the digits by three (by four if the base is not ten). */
static void group_digits(const FormatSpec *spec, char digits[MAX_DIGITS]) {
  char grouped[MAX_DIGITS];
  size_t n = strlen(digits), k = 0, size = spec->type && strchr("xXob", spec->type) ? 4 : 3;
  for (size_t i = 0; i < n && k + 2 < sizeof grouped; i++) {
    if (i && (n - i) % size == 0) grouped[k++] = spec->separator;
    grouped[k++] = digits[i];
  }
  grouped[k] = '\0';
  strcpy(digits, grouped);
}

/* Prepends zeros until there are `wanted` digits. */
static void prepend_zeros(NumberParts *parts, size_t wanted) {
  size_t n = strlen(parts->digits), missing = wanted > n ? wanted - n : 0;
  memmove(parts->digits + missing, parts->digits, n + 1);
  memset(parts->digits, '0', missing);
}

/* Prepends zeros until sign, digits with separators, and rest fill the width. */
static void zero_digits(const FormatSpec *spec, NumberParts *parts) {
  size_t around = strlen(parts->sign) + strlen(parts->rest), n = strlen(parts->digits);
  int64_t room = spec->width - (int64_t)around;
  size_t size = spec->type && strchr("xXob", spec->type) ? 4 : 3;
  while (n < MAX_DIGITS / 2 && (int64_t)(n + (n - 1) / size) < room) n++;
  prepend_zeros(parts, n);
}

/* Writes a sign and the body after it; with align '=' the padding is between the two. */
static Status put_aligned(Render *render, const char *sign, Text body, int64_t width, char align, Text fill) {
  int64_t size = (int64_t)(strlen(sign) + text_count(body)), missing = width > size ? width - size : 0;
  int64_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  TRY(put_repeated(render, fill, left));
  TRY(put_trusted(render, sign));
  if (align == '=') TRY(put_repeated(render, fill, missing));
  TRY(put_text(render, body));
  return align == '=' ? STATUS_OK : put_repeated(render, fill, missing - left);
}

static Status put_digits(Render *render, NumberParts *parts, const FormatSpec *spec) {
  char align = spec->align ? spec->align : spec->zero ? '=' : '>', body[2 * MAX_DIGITS];
  Text fill = spec->zero && !spec->align ? text_literal("0") : spec->fill;
  if (spec->separator && isxdigit((unsigned char)parts->digits[0])) {
    if (align == '=' && text_is(fill, "0")) zero_digits(spec, parts);
    group_digits(spec, parts->digits);
  }
  snprintf(body, sizeof body, "%s%s", parts->digits, parts->rest);
  return put_aligned(render, parts->sign, text_literal(body), spec->width, align, fill);
}

static Status put_padded_text(Render *render, Text text, const FormatSpec *spec) {
  TRY(render_charge_bytes(render, text.size));
  if (spec->precision >= 0) text = text_slice(text, 0, text_offset(text, (size_t)spec->precision));
  char align = spec->align == '=' ? '<' : spec->align;
  return put_aligned(render, "", text, spec->width, align, spec->fill);
}

static Status put_character(Render *render, int64_t code, const FormatSpec *spec) {
  char bytes[4];
  if (code < 0 || code >= 0x110000 || (code >= 0xd800 && code < 0xe000))
    return render_fail(render, "%%c arg not in range(0x110000)");
  size_t n = (size_t)utf8_encode((uint32_t)code, bytes);
  return put_padded_text(render, text_of(bytes, n, true), spec);
}

static Status put_number_as(Render *render, Value value, const FormatSpec *spec) {
  NumberParts digits;
  if (spec->precision > MAX_PRECISION)
    return render_fail(render, "a precision above %d is not supported", MAX_PRECISION);
  bool is_float = value.kind == VALUE_FLOAT || (spec->type && strchr("eEfFgG%", spec->type));
  if (is_float)
    float_digits(value_number(value), spec, &digits);
  else
    integer_digits(value_integer(value), spec, &digits);
  return put_digits(render, &digits, spec);
}

/* --- format(value, spec) */

static int64_t parse_number(Text text, size_t *at, int64_t none) {
  int64_t number = none;
  for (; *at < text.size && isdigit((unsigned char)text.data[*at]); ++*at)
    if (number < (1 << 30)) number = (number < 0 ? 0 : number) * 10 + (text.data[*at] - '0');
  return number;
}

static char char_at(Text text, size_t at) {
  return at < text.size ? text.data[at] : '\0';
}

static bool parse_spec(Text text, FormatSpec *spec) {
  *spec = (FormatSpec){.fill = text_literal(" "), .precision = -1};
  size_t at = 0, first = text.size ? text_step(text, 0) : 0;
  bool filled = char_at(text, first) && strchr("<>=^", char_at(text, first));
  if (filled) {
    spec->fill = text_slice(text, 0, first);
    spec->align = char_at(text, first);
    at = first + 1;
  } else if (char_at(text, 0) && strchr("<>=^", char_at(text, 0))) {
    spec->align = char_at(text, at++);
  }
  if (char_at(text, at) && strchr("+- ", char_at(text, at))) spec->sign = char_at(text, at++);
  if (char_at(text, at) == '#') spec->alternate = true, at++;
  if (char_at(text, at) == '0') {
    spec->zero = true, at++;
    if (!filled) spec->fill = text_literal("0");
  }
  spec->width = parse_number(text, &at, 0);
  if (char_at(text, at) == ',' || char_at(text, at) == '_') spec->separator = char_at(text, at++);
  if (char_at(text, at) == '.') {
    at++;
    spec->precision = parse_number(text, &at, -1);
    if (spec->precision < 0) return false;
  }
  if (at < text.size) spec->type = char_at(text, at++);
  return at == text.size;
}

static Status wrong_type(Render *render, const FormatSpec *spec, Value value) {
  return render_fail(render, "Unknown format code '%c' for object of type '%s'", spec->type,
                     value_type(value));
}

/* Digits of bases other than ten are grouped by '_' only; types c, n and s take no separator. */
static bool separator_fits(const FormatSpec *spec) {
  if (!spec->separator || !spec->type) return true;
  return !strchr("cns", spec->type) && (spec->separator == '_' || !strchr("bxXo", spec->type));
}

static Status put_formatted(Render *render, Value value, Text text) {
  FormatSpec spec;
  if (text.size == 0) return put_string(render, value);
  if (!parse_spec(text, &spec)) return render_fail(render, "Invalid format specifier");
  if (value.kind == VALUE_STRING || value.kind == VALUE_UNDEFINED) {
    Text shown;
    if (value.kind == VALUE_UNDEFINED)
      return render_fail(render, "unsupported format string passed to Undefined.__format__");
    if (spec.type && spec.type != 's') return wrong_type(render, &spec, value);
    if (spec.align == '=') return render_fail(render, "'=' alignment not allowed in string format specifier");
    if (spec.sign || spec.alternate || spec.separator)
      return render_fail(render, "a sign, '#' or a separator is not allowed in a string's format specifier");
    TRY(value_string(render, value, &shown));
    return put_padded_text(render, shown, &spec);
  }
  if (!value_is_number(value))
    return render_fail(render, "unsupported format string passed to %s.__format__", value_type(value));
  if (!separator_fits(&spec))
    return render_fail(render, "Cannot specify '%c' with '%c'.", spec.separator, spec.type);
  if (value.kind != VALUE_FLOAT && spec.type == 'c') {
    if (spec.sign || spec.alternate)
      return render_fail(render, "a sign or '#' is not allowed with integer format specifier 'c'");
    if (!spec.align) spec.align = '>';
    return put_character(render, value_integer(value), &spec);
  }
  if (spec.type == 'n') spec.type = value.kind == VALUE_FLOAT ? 'g' : 'd';
  const char *types = value.kind == VALUE_FLOAT ? "eEfFgG%" : "bdoxXeEfFgG%";
  if (spec.type && !strchr(types, spec.type)) return wrong_type(render, &spec, value);
  if (value.kind != VALUE_FLOAT && spec.precision >= 0 && !(spec.type && strchr("eEfFgG%", spec.type)))
    return render_fail(render, "Precision not allowed in integer format specifier");
  return put_number_as(render, value, &spec);
}

/* --- "%(name)5s" % values */

typedef struct {
  Value args;  /* the operand after % */
  size_t used; /* items of a tuple used; 1 after a single value */
} Percent;

static Status next_argument(Render *render, Percent *percent, Value *out) {
  bool is_tuple = percent->args.kind == VALUE_TUPLE;
  if (percent->used >= (is_tuple ? percent->args.list->count : 1))
    return render_fail(render, "not enough arguments for format string");
  *out = is_tuple ? percent->args.list->items[percent->used] : percent->args;
  percent->used++;
  return STATUS_OK;
}

static Status named_argument(Render *render, const Percent *percent, Text format, size_t *at, Value *out) {
  size_t from = *at, depth = 1;
  for (; *at < format.size && depth > 0; ++*at)
    depth += (format.data[*at] == '(') - (size_t)(format.data[*at] == ')');
  if (depth > 0) return render_fail(render, "incomplete format key");
  if (percent->args.kind != VALUE_DICT) return render_fail(render, "format requires a mapping");
  Text key = text_slice(format, from, *at - 1);
  const Value *found;
  TRY(dict_find_text(render, percent->args.dict, key, &found));
  if (!found) return render_fail(render, "'%.*s'", (int)key.size, key.data);
  *out = *found;
  return STATUS_OK;
}

static Status star_or_number(Render *render, Percent *percent, Text format, size_t *at, int64_t none,
                             int64_t *out) {
  *out = none;
  if (char_at(format, *at) != '*') {
    *out = parse_number(format, at, none);
    return STATUS_OK;
  }
  Value value;
  ++*at;
  TRY(next_argument(render, percent, &value));
  if (!value_is_integer(value)) return render_fail(render, "* wants int");
  *out = value_integer(value);
  return *out >= -(1 << 30) && *out <= 1 << 30 ? STATUS_OK : render_fail(render, "width too big");
}

static Status put_percent_number(Render *render, Value value, FormatSpec *spec) {
  bool floats = strchr("eEfFgG", spec->type);
  if (value.kind == VALUE_UNDEFINED) return render_undefined(render, value);
  if (!value_is_number(value) || (value.kind == VALUE_FLOAT && strchr("xXo", spec->type)))
    return floats ? render_fail(render, "must be real number, not %s", value_type(value))
                  : render_fail(render, "%%%c format: a%s is required, not %s", spec->type,
                                strchr("xXo", spec->type) ? "n integer" : " real number", value_type(value));
  if (strchr("diu", spec->type)) {
    spec->type = 'd';
    if (value.kind == VALUE_FLOAT) {
      if (!(fabs(value.number) < 0x1p63)) return render_fail(render, "an integer is beyond 64 bits");
      value = value_int((int64_t)value.number);
    }
  }
  if (!floats && spec->precision >= 0) { /* the precision is the least number of digits */
    NumberParts digits;
    integer_digits(value_integer(value), spec, &digits);
    prepend_zeros(&digits, spec->precision > MAX_PRECISION ? MAX_PRECISION : (size_t)spec->precision);
    return put_digits(render, &digits, spec);
  }
  return put_number_as(render, value, spec);
}

static bool escape_for_ascii(uint32_t code, int option, char out[16]) {
  (void)option;
  if (code >= 0x80) escape_code(code, out);
  return code >= 0x80;
}

/* str(value), repr(value) or ascii(value) for the conversions 's', 'r' and 'a'. */
static Status convert(Render *render, Value value, char conversion, Text *out) {
  if (conversion == 's') return value_string(render, value, out);
  size_t mark = put_mark(render);
  TRY(put_repr(render, value));
  TRY(put_take(render, mark, &value));
  if (conversion == 'a') {
    mark = put_mark(render);
    TRY(put_escaped(render, *value.text, escape_for_ascii, 0));
    TRY(put_take(render, mark, &value));
  }
  *out = *value.text;
  return STATUS_OK;
}

static Status put_percent_value(Render *render, Value value, FormatSpec *spec) {
  Text text;
  if (strchr("diuoxXeEfFgG", spec->type)) return put_percent_number(render, value, spec);
  if (!spec->align) spec->align = '>';
  if (spec->type == 'c' && value_is_integer(value)) return put_character(render, value_integer(value), spec);
  if (spec->type == 'c' && (value.kind != VALUE_STRING || text_count(*value.text) != 1))
    return render_fail(render, "%%c requires int or char");
  TRY(convert(render, value, spec->type == 'c' ? 's' : spec->type, &text));
  return put_padded_text(render, text, spec);
}

/* Formats one conversion; *at is after its '%'. */
static Status put_conversion(Render *render, Percent *percent, Text format, size_t *at) {
  FormatSpec spec = {.fill = text_literal(" "), .precision = -1};
  Value value = {.kind = VALUE_MISSING};
  if (char_at(format, *at) == '(') {
    ++*at;
    TRY(named_argument(render, percent, format, at, &value));
  }
  for (char c; (c = char_at(format, *at)) && strchr("-+ #0", c); ++*at) {
    if (c == '-') spec.align = '<';
    if (c == '+' || (c == ' ' && !spec.sign)) spec.sign = c;
    if (c == '#') spec.alternate = true;
    if (c == '0') spec.zero = true;
  }
  TRY(star_or_number(render, percent, format, at, 0, &spec.width));
  if (spec.width < 0) spec.align = '<', spec.width = -spec.width;
  if (char_at(format, *at) == '.') {
    ++*at;
    TRY(star_or_number(render, percent, format, at, 0, &spec.precision));
    if (spec.precision < 0) spec.precision = 0;
  }
  while (char_at(format, *at) && strchr("hlL", char_at(format, *at))) ++*at;
  spec.type = char_at(format, *at);
  if (!spec.type) return render_fail(render, "incomplete format");
  ++*at;
  if (spec.type == '%') return put_trusted(render, "%");
  if (!strchr("diuoxXeEfFgGcrsa", spec.type))
    return render_fail(render, "unsupported format character '%c' at index %zu", spec.type, *at - 1);
  if (value.kind == VALUE_MISSING) TRY(next_argument(render, percent, &value));
  return put_percent_value(render, value, &spec);
}

Status format_percent(Render *render, Text format, Value args, Value *out) {
  Percent percent = {args, 0};
  size_t mark = put_mark(render), from = 0;
  for (size_t at = 0; (at = text_find(format, text_literal("%"), at, format.size)) != SIZE_MAX; from = at) {
    TRY(render_charge(render, 1));
    TRY(put_text(render, text_slice(format, from, at)));
    at++;
    TRY(put_conversion(render, &percent, format, &at));
  }
  TRY(put_text(render, text_slice(format, from, format.size)));
  bool has_items = args.kind == VALUE_DICT || args.kind == VALUE_LIST || args.kind == VALUE_RANGE ||
                   args.kind == VALUE_UNDEFINED; /* for Python a mapping, which need not be used */
  size_t given = args.kind == VALUE_TUPLE ? args.list->count : !has_items;
  if (percent.used < given)
    return render_fail(render, "not all arguments converted during string formatting");
  return put_take(render, mark, out);
}

/* --- "{0.name!r:>5}".format(values) */

typedef struct {
  const CallArgs *args;
  size_t automatic; /* index of the next {} */
  bool counted, numbered;
} Braces;

static Status first_field(Render *render, Braces *braces, Text name, Value *out) {
  int64_t index;
  bool is_number = name.size && isdigit((unsigned char)name.data[0]) && string_to_int(name, 10, &index);
  if (name.size && !is_number) {
    for (size_t i = 0; i < braces->args->n_keywords; i++)
      if (text_equal(braces->args->keywords[i].name, name)) {
        *out = braces->args->keywords[i].value;
        return STATUS_OK;
      }
    return render_fail(render, "'%.*s'", (int)name.size, name.data);
  }
  braces->numbered |= is_number;
  braces->counted |= !is_number;
  if (braces->numbered && braces->counted)
    return render_fail(render, "cannot switch from manual field specification to automatic field numbering");
  size_t at = is_number ? (size_t)index : braces->automatic++;
  if (at >= braces->args->count)
    return render_fail(render, "Replacement index %zu out of range for positional args tuple", at);
  *out = braces->args->items[at];
  return STATUS_OK;
}

/* Looks up "0.name[key]". */
static Status field_value(Render *render, Braces *braces, Text field, Value *out) {
  size_t at = 0;
  while (at < field.size && field.data[at] != '.' && field.data[at] != '[') at++;
  TRY(first_field(render, braces, text_slice(field, 0, at), out));
  while (at < field.size) {
    bool dot = field.data[at++] == '.';
    size_t from = at;
    while (at < field.size && (dot ? field.data[at] != '.' && field.data[at] != '[' : field.data[at] != ']'))
      at++;
    Text part = text_slice(field, from, at);
    if (part.size == 0) return render_fail(render, "Empty attribute in format string");
    if (dot) {
      TRY(value_attribute(render, *out, part, out));
      continue;
    }
    int64_t index;
    Value key;
    if (at == field.size) return render_fail(render, "Missing ']' in format string");
    at++;
    if (isdigit((unsigned char)part.data[0]) && string_to_int(part, 10, &index))
      key = value_int(index);
    else
      TRY(value_text(render, part, &key));
    TRY(value_item(render, *out, key, out));
  }
  return STATUS_OK;
}

static Status put_braces(Render *render, Braces *braces, Text format, int depth);

/* Formats "field!conversion:spec", the text between braces; its spec may contain fields. */
static Status put_field(Render *render, Braces *braces, Text field, int depth) {
  size_t name = 0, colon;
  while (name < field.size && field.data[name] != '!' && field.data[name] != ':') {
    if (field.data[name] == '[')
      while (name < field.size && field.data[name] != ']') name++;
    if (name < field.size) name++;
  }
  char conversion = '\0';
  colon = name;
  if (char_at(field, name) == '!') {
    conversion = char_at(field, name + 1);
    colon = name + 2;
    if (colon < field.size && field.data[colon] != ':')
      return render_fail(render, "expected ':' after conversion specifier");
  }
  Value value, spec;
  TRY(field_value(render, braces, text_slice(field, 0, name), &value));
  if (conversion && strchr("ras", conversion)) {
    Text text;
    TRY(convert(render, value, conversion, &text));
    TRY(value_text(render, text, &value));
  } else if (colon > name) {
    return render_fail(render, "Unknown conversion specifier");
  }
  Text nested = colon < field.size ? text_slice(field, colon + 1, field.size) : text_literal("");
  size_t mark = put_mark(render);
  TRY(put_braces(render, braces, nested, depth + 1));
  TRY(put_take(render, mark, &spec));
  return put_formatted(render, value, *spec.text);
}

static Status put_braces(Render *render, Braces *braces, Text format, int depth) {
  if (depth > 2) return render_fail(render, "Max string recursion exceeded");
  size_t from = 0;
  for (size_t at = 0; at < format.size; at++) {
    char c = format.data[at];
    if (c != '{' && c != '}') continue;
    TRY(render_charge(render, 1));
    TRY(put_text(render, text_slice(format, from, at)));
    if (char_at(format, at + 1) == c) {
      TRY(put_text(render, text_slice(format, at, at + 1)));
      from = ++at + 1;
      continue;
    }
    if (c == '}') return render_fail(render, "Single '}' encountered in format string");
    size_t end = at + 1;
    for (int open = 1; end < format.size; end++) {
      open += (format.data[end] == '{') - (format.data[end] == '}');
      if (open == 0) break;
    }
    if (end == format.size) return render_fail(render, "expected '}' before end of string");
    TRY(put_field(render, braces, text_slice(format, at + 1, end), depth));
    at = end;
    from = end + 1;
  }
  return put_text(render, text_slice(format, from, format.size));
}

Status format_braces(Render *render, const CallArgs *args, Value *out) {
  Braces braces = {.args = args};
  size_t mark = put_mark(render);
  TRY(put_braces(render, &braces, *args->self.text, 0));
  return put_take(render, mark, out);
}
