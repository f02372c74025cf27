/* written_calls.c - see written_calls.h. */
#include "commands/form/written_calls.h"

#include <stdlib.h>
#include <string.h>

#include "constrain/grammar/plain_text.h"

/* --- functions */

static Status add_argument(WrittenFunction *function, size_t *capacity, const Json *member,
                           const Json *required, Error *err) {
  const char *key = json_key(member);
  const size_t size = strlen(key);
  TRY(mem_grow(&function->arguments, capacity, function->n_arguments + 1, sizeof *function->arguments,
               "functions", err));
  WrittenArgument *argument = &function->arguments[function->n_arguments];
  *argument = (WrittenArgument){.name = strdup(key), .size = size};
  if (!argument->name) return error_set(err, STATUS_FAILED, "out of memory for functions");
  function->n_arguments++;
  for (const Json *name = json_first(required); name; name = json_next(name))
    argument->required |= json_is_string(name) && json_string_is(name, key);
  return STATUS_OK;
}

/* Appends a key, escaped for a JSON pointer in a URI. */
static Status append_escaped(const char *key, size_t size, Buffer *out, Error *err) {
  for (size_t i = 0; i < size; i++) {
    const unsigned char c = (unsigned char)key[i];
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    if (c == '~' || c == '/') {
      TRY(buffer_append_string(out, c == '~' ? "~0" : "~1", err));
    } else {
      TRY(buffer_printf(out, err, plain ? "%c" : "%%%02X", c));
    }
  }
  return STATUS_OK;
}

/* Writes the schema of an argument's value: a reference into the schema of the parameters. */
static Status make_schema(const WrittenFunction *function, const WrittenArgument *argument, Buffer *out,
                          Error *err) {
  out->size = 0;
  TRY(buffer_append_string(out, "{\"$ref\": \"#/$defs/call/properties/", err));
  TRY(append_escaped(argument->name, argument->size, out, err));
  TRY(buffer_append_string(out, "\", \"$defs\": {\"call\": ", err));
  TRY(buffer_append(out, function->parameters.data, function->parameters.size, err));
  return buffer_append_string(out, "}}", err);
}

/* Keywords about several arguments together, or about arguments that `properties` does not have. */
static const char *const joint_keywords[] = {"$ref",
                                             "$dynamicRef",
                                             "$recursiveRef",
                                             "allOf",
                                             "anyOf",
                                             "oneOf",
                                             "not",
                                             "if",
                                             "enum",
                                             "const",
                                             "dependencies",
                                             "dependentRequired",
                                             "dependentSchemas",
                                             "minProperties",
                                             "maxProperties",
                                             "patternProperties",
                                             "propertyNames"};

static bool reads_as_mark(const char *name, size_t size) {
  for (size_t i = 0; i < size; i++)
    if (strchr("<>\n\r", name[i])) return true;
  return size == 0;
}

static bool has_argument(const WrittenFunction *function, const Json *name) {
  for (size_t i = 0; i < function->n_arguments; i++)
    if (json_is_string(name) && json_string_is(name, function->arguments[i].name)) return true;
  return false;
}

/* Tries to compile the form of an argument's value, as an answer would. */
static Status try_value(const CallMarks *marks, const WrittenFunction *function,
                        const WrittenArgument *argument, SchemaOptions options, Error *err) {
  OWNED(buffer_release) Buffer schema = {0};
  Grammar *grammar = NULL;
  Constraint constraint;
  TRY(make_schema(function, argument, &schema, err));
  TRY(constraint_open(argument->name, schema.data, schema.size, options, NULL, &constraint, err));
  constraint_close(&constraint);
  TRY(grammar_open_value(argument->name, schema.data, schema.size, options, marks->after_value, &grammar,
                         err));
  grammar_close(grammar);
  return STATUS_OK;
}

/* Checks the last argument. If its values cannot be written, a required argument is refused, and an optional
 * one is dropped: a call could begin it, but not finish it. */
static Status check_value(const char *file, const CallMarks *marks, WrittenFunction *function,
                          SchemaOptions options, Error *err) {
  WrittenArgument *argument = &function->arguments[function->n_arguments - 1];
  Error inner;
  const Status status = try_value(marks, function, argument, options, &inner);
  if (status == STATUS_OK) return STATUS_OK;
  if (status != STATUS_USAGE || argument->required)
    return error_set(err, status, "%s: parameters of \"%.*s\": %s", file, (int)function->name.size,
                     function->name.data, inner.text);
  free(argument->name);
  function->n_arguments--;
  return STATUS_OK;
}

