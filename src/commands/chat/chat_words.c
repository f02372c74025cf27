/* chat_words.c - see chat_words.h. */
#include "commands/chat/chat_words.h"

#include <string.h>
#include <strings.h>

#include "commands/did_you_mean.h"

const ChatCommand chat_commands[] = {
    [WORD_CLEAR] = {"clear", " new reset ", NULL, "forgets the conversation; the system message stays",
                    false},
    [WORD_EDIT] = {"edit", "", NULL, "your last message in $EDITOR; it is answered anew", false},
    [WORD_EXIT] = {"exit", " quit bye ", NULL, "leaves (so does Ctrl-D)", false},
    [WORD_HELP] = {"help", " ? ", NULL, "this", false},
    [WORD_LOAD] = {"load", "", "FILE", "goes on with a conversation that was saved", true},
    [WORD_READ] = {"read", "", "FILE", "puts a file in front of your next message; \"\" for none", true},
    [WORD_REGEN] = {"regen", " retry ", NULL, "another answer in place of the last one", false},
    [WORD_SAVE] = {"save", "", "FILE", "writes the conversation as JSON", true},
    [WORD_SET] = {"set", "", "[NAME [VALUE]]", "a setting, named as its flag; without VALUE what it is",
                  false},
    [WORD_STATS] = {"stats", "", NULL, "how fast it was", false},
    [WORD_SYSTEM] = {"system", "", "[TEXT]", "the system message; \"\" for none; alone: what it is", false},
    [WORD_TOKENS] = {"tokens", "", NULL, "the tokens of each message, and of the context", false},
    [WORD_TOOL] = {"tool", "", "[RESULT]", "result of a call; \"\" for none; alone: calls that wait", false},
    [WORD_UNDO] = {"undo", "", NULL, "drops what /read took, else your last message", false},
};

static bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* True if text[0..size), in upper or lower case, is one of the words, which are given as " quit bye ". */
static bool is_among(const char *words, const char *text, size_t size) {
  for (const char *at = words; *at;) {
    at += strspn(at, " ");
    size_t length = strcspn(at, " ");
    if (length == size && length && strncasecmp(at, text, size) == 0) return true;
    at += length;
  }
  return false;
}

static ChatWord find_word(const char *text, size_t size) {
  for (int i = 0; i < WORD_TEXT; i++)
    if (is_among(chat_commands[i].name, text, size) || is_among(chat_commands[i].aliases, text, size))
      return (ChatWord)i;
  return WORD_TEXT;
}

/* True if the text has only letters and, after the first character, - or _. */
static bool is_like_a_command(const char *text, size_t size) {
  for (size_t i = 0; i < size; i++) {
    const bool letter = (text[i] | 32) >= 'a' && (text[i] | 32) <= 'z';
    if (!letter && !(i && (text[i] == '-' || text[i] == '_'))) return false;
  }
  return size > 0;
}

static const char *nearest_command(const char *text, size_t size) {
  Suggestion nearest = suggestion_begin(text, size);
  for (int i = 0; i < WORD_TEXT; i++)
    suggestion_consider(&nearest, chat_commands[i].name, strlen(chat_commands[i].name));
  return nearest.word;
}

const char *chat_bare_word(const char *text, size_t size) {
  static const struct {
    const char *words, *does;
  } bare[] = {{" exit quit ", "/exit leaves, and so does Ctrl-D"},
              {" help ", "/help lists what can be done"}};
  while (size && is_blank(text[size - 1])) size--;
  for (size_t i = 0; i < sizeof bare / sizeof *bare; i++)
    if (is_among(bare[i].words, text, size)) return bare[i].does;
  const bool is_of_shell = size && text[0] == '!' && is_like_a_command(text + 1, size - 1);
  return is_of_shell ? "Ctrl-Z leads to the shell, fg comes back" : NULL;
}

ChatLine chat_parse(const char *line, size_t size) {
  ChatLine parsed = {.word = WORD_TEXT};
  if (size == 0 || line[0] != '/') return parsed;
  while (size && is_blank(line[size - 1])) size--;
  size_t end = 1;
  while (end < size && !is_blank(line[end])) end++;
  ChatWord word = find_word(line + 1, end - 1);
  if (word != WORD_SYSTEM && word != WORD_TOOL && memchr(line + end, '\n', size - end))
    return parsed; /* all other commands are single lines */
  if (word == WORD_TEXT) {
    if (!is_like_a_command(line + 1, end - 1)) return parsed;
    parsed.word = WORD_UNKNOWN;
    parsed.name = line + 1;
    parsed.name_size = end - 1;
    parsed.nearest = nearest_command(line + 1, end - 1);
    return parsed;
  }
  size_t start = end;
  while (start < size && is_blank(line[start])) start++;
  parsed.word = word;
  parsed.argument = line + start;
  parsed.size = size - start;
  return parsed;
}
