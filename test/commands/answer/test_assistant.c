/* test_assistant.c - what an assistant is opened with: sampling by flags and checkpoint, the context that
 * memory has room for, what a terminal is shown of loading, whether answers are independent of each other. */
#include <fcntl.h>
#include <unistd.h>

#include "commands/answer/assistant.h"
#include "test/tests.h"

/* --- sampling */

static void assert_sampling(SamplingFlags flags, GenerationDefaults defaults, SamplerSettings want) {
  SamplerSettings got = sampling_settings(&flags, &defaults);
  assert_true(got.temperature == want.temperature && got.top_k == want.top_k && got.top_p == want.top_p);
  assert_true(got.min_p == want.min_p && got.repetition_penalty == want.repetition_penalty);
  assert_true(got.presence_penalty == want.presence_penalty);
  assert_true(got.frequency_penalty == want.frequency_penalty && got.seed == want.seed);
}

TEST(flags_stand_over_the_checkpoint) {
  const GenerationDefaults defaults = {.do_sample = true,
                                       .temperature = 0.5,
                                       .top_k = 5,
                                       .top_p = 0.75,
                                       .min_p = 0.125,
                                       .repetition_penalty = 1.5};
  const SamplerSettings own = {
      .temperature = 0.5, .top_k = 5, .top_p = 0.75, .min_p = 0.125, .repetition_penalty = 1.5};
  assert_sampling((SamplingFlags)SAMPLING_NOT_GIVEN, defaults, own);
  SamplingFlags flags = SAMPLING_NOT_GIVEN;
  SamplerSettings want = own;
  flags.temperature = want.temperature = 0.25;
  assert_sampling(flags, defaults, want);
  flags.top_k = want.top_k = 0; /* a zero that was given counts */
  assert_sampling(flags, defaults, want);
  flags.top_p = want.top_p = 0;
  assert_sampling(flags, defaults, want);
  flags.min_p = want.min_p = 0;
  assert_sampling(flags, defaults, want);
  flags.repetition_penalty = want.repetition_penalty = 2;
  assert_sampling(flags, defaults, want);
  flags.presence_penalty = want.presence_penalty = -1;
  flags.frequency_penalty = want.frequency_penalty = 3;
  flags.seed = (Seed){true, 9};
  want.seed = 9;
  assert_sampling(flags, defaults, want);
}

/* do_sample says that temperature counts; the rest counts once one is given. */
TEST(a_checkpoint_that_does_not_sample_is_greedy) {
  const GenerationDefaults defaults = {
      .temperature = 0.5, .top_k = 5, .top_p = 0.75, .repetition_penalty = 1.5};
  SamplingFlags flags = SAMPLING_NOT_GIVEN;
  SamplerSettings want = {.temperature = 0, .top_k = 5, .top_p = 0.75, .repetition_penalty = 1.5};
  assert_sampling(flags, defaults, want);
  flags.temperature = want.temperature = 1;
  assert_sampling(flags, defaults, want);
}

TEST(nothing_is_limited_that_no_flag_limits) {
  const AssistantFlags *flags = &(const AssistantFlags)ASSISTANT_DEFAULTS;
  assert_int_equal(flags->answer.max_tokens, -1);
  assert_int_equal(flags->answer.context, NOT_GIVEN);
  assert_int_equal(flags->chat.think_budget, -1);
  assert_null(flags->device.gpu);
  assert_int_equal(flags->sampling.top_k, NOT_GIVEN);
  assert_false(flags->sampling.seed.given);
}

/* --- the context */

enum { MAXIMUM = 4000, TOKEN_BYTES = 10, FIXED_BYTES = 100 };
static size_t weights, free_bytes;
static size_t must_stay; /* bytes of the weights that the host's memory cannot hold instead */

static Status memory(const Model *model, const BackendOptions *options, DeviceMemory *out, Error *err) {
  (void)model, (void)err;
  const size_t most = options->weight_bytes, taken = most == 0 || most > weights ? weights : most;
  *out = (DeviceMemory){.weights = taken > must_stay ? taken : must_stay, .free_bytes = free_bytes};
  out->on_host = weights - out->weights;
  return STATUS_OK;
}

