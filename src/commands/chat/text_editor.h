/* text_editor.h - a text in the person's own editor. */
#ifndef AUK_COMMANDS_CHAT_TEXT_EDITOR_H
#define AUK_COMMANDS_CHAT_TEXT_EDITOR_H

#include "base/buffer.h"

/* Lets $VISUAL, else $EDITOR, else vi change the text, in a file of its own that is removed afterwards, and
 * waits. The newline that editors put at the end is taken off where the text had none. STATUS_FAILED where
 * the editor failed or left no UTF-8: the text is as it was then. */
Status text_edit(Buffer *text, Error *err);

#endif
