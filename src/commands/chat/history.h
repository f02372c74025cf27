/* history.h - the lines that users enter, kept in one file for all chats.
 *
 * $XDG_STATE_HOME/auk/history, or ~/.local/state/auk/history: mode 0600, in a directory of mode 0700. One
 * entry per line: in it \n stands for a newline, \r for a CR, \\ for a backslash. Entries are added one by
 * one under a lock, so that concurrent chats lose none; a file that exceeds HISTORY_BYTES is cut to the last
 * HISTORY_BYTES / 2. If the file is a symbolic link, its target is the history. */
#pragma once

#include "base/buffer.h"

enum { HISTORY_BYTES = 1 << 20, HISTORY_ENTRY_BYTES = 64 << 10 };

/* The path of the file, in new memory; NULL if the environment names no place. Creates the directories above
 * it. */
Status history_path(char **path, Error *err);

typedef Status (*HistorySink)(void *user, const char *text, size_t size, Error *err);
/* Calls `take` for every entry in the last HISTORY_BYTES, the oldest first. A missing file has no entries;
 * empty or incomplete lines, and those that have a NUL or are not UTF-8, are skipped. */
Status history_read(const char *path, HistorySink take, void *user, Error *err);

/* Adds an entry, unless it is empty, longer than HISTORY_ENTRY_BYTES, or contains a NUL. */
Status history_add(const char *path, const char *text, size_t size, Error *err);
