/* console.h - the terminal's settings and signals during a chat.
 *
 * While the line editor reads, it sets the terminal; while an answer is printed, typed text is not echoed
 * (the editor reads it later). However the program ends or stops (exit, SIGTERM, SIGHUP, SIGQUIT, Ctrl-Z, a
 * crash), the settings from before console_begin() are restored.
 *
 * SIGINT sets the flag that stops answers and is an event for the editor; three SIGINTs without
 * console_attend() end the program. SIGTERM and SIGHUP stop the answer and end the chat; a second SIGTERM
 * or SIGHUP ends the program. */
#pragma once

#include <stdbool.h>

#include "base/status.h"

/* Takes over descriptor 0, a terminal, and the signals. `screen` is the terminal's descriptor for output;
 * `ansi` is whether it understands escape sequences. */
Status console_begin(int screen, bool ansi, Error *err);
void console_end(void); /* undoes console_begin(); does nothing without it */

typedef enum {
  CONSOLE_IDLE,      /* the settings from before console_begin() */
  CONSOLE_EDITING,   /* the line editor's settings */
  CONSOLE_ANSWERING, /* no echo; Ctrl-C drops unread keys, but not text that is still to be shown */
} ConsoleMode;
void console_mode(ConsoleMode mode);

const volatile int *console_interrupted(void); /* not 0: stop */
void console_attend(void);                     /* resets the flag, unless console_leaving() */
bool console_leaving(void);                    /* SIGTERM or SIGHUP came */

typedef enum {
  CONSOLE_KEYS,
  CONSOLE_INTERRUPT,
  CONSOLE_RESIZED,
  CONSOLE_RESUMED,
  CONSOLE_LEAVE
} ConsoleEvent;
/* Waits for input on descriptor 0 (or its end) or a signal. */
ConsoleEvent console_wait(void);

int terminal_columns(int descriptor); /* of a terminal; 0 if unknown */
int console_columns(void);            /* of the screen; 80 if unknown or 1 */
int console_rows(void);               /* 24 if unknown */
