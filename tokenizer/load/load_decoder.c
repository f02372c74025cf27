/* load_decoder.c - decoders from their JSON; unknown types are refused by name. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/decode.h"
#include "tokenizer/load/fields.h"

static Status load_metaspace(const char *where, const Json *json, DecodeStep *step, Error *err) {
  PrependScheme scheme;
  bool split;
  TRY(metaspace_load(where, json, step->mark, &step->mark_size, &scheme, &split, err));
  step->drop_first = scheme != PREPEND_NEVER;
  return STATUS_OK;
}

static Status load_replace(const char *where, const Json *json, DecodeStep *step, Error *err) {
  TRY(field_string(where, json, "content", &step->content, &step->content_size, err));
  return pattern_load(where, json_member(json, "pattern"), &step->pattern, err);
}

static Status load_strip(const char *where, const Json *json, DecodeStep *step, Error *err) {
  TRY(field_character(where, json, "content", step->mark, &step->mark_size, err));
  TRY(field_count(where, json, "start", INT32_MAX, &step->start, err));
  return field_count(where, json, "stop", INT32_MAX, &step->stop, err);
}

static const struct {
  const char *type, *members; /* NULL: load() refuses unknown members */
  DecodeKind kind;
  Status (*load)(const char *where, const Json *json, DecodeStep *step, Error *err);
} types[] = {
    {"ByteLevel", "add_prefix_space trim_offsets use_regex", DECODE_BYTE_LEVEL, NULL},
    {"Metaspace", NULL, DECODE_METASPACE, load_metaspace},
    {"Replace", "pattern content", DECODE_REPLACE, load_replace},
    {"ByteFallback", "", DECODE_BYTE_FALLBACK, NULL},
    {"Fuse", "", DECODE_FUSE, NULL},
    {"Strip", "content start stop", DECODE_STRIP, load_strip},
};

static Status add_decoder(void *owner, const char *where, const char *type, const Json *json, Error *err) {
  Decoder *decoder = owner;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    if (strcmp(types[i].type, type) != 0) continue;
    if (decoder->count == MAX_DECODERS)
      return error_set(err, STATUS_MODEL, "%s: more than %d decoders", where, MAX_DECODERS);
    TRY(mem_grow(&decoder->steps, &decoder->capacity, decoder->count + 1, sizeof *decoder->steps, "decoders",
                 err));
    DecodeStep *step = &decoder->steps[decoder->count++];
    memset(step, 0, sizeof *step);
    step->kind = types[i].kind;
    Where here = where_in(where, type, 0);
    if (types[i].members) TRY(field_known(here.text, json, types[i].members, err));
    return types[i].load ? types[i].load(here.text, json, step, err) : STATUS_OK;
  }
  return field_unknown_type(where, type, err);
}

Status decoder_load(const char *where, const Json *json, Decoder *decoder, Error *err) {
  *decoder = (Decoder){.absent = !json};
  decoder->where = where_copy(where);
  if (!json) return STATUS_OK;
  TRY(field_components(where, json, "decoders", 0, add_decoder, decoder, err));
  bool fused = false;
  for (size_t i = 0; i < decoder->count; i++) {
    DecodeStep *step = &decoder->steps[i];
    step->fused = fused;
    fused |= step->kind == DECODE_BYTE_LEVEL || step->kind == DECODE_FUSE;
  }
  return STATUS_OK;
}

void decoder_release(Decoder *decoder) {
  for (size_t i = 0; i < decoder->count; i++) {
    pattern_release(&decoder->steps[i].pattern);
    free(decoder->steps[i].content);
  }
  free(decoder->steps);
  *decoder = (Decoder){0};
}