static size_t state_bytes(const ModelConfig *config, const StateOptions *options) {
  (void)config;
  return FIXED_BYTES + (size_t)options->n_ctx * TOKEN_BYTES;
}

static const Backend backend = {.name = "cpu", .chunk = 64, .memory = memory, .state_bytes = state_bytes};

/* The context for a prompt; -1: refused. */
static int context_of(int asked, size_t n_prompt, Error *err) {
  Model model = {.config = {.max_position = MAXIMUM}};
  AssistantFlags flags = ASSISTANT_DEFAULTS;
  const Assistant assistant = {
      .flags = &flags, .model = &model, .place = {.path = (char *)"m"}, .device = {.backend = &backend}};
  int n_ctx;
  flags.answer.context = asked;
  Status status = assistant_context(&assistant, n_prompt, &n_ctx, err);
  if (status) assert_int_equal(status, STATUS_USAGE);
  return status ? -1 : n_ctx;
}

TEST(the_context_takes_half_of_the_memory_that_the_weights_leave) {
  weights = 5000;
  for (int n_ctx = 1; n_ctx <= MAXIMUM; n_ctx += n_ctx < 9 ? 1 : 399) {
    size_t half = FIXED_BYTES + (size_t)n_ctx * TOKEN_BYTES;
    /* The context that a prompt needs is taken in any case: here less than memory has room for. */
    size_t n_prompt = n_ctx > 256 ? (size_t)n_ctx - 256 : 0;
    int least = n_ctx < 256 ? 256 : n_ctx;
    free_bytes = weights + 2 * half;
    assert_int_equal(context_of(NOT_GIVEN, n_prompt, NULL), least);
    free_bytes += 2 * TOKEN_BYTES - 1;
    assert_int_equal(context_of(NOT_GIVEN, n_prompt, NULL), least);
    free_bytes += 1;
    int more = n_ctx < MAXIMUM ? n_ctx + 1 : MAXIMUM;
    assert_int_equal(context_of(NOT_GIVEN, 0, NULL), more < 256 ? 256 : more);
  }
  free_bytes = SIZE_MAX / 2;
  assert_int_equal(context_of(NOT_GIVEN, 0, NULL), MAXIMUM);
}

/* A prompt has its own tokens and 256 more, where the model allows that: what memory lacks is said later. */
TEST(a_prompt_has_room_whatever_memory_says) {
  weights = 5000;
  for (size_t i = 0; i < 3; i++) {
    free_bytes = i ? weights - 1 + i : 0; /* less than the weights, as much, one more */
    assert_int_equal(context_of(NOT_GIVEN, 0, NULL), 256);
    assert_int_equal(context_of(NOT_GIVEN, 1000, NULL), 1256);
    assert_int_equal(context_of(NOT_GIVEN, MAXIMUM - 256, NULL), MAXIMUM);
    assert_int_equal(context_of(NOT_GIVEN, MAXIMUM - 255, NULL), MAXIMUM);
    assert_int_equal(context_of(NOT_GIVEN, 100 * MAXIMUM, NULL), MAXIMUM);
  }
}

TEST(a_context_that_was_asked_for_is_had_or_refused) {
  weights = free_bytes = 0;
  Error err = {{0}};
  assert_int_equal(context_of(0, 0, NULL), MAXIMUM);
  assert_int_equal(context_of(1, 100, NULL), 1);
  assert_int_equal(context_of(MAXIMUM, 0, NULL), MAXIMUM);
  assert_int_equal(context_of(MAXIMUM + 1, 0, &err), -1);
  assert_string_equal(err.text, "-c is 4001, more than the 4000 positions of m");
}

TEST(a_prompt_that_does_not_fit_is_refused_with_both_counts) {
  Model model = {.config = {.max_position = MAXIMUM}};
  const Assistant assistant = {.model = &model};
  Error err = {{0}};
  assert_int_equal(assistant_check_prompt(&assistant, 20, 20, NULL), STATUS_OK);
  assert_int_equal(assistant_check_prompt(&assistant, 21, 20, &err), STATUS_USAGE);
  assert_string_equal(err.text,
                      "the prompt has 21 tokens, the context 20 (the model's maximum is 4000; -c N sets it)");
  assert_int_equal(assistant_check_prompt(&assistant, MAXIMUM + 1, MAXIMUM, &err), STATUS_USAGE);
  assert_string_equal(err.text, "the prompt has 4001 tokens, the context 4000 (the model's maximum is 4000)");
}

