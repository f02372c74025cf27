/* test_place.c - where processes that keep models are found, which flags are another model's, and how long a
 * process stays unused, as --keep says it. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commands/keep/place.h"
#include "test/unit.h"

static char folder[64];

static void times_are_whole_seconds_and_at_least_what_was_said(void **state) {
  static const struct {
    const char *text;
    int seconds; /* -1: refused */
  } cases[] = {{"0", 0},      {"0s", 0},    {"90", 90},   {"90s", 90},         {"10m", 600},  {"2h", 7200},
               {"1d", 86400}, {"0.5", 1},   {"0.01s", 1}, {"1.5m", 90},        {"1e3", 1000}, {"", -1},
               {"s", -1},     {"-1", -1},   {"1x", -1},   {"1ss", -1},         {" 1", -1},    {"inf", -1},
               {"nan", -1},   {"1e9d", -1}, {"1 m", -1},  {"1e9", 1000000000}, {"9m", 540},   {"/", -1},
               {":", -1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Error err;
    int seconds = -1;
    const Status status = keep_time("--keep", cases[i].text, &seconds, &err);
    assert_int_equal(status, cases[i].seconds < 0 ? STATUS_USAGE : STATUS_OK);
    assert_int_equal(seconds, cases[i].seconds);
  }
}

/* --- the directory */

