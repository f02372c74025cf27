/* split.c - cuts texts into pieces; see split.h.
 *
 * Always true: pieces are in order, do not overlap, and none is empty. */
#include "tokenizer/split.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

void split_scratch_release(SplitScratch *scratch) {
  for (int i = 0; i < 2; i++) {
    byte_span_list_release(&scratch->lists[i]);
    traced_release(&scratch->buffers[i]);
  }
}

Status byte_level_map(const char *bytes, size_t size, Buffer *out, Error *err) {
  out->size = 0;
  for (size_t i = 0; i < size; i++) {
    char mapped[4];
    int n = utf8_encode(byte_level_char((uint8_t)bytes[i]), mapped);
    TRY(buffer_append(out, mapped, (size_t)n, err));
  }
  return STATUS_OK;
}

/* --- behaviors */

/* Joins neighbours in spans[from ..): a match and the text before it or, if `contiguous`, two matches or two
 * texts. As in the reference an empty match takes part before it is dropped. */
static void merge_forward(ByteSpanList *spans, size_t from, bool contiguous) {
  size_t kept = from;
  bool before = false; /* whether the previous span was a match */
  for (size_t i = from; i < spans->count; i++) {
    ByteSpan span = spans->items[i];
    bool joins = contiguous ? span.match == before : span.match && !before;
    before = span.match;
    if (joins && kept > from) {
      spans->items[kept - 1].end = span.end;
    } else {
      spans->items[kept++] = span;
    }
  }
  spans->count = kept;
}

static void merge_backward(ByteSpanList *spans, size_t from) {
  size_t kept = spans->count; /* items[kept ..) are done */
  bool before = false;
  for (size_t i = spans->count; i-- > from;) {
    ByteSpan span = spans->items[i];
    bool joins = span.match && !before;
    before = span.match;
    if (joins && kept < spans->count) {
      spans->items[kept].start = span.start;
    } else {
      spans->items[--kept] = span;
    }
  }
  memmove(spans->items + from, spans->items + kept, (spans->count - kept) * sizeof *spans->items);
  spans->count = from + (spans->count - kept);
}

static void apply_behavior(ByteSpanList *spans, size_t from, Behavior behavior, bool invert) {
  for (size_t i = from; invert && i < spans->count; i++) spans->items[i].match ^= true;
  if (behavior == BEHAVIOR_CONTIGUOUS || behavior == BEHAVIOR_MERGED_WITH_PREVIOUS)
    merge_forward(spans, from, behavior == BEHAVIOR_CONTIGUOUS);
  if (behavior == BEHAVIOR_MERGED_WITH_NEXT) merge_backward(spans, from);
  size_t kept = from;
  for (size_t i = from; i < spans->count; i++) {
    ByteSpan span = spans->items[i];
    bool removed = behavior == BEHAVIOR_REMOVED && span.match;
    if (span.end > span.start && !removed) spans->items[kept++] = span;
  }
  spans->count = kept;
}

/* --- steps that only cut */

/* Each character of role 1 is a match; the text between is cut where the role changes. Matches that the
 * behavior removes are left out here, which is faster. */
static Status cut_characters(const Step *step, const char *text, ByteSpan piece, ByteSpanList *out,
                             Error *err) {
  const bool kept = step->behavior != BEHAVIOR_REMOVED;
  size_t from = piece.start;
  uint8_t role = 0; /* role of text[from .. at) */
  for (size_t at = from; at < piece.end;) {
    uint32_t code;
    int length = utf8_decode(text + at, piece.end - at, &code);
    uint8_t here = step->role[kind_of(&step->map, code)];
    if (at > from && (here == 1 || here != role)) {
      if (kept || role != 1) TRY(byte_span_add(out, from, at, role == 1, err));
      from = at;
    }
    role = here;
    at += (size_t)length;
  }
  return kept || role != 1 ? byte_span_add(out, from, piece.end, role == 1, err) : STATUS_OK;
}

static Status cut_piece(const Step *step, RegexScratch *regex, const char *text, ByteSpan piece,
                        ByteSpanList *out, Error *err) {
  size_t from = out->count;
  if (step->kind == SPLIT_CHARACTERS) {
    TRY(cut_characters(step, text, piece, out, err));
  } else {
    TRY(pattern_spans(&step->pattern, regex, text + piece.start, piece.end - piece.start, piece.start, out,
                      err));
  }
  apply_behavior(out, from, step->behavior, step->invert);
  return STATUS_OK;
}

/* --- steps that write a new text */

/* Writes the piece with the mark (pattern.literal) in place of each space. If the scheme says so, puts a mark
 * before a piece that begins with neither mark nor space. */
