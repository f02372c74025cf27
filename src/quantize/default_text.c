/* default_text.c - see default_text.h. The assembler includes calibration.txt byte for byte. */
#include "quantize/default_text.h"

__asm__(".section .rodata\n"
        ".global default_text, default_text_size\n"
        "default_text:\n"
        ".incbin \"src/quantize/calibration.txt\"\n"
        "default_text_end:\n"
        ".balign 8\n"
        "default_text_size:\n"
        ".quad default_text_end - default_text\n"
        ".text\n");
