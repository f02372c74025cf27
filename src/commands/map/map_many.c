/* map_many.c - answers the records of --map, one or many at once, from one queue to one writer. Each device
 * (a CPU, a GPU of --gpu, or a group of --split) has a lane: a thread and an assistant.
 *
 * Called by: map.c.
 * Always true: results are written in the order of the records, except with --unordered. So a killed process
 *              leaves the results of the first records.
 *              At most WINDOW records are begun and not written. None is begun while unwritten results have
 *              WINDOW_BYTES.
 *              Each record that is being answered has its own Mapping. Lanes share what is in Many, under its
 *              lock. Prompts and answers are made without the lock. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "commands/map/map_run.h"

enum { WINDOW = 4096, WAIT_MS = 20 };
static const size_t WINDOW_BYTES = (size_t)64 << 20;

typedef struct Many Many;
typedef struct Lane Lane;

/* A record that is begun and has no written result yet. EngineRequest.record of its requests points here. */
typedef struct {
  Record record;
  Buffer text;      /* the record's bytes */
  Lane *lane;       /* where it is answered; NULL: finished, or given back (give_back()) */
  Mapping *mapping; /* lent by the lane */
  bool finished;
  Buffer result;
  char *note; /* note for standard error, or NULL */
} InFlight;

/* A device's lane. It answers at most n_mappings records at once. */
struct Lane {
  Many *many;
  Assistant *assistant;
  Mapping *mappings; /* [n_mappings] */
  int n_mappings;
  Mapping **idle; /* [n_idle] */
  int n_idle;
  InFlight *asking; /* record with choices not yet asked of the engine; NULL: none */
  bool ended;
  bool is_lost; /* the process that kept the model ended between two records */

  pthread_t thread; /* thread of a lane other than the first */
  bool has_thread;
  AssistantFlags flags;
  SamplerSettings sampler;
  Assistant own;
};

struct Many {
  Map *map;
  Lane *lanes; /* [n_lanes] the first one answers in the caller's thread */
  int n_lanes;

  pthread_mutex_t lock; /* guards all below, and the map */
  pthread_cond_t changed;
  Status status; /* not STATUS_OK: the run ends with `err` */
  Error err;
  InFlight *records;    /* [WINDOW] a ring */
  size_t first, n;      /* index of the oldest entry in use; number of entries in use */
  size_t waiting_bytes; /* bytes of finished results in `records` */
  size_t n_returned;    /* records that were given back and wait for a lane */
  bool has_record;      /* map->record was read, and is not begun */
  bool stays;           /* map->record has a result already, which is to be kept */
  bool at_end;          /* all records were read */
};

/* --- results */

static void empty(InFlight *record) {
  buffer_release(&record->text);
  buffer_release(&record->result);
  free(record->note);
  *record = (InFlight){0};
}

static Status write_result(Many *many, InFlight *record, Error *err) {
  many->waiting_bytes -= record->result.size;
  many->map->n_waiting--;
  Status status = map_add_result(many->map, record->record.hash, &record->result, record->record.line,
                                 record->note ? record->note : "", err);
  empty(record);
  record->finished = true;
  return status;
}

/* Writes the finished results that wait for no earlier result; with --unordered, only `latest`. */
static Status write_results(Many *many, InFlight *latest, Error *err) {
  const bool unordered = many->map->mapping.job->map->unordered;
  if (unordered) TRY(write_result(many, latest, err));
  while (many->n > 0 && many->records[many->first].finished) {
    InFlight *record = &many->records[many->first];
    many->first = (many->first + 1) % WINDOW;
    many->n--;
    Status status = unordered ? STATUS_OK : write_result(many, record, err);
    empty(record);
    TRY(status);
  }
  return STATUS_OK;
}

/* The record needs no mapping from now on. */
static void leave_lane(InFlight *record) {
  Lane *lane = record->lane;
  lane->idle[lane->n_idle++] = record->mapping;
  record->lane = NULL;
}

