/* written_calls.h - calls that are written in parts, not as one JSON text: the name of the function, then its
 * arguments one by one, or as one JSON object.
 *
 *   <tool_call> \n<function= get_weather >\n
 *     <parameter= city >\n Paris \n</parameter>\n </function>\n</tool_call>
 *   [TOOL_CALLS] get_weather [ARGS] {"city": "Paris"}
 *
 * Arguments that are strings stand there as they are, others as JSON; so do strings that only exist with the
 * mark after a value in them. */
#pragma once

#include "base/json.h"
#include "commands/form/form.h"

/* The text around the parts; special tokens only in before_id and before_object. */
typedef struct {
  const char *before_name, *after_name;
  const char *before_id;     /* before nine letters and digits; or NULL: a call has no id */
  const char *before_object; /* before all arguments as one JSON object; or NULL: */
  const char *before_key, *after_key, *after_value; /* around each of them, */
  const char *end;                                  /* and after the last one */
} CallMarks;

typedef struct {
  char *name; /* [size] */
  size_t size;
  bool required;
} WrittenArgument;

typedef struct {
  Buffer name;
  Buffer parameters;          /* their schema, as a document of its own */
  WrittenArgument *arguments; /* [n_arguments] in the order of `properties` */
  size_t n_arguments;
} WrittenFunction;

typedef struct {
  const CallMarks *marks;
  WrittenFunction *items; /* [count] */
  size_t count, capacity;
} WrittenFunctions; /* starts zeroed but for the marks */

/* Adds a function. `schema` is a valid JSON Schema that some arguments fit; refused (STATUS_USAGE) is one
 * that says more of the arguments together than which of them there are, where they are written one by one,
 * and names that would be read as marks. Optional arguments that no value fits are never written. */
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

/* The meaning of one of the words of a part. */
typedef struct {
  size_t at, size; /* in WrittenCall.words */
  size_t function, key;
} WrittenWord;
#define WRITTEN_NO_KEY SIZE_MAX /* the call ends, or its arguments are one object */

typedef struct {
  const WrittenFunctions *functions;
  WrittenPart part;
  size_t function, key; /* once they are known */
  bool *used;           /* [n_arguments] */
  Buffer words;
  WrittenWord *word_list; /* [n_words] */
  size_t n_words, words_capacity;
  Buffer schema;    /* of the value */
  Buffer arguments; /* so far, "{"KEY":VALUE" */
} WrittenCall;      /* starts zeroed */

void written_call_release(WrittenCall *call);
/* Begins a call: makes its first part that of the form. */
Status written_call_begin(WrittenCall *call, const WrittenFunctions *functions, AnswerForm *form, Error *err);
/* The text that follows the part, NULL: none. It may come as soon as the part may end. */
const char *written_call_after(const WrittenCall *call);
/* Takes the text of the part, which fits the form, and makes the next part that of the form; or *done, and
 * the call is appended to `lines` as tools_read_calls() does. */
Status written_call_take(WrittenCall *call, AnswerForm *form, const char *text, size_t size, bool *done,
                         Buffer *lines, Error *err);