/* --- memory */

/* Weights that do not fit beside the context stay on the host. With one byte less than the device needs for
 * the context and the weights that must be on it, the context is refused. */
TEST(a_context_fits_to_the_last_byte) {
  Model model = {.config = {.max_position = MAXIMUM}};
  DeviceFlags flags = {.invariant = false};
  Device device = {.backend = &backend, .flags = &flags};
  const StateOptions options = {.n_ctx = 50};
  Error err = {{0}};
  weights = 1000;
  must_stay = 900;
  free_bytes = 1000 + FIXED_BYTES + 50 * TOKEN_BYTES;
  assert_int_equal(device_check_memory(&device, &model, &options, NULL), STATUS_OK);
  assert_int_equal(device.options.weight_bytes, 0);
  free_bytes -= 100;
  assert_int_equal(device_check_memory(&device, &model, &options, NULL), STATUS_OK);
  assert_int_equal(device.options.weight_bytes, 900);
  free_bytes--;
  assert_int_equal(device_check_memory(&device, &model, &options, &err), STATUS_FAILED);
  static const char expected[] =
      "not enough memory: the GPU needs at least 1500 bytes (weights 900, context of 50 tokens 600) and has "
      "1499 free, the host needs 100 for the other weights and has ";
  assert_int_equal(strncmp(err.text, expected, sizeof expected - 1), 0);
  for (int given = 0; given < 2; given++) { /* no weights may stay on the host, by a flag or by default */
    flags.invariant = given;
    device.invariant = true;
    assert_int_equal(device_check_memory(&device, &model, &options, &err), STATUS_FAILED);
    assert_non_null(strstr(err.text, "--invariant needs all weights on the GPU"));
    assert_non_null(strstr(err.text, given ? "a smaller -c needs less" : "--no-invariant needs less"));
  }
  device.invariant = false;
  weights = must_stay = SIZE_MAX; /* a sum that is no number is too much, too */
  assert_int_equal(device_check_memory(&device, &model, &options, &err), STATUS_FAILED);
  must_stay = 0;
}

/* --- loading */

/* Pretends to load 1,000 bytes; no state of the bar is drawn twice. */
static Status load(const Model *model, const BackendOptions *options, BackendModel **loaded, Error *err) {
  static const size_t done[] = {0, 9, 10, 24, 25, 500, 509, 999, 1000};
  (void)model, (void)err;
  for (size_t i = 0; i < sizeof done / sizeof *done; i++)
    options->progress(options->progress_user, done[i], 1000);
  *loaded = NULL;
  return STATUS_OK;
}

static void append_bar(char *text, int cells, int percent) {
  char bar[41];
  memset(bar, '.', 40);
  memset(bar, '#', (size_t)cells);
  bar[40] = 0;
  sprintf(text + strlen(text), "\r\033[Kloading %3d%% [%s]", percent, bar);
}

TEST(a_terminal_is_shown_how_much_is_loaded) {
  Backend loading = cpu_backend;
  AssistantFlags flags = ASSISTANT_DEFAULTS;
  Assistant assistant = {0};
  loading.load = load;
  flags.model.path = "test/data/stories260K-awq";
  flags.device.threads = 1;
  assert_int_equal(assistant_open(&flags, &assistant, NULL), STATUS_OK);
  assistant.device.backend = &loading;
  char want[1000] = "", got[1000];
  static const int shown[][2] = {{0, 0}, {0, 1}, {0, 2}, {20, 50}, {39, 99}, {40, 100}};
  for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) append_bar(want, shown[i][0], shown[i][1]);
  strcat(want, "\r\033[K"); /* and then it is taken back */
  int terminal = posix_openpt(O_RDWR | O_NOCTTY), before = dup(STDERR_FILENO);
  assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
  int other = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  setenv("TERM", "xterm", 1);
  dup2(other, STDERR_FILENO);
  Status status = device_load(&assistant.device, assistant.model, NULL);
  fflush(stderr);
  dup2(before, STDERR_FILENO);
  assert_int_equal(status, STATUS_OK);
  size_t n = 0;
  do { /* a terminal may hand out what was written piece by piece */
    ssize_t more = read(terminal, got + n, sizeof got - 1 - n);
    assert_true(more > 0);
    n += (size_t)more;
    got[n] = 0;
  } while (n < strlen(want));
  assert_string_equal(got, want);
  close(before);
  close(other);
  close(terminal);
  assistant_release(&assistant);
}

