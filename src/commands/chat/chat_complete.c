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

/* All words that match, and their longest common continuation after the `size` bytes typed so far. */
typedef struct {
  const char *typed;
  size_t size;
  Buffer *rest, *words; /* words: for the list, each with a NUL */
  size_t n_words;
} Candidates;

static Status consider(Candidates *c, const char *word, const char *ending, Error *err) {
  size_t length = strlen(word);
  if (length < c->size || memcmp(word, c->typed, c->size) != 0) return STATUS_OK;
  TRY(buffer_printf(c->words, err, "%s%s%c", word, *ending == ' ' ? "" : ending, 0));
  if (++c->n_words == 1) {
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

/* Appends the words to `list`, sorted, if there are several without a common continuation. */
static Status finish(const Candidates *c, Buffer *list, Error *err) {
  OWNED(mem_release) const char **sorted = NULL;
  if (c->n_words < 2 || c->rest->size) return STATUS_OK;
  TRY(NEW(sorted, c->n_words, "a list", err));
  const char *word = c->words->data;
  for (size_t i = 0; i < c->n_words; i++, word += strlen(word) + 1) sorted[i] = word;
  qsort(sorted, c->n_words, sizeof *sorted, compare);
  for (size_t i = 0; i < c->n_words; i++) TRY(buffer_append(list, sorted[i], strlen(sorted[i]) + 1, err));
  return STATUS_OK;
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
  OWNED(buffer_release) Buffer words = {0};
  Candidates c = {.typed = typed, .size = (size_t)(line + size - typed), .rest = rest, .words = &words};
  TRY(consider_all(&c, line, blank, err));
  return finish(&c, list, err);
}
