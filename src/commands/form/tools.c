/* tools.c - see tools.h. */
#include "commands/form/tools.h"

#include <string.h>

#include "base/file.h"
#include "base/hash64.h"
#include "base/json.h"
#include "commands/common.h"
#include "commands/form/messages.h"
#include "commands/input_text.h"

const Flag tool_flags[] = {
    FLAG_FILE("--tools", "FILE|JSON", ToolFlags, file,
              "functions that the model may call: a JSON array of {\"type\": \"function\", \"function\": "
              "{\"name\", \"description\", \"parameters\"}}; each call comes as a line {\"name\": ..., "
              "\"arguments\": {...}}, with --json in tool_calls"),
    FLAG_CHOICE("--tool-choice", "auto|required", ToolFlags, choice,
                "auto: the model may answer or call (the default); required: it must call"),
};

/* --- formats */

typedef struct {
  ToolFormat format;
  const char *writes[2]; /* texts that a template of this format contains; the second may be NULL */
  const char *lacks[2];  /* texts that it does not contain; each may be NULL */
} KnownFormat;

static const CallMarks
    /* Qwen3-Coder, Qwen3.5 to 3.8 */
    qwen_marks = {.before_name = "\n<function=",
                  .after_name = ">\n",
                  .before_key = "<parameter=",
                  .after_key = ">\n",
                  .after_value = "\n</parameter>\n",
                  .end = "</function>\n</tool_call>"},
    /* GLM-4.5, GLM-4.6 */
    glm_marks = {.before_name = "",
                 .after_name = "\n",
                 .before_key = "<arg_key>",
                 .after_key = "</arg_key>\n<arg_value>",
                 .after_value = "</arg_value>\n",
                 .end = "</tool_call>"},
    /* GLM-4.7 */
    glm_tight_marks = {.before_name = "",
                       .after_name = "",
                       .before_key = "<arg_key>",
                       .after_key = "</arg_key><arg_value>",
                       .after_value = "</arg_value>",
                       .end = "</tool_call>"},
    /* Mistral's tokenizer v11 */
    mistral_id_marks = {.before_name = "",
                        .after_name = "",
                        .before_id = "[CALL_ID]",
                        .before_object = "[ARGS]"},
    /* gpt-oss: the marks are those of channels.h. */
    channel_marks = {.before_name = "", .after_name = "", .before_object = "<|message|>"},
    /* Mistral's tokenizer from v13 on */
    mistral_marks = {.before_name = "", .after_name = "", .before_object = "[ARGS]"};

/* All formats, in the order in which a template is compared with them. */
static const KnownFormat known[] = {
    {{"<|channel|>", NULL, NULL, false, false, &channel_marks},
     {"<|channel|>commentary", "functions."},
     {NULL, NULL}},
    /* Qwen2.5, Qwen3, SmolLM3, Hermes; a call: <tool_call>\n{"name": ..., "arguments": ...}\n</tool_call> */
    {{"<tool_call>", "</tool_call>", "arguments", false, false, NULL},
     {"<tool_call>", "arguments"},
     {"<function=", "<arg_key>"}},
    {{"<tool_call>", NULL, NULL, false, false, &qwen_marks}, {"<function=", "<parameter="}, {NULL, NULL}},
    {{"<tool_call>", NULL, NULL, false, false, &glm_tight_marks},
     {"<arg_key>", "</arg_key><arg_value>"},
     {NULL, NULL}},
    {{"<tool_call>", NULL, NULL, false, false, &glm_marks}, {"<arg_key>", "<arg_value>"}, {NULL, NULL}},
    {{"[TOOL_CALLS]", NULL, NULL, false, false, &mistral_id_marks}, {"[CALL_ID]", "[ARGS]"}, {NULL, NULL}},
    {{"[TOOL_CALLS]", NULL, NULL, false, false, &mistral_marks}, {"[TOOL_CALLS]", "[ARGS]"}, {NULL, NULL}},
    /* Mistral to 2024: [TOOL_CALLS][{"name": ..., "arguments": ..., "id": ...}, ...] */
    {{"[TOOL_CALLS]", NULL, "arguments", true, false, NULL}, {"[TOOL_CALLS]", NULL}, {NULL, NULL}},
    /* Llama 3.1 to 3.3: {"name": ..., "parameters": ...}, alone or after <|python_tag|> */
    {{"<|python_tag|>", NULL, "parameters", false, true, NULL},
     {"{\"name\": function name, \"parameters\"", NULL},
     {NULL, NULL}},
};