/* --- several sequences */

static bool preferred, taken;

static Status check_invariant(const Model *model, const BackendOptions *options, Error *err) {
  (void)model, (void)options;
  return taken ? STATUS_OK : error_set(err, STATUS_MODEL, "--invariant: not this model");
}

static bool prefers_invariant(const Model *model, const BackendOptions *options) {
  (void)model, (void)options;
  assert_true(taken); /* its precondition */
  return preferred;
}

/* Opens a model on a device that computes as the CPU does and has memory of its own. */
static void open_on_gpu(const char *path, AssistantFlags *flags, Backend *gpu, Assistant *a) {
  *flags = (AssistantFlags)ASSISTANT_DEFAULTS;
  *gpu = cpu_backend;
  gpu->memory = memory;
  gpu->check_invariant = check_invariant;
  gpu->prefers_invariant = prefers_invariant;
  weights = 1000;
  free_bytes = (size_t)1 << 40;
  preferred = taken = true;
  flags->model.path = path;
  flags->device.threads = 1;
  flags->keep.time = "0";
  *a = (Assistant){.engine = NULL};
  assert_int_equal(assistant_open(flags, a, NULL), STATUS_OK);
  a->device.backend = gpu;
}

/* True if --map answers n records at once so that none depends on those beside it. */
static bool is_invariant(Assistant *a, int n) {
  a->device.invariant = a->flags->device.invariant;
  assistant_prefer_invariant(a, n);
  return a->device.invariant;
}

TEST(records_are_independent_where_the_device_prefers_it) {
  AssistantFlags flags;
  Backend gpu;
  Assistant a;
  open_on_gpu("test/data/stories260K-awq", &flags, &gpu, &a);
  assert_false(a.device.invariant); /* only --map asks */
  assert_true(is_invariant(&a, 0) && is_invariant(&a, 1) && is_invariant(&a, 256));
  preferred = false;
  assert_false(is_invariant(&a, 0));
  flags.device.invariant = true; /* it was asked for */
  assert_true(is_invariant(&a, 0));
  flags.device.invariant = false;
  preferred = true;
  taken = false;
  assert_false(is_invariant(&a, 0));
  taken = true;
  gpu.memory = NULL; /* a CPU, whose answers are so anyway */
  assert_false(is_invariant(&a, 0));
  gpu.memory = memory;
  gpu.check_invariant = NULL;
  assert_true(is_invariant(&a, 0));
  gpu.prefers_invariant = NULL;
  assert_false(is_invariant(&a, 0));
  assistant_release(&a);
}

TEST(flags_and_processes_that_compute_otherwise_are_no_default) {
  AssistantFlags flags;
  Backend gpu;
  Assistant a;
  open_on_gpu("test/data/stories260K-awq", &flags, &gpu, &a);
  flags.device.act = 1;
  assert_false(is_invariant(&a, 0));
  flags.device.act = 0;
  flags.device.kernel = "x";
  assert_false(is_invariant(&a, 0));
  flags.device.kernel = NULL;
  flags.device.decode_step = DECODE_KERNELS;
  assert_false(is_invariant(&a, 0));
  flags.device.decode_step = DECODE_AUTO;
  flags.device.split = "2";
  assert_false(is_invariant(&a, 0));
  flags.device.split = "auto";
  assert_false(is_invariant(&a, 0));
  flags.device.split = NULL;
  flags.guess.draft = "x";
  assert_false(is_invariant(&a, 0));
  flags.guess.draft = NULL;
  a.cache = (Cache *)&a;
  assert_false(is_invariant(&a, 0));
  a.cache = NULL;
  a.remote = (Remote *)&a;
  assert_false(is_invariant(&a, 0));
  a.remote = NULL;
  a.keep_seconds = 60; /* this call will start a process */
  assert_false(is_invariant(&a, 0));
  a.keep_seconds = -1;
  assert_true(is_invariant(&a, 0));
  assistant_release(&a);
}

