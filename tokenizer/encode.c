/* encode.c - text to ids: cuts out added tokens, normalizes, cuts into pieces, encodes the pieces.
 *
 *   text      Hi <|im_end|>there         added tokens are looked for in the original text
 *   segments  [Hi ] 151645 [there]       each is normalized; then further tokens are looked for in
 *                                        it, and the pre-tokenizers cut the rest
 *   pieces    [Hi] [ ] 151645 [there]    the model encodes them one by one
 *
 * Always true: an EncodeScratch belongs to one call, a Tokenizer never changes. */
#include <stdlib.h>

#include "base/utf8.h"
#include "tokenizer/internal.h"

/* Working memory of one call. */
typedef struct {
  const Tokenizer *tokenizer;
  const char *text; /* [size] all pieces, concatenated */
  size_t size;
  Trust trust;
  uint32_t *origin; /* [size] start of each byte's character; NULL: not needed */
  AddedParts segments, parts;
  NormalScratch normal;
  SplitScratch split;
  RegexScratch regex;
  BpeScratch bpe;
  UnigramScratch unigram;
} EncodeScratch;

static void scratch_release(EncodeScratch *s) {
  free(s->origin);
  added_parts_release(&s->segments);
  added_parts_release(&s->parts);
  normal_scratch_release(&s->normal);
  split_scratch_release(&s->split);
  regex_scratch_release(&s->regex);
  bpe_scratch_release(&s->bpe);
  unigram_scratch_release(&s->unigram);
}

static Status encode_plain(EncodeScratch *s, Traced text, IdList *ids, Error *err) {
  const Model *model = &s->tokenizer->model;
  const ByteSpanList *pieces;
  TRY(pre_tokenize(&s->tokenizer->pre_tokenizer, &s->split, &s->regex, &text, &pieces, err));
  regex_pause(&s->regex);
  for (size_t i = 0; i < pieces->count; i++) {
    ByteSpan piece = pieces->items[i];
    const char *bytes = text.text + piece.start;
    const size_t size = piece.end - piece.start;
    TRY(model->is_unigram ? unigram_encode(&model->unigram, &s->unigram, bytes, size, ids, err)
                          : bpe_encode(&model->bpe, &s->bpe, bytes, size, ids, err));
  }
  return STATUS_OK;
}

/* Encodes a segment between tokens that were found in the original text. */
static Status encode_segment(EncodeScratch *s, AddedPart segment, IdList *ids, Error *err) {
  const AddedTokens *added = &s->tokenizer->added;
  Traced text = {s->text + segment.start, segment.end - segment.start,
                 s->origin ? s->origin + segment.start : NULL};
  TRY(normalize(&s->tokenizer->normalizer, &s->normal, &s->regex, &text, err));
  s->parts.count = 0;
  TRY(added_cut(added, &added->normal, &text, segment.start, &s->trust, s->tokenizer->interrupted, &s->parts,
                err));
  for (size_t i = 0; i < s->parts.count; i++) {
    AddedPart part = s->parts.items[i];
    if (part.token >= 0) {
      TRY(id_list_append(ids, added->tokens[part.token].id, err));
    } else {
      Traced plain = {text.text + part.start, part.end - part.start,
                      text.origin ? text.origin + part.start : NULL};
      TRY(encode_plain(s, plain, ids, err));
    }
  }
  return STATUS_OK;
}

static Status encode_text(EncodeScratch *s, IdList *ids, Error *err) {
  const AddedTokens *added = &s->tokenizer->added;
  const Traced text = {s->text, s->size, NULL};
  TRY(added_cut(added, &added->plain, &text, 0, &s->trust, s->tokenizer->interrupted, &s->segments, err));
  for (size_t i = 0; i < s->segments.count; i++) {
    AddedPart segment = s->segments.items[i];
    if (segment.token >= 0) {
      TRY(id_list_append(ids, added->tokens[segment.token].id, err));
    } else {
      TRY(encode_segment(s, segment, ids, err));
    }
  }
  return STATUS_OK;
}

