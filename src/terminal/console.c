/* console.c - see console.h.
 *
 * Always true: the one mutable global is shared with signal handlers; handlers call only async-signal-safe
 *              functions. A handler may run in any thread, so it wakes console_wait() through a pipe. */
#include "terminal/console.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static const int taken[] = {SIGINT,  SIGTERM, SIGHUP,  SIGWINCH, SIGTSTP, SIGCONT,
                            SIGQUIT, SIGABRT, SIGSEGV, SIGBUS,   SIGILL,  SIGFPE};
enum { N_TAKEN = sizeof taken / sizeof *taken, PATIENCE = 3 /* interruptions */, CTRL_D = 4 };

static struct {
  bool open, ansi;
  int screen, wake[2];
  struct termios found, answering;  /* the terminal's settings: at console_begin(); during an answer */
  struct sigaction before[N_TAKEN]; /* earlier actions of the signals taken[i] */
  volatile sig_atomic_t mode;
  volatile int interrupted; /* SIGINTs since console_attend(); SIGTERM and SIGHUP set it to 1 */
  volatile sig_atomic_t interrupt, leaving, ended, resized, resumed; /* ended: Ctrl-D after the interrupt */
} console;

/* --- in handlers */

static void wake(void) {
  char byte = 0;
  if (write(console.wake[1], &byte, 1) < 0) return; /* a full pipe also wakes the reader */
}

static void put_back(void) {
  static const char calm[] = "\033[?2004l\033[0m"; /* bracketed paste off, default colours */
  if (console.mode == CONSOLE_IDLE) return;
  tcsetattr(STDIN_FILENO, TCSANOW, &console.found);
  if (console.ansi && write(console.screen, calm, sizeof calm - 1) < 0) return;
}

/* Restores the terminal and passes a signal on: SIGINT, SIGTERM and SIGHUP now end the program, other signals
 * get their earlier action. A fault comes again when its instruction is repeated. */
static void hand_on(int number, bool fault) {
  put_back();
  for (int i = 0; i < N_TAKEN; i++)
    if (taken[i] == number) sigaction(number, &console.before[i], NULL);
  if (number == SIGINT || number == SIGTERM || number == SIGHUP) signal(number, SIG_DFL);
  if (!fault) raise(number); /* delivered when the handler returns */
}

static void stop(void) {
  struct termios now;
  bool known = tcgetattr(STDIN_FILENO, &now) == 0;
  put_back();
  struct sigaction standard = {.sa_handler = SIG_DFL}, ours;
  sigset_t one, before;
  sigemptyset(&standard.sa_mask);
  sigemptyset(&one);
  sigaddset(&one, SIGTSTP);
  sigaction(SIGTSTP, &standard, &ours);
  raise(SIGTSTP);
  pthread_sigmask(SIG_UNBLOCK, &one, &before); /* the process stops here until SIGCONT */
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  sigaction(SIGTSTP, &ours, NULL);
  if (known) tcsetattr(STDIN_FILENO, TCSANOW, &now);
  console.resumed = 1;
  wake();
}

/* Drops the keys that were typed before Ctrl-C, since with NOFLSH the terminal keeps them. If the handler
 * runs late, it also drops keys typed after Ctrl-C, but a Ctrl-D at their end counts. */
static void drop_keys(void) {
  struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};
  char bytes[256];
  for (ssize_t n; poll(&keys, 1, 0) > 0 && (n = read(STDIN_FILENO, bytes, sizeof bytes)) > 0;)
    console.ended = bytes[n - 1] == CTRL_D;
}

static void on_signal(int number, siginfo_t *from, void *context) {
  int saved = errno;
  switch (number) {
  case SIGINT:
    console.interrupt = 1;
    if (console.mode == CONSOLE_ANSWERING && from->si_code == SI_KERNEL) drop_keys();
    if (++console.interrupted >= PATIENCE) hand_on(number, false);
    break;
  case SIGTERM:
  case SIGHUP:
    if (console.leaving) hand_on(number, false);
    console.leaving = 1;
    console.interrupted = 1;
    break;
  case SIGWINCH: console.resized = 1; break;
  case SIGTSTP: stop(); break;
  case SIGCONT:
    if (console.mode == CONSOLE_ANSWERING) tcsetattr(STDIN_FILENO, TCSANOW, &console.answering);
    console.resumed = 1;
    break;
  default: hand_on(number, from->si_code > 0 && number != SIGQUIT && number != SIGABRT);
  }
  wake();
  errno = saved;
}

