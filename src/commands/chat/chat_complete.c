/* chat_complete.c - see chat_complete.h.   Called by: chat_input.c. */
#include "commands/chat/chat_complete.h"

#include <dirent.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"
#include "commands/chat/chat_settings.h"
#include "commands/chat/chat_words.h"
#include "commands/chat/user_path.h"

/* The longest common continuation of all matching words, after the `size` bytes typed so far. */
typedef struct {
  const char *typed;
  size_t size;
  Buffer *rest;
  size_t n;
} Candidates;

static Status consider(Candidates *c, const char *word, const char *ending, Error *err) {
  size_t length = strlen(word);
  if (length < c->size || memcmp(word, c->typed, c->size) != 0) return STATUS_OK;
  if (c->n++ == 0) {
    TRY(buffer_append(c->rest, word + c->size, length - c->size, err));
    return buffer_append_string(c->rest, ending, err);
  }
  size_t same = 0;
  while (same < c->rest->size && c->size + same < length && c->rest->data[same] == word[c->size + same])
    same++;
  while (same && same < c->rest->size && ((unsigned char)c->rest->data[same] & 0xC0) == 0x80) same--;
  c->rest->size = same; /* whole characters */
  return STATUS_OK;
}

static Status consider_files(const char *typed, size_t size, Buffer *rest, Error *err) {
  size_t slash = size;
  while (slash && typed[slash - 1] != '/') slash--;
  char *directory;
  TRY(user_path(slash ? typed : ".", slash ? slash : 1, &directory, err));
  Candidates c = {.typed = typed + slash, .size = size - slash, .rest = rest};
  DIR *list = opendir(directory);
  Status status = STATUS_OK;
  for (struct dirent *entry; list && status == STATUS_OK && (entry = readdir(list));) {
    const char *name = entry->d_name;
    if (name[0] == '.' && (c.size == 0 || c.typed[0] != '.')) continue;
    if (utf8_valid_prefix(name, strlen(name)) != strlen(name)) continue;
    char *path = path_join(directory, name, err);
    if (!path) status = STATUS_FAILED;
    if (path) status = consider(&c, name, file_is_directory(path) ? "/" : "", err);
    free(path);
  }
  if (list) closedir(list);
  free(directory);
  return status;
}

Status chat_complete(void *user, const char *line, size_t size, Buffer *rest, Error *err) {
  (void)user;
  if (size == 0 || line[0] != '/') return STATUS_OK;
  const char *blank = memchr(line, ' ', size), *typed = blank ? blank + 1 : line + 1;
  Candidates c = {.typed = typed, .size = (size_t)(line + size - typed), .rest = rest};
  for (int i = 0; !blank && i < WORD_TEXT; i++)
    TRY(consider(&c, chat_commands[i].name, chat_commands[i].argument ? " " : "", err));
  if (!blank) return STATUS_OK;
  ChatLine parsed = chat_parse(line, (size_t)(blank - line));
  if (parsed.word == WORD_SET && !memchr(typed, ' ', c.size))
    for (size_t i = 0; i < chat_n_settings; i++) TRY(consider(&c, chat_setting_names[i], " ", err));
  if (parsed.word < WORD_TEXT && chat_commands[parsed.word].is_file)
    return consider_files(typed, c.size, rest, err);
  return STATUS_OK;
}
