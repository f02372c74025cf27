/* formats.h - the formats of JSON Schema as languages. */
#pragma once

#include "constrain/lang/lang.h"

/* The texts of a format. *known is false for a name that no draft defines: such formats are annotations.
 * Formats that are no regular language (regex, idn-hostname) are STATUS_USAGE. */
Status format_lang(Langs *langs, const char *name, bool *known, Lang *out, Error *err);
