/* code_block.h - the first fenced code block of a text that comes in pieces (-x).
 *
 * A fence is a line of at least three backticks or tildes, with any white space before it and anything behind
 * it (but no backtick behind backticks); one of the same character, at least as long and with nothing behind
 * it, ends the block, else the text's end does (CommonMark 0.31, section 4.5, but for the indentation, which
 * it limits to three columns: models indent the blocks in their lists at will). What comes out are the lines
 * between, each with its newline and without as much indentation as the first fence had; it does not depend
 * on where the pieces were cut, and each line comes out as far as it is known to be no fence. */
#ifndef AUK_COMMANDS_ANSWER_CODE_BLOCK_H
#define AUK_COMMANDS_ANSWER_CODE_BLOCK_H

#include <stdbool.h>

#include "base/buffer.h"

typedef enum { BLOCK_BEFORE, BLOCK_INSIDE, BLOCK_BEHIND } BlockState;

typedef struct {
  BlockState state;
  char fence;    /* '`' or '~' */
  size_t length; /* of the fence that began the block */
  size_t indent; /* its columns */
  bool passing;  /* this line is no fence: what comes of it is passed on, or before the block dropped */
  Buffer line;   /* of this line what came, while it could be a fence */
} CodeBlock;     /* starts zeroed; release it with code_block_release() */

/* Appends to `out` what is known of the block now that text[0..size) came. */
Status code_block_push(CodeBlock *block, const char *text, size_t size, Buffer *out, Error *err);
/* Appends what is held back: nothing comes any more. */
Status code_block_end(CodeBlock *block, Buffer *out, Error *err);
void code_block_release(CodeBlock *block);

#endif
