/* device.c - see device.h. */
#include "commands/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/output.h"
#include "base/size_text.h"
#include "commands/common.h"
#include "commands/ranks/join.h"
#include "commands/threads.h"
#include "cuda/one/table.h"
#include "cuda/several/several.h"
#include "engine/session.h"

#if AUK_CUDA
#include <cuda_runtime_api.h>

#include "cuda/one/gpu.h"
#include "cuda/several/ranks.h"
#endif

/* --- the choice */

static Status check_gpus(const char *name, const char *text, Error *err);
static Status check_memory(const char *name, const char *text, Error *err) {
  size_t bytes;
  return size_parse(name, text, 1, &bytes, err);
}

const Flag device_flags[] = {
    FLAG_INT("-t, --threads", "N", DeviceFlags, threads, 0, 4096,
             "CPU threads (default 0: all cores this process may use)"),
    FLAG_CHOICE("--kv", KV_WORDS, DeviceFlags, kv, "type of the KV cache (default f16); q8: 8 bits"),
    FLAG_CHOICE("--device", DEVICE_WORDS, DeviceFlags, device, "where to compute (default auto)"),
    FLAG_OF(KIND_STRING, const char *, "--gpu", "N", DeviceFlags, gpu,
            "which GPU (default 0); several, 0,1,2 or all: for --split, or to answer the records of --map",
            .weak = MEMBER_OF_TYPE(DeviceFlags, gpu_is_usual, bool), .check = check_gpus),
    FLAG_STRING(
        "--split", "N", DeviceFlags, split,
        "share each layer of the model among N GPUs (2 to 8): those that --gpu names, or the first N; auto: "
        "among the processes that srun, mpirun or torchrun has started, on any machines, a GPU each"),
    FLAG_CHOICE("--split-by", SPLIT_BY_WORDS, DeviceFlags, split_by,
                "with --split: how the GPUs all-reduce, through each other's memory or with NCCL (default "
                "auto: NCCL where they cannot reach each other's memory)"),
    FLAG_OF(KIND_STRING, const char *, "--gpu-memory", "SIZE", DeviceFlags, gpu_memory,
            "GPU: take at most so much of its memory, such as 12G or 800M (default: what is free); weights "
            "that do not fit stay in the host's memory",
            .weak = MEMBER_OF_TYPE(DeviceFlags, gpu_memory_is_usual, bool), .check = check_memory),
    FLAG_CHOICE("--act", ACT_WORDS, DeviceFlags, act,
                "GPU: type of activations in matmuls with quantised weights; int8 is less exact; on "
                "Hopper, if copies of the weights in bytes fit beside them, it reads long prompts and "
                "answers many at once faster than f16, and one slower"),
    FLAG_STRING("--kernel", "NAME", DeviceFlags, kernel,
                "GPU: this kernel for every quantised layer (auk bench --kernels lists them)"),
    FLAG_SWITCH("--no-graphs", DeviceFlags, no_graphs, "GPU: launch every kernel by itself, for comparison"),
    FLAG_CHOICE("--decode-step", DECODE_STEP_WORDS, DeviceFlags, decode_step,
                "GPU: computes a token with a kernel for each operation, or with one cluster kernel for all "
                "(default auto: cluster on Hopper, for models that it can compute)"),
};
const Flag invariant_flags[] = {
    FLAG_SWITCH(
        "--invariant", DeviceFlags, invariant,
        "the same answer, bit for bit, whatever runs beside it: the default on a CPU, and of --map on "
        "Hopper GPUs; a GPU is slower then; not with --draft or --cache"),
};

static Status check_invariant(const Device *device, const Model *model, Error *err) {
  const Backend *backend = device->backend;
  return backend->check_invariant ? backend->check_invariant(model, &device->options, err) : STATUS_OK;
}

/* Refuses, rather than ignores, flags that only a GPU obeys. --gpu is allowed if the device is chosen
 * automatically. */
