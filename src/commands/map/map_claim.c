/* map_claim.c - see map_claim.h.   Called by: map_blocks.c, merge/merge_parts.c.
 *
 * Always true: the results of a block appear whole and once. Two processes may answer the same block, for
 *              example if one of them was slow to prove that it lives; this only costs time. */
#include "commands/map/map_claim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/output.h"
#include "commands/common.h"
#include "commands/map/map_claim_life.h"
#include "commands/map/map_results.h"

typedef enum {
  BLOCK_OPEN,
  BLOCK_MINE,
  BLOCK_DONE,
  BLOCK_BARRED, /* something else has the name of the block's results */
} BlockState;

struct Claims {
  ClaimOptions options;
  char owner[OWNER_SIZE];
  Life *life;
  Watch *watch;
  unsigned char *states; /* [n_blocks] BlockState, as far as this process knows */
  size_t cursor;         /* first block that was never looked at */
  size_t n_open;
  double looked_ms;  /* when all open blocks were last looked at */
  double waiting_ms; /* since when this process has no block and finds none; 0: it has a block */
  bool has_said;     /* note_waiting() has printed its note */
};

/* --- names */

typedef struct {
  char text[PATH_MAX + 256]; /* enough for names in the longest directory that claims_open() allows */
} Path;

static Path path_of(const char *directory, const char *folder, const char *name) {
  Path path;
  const int size = snprintf(path.text, sizeof path.text, "%s/%s%s", directory, folder, name);
  if (size < 0 || (size_t)size >= sizeof path.text) *path.text = 0; /* names no file */
  return path;
}

static Path block_path(const char *directory, const char *folder, size_t block, const char *owner) {
  char name[OWNER_SIZE + 32];
  snprintf(name, sizeof name, "%08zu%s%s", block, *owner ? "/" : "", owner);
  return path_of(directory, folder, name);
}

static Path own_directory(const Claims *c) {
  return path_of(c->options.directory, "ready.", c->owner);
}

static bool exists(const Path *path) {
  return file_is_named(path->text);
}

static Status make_directory(const char *path, Error *err) {
  if (mkdir(path, 0777) == 0) return STATUS_OK;
  if (errno != EEXIST) return system_error(path, "make the directory", err);
  if (file_is_directory(path)) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "%s is %s, expected a directory: remove it, and run the command again",
                   path, file_kind_of(path));
}

Status claims_result_path(const char *directory, size_t block, Buffer *path, Error *err) {
  TRY(buffer_printf(path, err, "%s/done/%08zu", directory, block));
  return buffer_append(path, "", 1, err);
}

Status claims_look_for_result(const char *path, bool *there, Error *err) {
  struct stat info;
  const char *kind = file_kind_of(path);
  *there = kind != NULL;
  if (!kind) return STATUS_OK;
  if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
    return error_set(err, STATUS_FAILED,
                     "%s is %s, expected the results of a block: remove it, and run the command again", path,
                     kind);
  if (info.st_size > RESULT_HASH_SIZE) return STATUS_OK;
  return error_set(err, STATUS_USAGE,
                   "%s: this is not what --claim wrote there: the file was changed since; remove it, and run "
                   "the command again",
                   path);
}

static bool is_hidden(const struct dirent *entry) {
  return entry->d_name[0] == '.';
}

void claims_owner(const char *directory, size_t block, char owner[OWNER_SIZE]) {
  const Path path = block_path(directory, "taken/", block, "");
  OWNED(listing_release) DIR *entries = opendir(path.text);
  *owner = 0;
  if (!entries) return;
  for (struct dirent *entry; !*owner && (entry = readdir(entries));)
    if (!is_hidden(entry) && strlen(entry->d_name) < OWNER_SIZE) strcpy(owner, entry->d_name);
}

/* --- the job */

/* Refuses a directory with files of other programs; "job.OWNER", which another process may be making, is
 * fine. */
static Status check_unused(const char *directory, Error *err) {
  OWNED(listing_release) DIR *entries = opendir(directory);
  bool used = false;
  if (!entries) return system_error(directory, "open", err);
  for (struct dirent *entry; !used && (entry = readdir(entries));)
    used = !is_hidden(entry) && strncmp(entry->d_name, "job", 3) != 0;
  if (!used) return STATUS_OK;
  return error_set(
      err, STATUS_USAGE,
      "--claim %s: the directory has other files in it: name one that is empty, or not there yet", directory);
}

Status claims_settings(const char *directory, ResultsFormat *format, MapSettings *settings, Error *err) {
  const Path path = path_of(directory, "job/", "settings");
  OWNED(buffer_release) Buffer text = {0};
  bool valid = false;
  if (!exists(&path))
    return error_set(err, STATUS_USAGE, "%s: this is no directory of --claim: it has no job/settings",
                     directory);
  TRY(map_resume_read_head(path.text, &text, err));
  TRY(map_resume_head(text.data ? text.data : "", text.size, format, settings, &valid, err));
  if (valid && map_settings_are_sealed(settings)) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s: this is not what --claim writes there, or it was changed since",
                   path.text);
}

