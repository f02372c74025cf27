/* spinner.c - see spinner.h.
 *
 * Always true: each drawing is one write. It leaves the cursor at the beginning of the line, so that an
 *              unexpected message overwrites the line. The thread takes no signals. */
#include "terminal/spinner.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/clock.h"
#include "terminal/console.h"
#include "terminal/word_wrap.h"

enum { FIRST_MS = 300, TURN_MS = 100 };

static const char *const signs[] = {"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"};
static const char *const plain_signs[] = {"|", "/", "-", "\\"};

/* Erases the line if it is drawn. PRECOND the lock is held, or the thread has ended */
static void erase(Spinner *s) {
  static const char line[] = "\r\033[K";
  if (s->drawn && write(s->screen, line, sizeof line - 1) < 0) return;
  s->drawn = false;
}

static bool is_hushed(const Spinner *s) {
  return s->interrupted && *s->interrupted;
}

/* Draws the line unless interrupted. PRECOND the lock is held */
static void draw(Spinner *s) {
  char line[200];
  if (is_hushed(s)) return;
  const bool has_signs = wcwidth(L'\u280B') == 1;
  const char *sign = !s->turns   ? ""
                     : has_signs ? signs[s->turn % (sizeof signs / sizeof *signs)]
                                 : plain_signs[s->turn % (sizeof plain_signs / sizeof *plain_signs)];
  const int columns = terminal_columns(s->screen), most = columns >= 2 ? columns - 3 : (int)sizeof s->text;
  const int n = snprintf(line, sizeof line, "\r%s%s%s%.*s%s\033[K\r", s->dim ? style_begin(STYLE_DIM) : "",
                         sign, s->turns && *s->text ? " " : "", most > 0 ? most : 0, s->text,
                         s->dim ? style_end(STYLE_DIM) : "");
  s->drawn = true;
  if (write(s->screen, line, (size_t)n) < 0) return; /* the answer's writer will report the failure */
}

static bool is_due(const Spinner *s) {
  return clock_ms() - s->began_ms >= FIRST_MS;
}

static void *turn(void *spinner) {
  Spinner *s = spinner;
  pthread_mutex_lock(&s->lock);
  while (s->running) {
    const struct timespec until = clock_after(CLOCK_REALTIME, TURN_MS);
    if (pthread_cond_timedwait(&s->end, &s->lock, &until) != ETIMEDOUT || !s->running || !is_due(s)) continue;
    if (is_hushed(s)) erase(s);
    if (!s->turns) continue;
    s->turn++;
    draw(s);
  }
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

void spinner_begin(Spinner *s) {
  sigset_t all, before;
  if (!s->is_on) return;
  s->running = true;
  s->drawn = false;
  s->text[0] = 0;
  s->began_ms = clock_ms();
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->end, NULL);
  if (!s->turns && !s->interrupted) return;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  s->has_thread = pthread_create(&s->thread, NULL, turn, s) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void spinner_end(Spinner *s) {
  if (!s->running) return;
  pthread_mutex_lock(&s->lock);
  s->running = false;
  pthread_cond_signal(&s->end);
  pthread_mutex_unlock(&s->lock);
  if (s->has_thread) pthread_join(s->thread, NULL);
  s->has_thread = false;
  pthread_cond_destroy(&s->end);
  pthread_mutex_destroy(&s->lock);
  erase(s);
}

void spinner_say(Spinner *s, const char *format, ...) {
  char text[sizeof s->text];
  if (!s->running) return;
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  pthread_mutex_lock(&s->lock);
  const bool changed = strcmp(text, s->text) != 0;
  memcpy(s->text, text, sizeof text);
  if (changed && is_due(s)) draw(s);
  pthread_mutex_unlock(&s->lock);
}