static Status check_on_cpu(const DeviceFlags *values, bool automatic, Error *err) {
  const char *flag = values->act == 1                                     ? "--act int8"
                     : values->kernel                                     ? "--kernel"
                     : values->no_graphs                                  ? "--no-graphs"
                     : values->decode_step                                ? "--decode-step"
                     : values->gpu_memory && !values->gpu_memory_is_usual ? "--gpu-memory"
                     : device_split(values) != 1                          ? "--split"
                     : values->gpu && !automatic && !values->gpu_is_usual ? "--gpu"
                                                                          : NULL;
  if (!flag) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s is for GPUs, but this would compute on the CPU", flag);
}

enum { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };

/* --- which GPUs */

enum { GPUS_MAX = 64, HIGHEST_GPU = 1023 };
typedef struct {
  int numbers[GPUS_MAX], count;
} GpuList;

static Status refuse_gpus(const char *all, const char *expected, Error *err) {
  return error_set(err, STATUS_USAGE, "--gpu is \"%s\", expected %s", all, expected);
}

static Status add_gpu(const char *all, const char *text, size_t size, GpuList *gpus, Error *err) {
  const bool is_number = size > 0 && size < 5 && strspn(text, "0123456789") >= size;
  const int number = is_number ? atoi(text) : HIGHEST_GPU + 1;
  if (number > HIGHEST_GPU)
    return refuse_gpus(all, "a number from 0 to 1023, several with commas between them, or all", err);
  for (int i = 0; i < gpus->count; i++)
    if (gpus->numbers[i] == number) return refuse_gpus(all, "each GPU once", err);
  if (gpus->count == GPUS_MAX) return refuse_gpus(all, "at most 64 GPUs", err);
  gpus->numbers[gpus->count++] = number;
  return STATUS_OK;
}

static Status list_gpus(const char *all, GpuList *gpus, Error *err) {
  const char *at = all;
  for (const char *end; (end = strchr(at, ',')); at = end + 1)
    TRY(add_gpu(all, at, (size_t)(end - at), gpus, err));
  return add_gpu(all, at, strlen(at), gpus, err);
}

static Status check_gpus(const char *name, const char *text, Error *err) {
  GpuList gpus = {.count = 0};
  return strcmp(text, "all") == 0 ? STATUS_OK : list_gpus(text, &gpus, err);
}

/* Lists the visible GPUs, for "all". Without any it lists GPU 0, whose absence is then reported. */
static void take_all(GpuList *gpus) {
  int n = 0;
#if AUK_CUDA
  if (cudaGetDeviceCount(&n) != cudaSuccess) n = 0;
#endif
  gpus->numbers[0] = 0;
  gpus->count = n < 1 ? 1 : n > GPUS_MAX ? GPUS_MAX : n;
  for (int i = 1; i < gpus->count; i++) gpus->numbers[i] = i;
}

/* Chooses the GPUs that share the model: those that --gpu names, or the first n; with --split auto (n 0) this
 * process's one GPU. With --map, --gpu can name several groups of n GPUs, each with the whole model. */
static Status choose_shared(const DeviceFlags *values, GpuList *gpus, Error *err) {
  /* "all" where at most one GPU is visible */
  const bool all = values->gpu && strcmp(values->gpu, "all") == 0 && gpus->count == 1;
  const bool named = values->gpu && !values->gpu_is_usual && !all;
  const int n = device_split(values);
  if (n > 1 && named && values->several_gpus && gpus->count % n != 0)
    return error_set(
        err, STATUS_USAGE,
        "--split %d shares a model among %d GPUs, and --gpu %s names %d, which are no groups of %d", n, n,
        values->gpu, gpus->count, n);
  if (n > 1 && named && !values->several_gpus && gpus->count != n)
    return error_set(err, STATUS_USAGE, "--split %d shares a model among %d GPUs, and --gpu %s names %d", n,
                     n, values->gpu, gpus->count);
  if (n == 0 && named && gpus->count != 1)
    return error_set(err, STATUS_USAGE, "--split auto: each process has one GPU, and --gpu %s names %d",
                     values->gpu, gpus->count);
  if (n == 0 && values->split_by == SUMS_MEMORY)
    return error_set(err, STATUS_USAGE, "--split auto: processes add up by NCCL, not in each other's memory");
  if (values->gpu_memory && !values->gpu_memory_is_usual)
    return error_set(err, STATUS_USAGE, "--split %s: --gpu-memory is for one GPU", values->split);
  if (named && n > 0) return STATUS_OK;
  for (int i = 0; i < n; i++) gpus->numbers[i] = i;
  gpus->count = n > 0 ? n : 1;
  return STATUS_OK;
}

