/* written_calls.h - calls that are written in parts, not as one JSON text: the name of the function, then its
 * arguments one by one, or as one JSON object. (Spaces show where parts begin; the model writes none there.)
 *
 *   <tool_call> \n<function= get_weather >\n
 *     <parameter= city >\n Paris \n</parameter>\n </function>\n</tool_call>
 *   [TOOL_CALLS] get_weather [ARGS] {"city": "Paris"}
 *
 * Strings are written as they are, other arguments as JSON. Strings are written as JSON, too, if every string
 * that the schema allows contains CallMarks.after_value, the text that ends a value. */
#pragma once

#include "base/json.h"
#include "commands/form/form.h"

/* The text around the parts; special tokens only in before_id and before_object. */
typedef struct {
  const char *before_name, *after_name;
  const char *before_id;     /* before an id of nine letters and digits; NULL: a call has no id */
  const char *before_object; /* before all arguments as one JSON object; NULL: they are written one by one */
  const char *before_key, *after_key, *after_value; /* around the key and after the value of an argument */
  const char *end;                                  /* after the last argument */
} CallMarks;

typedef struct {
  char *name; /* [size] */
  size_t size;
  bool required;
} WrittenArgument;

typedef struct {
  Buffer name;
  Buffer parameters;          /* schema of the arguments, as a document of its own */
  WrittenArgument *arguments; /* [n_arguments] in the order of `properties` */
  size_t n_arguments;
} WrittenFunction;

typedef struct {
  const CallMarks *marks;
  WrittenFunction *items; /* [count] */
  size_t count, capacity;
} WrittenFunctions; /* starts zeroed, except the marks */

/* Adds a function. `schema`: a valid JSON Schema of the arguments (without text: there are none);
 * `parameters`: as in WrittenFunction. Refuses (STATUS_USAGE) a name that is empty or would be read as a
 * mark. If arguments are written one by one, also refuses arguments with such a name, keywords about several
 * arguments together, and required arguments that no value fits or `properties` lacks. Optional arguments
 * that no value fits are never written. */
Status written_functions_add(WrittenFunctions *functions, const char *file, JsonSpan name, JsonSpan schema,
                             const Buffer *parameters, SchemaOptions options, Error *err);
void written_functions_release(WrittenFunctions *functions);

typedef enum {
  WRITTEN_NAME,
  WRITTEN_ID,
  WRITTEN_OBJECT,
  WRITTEN_KEY,
  WRITTEN_TEXT,
  WRITTEN_JSON
} WrittenPart;

/* One of the texts that a part of a call may be, and its meaning. */
typedef struct {
  size_t at, size; /* in WrittenCall.words */
  size_t function, key;
} WrittenWord;
#define WRITTEN_NO_KEY SIZE_MAX /* the call ends, or its arguments are one object */

typedef struct {
  const WrittenFunctions *functions;
  WrittenPart part;
  size_t function, key;   /* indices, once known */
  bool *used;             /* [n_arguments] the argument was written */
  Buffer words;           /* texts of word_list */
  WrittenWord *word_list; /* [n_words] */
  size_t n_words, words_capacity;
  Buffer schema;    /* schema of the current argument's value */
  Buffer arguments; /* the arguments so far, "{"KEY":VALUE" */
} WrittenCall;      /* starts zeroed */

/* Appends the line of a call, {"name": ..., "arguments": ...}; arguments: a JSON object, whose white space
 * between values is left out. */
Status written_call_line(const WrittenFunction *function, const Buffer *arguments, Buffer *lines, Error *err);

void written_call_release(WrittenCall *call);
/* Begins a call, and sets the form to that of its first part. */
Status written_call_begin(WrittenCall *call, const WrittenFunctions *functions, AnswerForm *form, Error *err);
/* The text that follows the part, NULL: none. It may come as soon as the part may end. */
const char *written_call_after(const WrittenCall *call);
/* Takes the text of the part, which fits the form. Sets the form to that of the next part. After the last
 * part (*done) appends the call to `lines` as tools_read_calls() does. */
Status written_call_take(WrittenCall *call, AnswerForm *form, const char *text, size_t size, bool *done,
                         Buffer *lines, Error *err);