static Status end_record(Many *many, InFlight *record, const char *note, Error *err) {
  if (*note) {
    TRY(NEW(record->note, strlen(note) + 1, "a note", err));
    strcpy(record->note, note);
  }
  leave_lane(record);
  buffer_release(&record->text);
  record->finished = true;
  many->map->n_running--;
  many->map->n_waiting++;
  many->waiting_bytes += record->result.size;
  TRY(write_results(many, record, err));
  map_show_progress(many->map, false);
  return STATUS_OK;
}

/* --- records */

/* Ends a record with this error as its result; the other records go on. */
static Status end_with_error(Many *many, InFlight *record, Error *err) {
  const Error error = *err;
  many->map->n_errors++;
  TRY(map_error(record->mapping, &record->record, &error, &record->result, err));
  return end_record(many, record, error.text, err);
}

static bool is_of_record(Status status) {
  return status == STATUS_USAGE || status == STATUS_MODEL || status == STATUS_CUT_SHORT;
}

static Status take_record(Many *many, InFlight **taken, Error *err) {
  const Record *record = &many->map->record;
  InFlight *copy = &many->records[(many->first + many->n++) % WINDOW];
  *copy = (InFlight){.record = *record};
  many->has_record = false;
  many->map->n_running++;
  map_show_progress(many->map, many->map->n_done == many->map->n_found);
  TRY(buffer_append(&copy->text, record->text, record->size, err));
  TRY(buffer_append(&copy->text, "", 1, err));
  copy->record.text = copy->text.data;
  *taken = copy;
  return STATUS_OK;
}

static InFlight *take_returned(Many *many) {
  InFlight *record = &many->records[many->first];
  while (record->lane || record->finished)
    record = record + 1 == many->records + WINDOW ? many->records : record + 1;
  many->n_returned--;
  return record;
}

/* Reads the next record, if it is there or may be waited for. While records may have earlier results
 * (--resume), reads none before all records in flight are written: earlier results are kept or replaced in
 * their order. */
static Status read_record(Many *many, bool may_wait, Error *err) {
  Map *map = many->map;
  if (many->at_end || (map->resuming && many->n > 0)) return STATUS_OK;
  TRY(map_read_record(map, may_wait, &many->has_record, &many->at_end, err));
  if (!many->has_record && !many->at_end) return STATUS_OK;
  if (map->resuming) TRY(map_look_for_result(map, many->has_record, &many->stays, err));
  return STATUS_OK;
}

/* Finds a record to answer, if there is one and room for its result; else *record is NULL. */
static Status find_record(Many *many, bool may_wait, InFlight **record, Error *err) {
  *record = many->n_returned > 0 ? take_returned(many) : NULL;
  while (!*record && many->n < WINDOW && many->waiting_bytes < WINDOW_BYTES) {
    if (!many->has_record) TRY(read_record(many, may_wait, err));
    if (!many->has_record) return STATUS_OK;
    if (!many->stays) return take_record(many, record, err);
    many->has_record = many->stays = false;
    TRY(map_keep_result(many->map, err));
  }
  return STATUS_OK;
}

/* Gives the lane a record, if it has a mapping for one; else *record is NULL. */
static Status lend_mapping(Lane *lane, bool may_wait, InFlight **record, Error *err) {
  *record = NULL;
  if (lane->n_idle == 0) return STATUS_OK;
  TRY(find_record(lane->many, may_wait, record, err));
  if (!*record) return STATUS_OK;
  (*record)->lane = lane;
  (*record)->mapping = lane->idle[--lane->n_idle];
  return STATUS_OK;
}

/* --- lanes */

/* True if another lane has records in flight. Such a lane gives them back if its device fails. */
static bool others_work(const Lane *lane) {
  const Many *many = lane->many;
  for (int i = 0; i < many->n_lanes; i++) {
    const Lane *other = &many->lanes[i];
    if (other != lane && !other->ended && other->n_idle < other->n_mappings) return true;
  }
  return false;
}

