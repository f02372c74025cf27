/* map_settings.c - see map_settings.h.
 *
 * Always true: every run writes its lines in the same order; settings that are not given may have no line. */
#include "commands/map/map_settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash64.h"

enum { HASH_SIZE = 16, WHAT_LIMIT = 60 /* bytes; with "..." less than SETTING_LIMIT */ };
static const char context_name[] = "-c", shard_name[] = "shard", invariant_name[] = "--invariant",
                  seal_name[] = "lines";
/* MapSettings.hash omits the lines with these names. The records' own hashes cover "prompt". -c decides only
 * whether a prompt and its answer fit. The others change no result. */
static const char *const apart[] = {context_name, "prompt", "input", shard_name, "blocks", seal_name};

/* --- writing */

/* Appends `what` and a newline: '.' replaces control characters, and "..." marks a cut. */
static Status put_what(Buffer *out, const char *what, size_t size, Error *err) {
  size_t shown = size;
  if (size > WHAT_LIMIT) {
    shown = WHAT_LIMIT;
    while (shown && (what[shown] & 0xc0) == 0x80) shown--;
  }
  size_t start = out->size;
  TRY(buffer_append(out, what, shown, err));
  for (size_t i = start; i < out->size; i++)
    if ((unsigned char)out->data[i] < ' ' || out->data[i] == 0x7f) out->data[i] = '.';
  return buffer_append_string(out, shown < size ? "...\n" : "\n", err);
}

static bool is_hashed(const char *name, size_t size) {
  for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
    if (size == strlen(apart[i]) && memcmp(name, apart[i], size) == 0) return false;
  return true;
}

Status map_settings_add(MapSettings *s, const char *name, const void *value, size_t size, const char *what,
                        Error *err) {
  uint64_t hash = hash64(value, size, 0);
  TRY(buffer_printf(&s->lines, err, "%016" PRIx64 " %s ", hash, name));
  if (is_hashed(name, strlen(name))) s->hash = hash64(name, strlen(name), s->hash ^ hash);
  return put_what(&s->lines, what ? what : value, what ? strlen(what) : size, err);
}

void map_settings_release(MapSettings *s) {
  buffer_release(&s->lines);
}

/* --- comparing */

typedef struct {
  const char *hash, *name, *what; /* [HASH_SIZE], [name_size], [what_size] */
  size_t name_size, what_size;
} Line;

/* Takes the next line, "HASH NAME WHAT", off text[0..*size). False if no line of this form is next. */
static bool take_line(const char **text, size_t *size, Line *line) {
  const char *end = *size ? memchr(*text, '\n', *size) : NULL;
  if (!end || (size_t)(end - *text) <= HASH_SIZE + 1 || (*text)[HASH_SIZE] != ' ') return false;
  line->hash = *text;
  line->name = *text + HASH_SIZE + 1;
  const char *blank = memchr(line->name, ' ', (size_t)(end - line->name));
  if (!blank) return false;
  line->name_size = (size_t)(blank - line->name);
  line->what = blank + 1;
  line->what_size = (size_t)(end - line->what);
  *size -= (size_t)(end + 1 - *text);
  *text = end + 1;
  return true;
}

static bool same(const char *a, size_t n_a, const char *b, size_t n_b) {
  return n_a == n_b && memcmp(a, b, n_a) == 0;
}

static Status refuse(const char *path, const char *other, const Line *was, const Line *is, Error *err) {
  const int n_name = (int)is->name_size, n_was = (int)was->what_size, n_is = (int)is->what_size;
  if (same(was->what, was->what_size, is->what, is->what_size))
    return error_set(err, STATUS_USAGE, "%s: its results were made with another %.*s than %s (%.*s)", path,
                     n_name, is->name, other ? other : "this one", n_is, is->what);
  if (other)
    return error_set(err, STATUS_USAGE, "%s: its results were made with %.*s %.*s, those of %s with %.*s",
                     path, n_name, is->name, n_was, was->what, other, n_is, is->what);
  return error_set(err, STATUS_USAGE, "%s: its results were made with %.*s %.*s, now it is %.*s", path,
                   n_name, is->name, n_was, was->what, n_is, is->what);
}

static bool is_named(const Line *line, const char *name) {
  return same(line->name, line->name_size, name, strlen(name));
}

/* Refuses to go on with --invariant (`now`) where results were made without it, or the other way round. The
 * settings have the line --invariant only if it is on. */
static Status refuse_invariant(const char *path, const char *other, bool now, Error *err) {
  const char *was = now ? "without" : "with", *is = now ? "with" : "without";
  if (other)
    return error_set(err, STATUS_USAGE, "%s: its results were made %s --invariant, those of %s %s it", path,
                     was, other, is);
  return error_set(err, STATUS_USAGE,
                   "%s: its results were made %s --invariant, now it is %s: give %s to go on", path, was,
                   now ? "on" : "off", now ? "--no-invariant" : "--invariant");
}