int device_split(const DeviceFlags *values) {
  if (!values->split) return 1;
  if (strcmp(values->split, "auto") == 0) return 0;
  return values->split[0] > '1' ? values->split[0] - '0' : 1;
}

static Status check_split(const DeviceFlags *values, Error *err) {
  const char *text = values->split;
  if (!text || strcmp(text, "auto") == 0 || (strlen(text) == 1 && *text >= '1' && *text <= '0' + MAX_SPLIT))
    return STATUS_OK;
  return error_set(err, STATUS_USAGE, "--split is \"%s\", expected a number from 1 to %d, or auto", text,
                   MAX_SPLIT);
}

static Status read_gpus(const DeviceFlags *values, GpuList *gpus, Error *err) {
  *gpus = (GpuList){.count = 0};
  TRY(check_split(values, err));
  const char *text = values->gpu ? values->gpu : "0";
  if (strcmp(text, "all") == 0)
    take_all(gpus);
  else
    TRY(list_gpus(text, gpus, err));
  if (device_split(values) != 1) return choose_shared(values, gpus, err);
  if (values->split_by != SUMS_AUTO)
    return error_set(err, STATUS_USAGE, "--split-by needs --split with two or more GPUs");
  if (values->gpu_is_usual && !values->several_gpus) gpus->count = 1;
  if (gpus->count == 1 || values->several_gpus) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "--gpu %s: only many records (--map) are answered by several GPUs",
                   values->gpu);
}

bool device_prefers_invariant(const Device *device, const Model *model) {
  const DeviceFlags *flags = device->flags;
  const Backend *backend = device->backend;
  const bool excluded = flags->act || flags->kernel || flags->decode_step ||
                        device_split(flags) != 1; /* the flags of INVARIANT_FLAG_RULES */
  Error unused;
  if (excluded || !backend->memory || !backend->prefers_invariant) return false;
  GpuList gpus;
  if (read_gpus(flags, &gpus, &unused)) return false;
  bool prefers = true; /* true if each GPU that is to answer records prefers `invariant` */
  for (int i = 0; i < gpus.count && prefers; i++) {
    Device one = *device;
    one.options.gpu = gpus.numbers[i];
    prefers =
        check_invariant(&one, model, &unused) == STATUS_OK && backend->prefers_invariant(model, &one.options);
  }
  return prefers;
}

#if AUK_CUDA
/* Makes the device's GPU the current one, and sets n_gpus. The first device (nth 0) checks all GPUs of the
 * list. */
static Status use_gpus(Device *device, const GpuList *gpus, Error *err) {
  int n_visible = 0;
  const bool counted = cudaGetDeviceCount(&n_visible) == cudaSuccess && n_visible > 0;
  const int split = device_split(device->flags);
  if (split > 1 && counted && n_visible < split)
    return error_set(err, STATUS_FAILED, "--split %d: only %d GPU%s visible", split, n_visible,
                     n_visible == 1 ? " is" : "s are");
  for (int i = gpus->count - 1; i > 0 && device->flags->nth == 0; i--) TRY(device_use(gpus->numbers[i], err));
  device->n_gpus = split > 1 ? gpus->count / split : split == 0 ? 1 : gpus->count;
  return device_use(device->options.gpu, err);
}
#endif

