/* join.c - see join.h. Called by: device.c, commands.c. Always true: only rank 0 writes to standard output.
 * Another process writes at most one line to standard error, if rank 0 cannot write it. */
#include "commands/ranks/join.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/hash64.h"
#include "base/private_file.h"
#include "commands/auk_directory.h"
#include "commands/common.h"
#include "commands/ranks/job.h"
#include "model/identity.h"

Status ranks_find(int *rank, int *n, Error *err) {
  size_t own, all;
  TRY(job_find("--split auto", "--split N shares a model among N GPUs of this machine", MAX_SPLIT, &own, &all,
               err));
  *rank = (int)own;
  *n = (int)all;
  return STATUS_OK;
}

#if AUK_CUDA
#include <cuda_runtime_api.h>

#include "cuda/one/gpu.h"
#include "cuda/several/calls.h"

enum { FIRST_PORT = 20000, PORTS = 12000, PORTS_TRIED = 4, TIMEOUT_S = 30, LONGEST_S = 3600 };

static Status number_of(const char *name, int otherwise, int least, int most, int *value, Error *err) {
  const char *text = getenv(name);
  char *end;
  *value = otherwise;
  if (!text || !*text) return STATUS_OK;
  const long number = strtol(text, &end, 10);
  if (*end || number < least || number > most)
    return error_set(err, STATUS_USAGE, "%s is \"%.32s\", expected a number from %d to %d", name, text, least,
                     most);
  *value = (int)number;
  return STATUS_OK;
}

/* --- the key */

static Status make_key(const char *path, Error *err) {
  uint8_t key[SHA256_BYTES];
  const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return errno == EEXIST ? STATUS_OK : system_error(path, "make the file", err);
  const bool written =
      getrandom(key, sizeof key, 0) == sizeof key && write(file, key, sizeof key) == sizeof key;
  if (close(file) == 0 && written) return STATUS_OK;
  unlink(path);
  return system_error(path, "write", err);
}

/* Reads the user's key. Waits up to timeout_s for rank 0, which may still be making it. */
static Status read_key(const char *path, int timeout_s, uint8_t key[SHA256_BYTES], Error *err) {
  static const struct timespec pause = {.tv_nsec = 50000000};
  for (int i = 0; i <= timeout_s * 20; i++) {
    int file = -1;
    uint64_t size = 0;
    TRY(private_file_open(path, &file, &size, err));
    const Status status = file >= 0 && size >= SHA256_BYTES
                              ? private_file_read(file, path, 0, key, SHA256_BYTES, err)
                              : STATUS_OK;
    if (file >= 0) close(file);
    if (file >= 0 && size >= SHA256_BYTES) return status;
    nanosleep(&pause, NULL);
  }
  return error_set(
      err, STATUS_FAILED,
      "--split auto: %s is not there, the key of this user's processes: rank 0 has made it in another "
      "home directory, or not started; AUK_RANKS_KEY=TEXT for all of them goes without it",
      path);
}

static Status find_key(int rank, int timeout_s, uint8_t key[SHA256_BYTES], Error *err) {
  const char *given = getenv("AUK_RANKS_KEY");
  OWNED(mem_release) char *directory = NULL, *path = NULL;
  if (given && *given) {
    sha256(given, strlen(given), key);
    return STATUS_OK;
  }
  TRY(auk_directory("XDG_CONFIG_HOME", ".config", &directory, err));
  if (!directory)
    return error_set(err, STATUS_FAILED, "--split auto: no home directory for a key: set AUK_RANKS_KEY=TEXT");
  if (rank == 0) TRY(private_directory(directory, err));
  TRY(auk_path("XDG_CONFIG_HOME", ".config", "ranks-key", &path, err));
  if (rank == 0) TRY(make_key(path, err));
  return read_key(path, timeout_s, key, err);
}

/* --- joining */

/* Ends the process at once (RanksOptions.end); said: descriptor that the reason is written to. */
static void end(int said, Status status, const char *reason) {
  if (reason) dprintf(said, "auk: %s\n", reason);
  _exit((int)status);
}

static Status join(const LinkOptions *link, struct Ranks **ranks, Error *err) {
  const RanksOptions options = {.link = *link, .end = end, .said = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)};
  TRY(ranks_join(&options, ranks, err));
  if (link->rank == 0) return STATUS_OK;
  static const int ignored[] = {SIGINT, SIGTERM, SIGHUP}; /* rank 0 gets them, too, and ends all processes */
  for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int i = 0; i <= STDERR_FILENO && nothing >= 0; i++) dup2(nothing, i);
  return STATUS_OK;
}

/* Chooses this process's GPU: that of --gpu on the command line, else the local rank modulo the number of
 * visible GPUs. If the local rank is not known, the rank stands for it. */
static void choose_gpu(const DeviceFlags *flags, BackendOptions *options) {
  int n_visible = 0;
  const int local = job_local_rank();
  const bool named = flags->gpu && !flags->gpu_is_usual;
  if (cudaGetDeviceCount(&n_visible) != cudaSuccess || n_visible < 1) n_visible = 1;
  if (!named) options->gpu = (local >= 0 ? local : options->ranks_rank) % n_visible;
  options->gpus[0] = options->gpu;
}

