/* text_editor.h - edits a text in the user's editor. */
#pragma once

#include "base/buffer.h"

/* Runs $VISUAL, else $EDITOR, else vi on the text in a temporary file, and waits. Removes a final newline
 * that the text did not have. STATUS_FAILED if the editor failed or left invalid UTF-8: the text is then
 * unchanged. */
Status text_edit(Buffer *text, Error *err);