/* Reads the flags and refuses those that are wrong. *limit: bytes of --gpu-memory, 0: not given. */
static Status read_flags(const DeviceFlags *values, GpuList *gpus, size_t *limit, Error *err) {
  *limit = 0;
  TRY(read_gpus(values, gpus, err));
  if (values->gpu_memory) TRY(size_parse("--gpu-memory", values->gpu_memory, 1, limit, err));
#if AUK_CUDA
  if (values->device == DEVICE_AUTO) return STATUS_OK;
  return values->device == DEVICE_CPU ? check_on_cpu(values, false, err) : STATUS_OK;
#else
  if (values->device != DEVICE_CUDA) return check_on_cpu(values, values->device == DEVICE_AUTO, err);
  return error_set(err, STATUS_FAILED, "--device cuda: this build has no CUDA");
#endif
}

Status device_check_flags(const DeviceFlags *values, Error *err) {
  GpuList gpus;
  size_t limit;
  return read_flags(values, &gpus, &limit, err);
}

/* The number of this process's GPUs that share a model. */
static int share_of(const DeviceFlags *values) {
  const int split = device_split(values);
  return split > 1 ? split : 1;
}

Status device_choose(const DeviceFlags *values, Device *device, Error *err) {
  GpuList gpus;
  size_t limit;
  int n_threads;
  TRY(read_flags(values, &gpus, &limit, err));
  TRY(threads_choose(values->threads, &n_threads, err));
  *device = (Device){.flags = values,
                     .backend = &cpu_backend,
                     .n_gpus = 1,
                     .memory_limit = limit,
                     .invariant = values->invariant,
                     .options = {.n_threads = n_threads,
                                 .gpu = gpus.numbers[values->nth * share_of(values)],
                                 .int8_activations = values->act == 1,
                                 .no_graphs = values->no_graphs,
                                 .decode_step = (DecodeStep)values->decode_step,
                                 .kernel = values->kernel}};
  if (device_split(values) != 1) {
    device->memory_limit = 0;
    device->options.split = device_split(values);
    device->options.sums = (SplitSums)values->split_by;
    for (int i = 0; i < share_of(values); i++)
      device->options.gpus[i] = gpus.numbers[values->nth * share_of(values) + i];
    if (device_split(values) == 0) TRY(ranks_connect(values, &device->options, err));
  }
#if AUK_CUDA
  Error reason = {{0}};
  const Backend *cuda = device->options.split > 1 ? &cuda_several_backend : &cuda_backend;
  if (values->device == DEVICE_CPU) return STATUS_OK;
  if (values->device == DEVICE_CUDA) {
    device->backend = cuda;
    return use_gpus(device, &gpus, err);
  }
  if (use_gpus(device, &gpus, &reason) == STATUS_OK) {
    device->backend = cuda;
    return STATUS_OK;
  }
  if (gpus.count > 1 || device->options.split > 1) return error_set(err, STATUS_FAILED, "%s", reason.text);
  fprintf(stderr, "auk: %s: computing on the CPU\n", reason.text);
  return check_on_cpu(values, true, err);
#else
  const bool named = values->gpu && !values->gpu_is_usual;
  if (named && gpus.count > 1)
    return error_set(err, STATUS_FAILED, "--gpu %s: this build has no CUDA", values->gpu);
  if (values->device == DEVICE_AUTO && (named || access("/dev/nvidiactl", F_OK) == 0))
    fprintf(stderr, "auk: %s%s%sthis build has no CUDA: computing on the CPU\n", named ? "--gpu " : "",
            named ? values->gpu : "", named ? ": " : "");
  return STATUS_OK;
#endif
}

Status device_fit(Device *device, const Model *model, Error *err) {
  if (device->options.split > 1) {
    TRY(model_check_split(model, device->options.split, err));
    TRY(config_part(model, 0, device->options.split, &device->part, err));
  }
  if (!device->backend->check_model) return STATUS_OK;
  Error reason = {{0}};
  Status status = device->backend->check_model(model, &reason);
  if (status == STATUS_OK) TRY(ranks_compare(device, model, err));
  if (status == STATUS_OK) return device->invariant ? check_invariant(device, model, err) : STATUS_OK;
  if (device->flags->device != DEVICE_AUTO) return error_set(err, status, "%s: --device cpu", reason.text);
  fprintf(stderr, "auk: %s: computing on the CPU\n", reason.text);
  device->backend = &cpu_backend;
  device->n_gpus = 1;
  return check_on_cpu(device->flags, true, err);
}

