/* chat_complete.c - see chat_complete.h.   Called by: chat_input.c. */
#include "commands/chat/chat_complete.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"
#include "commands/chat/chat_settings.h"
#include "commands/chat/chat_words.h"
#include "commands/chat/user_path.h"
#include "commands/flags.h"

/* All words that match, and their longest common continuation after the `size` bytes typed so far. */
typedef struct {
  const char *typed;
  size_t size;
  Buffer *rest;
  StringList words; /* copies in new memory, for the list */
} Candidates;

static Status remember(Candidates *c, const char *word, const char *ending, Error *err) {
  const size_t length = strlen(word), end = strlen(ending);
  char *copy;
  TRY(NEW(copy, length + end + 1, "a list", err));
  memcpy(copy, word, length);
  memcpy(copy + length, ending, end);
  Status status = string_list_add(&c->words, copy, err);
  if (status) free(copy);
  return status;
}

static Status consider(Candidates *c, const char *word, const char *ending, Error *err) {
  size_t length = strlen(word);
  if (length < c->size || memcmp(word, c->typed, c->size) != 0) return STATUS_OK;
  TRY(remember(c, word, *ending == ' ' ? "" : ending, err));
  if (c->words.count == 1) {
    TRY(buffer_append(c->rest, word + c->size, length - c->size, err));
    return buffer_append_string(c->rest, ending, err);
  }
  size_t same = 0;
  while (same < c->rest->size && c->size + same < length && c->rest->data[same] == word[c->size + same])
    same++;
  while (same && same < c->rest->size && ((unsigned char)c->rest->data[same] & 0xC0) == 0x80) same--;
  c->rest->size = same; /* cut to whole characters */
  return STATUS_OK;
}

static int compare(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Appends the words to `list`, sorted, if there are several without a common continuation. Frees the
 * words. */
static Status finish(Candidates *c, Status status, Buffer *list, Error *err) {
  StringList *words = &c->words;
  const bool listed = status == STATUS_OK && words->count > 1 && c->rest->size == 0;
  if (listed) qsort(words->items, words->count, sizeof *words->items, compare);
  for (size_t i = 0; listed && i < words->count && status == STATUS_OK; i++)
    status = buffer_append(list, words->items[i], strlen(words->items[i]) + 1, err);
  for (size_t i = 0; i < words->count; i++) free((char *)words->items[i]);
  string_list_release(words);
  return status;
}

static Status consider_files(Candidates *c, Error *err) {
  const char *typed = c->typed;
  size_t slash = c->size;
  while (slash && typed[slash - 1] != '/') slash--;
  OWNED(mem_release) char *directory = NULL;
  TRY(user_path(slash ? typed : ".", slash ? slash : 1, &directory, err));
  c->typed += slash;
  c->size -= slash;
  OWNED(listing_release) DIR *entries = opendir(directory);
  for (struct dirent *entry; entries && (entry = readdir(entries));) {
    const char *name = entry->d_name;
    if (name[0] == '.' && (c->size == 0 || c->typed[0] != '.')) continue;
    if (utf8_valid_prefix(name, strlen(name)) != strlen(name)) continue;
    OWNED(mem_release) char *path = path_join(directory, name, err);
    if (!path) return STATUS_FAILED;
    TRY(consider(c, name, file_is_directory(path) ? "/" : "", err));
  }
  return STATUS_OK;
}

static Status consider_all(Candidates *c, const char *line, const char *blank, Error *err) {
  for (int i = 0; !blank && i < WORD_TEXT; i++)
    TRY(consider(c, chat_commands[i].name, chat_commands[i].argument ? " " : "", err));
  if (!blank) return STATUS_OK;
  ChatLine parsed = chat_parse(line, (size_t)(blank - line));
  if (parsed.word == WORD_SET && !memchr(c->typed, ' ', c->size))
    for (size_t i = 0; i < chat_n_settings; i++) TRY(consider(c, chat_setting_names[i], " ", err));
  if (parsed.word < WORD_TEXT && chat_commands[parsed.word].is_file) return consider_files(c, err);
  return STATUS_OK;
}

Status chat_complete(const char *line, size_t size, Buffer *rest, Buffer *list, Error *err) {
  if (size == 0 || line[0] != '/') return STATUS_OK;
  const char *blank = memchr(line, ' ', size), *typed = blank ? blank + 1 : line + 1;
  Candidates c = {.typed = typed, .size = (size_t)(line + size - typed), .rest = rest};
  return finish(&c, consider_all(&c, line, blank, err), list, err);
}