/* --- outside handlers */

Status console_begin(int screen, bool ansi, Error *err) {
  if (tcgetattr(STDIN_FILENO, &console.found))
    return error_set(err, STATUS_FAILED, "standard input: cannot read the terminal's settings: %s",
                     strerror(errno));
  if (pipe2(console.wake, O_NONBLOCK | O_CLOEXEC))
    return error_set(err, STATUS_FAILED, "cannot open a pipe for signals: %s", strerror(errno));
  console.answering = console.found;
  /* Not canonical: the editor reads the keys typed during an answer later, and a canonical terminal would
   * consume a Ctrl-D among them. */
  console.answering.c_lflag &= (tcflag_t) ~(ECHO | ECHONL | ICANON);
  console.answering.c_cc[VMIN] = 1;
  console.answering.c_cc[VTIME] = 0;
  console.answering.c_lflag |= NOFLSH; /* Ctrl-C must not drop words that the terminal has yet to show */
  console.screen = screen;
  console.ansi = ansi;
  console.open = true;
  struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_RESTART | SA_SIGINFO};
  sigfillset(&action.sa_mask);
  for (int i = 0; i < N_TAKEN; i++) {
    sigaction(taken[i], NULL, &console.before[i]);
    bool ignored = console.before[i].sa_handler == SIG_IGN;
    if (ignored && (taken[i] == SIGHUP || taken[i] == SIGTSTP)) continue; /* nohup; no job control */
    sigaction(taken[i], &action, NULL);
  }
  return STATUS_OK;
}

void console_end(void) {
  if (!console.open) return;
  put_back();
  console.mode = CONSOLE_IDLE;
  for (int i = 0; i < N_TAKEN; i++) sigaction(taken[i], &console.before[i], NULL);
  close(console.wake[0]);
  close(console.wake[1]);
  console.open = false;
}

void console_mode(ConsoleMode mode) {
  if (!console.open) return;
  if (mode == CONSOLE_ANSWERING) tcsetattr(STDIN_FILENO, TCSADRAIN, &console.answering);
  if (mode == CONSOLE_IDLE) tcsetattr(STDIN_FILENO, TCSADRAIN, &console.found);
  console.mode = mode;
}

const volatile int *console_interrupted(void) {
  return &console.interrupted;
}

void console_attend(void) {
  console.interrupt = 0;
  console.interrupted = console.leaving;
}

bool console_leaving(void) {
  return console.leaving;
}

static bool take(volatile sig_atomic_t *flag) {
  bool was = *flag;
  *flag = 0;
  return was;
}

ConsoleEvent console_wait(void) {
  for (;;) {
    char bytes[64];
    while (read(console.wake[0], bytes, sizeof bytes) > 0) continue;
    if (console.leaving) return CONSOLE_LEAVE;
    if (!console.interrupt && take(&console.ended)) return CONSOLE_LEAVE;
    if (take(&console.interrupt)) {
      console_attend();
      return CONSOLE_INTERRUPT;
    }
    if (take(&console.resumed)) return CONSOLE_RESUMED;
    if (take(&console.resized)) return CONSOLE_RESIZED;
    struct pollfd ready[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                             {.fd = console.wake[0], .events = POLLIN}};
    if (poll(ready, 2, -1) < 0 && errno != EINTR && errno != EAGAIN) return CONSOLE_LEAVE;
    /* If Ctrl-C and keys come together, poll() may see the keys before the handler runs. They were typed
     * after Ctrl-C, since the terminal drops unread input at Ctrl-C. */
    if (console.interrupt || console.leaving) continue;
    if (ready[0].revents && !ready[1].revents) return CONSOLE_KEYS;
  }
}

static struct winsize window_of(int descriptor) {
  struct winsize size = {0};
  if (ioctl(descriptor, TIOCGWINSZ, &size)) size = (struct winsize){0};
  return size;
}

int terminal_columns(int descriptor) {
  return window_of(descriptor).ws_col;
}

int console_columns(void) {
  int columns = terminal_columns(console.screen);
  return columns < 2 ? 80 : columns;
}

int console_rows(void) {
  int rows = window_of(console.screen).ws_row;
  return rows < 1 ? 24 : rows;
}