const char *device_kinds(void) {
#if AUK_CUDA
  return "CUDA and CPU";
#else
  return "CPU only";
#endif
}

bool device_is_several(const DeviceFlags *values) {
  if (!values->gpu || strcmp(values->gpu, "all") == 0) return values->gpu && device_split(values) == 1;
  int n = 1;
  for (const char *at = values->gpu; *at; at++) n += *at == ',';
  return n > share_of(values);
}

GpusText device_gpus_text(const Device *device) {
  const BackendOptions *options = &device->options;
  GpusText text;
  int used = snprintf(text.text, sizeof text.text, "GPU%s %d", options->split > 1 ? "s" : "", options->gpu);
  for (int i = 1; i < options->split; i++)
    used += snprintf(text.text + used, sizeof text.text - (size_t)used, "%s%d",
                     i + 1 < options->split ? ", " : " and ", options->gpus[i]);
  return text;
}

Status device_elsewhere(const DeviceFlags *values, const char *backend, Device *device, Error *err) {
  const Backend *known[] = {
    &cpu_backend,
#if AUK_CUDA
    &cuda_backend,
#endif
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strcmp(backend, known[i]->name) != 0) continue;
    *device = (Device){.flags = values, .backend = known[i], .n_gpus = 1, .invariant = values->invariant};
    return STATUS_OK;
  }
  return error_set(err, STATUS_FAILED, "this build has no device %s", backend);
}

Status device_check_elsewhere(const Device *device, Error *err) {
  const DeviceFlags *values = device->flags;
  if (device->backend != &cpu_backend) return STATUS_OK;
  if (values->gpu && !values->gpu_is_usual)
    print_note("--gpu %s: the process that keeps the model computes on the CPU", values->gpu);
  return check_on_cpu(values, values->device == DEVICE_AUTO, err);
}

/* --- its name */

/* The first processor's name in /proc/cpuinfo, or the architecture's if there is no name (aarch64). */
static void describe_processor(char out[DEVICE_NAME_SIZE]) {
  struct utsname system;
  snprintf(out, DEVICE_NAME_SIZE, "%s", uname(&system) == 0 ? system.machine : "processor");
  OWNED(stream_release) FILE *file = fopen("/proc/cpuinfo", "re");
  if (!file) return;
  char line[DEVICE_NAME_SIZE];
  while (fgets(line, sizeof line, file)) {
    const char *colon = strchr(line, ':');
    if (strncmp(line, "model name", 10) != 0 || !colon) continue;
    line[strcspn(line, "\n")] = 0;
    snprintf(out, DEVICE_NAME_SIZE, "%s", colon + 1 + strspn(colon + 1, " "));
    return;
  }
}

void device_describe(const Device *device, char out[DEVICE_NAME_SIZE]) {
  const BackendProbe *probe = device->backend->probe;
  if (!probe->describe)
    describe_processor(out);
  else if (probe->describe(&device->options, out, DEVICE_NAME_SIZE, NULL) != STATUS_OK)
    snprintf(out, DEVICE_NAME_SIZE, "%s", device->backend->name);
}

/* --- memory */

/* Reads the number after `key` at the beginning of a line in a file of /proc or /sys. With an empty key,
 * reads the first number of the file. */
static bool read_counter(const char *path, const char *key, uint64_t *value) {
  OWNED(stream_release) FILE *file = fopen(path, "re");
  if (!file) return false;
  char line[256];
  bool found = false;
  while (!found && fgets(line, sizeof line, file))
    found = strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), " %" SCNu64, value) == 1;
  return found;
}

/* Lowers `available` to what a limit of this process (ulimit -v, ulimit -d) leaves. /proc/self/status has, at
 * `key`, the memory that the limit counts. */