/* Encodes the text as the post-processor's template says; `add_special`: with its special ids. */
static Status encode_template(EncodeScratch *s, bool add_special, IdList *ids, Error *err) {
  const Tokenizer *t = s->tokenizer;
  if (!t->has_template) return encode_text(s, ids, err);
  size_t from = 0, to = 0; /* range of the text's ids, once encoded */
  bool encoded = false;
  for (size_t i = 0; i < t->template_ids.count; i++) {
    int32_t id = t->template_ids.ids[i];
    if (id != TEMPLATE_TEXT) {
      if (add_special) TRY(id_list_append(ids, id, err));
    } else if (!encoded) {
      from = ids->count;
      TRY(encode_text(s, ids, err));
      to = ids->count;
      encoded = true;
    } else {
      for (size_t k = from; k < to; k++) TRY(id_list_append(ids, ids->ids[k], err));
    }
  }
  return STATUS_OK;
}

/* Records where each byte's character begins. */
static Status trace_origin(EncodeScratch *s, Error *err) {
  TRY(NEW(s->origin, s->size, "a text's origin", err));
  uint32_t start = 0;
  for (size_t i = 0; i < s->size; i++) {
    if (((unsigned char)s->text[i] & 0xc0) != 0x80) start = (uint32_t)i;
    s->origin[i] = start;
  }
  return STATUS_OK;
}

/* Checks the pieces, records where trust changes, and concatenates several pieces in `joined`. */
static Status join_pieces(EncodeScratch *s, const PromptPiece *pieces, size_t n_pieces, Buffer *joined,
                          size_t *borders, Error *err) {
  s->trust = (Trust){.borders = borders, .first = n_pieces > 0 && pieces[0].trusted};
  for (size_t i = 0; i < n_pieces; i++) {
    const PromptPiece *piece = &pieces[i];
    size_t valid = utf8_valid_prefix(piece->text, piece->size);
    if (valid < piece->size)
      return error_set(err, STATUS_USAGE, "the text is not valid UTF-8 at byte %zu", s->size + valid);
    if (piece->size > UINT32_MAX - s->size)
      return error_set(err, STATUS_USAGE, "the text has more than 4 GiB");
    if (i > 0 && piece->trusted != pieces[i - 1].trusted) borders[s->trust.n_borders++] = s->size;
    s->size += piece->size;
    if (n_pieces > 1) TRY(buffer_append(joined, piece->text, piece->size, err));
  }
  s->text = n_pieces == 1 ? pieces[0].text : joined->data;
  if (s->size == 0) s->text = "";
  return STATUS_OK;
}

Status tokenizer_encode_pieces(const Tokenizer *tokenizer, const PromptPiece *pieces, size_t n_pieces,
                               bool add_special, IdList *ids, Error *err) {
  OWNED(scratch_release) EncodeScratch s = {.tokenizer = tokenizer};
  OWNED(buffer_release) Buffer joined = {0};
  OWNED(mem_release) size_t *borders = NULL;
  const size_t count = ids->count;
  TRY(NEW(borders, n_pieces, "a prompt", err));
  TRY(join_pieces(&s, pieces, n_pieces, &joined, borders, err));
  s.regex.text_size = s.size;
  s.regex.interrupted = s.bpe.interrupted = s.unigram.interrupted = tokenizer->interrupted;
  bool traced = tokenizer->normal_special && s.trust.n_borders > 0;
  for (size_t i = 0; i < tokenizer->pre_tokenizer.count; i++) {
    const Step *step = &tokenizer->pre_tokenizer.steps[i];
    traced |= step->kind == SPLIT_METASPACE && step->scheme == PREPEND_FIRST;
  }
  if (traced) TRY(trace_origin(&s, err));
  const Status status = encode_template(&s, add_special, ids, err);
  if (status != STATUS_OK) ids->count = count;
  return status;
}

Status tokenizer_encode(const Tokenizer *tokenizer, const char *text, size_t size, EncodeOptions options,
                        IdList *ids, Error *err) {
  const PromptPiece piece = {text, size, options.parse_special};
  return tokenizer_encode_pieces(tokenizer, &piece, 1, options.add_special, ids, err);
}