static Status write_job(const Path *directory, const ClaimOptions *options, Error *err) {
  const Path path = path_of(directory->text, "", "settings");
  OWNED(atomic_file_abort) AtomicFile file = {0};
  OWNED(buffer_release) Buffer head = {0};
  TRY(map_resume_write_head(options->format, options->settings, &head, err));
  TRY(atomic_file_open(path.text, &file, err));
  TRY(atomic_file_write(&file, head.data, head.size, err));
  return atomic_file_commit(&file, err);
}

/* Removes a directory with one file in it. */
static void remove_directory(const Path *directory, const char *file) {
  const Path path = path_of(directory->text, "", file);
  unlink(path.text);
  rmdir(directory->text);
}

/* Makes DIR/job, unless another process is faster: the rename then fails. */
static Status make_job(const Claims *c, Error *err) {
  const char *root = c->options.directory;
  const Path job = path_of(root, "job", ""), own = path_of(root, "job.", c->owner);
  if (exists(&job)) return STATUS_OK;
  const Status unused = check_unused(root, err);
  if (exists(&job)) return STATUS_OK; /* another process was faster, and the files are of that process */
  TRY(unused);
  TRY(make_directory(own.text, err));
  Status status = write_job(&own, &c->options, err);
  if (status == STATUS_OK && rename(own.text, job.text) == 0) return STATUS_OK;
  if (status == STATUS_OK && !exists(&job)) status = system_error(job.text, "rename a directory to it", err);
  remove_directory(&own, "settings");
  return status;
}

static Status check_job(const ClaimOptions *options, Error *err) {
  OWNED(map_settings_release) MapSettings settings = {0};
  ResultsFormat format;
  TRY(claims_settings(options->directory, &format, &settings, err));
  if (format != options->format)
    return error_set(err, STATUS_USAGE, "--claim %s: its results are of another form (--json, -0)",
                     options->directory);
  return map_settings_compare(options->settings, settings.lines.data, settings.lines.size, 0,
                              options->directory, NULL, err);
}

/* --- opening */

