/* multiple.c - the automaton of decimal texts that are multiples of a decimal; see lang_multiple().
 *
 * A state knows the digits read so far modulo the divisor, how many of them are fraction digits, and the
 * exponent. Value of a text with digits m, k fraction digits and exponent K: m * 10^(K - k), a multiple of
 * divisor / 10^scale if m * 10^(scale - k + K) is a whole multiple of the divisor. Zeros at the end of a
 * fraction wait (`zeros`) until a digit other than 0 makes them count, so that they add nothing to k. */
#include <string.h>

#include "constrain/lang/byte_classes.h"

#define MAX_FRACTION 24 /* limit of fraction digits beyond Divisor.scale; zeros at the end do not count */
#define MAX_EXPONENT 999

typedef struct Divisor {
  uint32_t divisor;
  unsigned scale;
} Divisor;

typedef enum { INTEGER, FRACTION, EXPONENT_SIGN, EXPONENT } Phase;

typedef struct {
  Phase phase;
  bool negative; /* sign of the exponent */
  unsigned fraction, zeros, exponent;
} Place;

static uint32_t pack(Place place) {
  return (uint32_t)place.phase | (uint32_t)place.negative << 2 | place.fraction << 3 | place.zeros << 10 |
         place.exponent << 17;
}

static Place unpack(uint32_t packed) {
  return (Place){packed & 3, packed >> 2 & 1, packed >> 3 & 127, packed >> 10 & 127, packed >> 17};
}

static uint32_t shifted(uint32_t remainder, unsigned zeros, uint32_t divisor) {
  uint64_t value = remainder, power = 10 % divisor;
  for (; zeros > 0; zeros >>= 1, power = power * power % divisor)
    if (zeros & 1) value = value * power % divisor;
  return (uint32_t)value;
}

static bool is_multiple(Divisor d, uint32_t remainder, Place place) {
  int shift = (int)d.scale - (int)place.fraction;
  if (place.phase == EXPONENT) shift += place.negative ? -(int)place.exponent : (int)place.exponent;
  return place.phase != EXPONENT_SIGN && shift >= 0 && shifted(remainder, (unsigned)shift, d.divisor) == 0;
}

static Lang state(Langs *langs, uint32_t index, uint32_t remainder, Place place) {
  bool fits = is_multiple(langs->divisors[index], remainder, place);
  return lang_node(
      langs, (LangNode){.kind = MULTIPLE, .has_empty = fits, .a = index, .b = remainder, .min = pack(place)});
}

Lang lang_multiple(Langs *langs, uint32_t divisor, unsigned scale) {
  for (; divisor % 10 == 0 && scale > 0; scale--) divisor /= 10;
  size_t i = 0;
  while (i < langs->divisors_count &&
         (langs->divisors[i].divisor != divisor || langs->divisors[i].scale != scale))
    i++;
  for (const char *c = "0123456789.eE+-"; *c; c++) { /* multiple_next() treats each character by itself */
    ByteSet one = byte_set_none();
    byte_set_add(&one, (unsigned char)*c);
    byte_classes_divide(&langs->classes, &one);
  }
  if (i == langs->divisors_count) {
    Error err;
    if (mem_grow(&langs->divisors, &langs->divisors_capacity, i + 1, sizeof(Divisor), "an automaton", &err))
      return langs_fail(langs, STATUS_FAILED, err.text), LANG_NONE;
    langs->divisors[langs->divisors_count++] = (Divisor){divisor, scale};
  }
  return state(langs, (uint32_t)i, 0, (Place){.phase = INTEGER});
}

static Lang digit_next(Langs *langs, LangNode node, Place place, unsigned digit) {
  const Divisor d = langs->divisors[node.a];
  uint64_t remainder = node.b;
  if (place.phase == EXPONENT || place.phase == EXPONENT_SIGN) {
    place.phase = EXPONENT;
    place.exponent = place.exponent * 10 + digit;
    return place.exponent > MAX_EXPONENT ? LANG_NONE : state(langs, node.a, node.b, place);
  }
  if (place.phase == FRACTION) {
    if (digit == 0) {
      if (place.fraction + place.zeros < d.scale + MAX_FRACTION) place.zeros++;
      return state(langs, node.a, node.b, place);
    }
    place.fraction += place.zeros;
    remainder = shifted(node.b, place.zeros, d.divisor);
    place.zeros = 0;
    if (place.fraction >= d.scale + MAX_FRACTION) return LANG_NONE;
  }
  place.fraction += place.phase == FRACTION;
  return state(langs, node.a, (uint32_t)((remainder * 10 + digit) % d.divisor), place);
}

Lang multiple_next(Langs *langs, LangNode node, unsigned char byte, ByteSet *cell) {
  Place place = unpack(node.min);
  const ByteSet old = *cell;
  *cell = byte_set_none();
  byte_set_add(cell, byte);
  byte_set_keep(cell, &old, false);
  bool number = place.phase == INTEGER || place.phase == FRACTION;
  if (byte >= '0' && byte <= '9') return digit_next(langs, node, place, byte - '0');
  if (byte == '.' && place.phase == INTEGER) {
    place.phase = FRACTION;
  } else if ((byte == 'e' || byte == 'E') && number) {
    place.phase = EXPONENT_SIGN;
    place.zeros = 0;
  } else if ((byte == '+' || byte == '-') && place.phase == EXPONENT_SIGN) {
    place.phase = EXPONENT;
    place.negative = byte == '-';
  } else if (byte != '-' || place.phase != INTEGER) {
    *cell = old;
    for (const char *c = "0123456789.eE+-"; *c; c++) {
      ByteSet one = byte_set_none();
      byte_set_add(&one, (unsigned char)*c);
      byte_set_keep(cell, &one, true);
    }
    if (!byte_set_has(cell, byte)) byte_set_add(cell, byte);
    return LANG_NONE;
  }
  return state(langs, node.a, node.b, place);
}

bool multiple_needs_exponent(const Langs *langs, LangNode node) {
  const Place place = unpack(node.min);
  return place.phase == FRACTION && !node.has_empty &&
         place.fraction + place.zeros >= langs->divisors[node.a].scale;
}

bool multiple_is_whole(const Langs *langs, LangNode node) {
  return unpack(node.min).phase == INTEGER && langs->divisors[node.a].scale == 0;
}

bool multiple_witness(const Langs *langs, LangNode node, int n, char out[80], size_t *size) {
  const Divisor d = langs->divisors[node.a];
  const Place place = unpack(node.min);
  *size = 0;
  if (n >= MULTIPLE_WITNESSES || place.phase > FRACTION) return false;
  const bool point = n % 2 == 1;
  if (point && (place.phase == FRACTION || d.scale == 0)) return true;
  unsigned n_digits = (unsigned)n / 2;
  const unsigned had = place.fraction + place.zeros;
  if ((point || place.phase == FRACTION) && had + n_digits > d.scale) return true;
  uint64_t power = 1;
  for (unsigned i = 0; i < n_digits && power < d.divisor; i++) power *= 10;
  uint32_t x = (d.divisor - shifted(node.b, place.zeros + n_digits, d.divisor)) % d.divisor;
  if (x >= power) return true;
  if (point) out[(*size)++] = '.';
  for (unsigned i = n_digits; i-- > 0; x /= 10) out[*size + i] = (char)('0' + x % 10);
  *size += n_digits;
  return true;
}
