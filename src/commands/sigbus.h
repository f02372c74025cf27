/* sigbus.h - reports SIGBUS from mapped files. */
#pragma once

/* From this call on, a mapped file that is truncated while in use, or whose disk fails, ends the program with
 * one line on standard error and STATUS_FAILED instead of SIGBUS. */
void sigbus_catch(void);
