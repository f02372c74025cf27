/* sigbus.h - reports SIGBUS from mapped files. */
#ifndef AUK_COMMANDS_SIGBUS_H
#define AUK_COMMANDS_SIGBUS_H

/* From this call on, a mapped file that is truncated while in use, or whose disk fails, ends the program with
 * one line on standard error and STATUS_FAILED instead of SIGBUS. */
void sigbus_catch(void);

#endif
