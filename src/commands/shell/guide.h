/* guide.h - the sections of auk(1) that explain how the flags work together: chat, pipes, --map, the prompt
 * cache, devices, and what other programs call the same flags. */
#ifndef AUK_COMMANDS_SHELL_GUIDE_H
#define AUK_COMMANDS_SHELL_GUIDE_H

#include <stddef.h>

/* Paragraphs are separated by empty lines; a line that begins with a space is printed as it stands. */
typedef struct {
  const char *title, *text;
} GuideSection;
extern const GuideSection guide[];
extern const size_t n_guide;

#endif
