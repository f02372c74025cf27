/* frame.h - the built-in chat formats: messages to the pieces of a prompt. */
#ifndef AUK_TOKENIZER_FRAME_H
#define AUK_TOKENIZER_FRAME_H

#include "tokenizer/tokenizer.h"

typedef enum { CHAT_NONE, CHAT_CHATML, CHAT_LLAMA3 } ChatFormat;

/* The format whose control tokens this tokenizer has as special tokens: <|im_start|> and <|im_end|> for
 * ChatML, <|start_header_id|> and <|eot_id|> for Llama 3, else CHAT_NONE. */
ChatFormat chat_format_of(const Tokenizer *tokenizer);

typedef struct {
  const char *role, *text; /* text: [size]; role is the caller's own word: "system", "user", "assistant" */
  size_t size;
} FrameMessage;

/* Appends the ids of the conversation, with the opening of the assistant's turn behind it. Roles and texts
 * are encoded as a person's text unless trusted is set; the frame around them is the format's. Begins with
 * the BOS that the format has (Llama 3) and never with a second one. PRECOND format != CHAT_NONE. */
Status frame_encode(const Tokenizer *tokenizer, ChatFormat format, const FrameMessage *messages,
                    size_t n_messages, bool trusted, IdList *ids, Error *err);

/* The id that ends a turn in this format (<|im_end|>, <|eot_id|>): a stop beside the checkpoint's own. */
int32_t chat_end_of_turn(const Tokenizer *tokenizer, ChatFormat format);

#endif
