/* kept_chat.c - see kept_chat.h.   Called by: continued.c, chats.c, chat_commands.c, settings.c.
 * Always true: a file is created or replaced under the lock of its folder, and replaced only while it is as
 *              this process last read or wrote it. */
#include "commands/conversation/kept_chat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/private_file.h"
#include "commands/auk_directory.h"
#include "commands/common.h"

static const char ending[] = ".json";
enum { N_ENDING = sizeof ending - 1, SLUG = 24 };

/* The folder, in new memory; NULL if the environment names no place. Creates nothing. */
static Status find_directory(char **directory, Error *err) {
  return auk_path("XDG_STATE_HOME", ".local/state", "chats", directory, err);
}

static Status need_directory(char **directory, Error *err) {
  TRY(find_directory(directory, err));
  if (*directory) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "neither XDG_STATE_HOME nor HOME names a place for chats");
}

/* --- names */

/* Appends the first words of the title in letters, digits and '-'. */
static Status put_slug(Buffer *out, const char *title, Error *err) {
  char slug[SLUG + 1] = "";
  size_t n = 0, border = 0; /* border: end of the last whole word */
  for (const char *at = title; n < SLUG; at++) {
    const char c = *at >= 'A' && *at <= 'Z' ? (char)(*at + 32) : *at;
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (!is_letter && n && slug[n - 1] != '-') {
      border = n;
      slug[n++] = '-';
    }
    if (is_letter) slug[n++] = c;
    if (!*at) break;
  }
  if (border == 0 && n && n == SLUG) border = n; /* a single long word */
  return border ? buffer_printf(out, err, "-%.*s", (int)border, slug) : STATUS_OK;
}

/* The path of a new chat: `number` distinguishes chats of the same minute and words. */
static Status make_path(const char *directory, const char *title, int number, Buffer *path, Error *err) {
  char when[32];
  const time_t now = time(NULL);
  struct tm parts;
  path->size = 0;
  if (!localtime_r(&now, &parts) || !strftime(when, sizeof when, "%Y-%m-%d-%H%M", &parts))
    return error_set(err, STATUS_FAILED, "the time is unknown");
  TRY(buffer_printf(path, err, "%s/%s", directory, when));
  TRY(put_slug(path, title, err));
  if (number > 1) TRY(buffer_printf(path, err, "-%d", number));
  return buffer_append(path, ending, sizeof ending, err);
}

static void note_began(char began[24]) {
  const time_t now = time(NULL);
  struct tm parts;
  if (!gmtime_r(&now, &parts) || !strftime(began, 24, "%Y-%m-%dT%H:%M:%SZ", &parts)) *began = 0;
}

/* --- writing */

/* Locks the folder, if its file system has locks. Returns the descriptor to close for unlocking, or -1. */
static int lock(const char *directory) {
  OWNED(mem_release) char *path = path_join(directory, ".lock", NULL);
  const int file = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
  while (file >= 0 && flock(file, LOCK_EX) != 0 && errno == EINTR) continue;
  return file;
}

/* Writes the text to `path`. *placed is false, and nothing is written, if `is_new` and the file exists. */
static Status write_file(const char *path, const Buffer *text, bool is_new, bool *placed, Error *err) {
  OWNED(atomic_file_abort) AtomicFile file = {0};
  *placed = false;
  if (is_new && file_is_named(path)) return STATUS_OK;
  TRY(private_file_create(path, &file, err));
  file.fleeting = false;
  TRY(atomic_file_write(&file, text->data, text->size, err));
  *placed = true;
  return is_new ? atomic_file_place(&file, placed, err) : atomic_file_commit(&file, err);
}

static Status write_new(KeptChat *kept, const char *directory, const char *title, const Buffer *text,
                        Error *err) {
  OWNED(buffer_release) Buffer path = {0};
  bool placed = false;
  for (int number = 1; !placed; number++) {
    TRY(make_path(directory, title, number, &path, err));
    TRY(write_file(path.data, text, true, &placed, err));
  }
  free(kept->path);
  kept->path = path.data;
  path = (Buffer){0};
  return STATUS_OK;
}

static Status write_locked(KeptChat *kept, const char *directory, const char *title, const Buffer *text,
                           bool *moved, Error *err) {
  bool placed = false;
  if (kept->path && !file_is_named(kept->path)) /* the user has removed the file */
    TRY(write_file(kept->path, text, true, &placed, err));
  else if (kept->path && file_has_stamp(kept->path, &kept->stamp))
    TRY(write_file(kept->path, text, false, &placed, err));
  if (!placed) {
    *moved = kept->path != NULL;
    TRY(write_new(kept, directory, title, text, err));
  }
  return file_stamp(kept->path, &kept->stamp, err);
}