static bool others_live(const Lane *lane) {
  for (int i = 0; i < lane->many->n_lanes; i++)
    if (&lane->many->lanes[i] != lane && !lane->many->lanes[i].ended) return true;
  return false;
}

/* Waits until another lane signals a change, at most WAIT_MS. With several lanes, no lane waits in the
 * reader: each looks for input after this wait. */
static void wait_for_change(Many *many) {
  const struct timespec until = clock_after(CLOCK_REALTIME, WAIT_MS);
  pthread_cond_timedwait(&many->changed, &many->lock, &until);
}

/* Finds a record for the lane. A single lane waits in the reader; several wait for changes (WAIT_MS). */
static Status await_record(Lane *lane, bool may_wait, InFlight **record, Error *err) {
  Many *many = lane->many;
  for (;;) {
    if (many->status) return error_set(err, many->status, "%s", many->err.text);
    if (*many->map->mapping.assistant->interrupted) return error_set(err, STATUS_INTERRUPTED, "interrupted");
    TRY(lend_mapping(lane, may_wait && many->n_lanes == 1, record, err));
    if (*record || !may_wait || many->n_lanes == 1) return STATUS_OK;
    if (many->at_end && !others_work(lane)) return STATUS_OK;
    wait_for_change(many);
  }
}

/* enter() takes the lock for a part of a callback; leave() releases it and returns the part's status. A
 * failure of such a part ends the run. */
static void enter(Many *many) {
  pthread_mutex_lock(&many->lock);
}

static Status leave(Many *many, Status status, const Error *err) {
  if (status && !many->status) {
    many->status = status;
    many->err = *err;
  }
  pthread_cond_broadcast(&many->changed);
  pthread_mutex_unlock(&many->lock);
  return status;
}

/* Leaves a record to another lane, or to this one later. */
static void give_back(InFlight *record) {
  record->lane->many->n_returned++;
  leave_lane(record);
}

/* Finds a record to ask the lane's engine for. *record is NULL if there is none. */
static Status begin_record(Lane *lane, bool may_wait, InFlight **record, Error *err) {
  enter(lane->many);
  Status status = await_record(lane, may_wait, record, err);
  lane->is_lost = status == STATUS_OK && *record && may_wait && assistant_is_lost(lane->assistant);
  if (lane->is_lost) give_back(*record);
  if (lane->is_lost) *record = NULL;
  return leave(lane->many, status, err);
}

/* Ends a record whose answer failed with `status`: the error is the record's, or the run's. */
static Status fail(Lane *lane, InFlight *record, Status status, Error *err) {
  enter(lane->many);
  if (is_of_record(status)) status = end_with_error(lane->many, record, err);
  return leave(lane->many, status, err);
}

static Status next(void *user, bool may_wait, EngineRequest *request, bool *found, Error *err) {
  Lane *lane = user;
  InFlight *record = lane->asking;
  *found = record != NULL;
  if (record) map_ask_more(record->mapping, request);
  while (!*found) {
    TRY(begin_record(lane, may_wait, &record, err));
    if (!record) return STATUS_OK;
    Status status = map_ask(record->mapping, &record->record, request, err);
    *found = status == STATUS_OK;
    if (status) TRY(fail(lane, record, status, err));
  }
  lane->asking = record->mapping->n_asked < record->mapping->choices.n ? record : NULL;
  request->record = record;
  return STATUS_OK;
}

/* Moves a mapping's counts to those of the run. */
static void count(Mapping *all, Mapping *own) {
  all->n_answered += own->n_answered;
  all->n_cut += own->n_cut;
  all->n_incomplete += own->n_incomplete;
  all->n_prompt += own->n_prompt;
  all->n_reused += own->n_reused;
  all->n_generated += own->n_generated;
  own->n_answered = own->n_cut = own->n_incomplete = 0;
  own->n_prompt = own->n_reused = own->n_generated = 0;
}