/* A name that no other process has, not even one on another machine with the same host name. */
static Status choose_owner(char owner[OWNER_SIZE], Error *err) {
  char host[41] = {0};
  uint64_t number;
  TRY(random_seed(&number, err));
  if (gethostname(host, sizeof host - 1) != 0 || !*host) strcpy(host, "host");
  for (char *at = host; *at; at++) {
    const bool plain = (*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z');
    if (!plain && *at != '-') *at = '-';
  }
  snprintf(owner, OWNER_SIZE, "%s-%ld-%08llx", host, (long)getpid(),
           (unsigned long long)number & 0xffffffffu);
  return STATUS_OK;
}

static Status open_directory(Claims *c, Error *err) {
  static const char *const folders[] = {"taken", "done", "alive"};
  const char *root = c->options.directory;
  TRY(choose_owner(c->owner, err));
  TRY(make_directory(root, err));
  TRY(make_job(c, err));
  TRY(check_job(&c->options, err));
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
    TRY(make_directory(path_of(root, folders[i], "").text, err));
  TRY(watch_open(c->options.lease_s, &c->watch, err));
  const Path alive = path_of(root, "alive/", c->owner);
  return life_begin(alive.text, c->options.lease_s, &c->life, err);
}

RELEASE_BY(claims_release, Claims, claims_close)

Status claims_open(const ClaimOptions *options, Claims **out, Error *err) {
  *out = NULL;
  if (!*options->directory)
    return error_set(err, STATUS_USAGE, "--claim: the name of the directory is empty");
  if (strlen(options->directory) > PATH_MAX - 256)
    return error_set(err, STATUS_USAGE, "--claim: the name of the directory is too long");
  OWNED(claims_release) Claims *c = NULL;
  TRY(NEW(c, 1, "claims", err));
  *c = (Claims){.options = *options, .n_open = options->n_blocks};
  TRY(NEW(c->states, options->n_blocks, "claims", err));
  TRY(open_directory(c, err));
  *out = TAKE(c);
  return STATUS_OK;
}

/* --- taking */

static void set_state(Claims *c, size_t block, BlockState state) {
  c->n_open -= c->states[block] == BLOCK_OPEN;
  c->states[block] = (unsigned char)state;
  c->n_open += state == BLOCK_OPEN;
}

static void let_go(const Claims *c, size_t block) {
  const Path directory = block_path(c->options.directory, "taken/", block, "");
  remove_directory(&directory, c->owner);
}

/* Notes a block as this process's, unless the block was done before it was taken. */
static void note_taken(Claims *c, size_t block) {
  const Path done = block_path(c->options.directory, "done/", block, "");
  const bool is_done = exists(&done);
  if (is_done) let_go(c, block);
  set_state(c, block, is_done ? BLOCK_DONE : BLOCK_MINE);
}

static bool create(const Path *path) {
  OWNED(descriptor_release) const int descriptor = open(path->text, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  return descriptor >= 0;
}

/* Makes the directory that becomes the claim of a block. */
static Status make_ready(const Claims *c, Error *err) {
  const Path own = own_directory(c), file = path_of(own.text, "", c->owner);
  TRY(make_directory(own.text, err));
  return create(&file) ? STATUS_OK : system_error(file.text, "create", err);
}

/* Takes a block whose directory has files, but none that names a process. Such files are hidden ones like
 * .nfs0123: NFS keeps one while a removed file is open. They stay. Two processes may take the block at once;
 * this only costs time. */
static Status take_beside(Claims *c, size_t block, Error *err) {
  char owner[OWNER_SIZE];
  claims_owner(c->options.directory, block, owner);
  if (*owner) return STATUS_OK; /* another process was faster */
  const Path mine = block_path(c->options.directory, "taken/", block, c->owner);
  if (create(&mine))
    note_taken(c, block);
  else if (errno != ENOENT) /* ENOENT: another process has just released the block */
    return system_error(mine.text, "create", err);
  return STATUS_OK;
}

/* True if something other than a directory has the name of a claim, such as a copied file. */
static bool is_barred(const Path *taken) {
  return exists(taken) && !file_is_directory(taken->text);
}

/* Takes a block whose claim cannot be written. Another process may take it too, which only costs time. */
static void take_unsigned(Claims *c, size_t block, const Path *taken) {
  progress_clear();
  print_note("%s is %s, expected a directory: block %zu is answered all the same, perhaps by other processes "
             "too, until it is removed",
             taken->text, file_kind_of(taken->text), block);
  note_taken(c, block);
}

/* True if the rename has given this process the block. A file server that gets the request twice reports
 * ENOENT for the second, though the first succeeded. */
static bool was_renamed(const Claims *c, const char *from, const char *to, size_t block) {
  if (rename(from, to) == 0) return true;
  const Path mine = block_path(c->options.directory, "taken/", block, c->owner);
  return errno == ENOENT && exists(&mine);
}

static Status take_free(Claims *c, size_t block, Error *err) {
  const Path own = own_directory(c), file = path_of(own.text, "", c->owner),
             taken = block_path(c->options.directory, "taken/", block, "");
  if (!exists(&file)) TRY(make_ready(c, err));
  const bool renamed = was_renamed(c, own.text, taken.text, block);
  const int failure = errno; /* is_barred() sets errno, too */
  if (renamed)
    note_taken(c, block);
  else if (is_barred(&taken))
    take_unsigned(c, block, &taken);
  else if (failure != ENOTEMPTY && failure != EEXIST && failure != ENOTDIR)
    return errno = failure, system_error(taken.text, "rename a directory to it", err);
  else
    return take_beside(c, block, err);
  return STATUS_OK;
}

/* Takes the block over if the process that has it is dead. */
static Status take_from(Claims *c, size_t block, const char *owner, Error *err) {
  const char *root = c->options.directory;
  const Path alive = path_of(root, "alive/", owner);
  bool dead;
  TRY(watch_look(c->watch, owner, alive.text, &dead, err));
  if (!dead) return STATUS_OK;
  const Path theirs = block_path(root, "taken/", block, owner),
             mine = block_path(root, "taken/", block, c->owner);
  if (was_renamed(c, theirs.text, mine.text, block)) note_taken(c, block);
  return STATUS_OK;
}

/* Looks at an open block. Notes that it is done or barred. Takes it if it is free or its process dead. */
static Status look(Claims *c, size_t block, Error *err) {
  char owner[OWNER_SIZE];
  const Path done = block_path(c->options.directory, "done/", block, "");
  bool is_done;
  Error reason;
  if (claims_look_for_result(done.text, &is_done, &reason) != STATUS_OK) {
    progress_clear();
    print_note("%s", reason.text);
    set_state(c, block, BLOCK_BARRED);
    return STATUS_OK;
  }
  if (is_done) {
    set_state(c, block, BLOCK_DONE);
    return STATUS_OK;
  }
  claims_owner(c->options.directory, block, owner);
  if (strcmp(owner, c->owner) == 0) {
    note_taken(c, block);
    return STATUS_OK;
  }
  return *owner ? take_from(c, block, owner, err) : take_free(c, block, err);
}

static double look_every_ms(const Claims *c) {
  const double ms = c->options.lease_s * 1e3 / 8;
  return ms < 500 ? ms : 500;
}

/* Takes a block that was not looked at yet. If there is none, looks at all open blocks from time to time. */
static Status try_next(Claims *c, size_t *block, bool *found, Error *err) {
  *found = false;
  for (; c->cursor < c->options.n_blocks && !*found; c->cursor++) {
    TRY(look(c, *block = c->cursor, err));
    *found = c->states[c->cursor] == BLOCK_MINE;
  }
  if (*found || (c->looked_ms > 0 && clock_ms() - c->looked_ms < look_every_ms(c))) return STATUS_OK;
  for (size_t i = 0; i < c->options.n_blocks && !*found; i++) {
    if (c->states[i] != BLOCK_OPEN) continue;
    TRY(look(c, *block = i, err));
    *found = c->states[i] == BLOCK_MINE;
  }
  if (!*found) c->looked_ms = clock_ms();
  return STATUS_OK;
}

/* After --lease seconds without a block, reports once which process this process waits for. */
static void note_waiting(Claims *c, bool waits) {
  char owner[OWNER_SIZE];
  size_t first = SIZE_MAX;
  for (size_t i = 0; i < c->options.n_blocks && waits; i++) {
    if (c->states[i] == BLOCK_OPEN && first == SIZE_MAX) first = i;
    waits = c->states[i] != BLOCK_MINE;
  }
  if (!waits || c->waiting_ms == 0) c->waiting_ms = waits ? clock_ms() : 0;
  if (!waits || c->has_said || clock_ms() - c->waiting_ms < c->options.lease_s * 1e3) return;
  c->has_said = true;
  claims_owner(c->options.directory, first, owner);
  progress_clear();
  print_note("--claim: waiting for %zu block%s that other processes have: block %zu is with %s", c->n_open,
             c->n_open == 1 ? "" : "s", first, *owner ? owner : "none any more");
}

Status claims_next(Claims *c, bool may_wait, size_t *block, bool *found, bool *at_end, Error *err) {
  for (;;) {
    if (*c->options.interrupted) return error_set(err, STATUS_INTERRUPTED, "interrupted");
    TRY(try_next(c, block, found, err));
    *at_end = !*found && c->n_open == 0;
    note_waiting(c, !*found && !*at_end);
    if (*found || *at_end || !may_wait) return STATUS_OK;
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  }
}

/* --- giving */

uint64_t claims_hash_start(size_t block) {
  char name[32];
  const int size = snprintf(name, sizeof name, "%08zu", block);
  return record_hash(RECORD_HASH_START, name, (size_t)size);
}

static Status place(const Path *path, uint64_t start, const void *bytes, size_t size, bool *placed,
                    Error *err) {
  OWNED(atomic_file_abort) AtomicFile file = {0};
  char hash[RESULT_HASH_SIZE + 1];
  snprintf(hash, sizeof hash, "%016" PRIx64, record_hash(start, bytes, size));
  TRY(atomic_file_open(path->text, &file, err));
  TRY(atomic_file_write(&file, bytes, size, err));
  TRY(atomic_file_write(&file, hash, RESULT_HASH_SIZE, err));
  return atomic_file_place(&file, placed, err);
}

Status claims_give(Claims *c, size_t block, const void *bytes, size_t size, bool *given, Error *err) {
  const char *root = c->options.directory;
  const Path mine = block_path(root, "taken/", block, c->owner), done = block_path(root, "done/", block, ""),
             taken = block_path(root, "taken/", block, "");
  *given = exists(&mine) || is_barred(&taken);
  if (*given) TRY(place(&done, claims_hash_start(block), bytes, size, given, err));
  let_go(c, block);
  set_state(c, block, *given ? BLOCK_DONE : BLOCK_OPEN);
  return STATUS_OK;
}

bool claims_is_done(const Claims *c, size_t block) {
  return c->states[block] == BLOCK_DONE;
}

Status claims_check_end(const Claims *c, Error *err) {
  size_t n = 0;
  for (size_t i = 0; i < c->options.n_blocks; i++) n += c->states[i] == BLOCK_BARRED;
  if (n == 0) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "--claim: %zu block%s no results: something else has %s", n,
                   n == 1 ? " has" : "s have", n == 1 ? "its name" : "their names");
}

void claims_close(Claims *c) {
  if (!c) return;
  for (size_t i = 0; c->states && i < c->options.n_blocks; i++)
    if (c->states[i] == BLOCK_MINE) let_go(c, i);
  if (*c->owner) {
    const Path own = own_directory(c);
    remove_directory(&own, c->owner);
  }
  life_end(c->life);
  watch_close(c->watch);
  free(c->states);
  free(c);
}
