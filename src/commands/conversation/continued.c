/* continued.c - see continued.h.   Called by: chat.c, dialogue.c, run.c. */
#include "commands/conversation/continued.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static void take_flags(Continued *c, const AssistantFlags *flags) {
  const ConversationHead *head = &c->head;
  c->model_is_chats = head->model && !flags->model.path;
  if (c->model_is_chats) c->flags.model.path = head->model;
  if (head->model && !c->model_is_chats) return; /* the template of another model may not fit */
  if ((head->chat_template || c->model_is_chats) &&
      (flags->chat.template_is_usual || !flags->chat.chat_template))
    c->flags.chat.chat_template = head->chat_template;
  if (head->think && (flags->chat.think_is_usual || !(flags->chat.think || flags->chat.no_think))) {
    c->flags.chat.think = head->think == THINK_YES;
    c->flags.chat.no_think = head->think == THINK_NO;
  }
}

Status continued_open(Continued *c, const OptionalText *resume, const AssistantFlags *flags,
                      Conversation *conversation, Error *err) {
  c->flags = *flags;
  if (!resume->given) return STATUS_OK;
  TRY(kept_open(resume->text, &c->kept, conversation, &c->head, err));
  c->goes_on = true;
  take_flags(c, flags);
  return STATUS_OK;
}

Status continued_refuse(const Continued *c, Status status, Error *err) {
  if (status != STATUS_MODEL || !c->model_is_chats) return status;
  const Error reason = *err;
  return error_set(err, status, "%s (the model of this chat; -m MODEL goes on with another)", reason.text);
}

/* The value of --chat-template, in new memory, with a file's path made absolute; NULL if it is not given. */
static Status lasting_template(const Assistant *a, char **lasting, Error *err) {
  const char *given = a->flags->chat.chat_template;
  char *whole = given && file_exists(given) ? realpath(given, NULL) : NULL;
  *lasting = whole ? whole : given ? path_join("", given, err) : NULL;
  return given && !*lasting ? STATUS_FAILED : STATUS_OK;
}

Status continued_begin(Continued *c, const Assistant *a, Conversation *conversation, Error *note,
                       Error *err) {
  const bool own_system = c->goes_on && c->flags.chat.system_is_usual;
  ConversationHead head = {.model = model_place_lasting(&a->place, err)};
  *note = (Error){{0}};
  if (!head.model) return STATUS_FAILED;
  if (c->head.model && strcmp(c->head.model, head.model) != 0 &&
      !model_is_same(c->head.model, a->place.given))
    error_set(note, STATUS_OK, "this chat was with %s; %s goes on with it", c->head.model, head.model);
  Status status = lasting_template(a, &head.chat_template, err);
  if (status == STATUS_OK && a->has_system && !own_system)
    status = conversation_set_system(conversation, a->system.data, a->system.size, err);
  if (!c->model_is_chats) {
    conversation_head_release(&c->head);
    c->head = head;
    return status;
  }
  free(c->head.chat_template); /* c->head.model stays: the assistant's flags point to it */
  c->head.chat_template = head.chat_template;
  c->flags.chat.chat_template = head.chat_template;
  free(head.model);
  return status;
}

Status continued_add_answer(const Continued *c, Conversation *conversation, const AnswerText *answer,
                            Error *err) {
  const Buffer *thinking = &answer->thinking;
  TRY(conversation_add(conversation, ROLE_ASSISTANT, answer->text.data, answer->text.size, err));
  Message *message = &conversation->messages[conversation->count - 1];
  if (thinking->size) TRY(buffer_append(&message->thinking, thinking->data, thinking->size, err));
  return c->head.model ? buffer_append_string(&message->model, c->head.model, err) : STATUS_OK;
}

void continued_keep(Continued *c, const Assistant *a, const Conversation *conversation, Error *note) {
  Error reason = {{0}};
  bool moved = false;
  *note = (Error){{0}};
  if (!c->keeps) return;
  ConversationHead head = c->head;
  head.think = a->think;
  if (kept_save(&c->kept, conversation, head, &moved, &reason) != STATUS_OK && !c->failed) {
    c->failed = true;
    error_set(note, STATUS_OK, "this chat is not kept: %s (--no-history says nothing)", reason.text);
  } else if (moved && c->kept.path) {
    error_set(note, STATUS_OK, "another auk has written to this chat: it goes on as %s", c->kept.path);
  }
}

void continued_release(Continued *c) {
  kept_release(&c->kept);
  conversation_head_release(&c->head);
}