/* Starts n records at once with so much memory, as --map does, and says whether they are independent. */
static bool starts_invariant(int n, size_t bytes, bool *keeps_weights_on_host) {
  AssistantFlags flags;
  Backend gpu;
  Assistant a;
  open_on_gpu("test/data/stories260K-awq", &flags, &gpu, &a);
  free_bytes = bytes;
  const bool is = is_invariant(&a, n);
  assert_int_equal(assistant_start_many(&a, n, NULL), STATUS_OK);
  *keeps_weights_on_host = a.device.options.weight_bytes > 0;
  const bool has_batch = engine_has_batch(a.engine);
  assert_int_equal(has_batch, is || a.batch_options.n_sequences > 1);
  assert_int_equal(engine_session(a.engine) == NULL, has_batch);
  if (has_batch) assert_int_equal(a.batch_options.invariant, is);
  assistant_release(&a);
  return is;
}

/* The least memory in which n records are independent. */
static size_t least_memory(int n) {
  AssistantFlags flags;
  Backend gpu;
  Assistant a;
  open_on_gpu("test/data/stories260K-awq", &flags, &gpu, &a);
  size_t low = weights, high = free_bytes; /* too little, and enough */
  while (high - low > 1) {
    free_bytes = low + (high - low) / 2;
    if (is_invariant(&a, n))
      high = free_bytes;
    else
      low = free_bytes;
  }
  assistant_release(&a);
  return high;
}

/* With a byte less than independent records need, the run goes on as it does without them. */
TEST(records_that_do_not_fit_independently_are_answered_as_usual) {
  static const int counts[] = {0, 1, 4};
  bool on_host;
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    const size_t least = least_memory(counts[i]);
    assert_true(starts_invariant(counts[i], least, &on_host) && !on_host);
    assert_false(starts_invariant(counts[i], least - 1, &on_host));
    assert_false(starts_invariant(counts[i], weights - 1, &on_host));
    assert_true(on_host);
  }
}

/* A GPU answers records many at once also where their sequences have recurrent states. */
TEST(recurrent_states_are_answered_one_at_a_time_on_a_cpu_alone) {
  for (int has_memory = 0; has_memory < 2; has_memory++) {
    AssistantFlags flags;
    Backend gpu;
    Assistant a;
    open_on_gpu("test/data/miniatures/lfm2-awq", &flags, &gpu, &a);
    assert_true(config_has_states(&a.model->config));
    if (!has_memory) a.device.backend = &cpu_backend;
    assert_int_equal(assistant_start_many(&a, 0, NULL), STATUS_OK);
    assert_int_equal(a.batch_options.n_sequences, has_memory ? cpu_backend.sequences : 1);
    assistant_release(&a);
  }
}

/* --- ids */

TEST(ids_are_below_the_vocabulary) {
  const Model model = {.config = {.vocab_size = 10}};
  static const int32_t good[] = {0, 9, 5}, high[] = {0, 9, 10}, low[] = {-1};
  Error err = {{0}};
  assert_int_equal(ids_check(&model, good, 3, "x", IDS_GIVEN, NULL), STATUS_OK);
  assert_int_equal(ids_check(&model, NULL, 0, "x", IDS_GIVEN, NULL), STATUS_OK);
  assert_int_equal(ids_check(&model, high, 3, "x", IDS_GIVEN, &err), STATUS_USAGE);
  assert_string_equal(err.text, "x: token 2 has id 10, expected one below 10, the model's vocabulary");
  assert_int_equal(ids_check(&model, low, 1, "x", IDS_ENCODED, &err), STATUS_MODEL);
  assert_string_equal(err.text,
                      "x: token 0 has id -1, expected one below 10, the model's vocabulary: is this the "
                      "model's own tokenizer?");
}
