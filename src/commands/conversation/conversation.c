/* conversation.c - see conversation.h. */
#include "commands/conversation/conversation.h"

#include <stdlib.h>
#include <string.h>

static const char *const role_names[] = {
    [ROLE_SYSTEM] = "system", [ROLE_USER] = "user", [ROLE_ASSISTANT] = "assistant", [ROLE_TOOL] = "tool"};

const char *role_name(Role role) {
  return role_names[role];
}

bool role_find(const char *text, size_t size, Role *role) {
  for (size_t i = 0; i < sizeof role_names / sizeof *role_names; i++) {
    if (strlen(role_names[i]) != size || memcmp(role_names[i], text, size) != 0) continue;
    *role = (Role)i;
    return true;
  }
  return false;
}

/* --- messages */

static Status insert(Conversation *c, size_t at, Role role, const char *text, size_t size, Error *err) {
  TRY(mem_grow(&c->messages, &c->capacity, c->count + 1, sizeof *c->messages, "a conversation", err));
  Message message = {.role = role};
  if (size) TRY(buffer_append(&message.text, text, size, err));
  memmove(c->messages + at + 1, c->messages + at, (c->count - at) * sizeof *c->messages);
  c->messages[at] = message;
  c->count++;
  return STATUS_OK;
}

Status conversation_add(Conversation *c, Role role, const char *text, size_t size, Error *err) {
  return insert(c, c->count, role, text, size, err);
}

const Message *conversation_system(const Conversation *c) {
  return c->count && c->messages[0].role == ROLE_SYSTEM ? &c->messages[0] : NULL;
}

Status conversation_set_system(Conversation *c, const char *text, size_t size, Error *err) {
  bool had = conversation_system(c) != NULL;
  if (size) TRY(insert(c, 0, ROLE_SYSTEM, text, size, err));
  if (had) conversation_drop(c, size ? 1 : 0, 1);
  return STATUS_OK;
}

void conversation_drop(Conversation *c, size_t first, size_t n) {
  for (size_t i = first; i < first + n; i++) {
    buffer_release(&c->messages[i].text);
    buffer_release(&c->messages[i].thinking);
    buffer_release(&c->messages[i].members);
    buffer_release(&c->messages[i].model);
  }
  size_t after = c->count - first - n;
  if (after) memmove(c->messages + first, c->messages + first + n, after * sizeof *c->messages);
  c->count -= n;
}

void conversation_truncate(Conversation *c, size_t count) {
  if (count < c->count) conversation_drop(c, count, c->count - count);
}

Status conversation_append(Conversation *c, const Conversation *from, size_t first, size_t end, Error *err) {
  for (size_t i = first; i < end; i++) {
    const Message *m = &from->messages[i];
    TRY(conversation_add(c, m->role, m->text.data, m->text.size, err));
    Message *copy = &c->messages[c->count - 1];
    if (m->thinking.size) TRY(buffer_append(&copy->thinking, m->thinking.data, m->thinking.size, err));
    if (m->members.size) TRY(buffer_append(&copy->members, m->members.data, m->members.size, err));
    if (m->model.size) TRY(buffer_append(&copy->model, m->model.data, m->model.size, err));
  }
  return STATUS_OK;
}

void conversation_release(Conversation *c) {
  conversation_truncate(c, 0);
  free(c->messages);
  *c = (Conversation){0};
}

/* --- turns */

size_t conversation_next_turn(const Conversation *c, size_t from) {
  while (from < c->count && c->messages[from].role != ROLE_USER) from++;
  return from;
}

size_t conversation_last_turn(const Conversation *c) {
  for (size_t i = c->count; i > 0; i--)
    if (c->messages[i - 1].role == ROLE_USER) return i - 1;
  return c->count;
}

size_t conversation_n_turns(const Conversation *c) {
  size_t n = 0;
  for (size_t i = 0; i < c->count; i++) n += c->messages[i].role == ROLE_USER;
  return n;
}

Status conversation_view(const Conversation *c, size_t first, ChatMessage **view, size_t *n, Error *err) {
  size_t leading = conversation_next_turn(c, 0);
  *n = 0;
  TRY(NEW(*view, c->count, "a conversation", err));
  for (size_t i = 0; i < c->count; i++) {
    const Message *m = &c->messages[i];
    if (i >= leading && i < first) continue;
    (*view)[(*n)++] = (ChatMessage){
        .role = role_name(m->role),
        .text = m->text.size ? m->text.data : "",
        .size = m->text.size,
        .thinking = m->thinking.size ? m->thinking.data : NULL,
        .thinking_size = m->thinking.size,
        .members = m->members.size ? m->members.data : NULL,
        .members_size = m->members.size,
    };
  }
  return STATUS_OK;
}

/* --- splicing */

/* A walk along the text of a list of ids. Tokens are compared by their content in the vocabulary: equal
 * sequences of contents are equal texts, also in a byte-level vocabulary. Byte tokens (<0xNN>) and special
 * tokens equal only themselves. */
typedef struct {
  const Tokenizer *tokenizer;
  const IdList *list;
  size_t at;        /* index of the next id */
  const char *text; /* [left] rest of the previous id's content */
  size_t left;
} Walk;

static bool stands_for_itself(const Tokenizer *tokenizer, int32_t id, const char *content, size_t size) {
  return !content || size == 0 || tokenizer_is_special(tokenizer, id) ||
         (size == 6 && memcmp(content, "<0x", 3) == 0 && content[5] == '>');
}

/* Starts the next id's content; false at the end or for a token that equals only itself. */
static bool take_next(Walk *walk) {
  if (walk->at == walk->list->count) return false;
  int32_t id = walk->list->ids[walk->at];
  walk->text = tokenizer_content(walk->tokenizer, id, &walk->left);
  if (stands_for_itself(walk->tokenizer, id, walk->text, walk->left)) return false;
  walk->at++;
  return true;
}

/* Advances both walks to their next common token boundary; false if there is none. */
static bool walk_on(Walk *a, Walk *b) {
  if (a->at == a->list->count || b->at == b->list->count) return false;
  if (a->list->ids[a->at] == b->list->ids[b->at]) {
    a->at++;
    b->at++;
    return true;
  }
  a->left = b->left = 0;
  do {
    if (a->left == 0 && !take_next(a)) return false;
    if (b->left == 0 && !take_next(b)) return false;
    size_t n = a->left < b->left ? a->left : b->left;
    if (memcmp(a->text, b->text, n) != 0) return false;
    a->text += n;
    b->text += n;
    a->left -= n;
    b->left -= n;
  } while (a->left || b->left);
  return true;
}

Status ids_splice(const Tokenizer *tokenizer, const IdList *held, IdList *ids, Error *err) {
  Walk a = {.tokenizer = tokenizer, .list = held}, b = {.tokenizer = tokenizer, .list = ids};
  size_t n_held = 0, n_ids = 0; /* the texts are equal up to here */
  while (walk_on(&a, &b)) {
    n_held = a.at;
    n_ids = b.at;
  }
  OWNED(id_list_release) IdList spliced = {0};
  for (size_t i = 0; i < n_held; i++) TRY(id_list_append(&spliced, held->ids[i], err));
  for (size_t i = n_ids; i < ids->count; i++) TRY(id_list_append(&spliced, ids->ids[i], err));
  const IdList before = *ids;
  *ids = spliced;
  spliced = before;
  return STATUS_OK;
}
