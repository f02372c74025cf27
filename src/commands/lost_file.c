/* lost_file.c - see lost_file.h.
 *
 * Called by: main.c.   Calls: base/status.h.
 * Weights are read through mappings, and a page behind the end that a file has by then is a SIGBUS and no
 * failed read. Checking sizes beforehand leaves the time between the check and the read; so it is the signal
 * that is told of. Which file it was the kernel says (proc(5), /proc/PID/maps), so that nobody here keeps a
 * list.
 * Always true: a fault that is no mapped file's, and a signal that somebody sent, end the program as they
 *              did. */
#include "commands/lost_file.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

/* A line of maps: "START-END PERMISSIONS OFFSET DEVICE INODE   PATH", the first three numbers hexadecimal. */
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

/* Whether the address is in the mapping of this line, of which file and which of its bytes. */
static bool line_has(const char *line, uint64_t address, const char **path, uint64_t *byte) {
  const char *at = line;
  uint64_t start = take_hex(&at);
  at += *at == '-';
  uint64_t end = take_hex(&at);
  if (address < start || address >= end) return false;
  pass_word(&at); /* what is left of the addresses */
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

static void tell(const char *path, uint64_t byte) {
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

/* It is raised by an instruction that reads a file's bytes, in any thread, and never in the midst of a call
 * that must not be interrupted: of what is called here only error_set() is not on POSIX's list, which formats
 * into memory of its own. */
static void on_bus_error(int number, siginfo_t *fault, void *context) {
  (void)context;
  static atomic_flag told = ATOMIC_FLAG_INIT;
  char line[LONGEST_LINE];
  const char *path;
  uint64_t byte;
  if (fault->si_code > 0 && find_mapping((uint64_t)(uintptr_t)fault->si_addr, line, &path, &byte) &&
      *path == '/') {
    while (atomic_flag_test_and_set(&told)) pause(); /* other threads come here too */
    tell(path, byte);
    _exit(STATUS_FAILED);
  }
  signal(number, SIG_DFL); /* a fault comes again by itself */
  if (fault->si_code <= 0) raise(number);
}

void lost_file_catch(void) {
  struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
  sigfillset(&action.sa_mask);
  sigaction(SIGBUS, &action, NULL);
}
