/* history.h - what a person entered, kept from one chat to the next in one file that all chats share.
 *
 * $XDG_STATE_HOME/auk/history, or ~/.local/state/auk/history: mode 0600, in a directory of mode 0700. One
 * entry a line: a newline within it is written \n, a backslash \\. Entries are added one by one, under a
 * lock, so that several chats at once lose none; a file that grows over HISTORY_BYTES is cut to the later
 * half. Where the file is a symbolic link, what it leads to is the history. */
#ifndef AUK_COMMANDS_CHAT_HISTORY_H
#define AUK_COMMANDS_CHAT_HISTORY_H

#include "base/buffer.h"

enum { HISTORY_BYTES = 1 << 20, HISTORY_ENTRY_BYTES = 64 << 10 };

/* The file's path as the environment has it, in new memory; NULL where it names no place. The directories
 * above it are made. */
Status history_path(char **path, Error *err);

/* Calls `take` for every entry of the file, the oldest first. A file that is not there has none. Lines that
 * are not UTF-8 are passed over. */
typedef Status (*HistorySink)(void *user, const char *text, size_t size, Error *err);
Status history_read(const char *path, HistorySink take, void *user, Error *err);

/* Adds an entry. One longer than HISTORY_ENTRY_BYTES, or with a NUL, is left out. */
Status history_add(const char *path, const char *text, size_t size, Error *err);

#endif
