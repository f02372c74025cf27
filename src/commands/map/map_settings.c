/* map_settings.c - see map_settings.h.   Called by: map_job.c, map_results.c.
 *
 * Always true: every run writes the same names in the same order. */
#include "commands/map/map_settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash64.h"
#include "base/utf8.h"

enum { HASH_SIZE = 16, WHAT_LIMIT = 60 /* bytes */ };
static const char context_name[] = "-c";

/* --- writing */

/* Appends at most a line: '.' replaces control characters, and "..." marks a cut. */
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

Status map_settings_add(MapSettings *s, const char *name, const void *value, size_t size, const char *what,
                        Error *err) {
  uint64_t hash = hash64(value, size, 0);
  TRY(buffer_printf(&s->lines, err, "%016" PRIx64 " %s ", hash, name));
  if (strcmp(name, context_name) != 0) s->hash = hash64(name, strlen(name), s->hash ^ hash);
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

/* Takes the next line off text[0..*size); false if it does not have this form. */
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

static Status refuse(const char *path, const Line *was, const Line *is, Error *err) {
  const int n_name = (int)is->name_size;
  if (same(was->what, was->what_size, is->what, is->what_size))
    return error_set(err, STATUS_USAGE, "%s: its results were made with another %.*s than this one (%.*s)",
                     path, n_name, is->name, (int)is->what_size, is->what);
  return error_set(err, STATUS_USAGE, "%s: its results were made with %.*s %.*s, now it is %.*s", path,
                   n_name, is->name, (int)was->what_size, was->what, (int)is->what_size, is->what);
}

Status map_settings_compare(const MapSettings *settings, const char *lines, size_t size,
                            bool context_may_differ, const char *path, Error *err) {
  const char *now = settings->lines.data;
  size_t n_now = settings->lines.size;
  Line was, is;
  while (take_line(&now, &n_now, &is)) {
    if (!take_line(&lines, &size, &was) || !same(was.name, was.name_size, is.name, is.name_size))
      return error_set(err, STATUS_USAGE, "%s.resume does not say which %.*s its results were made with",
                       path, (int)is.name_size, is.name);
    bool may_differ = context_may_differ && same(is.name, is.name_size, context_name, strlen(context_name));
    if (memcmp(was.hash, is.hash, HASH_SIZE) != 0 && !may_differ) return refuse(path, &was, &is, err);
  }
  return STATUS_OK;
}
