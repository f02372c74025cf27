/* sigbus.c - see sigbus.h.   Called by: main.c.
 *
 * Weights are read through mappings. Reading a page past the current end of the file raises SIGBUS, where
 * read() would fail. No earlier check of the size can exclude that. The handler finds the file in
 * /proc/self/maps (proc(5)), so no list of mappings is needed.
 * Always true: a fault outside of mapped files, or a signal sent by another process, ends the program as it
 *              would without the handler. */
#include "commands/sigbus.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

/* A line of maps is "START-END PERMISSIONS OFFSET DEVICE INODE   PATH", the first three numbers in
 * hexadecimal. */
enum { LONGEST_LINE = 4096 + 128 };

static uint64_t take_hex(const char **at) {
  uint64_t value = 0;
  for (;; ++*at) {
    const char *digits = "0123456789abcdef", *digit = **at ? strchr(digits, **at) : NULL;
    if (!digit) return value;
    value = value << 4 | (uint64_t)(digit - digits);
  }
}

static void pass_word(const char **at) {
  while (**at && **at != ' ') ++*at;
  while (**at == ' ') ++*at;
}

/* True if the line's mapping contains the address; if so, sets the file's path and the byte's offset in
 * it. */
static bool line_has(const char *line, uint64_t address, const char **path, uint64_t *byte) {
  const char *at = line;
  uint64_t start = take_hex(&at);
  at += *at == '-';
  uint64_t end = take_hex(&at);
  if (address < start || address >= end) return false;
  pass_word(&at); /* rest of the addresses */
  pass_word(&at); /* permissions */
  *byte = take_hex(&at) + (address - start);
  pass_word(&at);
  pass_word(&at); /* device */
  pass_word(&at); /* inode */
  *path = at;
  return true;
}

static bool find_mapping(uint64_t address, char line[LONGEST_LINE], const char **path, uint64_t *byte) {
  int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return false;
  char chunk[4096];
  size_t length = 0;
  bool found = false;
  for (ssize_t n; !found && (n = read(maps, chunk, sizeof chunk)) > 0;) {
    for (ssize_t i = 0; i < n && !found; i++) {
      if (chunk[i] != '\n') {
        if (length < LONGEST_LINE - 1) line[length++] = chunk[i];
        continue;
      }
      line[length] = 0;
      length = 0;
      found = line_has(line, address, path, byte);
    }
  }
  close(maps);
  return found;
}

static void report(const char *path, uint64_t byte) {
  Error err;
  struct stat now;
  if (stat(path, &now) == 0 && (uint64_t)now.st_size <= byte)
    error_set(&err, STATUS_FAILED, "%s was cut to %llu bytes while it was in use", path,
              (unsigned long long)now.st_size);
  else
    error_set(&err, STATUS_FAILED,
              "%s: byte %llu cannot be read any more: the file was cut short or its disk fails", path,
              (unsigned long long)byte);
  char message[sizeof err.text + 8] = "auk: ";
  strcat(strcat(message, err.text), "\n");
  if (write(STDERR_FILENO, message, strlen(message)) < 0) return;
}

/* Handles a fault in an instruction that reads a mapped file, in any thread; such reads are never within a
 * function that is not reentrant. All calls here are async-signal-safe except error_set(), which formats into
 * a local Error. */
static void on_bus_error(int number, siginfo_t *fault, void *context) {
  static atomic_flag reported = ATOMIC_FLAG_INIT;
  char line[LONGEST_LINE];
  const char *path;
  uint64_t byte;
  if (fault->si_code > 0 && find_mapping((uint64_t)(uintptr_t)fault->si_addr, line, &path, &byte) &&
      *path == '/') {
    while (atomic_flag_test_and_set(&reported))
      pause(); /* other threads may fault too: only the first reports */
    report(path, byte);
    _exit(STATUS_FAILED);
  }
  signal(number, SIG_DFL); /* a fault repeats by itself */
  if (fault->si_code <= 0) raise(number);
}

void sigbus_catch(void) {
  struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
  sigfillset(&action.sa_mask);
  sigaction(SIGBUS, &action, NULL);
}