Status ranks_connect(const DeviceFlags *flags, BackendOptions *options, Error *err) {
  OWNED(buffer_release) Buffer name = {0}, host = {0};
  LinkOptions link = {.here = job_needs_no_network(), .interrupted = interrupt_came};
  const char *fixed = job_is_of_torchrun() ? NULL : getenv("MASTER_PORT");
  int port;
  TRY(ranks_find(&link.rank, &link.n, err));
  if (link.n < 2)
    return error_set(err, STATUS_USAGE, "--split auto: this job has one process, expected 2 to %d",
                     MAX_SPLIT);
  TRY(number_of("MASTER_PORT", 0, 1, 65535, &port, err));
  TRY(number_of("AUK_RANKS_TIMEOUT", TIMEOUT_S, 1, LONGEST_S, &link.timeout_s, err));
  TRY(find_key(link.rank, link.timeout_s, link.key, err));
  TRY(job_name(&name, err));
  TRY(buffer_append(&name, "", 1, err));
  TRY(job_first_host(&host, err));
  TRY(buffer_append(&host, "", 1, err));
  link.port = fixed && *fixed ? port : FIRST_PORT + (int)(hash64(name.data, name.size, 0) % PORTS);
  link.n_ports = fixed && *fixed ? 1 : PORTS_TRIED;
  link.job = name.data;
  link.host = host.data;
  options->split = link.n;
  options->ranks_rank = link.rank;
  options->ranks_free_bytes = SIZE_MAX;
  TRY(join(&link, &options->ranks, err));
  choose_gpu(flags, options);
  return STATUS_OK;
}

/* --- comparing */

static Status add_file(Buffer *lines, const char *what, const char *path, Error *err) {
  MappedFile file;
  ContentHash hash = {0};
  if (path) {
    TRY(file_map(path, STATUS_FAILED, &file, err));
    const Status status = content_of_bytes(file.data, file.size, 1, NULL, &hash, err);
    file_unmap(&file);
    TRY(status);
  }
  return buffer_printf(lines, err, "%s: %016llx\n", what, (unsigned long long)hash.a);
}

static Status list_facts(const Device *device, const Model *model, Buffer *lines, Error *err) {
  const DeviceFlags *d = device->flags;
  ContentHash weights;
  TRY(add_file(lines, "program (a build of auk)", "/proc/self/exe", err));
  TRY(buffer_printf(lines, err,
                    "flags: --act %d --kernel %s --no-graphs %d --decode-step %d --invariant %d\n", d->act,
                    d->kernel ? d->kernel : "-", d->no_graphs, d->decode_step, d->invariant));
  TRY(buffer_printf(lines, err, "config.json: %016llx, rope theta %a, epsilon %a\n",
                    (unsigned long long)model->config.content.a, model->config.rope.theta,
                    model->config.norm_eps));
  TRY(add_file(lines, "tokenizer", model->tokenizer_path, err));
  TRY(model_sample(model, &weights, err));
  TRY(buffer_printf(lines, err, "weights: %016llx\n", (unsigned long long)weights.a));
  return buffer_append(lines, "", 1, err);
}

Status ranks_compare(Device *device, const Model *model, Error *err) {
  RankFacts facts = {0};
  size_t free_bytes, all_bytes;
  OWNED(buffer_release) Buffer lines = {0};
  if (!device->options.ranks || device->compared) return STATUS_OK;
  device->compared = true;
  TRY(device_bytes(&free_bytes, &all_bytes, err));
  TRY(device_identity(device->options.gpu, facts.gpu, err));
  facts.free_bytes = free_bytes;
  TRY(list_facts(device, model, &lines, err));
  return ranks_agree(device->options.ranks, &facts, lines.data, &device->options.ranks_free_bytes, err);
}

/* --- following */

static Status load(const ModelFlags *flags, bool dummy, Device *device, Error *err) {
  ModelPlace place = {0};
  Model *model = NULL;
  Status status = model_place_find(flags, &place, err);
  if (!status)
    status = dummy ? model_open_dummy(place.path, &model, err)
                   : model_place_open_known(&place, flags, &model, err);
  if (!status) status = device_fit(device, model, err);
  if (!status) status = device_load(device, model, err);
  if (!status) status = calls_repeat(device->options.ranks, device->backend, device->loaded, err);
  return status; /* what is open closes with the process */
}

Status ranks_follow(const ModelFlags *model, const DeviceFlags *flags, bool dummy, Error *err) {
  Device device = {0};
  Status status = device_choose(flags, &device, err);
  if (!device.options.ranks) return status;
  if (!status) status = load(model, dummy, &device, err);
  ranks_report(device.options.ranks, status, err);
  return status;
}

#else

Status ranks_connect(const DeviceFlags *flags, BackendOptions *options, Error *err) {
  (void)flags, (void)options;
  return error_set(err, STATUS_FAILED, "--split auto: this build has no CUDA");
}

Status ranks_compare(Device *device, const Model *model, Error *err) {
  (void)device, (void)model, (void)err;
  return STATUS_OK;
}

Status ranks_follow(const ModelFlags *model, const DeviceFlags *flags, bool dummy, Error *err) {
  (void)model, (void)flags, (void)dummy;
  return error_set(err, STATUS_FAILED, "--split auto: this build has no CUDA");
}

#endif
