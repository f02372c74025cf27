/* spinner.h - a line on a terminal while the program waits for something: a sign that turns, and perhaps a
 * text. The line appears after 0.3 s, not in shorter waits; spinner_end() erases it. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

typedef struct {
  bool is_on; /* false: nothing is shown */
  bool turns; /* a thread turns the sign; false: the text alone, drawn when it changes */
  bool dim;
  int screen;                      /* descriptor of a terminal that understands escape sequences */
  const volatile int *interrupted; /* once set, the line is erased soon and for good; or NULL */

  bool running, has_thread, drawn;
  double began_ms;
  unsigned turn;
  char text[80];
  pthread_t thread;
  pthread_mutex_t lock; /* guards running, drawn, turn and text while the thread runs */
  pthread_cond_t end;   /* `running` has become false */
} Spinner;              /* set the members above the blank line, zero the rest */

/* Between begin and end nothing else may write to the terminal. If no thread can be made, nothing turns. */
void spinner_begin(Spinner *spinner);
void spinner_end(Spinner *spinner); /* erases the line; does nothing if the spinner does not run */
/* Sets the text, ASCII; does nothing if the spinner does not run. */
void spinner_say(Spinner *spinner, const char *format, ...) __attribute__((format(printf, 2, 3)));