/* Adds a reply's counts to the run. Ends the record if record->result is its whole result (`complete`), or if
 * the failure is the record's alone. */
static Status take_reply(Lane *lane, InFlight *record, Status status, bool complete, Error *err) {
  Many *many = lane->many;
  count(&many->map->mapping, record->mapping);
  TRY(assistant_check_weights(lane->assistant, err)); /* changed weights may explain the failure, too */
  if (is_of_record(status)) return end_with_error(many, record, err);
  TRY(status);
  if (!complete) return STATUS_OK;
  char note[128];
  map_describe_cut(many->map, &record->mapping->result, note);
  return end_record(many, record, note, err);
}

static Status done(void *user, const EngineRequest *request, const EngineResult *result, Error *err) {
  Lane *lane = user;
  InFlight *record = request->record;
  bool complete;
  Status status =
      map_reply(record->mapping, &record->record, request, result, &complete, &record->result, err);
  enter(lane->many);
  return leave(lane->many, take_reply(lane, record, status, complete, err), err);
}

static Status open_mappings(Lane *lane, Error *err) {
  Assistant *a = lane->assistant;
  const int n = a->batch_options.n_sequences;
  TRY(NEW(lane->mappings, (size_t)n, "records in flight", err));
  TRY(NEW(lane->idle, (size_t)n, "records in flight", err));
  for (int i = 0; i < n; i++) lane->idle[i] = &lane->mappings[i];
  enter(lane->many); /* other lanes look at the numbers */
  lane->n_mappings = lane->n_idle = n;
  leave(lane->many, STATUS_OK, NULL);
  for (int i = 0; i < n; i++) TRY(map_begin_another(&lane->many->map->mapping, a, &lane->mappings[i], err));
  return STATUS_OK;
}

static Status answer(Lane *lane, Error *err) {
  TRY(open_mappings(lane, err));
  const EngineJob job = {
      .next = next, .done = done, .interrupted = lane->assistant->interrupted, .user = lane};
  /* A process that keeps the model takes all choices of a record at once. */
  const size_t n_choices = lane->many->map->mapping.choices.n;
  const int n_at_once = lane->n_mappings * (n_choices ? (int)n_choices : 1);
  do {
    TRY(assistant_run(lane->assistant, n_at_once, &job, err));
    if (lane->is_lost) TRY(assistant_renew(lane->assistant, 0, err));
  } while (lane->is_lost);
  return STATUS_OK;
}

static void give_all_back(Lane *lane) {
  Many *many = lane->many;
  for (size_t i = 0; i < many->n; i++) {
    InFlight *record = &many->records[(many->first + i) % WINDOW];
    if (record->lane == lane) give_back(record);
  }
}

/* Ends a lane. If only its device has failed, and the run goes on, other devices answer its records. */
static void end_lane(Lane *lane, Status status, const Error *reason) {
  Many *many = lane->many;
  Error err = *reason;
  const bool one = lane->assistant->device.options.split <= 1;
  enter(many);
  lane->ended = true;
  const bool is_device = status && status != STATUS_INTERRUPTED && !many->status && others_live(lane);
  if (is_device) {
    const int n = lane->n_mappings - lane->n_idle;
    give_all_back(lane);
    status = STATUS_OK;
    map_say(many->map, "%s fail%s, and leave%s %d records to the others: %s",
            device_gpus_text(&lane->assistant->device).text, one ? "s" : "", one ? "s" : "", n, reason->text);
  }
  leave(many, status, &err);
}

static void release_lane(Lane *lane) {
  for (int i = 0; lane->mappings && i < lane->n_mappings; i++) mapping_release_another(&lane->mappings[i]);
  free(lane->mappings);
  free(lane->idle);
  lane->mappings = NULL;
  lane->idle = NULL;
  if (lane->assistant == &lane->own) assistant_release(&lane->own);
}