static Status metaspace_piece(const Step *step, const Traced *text, ByteSpan piece, TracedBuffer *out,
                              Error *err) {
  const char *mark = step->pattern.literal;
  size_t size = step->pattern.size;
  bool marked = piece.end - piece.start >= size && memcmp(text->text + piece.start, mark, size) == 0;
  marked |= text->text[piece.start] == ' ';
  bool wanted = step->scheme == PREPEND_ALWAYS ||
                (step->scheme == PREPEND_FIRST && text->origin && text->origin[piece.start] == 0);
  if (wanted && !marked) TRY(traced_put(out, mark, size, text, piece.start, false, err));
  size_t from = piece.start;
  for (size_t at = from; at < piece.end; at++) {
    if (text->text[at] != ' ') continue;
    TRY(traced_put(out, text->text + from, at - from, text, from, true, err));
    TRY(traced_put(out, mark, size, text, at, false, err));
    from = at + 1;
  }
  return traced_put(out, text->text + from, piece.end - from, text, from, true, err);
}

static Status prefix_piece(const Traced *text, ByteSpan piece, TracedBuffer *out, Error *err) {
  if (text->text[piece.start] != ' ') TRY(traced_put(out, " ", 1, text, piece.start, false, err));
  return traced_put(out, text->text + piece.start, piece.end - piece.start, text, piece.start, true, err);
}

static Status alphabet_piece(const Traced *text, ByteSpan piece, TracedBuffer *out, Error *err) {
  for (size_t at = piece.start; at < piece.end; at++) {
    char bytes[4];
    int n = utf8_encode(byte_level_char((uint8_t)text->text[at]), bytes);
    TRY(traced_put(out, bytes, (size_t)n, text, at, false, err));
  }
  return STATUS_OK;
}

typedef enum { WRITE_METASPACE, WRITE_PREFIX, WRITE_ALPHABET } Writing;

/* The state of pre_tokenize(). Cutting reads the pieces in lists[list] and writes the other list; writing a
 * new text fills buffers[buffer] and moves the pieces in lists[list]. */
typedef struct {
  SplitScratch *scratch;
  RegexScratch *regex;
  Traced *text;
  const char *where;
  size_t list, buffer;
  size_t size; /* original size of the text */
} SplitRun;

static Status write_pieces(SplitRun *run, const Step *step, Writing writing, Error *err) {
  TracedBuffer *out = &run->scratch->buffers[run->buffer];
  ByteSpanList *pieces = &run->scratch->lists[run->list];
  traced_clear(out, run->where, run->size, run->regex->interrupted);
  for (size_t i = 0; i < pieces->count; i++) {
    size_t start = out->text.size;
    ByteSpan piece = pieces->items[i];
    switch (writing) {
    case WRITE_METASPACE: TRY(metaspace_piece(step, run->text, piece, out, err)); break;
    case WRITE_PREFIX: TRY(prefix_piece(run->text, piece, out, err)); break;
    case WRITE_ALPHABET: TRY(alphabet_piece(run->text, piece, out, err)); break;
    }
    pieces->items[i] = (ByteSpan){(uint32_t)start, (uint32_t)out->text.size, false};
  }
  *run->text =
      (Traced){out->text.data ? out->text.data : "", out->text.size, run->text->origin ? out->origin : NULL};
  run->buffer ^= 1;
  return STATUS_OK;
}

static Status cut_pieces(SplitRun *run, const Step *step, Error *err) {
  const ByteSpanList *pieces = &run->scratch->lists[run->list];
  ByteSpanList *out = &run->scratch->lists[run->list ^ 1];
  out->count = 0;
  for (size_t i = 0; i < pieces->count; i++)
    TRY(cut_piece(step, run->regex, run->text->text, pieces->items[i], out, err));
  run->list ^= 1;
  return STATUS_OK;
}

static Status run_step(SplitRun *run, const Step *step, bool map_bytes, Error *err) {
  switch (step->kind) {
  case SPLIT_METASPACE:
    TRY(write_pieces(run, step, WRITE_METASPACE, err));
    return step->split ? cut_pieces(run, step, err) : STATUS_OK;
  case SPLIT_BYTE_LEVEL:
    if (step->add_prefix_space) TRY(write_pieces(run, step, WRITE_PREFIX, err));
    if (step->pattern.regex) TRY(cut_pieces(run, step, err));
    return map_bytes ? write_pieces(run, step, WRITE_ALPHABET, err) : STATUS_OK;
  default: return cut_pieces(run, step, err);
  }
}

Status pre_tokenize(const Steps *pre_tokenizer, SplitScratch *scratch, RegexScratch *regex, Traced *text,
                    const ByteSpanList **pieces, Error *err) {
  SplitRun run = {scratch, regex, text, pre_tokenizer->where.text, 0, 0, text->size};
  scratch->lists[0].count = 0;
  if (text->size > 0) TRY(byte_span_add(&scratch->lists[0], 0, text->size, false, err));
  for (size_t i = 0; i < pre_tokenizer->count; i++)
    TRY(run_step(&run, &pre_tokenizer->steps[i], i + 1 < pre_tokenizer->count, err));
  *pieces = &scratch->lists[run.list];
  return STATUS_OK;
}