static void apply_limit(int resource, const char *key, const Model *model, uint64_t *available) {
  struct rlimit limit;
  uint64_t kib;
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  if (!read_counter("/proc/self/status", key, &kib)) return;
  uint64_t left = limit.rlim_cur > kib * 1024 ? limit.rlim_cur - kib * 1024 : 0;
  /* Adds the mapped weights, which the caller counts as needed: VmSize has them already, and RLIMIT_DATA does
   * not limit them. */
  left += model->weight_bytes - model->replaced_bytes - model->table_bytes;
  if (left < *available) *available = left;
}

/* Bytes of host memory that this process can use, those of already mapped weights included: the kernel's
 * MemAvailable, limited by the control group and by resource limits. */
static size_t memory_available(const Model *model) {
  uint64_t available = SIZE_MAX, kib, limit, used, cached;
  if (read_counter("/proc/meminfo", "MemAvailable:", &kib)) available = kib * 1024;
  /* In a container, /sys/fs/cgroup is the container's own group (cgroup v2). Page cache can be reclaimed. */
  if (read_counter("/sys/fs/cgroup/memory.max", "", &limit) &&
      read_counter("/sys/fs/cgroup/memory.current", "", &used)) {
    if (read_counter("/sys/fs/cgroup/memory.stat", "file ", &cached)) used -= cached < used ? cached : used;
    uint64_t left = limit > used ? limit - used : 0;
    if (left < available) available = left;
  }
  apply_limit(RLIMIT_AS, "VmSize:", model, &available);
  apply_limit(RLIMIT_DATA, "VmData:", model, &available);
  return (size_t)available;
}

/* Adds memory->copies (bytes of copies of weights, see DeviceMemory) to memory->weights if the copies are
 * made, else sets memory->copies to 0. Before loading, copies are to be made unless without_copies is set or
 * they take more than half of the room. */
static void count_copies(const Device *device, DeviceMemory *memory) {
  const size_t left = memory->free_bytes > memory->weights ? memory->free_bytes - memory->weights : 0;
  const bool fit = !device->without_copies && memory->copies <= left / 2;
  if (!(device->loaded ? device->options.copies : fit)) memory->copies = 0;
  memory->weights += memory->copies;
}

Status device_memory(const Device *device, const Model *model, DeviceMemory *memory, Error *err) {
  if (device->backend->memory) {
    TRY(device->backend->memory(model, &device->options, memory, err));
    if (device->memory_limit && device->memory_limit < memory->free_bytes)
      memory->free_bytes = device->memory_limit;
    count_copies(device, memory);
    return STATUS_OK;
  }
  /* Tables of n-grams are left out: few of their rows are read. */
  *memory = (DeviceMemory){.weights = model_loaded_bytes(model) - model->table_bytes,
                           .free_bytes = memory_available(model)};
  return STATUS_OK;
}

PlacesText device_places_text(const Model *model, const DeviceMemory *memory) {
  const int n = model->config.n_layers, experts = memory->host_experts, layers = memory->host_layers;
  PlacesText out;
  if (layers == 0)
    snprintf(out.text, sizeof out.text, "experts of layers %d to %d", n - experts, n - 1);
  else if (experts == 0 || experts == layers)
    snprintf(out.text, sizeof out.text, "layers %d to %d", n - layers, n - 1);
  else
    snprintf(out.text, sizeof out.text, "experts of layers %d to %d, all else of layers %d to %d",
             n - experts, n - 1, n - layers, n - 1);
  return out;
}

Status device_room(const Device *device, const Model *model, size_t *bytes, Error *err) {
  Device with_all = *device; /* all weights on the device */
  with_all.options.weight_bytes = 0;
  DeviceMemory memory;
  TRY(device_memory(&with_all, model, &memory, err));
  if (memory.free_bytes > memory.weights)
    *bytes = memory.free_bytes - memory.weights;
  else
    *bytes = device->backend->memory ? memory.free_bytes / 4 : 0;
  return STATUS_OK;
}

/* Chooses the weights that stay on the host, so that the others fit beside `state` bytes. Refuses a model
 * that does not fit even then; with `invariant` refuses any model. */