static bool has_format(const Chat *chat, const KnownFormat *it) {
  bool has = true;
  for (int i = 0; i < 2; i++) {
    has &= !it->writes[i] || chat_writes(chat, it->writes[i]);
    has &= !it->lacks[i] || !chat_writes(chat, it->lacks[i]);
  }
  return has;
}

static Status find_format(Tools *tools, const Chat *chat, const Tokenizer *tokenizer, Error *err) {
  if (!chat_takes_tools(chat))
    return error_set(err, STATUS_USAGE, "--tools: the chat template (%s) takes no tools%s", chat_source(chat),
                     chat_has_tool_use(chat) ? "; that of --chat-template tool_use may"
                                             : ": take a model whose template does, or name one with "
                                               "--chat-template FILE");
  for (size_t i = 0; i < sizeof known / sizeof *known && !tools->format; i++)
    if (has_format(chat, &known[i])) tools->format = &known[i].format;
  if (!tools->format)
    return error_set(
        err, STATUS_USAGE,
        "--tools: the chat template (%s) has calls in a format that is not known (known are Qwen's "
        "<tool_call> with JSON or <function=, GLM's with <arg_key>, Mistral's [TOOL_CALLS], Llama 3's JSON "
        "and gpt-oss's channels)",
        chat_source(chat));
  const CallMarks *marks = tools->format->marks;
  const char *tokens[] = {tools->format->begin, marks ? marks->before_id : NULL,
                          marks ? marks->before_object : NULL};
  tools->written.marks = marks;
  tools->begin = tokenizer_find(tokenizer, tools->format->begin);
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens && !tools->format->bare; i++)
    if (tokens[i] && tokenizer_find(tokenizer, tokens[i]) < 0)
      return error_set(err, STATUS_USAGE,
                       "--tools: the tokenizer has no token %s, by which the chat template (%s) writes calls",
                       tokens[i], chat_source(chat));
  return STATUS_OK;
}

/* --- functions */

/* A function, as spans of the file's text. */
typedef struct {
  JsonSpan whole;            /* {"name": ...} */
  JsonSpan name, parameters; /* parameters without text: the function takes none */
  bool renamed;              /* the key of the parameters is that of MCP or of Anthropic's API */
} Function;

static bool is_string(JsonSpan value) {
  return value.text && value.text[0] == '"';
}

static bool is_object(JsonSpan value) {
  return value.text && value.text[0] == '{';
}

/* The parameters of a function; *renamed: their key is not "parameters", which OpenAI's API uses. */
static JsonSpan find_parameters(JsonSpan function, bool *renamed) {
  static const char *const names[] = {"parameters", "inputSchema", "input_schema"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const JsonSpan value = json_span_member(function, names[i]);
    *renamed = i > 0;
    if (value.text) return value;
  }
  *renamed = false;
  return (JsonSpan){0};
}

/* True unless the schema's "type" excludes objects. */
static bool may_be_object(JsonSpan schema) {
  const JsonSpan type = json_span_member(schema, "type");
  JsonCursor cursor = json_cursor(type);
  bool found = false;
  if (!type.text) return true;
  if (!json_cursor_enter(&cursor, '[')) return type.size == 8 && memcmp(type.text, "\"object\"", 8) == 0;
  for (bool first = true; json_cursor_next(&cursor, &first);) {
    const JsonSpan one = json_cursor_value(&cursor);
    found |= one.size == 8 && memcmp(one.text, "\"object\"", 8) == 0;
  }
  return found;
}

