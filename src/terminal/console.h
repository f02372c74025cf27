/* console.h - the terminal while a person chats: its settings, which always come back, and its signals as
 * events.
 *
 * While the line editor reads, it owns the terminal's settings; while an answer comes, what is typed is not
 * echoed into it (the editor finds it afterwards). Whatever ends or stops the program (an end, SIGTERM,
 * SIGHUP, SIGQUIT, Ctrl-Z, a crash) puts the settings back that were there at console_begin().
 *
 * SIGINT sets the flag that stops answers and is an event for the editor; three that nobody attends to end
 * the program. SIGTERM and SIGHUP stop the answer, too, and end the chat; a second one ends the program. */
#ifndef AUK_TERMINAL_CONSOLE_H
#define AUK_TERMINAL_CONSOLE_H

#include <stdbool.h>

#include "base/status.h"

/* Takes descriptor 0, a terminal, and the signals. `screen` is the descriptor of the terminal that is written
 * to; `ansi` whether it takes escape sequences. */
Status console_begin(int screen, bool ansi, Error *err);
void console_end(void); /* gives all of it back; nothing happens where it was not taken */

typedef enum {
  CONSOLE_IDLE,      /* as it was found */
  CONSOLE_EDITING,   /* the line editor sets it */
  CONSOLE_ANSWERING, /* no echo */
} ConsoleMode;
void console_mode(ConsoleMode mode);

const volatile int *console_interrupted(void); /* not 0: stop */
void console_attend(void);                     /* the interruption has been heeded: the flag is 0 again */
bool console_leaving(void);                    /* SIGTERM or SIGHUP came */

typedef enum {
  CONSOLE_KEYS,
  CONSOLE_INTERRUPT,
  CONSOLE_RESIZED,
  CONSOLE_RESUMED,
  CONSOLE_LEAVE
} ConsoleEvent;
/* Waits for the first of: something to read on descriptor 0 (or its end), a signal. */
ConsoleEvent console_wait(void);

int console_columns(void); /* of the screen; 80 where it does not say */
int console_rows(void);    /* 24 */

#endif