/* Joins the messages before the first turn, the forgotten turns, and the other turns. */
static Status join(const KeptChat *kept, const Conversation *c, Conversation *all, Error *err) {
  const size_t leading = conversation_next_turn(c, 0);
  TRY(conversation_append(all, c, 0, leading, err));
  TRY(conversation_append(all, &kept->forgotten, 0, kept->forgotten.count, err));
  return conversation_append(all, c, leading, c->count, err);
}

static Status save(KeptChat *kept, const Conversation *c, ConversationHead head, bool *moved, Error *err) {
  OWNED(buffer_release) Buffer text = {0};
  OWNED(mem_release) char *directory = NULL;
  char title[CONVERSATION_TITLE];
  TRY(need_directory(&directory, err));
  TRY(private_directory(directory, err));
  if (!*kept->began) note_began(kept->began);
  head.began = kept->began;
  head.n_forgotten = kept->forgotten.count;
  conversation_title(c, title);
  TRY(conversation_write(c, &head, &text, err));
  const int locked = lock(directory);
  const Status status = write_locked(kept, directory, title, &text, moved, err);
  if (locked >= 0) close(locked);
  return status;
}

Status kept_save(KeptChat *kept, const Conversation *c, ConversationHead head, bool *moved, Error *err) {
  *moved = false;
  if (conversation_n_turns(c) + conversation_n_turns(&kept->forgotten) == 0) {
    if (kept->path && file_has_stamp(kept->path, &kept->stamp)) unlink(kept->path);
    kept_release(kept);
    return STATUS_OK;
  }
  OWNED(conversation_release) Conversation all = {0};
  TRY(kept->forgotten.count ? join(kept, c, &all, err) : STATUS_OK);
  return save(kept, kept->forgotten.count ? &all : c, head, moved, err);
}

void kept_release(KeptChat *kept) {
  free(kept->path);
  conversation_release(&kept->forgotten);
  *kept = (KeptChat){0};
}

/* --- the list */

static int compare(const void *a, const void *b) {
  const KeptEntry *one = a, *other = b;
  if (one->changed_ns != other->changed_ns) return one->changed_ns < other->changed_ns ? 1 : -1;
  return strcmp(other->name, one->name);
}

