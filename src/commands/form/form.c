/* form.c - see form.h. */
#include "commands/form/form.h"

#include <string.h>

#include "base/file.h"
#include "commands/common.h"
#include "commands/input_text.h"

const Flag form_flags[] = {
    FLAG_FILE(
        "--json-schema, -j, --json-schema-file, -jf", "FILE|JSON", FormFlags, schema,
        "the answer is JSON that fits this schema; with --map-json also {NAME}: each record has its own "
        "in its member NAME"),
    FLAG_SWITCH("--json-object", FormFlags, object, "the answer is a JSON object"),
    FLAG_CHOICE("--key-order", "schema|any", FormFlags, key_order,
                "the order of an object's keys: that of `properties` in the schema, then others (the "
                "default), or any"),
    FLAG_SWITCH(
        "--schema-lenient", FormFlags, lenient,
        "leaves out keywords of the schema that auk cannot enforce exactly, with a note for each, instead of "
        "refusing the schema"),
    FLAG_STRING("--regex", "RE", FormFlags, regex,
                "the answer matches this regular expression (ECMAScript's) from end to end"),
    FLAG_FILE("--grammar, --grammar-file", "FILE|GBNF", FormFlags, grammar,
              "the answer matches this grammar, written in llama.cpp's GBNF: a file, or rules with ::="),
};

/* --- opening */

static bool in_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || (unsigned char)c >= 0x80;
}

/* Length of NAME where the schema is {NAME}, else 0. */
static size_t member_length(const char *schema) {
  size_t n = 0;
  if (!schema || schema[0] != '{') return 0;
  while (in_name(schema[1 + n])) n++;
  return schema[1 + n] == '}' && schema[2 + n] == '\0' ? n : 0;
}

Status form_check_records(const FormFlags *flags, bool has_records, Error *err) {
  if (has_records || !member_length(flags->schema)) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "--json-schema %s is a member of records: it needs --map-json",
                   flags->schema);
}

bool form_schema_is_inline(const char *schema) {
  schema += strspn(schema, " \t\r\n");
  return *schema == '{' || strcmp(schema, "true") == 0 || strcmp(schema, "false") == 0;
}

static Status read_file(AnswerForm *form, const char *path, Error *err) {
  TRY(file_name_check(form->flag, path, err));
  return text_read_source(path, &form->text, err);
}

SchemaOptions form_schema_options(const AnswerForm *form) {
  return (SchemaOptions){.plain_integers = true, .ordered_keys = !form->any_order, .lenient = form->lenient};
}

static Status compile_schema(AnswerForm *form, const char *name, Error *err) {
  TRY(constraint_open(name, form->text.size ? form->text.data : "", form->text.size,
                      form_schema_options(form), form->vocabulary, &form->constraint, err));
  form->is_open = true;
  return constraint_write_plainly(&form->constraint, err);
}

void form_note_let_go(const char *name, const Constraint *constraint) {
  const Buffer *lines = &constraint->set.let_go;
  for (const char *line = lines->data; line && line < lines->data + lines->size; line += strlen(line) + 1)
    print_note("%s: let go: %s", name, line);
}

static Status compile_grammar(AnswerForm *form, const char *name, bool regular, Error *err) {
  Grammar *grammar;
  const char *text = form->text.size ? form->text.data : "";
  TRY(text_check_bytes(name, text, form->text.size, err));
  TRY(regular ? grammar_open_regular_expression(name, text, form->text.size, &grammar, err)
              : grammar_open(name, text, form->text.size, form->tokenizer, &grammar, err));
  form->has_tokens = grammar_has_tokens(grammar);
  TRY(constraint_open_grammar(name, grammar, form->vocabulary, &form->constraint, err));
  form->is_open = true;
  return STATUS_OK;
}

static Status open_schema(const FormFlags *flags, AnswerForm *form, Error *err) {
  form->is_json = true;
  form->member_size = member_length(flags->schema);
  form->member = form->member_size ? flags->schema + 1 : NULL;
  if (form->member) return STATUS_OK;
  if (flags->object) {
    TRY(buffer_append_string(&form->text, "{\"type\": \"object\"}", err));
    return compile_schema(form, form->flag, err);
  }
  const bool is_text = form_schema_is_inline(flags->schema);
  TRY(is_text ? buffer_append_string(&form->text, flags->schema, err) : read_file(form, flags->schema, err));
  TRY(compile_schema(form, is_text ? form->flag : flags->schema, err));
  form_note_let_go(is_text ? form->flag : flags->schema, &form->constraint);
  return STATUS_OK;
}