static Status read_function(const char *file, size_t number, JsonSpan item, Function *function, Error *err) {
  const JsonSpan inner = json_span_member(item, "function");
  *function = (Function){.whole = is_object(inner) ? inner : item};
  function->name = json_span_member(function->whole, "name");
  function->parameters = find_parameters(function->whole, &function->renamed);
  if (!is_object(item))
    return error_set(err, STATUS_USAGE,
                     "%s: tool %zu is no object, expected {\"type\": \"function\", "
                     "\"function\": {\"name\": ..., \"parameters\": ...}}",
                     file, number);
  if (!is_string(function->name) || function->name.size == 2)
    return error_set(err, STATUS_USAGE, "%s: tool %zu has no name (function.name, a string)", file, number);
  const JsonSpan parameters = function->parameters;
  if (parameters.text && parameters.text[0] == 'n') function->parameters = (JsonSpan){0}; /* null */
  if (function->parameters.text && !is_object(parameters))
    return error_set(err, STATUS_USAGE,
                     "%s: the parameters of tool %zu, %.*s, are no JSON Schema, expected an object", file,
                     number, (int)function->name.size, function->name.text);
  if (may_be_object(function->parameters)) return STATUS_OK;
  const JsonSpan type = json_span_member(parameters, "type");
  return error_set(err, STATUS_USAGE,
                   "%s: the parameters of tool %zu, %.*s, have the type %.*s, expected \"object\"", file,
                   number, (int)function->name.size, function->name.text, (int)type.size, type.text);
}

/* Appends the schema of a function's arguments, with the type "object" even if the schema has no type. {} is
 * what clients write for a function without arguments. The $id makes the schema a document of its own, so
 * that its references begin at its root. */
static Status append_parameters(const Function *function, size_t number, Buffer *out, Error *err) {
  const JsonSpan schema = function->parameters;
  JsonCursor cursor = json_cursor(schema);
  bool first = true;
  const bool is_empty =
      !schema.text || !json_cursor_enter(&cursor, '{') || !json_cursor_next(&cursor, &first);
  if (is_empty)
    return buffer_append_string(out, "{\"type\": \"object\", \"additionalProperties\": false}", err);
  TRY(buffer_append_string(out, "{\"type\": \"object\"", err));
  if (!json_span_member(schema, "$id").text)
    TRY(buffer_printf(out, err, ", \"$id\": \"auk://tools/%zu\"", number));
  cursor = json_cursor(schema);
  json_cursor_enter(&cursor, '{');
  OWNED(buffer_release) Buffer key = {0};
  for (first = true; json_cursor_next(&cursor, &first);) {
    bool is_key;
    key.size = 0;
    TRY(json_cursor_string(&cursor, &key, &is_key, err));
    const JsonSpan value = json_cursor_value(&cursor);
    if (key.size == 4 && memcmp(key.data, "type", 4) == 0) continue;
    TRY(buffer_append(out, ", ", 2, err));
    TRY(json_write_string(out, key.data ? key.data : "", key.size, err));
    TRY(buffer_append(out, ": ", 2, err));
    TRY(buffer_append(out, value.text, value.size, err));
  }
  return buffer_append(out, "}", 1, err);
}

/* Appends the schema of a call of the function. */
static Status append_call(const ToolFormat *format, const Function *function, size_t number, Buffer *out,
                          Error *err) {
  TRY(buffer_printf(
      out, err, "%s{\"type\": \"object\", \"properties\": {\"name\": {\"const\": %.*s}, \"%s\": ",
      number > 1 ? ", " : "", (int)function->name.size, function->name.text, format->arguments));
  TRY(append_parameters(function, number, out, err));
  if (format->is_list) /* Mistral's calls may have an id */
    TRY(buffer_append_string(out, ", \"id\": {\"type\": \"string\", \"pattern\": \"^[a-zA-Z0-9]{9}$\"}",
                             err));
  return buffer_printf(out, err, "}, \"required\": [\"name\", \"%s\"], \"additionalProperties\": false}",
                       format->arguments);
}

/* True if the list has a function of this name. */
static bool has_function(const Buffer *list, JsonSpan name) {
  JsonCursor cursor = json_cursor((JsonSpan){list->data, list->size});
  bool found = false;
  json_cursor_enter(&cursor, '[');
  for (bool first = true; !found && json_cursor_next(&cursor, &first);) {
    const JsonSpan other = json_span_member(json_span_member(json_cursor_value(&cursor), "function"), "name");
    found = other.size == name.size && memcmp(other.text, name.text, name.size) == 0;
  }
  return found;
}