static Status read_arguments(const char *file, const CallMarks *marks, WrittenFunction *function,
                             const Json *schema, SchemaOptions options, Error *err) {
  size_t capacity = 0;
  const int size = (int)function->name.size;
  const char *name = function->name.data;
  const Json *required = json_member(schema, "required");
  for (size_t i = 0; i < sizeof joint_keywords / sizeof *joint_keywords; i++)
    if (json_member(schema, joint_keywords[i]))
      return error_set(
          err, STATUS_USAGE,
          "%s: parameters of \"%.*s\": #/%s: this model writes arguments one by one, by `properties` "
          "and `required` alone",
          file, size, name, joint_keywords[i]);
  const Json *properties = json_member(schema, "properties");
  for (const Json *it = json_first(properties); it; it = json_next(it)) {
    bool is_allowed;
    if (json_bool(it, &is_allowed) && !is_allowed) continue;
    TRY(add_argument(function, &capacity, it, required, err));
    if (reads_as_mark(json_key(it), strlen(json_key(it))))
      return error_set(err, STATUS_USAGE,
                       "%s: parameters of \"%.*s\": the name of an argument is empty or has <, > or a line "
                       "end, between which this model writes it",
                       file, size, name);
    TRY(check_value(file, marks, function, options, err));
  }
  for (const Json *it = json_first(required); it; it = json_next(it))
    if (!has_argument(function, it))
      return error_set(err, STATUS_USAGE,
                       "%s: parameters of \"%.*s\": #/required has an argument that `properties` has not",
                       file, size, name);
  return STATUS_OK;
}

Status written_functions_add(WrittenFunctions *functions, const char *file, JsonSpan name, JsonSpan schema,
                             const Buffer *parameters, SchemaOptions options, Error *err) {
  bool is_string;
  TRY(mem_grow(&functions->items, &functions->capacity, functions->count + 1, sizeof *functions->items,
               "functions", err));
  WrittenFunction *function = &functions->items[functions->count++];
  *function = (WrittenFunction){.n_arguments = 0};
  JsonCursor cursor = json_cursor(name);
  TRY(json_cursor_string(&cursor, &function->name, &is_string, err));
  TRY(buffer_append(&function->parameters, parameters->data, parameters->size, err));
  if (reads_as_mark(function->name.data, function->name.size))
    return error_set(err, STATUS_USAGE, "%s: the name of tool %zu has <, > or a line end", file,
                     functions->count);
  if (!functions->marks->before_key || !schema.text) return STATUS_OK;
  OWNED(json_release) Json *tree = NULL;
  TRY(json_parse(file, STATUS_USAGE, schema.text, schema.size, NULL, 0, &tree, err));
  return read_arguments(file, functions->marks, function, tree, options, err);
}

void written_functions_release(WrittenFunctions *functions) {
  for (size_t i = 0; i < functions->count; i++) {
    WrittenFunction *function = &functions->items[i];
    for (size_t k = 0; k < function->n_arguments; k++) free(function->arguments[k].name);
    free(function->arguments);
    buffer_release(&function->name);
    buffer_release(&function->parameters);
  }
  free(functions->items);
  *functions = (WrittenFunctions){.count = 0};
}

void written_call_release(WrittenCall *call) {
  free(call->used);
  free(call->word_list);
  buffer_release(&call->words);
  buffer_release(&call->schema);
  buffer_release(&call->arguments);
  *call = (WrittenCall){.functions = NULL};
}

/* --- words: names, keys and the end */

/* Begins a word, to which add_to_word() appends. */
static Status begin_word(WrittenCall *call, size_t function, size_t key, Error *err) {
  return APPEND(call->word_list, call->n_words, call->words_capacity, "a call", err,
                (WrittenWord){.at = call->words.size, .function = function, .key = key});
}

static Status add_to_word(WrittenCall *call, const char *text, size_t size, Error *err) {
  call->word_list[call->n_words - 1].size += size;
  return buffer_append(&call->words, text, size, err);
}

/* Adds a word: the function's name, unless the call has it already, then (in formats with keys) a key or the
 * end. */