/* Opens the assistant of another GPU in the same way as the first GPU's. */
static Status open_another(Lane *lane, Error *err) {
  const Map *map = lane->many->map;
  TRY(assistant_open(&lane->flags, &lane->own, err));
  if (map->mapping.choices.n) choices_prepare(&lane->own);
  lane->own.device.invariant = map->mapping.assistant->device.invariant;
  lane->own.sampler = lane->sampler;
  return assistant_start_many(&lane->own, map->mapping.job->map->parallel, err);
}

static void *run_another(void *given) {
  Lane *lane = given;
  Error err = {{0}};
  Status status = open_another(lane, &err);
  if (status == STATUS_OK) status = answer(lane, &err);
  end_lane(lane, status, &err);
  release_lane(lane); /* must be in this thread, whose current device is the lane's */
  return NULL;
}

/* Starts the threads of all lanes but the first. They block all signals except SIGBUS and SIGSEGV, so the
 * caller's thread gets the blocked ones. */
static Status start_threads(Many *many, Error *err) {
  sigset_t all, before;
  int failed = 0;
  sigfillset(&all);
  sigdelset(&all, SIGBUS);
  sigdelset(&all, SIGSEGV);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  for (int i = 1; i < many->n_lanes && !failed; i++) {
    failed = pthread_create(&many->lanes[i].thread, NULL, run_another, &many->lanes[i]);
    many->lanes[i].has_thread = !failed;
    many->lanes[i].ended = failed;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return failed ? error_set(err, STATUS_FAILED, "cannot start a thread: %s", strerror(failed)) : STATUS_OK;
}

/* --- all */

static Status open_lanes(Many *many, Error *err) {
  const Assistant *first = many->map->mapping.assistant;
  const int n_gpus = first->device.n_gpus;
  TRY(NEW(many->lanes, (size_t)n_gpus, "GPUs", err));
  TRY(NEW(many->records, WINDOW, "records in flight", err));
  many->n_lanes = n_gpus;
  for (int i = 0; i < n_gpus; i++) {
    Lane *lane = &many->lanes[i];
    lane->many = many;
    lane->assistant = i == 0 ? many->map->mapping.assistant : &lane->own;
    if (i == 0) continue;
    lane->flags = *first->flags;
    lane->flags.device.nth = i;
    lane->flags.device.threads = (first->device.options.n_threads - 1) / n_gpus + 1;
    lane->flags.answer.context = first->session_options.n_ctx;
    lane->sampler = first->sampler;
  }
  return STATUS_OK;
}

static void close_many(Many *many) {
  for (int i = 0; i < many->n_lanes; i++) release_lane(&many->lanes[i]);
  for (size_t i = 0; many->records && i < WINDOW; i++) empty(&many->records[i]);
  free(many->lanes);
  free(many->records);
  pthread_mutex_destroy(&many->lock);
  pthread_cond_destroy(&many->changed);
}

static void run_lanes(Many *many, Error *err) {
  Lane *first = many->lanes;
  Status status = start_threads(many, err);
  if (status == STATUS_OK) status = answer(first, err);
  end_lane(first, status, err);
  for (int i = 1; i < many->n_lanes; i++)
    if (many->lanes[i].has_thread) pthread_join(many->lanes[i].thread, NULL);
}

Status map_many(Map *map, bool has_record, Error *err) {
  Many many = {.map = map,
               .has_record = has_record,
               .lock = PTHREAD_MUTEX_INITIALIZER,
               .changed = PTHREAD_COND_INITIALIZER};
  Error other; /* error of changed weights, which may explain the failure */
  Status status = open_lanes(&many, err);
  if (status == STATUS_OK) {
    run_lanes(&many, err);
    status = many.status;
    *err = many.err;
  }
  if (status == STATUS_FAILED && assistant_check_weights(map->mapping.assistant, &other)) *err = other;
  close_many(&many);
  return status;
}