/* Adds the function to the schema of calls, or to the functions whose calls are written in parts. */
static Status add_call(const ToolFlags *flags, SchemaOptions options, const Function *function, size_t number,
                       Tools *tools, Error *err) {
  OWNED(buffer_release) Buffer parameters = {0};
  if (!tools->format->marks) return append_call(tools->format, function, number, &tools->schema, err);
  TRY(append_parameters(function, number, &parameters, err));
  return written_functions_add(&tools->written, flags->file, function->name, function->parameters,
                               &parameters, options, err);
}

/* Refuses parameters that are no schema. The message has the function's name and the place of the keyword. */
static Status check_parameters(const ToolFlags *flags, SchemaOptions options, const Function *function,
                               Error *err) {
  Constraint constraint;
  OWNED(buffer_release) Buffer name = {0};
  const JsonSpan schema = function->parameters;
  if (!schema.text) return STATUS_OK;
  TRY(buffer_printf(&name, err, "%s: parameters of %.*s%c", flags->file, (int)function->name.size,
                    function->name.text, 0));
  TRY(constraint_open(name.data, schema.text, schema.size, options, NULL, &constraint, err));
  form_note_let_go(name.data, &constraint);
  constraint_close(&constraint);
  return STATUS_OK;
}

/* Appends the function as templates read it. If its parameters have another key, they get the key
 * "parameters", and of its other members only name and description stay. */
static Status append_listed(const Function *function, size_t number, Buffer *list, Error *err) {
  TRY(buffer_printf(list, err, "%s{\"type\": \"function\", \"function\": ", number > 1 ? ", " : ""));
  if (!function->renamed) {
    TRY(buffer_append(list, function->whole.text, function->whole.size, err));
    return buffer_append(list, "}", 1, err);
  }
  const JsonSpan description = json_span_member(function->whole, "description");
  TRY(buffer_printf(list, err, "{\"name\": %.*s, \"description\": ", (int)function->name.size,
                    function->name.text));
  TRY(description.text ? buffer_append(list, description.text, description.size, err)
                       : buffer_append_string(list, "\"\"", err));
  TRY(buffer_append_string(list, ", \"parameters\": ", err));
  TRY(function->parameters.text
          ? buffer_append(list, function->parameters.text, function->parameters.size, err)
          : buffer_append_string(list, "{}", err));
  return buffer_append(list, "}}", 2, err);
}

/* Takes the functions of a valid JSON text. */
static Status take_functions(const ToolFlags *flags, const FormFlags *schema_flags, JsonSpan text,
                             Tools *tools, Error *err) {
  JsonCursor cursor = json_cursor(text);
  const SchemaOptions options = {
      .plain_integers = true, .ordered_keys = schema_flags->key_order == 0, .lenient = schema_flags->lenient};
  size_t n = 0;
  if (!json_cursor_enter(&cursor, '['))
    return error_set(err, STATUS_USAGE, "%s: no list of tools, expected [{\"type\": \"function\", ...}, ...]",
                     flags->file);
  for (bool first = true; json_cursor_next(&cursor, &first);) {
    Function function;
    TRY(read_function(flags->file, ++n, json_cursor_value(&cursor), &function, err));
    if (has_function(&tools->list, function.name))
      return error_set(err, STATUS_USAGE, "%s: tool %zu has the name of one before, %.*s", flags->file, n,
                       (int)function.name.size, function.name.text);
    TRY(check_parameters(flags, options, &function, err));
    TRY(add_call(flags, options, &function, n, tools, err));
    TRY(append_listed(&function, n, &tools->list, err));
  }
  return n ? STATUS_OK : error_set(err, STATUS_USAGE, "%s: the list of tools is empty", flags->file);
}

static Status read_functions(const ToolFlags *flags, const FormFlags *schema_flags, Tools *tools,
                             Error *err) {
  OWNED(buffer_release) Buffer text = {0};
  const bool is_list = tools->format->is_list;
  const char first = flags->file[strspn(flags->file, " \t\r\n")];
  const bool is_text = first == '[' || first == '{'; /* one function alone is refused as no list */
  const ToolFlags named = {.file = is_text ? "--tools" : flags->file}; /* for messages */
  TRY(buffer_append_string(&tools->schema,
                           is_list ? "{\"type\": \"array\", \"minItems\": 1, \"items\": " : "", err));
  TRY(buffer_append_string(&tools->schema, "{\"anyOf\": [", err));
  TRY(buffer_append(&tools->list, "[", 1, err));
  TRY(file_name_check("--tools", flags->file, err));
  TRY(is_text ? buffer_append_string(&text, flags->file, err) : text_read_source(flags->file, &text, err));
  const JsonSpan span = {text.data ? text.data : "", text.size};
  TRY(json_parse(named.file, STATUS_USAGE, span.text, span.size, NULL, 0, NULL, err));
  TRY(take_functions(&named, schema_flags, span, tools, err));
  TRY(buffer_append(&tools->list, "]", 1, err));
  return buffer_append_string(&tools->schema, is_list ? "]}}" : "]}", err);
}

