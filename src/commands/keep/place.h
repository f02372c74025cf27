/* place.h - where the processes that keep models are found: a directory of this user alone, and in it a
 * socket for each model, named by the hash of its key. */
#pragma once

#include <sys/types.h>

#include "commands/answer/assistant.h"

/* Appends the key: one process can compute for two clients only if their keys are equal. The key consists of
 * the program's file, the files of the model and the tokenizer (each by its FileStamp), flags that override
 * the model's config, device flags, CUDA_VISIBLE_DEVICES, niceness and cores. */
Status keep_key(const AssistantFlags *flags, const Model *model, Buffer *key, Error *err);

/* The directory "$XDG_RUNTIME_DIR/auk", else "/tmp/auk-UID", in new memory. Refused (STATUS_FAILED) if other
 * users may enter it. make: creates it if it is missing. */
Status keep_directory(bool make, char **path, Error *err);
/* The path of a file in the directory, in new memory. Its name is the key's hash and `ending` (".sock",
 * ".lock"). */
Status keep_path(const char *directory, const Buffer *key, const char *ending, char **path, Error *err);

/* Connects to the socket at `path`. If connect() fails, *socket is -1, without failure, and errno says why:
 * ENOENT, there is no such file; ECONNREFUSED, a killed process has left it; EAGAIN, the process's queue of
 * connections was full for two seconds. Another user's process is refused (STATUS_FAILED). */
Status keep_connect(const char *path, int *socket, Error *err);
/* Removes the name of a socket if no process listens at it. */
void keep_remove_stale(const char *path);
/* Removes the temporary socket names (listen_at() in holder.c) that processes killed at their start have left
 * in the directory. */
void keep_remove_leftovers(const char *directory);

/* Locks the directory of a socket's name. Names are removed, or pass to another process, only with this lock:
 * otherwise a dead process's name could be removed although a living process has just taken it. Returns a
 * descriptor, to be closed for unlocking; -1: others held the lock for a second, or there is no directory. */
int keep_lock_names(const char *path);

/* Marks this process, for keep_holder(), as the one that listens at `path` (KEY.sock) on the socket with this
 * inode. The mark is a lock. It lasts as long as the returned descriptor of KEY.lock (-1: not opened) stays
 * open. Meanwhile the process must close no other descriptor of KEY.lock: this would end the lock, too. */
int keep_mark_holder(const char *path, ino_t inode);
/* The pid of the process that listens at `path`, found without a connection; 0: not known. */
pid_t keep_holder(const char *path);

/* Parses "90s", "10m", "2h", "1d", "45" (seconds). `name` is the flag's, for messages. */
Status keep_time(const char *name, const char *text, int *seconds, Error *err);
