/* test_launch.c - the process that a call starts to keep a model: this program, executed anew as `auk keep`.
 * It writes down with what it was started, and then does what $LC_DOES says. */
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "commands/commands.h"
#include "commands/keep/launch.h"
#include "commands/keep/start.h"
#include "test/unit.h"

static AssistantFlags flags;
static ModelPlace place;
static Model *model;
static char folder[64], told[128];

/* --- the process that is started */

static int be_started(int argc, char **argv) {
  static const int taken[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
  const char *does = getenv("LC_DOES");
  struct sigaction action;
  struct rlimit limit;
  sigset_t blocked;
  int n_open = 0, n_ignored = 0;
  for (int i = 3; i < 256; i++) n_open += fcntl(i, F_GETFD) >= 0;
  for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
    n_ignored += sigaction(taken[i], NULL, &action) != 0 || action.sa_handler != SIG_DFL;
  sigprocmask(SIG_SETMASK, NULL, &blocked);
  snprintf(told, sizeof told, "%s/told", getenv("XDG_RUNTIME_DIR"));
  /* The parent, which leads the session, exits right after it has forked. */
  for (int i = 0; i < 5000 && getsid(0) == getppid(); i++) usleep(1000);
  FILE *file = fopen(told, "we");
  if (!file || getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
  for (int i = 0; i < argc; i++) fprintf(file, "%s%s", i ? " " : "", argv[i]);
  fprintf(file, "\nopen %d ignored %d blocked %d leads %d files %d\n", n_open, n_ignored,
          sigismember(&blocked, SIGTERM), getsid(0) != getppid() && getsid(0) != getpid(),
          limit.rlim_cur == (limit.rlim_max < 1 << 16 ? limit.rlim_max : 1 << 16));
  for (char **variable = environ; *variable; variable++) fprintf(file, "%s\n", *variable);
  fclose(file);
  if (strcmp(does, "keep") == 0) return command_call(&keep_interface, argc - 1, argv + 1);
  if (strcmp(does, "stop") == 0) raise(SIGSTOP);
  if (strcmp(does, "ready") == 0) return puts("ready") < 0;
  fprintf(stderr, "%s", does);
  return 1;
}

/* The first line it wrote that begins so; NULL if there is none. */
static char *line_of(const char *begin, char line[8192]) {
  FILE *file = fopen(told, "re");
  assert_non_null(file);
  bool found = false;
  while (!found && fgets(line, 8192, file)) found = strncmp(line, begin, strlen(begin)) == 0;
  fclose(file);
  line[strcspn(line, "\n")] = 0;
  return found ? line : NULL;
}

static Status launch_that(const char *does, const WireHello *hello, Error *err) {
  setenv("LC_DOES", does, 1);
  unlink(told);
  return launch(&flags, &place, hello, err);
}

/* --- tests */

static int begin(void **state) {
  Error err = {{0}};
  flags = (AssistantFlags)ASSISTANT_DEFAULTS;
  flags.model.path = "test/data/stories260K-awq";
  flags.device.threads = 1;
  place = (ModelPlace){0};
  if (model_place_find(&flags.model, &place, &err) ||
      model_place_open_known(&place, &flags.model, &model, &err))
    fail_msg("%s", err.text);
  return 0;
}

static int end(void **state) {
  model_close(model);
  model_place_release(&place);
  return 0;
}

static void it_gets_each_flag_of_the_call(void **state) {
  char line[8192], expected[4096], *path = realpath("test/data/stories260K-awq", NULL);
  Error err = {{0}};
  snprintf(expected, sizeof expected, "auk keep --detached --no-config --keep 60 -m %s -t 1", path);
  assert_int_equal(launch_that("", &(WireHello){60, 0}, &err), STATUS_FAILED);
  assert_string_equal(line_of("auk keep", line), expected);
  char *tokenizer = realpath("test/data/stories260K-awq/tokenizer.json", NULL);
  flags.model.overrides = (ModelOverrides){
      .tokenizer = "test/data/stories260K-awq/tokenizer.json", .rope_theta = 0.1, .norm_eps = 1e-5};
  flags.device = (DeviceFlags){.threads = 3,
                               .kv = 2,
                               .device = 1,
                               .gpu = "1,2",
                               .split = "auto",
                               .split_by = 2,
                               .gpu_memory = "3G",
                               .act = 1,
                               .kernel = "name",
                               .no_graphs = true,
                               .invariant = true,
                               .decode_step = 1};
  snprintf(expected, sizeof expected,
           "auk keep --detached --no-config --keep 7 -m %s --tokenizer %s --rope-theta 0.10000000000000001 "
           "--norm-eps "
           "1.0000000000000001e-05 -c 99 -t 3 --kv q8 --device cpu --gpu 1,2 --split auto --split-by nccl "
           "--gpu-memory "
           "3G --act int8 --kernel name --no-graphs --decode-step kernels --invariant",
           path, tokenizer);
  assert_int_equal(launch_that("", &(WireHello){7, 99}, &err), STATUS_FAILED);
  assert_string_equal(line_of("auk keep", line), expected);
  char *given = place.given;
  place.given = (char *)"name/of-it"; /* in a cache */
  assert_int_equal(launch_that("", &(WireHello){7, 99}, &err), STATUS_FAILED);
  assert_non_null(strstr(line_of("auk keep", line), " -m name/of-it "));
  place.given = given;
  flags.device = (DeviceFlags){.threads = 1};
  flags.model.overrides = (ModelOverrides){0};
  free(path);
  free(tokenizer);
}

static void nothing_of_the_call_reaches_it(void **state) {
  static const char *const variables[] = {"HOME",
                                          "PATH",
                                          "TMPDIR",
                                          "LANG",
                                          "LC_ALL",
                                          "XDG_CACHE_HOME",
                                          "TZ",
                                          "LD_BIND_NOW",
                                          "OMP_NUM_THREADS",
                                          "GOMP_SPINCOUNT",
                                          "KMP_SETTINGS",
                                          "CUDA_CACHE_PATH",
                                          "NVIDIA_TF32",
                                          "MALLOC_ARENA_MAX",
                                          "HF_HOME",
                                          "HF_HUB_CACHE",
                                          "ASAN_X",
                                          "UBSAN_X",
                                          "TSAN_X",
                                          "HUGGINGFACE_HUB_CACHE",
                                          "GLIBC_TUNABLES"};
  static const char *const secrets[] = {"HOMEPAGE", "AUK_KEEP", "HF_TOKEN", "LANGUAGE",
                                        "XDG",      "TZDIR",    "A",        "HF_HOM"};
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
  char line[8192], begin_of[64];
  struct rlimit limit, low;
  sigset_t some;
  Error err = {{0}};
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
    if (!getenv(variables[i])) setenv(variables[i], strcmp(variables[i], "GLIBC_TUNABLES") ? "1" : "", 1);
  for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++) setenv(secrets[i], "secret", 1);
  const int inherited = open("/dev/null", O_RDONLY);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) signal(numbers[i], SIG_IGN);
  sigemptyset(&some);
  sigaddset(&some, SIGTERM);
  sigprocmask(SIG_BLOCK, &some, NULL);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  low = (struct rlimit){64, 1 << 17}; /* more than it takes, where this user may have so many */
  if (setrlimit(RLIMIT_NOFILE, &low) != 0) low.rlim_max = limit.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
  assert_int_equal(launch_that("", &(WireHello){60, 0}, &err), STATUS_FAILED);
  setrlimit(RLIMIT_NOFILE, &limit);
  sigprocmask(SIG_UNBLOCK, &some, NULL);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) signal(numbers[i], SIG_DFL);
  close(inherited);
  assert_string_equal(line_of("open", line), "open 0 ignored 0 blocked 0 leads 1 files 1");
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
    snprintf(begin_of, sizeof begin_of, "%s=", variables[i]);
    if (!line_of(begin_of, line)) fail_msg("%s", variables[i]);
  }
  for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++) {
    snprintf(begin_of, sizeof begin_of, "%s=", secrets[i]);
    if (line_of(begin_of, line)) fail_msg("%s", secrets[i]);
    unsetenv(secrets[i]);
  }
}

