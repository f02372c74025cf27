/* lost_file.h - what becomes of the program when a file that it has mapped cannot be read any more. */
#ifndef AUK_COMMANDS_LOST_FILE_H
#define AUK_COMMANDS_LOST_FILE_H

/* From here on a mapped file that is cut while it is in use (or whose disk fails) ends the program as any
 * other failure does, with one line on standard error and STATUS_FAILED, where the kernel would end it by
 * SIGBUS. */
void lost_file_catch(void);

#endif
