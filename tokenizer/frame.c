/* frame.c - the ChatML and Llama 3 formats, as their models were trained on; see frame.h.
 *
 * Called by: commands/prompt.c. The frames are those of the chat templates that Qwen2.5, SmolLM2 (ChatML)
 * and Llama 3 ship in tokenizer_config.json; only a default system turn, which some of them add, is the
 * caller's business. */
#include "tokenizer/frame.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

/* What stands around a turn. */
typedef struct {
  const char *control, *end; /* special tokens by which the format is known; `end` ends a turn */
  const char *begin;         /* of the conversation */
  const char *before_role, *before_text, *after_text;
  bool trims; /* white space around a text is dropped */
} Frame;

static const Frame frames[] = {
    [CHAT_NONE] = {NULL, NULL, "", "", "", "", false},
    [CHAT_CHATML] = {"<|im_start|>", "<|im_end|>", "", "<|im_start|>", "\n", "<|im_end|>\n", false},
    [CHAT_LLAMA3] = {"<|start_header_id|>", "<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>",
                     "<|end_header_id|>\n\n", "<|eot_id|>", true},
};

static bool has_special(const Tokenizer *tokenizer, const char *content) {
  return tokenizer_is_special(tokenizer, tokenizer_find(tokenizer, content));
}

ChatFormat chat_format_of(const Tokenizer *tokenizer) {
  for (ChatFormat format = CHAT_CHATML; format <= CHAT_LLAMA3; format++)
    if (has_special(tokenizer, frames[format].control) && has_special(tokenizer, frames[format].end))
      return format;
  return CHAT_NONE;
}

int32_t chat_end_of_turn(const Tokenizer *tokenizer, ChatFormat format) {
  return frames[format].end ? tokenizer_find(tokenizer, frames[format].end) : -1;
}

/* What Python's str.strip() drops, which the templates call: white space and U+001C to U+001F. */
static bool is_stripped(uint32_t code) {
  return (code >= 0x1c && code <= 0x1f) || (unicode_value(&unicode_flags, code) & CHAR_SPACE);
}

/* Stops at what is not valid UTF-8: encoding refuses it with its place. */
static void strip(const char **text, size_t *size) {
  uint32_t code;
  for (int n; (n = utf8_decode(*text, *size, &code)) > 0 && is_stripped(code);) {
    *text += n;
    *size -= (size_t)n;
  }
  while (*size > 0) {
    size_t at = utf8_before(*text, *size);
    if (utf8_decode(*text + at, *size - at, &code) != (int)(*size - at) || !is_stripped(code)) break;
    *size = at;
  }
}

static PromptPiece frame_piece(const char *text) {
  return (PromptPiece){text, strlen(text), true};
}

Status frame_encode(const Tokenizer *tokenizer, ChatFormat format, const FrameMessage *messages,
                    size_t n_messages, bool trusted, IdList *ids, Error *err) {
  const Frame *frame = &frames[format];
  PromptPiece *pieces = mem_alloc(n_messages + 1, 5 * sizeof *pieces, "a conversation", err);
  if (!pieces) return STATUS_FAILED;
  size_t n = 0;
  pieces[n++] = frame_piece(frame->begin);
  for (size_t i = 0; i < n_messages; i++) {
    const char *text = messages[i].text;
    size_t size = messages[i].size;
    if (frame->trims) strip(&text, &size);
    pieces[n++] = frame_piece(frame->before_role);
    pieces[n++] = (PromptPiece){messages[i].role, strlen(messages[i].role), trusted};
    pieces[n++] = frame_piece(frame->before_text);
    pieces[n++] = (PromptPiece){text, size, trusted};
    pieces[n++] = frame_piece(frame->after_text);
  }
  pieces[n++] = frame_piece(frame->before_role);
  pieces[n++] = frame_piece("assistant");
  pieces[n++] = frame_piece(frame->before_text);
  Status status = tokenizer_encode_pieces(tokenizer, pieces, n, false, ids, err);
  free(pieces);
  return status;
}
