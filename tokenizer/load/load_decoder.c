/* load_decoder.c - decoders from their JSON; unknown types are refused by name. */
#include "tokenizer/decode.h"

static Status load_replace(const char *where, const Json *json, Step *step, Error *err) {
  TRY(field_string(where, json, "content", &step->content, &step->content_size, err));
  return pattern_load(where, json_member(json, "pattern"), &step->pattern, err);
}

static Status load_strip(const char *where, const Json *json, Step *step, Error *err) {
  TRY(field_character(where, json, "content", step->mark, &step->mark_size, err));
  TRY(field_count(where, json, "start", INT32_MAX, &step->start, err));
  return field_count(where, json, "stop", INT32_MAX, &step->stop, err);
}

static const StepType types[] = {
    {"ByteLevel", "add_prefix_space trim_offsets use_regex", DECODE_BYTE_LEVEL, NULL},
    {"Metaspace", NULL, DECODE_METASPACE, metaspace_load},
    {"Replace", "pattern content", DECODE_REPLACE, load_replace},
    {"ByteFallback", "", DECODE_BYTE_FALLBACK, NULL},
    {"Fuse", "", DECODE_FUSE, NULL},
    {"Strip", "content start stop", DECODE_STRIP, load_strip},
    {0},
};

Status decoder_load(const char *where, const Json *json, Steps *decoder, Error *err) {
  TRY(steps_load(where, json, "decoders", "decoders", types, decoder, err));
  bool fused = false;
  for (size_t i = 0; i < decoder->count; i++) {
    Step *step = &decoder->steps[i];
    step->fused = fused;
    fused |= step->kind == DECODE_BYTE_LEVEL || step->kind == DECODE_FUSE;
  }
  return STATUS_OK;
}
