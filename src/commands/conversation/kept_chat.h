/* kept_chat.h - chats that are saved automatically: a file each in $XDG_STATE_HOME/auk/chats, or
 * ~/.local/state/auk/chats. The folder has mode 0700, the files have 0600 and the format of /save
 * (conversation_file.h). A name is the time when the file was made and the first words of its title,
 * "2026-11-22-1510-why-is-the-sky-blue"; the time of the file is that of the last change.
 *
 * A file is rewritten after each turn, completely or not at all. If another process has written to it in the
 * meantime, the chat continues under a new name, so that two terminals never overwrite each other's chats. */
#pragma once

#include "base/file.h"
#include "commands/conversation/conversation_file.h"

typedef struct {
  char *path;             /* NULL: not written yet */
  FileStamp stamp;        /* stamp of the file as this process read or wrote it */
  Conversation forgotten; /* turns that the context has no room for any more; they stay in the file */
  char began[24];         /* "2026-11-22T15:10:00Z", or empty: now */
} KeptChat;               /* starts zeroed */

/* Writes the conversation and its head to the chat's file. A conversation without a message of the user has
 * no file; an existing file is removed, unless another process has written to it. *moved: another process has
 * written to the file, so that the chat has another name now. */
Status kept_save(KeptChat *kept, const Conversation *conversation, ConversationHead head, bool *moved,
                 Error *err);
/* Forgets the file: the next conversation gets a new one. */
void kept_release(KeptChat *kept);

/* Reads the kept chat `name` (NULL: the one written last) into an empty conversation and a zeroed KeptChat.
 * `name` may be a part of a name, or else of a title, that only one chat has. No such chat: STATUS_USAGE. */
Status kept_open(const char *name, KeptChat *kept, Conversation *conversation, ConversationHead *head,
                 Error *err);
/* The model that this chat names, in new memory; NULL: none. */
Status kept_model(const char *name, char **model, Error *err);
/* The path of the chat that kept_open() would read, in new memory. whole: the name must be complete. */
Status kept_find(const char *name, bool whole, char **path, Error *err);

typedef struct {
  char *name, *path;
  int64_t changed_ns; /* since 1970 */
} KeptEntry;
typedef struct {
  KeptEntry *items; /* [count] most recently written first */
  size_t count, capacity;
} KeptList; /* starts zeroed */
/* Lists the chats without reading them; release the list also after a failure. */
Status kept_list(KeptList *list, Error *err);
void kept_list_release(KeptList *list);