static void a_start_that_fails_says_why(void **state) {
  static char longest[3000];
  char expected[sizeof(Error)];
  static const char *const cases[][2] = {
      {"auk: no memory\nand more", "no memory"},
      {"\nlibgomp: Invalid value\nauk: no memory\n", "no memory"},
      {"\na library's words", "a library's words"},
      {"", "the process that keeps the model did not start"},
  };
  Error err = {{0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(launch_that(cases[i][0], &(WireHello){60, 0}, &err), STATUS_FAILED);
    assert_string_equal(err.text, cases[i][1]);
  }
  memset(longest, 'x', sizeof longest - 1);
  assert_int_equal(launch_that(longest, &(WireHello){60, 0}, &err), STATUS_FAILED);
  snprintf(expected, sizeof expected, "%.*s", (int)sizeof expected - 1, longest);
  assert_string_equal(err.text, expected);
  assert_int_equal(launch_that("stop", &(WireHello){60, 0}, &err), STATUS_FAILED);
  int pid = 0;
  assert_int_equal(sscanf(err.text, "the process that keeps the model (%d) was stopped while it began", &pid),
                   1);
  assert_int_equal(kill(pid, SIGKILL), 0);
  assert_int_equal(launch_that("ready", &(WireHello){60, 0}, &err), STATUS_OK);
  Remote *remote;
  assert_int_equal(keep_start(&flags, &place, model, 0, 60, &remote, &err), STATUS_FAILED);
  assert_null(remote);
  assert_string_equal(err.text, "the process that keeps the model has another model: it has just changed");
  const pid_t child = fork();
  if (child == 0) {
    setrlimit(RLIMIT_CPU, &(struct rlimit){50, 50});
    const Status status = launch_that("ready", &(WireHello){60, 0}, &err);
    _exit(status == STATUS_FAILED && strstr(err.text, "limited here to 50 s each") ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

static pid_t pid_of(Remote *remote, int n_ctx) {
  assert_non_null(remote);
  const WireState facts = *remote_facts(remote);
  remote_close(remote);
  if (n_ctx) assert_int_equal(facts.n_ctx, n_ctx);
  return facts.pid;
}

/* The lock of the key's starts, as another call has it. */
static int lock_starts(void) {
  char *directory, *path;
  Buffer key = {0};
  Error err;
  assert_int_equal(keep_directory(true, &directory, &err), STATUS_OK);
  assert_int_equal(keep_key(&flags, model, &key, &err), STATUS_OK);
  assert_int_equal(keep_path(directory, &key, ".lock", &path, &err), STATUS_OK);
  const int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  assert_int_equal(flock(lock, LOCK_EX), 0);
  free(directory);
  free(path);
  buffer_release(&key);
  return lock;
}

static Remote *start(int n_ctx) {
  Error err = {{0}};
  Remote *remote;
  if (keep_start(&flags, &place, model, n_ctx, 60, &remote, &err)) fail_msg("%s", err.text);
  return remote;
}

/* One is started, and found by all who look for one afterwards, until room is made. */
static void one_is_started_for_all(void **state) {
  Error err = {{0}};
  bool silent;
  Remote *remote;
  setenv("LC_DOES", "keep", 1);
  assert_int_equal(keep_make_room(), 0);
  for (int kv = 0; kv < 3; kv += 2) {
    flags.device.kv = kv;
    unlink(told);
    const pid_t pid = pid_of(start(kv ? 0 : 80), kv ? 0 : 80);
    assert_int_equal(access(told, F_OK), 0);
    unlink(told);
    const int lock = lock_starts(); /* who has it takes long: the process is there */
    assert_int_equal(pid_of(start(0), 0), pid);
    close(lock);
    assert_int_equal(keep_find(&flags, model, 0, -1, &remote, &silent, &err), STATUS_OK);
    assert_int_equal(pid_of(remote, 0), pid);
    assert_true(access(told, F_OK) != 0);
  }
  assert_int_equal(keep_find(&flags, model, 0, -1, &remote, &silent, &err), STATUS_OK);
  assert_int_equal(keep_make_room(), 1); /* the other has a call */
  remote_close(remote);
  assert_int_equal(keep_make_room(), 1);
  assert_int_equal(keep_make_room(), 0);
  flags.device.kv = 0;
  const int lock = lock_starts();
  const pid_t child = fork();
  if (child == 0) {
    Remote *started = NULL;
    close(lock); /* the lock is of both descriptors */
    _exit(keep_start(&flags, &place, model, 80, 60, &started, &err) || !started);
  }
  usleep(300000); /* it waits for the lock */
  assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
  assert_true(access(told, F_OK) != 0);
  close(lock);
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(access(told, F_OK), 0);
  assert_int_equal(keep_make_room(), 1);
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "keep") == 0) return be_started(argc, argv);
  snprintf(folder, sizeof folder, "/tmp/aukXXXXXX");
  if (!mkdtemp(folder) || setenv("XDG_RUNTIME_DIR", folder, 1) != 0) return 1;
  snprintf(told, sizeof told, "%s/told", folder);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_gets_each_flag_of_the_call), cmocka_unit_test(nothing_of_the_call_reaches_it),
      cmocka_unit_test(a_start_that_fails_says_why), cmocka_unit_test(one_is_started_for_all)};
  const int failed = cmocka_run_group_tests(tests, begin, end);
  char command[96];
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command) ? 1 : failed;
}