static Status add(KeptList *list, const char *directory, const char *file, const struct stat *info,
                  Error *err) {
  TRY(mem_grow(&list->items, &list->capacity, list->count + 1, sizeof *list->items, "a list of chats", err));
  KeptEntry entry = {.path = path_join(directory, file, err), .name = path_join("", file, err)};
  entry.changed_ns = (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
  if (!entry.path || !entry.name) {
    free(entry.path);
    free(entry.name);
    return STATUS_FAILED;
  }
  entry.name[strlen(entry.name) - N_ENDING] = 0;
  list->items[list->count++] = entry;
  return STATUS_OK;
}

Status kept_list(KeptList *list, Error *err) {
  OWNED(mem_release) char *directory = NULL;
  TRY(find_directory(&directory, err));
  if (!directory) return STATUS_OK;
  OWNED(listing_release) DIR *listing = opendir(directory);
  Status status = STATUS_OK;
  if (!listing && errno != ENOENT) status = system_error(directory, "read it", err);
  for (struct dirent *entry; listing && status == STATUS_OK && (entry = readdir(listing));) {
    struct stat info;
    if (entry->d_name[0] == '.' || !name_ends_with(entry->d_name, ending)) continue;
    if (fstatat(dirfd(listing), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISREG(info.st_mode)) status = add(list, directory, entry->d_name, &info, err);
  }
  if (list->count) qsort(list->items, list->count, sizeof *list->items, compare);
  return status;
}

void kept_list_release(KeptList *list) {
  for (size_t i = 0; i < list->count; i++) {
    free(list->items[i].name);
    free(list->items[i].path);
  }
  free(list->items);
  *list = (KeptList){0};
}

/* --- one chat */

/* True if `part` is in the whole title; the head of the file has only its beginning. */
static bool is_in_whole_title(const char *path, const char *part) {
  OWNED(conversation_release) Conversation c = {0};
  OWNED(mem_release)
  char *title =
      conversation_load(path, &c, NULL, NULL) == STATUS_OK ? conversation_whole_title(&c, NULL) : NULL;
  return title && strcasestr(title, part);
}

/* True if `part`, not empty, is in the entry's name. by_title: in its title instead, ignoring case. */
static bool matches(const KeptEntry *entry, const char *part, bool by_title) {
  OWNED(conversation_head_release) ConversationHead head = {0};
  if (!*part) return false;
  if (!by_title) return strstr(entry->name, part) != NULL;
  if (conversation_load_head(entry->path, &head, NULL) != STATUS_OK || !head.title) return false;
  return strcasestr(head.title, part) ||
         (name_ends_with(head.title, "...") && is_in_whole_title(entry->path, part));
}

static Status refuse_several(const KeptList *list, const char *name, bool by_title, Error *err) {
  OWNED(buffer_release) Buffer names = {0};
  size_t n = 0;
  for (size_t i = 0; i < list->count; i++) {
    if (!matches(&list->items[i], name, by_title)) continue;
    if (n++ < 3) TRY(buffer_printf(&names, err, "%s%s", n > 1 ? ", " : "", list->items[i].name));
  }
  return error_set(err, STATUS_USAGE, "\"%s\" is part of the %s of %zu chats: %.*s%s", name,
                   by_title ? "titles" : "names", n, (int)names.size, names.data, n > 3 ? ", ..." : "");
}

/* *found: the entry with this name (NULL: the first entry); else the only entry with `name` as a part of its
 * name; else the only entry with it as a part of its title. whole: refuses parts. */
static Status choose(const KeptList *list, const char *name, bool whole, const KeptEntry **found,
                     Error *err) {
  *found = NULL;
  for (size_t i = 0; i < list->count && !*found; i++)
    if (!name || strcmp(list->items[i].name, name) == 0) *found = &list->items[i];
  if (*found) return STATUS_OK;
  if (!name)
    return error_set(
        err, STATUS_USAGE,
        "there is no chat to go on with: auk chat begins one, and so does an answer on the terminal "
        "(those in pipes and files are not kept)");
  size_t n = 0;
  bool by_title = false;
  for (int pass = 0; pass < 2 && n == 0; pass++) {
    by_title = pass == 1;
    for (size_t i = 0; i < list->count; i++)
      if (matches(&list->items[i], name, by_title) && n++ == 0) *found = &list->items[i];
  }
  if (n == 0)
    return error_set(err, STATUS_USAGE, "there is no chat named \"%s\" (auk chats lists them%s)", name,
                     strchr(name, ' ') ? "; a prompt follows -p" : "");
  if (whole)
    return error_set(err, STATUS_USAGE, "there is no chat named \"%s\": did you mean %s?", name,
                     (*found)->name);
  return n > 1 ? refuse_several(list, name, by_title, err) : STATUS_OK;
}

Status kept_find(const char *name, bool whole, char **path, Error *err) {
  OWNED(kept_list_release) KeptList list = {0};
  const KeptEntry *found = NULL;
  *path = NULL;
  TRY(kept_list(&list, err));
  TRY(choose(&list, name, whole, &found, err));
  *path = path_join("", found->path, err);
  return *path ? STATUS_OK : STATUS_FAILED;
}

/* Moves n_forgotten messages, from the first turn on, from the conversation to `kept`. */
static Status split(KeptChat *kept, Conversation *c, size_t n_forgotten, Error *err) {
  const size_t first = conversation_next_turn(c, 0);
  if (n_forgotten > c->count - first) n_forgotten = c->count - first;
  TRY(conversation_append(&kept->forgotten, c, first, first + n_forgotten, err));
  conversation_drop(c, first, n_forgotten);
  return STATUS_OK;
}

Status kept_open(const char *name, KeptChat *kept, Conversation *c, ConversationHead *head, Error *err) {
  TRY(kept_find(name, false, &kept->path, err));
  TRY(file_stamp(kept->path, &kept->stamp, err)); /* before reading: a later change is another process's */
  TRY(file_refuse_waiting(kept->path, err));
  TRY(conversation_load(kept->path, c, head, err));
  if (head->began && strlen(head->began) < sizeof kept->began) strcpy(kept->began, head->began);
  return split(kept, c, head->n_forgotten, err);
}

Status kept_model(const char *name, char **model, Error *err) {
  OWNED(mem_release) char *path = NULL;
  OWNED(conversation_head_release) ConversationHead head = {0};
  *model = NULL;
  TRY(kept_find(name, false, &path, err));
  TRY(file_refuse_waiting(path, err));
  TRY(conversation_load_head(path, &head, err));
  *model = TAKE(head.model);
  return STATUS_OK;
}