static Status add_word(WrittenCall *call, size_t function, size_t key, Error *err) {
  const CallMarks *marks = call->functions->marks;
  const WrittenFunction *it = &call->functions->items[function];
  TRY(begin_word(call, function, key, err));
  if (call->part == WRITTEN_NAME) {
    TRY(add_to_word(call, it->name.data, it->name.size, err));
    TRY(add_to_word(call, marks->after_name, strlen(marks->after_name), err));
  }
  if (!marks->before_key) return STATUS_OK;
  if (key == WRITTEN_NO_KEY) return add_to_word(call, marks->end, strlen(marks->end), err);
  TRY(add_to_word(call, marks->before_key, strlen(marks->before_key), err));
  TRY(add_to_word(call, it->arguments[key].name, it->arguments[key].size, err));
  return add_to_word(call, marks->after_key, strlen(marks->after_key), err);
}

/* Adds a word for each key that may follow, and one for the end unless a required key is missing. Unused keys
 * may follow. Without any_order, only those after the last used key may, up to and including the first
 * required one. used NULL: no key is used. */
static Status add_words(WrittenCall *call, size_t function, const bool *used, bool any_order, Error *err) {
  const WrittenFunction *it = &call->functions->items[function];
  bool missing = false;
  size_t first = 0;
  for (size_t k = 0; k < it->n_arguments && used && !any_order; k++)
    if (used[k]) first = k + 1;
  for (size_t k = first; k < it->n_arguments; k++) {
    if (used && used[k]) continue;
    if (any_order || !missing) TRY(add_word(call, function, k, err));
    missing |= it->arguments[k].required;
  }
  return missing ? STATUS_OK : add_word(call, function, WRITTEN_NO_KEY, err);
}

/* Sets the form to a choice of the words. */
static Status set_words(WrittenCall *call, AnswerForm *form, Error *err) {
  OWNED(mem_release) LangWord *words = mem_alloc(call->n_words, sizeof *words, "a call", err);
  if (!words) return STATUS_FAILED;
  for (size_t i = 0; i < call->n_words; i++)
    words[i] = (LangWord){call->words.data + call->word_list[i].at, call->word_list[i].size, LANG_EMPTY};
  Grammar *grammar;
  TRY(grammar_open_words(form->flag, words, call->n_words, &grammar, err));
  return form_set_part(form, form->flag, grammar, NULL, err);
}

static void begin_words(WrittenCall *call, WrittenPart part) {
  call->part = part;
  call->words.size = call->n_words = 0;
}

Status written_call_begin(WrittenCall *call, const WrittenFunctions *functions, AnswerForm *form,
                          Error *err) {
  call->functions = functions;
  begin_words(call, WRITTEN_NAME);
  for (size_t i = 0; i < functions->count; i++) TRY(add_words(call, i, NULL, form->any_order, err));
  return set_words(call, form, err);
}

static Status begin_key(WrittenCall *call, AnswerForm *form, Error *err) {
  begin_words(call, WRITTEN_KEY);
  TRY(add_words(call, call->function, call->used, form->any_order, err));
  return set_words(call, form, err);
}

const char *written_call_after(const WrittenCall *call) {
  const CallMarks *marks = call->functions->marks;
  switch (call->part) {
  case WRITTEN_NAME: return marks->before_id ? marks->before_id : marks->before_object;
  case WRITTEN_ID: return marks->before_object;
  case WRITTEN_JSON: return marks->after_value;
  default: return NULL;
  }
}

/* --- values */

static Status begin_value(WrittenCall *call, AnswerForm *form, Error *err) {
  Grammar *grammar;
  const WrittenFunction *function = &call->functions->items[call->function];
  const WrittenArgument *argument = &function->arguments[call->key];
  TRY(make_schema(function, argument, &call->schema, err));
  TRY(grammar_open_value(argument->name, call->schema.data, call->schema.size, form_schema_options(form),
                         call->functions->marks->after_value, &grammar, err));
  call->part = grammar ? WRITTEN_TEXT : WRITTEN_JSON;
  return form_set_part(form, argument->name, grammar, &call->schema, err);
}

/* *is_json: the text, which fits the schema as a string, also fits it as JSON of another type (null). */
static Status reads_as_json(const WrittenCall *call, const AnswerForm *form, const char *text, size_t size,
                            bool *is_json, Error *err) {
  Constraint constraint;
  *is_json = false;
  if (size == 0 || strchr("\" \t\r\n", text[0]) || strchr(" \t\r\n", text[size - 1])) return STATUS_OK;
  TRY(constraint_open(form->flag, call->schema.data, call->schema.size, form_schema_options(form), NULL,
                      &constraint, err));
  Status status = constraint_take_bytes(&constraint, text, size, is_json, NULL, err);
  *is_json = status == STATUS_OK && *is_json && constraint_may_end(&constraint);
  constraint_close(&constraint);
  return status;
}