Status tools_open(const ToolFlags *flags, const FormFlags *schema_flags, const Chat *chat,
                  const Tokenizer *tokenizer, int vocab_size, Tools *tools, AnswerForm *form, Error *err) {
  TRY(find_format(tools, chat, tokenizer, err));
  TRY(read_functions(flags, schema_flags, tools, err));
  tools->given = true;
  tools->required = flags->choice != 0;
  return form_open_calls(schema_flags, tools->format->marks ? NULL : &tools->schema, tokenizer, vocab_size,
                         form, err);
}

void tools_release(Tools *tools) {
  buffer_release(&tools->list);
  buffer_release(&tools->schema);
  written_functions_release(&tools->written);
  *tools = (Tools){.given = false};
}

/* --- calls */

static Status read_call(const Tools *tools, JsonSpan call, Buffer *calls, Error *err) {
  const JsonSpan name = json_span_member(call, "name"),
                 arguments = json_span_member(call, tools->format->arguments);
  TRY(buffer_printf(calls, err, "{\"name\": %.*s, \"arguments\": ", (int)name.size, name.text));
  TRY(form_compact(arguments.text, arguments.size, calls, err));
  return buffer_append(calls, "}\n", 2, err);
}

Status tools_read_calls(const Tools *tools, const char *text, size_t size, Buffer *calls, Error *err) {
  JsonCursor cursor = json_cursor((JsonSpan){text, size});
  if (!tools->format->is_list) return read_call(tools, json_cursor_value(&cursor), calls, err);
  json_cursor_enter(&cursor, '[');
  for (bool first = true; json_cursor_next(&cursor, &first);)
    TRY(read_call(tools, json_cursor_value(&cursor), calls, err));
  return STATUS_OK;
}

/* Nine letters and digits, as Mistral's templates want ids to be. */
static void make_id(const char *line, size_t size, size_t number, char id[10]) {
  static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
  uint64_t hash = hash64(line, size, number);
  for (int i = 0; i < 9; i++, hash /= 36) id[i] = digits[hash % 36];
  id[9] = '\0';
}

Status tools_append_members(JsonSpan message, size_t index, Buffer *out, Error *err) {
  static const struct {
    const char *name;
    char begins;
  } members[] = {{"tool_calls", '['}, {"tool_call_id", '"'}, {"name", '"'}};
  const size_t start = out->size;
  for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
    const char *name = members[i].name;
    const JsonSpan value = json_span_member(message, name);
    if (!value.text || value.text[0] == 'n') continue; /* null */
    if (value.text[0] != members[i].begins)
      return error_set(err, STATUS_USAGE, "message %zu has %s that is no %s", index, name,
                       members[i].begins == '[' ? "list" : "string");
    TRY(buffer_printf(out, err, "%s\"%s\":", out->size > start ? "," : "", name));
    TRY(i == 0 ? message_append_calls(value, index, out, err)
               : buffer_append(out, value.text, value.size, err));
  }
  return STATUS_OK;
}

Status tools_write_calls(const Buffer *calls, Buffer *out, Error *err) {
  TRY(buffer_append(out, "[", 1, err));
  for (size_t at = 0, n = 0; at < calls->size; n++) {
    char id[10];
    const char *line = calls->data + at, *end = memchr(line, '\n', calls->size - at);
    const size_t size = (size_t)(end - line);
    make_id(line, size, n, id);
    TRY(buffer_printf(out, err, "%s{\"id\": \"%s\", \"type\": \"function\", \"function\": ", n ? ", " : "",
                      id));
    TRY(buffer_append(out, line, size, err));
    TRY(buffer_append(out, "}", 1, err));
    at += size + 1;
  }
  return buffer_append(out, "]", 1, err);
}
