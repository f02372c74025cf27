/* fuzz_chat.c - hostile files that say how a model chats: one of their templates is taken, or they are
 * refused with a message; a rendered text is covered by its runs, each of whole characters.
 *
 * The input is, with NULs between them, tokenizer_config.json, special_tokens_map.json, chat_template.json,
 * chat_template.jinja (an empty one is left out) and the name of a template. */
#include "memory_files.h"

#include "base/utf8.h"
#include "tokenizer/chat/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json", "chat_template.json",
                                    "chat_template.jinja"};

static void render(const Chat *chat) {
  const ChatMessage messages[] = {
      {.role = "system", .text = "\x01", .size = 1},
      {.role = "user", .text = " \x01\n\x01", .size = 4},
      {.role = "assistant", .text = "\x01<b>", .size = 4, .thinking = "\x01", .thinking_size = 1},
      {.role = "user", .text = "\x01", .size = 1}};
  for (int think = THINK_UNSAID; think <= THINK_YES; think++) {
    TrustedText text = {0};
    Error err = {{0}};
    const ChatOptions options = {.add_generation_prompt = true, .think = (ThinkChoice)think};
    Status status = chat_render(chat, messages, 4, options, &text, &err);
    require(status == STATUS_OK || err.text[0]);
    size_t at = 0;
    for (size_t i = 0; status == STATUS_OK && i < text.n_runs; i++) {
      TextRun run = text.runs[i];
      require(run.end > at && run.end <= text.text.size);
      require(utf8_valid_prefix(text.text.data + at, run.end - at) == run.end - at);
      at = run.end;
    }
    require(status != STATUS_OK || at == text.text.size);
    trusted_text_release(&text);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *at = (const char *)data, *end = at + size;
  for (int i = 0; i < MEMORY_FILES; i++) {
    const char *nul = at < end ? memchr(at, 0, (size_t)(end - at)) : NULL, *until = nul ? nul : end;
    memory_file(i, names[i], at, (size_t)(until - at));
    if (until == at) unlink(memory_path(names[i]));
    at = nul ? nul + 1 : end;
  }
  char choice[64] = "";
  snprintf(choice, sizeof choice, "%.*s", (int)(end - at > 60 ? 60 : end - at), end - at > 0 ? at : "");
  if (strchr(choice, '/')) return 0; /* a file of this machine */
  Chat *chat;
  Error err = {{0}};
  Status status = chat_open(memory_directory, choice[0] ? choice : NULL, NULL, &chat, &err);
  require(status == STATUS_OK || (!chat && err.text[0]));
  if (chat) {
    require(chat_source(chat)[0]);
    render(chat);
  }
  chat_close(chat);
  return 0;
}