static Status add_value(WrittenCall *call, const AnswerForm *form, const char *text, size_t size,
                        Error *err) {
  const WrittenArgument *argument = &call->functions->items[call->function].arguments[call->key];
  Buffer *out = &call->arguments;
  bool is_json = call->part == WRITTEN_JSON;
  if (out->size > 1) TRY(buffer_append(out, ",", 1, err));
  TRY(json_write_string(out, argument->name, argument->size, err));
  TRY(buffer_append(out, ":", 1, err));
  if (!is_json) TRY(reads_as_json(call, form, text, size, &is_json, err));
  return is_json ? form_compact(text, size, out, err) : json_write_string(out, text, size, err);
}

/* --- taking parts */

Status written_call_line(const WrittenFunction *function, const Buffer *arguments, Buffer *lines,
                         Error *err) {
  TRY(buffer_append_string(lines, "{\"name\": ", err));
  TRY(json_write_string(lines, function->name.data, function->name.size, err));
  TRY(buffer_append_string(lines, ", \"arguments\": ", err));
  TRY(form_compact(arguments->data ? arguments->data : "", arguments->size, lines, err));
  return buffer_append_string(lines, "}\n", err);
}

static Status begin_arguments(WrittenCall *call, Error *err) {
  const size_t n = call->functions->items[call->function].n_arguments;
  free(call->used);
  call->used = mem_alloc(n + 1, sizeof *call->used, "a call", err);
  call->arguments.size = 0;
  return call->used ? STATUS_OK : STATUS_FAILED;
}

static const WrittenWord *find_word(const WrittenCall *call, const char *text, size_t size) {
  for (size_t i = 0; i < call->n_words; i++)
    if (call->word_list[i].size == size && memcmp(call->words.data + call->word_list[i].at, text, size) == 0)
      return &call->word_list[i];
  return NULL;
}

static Status begin_id(WrittenCall *call, AnswerForm *form, Error *err) {
  static const char pattern[] = "[a-zA-Z0-9]{9}";
  Grammar *grammar;
  call->part = WRITTEN_ID;
  TRY(grammar_open_regular_expression(form->flag, pattern, sizeof pattern - 1, &grammar, err));
  return form_set_part(form, form->flag, grammar, NULL, err);
}

static Status begin_object(WrittenCall *call, AnswerForm *form, Error *err) {
  call->part = WRITTEN_OBJECT;
  return form_set_part(form, form->flag, NULL, &call->functions->items[call->function].parameters, err);
}

static Status take_word(WrittenCall *call, AnswerForm *form, const char *text, size_t size, bool *done,
                        Buffer *lines, Error *err) {
  const CallMarks *marks = call->functions->marks;
  const WrittenWord *word = find_word(call, text, size);
  if (!word) return error_set(err, STATUS_FAILED, "--tools: a call of no function");
  call->function = word->function;
  call->key = word->key;
  if (call->part == WRITTEN_NAME) TRY(begin_arguments(call, err));
  if (!marks->before_key) return marks->before_id ? begin_id(call, form, err) : begin_object(call, form, err);
  if (call->arguments.size == 0) TRY(buffer_append(&call->arguments, "{", 1, err));
  if (call->key == WRITTEN_NO_KEY) {
    *done = true;
    TRY(buffer_append(&call->arguments, "}", 1, err));
    return written_call_line(&call->functions->items[call->function], &call->arguments, lines, err);
  }
  call->used[call->key] = true;
  return begin_value(call, form, err);
}

Status written_call_take(WrittenCall *call, AnswerForm *form, const char *text, size_t size, bool *done,
                         Buffer *lines, Error *err) {
  *done = false;
  switch (call->part) {
  case WRITTEN_NAME:
  case WRITTEN_KEY: return take_word(call, form, text, size, done, lines, err);
  case WRITTEN_ID: return begin_object(call, form, err);
  case WRITTEN_OBJECT:
    *done = true;
    TRY(form_compact(text, size, &call->arguments, err));
    return written_call_line(&call->functions->items[call->function], &call->arguments, lines, err);
  case WRITTEN_TEXT: size -= strlen(call->functions->marks->after_value); break;
  case WRITTEN_JSON: break;
  }
  TRY(add_value(call, form, text, size, err));
  return begin_key(call, form, err);
}