static void the_directory_is_this_users_alone(void **unused) {
  char expected[96], file[96], *path;
  Error err;
  snprintf(expected, sizeof expected, "%s/auk", folder);
  assert_int_equal(keep_directory(false, &path, &err), STATUS_OK); /* missing */
  assert_string_equal(path, expected);
  assert_true(access(path, F_OK) != 0);
  free(path);
  for (int again = 0; again < 2; again++) {
    assert_int_equal(keep_directory(true, &path, &err), STATUS_OK);
    assert_string_equal(path, expected);
    struct stat state;
    assert_int_equal(stat(path, &state), 0);
    assert_int_equal(state.st_mode & 0777, 0700);
    free(path);
  }
  static const mode_t modes[] = {0710, 0701, 0740, 0704, 0720, 0702, 0777, 0700};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
    for (int make = 0; make < 2; make++) {
      assert_int_equal(chmod(expected, modes[i]), 0);
      assert_int_equal(keep_directory(make, &path, &err), modes[i] & 077 ? STATUS_FAILED : STATUS_OK);
      assert_int_equal(path == NULL, (modes[i] & 077) != 0);
      free(path);
    }
  snprintf(file, sizeof file, "%s/aside", folder);
  assert_int_equal(rename(expected, file), 0);
  for (int kind = 0; kind < 2; kind++) { /* a link, a file */
    if (kind)
      close(open(expected, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    else
      assert_int_equal(symlink(file, expected), 0);
    for (int make = 0; make < 2; make++) assert_int_equal(keep_directory(make, &path, &err), STATUS_FAILED);
    unlink(expected);
  }
  if (geteuid() == 0) { /* another user's */
    assert_int_equal(mkdir(expected, 0700), 0);
    assert_int_equal(chown(expected, 12345, 12345), 0);
    for (int make = 0; make < 2; make++) assert_int_equal(keep_directory(make, &path, &err), STATUS_FAILED);
    assert_int_equal(rmdir(expected), 0);
  }
  assert_int_equal(rename(file, expected), 0);
  static const char *const elsewhere[] = {"relative", "", "/nowhere/at/all"};
  snprintf(expected, sizeof expected, "/tmp/auk-%d", (int)geteuid());
  for (size_t i = 0; i < 3; i++) {
    setenv("XDG_RUNTIME_DIR", elsewhere[i], 1);
    const Status status = keep_directory(false, &path, &err); /* it may be there, with any rights */
    if (status == STATUS_OK)
      assert_string_equal(path, expected);
    else
      assert_non_null(strstr(err.text, expected));
    free(path);
  }
  setenv("XDG_RUNTIME_DIR", folder, 1);
}

/* --- the key */

static Buffer key_of(const AssistantFlags *flags, const Model *model) {
  Buffer key = {0};
  Error err;
  assert_int_equal(keep_key(flags, model, &key, &err), STATUS_OK);
  return key;
}

/* Two keys are equal exactly if the flags, the files and the share of the machine are. */
static void expect_key(const Buffer *first, const AssistantFlags *flags, const Model *model, bool same) {
  Buffer key = key_of(flags, model);
  assert_int_equal(key.size == first->size && memcmp(key.data, first->data, key.size) == 0, same);
  char *paths[2];
  Error err;
  assert_int_equal(keep_path("/x", first, ".sock", &paths[0], &err), STATUS_OK);
  assert_int_equal(keep_path("/x", &key, ".sock", &paths[1], &err), STATUS_OK);
  assert_int_equal(strcmp(paths[0], paths[1]) == 0, same);
  assert_int_equal(strlen(paths[0]), strlen("/x/0123456789abcdef.sock"));
  assert_string_equal(paths[0] + strlen("/x/0123456789abcdef"), ".sock");
  for (int i = 0; i < 2; i++) free(paths[i]);
  buffer_release(&key);
}

static void what_computes_otherwise_has_another_key(void **unused) {
  static const char *const files[] = {"config.json",       "model.safetensors",
                                      "tokenizer.json",    "tokenizer_config.json",
                                      "added_tokens.json", "special_tokens_map.json"};
  char command[256], path[160];
  Error err = {{0}};
  snprintf(command, sizeof command, "cp -rL test/data/stories260K-awq %s/model && chmod -R u+w %s/model",
           folder, folder);
  assert_int_equal(system(command), 0);
  snprintf(path, sizeof path, "%s/model", folder);
  AssistantFlags flags = ASSISTANT_DEFAULTS;
  flags.model.path = path;
  ModelPlace place = {0};
  Model *model;
  if (model_place_find(&flags.model, &place, &err) ||
      model_place_open_known(&place, &flags.model, &model, &err))
    fail_msg("%s", err.text);
  Buffer first = key_of(&flags, model);
  expect_key(&first, &flags, model, true);
  AssistantFlags others[16];
  size_t n = 0;
#define OTHER(member, value) others[n] = flags, others[n++].member = (value)
  OTHER(model.overrides.rope_theta, 5);
  OTHER(model.overrides.norm_eps, 1e-6);
  OTHER(device.device, 1);
  OTHER(device.gpu, "1");
  OTHER(device.split, "2");
  OTHER(device.split_by, 1);
  OTHER(device.threads, 1);
  OTHER(device.kv, 1);
  OTHER(device.act, 1);
  OTHER(device.decode_step, 1);
  OTHER(device.no_graphs, true);
  OTHER(device.gpu_memory, "1G");
  OTHER(device.kernel, "name");
  OTHER(device.invariant, true);
  for (size_t i = 0; i < n; i++) expect_key(&first, &others[i], model, false);
  OTHER(device.split, "1");
  expect_key(&first, &others[n - 1], model, true);
  setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  expect_key(&first, &flags, model, false);
  unsetenv("CUDA_VISIBLE_DEVICES");
  const pid_t child = fork();
  if (child == 0) {
    if (nice(3) == -1 && errno) _exit(1);
    expect_key(&first, &flags, model, false);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    snprintf(path, sizeof path, "%s/model/%s", folder, files[i]);
    const bool made = access(path, F_OK) != 0;
    Buffer before = key_of(&flags, model);
    if (made)
      close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    else
      assert_int_equal(utimes(path, (struct timeval[]){{1000, 0}, {1000 + (time_t)i, 0}}), 0);
    model_close(model);
    if (model_place_open_known(&place, &flags.model, &model, &err)) fail_msg("%s", err.text);
    if (strcmp(files[i], "config.json") != 0) expect_key(&before, &flags, model, false);
    if (made) unlink(path);
    buffer_release(&before);
  }
  buffer_release(&first);
  model_close(model);
  model_place_release(&place);
}

/* --- names of sockets */

static int listen_at(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(listen(listener, 0), 0);
  return listener;
}

static int count_descriptors(void) {
  int n = 0;
  for (int i = 0; i < 256; i++) n += fcntl(i, F_GETFD) >= 0;
  return n;
}

static void names_without_a_listener_are_removed(void **unused) {
  static const char *const names[] = {"a.sock", "a.sock.12", "b.sock", "b.sock.13"};
  char path[4][128], inside[96], longer[256];
  int listeners[4], connection;
  Error err;
  snprintf(inside, sizeof inside, "%s/auk", folder);
  const int before = count_descriptors();
  for (int i = 0; i < 4; i++) {
    snprintf(path[i], sizeof path[i], "%s/%s", inside, names[i]);
    listeners[i] = listen_at(path[i]);
    assert_int_equal(keep_connect(path[i], &connection, &err), STATUS_OK);
    assert_true(connection >= 0);
    close(connection);
    if (i < 2) close(listeners[i]);
  }
  assert_int_equal(keep_connect(path[0], &connection, &err), STATUS_OK);
  assert_int_equal(connection, -1);
  assert_int_equal(errno, ECONNREFUSED);
  snprintf(longer, sizeof longer, "%.90s/%0110d", inside, 1);
  assert_int_equal(keep_connect(longer, &connection, &err), STATUS_FAILED);
  const int lock = keep_lock_names(path[0]); /* while it is held, none is removed */
  assert_true(lock >= 0);
  keep_remove_stale(path[0]);
  assert_int_equal(access(path[0], F_OK), 0);
  assert_int_equal(keep_lock_names(path[0]), -1);
  close(lock);
  keep_remove_leftovers(inside);
  assert_int_equal(access(path[0], F_OK), 0); /* it was renamed: a call removes it */
  assert_true(access(path[1], F_OK) != 0);
  for (int i = 0; i < 4; i++) keep_remove_stale(path[i]);
  for (int i = 0; i < 4; i++) assert_int_equal(access(path[i], F_OK) == 0, i >= 2);
  assert_int_equal(count_descriptors(), before + 2);
  assert_int_equal(keep_lock_names("/nowhere/at/all/a.sock"), -1);
  /* whose a name is, without a connection */
  struct stat state;
  assert_int_equal(stat(path[2], &state), 0);
  assert_int_equal(keep_holder(path[2]), 0);
  int ready[2];
  assert_int_equal(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const int mark = keep_mark_holder(path[2], state.st_ino);
    if (write(ready[1], "x", 1) != 1) _exit(1);
    pause();
    _exit(mark);
  }
  assert_int_equal(read(ready[0], longer, 1), 1);
  assert_int_equal(keep_holder(path[2]), child);
  assert_int_equal(keep_holder(path[3]), 0);
  assert_int_equal(keep_holder(path[0]), 0);
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, NULL, 0), child);
  assert_int_equal(keep_holder(path[2]), 0);
  for (int i = 0; i < 2; i++) close(ready[i]), close(listeners[2 + i]);
  assert_int_equal(count_descriptors(), before);
}

int main(void) {
  snprintf(folder, sizeof folder, "/tmp/aukXXXXXX");
  if (!mkdtemp(folder) || setenv("XDG_RUNTIME_DIR", folder, 1) != 0) return 1;
  unsetenv("CUDA_VISIBLE_DEVICES");
  const struct CMUnitTest tests[] = {cmocka_unit_test(times_are_whole_seconds_and_at_least_what_was_said),
                                     cmocka_unit_test(the_directory_is_this_users_alone),
                                     cmocka_unit_test(what_computes_otherwise_has_another_key),
                                     cmocka_unit_test(names_without_a_listener_are_removed)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  char command[96];
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command) ? 1 : failed;
}