static Status check_both_memories(Device *device, const Model *model, size_t state, int n_ctx,
                                  DeviceMemory *memory, Error *err) {
  const size_t left = memory->free_bytes > state ? memory->free_bytes - state : 1;
  size_t *most = &device->options.weight_bytes;
  if (device->invariant)
    return error_set(
        err, STATUS_FAILED,
        "not enough memory: --invariant needs all weights on the GPU, %zu bytes beside the %zu of a "
        "context of %d tokens, and %zu are free; %s needs less",
        memory->weights, state, n_ctx, memory->free_bytes,
        device->flags->invariant ? "a smaller -c" : "--no-invariant");
  if (*most == 0 || left < *most) *most = left;
  TRY(device_memory(device, model, memory, err));
  const size_t host = memory_available(model);
  if (memory->weights <= left && memory->on_host <= host) return STATUS_OK;
  return error_set(err, STATUS_FAILED,
                   "not enough memory: the GPU needs at least %zu bytes (weights %zu, context of %d tokens "
                   "%zu) and has %zu free, the host needs %zu for the other weights and has %zu free; a "
                   "smaller -c needs less",
                   memory->weights > SIZE_MAX - state ? SIZE_MAX : memory->weights + state, memory->weights,
                   n_ctx, state, memory->free_bytes, memory->on_host, host);
}

const ModelConfig *device_config(const Device *device, const Model *model) {
  return device->options.split > 1 ? &device->part : &model->config;
}

Status device_check_memory(Device *device, const Model *model, const StateOptions *options, Error *err) {
  const size_t bytes = device->backend->state_bytes(device_config(device, model), options);
  return device_check_memory_bytes(device, model, bytes, options->n_ctx, err);
}

Status device_check_memory_bytes(Device *device, const Model *model, size_t state, int n_ctx, Error *err) {
  DeviceMemory memory;
  size_t needed;
  TRY(device_memory(device, model, &memory, err));
  if (__builtin_add_overflow(state, memory.weights, &needed)) needed = SIZE_MAX;
  if (needed <= memory.free_bytes) return STATUS_OK;
  if (memory.copies > 0 && !device->loaded) {
    device->without_copies = true;
    return device_check_memory_bytes(device, model, state, n_ctx, err);
  }
  if (device->backend->memory) return check_both_memories(device, model, state, n_ctx, &memory, err);
  return error_set(err, STATUS_FAILED,
                   "not enough memory: %zu bytes needed (weights %zu, context of %d tokens %zu), %zu free; a "
                   "smaller -c needs less",
                   needed, memory.weights, n_ctx, state, memory.free_bytes);
}

Status device_predict(const Model *model, size_t limit, const StateOptions *state, DeviceMemory *memory,
                      MachineRates *gpu, MachineRates *host, Error *err) {
#if AUK_CUDA
  BackendOptions options = {0};
  const size_t bytes = cuda_backend.state_bytes(&model->config, state);
  *gpu = *host = (MachineRates){0};
  TRY(cuda_check_model(model, err));
  TRY(cuda_backend.probe->places(model, limit > bytes ? limit - bytes : 1, memory, err));
  memory->free_bytes = limit;
  if (memory->weights > limit || bytes > limit - memory->weights)
    return error_set(err, STATUS_FAILED,
                     "--gpu-memory: the GPU needs at least %zu bytes (weights %zu, context of %d tokens %zu)",
                     memory->weights + bytes, memory->weights, state->n_ctx, bytes);
  TRY(threads_choose(0, &options.n_threads, err));
  if (device_use(0, NULL) == STATUS_OK) TRY(cuda_backend.probe->measure_machine(&options, gpu, err));
  return memory->on_host ? cpu_backend.probe->measure_machine(&options, host, err) : STATUS_OK;
#else
  return error_set(err, STATUS_USAGE, "--gpu-memory: this build has no CUDA");
#endif
}

