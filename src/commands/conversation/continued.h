/* continued.h - continues a kept chat, on a terminal or with one prompt, and saves the result. Call in this
 * order: continued_open(), assistant_open() with `flags`, continued_begin(), continued_keep() after each
 * change of the conversation. */
#pragma once

#include "commands/answer/answer_result.h"
#include "commands/conversation/kept_chat.h"

typedef struct {
  AssistantFlags flags; /* the command line's flags, with model, template and --think of the chat */
  bool keeps;           /* the conversation is written; set by the caller */
  bool goes_on;         /* a kept chat was opened */
  bool model_is_chats;  /* the command line names no model: the chat's model is used */
  KeptChat kept;
  ConversationHead head; /* head of the file: as it was opened, later as it is written */
  bool failed;           /* a failure was reported: continued_keep() reports no other */
} Continued;             /* starts zeroed */

/* Opens the chat of --continue (`resume`), if that is given: the chat that it names, else the last chat. The
 * chat's own model, template and --think apply unless flags name others. If -m is given and the chat's file
 * names a model, none of the three applies. */
Status continued_open(Continued *continued, const OptionalText *resume, const AssistantFlags *flags,
                      Conversation *conversation, Error *err);
/* Adds advice to the failure of assistant_open() if the model is the chat's. */
Status continued_refuse(const Continued *continued, Status status, Error *err);
/* Takes model, template and the message of -sys from the open assistant. If a kept chat goes on, -sys of the
 * settings file is not taken. *note has a text if the chat continues with another model. */
Status continued_begin(Continued *continued, const Assistant *assistant, Conversation *conversation,
                       Error *note, Error *err);
Status continued_add_answer(const Continued *continued, Conversation *conversation, const AnswerText *answer,
                            Error *err);
/* Writes the conversation if it is to be kept. *note has a text if there is news for the user: the first
 * failure, which stops nothing, or that the chat has another name now. */
void continued_keep(Continued *continued, const Assistant *assistant, const Conversation *conversation,
                    Error *note);
void continued_release(Continued *continued);
