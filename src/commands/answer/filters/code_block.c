/* code_block.c - see code_block.h.   Called by: text_chain.c. */
#include "commands/answer/filters/code_block.h"

#include <string.h>

#include "commands/input_text.h"

typedef struct {
  size_t indent, length; /* characters of indentation and of the fence; length 0: no fence */
  char fence;
  const char *rest; /* [rest_size] rest of the line */
  size_t rest_size;
} Fence;

static Fence read_fence(const Buffer *buffer) {
  const char *line = buffer->data ? buffer->data : "";
  const size_t size = buffer->size;
  Fence fence = {0};
  while (fence.indent < size && (line[fence.indent] == ' ' || line[fence.indent] == '\t')) fence.indent++;
  size_t at = fence.indent;
  if (at < size && (line[at] == '`' || line[at] == '~')) fence.fence = line[at];
  while (at < size && line[at] == fence.fence) at++;
  fence.length = fence.fence ? at - fence.indent : 0;
  fence.rest = line + at;
  fence.rest_size = size - at;
  return fence;
}

/* True if a line with this beginning can still open a block. */
static bool could_begin(const Fence *fence) {
  if (fence->rest_size && fence->length < 3) return false;
  return fence->fence != '`' || !memchr(fence->rest, '`', fence->rest_size);
}

/* True if the line can still end the block. */
static bool could_end(const CodeBlock *block, const Fence *fence) {
  if (fence->fence && fence->fence != block->fence) return false;
  return fence->rest_size == 0 ||
         (fence->length >= block->length && text_is_blank(fence->rest, fence->rest_size));
}

/* Appends the received part of a line in the block, without the indentation. */
static Status put_line(CodeBlock *block, Buffer *out, Error *err) {
  size_t skip = 0;
  while (skip < block->indent && skip < block->line.size &&
         (block->line.data[skip] == ' ' || block->line.data[skip] == '\t'))
    skip++;
  if (block->line.size) TRY(buffer_append(out, block->line.data + skip, block->line.size - skip, err));
  block->line.size = 0;
  return STATUS_OK;
}

/* Handles a complete line that may be a fence: block->line, without its newline. */
static Status end_line(CodeBlock *block, Buffer *out, Error *err) {
  Fence fence = read_fence(&block->line);
  if (block->state == BLOCK_BEFORE) {
    if (fence.length >= 3 && could_begin(&fence)) {
      block->state = BLOCK_INSIDE;
      block->fence = fence.fence;
      block->length = fence.length;
      block->indent = fence.indent;
    }
    block->line.size = 0;
    return STATUS_OK;
  }
  if (fence.length >= block->length && could_end(block, &fence)) {
    block->state = BLOCK_AFTER;
    return STATUS_OK;
  }
  TRY(put_line(block, out, err));
  return buffer_append(out, "\n", 1, err);
}

/* Decides whether the received part of a line can still be a fence. If it cannot, the part is passed on
 * (inside the block) or dropped (before the block). */
static Status decide(CodeBlock *block, Buffer *out, Error *err) {
  Fence fence = read_fence(&block->line);
  if (block->state == BLOCK_BEFORE) {
    block->passing = !could_begin(&fence);
    if (block->passing) block->line.size = 0;
    return STATUS_OK;
  }
  block->passing = !could_end(block, &fence);
  return block->passing ? put_line(block, out, err) : STATUS_OK;
}

Status code_block_push(CodeBlock *block, const char *text, size_t size, Buffer *out, Error *err) {
  while (size && block->state != BLOCK_AFTER) {
    const char *newline = memchr(text, '\n', size);
    size_t length = newline ? (size_t)(newline - text) : size, used = length + (newline != NULL);
    if (!block->passing) {
      TRY(buffer_append(&block->line, text, length, err));
      if (!newline) TRY(decide(block, out, err));
      if (newline) TRY(end_line(block, out, err));
    } else if (block->state == BLOCK_INSIDE) {
      TRY(buffer_append(out, text, used, err));
    }
    if (newline) block->passing = false;
    text += used;
    size -= used;
  }
  return STATUS_OK;
}

Status code_block_end(CodeBlock *block, Buffer *out, Error *err) {
  if (block->state != BLOCK_INSIDE || block->passing || block->line.size == 0) return STATUS_OK;
  Fence fence = read_fence(&block->line);
  if (fence.length >= block->length && could_end(block, &fence)) return STATUS_OK;
  return put_line(block, out, err);
}

void code_block_release(CodeBlock *block) {
  buffer_release(&block->line);
}
