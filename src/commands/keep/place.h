/* place.h - where the processes that keep models are found: a directory of this user alone, and in it a
 * socket for each model, named by the hash of its key. */
#pragma once

#include <sys/types.h>

#include "commands/answer/assistant.h"

/* Text that agrees between two calls exactly if one can take the other's place in computing: the program's
 * file, the files of the model and the tokenizer (by their stamps), flags that override them, device
 * flags, niceness and cores. */
Status keep_key(const AssistantFlags *flags, const Model *model, Buffer *key, Error *err);

/* "$XDG_RUNTIME_DIR/auk", else "/tmp/auk-UID", in new memory: refused (STATUS_FAILED) if others may enter it.
 * If it is missing, it is made, or nothing is there unless `make`. */
Status keep_directory(bool make, char **path, Error *err);
/* DIRECTORY/HASH.ENDING of the key, in new memory. */
Status keep_path(const char *directory, const Buffer *key, const char *ending, char **path, Error *err);

/* Connects to a socket there. *socket is -1, without failure, if no process listens: the file is missing, or
 * left over from a process that was killed (errno ECONNREFUSED); or if there is one that for two seconds has
 * taken none of the many calls that wait (EAGAIN). Another user's process is refused. */
Status keep_connect(const char *path, int *socket, Error *err);
/* Removes the name of a socket if no process listens at it. */
void keep_remove_stale(const char *path);
/* Likewise the names in a directory that sockets had before they were renamed (holder.c): processes that were
 * killed while they began have left those. */
void keep_remove_leftovers(const char *directory);

/* A name of a socket is removed, or passes from one process to another, only with this lock of its directory:
 * else a process that was found dead could lose a name that a living one has taken meanwhile. Gives a
 * descriptor, which is closed to unlock; -1: others had the lock for a second, or there is none. */
int keep_lock_names(const char *path);

/* Has this process found by keep_holder() at `path`, KEY.sock, while the descriptor that it gives is open
 * (-1: it cannot be found so). No other descriptor of KEY.lock may be closed meanwhile. */
int keep_mark_holder(const char *path, ino_t inode);
/* The process that listens at `path`, without a connection to it; 0: not known. */
pid_t keep_holder(const char *path);

/* Parses "90s", "10m", "2h", "1d", "45" (seconds). `name` is the flag's, for messages. */
Status keep_time(const char *name, const char *text, int *seconds, Error *err);
