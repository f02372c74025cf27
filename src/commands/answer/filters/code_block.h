/* code_block.h - extracts the first fenced code block from streamed text (-x). A fence is a line of at least
 * three backticks or tildes, and any text after them (after backticks: text without a backtick). The block
 * ends with the text, or at a fence of the same character that is at least as long and has only blanks after
 * it. This is CommonMark 0.31, section 4.5, but with any indentation: models indent blocks in lists at will.
 * The output is the lines between the fences, with their newlines, without the first fence's indentation. It
 * does not depend on how the text is cut into pieces. Each line appears as soon as it cannot be a fence. */
#pragma once

#include <stdbool.h>

#include "base/buffer.h"

typedef enum { BLOCK_BEFORE, BLOCK_INSIDE, BLOCK_AFTER } BlockState;

typedef struct {
  BlockState state;
  char fence;    /* '`' or '~' */
  size_t length; /* length of the opening fence */
  size_t indent; /* characters of its indentation */
  bool passing;  /* the current line is no fence: its rest is passed on (inside the block) or dropped */
  Buffer line;   /* received part of a line that may still be a fence */
} CodeBlock;     /* starts zeroed; release it with code_block_release() */

/* Takes text[0..size) and appends the block's text that is now certain. */
Status code_block_push(CodeBlock *block, const char *text, size_t size, Buffer *out, Error *err);
/* At the end of the text: appends what was held back. */
Status code_block_end(CodeBlock *block, Buffer *out, Error *err);
void code_block_release(CodeBlock *block);
