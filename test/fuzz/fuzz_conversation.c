/* fuzz_conversation.c - a file that is no conversation, or a strange one: it is refused with a message, or
 * what is saved of it says the same once it is read again. */
#include "memory_files.h"

#include "base/file.h"
#include "base/utf8.h"
#include "commands/conversation/conversation_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same_text(const Buffer *a, const Buffer *b) {
  require(a->size == b->size && (a->size == 0 || memcmp(a->data, b->data, a->size) == 0));
  require(utf8_valid_prefix(a->size ? a->data : "", a->size) == a->size);
}

static void check_saving(const Conversation *first) {
  Conversation second = {0};
  Error err = {{0}};
  char path[512];
  snprintf(path, sizeof path, "%s", memory_path("written"));
  const ConversationHead head = {.model = (char *)"a \"model\"\n", .began = (char *)"now", .n_forgotten = 1};
  ConversationHead read = {0}, alone = {0};
  require(conversation_save(first, &head, path, &err) == STATUS_OK);
  require(conversation_load(path, &second, &read, &err) == STATUS_OK && first->count == second.count);
  for (size_t i = 0; i < first->count; i++) {
    require(first->messages[i].role == second.messages[i].role);
    same_text(&first->messages[i].text, &second.messages[i].text);
    same_text(&first->messages[i].thinking, &second.messages[i].thinking);
  }
  require(conversation_load_head(path, &alone, &err) == STATUS_OK);
  require(strcmp(read.model, head.model) == 0 && strcmp(alone.model, head.model) == 0);
  require(strcmp(read.title, alone.title) == 0 && read.n_turns == alone.n_turns && alone.n_forgotten == 1);
  unlink(path);
  conversation_head_release(&read);
  conversation_head_release(&alone);
  conversation_release(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Conversation conversation = {0};
  Error err = {{0}};
  memory_file(0, "conversation", data, size);
  Status status = conversation_load(memory_path("conversation"), &conversation, NULL, &err);
  require(status == STATUS_OK || (status == STATUS_USAGE && err.text[0]));
  if (status == STATUS_OK) check_saving(&conversation);
  conversation_release(&conversation);
  return 0;
}