/* True if one of the lines has the name of `line`. */
static bool has_name(const char *lines, size_t size, const Line *line) {
  Line one;
  while (take_line(&lines, &size, &one))
    if (same(one.name, one.name_size, line->name, line->name_size)) return true;
  return false;
}

/* Refuses a setting that is given now (`now`) but was not when the results were made, or the reverse. */
static Status refuse_more(const char *path, const char *other, const Line *was, bool now, Error *err) {
  const int n_name = (int)was->name_size, n_was = (int)was->what_size;
  if (now && other)
    return error_set(err, STATUS_USAGE, "%s: its results were made without %.*s, those of %s with %.*s", path,
                     n_name, was->name, other, n_was, was->what);
  if (now)
    return error_set(err, STATUS_USAGE, "%s: its results were made without %.*s, now it is %.*s", path,
                     n_name, was->name, n_was, was->what);
  if (other)
    return error_set(err, STATUS_USAGE, "%s: its results were made with %.*s %.*s, those of %s without", path,
                     n_name, was->name, n_was, was->what, other);
  return error_set(err, STATUS_USAGE, "%s: its results were made with %.*s %.*s, now it is not given", path,
                   n_name, was->name, n_was, was->what);
}

Status map_settings_compare(const MapSettings *settings, const char *lines, size_t size, int tolerance,
                            const char *path, const char *other, Error *err) {
  const char *now = settings->lines.data;
  size_t n_now = settings->lines.size;
  Line was, is;
  while (take_line(&now, &n_now, &is)) {
    const bool there = take_line(&lines, &size, &was), now_invariant = is_named(&is, invariant_name);
    if (there && now_invariant != is_named(&was, invariant_name))
      return refuse_invariant(path, other, now_invariant, err);
    const bool is_same = there && same(was.name, was.name_size, is.name, is.name_size);
    if (there && !is_same && has_name(lines, size, &is)) return refuse_more(path, other, &was, false, err);
    if (there && !is_same && has_name(now, n_now, &was)) return refuse_more(path, other, &is, true, err);
    if (!is_same)
      return error_set(err, STATUS_USAGE, "%s: nothing says which %.*s its results were made with", path,
                       (int)is.name_size, is.name);
    const bool may_differ = (tolerance & CONTEXT_MAY_DIFFER && is_named(&is, context_name)) ||
                            (tolerance & SHARD_MAY_DIFFER && is_named(&is, shard_name)) ||
                            (tolerance && is_named(&is, seal_name));
    if (memcmp(was.hash, is.hash, HASH_SIZE) != 0 && !may_differ) return refuse(path, other, &was, &is, err);
  }
  return STATUS_OK;
}

/* --- reading */

Status map_settings_read(const char *lines, size_t size, MapSettings *s, bool *valid, Error *err) {
  Line line;
  TRY(buffer_append(&s->lines, lines, size, err));
  while (take_line(&lines, &size, &line)) {
    uint64_t hash = 0;
    if (!is_hashed(line.name, line.name_size)) continue;
    for (size_t i = 0; i < HASH_SIZE; i++) {
      const char c = line.hash[i];
      hash = hash << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    s->hash = hash64(line.name, line.name_size, s->hash ^ hash);
  }
  *valid = size == 0;
  return STATUS_OK;
}

bool map_settings_find(const MapSettings *s, const char *name, char what[SETTING_LIMIT]) {
  const char *lines = s->lines.data;
  size_t size = s->lines.size;
  Line line;
  while (take_line(&lines, &size, &line)) {
    if (!is_named(&line, name) || line.what_size >= SETTING_LIMIT) continue;
    memcpy(what, line.what, line.what_size);
    what[line.what_size] = 0;
    return true;
  }
  return false;
}

/* --- the seal */

Status map_settings_seal(MapSettings *s, Error *err) {
  return map_settings_add(s, seal_name, s->lines.data, s->lines.size, "above", err);
}

bool map_settings_are_sealed(const MapSettings *s) {
  const char *lines = s->lines.data, *last = lines;
  size_t size = s->lines.size;
  char hash[HASH_SIZE + 1];
  Line line = {0};
  while (take_line(&lines, &size, &line)) last = line.hash;
  if (size > 0 || !line.name || !is_named(&line, seal_name)) return false;
  snprintf(hash, sizeof hash, "%016" PRIx64, hash64(s->lines.data, (size_t)(last - s->lines.data), 0));
  return memcmp(line.hash, hash, HASH_SIZE) == 0;
}
