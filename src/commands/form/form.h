/* form.h - the form that answers must have: --json-schema, --json-object, --regex, --grammar. */
#pragma once

#include "commands/flags.h"
#include "constrain/constraint.h"

typedef struct {
  const char *schema; /* --json-schema FILE, JSON or {NAME}; or NULL */
  bool object;        /* --json-object */
  const char *regex, *grammar;
  int key_order; /* 0: that of the schema; 1: any */
  bool lenient;  /* --schema-lenient */
} FormFlags;     /* zero-initialise it */

extern const Flag form_flags[6];
#define FORM_FLAG_GROUP(Struct, member)                                                                      \
  FLAG_GROUP_IN("Structured output", form_flags, Struct, member, FormFlags)

#define FORM_FLAG_NAMES "--json-schema, --json-object, --regex, --grammar"
/* Rules for a command that has FORM_FLAG_GROUP. */
#define FORM_FLAG_RULES                                                                                      \
  {"--json-schema", EXCLUDES, "--json-object, --regex, --grammar", "an answer has one form"},                \
      {"--json-object", EXCLUDES, "--regex, --grammar", "an answer has one form"},                           \
      {"--regex", EXCLUDES, "--grammar", "an answer has one form"},                                          \
      {"--key-order, --schema-lenient", NEEDS, "--json-schema, --tools", NULL}, {                            \
    "--stop, --ignore-eos", EXCLUDES, FORM_FLAG_NAMES, "such an answer ends where it is complete"            \
  }

typedef struct {
  bool given;         /* answers have a form */
  bool is_json;       /* answers are JSON */
  bool is_calls;      /* only calls in answers have the form (tools.h); other text is free */
  const char *member; /* [member_size] {NAME}: each record has its own schema in this member; or NULL */
  size_t member_size;
  bool any_order;   /* keys of an object come in any order */
  bool lenient;     /* keywords that cannot be enforced are ignored */
  const char *flag; /* name of the flag that was given */
  Buffer text;      /* schema, expression or grammar */
  int vocab_size;   /* of the model */
  Vocabulary own;   /* the tokenizer's, unless the form is a copy */
  const Vocabulary *vocabulary;
  Constraint constraint; /* if is_open: compiled from `text` or by form_set_part() */
  bool has_vocabulary, is_open;
  const Tokenizer *tokenizer;
  bool has_tokens; /* the grammar names tokens: it covers all that the model writes, thoughts too */
} AnswerForm;      /* starts zeroed */

/* True if an argument is a schema itself, not the name of a file. */
bool form_schema_is_inline(const char *schema);
/* Compiles the schema, expression or grammar of the flags. Refuses (STATUS_USAGE) an invalid one, with the
 * place of the error, what is expected there and what is found. PRECOND the tokenizer outlives the form */
Status form_open(const FormFlags *flags, const Tokenizer *tokenizer, int vocab_size, AnswerForm *form,
                 Error *err);
/* Compiles the schema that calls of functions in answers have to fit. schema NULL: form_set_part() will set
 * the form of each part of a call. */
Status form_open_calls(const FormFlags *flags, const Buffer *schema, const Tokenizer *tokenizer,
                       int vocab_size, AnswerForm *form, Error *err);
/* Sets the form of the next part of a call: text that matches `grammar`, or JSON that fits `schema` if
 * grammar is NULL. The form then owns the grammar, also after a failure. `name` is for messages. PRECOND
 * form->is_calls */
Status form_set_part(AnswerForm *form, const char *name, Grammar *grammar, const Buffer *schema, Error *err);
/* The options with which schemas of the form are compiled. */
SchemaOptions form_schema_options(const AnswerForm *form);
/* Compiles the schema for a record's answer. PRECOND form->member */
Status form_set_schema(AnswerForm *form, const char *name, const char *text, size_t size, Error *err);
/* Begins a new text. Compiles the constraint again if an interruption or a limit had ended it. */
Status form_begin(AnswerForm *form, Error *err);
/* Makes a form that shares the vocabulary of `from`, for another answer at the same time. */
Status form_copy(const AnswerForm *from, AnswerForm *form, Error *err);
void form_release(AnswerForm *form);
/* Prints a note for each keyword that `lenient` ignored. */
void form_note_let_go(const char *name, const Constraint *constraint);
/* Refuses {NAME} where there are no records. */
Status form_check_records(const FormFlags *flags, bool has_records, Error *err);

/* Appends a JSON text without the white space between its values: on one line. PRECOND it is valid */
Status form_compact(const char *text, size_t size, Buffer *out, Error *err);