Status form_open(const FormFlags *flags, const Tokenizer *tokenizer, int vocab_size, AnswerForm *form,
                 Error *err) {
  form->flag = flags->schema    ? "--json-schema"
               : flags->object  ? "--json-object"
               : flags->regex   ? "--regex"
               : flags->grammar ? "--grammar"
                                : NULL;
  form->given = form->flag != NULL;
  form->any_order = flags->key_order != 0;
  form->lenient = flags->lenient;
  form->vocab_size = vocab_size;
  form->tokenizer = tokenizer;
  if (!form->given) return STATUS_OK;
  TRY(vocabulary_open(tokenizer, &form->own, err));
  form->has_vocabulary = true;
  form->vocabulary = &form->own;
  if (flags->schema || flags->object) return open_schema(flags, form, err);
  if (flags->regex) {
    TRY(buffer_append_string(&form->text, flags->regex, err));
    return compile_grammar(form, form->flag, true, err);
  }
  const bool is_text = strstr(flags->grammar, "::=") && !file_exists(flags->grammar);
  TRY(is_text ? buffer_append_string(&form->text, flags->grammar, err)
              : read_file(form, flags->grammar, err));
  return compile_grammar(form, is_text ? form->flag : flags->grammar, false, err);
}

Status form_open_calls(const FormFlags *flags, const Buffer *schema, const Tokenizer *tokenizer,
                       int vocab_size, AnswerForm *form, Error *err) {
  *form = (AnswerForm){.given = true,
                       .is_calls = true,
                       .flag = "--tools",
                       .any_order = flags->key_order != 0,
                       .lenient = flags->lenient,
                       .vocab_size = vocab_size,
                       .tokenizer = tokenizer};
  TRY(vocabulary_open(tokenizer, &form->own, err));
  form->has_vocabulary = true;
  form->vocabulary = &form->own;
  if (!schema) return STATUS_OK;
  TRY(buffer_append(&form->text, schema->data, schema->size, err));
  return compile_schema(form, form->flag, err);
}

Status form_set_part(AnswerForm *form, const char *name, Grammar *grammar, const Buffer *schema, Error *err) {
  if (form->is_open) constraint_close(&form->constraint);
  form->is_open = false;
  if (grammar) {
    TRY(constraint_open_grammar(name, grammar, form->vocabulary, &form->constraint, err));
    form->is_open = true;
    return STATUS_OK;
  }
  TRY(constraint_open(name, schema->data, schema->size, form_schema_options(form), form->vocabulary,
                      &form->constraint, err));
  form->is_open = true;
  return constraint_write_plainly(&form->constraint, err);
}

Status form_set_schema(AnswerForm *form, const char *name, const char *text, size_t size, Error *err) {
  const bool same = form->text.size == size && size > 0 && memcmp(form->text.data, text, size) == 0;
  if (form->is_open && same) return STATUS_OK;
  if (form->is_open) constraint_close(&form->constraint);
  form->is_open = false;
  form->text.size = 0;
  TRY(buffer_append(&form->text, text, size, err));
  TRY(compile_schema(form, name, err));
  form_note_let_go(name, &form->constraint);
  return STATUS_OK;
}

/* Compiles the schema or grammar in form->text. Does nothing if form_set_part() sets the form. */
static Status compile(AnswerForm *form, Error *err) {
  if (form->is_calls && form->text.size == 0) return STATUS_OK;
  if (form->is_json || form->is_calls) return compile_schema(form, form->flag, err);
  return compile_grammar(form, form->flag, strcmp(form->flag, "--regex") == 0, err);
}

Status form_begin(AnswerForm *form, Error *err) {
  if (!form->is_open || constraint_begin(&form->constraint, err) == STATUS_OK) return STATUS_OK;
  constraint_close(&form->constraint);
  form->is_open = false;
  return compile(form, err);
}

Status form_copy(const AnswerForm *from, AnswerForm *form, Error *err) {
  *form = *from;
  form->text = (Buffer){0};
  form->has_vocabulary = form->is_open = false;
  if (!from->given || from->member) return STATUS_OK;
  TRY(buffer_append(&form->text, from->text.data ? from->text.data : "", from->text.size, err));
  return compile(form, err);
}

void form_release(AnswerForm *form) {
  if (form->is_open) constraint_close(&form->constraint);
  if (form->has_vocabulary) vocabulary_close(&form->own);
  buffer_release(&form->text);
  *form = (AnswerForm){.given = false};
}

/* --- results */

Status form_compact(const char *text, size_t size, Buffer *out, Error *err) {
  bool inside = false;
  size_t from = 0;
  for (size_t i = 0; i < size; i++) {
    if (inside && text[i] == '\\')
      i++;
    else if (text[i] == '"')
      inside = !inside;
    if (inside || i >= size || !strchr(" \t\r\n", text[i])) continue;
    TRY(buffer_append(out, text + from, i - from, err));
    from = i + 1;
  }
  return buffer_append(out, text + from, size - from, err);
}