Status device_shares(const Model *model, int n, DeviceShares *shares, Error *err) {
  *shares = (DeviceShares){.n = n};
#if AUK_CUDA
  const SessionOptions options = {.kv = KV_F16};
  size_t keys_and_values = 0;
  TRY(cuda_several_backend.probe->shares(model, n, shares->weights, err));
  TRY(config_part(model, 0, n, &shares->part, err));
  const StateOptions sizes = session_sizes(&options, &cuda_backend, &shares->part);
  for (int i = 0; i < shares->part.n_layers; i++)
    keys_and_values += kv_token_bytes(&shares->part, i, KV_F16) * (size_t)sizes.n_ctx;
  shares->other_bytes = cuda_backend.state_bytes(&shares->part, &sizes) - keys_and_values;
  return STATUS_OK;
#else
  return error_set(err, STATUS_USAGE, "--split: this build has no CUDA");
#endif
}

void device_shares_release(DeviceShares *shares) {
  config_part_release(&shares->part);
}

/* --- loading */

/* A BackendOptions.progress; `shown` is the permille that the bar shows, -1: no bar yet. */
static void show_progress(void *shown, size_t done, size_t total) {
  int permille = total ? (int)((double)done / (double)total * 1000) : 1000, before = *(int *)shown;
  if (permille / 10 == before / 10 && before >= 0) return;
  *(int *)shown = permille;
  char cells[41];
  int full = permille * 40 / 1000 > 40 ? 40 : permille * 40 / 1000;
  memset(cells, '.', sizeof cells - 1);
  memset(cells, '#', (size_t)full);
  cells[40] = 0;
  progress_show("loading %3d%% [%s]", permille / 10, cells);
}

/* Says which weights stay in the host's memory. */
static Status report_places(const Device *device, const Model *model, Error *err) {
  DeviceMemory memory;
  if (!device->backend->memory || device->options.weight_bytes == 0) return STATUS_OK;
  TRY(device_memory(device, model, &memory, err));
  if (memory.on_host == 0) return STATUS_OK;
  fprintf(stderr, "auk: %s of the weights are on the GPU, %s stay in the host's memory (%s)\n",
          size_text(memory.weights).text, size_text(memory.on_host).text,
          device_places_text(model, &memory).text);
  return STATUS_OK;
}

/* Decides whether load() copies weights for long prompts (DeviceMemory.copies). */
static Status choose_copies(Device *device, const Model *model, Error *err) {
  DeviceMemory memory;
  if (!device->backend->memory || !device->options.int8_activations) return STATUS_OK;
  TRY(device_memory(device, model, &memory, err));
  device->options.copies = memory.copies > 0;
  return STATUS_OK;
}

/* Repacks weights, with a spinner on a terminal. */
static Status prepare(const Device *device, Model *model, Error *err) {
  Spinner spinner = loading_spinner(device->flags->nth == 0);
  spinner_begin(&spinner);
  spinner_say(&spinner, "loading");
  const int n_threads = device->options.n_threads;
  Status status = device->backend->prepares_experts ? model_prepare_but_experts(model, n_threads, err)
                                                    : model_prepare(model, n_threads, err);
  spinner_end(&spinner);
  return status;
}

Status device_load(Device *device, Model *model, Error *err) {
  TRY(model_prepare_scales(model, device->options.n_threads, err));
  TRY(device_fit(device, model, err)); /* some limits depend on the values of the scales */
  TRY(prepare(device, model, err));
  TRY(report_places(device, model, err));
  TRY(choose_copies(device, model, err));
  int shown = -1;
  if (terminal_takes_escapes(STDERR_FILENO) && device->flags->nth == 0) {
    device->options.progress = show_progress;
    device->options.progress_user = &shown;
  }
  Status status = device->backend->load(model, &device->options, &device->loaded, err);
  if (shown >= 0) progress_clear();
  return status;
}

void device_release(Device *device) {
  if (device->loaded) device->backend->unload(device->loaded);
  device->loaded = NULL;
#if AUK_CUDA
  if (device->options.ranks) ranks_end(device->options.ranks);
  device->options.ranks = NULL;
#endif
  config_part_release(&device->part);
}
